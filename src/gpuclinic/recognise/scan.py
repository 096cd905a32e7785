"""Runs an engine over bytes in chunks: flat memory, whole lines, line numbers by line feeds only."""

from __future__ import annotations

import mmap
import re
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, NamedTuple

from gpuclinic.recognise.habits import SETTLED, Habits

if TYPE_CHECKING:
    from gpuclinic.recognise.engine import Confirmer, Engine, Hit
    from gpuclinic.recognise.habits import Key

CHUNK = 1 << 19
_PIECE = 1 << 18
_LOOK_BACK = 4096
_LONGEST_LINE = 64 << 10
_OVERLAP = 8 << 10
_QUIET_AFTER = 400
_QUIET_MISSES = 5000
_STRICT_MISSES = 100
_SETTLED_SOON = 64
_WORTH_COMPILING = 700_000
_KEPT_OF_QUIET = 4
_ESCAPES = re.compile(
    rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]{0,300}(?:\x07|\x1b\\)|[()*+][0-9A-Za-z]|[@-Z\\-_])|\x1b|\x00+"
)
_ESCAPED_FEED = re.compile(r"#012|\\n|\r")

ReadInto = Callable[[memoryview], int]


class Found(NamedTuple):
    """A line with the signatures that hold for it.

    line: its number, from 1, counted from where the scan began. offset: of its chunk.
    text: the part of the line that matched (between carriage returns). before: up to 4 KiB of what stands in front.
    """

    line: int
    offset: int
    text: str
    before: bytes
    matches: list[tuple[int, re.Match[str]]]


def strip_escapes(data: bytes) -> bytes:
    """Bytes without terminal escape sequences and NULs (a power cut leaves runs of them); line feeds stay."""
    return _ESCAPES.sub(b"", data) if b"\x1b" in data or b"\x00" in data else data


