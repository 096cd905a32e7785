"""Reads a host: every item becomes signals and facts; what could not be read is kept with its reason."""

from __future__ import annotations

import functools
import io
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, BinaryIO

import msgspec

from gpuclinic.clinic.large import joined, parse_ahead, scan_regions, scan_stream
from gpuclinic.clinic.naming import Hosts
from gpuclinic.model import Boot, Document, Fact, NotRead, ReadItem, Signal
from gpuclinic.recognise import parsers
from gpuclinic.recognise.boots import number_boots
from gpuclinic.recognise.decoding import binary_reason, decode, encoding_of, transcoded
from gpuclinic.recognise.engine import Confirmer, make_engine
from gpuclinic.recognise.jsonlines import unwrap, unwrapped
from gpuclinic.recognise.kinds import bookkeeping, is_run_record, kind_of
from gpuclinic.recognise.limits import TooSlowError
from gpuclinic.recognise.scan import StreamScanner
from gpuclinic.recognise.sections import sections
from gpuclinic.recognise.signals import SignalMaker
from gpuclinic.recognise.timestamps import relative_stamps

if TYPE_CHECKING:
    from pathlib import Path

    from gpuclinic.knowledge import Knowledge
    from gpuclinic.observe import Host, Item
    from gpuclinic.recognise.engine import Engine
    from gpuclinic.recognise.parsers._entry import Entry

HELD_WHOLE = 8 << 20
"""Files up to this size are held whole, decoded and given to parsers; larger ones are streamed."""
_SAMPLE = 512 << 10
_SERIES = frozenset({"steps:parse_steps"})
"""Parsers that take a median over many like lines; the beginning and the end of a long text are enough for them."""
_SERIES_SAMPLE = 128 << 10
_SERIES_ENDS = 48 << 10
_PICKLE_HEAD = b"\x80"

Progress = Callable[[str, int], None]


class Texts:
    """Texts that were asked of a machine, as a Host for the reader; compressed ones are unpacked."""

    def __init__(self, texts: list[tuple[str, bytes]]) -> None:
        self.label = "this machine"
        self._texts = texts

    def items(self) -> Iterator[Item | NotRead]:
        """Each text once."""
        from gpuclinic.observe.archives import nested
        from gpuclinic.observe.host import Item

        for shown, data in self._texts:
            yield from nested(Item(shown, len(data), functools.partial(_opened, data)))


def _opened(data: bytes) -> BinaryIO:
    return io.BytesIO(data)


