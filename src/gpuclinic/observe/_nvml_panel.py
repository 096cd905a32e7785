"""Memory that the sampling child shares with its parent: where it is, whom it leaves alone, and the numbers of each device.

Nothing here takes a system call or a JSON text; a kill at any moment loses only the device that is being read.
"""

from __future__ import annotations

import struct
import time
from typing import TYPE_CHECKING, NamedTuple

from gpuclinic.observe._nvml_fast import CALLS, COLUMNS

if TYPE_CHECKING:
    import mmap
    from collections.abc import Sequence

IDLE, STARTING, FAST, SLOW = range(4)
MOST_DEVICES = 64
"""More than any server has; what is beyond is told as not sampled."""

_HEAD = struct.Struct("=iiiidd")
_RECORD = struct.Struct(f"=iid{len(COLUMNS)}q{len(COLUMNS)}i")
_SKIP_AT = 64
_RECORDS_AT = _SKIP_AT + MOST_DEVICES
SIZE = (_RECORDS_AT + MOST_DEVICES * _RECORD.size + 4095) & ~4095

NEVER, READ, NO_HANDLE = range(3)
USED = next(place for place, column in enumerate(COLUMNS) if column.field == "memory_used_mib")


class Place(NamedTuple):
    """Where a child is. call: NVML's name, "" between calls. devices: how many NVML has. device_since, call_since: on the monotonic clock."""

    doing: int
    device: int
    call: str
    devices: int
    device_since: float
    call_since: float


class Record(NamedTuple):
    """The last reading of a device. state: NEVER, READ, NO_HANDLE (code tells why). at: on the monotonic clock."""

    state: int
    code: int
    at: float
    values: Sequence[int]
    codes: Sequence[int]


class Panel:
    """Both sides' view of the memory."""

    def __init__(self, memory: mmap.mmap) -> None:
        self.memory = memory
        self._doing = self._device = self._count = 0
        self._device_since = 0.0

    def doing(self, what: int, device: int = -1) -> None:
        """The child turns to something else, or to another device."""
        self._doing, self._device, self._device_since = what, device, time.monotonic()
        _HEAD.pack_into(self.memory, 0, what, device, -1, self._count, self._device_since, self._device_since)

    def calling(self, number: int) -> None:
        """The child is about to make a call (a number of CALLS)."""
        _HEAD.pack_into(
            self.memory, 0, self._doing, self._device, number, self._count, self._device_since, time.monotonic()
        )

    def counted(self, count: int) -> None:
        """NVML has so many devices."""
        self._count = count

    def place(self) -> Place:
        """Where the child is at this moment. What it wrote is not trusted: a library runs in it."""
        doing, device, call, count, device_since, call_since = _HEAD.unpack_from(self.memory, 0)
        name = CALLS[call].partition("/")[0] if 0 <= call < len(CALLS) else ""
        return Place(doing, device, name, max(0, min(count, MOST_DEVICES)), device_since, call_since)

    def skip(self, device: int, skipped: bool) -> None:
        """Leaves a device alone from now on, or asks it again."""
        self.memory[_SKIP_AT + device] = int(skipped)

    def skips(self, device: int) -> bool:
        """The device is to be left alone."""
        return bool(self.memory[_SKIP_AT + device])

    def put(self, device: int, state: int, code: int, values: Sequence[int] = (), codes: Sequence[int] = ()) -> None:
        """Keeps what was read of a device."""
        filled = values or (0,) * len(COLUMNS)
        refused = codes or (code,) * len(COLUMNS)
        at = _RECORDS_AT + device * _RECORD.size
        _RECORD.pack_into(self.memory, at, state, code, time.monotonic(), *filled, *refused)

    def get(self, device: int) -> Record:
        """The last reading of a device."""
        state, code, moment, *numbers = _RECORD.unpack_from(self.memory, _RECORDS_AT + device * _RECORD.size)
        return Record(state, code, moment, numbers[: len(COLUMNS)], numbers[len(COLUMNS) :])