class StreamScanner:
    """Scans one source at a time, in one thread.

    quietable: signatures that say only that all goes well (progress, logins). Once there are plenty in a source, most
    of their lines are no longer cut and confirmed, only counted, in `skipped`. part: gives the engine for the rest of
    a large source, one that does not look for what is quietable.
    """

    def __init__(
        self,
        engine: Engine,
        confirmer: Confirmer,
        quietable: frozenset[int] = frozenset(),
        part: Callable[[], Engine] | None = None,
    ) -> None:
        self._engine = engine
        self._named: list[tuple[int, ...]] = [needle.signatures for needle in engine.needles]
        self._confirmer = confirmer
        self._quietable = quietable
        self._part = part
        self._buffer: mmap.mmap | None = None
        self.lines = 0
        self._scanned = 0
        self._begin()

    def _begin(self) -> None:
        self._confirmed: dict[int, int] = {}
        self._misses: dict[int, int] = {}
        self._places: dict[int, list[int]] = {}
        self._loud = self._named.copy()
        self._habits = Habits(self._confirmer)
        self.quiet: set[int] = set()

    @property
    def skipped(self) -> dict[int, int]:
        """How many lines of each signature were only counted."""
        return self._habits.skipped

    def clone(self, engine: Engine | None = None) -> StreamScanner:
        """A scanner for another thread, or with another engine, that knows already what is quiet."""
        twin = StreamScanner(engine or self._engine.clone(), self._confirmer, self._quietable)
        twin._habits = Habits(self._confirmer, _SETTLED_SOON if engine is not None else SETTLED)
        for number in self.quiet:
            twin._silence(number)
        return twin

    def continues(self, other: StreamScanner) -> None:
        """Begins another region of the source, with the habits that another scanner with this engine has learnt."""
        self._habits = other._habits.twin()
        self.lines = 0

    def reduced(self, size: int) -> Engine | None:
        """An engine fit for the rest of a large source, by what its beginning held; None where nothing would be gained.

        It no longer looks for what is quietable, and, if what was mostly nominated in vain would cost more than
        compiling does in the rest (of this size), more strictly for that.
        """
        signatures = self._confirmer.signatures
        vain: dict[int, int] = {}
        lines = 0
        for key, count in self._habits.vain().items():
            needles = (key,) if isinstance(key, int) else key
            numbers = {n for needle in needles for n in self._loud[needle]} - self._quietable
            lines += count if numbers else 0
            for number in numbers:
                vain[number] = vain.get(number, 0) + count
        engine = self._part() if self._part is not None else None
        if lines * size <= _WORTH_COMPILING * max(1, self._scanned):
            return engine
        strict = {
            number: (signatures[number].pattern, signatures[number].ignore_case)
            for number, count in vain.items()
            if count >= _STRICT_MISSES and count > 20 * self._confirmed.get(number, 0)
        }
        return (engine or self._engine).reduced(self.quiet, strict) if strict else engine

    def reset(self) -> None:
        """Forgets what the last source held."""
        self._begin()
        self.lines = 0
        self._scanned = 0

    def scan_bytes(self, data: bytes) -> Iterator[Found]:
        """Yields the lines of a text held in memory that match."""
        at = 0
        while at < len(data):
            stop = len(data) if len(data) - at <= _PIECE else data.rfind(b"\n", at, at + _PIECE) + 1
            if stop <= at:
                stop = min(len(data), at + CHUNK)
            chunk = data[at:stop] if at or stop < len(data) else data
            yield from self._scan_chunk(chunk, at)
            at = stop if chunk.endswith(b"\n") or stop == len(data) else stop - _OVERLAP
        yield from self._late()

    def scan(self, read_into: ReadInto, base: int = 0) -> Iterator[Found]:
        """Yields the lines of a stream that match. base: its offset in the source."""
        if self._buffer is None:  # page-aligned: read() into it copies several times faster than into malloc'd memory
            self._buffer = mmap.mmap(-1, CHUNK)
        buffer = self._buffer
        view = memoryview(buffer)
        held = 0  # bytes of an unfinished line at the buffer's start
        offset = base
        try:
            while True:
                got = read_into(view[held:])
                filled = held + got
                if not filled:
                    break
                cut = buffer.rfind(b"\n", 0, filled) + 1 if got else filled
                step = cut
                if not cut:
                    if filled < CHUNK:
                        held = filled
                        continue
                    cut, step = (
                        filled,
                        filled - _OVERLAP,
                    )  # a line longer than the buffer: scanned in overlapping pieces
                yield from self._scan_chunk(view[:cut], offset)
                if not got:
                    break
                rest = filled - step
                if rest:
                    buffer.move(0, step, rest)
                held = rest
                offset += step
            yield from self._late()
        finally:
            view.release()

    def _scan_chunk(self, chunk: memoryview | bytes, base: int) -> Iterator[Found]:
        hits = self._engine.scan(chunk)
        data = chunk if isinstance(chunk, bytes) else chunk.tobytes()
        self._scanned += len(data)
        if hits:
            special = len(self._loud)
            if any(number == special for _, number in hits):
                data = strip_escapes(data)  # clean it and look again
                hits = [hit for hit in self._engine.scan(data) if hit[1] != special]
            if self.quiet:
                hits = self._without_quiet(hits)
            hits.sort()
            feeds, counted = yield from self._lines(data, hits, base)
            self._habits.leave(data, base, _LOOK_BACK)
            self.lines += feeds + data.count(b"\n", counted)
        else:
            self.lines += data.count(b"\n")

    def _without_quiet(self, hits: list[Hit]) -> list[Hit]:
        """The hits less those that only nominate what is quiet; the last few of these stay, too."""
        loud = self._loud
        kept: list[Hit] = []
        last: dict[int, list[Hit]] = {}
        for hit in hits:
            if loud[hit[1]]:
                kept.append(hit)
            else:
                last.setdefault(hit[1], []).append(hit)
        for needle, dropped in last.items():
            kept.extend(dropped[-_KEPT_OF_QUIET:])
            for number in self._engine.needles[needle].signatures:
                self.skipped[number] = self.skipped.get(number, 0) + max(0, len(dropped) - _KEPT_OF_QUIET)
        return kept

    def _silence(self, number: int) -> None:
        if number in self.quiet:
            return
        self.quiet.add(number)
        if not self._places:
            for place, numbers in enumerate(self._loud):
                for one in numbers:
                    self._places.setdefault(one, []).append(place)
        for place in self._places.get(number, ()):
            self._loud[place] = tuple(n for n in self._loud[place] if n != number)

    def _lines(self, data: bytes, hits: list[Hit], base: int) -> Generator[Found, None, tuple[int, int]]:
        """The lines that hold; returns how many line feeds there are up to where."""
        feeds = counted = index = 0
        counts = self._habits.counts
        end = len(hits)
        while index < end:
            at = hits[index][0]
            start = data.rfind(b"\n", 0, max(0, at - 1)) + 1
            stop = data.find(b"\n", max(start, at - 1))
            if stop < 0:
                stop = len(data)
            first = index
            index += 1
            while index < end and (hits[index][0] <= stop or hits[index][0] <= at):
                index += 1
            feeds += data.count(b"\n", counted, start)
            counted = start
            line = self.lines + feeds + 1
            key: Key = hits[first][1]
            if index - first > 1:
                key = tuple(dict.fromkeys([needle for _, needle in hits[first:index]]))
            if counts(key, data, start, stop, line):
                continue
            if stop - start <= _LONGEST_LINE and data.find(b"\r", start, stop - 1) < 0:
                yield from self._confirm(data, start, stop, self._nominated(key), line, base, key)
                continue
            for left, right, numbers in self._segments(data, start, stop, hits[first:index]):
                yield from self._confirm(data, left, right, numbers, line, base)
        return feeds, counted

    def _nominated(self, key: Key) -> list[int]:
        """The signatures that needles nominate."""
        needles = self._engine.needles
        if isinstance(key, int):
            return list(needles[key].signatures)
        return list(dict.fromkeys(number for needle in key for number in needles[needle].signatures))

    def _late(self) -> Iterator[Found]:
        """The last ones of the lines that were only counted."""
        for key, late in self._habits.last():
            text = late.data.decode("utf-8", "replace")
            found = self._confirmer.confirm_all(self._nominated(key), text)
            if found:
                yield Found(late.line, late.offset, text, late.before, found)

    def _segments(self, data: bytes, start: int, stop: int, hits: list[Hit]) -> Iterator[tuple[int, int, list[int]]]:
        """The parts of a line that its hits lie in, between carriage returns, with what they nominate."""
        needles = self._engine.needles
        whole = stop - start <= _LONGEST_LINE
        left = right = start - 1
        numbers: dict[int, None] = {}
        for at, needle in hits:
            if at > right or right < start:
                if numbers:
                    yield left, right, list(numbers)
                near = max(start, at - _OVERLAP // 2) if not whole else start
                far = min(stop, at + _OVERLAP // 2) if not whole else stop
                left = max(near, data.rfind(b"\r", near, max(near, at - 1)) + 1)
                right = data.find(b"\r", max(left, at - 1), far)
                right = far if right < 0 else right
                numbers = {}
            numbers.update(dict.fromkeys(needles[needle].signatures))
        if numbers:
            yield left, right, list(numbers)

    def _confirm(
        self, data: bytes, start: int, stop: int, numbers: list[int], line: int, base: int, key: Key | None = None
    ) -> Iterator[Found]:
        text = data[start:stop].decode("utf-8", "replace")
        confirm = self._confirmer.confirm_all
        if "#012" in text or "\\n" in text:
            key = None
            before = data[max(0, start - _LOOK_BACK) : start]
            head = text[:200].encode("utf-8", "replace") if "#012" in text else before
            for part in _ESCAPED_FEED.split(text):
                found = confirm(numbers, part) if part else []
                if found:
                    yield Found(line, base, part, before if text.startswith(part) else head, found)
                    numbers = [n for n in numbers if all(n != f[0] for f in found)]
            if not numbers:
                return
        found = confirm(numbers, text)
        if key is not None:
            self._habits.learn(key, tuple([number for number, _ in found]))
        self._note(numbers, found)
        if found:
            yield Found(line, base, text, data[max(0, start - _LOOK_BACK) : start], found)

    def _note(self, numbers: list[int], found: list[tuple[int, re.Match[str]]]) -> None:
        """Counts what was confirmed and what was nominated in vain, and silences what is said too often."""
        confirmed, misses = self._confirmed, self._misses
        for number, _ in found:
            count = confirmed[number] = confirmed.get(number, 0) + 1
            if count >= _QUIET_AFTER and number in self._quietable:
                self._silence(number)
        if len(found) < len(numbers):
            held = {number for number, _ in found}
            for number in numbers:
                if number not in held:
                    count = misses[number] = misses.get(number, 0) + 1
                    if count >= _QUIET_MISSES and number in self._quietable:
                        self._silence(number)