class Reader:
    """Reads items one by one; holds the engine and all that was found."""

    def __init__(self, knowledge: Knowledge, progress: Progress | None = None) -> None:
        self._knowledge = knowledge
        quietable = frozenset(number for number, signature in enumerate(knowledge.signatures) if signature.frequent)

        @functools.cache
        def part() -> Engine:
            return make_engine(knowledge.signatures, knowledge.stamp, quietable)

        engine = make_engine(knowledge.signatures, knowledge.stamp)
        self._scanner = StreamScanner(engine, Confirmer(knowledge.signatures), quietable, part)
        self._progress = progress
        self._order = 0
        self._hosts = Hosts()
        self.signals: list[Signal] = []
        self.facts: list[Fact] = []
        self.counts: dict[str, int] = {}
        self.boots: list[Boot] = []
        self.read: list[ReadItem] = []
        self.not_read: list[NotRead] = []

    def read_host(self, host: Host) -> None:
        """Everything of the host."""
        for item in host.items():
            if isinstance(item, NotRead):
                self.not_read.append(item)
                continue
            if self._progress is not None:
                self._progress(item.path, 0)
            try:
                self._item(item)
            except (OSError, EOFError, ValueError) as problem:
                self.not_read.append(NotRead(item.path, str(problem) or type(problem).__name__))
        self.signals, self.boots = self._hosts.settle(self.signals, self.boots)

    def _item(self, item: Item) -> None:
        with item.open() as stream:
            data, problem = _read_up_to(stream, HELD_WHOLE + 1)
            if problem is not None:  # a damaged archive: what came out of it still counts
                self.not_read.append(NotRead(item.path, f"the rest of it: {problem}"))
            beginning = _behind_hole(data)[:8192]
            if beginning.count(0) == len(beginning) and item.plain is not None and len(data) > HELD_WHOLE:
                beginning = _last_bytes(item.plain)  # a hole of many megabytes: the end tells what the file is
            reason = bookkeeping(item.path, data[:512])
            reason = reason or (None if self._dump(item.path, data) else binary_reason(beginning))
            if not data:
                if problem is None:
                    self.not_read.append(NotRead(item.path, "empty"))
            elif reason is not None:
                self.not_read.append(NotRead(item.path, reason))
            elif len(data) <= HELD_WHOLE:
                if data[:1] != _PICKLE_HEAD and not self._record(item.path, data):
                    self._whole(item.path, decode(data), len(data))
            else:
                self._streamed(item, data, stream)

    def _dump(self, path: str, data: bytes) -> bool:
        """The data is a flight recorder's pickle; its facts are taken without unpickling."""
        if data[:1] != _PICKLE_HEAD or len(data) > HELD_WHOLE:
            return False
        from gpuclinic.recognise.parsers.flight_recorder import is_dump, parse_dump

        if not is_dump(data[: 1 << 16]):
            return False
        facts = parse_dump(path, data)
        self.facts.extend(facts)
        self.read.append(ReadItem(path, "NCCL flight recorder", len(data), None))
        return True

    def _record(self, path: str, data: bytes) -> bool:
        """The data is what `gpuclinic run` left of a job; its facts are taken, and no line of it is taken for one of a log."""
        if not is_run_record(data[:256]):
            return False
        from gpuclinic.recognise.run_record import parse_run_record

        self.facts.extend(parse_run_record(path, data))
        self.read.append(ReadItem(path, "record of a run", len(data), data.count(b"\n")))
        return True

    def _whole(self, path: str, text: str, size: int) -> None:
        names, host = self._parse(Document(path, text, name_hint=path))
        plain = unwrap(text)
        if plain is None:
            plain = text
        else:
            more, named = self._parse(Document(path, plain, name_hint=path))
            names, host = names + more, host or named
        kind = kind_of(plain, names)
        maker = self._maker(path, kind, host)
        maker.know_stamps(relative_stamps(plain))
        self._scanner.reset()
        for found in self._scanner.scan_bytes(plain.encode("utf-8", "replace")):
            maker.take(found)
        self._keep(path, maker, self._scanner.skipped, plain[: 1 << 16])
        lines = plain.count("\n") + (not plain.endswith("\n"))
        self.read.append(ReadItem(path, kind, size, lines))

    def _streamed(self, item: Item, head: bytes, stream: BinaryIO) -> None:
        encoding = encoding_of(head[: 1 << 16])
        sample = decode(head[:_SAMPLE])
        sample = sample[: sample.rfind("\n") + 1] or sample
        plain = unwrap(sample)
        names, host = self._parse(
            Document(item.path, sample if plain is None else plain, name_hint=item.path), _SERIES_ENDS
        )
        kind = kind_of(sample if plain is None else plain, names)
        maker = self._maker(item.path, kind, host)
        self._scanner.reset()
        if item.plain is not None and plain is None and encoding.startswith("utf-8"):
            with item.plain.open("rb") as file:
                got = scan_regions(file.fileno(), self._scanner, maker, self._advance(item.path))
        else:
            source = transcoded(joined(head, parse_ahead(stream)), encoding)
            got = scan_stream(
                source if plain is None else unwrapped(source), self._scanner, maker, self._advance(item.path)
            )
            if got.problem is not None:
                self.not_read.append(NotRead(item.path, f"the rest of it: {got.problem}"))
        self._parse_end(item.path, got.end, got.lines)
        self._keep(item.path, maker, got.skipped, sample[: 1 << 16])
        self.read.append(ReadItem(item.path, kind, item.size or got.size, got.lines))

    def _advance(self, path: str) -> Callable[[int], None]:
        def advance(offset: int) -> None:
            if self._progress is not None:
                self._progress(path, offset)

        return advance

    def _parse_end(self, path: str, end: bytes, lines: int) -> None:
        """Gives parsers the end of a large file, too: the last state that a log shows is what people ask about."""
        text = decode(end)
        text = text[text.find("\n") + 1 :]
        first = max(1, lines - text.count("\n") + 1)
        self._parse(Document(path, text, first_line=first, name_hint=path), _SERIES_ENDS)

    def _parse(self, document: Document, series: int = _SERIES_SAMPLE) -> tuple[list[str], str | None]:
        names: list[str] = []
        host: str | None = None
        for part in sections(document):
            for entry in parsers.parsers_for(part.text):
                facts = self._facts_of(entry, _thinned(part, series) if entry.function in _SERIES else part)
                if facts:
                    names.append(entry.name)
                    self.facts.extend(facts)
                    host = host or next((f.host for f in facts if f.host), None)
        return names, host

    def _facts_of(self, entry: Entry, document: Document) -> list[Fact]:
        """What a parser finds; one that stumbles over a text says so and costs only its own facts."""
        try:
            return parsers.parse(entry, document)
        except Exception as problem:  # noqa: BLE001 - whatever a hostile text does to a parser becomes a "not read, because"
            told = str(problem) if isinstance(problem, TooSlowError) else f"{type(problem).__name__} in its parser"
            self.not_read.append(NotRead(document.source, f"as {entry.name}: {told}"))
            return []

    def _maker(self, path: str, kind: str, host: str | None) -> SignalMaker:
        return SignalMaker(path, self._knowledge.signatures, host, kernel=kind == "kernel log")

    def _keep(self, path: str, maker: SignalMaker, skipped: dict[int, int], head: str) -> None:
        signals, boots = number_boots(maker.finish(self._order + 1), head)
        self._order += len(signals)
        self.signals.extend(signals)
        self.boots.extend(boots)
        self._hosts.note(path, maker)
        counts = maker.counts()
        for number, count in skipped.items():
            identity = self._knowledge.signatures[number].id
            if identity in counts:
                counts[identity] += count
        for identity, count in counts.items():
            self.counts[identity] = self.counts.get(identity, 0) + count


