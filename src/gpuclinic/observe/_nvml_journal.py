"""What a child that asks NVML has told so far: memory shared with its parent, so that a kill or a hang loses nothing.

The child appends one JSON line for each answer and notes the call that it is in before it makes it. No system call is
needed for either, so telling costs microseconds; a pipe only wakes the parent when a stage ends.
"""

from __future__ import annotations

import json
import struct
import time
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import mmap
    from collections.abc import Iterator

SIZE = 8 << 20
"""Bytes of a journal; only the pages that are written take memory."""

LOADING, NAMES, DONE = -1, -2, -3
"""Stages besides the devices (0, 1 ...): load, initialise and count; names of processes; everything told."""

_HEAD = struct.Struct("<QddiI")
_CALL_AT, _CALL_LENGTH, _START = 64, 128, 256
_LONGEST_LINE = 1 << 16
_MOST_LINES = 200_000


class Now(NamedTuple):
    """Where the child is: its stage, the call it is in ("" between calls), and since when (seconds, monotonic clock)."""

    stage: int
    stage_since: float
    call: str
    call_since: float


class Journal:
    """The child's side: notes calls and answers."""

    def __init__(self, memory: mmap.mmap) -> None:
        self._memory = memory
        self._length = 0
        self._stage = LOADING
        self._stage_since = self._call_since = time.monotonic()
        self._call = 0
        self._note()

    @classmethod
    def resumed(cls, memory: mmap.mmap) -> Journal:
        """A journal that goes on after what was told, for the last words of a child that fails."""
        length, stage_since, call_since, stage, call = _HEAD.unpack_from(memory, 0)
        journal = cls(memory)
        journal._length, journal._stage, journal._call = min(length, len(memory) - _START), stage, call
        journal._stage_since, journal._call_since = stage_since, call_since
        journal._note()
        return journal

    def _note(self) -> None:
        _HEAD.pack_into(
            self._memory, 0, self._length, self._stage_since, self._call_since, self._stage, self._call
        )  # the length of a text tells how much of the call's name counts

    def stage(self, stage: int) -> None:
        """A new stage begins."""
        self._stage, self._stage_since, self._call = stage, time.monotonic(), 0
        self._note()

    def calling(self, name: str) -> float:
        """Notes the call that is about to be made; returns the time."""
        text = name.encode("ascii", "replace")[:_CALL_LENGTH]
        self._memory[_CALL_AT : _CALL_AT + len(text)] = text
        self._call, self._call_since = len(text), time.monotonic()
        self._note()
        return self._call_since

    def returned(self) -> None:
        """No call is being made."""
        self._call = 0
        self._note()

    def tell(self, *record: Any) -> None:
        """Appends a record of JSON-able values; a journal that is full takes no more."""
        line = json.dumps(record, separators=(",", ":")).encode("ascii") + b"\n"
        end = _START + self._length + len(line)
        if len(line) > _LONGEST_LINE or end > len(self._memory):
            return
        self._memory[_START + self._length : end] = line
        self._length += len(line)
        self._note()


def now(memory: mmap.mmap) -> Now:
    """Where the child is at this moment. What it wrote is not trusted: a library runs in it."""
    _, stage_since, call_since, stage, length = _HEAD.unpack_from(memory, 0)
    call = bytes(memory[_CALL_AT : _CALL_AT + min(length, _CALL_LENGTH)]).decode("ascii", "replace")
    return Now(stage, stage_since, call, call_since)


def records(memory: mmap.mmap) -> Iterator[list[Any]]:
    """Every whole record told so far; torn ones are passed over."""
    length = min(int(_HEAD.unpack_from(memory, 0)[0]), len(memory) - _START)
    for line in bytes(memory[_START : _START + length]).split(b"\n", _MOST_LINES)[:_MOST_LINES]:
        try:
            record = json.loads(line) if line else None
        except (ValueError, RecursionError):
            continue
        if isinstance(record, list) and record and isinstance(record[0], str):
            yield record
