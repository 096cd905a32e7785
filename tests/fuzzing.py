"""Feeds readers with damaged input: small own texts and archives, cut, flipped, doubled and spliced."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from gpuclinic.model import Document, NotRead
from gpuclinic.observe import Item
from gpuclinic.observe.archives import nested
from gpuclinic.recognise import parsers
from gpuclinic.recognise.boots import number_boots
from gpuclinic.recognise.decoding import binary_reason, decode
from gpuclinic.recognise.engine import Confirmer, make_engine
from gpuclinic.recognise.jsonlines import unwrap
from gpuclinic.recognise.kinds import kind_of
from gpuclinic.recognise.parsers.flight_recorder import is_dump, parse_dump
from gpuclinic.recognise.scan import StreamScanner
from gpuclinic.recognise.sections import sections
from gpuclinic.recognise.signals import SignalMaker
from gpuclinic.recognise.timestamps import relative_stamps

if TYPE_CHECKING:
    import random

CORPUS = Path(__file__).parent / "fuzz_corpus"
Target = Callable[[bytes], None]


def archive(data: bytes) -> None:
    """Everything a stream holds can be listed and read, or is refused with a reason."""
    for item in nested(Item("x", len(data), lambda: io.BufferedReader(io.BytesIO(data)))):  # type: ignore[arg-type]
        if isinstance(item, NotRead):
            item.path.encode()
            assert item.why
            continue
        item.path.encode()
        with item.open() as stream:
            while stream.read(1 << 16):
                pass


def text(data: bytes) -> None:
    """Decoding, unwrapping and cutting keep lines and never raise."""
    binary_reason(data[:8192])
    plain = decode(data)
    plain.encode()
    unwrapped = unwrap(plain)
    assert unwrapped is None or unwrapped.count("\n") == plain.count("\n")
    parts = sections(Document("x", plain))
    assert "".join(part.text for part in parts) == plain
    kind_of(plain, [])
    relative_stamps(plain)


def parse(data: bytes) -> None:
    """Every parser that its marks call copes with what it gets."""
    for part in sections(Document("x", decode(data))):
        for entry in parsers.parsers_for(part.text):
            parsers.parse(entry, part)
    if is_dump(data[: 1 << 16]):
        parse_dump("x", data)


class Signals:
    """The way from bytes to numbered signals."""

    def __init__(self) -> None:
        from gpuclinic.knowledge import load

        knowledge = load()
        self._signatures = knowledge.signatures
        self._scanner = StreamScanner(
            make_engine(knowledge.signatures, knowledge.stamp), Confirmer(knowledge.signatures)
        )

    def __call__(self, data: bytes) -> None:
        """Scans, makes signals, numbers boots."""
        self._scanner.reset()
        maker = SignalMaker("x", self._signatures, None, kernel=True)
        plain = decode(data)
        lines = plain.count("\n") + 1
        for found in self._scanner.scan_bytes(plain.encode()):
            assert 1 <= found.line <= lines
            maker.take(found)
        signals, _ = number_boots(maker.finish(1), plain)
        for signal in signals:
            json.dumps([signal.where.text, signal.groups, signal.host])


def targets() -> dict[str, Target]:
    """The readers by name."""
    return {"archive": archive, "text": text, "parse": parse, "signals": Signals()}


def seeds() -> list[bytes]:
    """The corpus, and archives made of it."""
    texts = [path.read_bytes() for path in sorted(CORPUS.iterdir()) if path.is_file()]
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for number, data in enumerate(texts[:4]):
            member = tarfile.TarInfo(f"n{number}/log")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    zipped = io.BytesIO()
    with zipfile.ZipFile(zipped, "w", zipfile.ZIP_DEFLATED) as pack:
        pack.writestr("a.log.gz", gzip.compress(texts[0]))
    wide = [texts[0].decode("utf-8", "replace").encode(name) for name in ("utf-16", "gb18030")]
    return [*texts, packed.getvalue(), zipped.getvalue(), gzip.compress(texts[-1]), *wide]


def damaged(random_: random.Random, pool: list[bytes]) -> bytes:
    """One of the pool with a few random injuries."""
    data = bytearray(random_.choice(pool))
    for _ in range(random_.randint(1, 6)):
        if not data:
            break
        at = random_.randrange(len(data))
        much = min(len(data) - at, random_.choice((1, 2, 7, 60, 500)))
        action = random_.randrange(6)
        if action == 0:
            data[at] ^= 1 << random_.randrange(8)
        elif action == 1:
            del data[at : at + much]
        elif action == 2:
            data[at:at] = data[at : at + much] * random_.choice((1, 2, 30))
        elif action == 3:
            other = random_.choice(pool)
            start = random_.randrange(len(other) or 1)
            data[at:at] = other[start : start + much]
        elif action == 4:
            data[at : at + much] = random_.randbytes(much)
        else:
            data[at:at] = random_.choice(
                (b"\x00", b"\r", b"\n", b"\x1b[", b'"', b"9" * 40, b"-", b"|", b"[", b"\xff\xfe", b"{")
            )
        del data[1 << 20 :]
    return bytes(data)
