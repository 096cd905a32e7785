"""Reads a host: every item becomes signals and facts; what could not be read is kept with its reason."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from typing import BinaryIO

import msgspec

from gpuclinic.knowledge import Knowledge
from gpuclinic.model import Document, Fact, NotRead, ReadItem, Signal, Where
from gpuclinic.observe import Host, Item
from gpuclinic.recognise import parsers
from gpuclinic.recognise.decoding import decode, looks_binary
from gpuclinic.recognise.engine import Confirmer, make_engine
from gpuclinic.recognise.jsonlines import unwrap
from gpuclinic.recognise.kinds import kind_of
from gpuclinic.recognise.scan import StreamScanner
from gpuclinic.recognise.signals import SignalMaker

HELD_WHOLE = 8 << 20
"""Files up to this size are held whole, decoded and given to parsers; larger ones are streamed."""
_SAMPLE = 1 << 20

Progress = Callable[[str, int], None]
ReadInto = Callable[[memoryview], int]


class Reader:
    """Reads items one by one; holds the engine and all that was found."""

    def __init__(self, knowledge: Knowledge, progress: Progress | None = None) -> None:
        self._knowledge = knowledge
        self._engine = make_engine(knowledge.signatures, knowledge.stamp)
        self._confirmer = Confirmer(knowledge.signatures)
        self._scanner = StreamScanner(self._engine, self._confirmer)
        self._progress = progress
        self._order = 0
        self.signals: list[Signal] = []
        self.facts: list[Fact] = []
        self.counts: dict[str, int] = {}
        self.read: list[ReadItem] = []
        self.not_read: list[NotRead] = []

    def read_host(self, host: Host) -> None:
        """Everything of the host."""
        for item in host.items():
            if isinstance(item, NotRead):
                self.not_read.append(item)
                continue
            try:
                self._item(item)
            except (OSError, EOFError, ValueError) as problem:
                self.not_read.append(NotRead(item.path, str(problem) or type(problem).__name__))

    def _item(self, item: Item) -> None:
        with item.open() as stream:
            data = _read_up_to(stream, HELD_WHOLE + 1)
            if not data:
                self.not_read.append(NotRead(item.path, "empty"))
            elif looks_binary(data[:8192]):
                self.not_read.append(NotRead(item.path, "not text"))
            elif len(data) <= HELD_WHOLE:
                self._whole(item.path, decode(data), len(data))
            else:
                self._streamed(item, data, stream)

    def _whole(self, path: str, text: str, size: int) -> None:
        names, host = self._parse(Document(path, text, name_hint=path))
        plain = unwrap(text) or text
        lines = plain.count("\n") + (not plain.endswith("\n"))
        stream = io.BytesIO(plain.encode("utf-8", "replace"))
        self._scan(path, stream.readinto, kind_of(plain, names), host)
        self.read.append(ReadItem(path, kind_of(plain, names), size, lines))

    def _streamed(self, item: Item, head: bytes, stream: BinaryIO) -> None:
        sample = decode(head[:_SAMPLE])
        names, host = self._parse(Document(item.path, sample, name_hint=item.path))
        kind = kind_of(sample, names)
        self._scan(item.path, _joined(head, stream), kind, host)
        self.read.append(ReadItem(item.path, kind, item.size or 0, None))

    def _parse(self, document: Document) -> tuple[list[str], str | None]:
        names: list[str] = []
        host: str | None = None
        for entry in parsers.parsers_for(document.text):
            facts = parsers.parse(entry, document)
            if facts:
                names.append(entry.name)
                self.facts.extend(facts)
                host = host or next((f.host for f in facts if f.host), None)
        return names, host

    def _scan(self, path: str, read_into: ReadInto, kind: str, host: str | None) -> None:
        maker = SignalMaker(path, self._knowledge.signatures, self._order, host, kind == "kernel log")
        for found in self._scanner.scan(read_into):
            maker.take(found)
            if self._progress is not None:
                self._progress(path, found.base)
        self._order = maker.order
        self.signals.extend(maker.finish())
        for identity, count in maker.counts().items():
            self.counts[identity] = self.counts.get(identity, 0) + count

    def with_lines(self, places: Iterable[Where]) -> dict[Where, Where]:
        """The same places with their line numbers counted where the scan left them out."""
        return {place: msgspec.structs.replace(place) for place in places if place.line is not None}


def _read_up_to(stream: BinaryIO, size: int) -> bytes:
    """That many bytes, or all there are; short reads of pipes are joined."""
    pieces: list[bytes] = []
    wanted = size
    while wanted > 0:
        piece = stream.read(wanted)
        if not piece:
            break
        pieces.append(piece)
        wanted -= len(piece)
    return b"".join(pieces)


def _joined(head: bytes, stream: BinaryIO) -> ReadInto:
    """readinto over a held beginning and the rest of its stream."""
    first = io.BytesIO(head)

    def read_into(buffer: memoryview) -> int:
        got = first.readinto(buffer)
        if got:
            return got
        data = stream.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    return read_into
