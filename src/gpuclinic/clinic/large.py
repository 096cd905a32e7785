"""Large sources: regions of a file scanned by two threads, streams read ahead, their ends kept for parsers."""

from __future__ import annotations

import itertools
import os
import queue
import threading
from collections import deque
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from gpuclinic.observe.archives import DAMAGE, problem_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future

    from gpuclinic.recognise.scan import ReadInto, StreamScanner
    from gpuclinic.recognise.signals import SignalMaker

_EDGE = 1 << 20
_LEARNT_FROM = 16 << 20
_REGION = 32 << 20
_WORTH_REBUILDING = 32 << 20
_BLOCK = 1 << 18
_BLOCKS_AHEAD = 8
_SAMPLE = 512 << 10
_STREAM_PIECE = 2 << 20
_STREAM_SIZE = 64 << 20
"""What a stream of which only 8 MiB are known is taken to hold, where it is weighed whether compiling is worth while."""


class Scanned(NamedTuple):
    """How large a source was, how many lines it has, what was counted only, its last bytes, and why it ended early."""

    size: int
    lines: int
    skipped: dict[int, int]
    end: bytes
    problem: str | None = None


class _Region(NamedTuple):
    """A part of a source that begins and ends with lines. full: everything is looked for in it (the first, the last)."""

    start: int
    stop: int
    read_into: ReadInto
    full: bool


def scan_regions(handle: int, scanner: StreamScanner, maker: SignalMaker, advance: Callable[[int], None]) -> Scanned:
    """Scans a regular file: its beginning and its end in full, the middle without what is mere progress."""
    size = os.fstat(handle).st_size
    edges = _regions(handle, size)
    regions = (
        _Region(start, stop, _region_reader(handle, start, stop), number in (0, len(edges) - 1))
        for number, (start, stop) in enumerate(edges)
    )
    lines, skipped = _scan(regions, size, scanner, maker, advance)
    return Scanned(size, lines, skipped, os.pread(handle, _SAMPLE, max(0, size - _SAMPLE)))


def scan_stream(
    source: ReadInto, scanner: StreamScanner, maker: SignalMaker, advance: Callable[[int], None]
) -> Scanned:
    """Scans a stream likewise, in pieces that are held while they are scanned; a damaged one ends early."""
    pieces = _Pieces(source)
    lines, skipped = _scan(pieces.regions(), _STREAM_SIZE, scanner, maker, advance)
    return Scanned(pieces.size, lines, skipped, pieces.end, pieces.problem)


def _scan(
    regions: Iterator[_Region], size: int, scanner: StreamScanner, maker: SignalMaker, advance: Callable[[int], None]
) -> tuple[int, dict[int, int]]:
    """Lines and what was counted only.

    The first region of the middle is scanned alone: the others, two at a time, go on with the habits it has learnt.
    """
    skipped: dict[int, int] = {}
    lines = 0

    def scan_one(mine: StreamScanner, region: _Region) -> SignalMaker:
        part = maker.twin()
        for found in mine.scan(region.read_into, region.start):
            part.take(found)
        return part

    def add(part: SignalMaker, count: int, quiet: dict[int, int], stop: int) -> None:
        nonlocal lines
        maker.join(part, lines)
        lines += count
        for number, times in quiet.items():
            skipped[number] = skipped.get(number, 0) + times
        advance(stop)

    def alone(mine: StreamScanner, region: _Region) -> None:
        add(scan_one(mine, region), mine.lines, mine.skipped, region.stop)

    first = next(regions, None)
    if first is None:
        return 0, {}
    alone(scanner, first)
    second = next(regions, None)
    if second is None:
        return lines, skipped
    last = second if second.full else None
    if last is None:
        middle = scanner.clone(scanner.reduced(size) if size > _WORTH_REBUILDING else None)
        alone(middle, second)

        def middles() -> Iterator[_Region]:
            nonlocal last
            for region in regions:
                if region.full:
                    last = region
                    return
                yield region

        for part, count, quiet, stop in _side_by_side(middles(), middle, scan_one):
            add(part, count, quiet, stop)
    if last is not None:
        alone(scanner.clone(), last)
    return lines, skipped


