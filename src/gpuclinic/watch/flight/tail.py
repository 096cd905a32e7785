"""The beginning and the end of what a stream carried, in memory that relay and recorder share."""

from __future__ import annotations

import mmap
import struct
import time
from typing import NamedTuple

HEAD, RING = 64 << 10, 1 << 20
"""Bytes that are kept of the beginning and of the end."""
_START = 4096
_TOTAL = struct.Struct("=Qd")
"""Bytes so far, and when the last came (monotonic clock; 0: none yet)."""


class Kept(NamedTuple):
    """total: bytes that the stream carried. head, tail: its first and last ones; together all of it where it was short."""

    total: int
    head: bytes
    tail: bytes

    def text(self) -> bytes:
        """Both, and what was left out between them in words."""
        between = self.total - len(self.head) - len(self.tail)
        if between <= 0:
            return self.head + self.tail
        return self.head + b"\n[... %d bytes were not kept ...]\n" % between + self.tail


class Tail:
    """One stream's. Written to by one process, read by another; a reader beside a writer may see the newest bytes half written."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, _START + HEAD + RING)

    def add(self, data: memoryview) -> None:
        """More bytes, at most RING at once."""
        memory = self._memory
        total, _ = _TOTAL.unpack_from(memory)
        size, skipped = len(data), 0
        if total < HEAD:
            skipped = min(size, HEAD - total)
            memory[_START + total : _START + total + skipped] = bytes(data[:skipped])
        left = size - skipped
        if left:
            at = (total + skipped - HEAD) % RING
            first = min(left, RING - at)
            start = _START + HEAD
            memory[start + at : start + at + first] = data[skipped : skipped + first]
            if first < left:
                memory[start : start + left - first] = data[skipped + first :]
        _TOTAL.pack_into(memory, 0, total + size, time.monotonic())

    def progress(self) -> tuple[int, float]:
        """Bytes so far, and when the last came."""
        total, last = _TOTAL.unpack_from(self._memory)
        return int(total), float(last)

    def kept(self) -> Kept:
        """What is there now."""
        total, _ = self.progress()
        head = self._memory[_START : _START + min(total, HEAD)]
        after = total - len(head)
        ring = self._memory[_START + HEAD : _START + HEAD + min(after, RING)]
        at = after % RING if after > RING else 0
        return Kept(total, head, ring[at:] + ring[:at])
