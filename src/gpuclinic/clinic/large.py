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


class Scanned(NamedTuple):
    """How large a file was, how many lines it has, what was counted only, and its last bytes."""

    size: int
    lines: int
    skipped: dict[int, int]
    end: bytes


def scan_regions(handle: int, scanner: StreamScanner, maker: SignalMaker, advance: Callable[[int], None]) -> Scanned:
    """Scans a regular file: its beginning and its end in full, the middle without what is mere progress.

    The first region of the middle is scanned alone: the others, two at a time, go on with the habits it has learnt.
    """
    size = os.fstat(handle).st_size
    regions = _regions(handle, size)
    skipped: dict[int, int] = {}
    lines = 0

    def scan_one(mine: StreamScanner, start: int, stop: int) -> SignalMaker:
        part = maker.twin()
        for found in mine.scan(_region_reader(handle, start, stop), start):
            part.take(found)
        return part

    def add(part: SignalMaker, count: int, quiet: dict[int, int], stop: int) -> None:
        nonlocal lines
        maker.join(part, lines)
        lines += count
        for number, times in quiet.items():
            skipped[number] = skipped.get(number, 0) + times
        advance(stop)

    add(scan_one(scanner, *regions[0]), scanner.lines, scanner.skipped, regions[0][1])
    middle = scanner.clone(scanner.reduced(size) if size > _WORTH_REBUILDING else None)
    if len(regions) > 2:
        add(scan_one(middle, *regions[1]), middle.lines, middle.skipped, regions[1][1])
    for part, count, quiet, stop in _side_by_side(regions[2:-1], middle, scan_one):
        add(part, count, quiet, stop)
    if len(regions) > 1:
        last = scanner.clone()
        add(scan_one(last, *regions[-1]), last.lines, last.skipped, size)
    return Scanned(size, lines, skipped, os.pread(handle, _SAMPLE, max(0, size - _SAMPLE)))


def _side_by_side(
    regions: list[tuple[int, int]],
    middle: StreamScanner,
    scan_one: Callable[[StreamScanner, int, int], SignalMaker],
) -> Iterator[tuple[SignalMaker, int, dict[int, int], int]]:
    """What regions hold, in their order, how many lines they have, what was counted only, and where they end."""
    from concurrent.futures import ThreadPoolExecutor

    threads = max(1, min(2, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2))
    free: queue.SimpleQueue[StreamScanner] = queue.SimpleQueue()
    for _ in range(threads):
        free.put(middle.clone())

    def scan_next(start: int, stop: int) -> tuple[SignalMaker, int, dict[int, int], int]:
        mine = free.get()
        try:
            mine.continues(middle)
            part = scan_one(mine, start, stop)
            return part, mine.lines, mine.skipped, stop
        finally:
            free.put(mine)

    with ThreadPoolExecutor(threads) as pool:
        waiting: deque[Future[tuple[SignalMaker, int, dict[int, int], int]]] = deque()
        todo = deque(regions)
        while todo or waiting:
            while todo and len(waiting) < threads + 1:
                waiting.append(pool.submit(scan_next, *todo.popleft()))
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


class Tail:
    """Passes a stream on, and remembers its last bytes and whether it broke."""

    def __init__(self, source: ReadInto, kept: int) -> None:
        self._source = source
        self._kept = kept
        self._pieces: deque[bytes] = deque()
        self._held = 0
        self.size = 0
        self.problem: str | None = None

    def read_into(self, buffer: memoryview) -> int:
        """Fills the buffer; a damaged stream ends early, and `problem` tells why."""
        try:
            got = self._source(buffer)
        except DAMAGE as problem:
            self.problem = str(problem) or type(problem).__name__
            return 0
        self.size += got
        self._pieces.append(bytes(buffer[:got]))
        self._held += got
        while self._held - len(self._pieces[0]) >= self._kept:
            self._held -= len(self._pieces.popleft())
        return got

    def text(self) -> bytes:
        """The last bytes that went by."""
        return b"".join(self._pieces)[-self._kept :]


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