def _side_by_side(
    regions: Iterator[_Region],
    middle: StreamScanner,
    scan_one: Callable[[StreamScanner, _Region], SignalMaker],
) -> Iterator[tuple[SignalMaker, int, dict[int, int], int]]:
    """What regions hold, in their order, how many lines they have, what was counted only, and where they end."""
    from concurrent.futures import ThreadPoolExecutor

    threads = max(1, min(2, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2))
    free: queue.SimpleQueue[StreamScanner] = queue.SimpleQueue()
    for _ in range(threads):
        free.put(middle.clone())

    def scan_next(region: _Region) -> tuple[SignalMaker, int, dict[int, int], int]:
        mine = free.get()
        try:
            mine.continues(middle)
            part = scan_one(mine, region)
            return part, mine.lines, mine.skipped, region.stop
        finally:
            free.put(mine)

    with ThreadPoolExecutor(threads) as pool:
        waiting: deque[Future[tuple[SignalMaker, int, dict[int, int], int]]] = deque()
        for region in regions:
            waiting.append(pool.submit(scan_next, region))
            if len(waiting) > threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _regions(handle: int, size: int) -> list[tuple[int, int]]:
    """The file in pieces that begin and end with lines: a small one in front and at the end, larger ones between."""
    edges = [0]
    begin = _EDGE + min(_LEARNT_FROM, _REGION)
    wanted = [_EDGE, *range(begin, max(begin, size - _EDGE), _REGION), size - _EDGE]
    for place in wanted:
        if place <= edges[-1] or place >= size:
            continue
        at = _after_feed(handle, place)
        if at is not None and edges[-1] < at < size:
            edges.append(at)
    edges.append(size)
    return list(itertools.pairwise(edges))


def _after_feed(handle: int, place: int) -> int | None:
    """The first line's beginning at or behind an offset; None where a line is longer than a mebibyte."""
    for step in range(16):
        data = os.pread(handle, 1 << 16, place + (step << 16))
        at = data.find(b"\n")
        if at >= 0:
            return place + (step << 16) + at + 1
        if not data:
            return None
    return None


def _region_reader(handle: int, start: int, stop: int) -> ReadInto:
    offset = start

    def read_into(buffer: memoryview) -> int:
        nonlocal offset
        wanted = min(len(buffer), stop - offset)
        if wanted <= 0:
            return 0
        got = os.preadv(handle, [buffer[:wanted]], offset)
        offset += got
        return got

    return read_into


class _Pieces:
    """Cuts a stream into regions that end with lines; the last one is small and looked at in full, as a file's is."""

    def __init__(self, source: ReadInto) -> None:
        self._source = source
        self.size = 0
        self.end = b""
        self.problem: str | None = None

    def _filled(self, view: memoryview, held: int) -> int:
        """Reads until the buffer is full or the stream ends; returns how much it holds."""
        while held < len(view):
            try:
                got = self._source(view[held:])
            except DAMAGE as problem:
                self.problem = str(problem) or type(problem).__name__
                break
            if not got:
                break
            held += got
            self.size += got
        return held

    def regions(self) -> Iterator[_Region]:
        """Each piece, held as bytes of its own."""
        buffer = bytearray(_STREAM_PIECE + _EDGE)
        view = memoryview(buffer)
        held = start = 0
        while True:
            held = self._filled(view, held)
            ended = held < len(buffer)
            wanted = held - _EDGE if ended else _STREAM_PIECE
            cut = buffer.rfind(b"\n", 0, wanted) + 1 if wanted > 0 else 0
            cut = cut or (0 if ended else _STREAM_PIECE)  # a line longer than a piece is cut
            if cut:
                yield _held(start, bytes(view[:cut]), full=start == 0)
            start += cut
            if ended:
                self.end = bytes(view[max(0, held - _SAMPLE) : held])
                if held > cut:
                    yield _held(start, bytes(view[cut:held]), full=True)
                return
            view[: held - cut] = view[cut:held]
            held -= cut


def _held(start: int, data: bytes, *, full: bool) -> _Region:
    at = 0

    def read_into(buffer: memoryview) -> int:
        nonlocal at
        size = min(len(buffer), len(data) - at)
        buffer[:size] = data[at : at + size]
        at += size
        return size

    return _Region(start, start + len(data), read_into, full)


def joined(head: bytes, rest: ReadInto) -> ReadInto:
    """readinto over a held beginning and the rest of its stream."""
    at = 0

    def read_into(buffer: memoryview) -> int:
        nonlocal at
        if at < len(head):
            size = min(len(buffer), len(head) - at)
            buffer[:size] = head[at : at + size]
            at += size
            return size
        return rest(buffer)

    return read_into


def parse_ahead(stream: BinaryIO) -> ReadInto:
    """readinto over a stream that another thread reads ahead, so that unpacking and scanning overlap."""
    blocks: queue.Queue[bytes | BaseException] = queue.Queue(_BLOCKS_AHEAD)
    pending = memoryview(b"")
    ended = False

    def fill() -> None:
        try:
            while True:
                block = stream.read(_BLOCK)
                problem = problem_of(stream)
                if not block and problem is not None:
                    blocks.put(OSError(problem))
                    return
                blocks.put(block)
                if not block:
                    return
        except DAMAGE as error:
            blocks.put(error)

    threading.Thread(target=fill, daemon=True).start()

    def read_into(buffer: memoryview) -> int:
        nonlocal pending, ended
        if not len(pending) and not ended:
            block = blocks.get()
            if isinstance(block, BaseException):
                ended = True
                raise block
            ended = not block
            pending = memoryview(block)
        size = min(len(buffer), len(pending))
        buffer[:size] = pending[:size]
        pending = pending[size:]
        return size

    return read_into