def _thinned(document: Document, kept: int) -> Document:
    """A long document with its middle lines emptied, so that the others keep their numbers."""
    text = document.text
    if len(text) <= 3 * kept:
        return document
    first, last = text.rfind("\n", 0, kept) + 1, text.find("\n", len(text) - kept)
    middle = "\n" * text.count("\n", first, last)
    return msgspec.structs.replace(document, text=text[:first] + middle + text[last:])


def _last_bytes(path: Path) -> bytes:
    """The last bytes of a file."""
    with path.open("rb") as file:
        file.seek(-min(8192, file.seek(0, os.SEEK_END)), os.SEEK_END)
        return file.read(8192)


def _behind_hole(data: bytes) -> bytes:
    """The data without a leading hole, as log rotation by copying and truncating leaves it; itself where it is nothing else."""
    return (data.lstrip(b"\0") or data) if data.startswith(b"\0\0") else data


def _read_up_to(stream: BinaryIO, size: int) -> tuple[bytes, str | None]:
    """That many bytes, or all there are, and what went wrong on the way; short reads of pipes are joined."""
    from gpuclinic.observe.archives import DAMAGE, problem_of

    pieces: list[bytes] = []
    wanted = size
    try:
        while wanted > 0:
            piece = stream.read(min(wanted, 1 << 20))
            if not piece:
                break
            pieces.append(piece)
            wanted -= len(piece)
    except DAMAGE as problem:
        return b"".join(pieces), str(problem) or type(problem).__name__
    return b"".join(pieces), problem_of(stream)
