"""Runs an engine over a byte stream in chunks: flat memory, whole lines, line numbers by line feeds only."""

from __future__ import annotations

import mmap
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from gpuclinic.recognise.engine import Confirmer, Engine

CHUNK = 1 << 20
_LOOK_BACK = 4096
_LONGEST_LINE = 64 << 10
_OVERLAP = 8 << 10
_ESCAPES = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]{0,300}(?:\x07|\x1b\\)|[@-Z\\-_])|\x1b")
_ESCAPED_FEED = re.compile(r"#012|\\n|\r")

ReadInto = Callable[[memoryview], int]


class Found(NamedTuple):
    """A line with the signatures that hold for it.

    base: raw offset of the chunk; feeds: line feeds between the chunk's start and the line; feeds_before: line feeds in front of
    the chunk where the scan counted them, else None (line number = feeds_before + feeds + 1).
    text: the part of the line that matched (between carriage returns). before: up to 4 KiB of text in front of it.
    """

    base: int
    feeds: int
    feeds_before: int | None
    text: str
    before: str
    matches: list[tuple[int, re.Match[str]]]


def strip_escapes(data: bytes) -> bytes:
    """Bytes without terminal escape sequences; line feeds stay."""
    return _ESCAPES.sub(b"", data) if b"\x1b" in data else data


class StreamScanner:
    """Scans one stream or one region of a file. Not shared between threads."""

    def __init__(self, engine: Engine, confirmer: Confirmer) -> None:
        self._engine = engine
        self._confirmer = confirmer
        self._feeds_before: int | None = 0
        self._buffer = mmap.mmap(-1, CHUNK)  # page-aligned: read() into it copies several times faster than into malloc'd memory

    def scan(self, read_into: ReadInto, base: int = 0, end: int | None = None, *, counting: bool = True) -> Iterator[Found]:
        """Yields the lines that match. end: raw offset at or behind which no further line may begin. counting: line feeds, too."""
        self._feeds_before = 0 if counting else None
        buffer = self._buffer
        view = memoryview(buffer)
        held = 0  # bytes of an unfinished line at the buffer's start
        offset = base
        try:
            while True:
                got = read_into(view[held:])
                filled = held + got
                if not filled:
                    return
                cut = buffer.rfind(b"\n", 0, filled) + 1 if got else filled
                if end is not None and offset + filled >= end:
                    stop = buffer.find(b"\n", max(0, end - 1 - offset), filled)
                    if stop >= 0:
                        yield from self._scan_chunk(view[: stop + 1], offset)
                        return
                step = cut
                if not cut:
                    if filled < CHUNK:
                        held = filled
                        continue
                    cut, step = filled, filled - _OVERLAP  # a line longer than the buffer: scanned in overlapping pieces
                yield from self._scan_chunk(view[:cut], offset)
                if not got:
                    return
                if self._feeds_before is not None:
                    self._feeds_before += bytes(view[:step]).count(b"\n")
                rest = filled - step
                if rest:
                    buffer.move(0, step, rest)
                held = rest
                offset += step
        finally:
            view.release()

    def _scan_chunk(self, chunk: memoryview, base: int) -> Iterator[Found]:
        hits: list[tuple[int, int]] = []
        data: memoryview | bytes = chunk
        self._engine.scan(chunk, lambda number, at: hits.append((at, number)))
        if hits and any(number < 0 or number >= len(self._confirmer.signatures) for _, number in hits):
            data = strip_escapes(bytes(chunk))  # the chunk holds escapes: clean it and look again
            hits.clear()
            self._engine.scan(data, lambda number, at: hits.append((at, number)))
            hits = [h for h in hits if h[1] < len(self._confirmer.signatures)]
        if hits:
            yield from self._lines(bytes(data), hits, base)

    def _lines(self, data: bytes, hits: list[tuple[int, int]], base: int) -> Iterator[Found]:
        hits.sort()
        feeds = counted = 0
        index = 0
        while index < len(hits):
            at = hits[index][0]
            start = data.rfind(b"\n", 0, at - 1) + 1 if at else 0
            stop = data.find(b"\n", max(start, at - 1))
            if stop < 0:
                stop = len(data)
            numbers: list[int] = []
            spots: list[int] = []
            while index < len(hits) and hits[index][0] <= max(stop, at):
                if hits[index][1] not in numbers:
                    numbers.append(hits[index][1])
                    spots.append(hits[index][0])
                index += 1
            feeds += data.count(b"\n", counted, start)
            counted = start
            yield from self._confirm(data, start, stop, numbers, spots, base, feeds)

    def _confirm(
        self, data: bytes, start: int, stop: int, numbers: list[int], spots: list[int], base: int, feeds: int
    ) -> Iterator[Found]:
        if stop - start > _LONGEST_LINE:  # a giant line: only the surroundings of each match
            for number, spot in zip(numbers, spots, strict=True):
                piece = data[max(start, spot - _OVERLAP // 2) : min(stop, spot + _OVERLAP // 2)]
                text = piece.decode("utf-8", "replace")
                match = self._confirmer.confirm(number, text)
                if match is not None:
                    yield Found(base, feeds, self._feeds_before, text, "", [(number, match)])
            return
        line = data[start:stop].decode("utf-8", "replace")
        before = data[max(0, start - _LOOK_BACK) : start].decode("utf-8", "replace")
        if "\r" in line or "#012" in line or "\\n" in line:
            for part in _ESCAPED_FEED.split(line):
                found = self._confirmer.confirm_all(numbers, part) if part else []
                if found:
                    head = line[:200] if "#012" in line else part
                    yield Found(base, feeds, self._feeds_before, part, head if head != part else before, found)
                    numbers = [n for n in numbers if all(n != f[0] for f in found)]
            if not numbers:
                return
        found = self._confirmer.confirm_all(numbers, line)
        if found:
            yield Found(base, feeds, self._feeds_before, line, before, found)
