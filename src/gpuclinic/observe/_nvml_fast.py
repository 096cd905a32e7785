"""The numbers of a device that move from second to second, read by NVML's C functions into arrays that are made once.

nvidia-ml-py's own loop over field values takes about a millisecond for thirty of them, one call with a prepared array and one
struct.unpack ten microseconds. What a card or driver has not got is asked once a minute, no oftener.
"""

from __future__ import annotations

import ctypes
import math
import struct
from typing import TYPE_CHECKING, NamedTuple

from gpuclinic.observe import _nvml_words as words
from gpuclinic.observe._nvml_device import ABSENT

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from gpuclinic.model import Scalar


class Column(NamedTuple):
    """A number of the fast reading.

    field: of the `gpu` fact. call: that gives it, as evidence shows it. convert: from NVML's number to the field's value.
    counter: a number that only grows; the field is its growth a second, times factor.
    """

    field: str
    call: str
    convert: Callable[[int], Scalar] = int
    counter: bool = False
    factor: float = 1.0


_ALL_LINKS = 0xFFFFFFFF
_FIELDS: tuple[tuple[Column, int, int], ...] = (
    (Column("power_w", "nvmlDeviceGetFieldValues/field 186", words.watts), 186, 0),
    (Column("power_average_w", "nvmlDeviceGetFieldValues/field 185", words.watts), 185, 0),
    (Column("memory_temperature_c", "nvmlDeviceGetFieldValues/field 82"), 82, 0),
    (Column("energy_j", "nvmlDeviceGetFieldValues/field 83", words.joules), 83, 0),
    (Column("pcie_tx_kbs", "nvmlDeviceGetFieldValues/field 197", counter=True, factor=0.001), 197, 0),
    (Column("pcie_rx_kbs", "nvmlDeviceGetFieldValues/field 198", counter=True, factor=0.001), 198, 0),
    (Column("nvlink_tx_kbs", "nvmlDeviceGetFieldValues/field 138", counter=True, factor=1.024), 138, _ALL_LINKS),
    (Column("nvlink_rx_kbs", "nvmlDeviceGetFieldValues/field 139", counter=True, factor=1.024), 139, _ALL_LINKS),
)
"""Field values: column, number (nvml.h, NVML_FI_DEV_...), scope. 197 and 198 count bytes, 138 and 139 KiB of all links."""

_OTHERS: tuple[tuple[Column, ...], ...] = (
    (Column("temperature_c", "nvmlDeviceGetTemperature/GPU"),),
    (Column("t_limit_c", "nvmlDeviceGetMarginTemperature"),),
    (
        Column("utilization_pct", "nvmlDeviceGetUtilizationRates"),
        Column("memory_utilization_pct", "nvmlDeviceGetUtilizationRates"),
    ),
    (
        Column("memory_used_mib", "nvmlDeviceGetMemoryInfo", words.mib),
        Column("memory_free_mib", "nvmlDeviceGetMemoryInfo", words.mib),
    ),
    (Column("graphics_clock_mhz", "nvmlDeviceGetClockInfo/GRAPHICS"),),
    (Column("sm_clock_mhz", "nvmlDeviceGetClockInfo/SM"),),
    (Column("memory_clock_mhz", "nvmlDeviceGetClockInfo/MEM"),),
    (Column("throttle_mask", "nvmlDeviceGetCurrentClocksThrottleReasons"),),
    (Column("performance_state", "nvmlDeviceGetPerformanceState", words.performance_state),),
    (Column("power_w", "nvmlDeviceGetPowerUsage", words.watts),),
)
"""One call each. The last stands in where a card has no field for its power (before Ampere)."""

COLUMNS: tuple[Column, ...] = (*(row[0] for row in _FIELDS), *(column for group in _OTHERS for column in group))
CALLS: tuple[str, ...] = (
    "nvmlDeviceGetHandleByIndex_v2",
    "nvmlDeviceGetFieldValues",
    *(group[0].call for group in _OTHERS),
)
"""What a child may be in, by the number it notes."""

NOT_ASKED = -1
"""In place of NVML's code: the card has not got it, as an earlier question told."""

_VALUE = struct.Struct("=IIqqIIQ")
_BATCH = struct.Struct("=" + _VALUE.format[1:] * len(_FIELDS))
_STEP = len(_VALUE.unpack(bytes(_VALUE.size)))
_SIGNED_BY_TYPE = {2: 64, 3: 64, 1: 32, 6: 16}
"""Bits of NVML's unsigned value types; the others are signed or floating."""


class _Memory(ctypes.Structure):
    _fields_ = (
        ("version", ctypes.c_uint), ("total", ctypes.c_ulonglong), ("reserved", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong),
    )  # fmt: skip


class _OldMemory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class _Margin(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint), ("celsius", ctypes.c_int))


class _Rates(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class FastDevice:
    """Reads the columns of one device.

    library: the loaded NVML. handle: the device's, as its address. noting: called with the number of each call before it is made.
    """

    def __init__(self, library: ctypes.CDLL, handle: int, noting: Callable[[int], None]) -> None:
        self.address = handle
        self._noting = noting
        self._fields = ctypes.create_string_buffer(_BATCH.size)
        for place, (_, number, scope) in enumerate(_FIELDS):
            struct.pack_into("=II", self._fields, place * _VALUE.size, number, scope)
        self._handle = ctypes.c_void_p(handle)
        self._batch = getattr(library, "nvmlDeviceGetFieldValues", None)
        self._dead: set[int] = set()
        self._calls = self._prepared(library)

    def _prepared(self, library: ctypes.CDLL) -> list[tuple[Callable[[], int] | None, Callable[[], tuple[int, ...]]]]:
        """For each group of _OTHERS the call, and its answer as numbers."""
        handle = self._handle
        temperature, mask, state, power = (
            ctypes.c_uint(),
            ctypes.c_ulonglong(),
            ctypes.c_int(),
            ctypes.c_uint(),
        )
        margin, rates = _Margin(), _Rates()
        clocks = [ctypes.c_uint() for _ in range(3)]

        def bound(name: str, *arguments: object) -> Callable[[], int] | None:
            function = getattr(library, name, None)
            return None if function is None else lambda: int(function(handle, *arguments))

        def with_margin() -> int:
            margin.version = ctypes.sizeof(margin) | 1 << 24
            return int(library.nvmlDeviceGetMarginTemperature(handle, ctypes.byref(margin)))

        return [
            (bound("nvmlDeviceGetTemperature", 0, ctypes.byref(temperature)), lambda: (temperature.value,)),
            (with_margin if hasattr(library, "nvmlDeviceGetMarginTemperature") else None, lambda: (margin.celsius,)),
            (bound("nvmlDeviceGetUtilizationRates", ctypes.byref(rates)), lambda: (rates.gpu, rates.memory)),
            _memory_call(library, handle),
            *(
                (bound("nvmlDeviceGetClockInfo", number, ctypes.byref(clock)), lambda clock=clock: (clock.value,))
                for number, clock in enumerate(clocks)
            ),
            (bound("nvmlDeviceGetCurrentClocksThrottleReasons", ctypes.byref(mask)), lambda: (mask.value,)),
            (bound("nvmlDeviceGetPerformanceState", ctypes.byref(state)), lambda: (state.value,)),
            (bound("nvmlDeviceGetPowerUsage", ctypes.byref(power)), lambda: (power.value,)),
        ]

    def forget(self) -> None:
        """Asks again for what the card did not have: settings and drivers change."""
        self._dead.clear()

    def read(self) -> tuple[list[int], list[int]]:
        """Values and NVML's return codes, both by column; a value counts where its code is 0."""
        values, codes = self._batched()
        power_known = codes[0] == 0
        place = len(_FIELDS)
        last = len(self._calls) - 1
        for number, (call, answer) in enumerate(self._calls):
            width = len(_OTHERS[number])
            if number in self._dead or (number == last and power_known):
                code = NOT_ASKED
            elif call is None:
                code = 13
                self._dead.add(number)
            else:
                self._noting(2 + number)
                code = call()
                if code in ABSENT:
                    self._dead.add(number)
            if code:
                values += [0] * width
            else:
                values += answer()
            codes += [code] * width
            place += width
        return values, codes

    def _batched(self) -> tuple[list[int], list[int]]:
        count = len(_FIELDS)
        if self._batch is None or -1 in self._dead:
            return [0] * count, [NOT_ASKED if self._batch else 13] * count
        self._noting(1)
        code = int(self._batch(self._handle, count, self._fields))
        if code:
            if code in ABSENT:
                self._dead.add(-1)
            return [0] * count, [code] * count
        told = _BATCH.unpack(self._fields)
        codes = list(told[5::_STEP])
        return [
            _number(kind, raw) if not refused else 0
            for kind, raw, refused in zip(told[4::_STEP], told[6::_STEP], codes, strict=True)
        ], codes


def _memory_call(
    library: ctypes.CDLL, handle: ctypes.c_void_p
) -> tuple[Callable[[], int] | None, Callable[[], tuple[int, ...]]]:
    """Used memory without what the driver reserves where the library tells them apart, as the slow reading has it."""
    new, old = _Memory(), _OldMemory()
    version_2 = getattr(library, "nvmlDeviceGetMemoryInfo_v2", None)
    version_1 = getattr(library, "nvmlDeviceGetMemoryInfo", None)
    newest = version_2 is not None

    def call() -> int:
        nonlocal newest
        if newest and version_2 is not None:
            new.version = ctypes.sizeof(new) | 2 << 24
            code = int(version_2(handle, ctypes.byref(new)))
            if code not in (2, 3, 13, 25):
                return code
            newest = False
        return int(version_1(handle, ctypes.byref(old))) if version_1 is not None else 13

    return call, lambda: (new.used, new.free) if newest else (old.used, old.free)


def _number(kind: int, raw: int) -> int:
    """NVML's value by its type, as a whole number that fits 64 bits with a sign."""
    if kind == 0:
        real: float = struct.unpack("=d", raw.to_bytes(8, "little"))[0]
        return int(real) if math.isfinite(real) and abs(real) < 1 << 62 else 0
    bits = _SIGNED_BY_TYPE.get(kind)
    if bits is not None:
        return min(raw & ((1 << bits) - 1), (1 << 63) - 1)
    low = raw & 0xFFFFFFFF if kind == 5 else raw
    top = 1 << (31 if kind == 5 else 63)
    return low - 2 * top if low >= top else low


class Changes:
    """Tells whether any of some field values has changed, so that the questions about them need not be asked again.

    fields: numbers and scopes. calls: functions of the device besides that give one unsigned number. sure: fields that must be told, else
    nothing can be said and everything counts as changed.
    """

    def __init__(
        self, library: ctypes.CDLL, handle: int, fields: Sequence[tuple[int, int]], calls: Sequence[str] = (), sure: Collection[int] = (),
    ) -> None:  # fmt: skip
        self._handle = ctypes.c_void_p(handle)
        self._batch = getattr(library, "nvmlDeviceGetFieldValues", None)
        self._buffer = ctypes.create_string_buffer(max(1, len(fields)) * _VALUE.size)
        self._shape = struct.Struct("=" + _VALUE.format[1:] * len(fields))
        for place, (number, scope) in enumerate(fields):
            struct.pack_into("=II", self._buffer, place * _VALUE.size, number, scope)
        self._count = len(fields)
        self._sure = [place for place, (number, _) in enumerate(fields) if number in sure]
        self._calls = [function for name in calls if (function := getattr(library, name, None)) is not None]
        self._last: tuple[int, ...] | None = None

    def seen(self) -> bool:
        """Whether something differs from the last time, or cannot be told."""
        if self._batch is None or (self._count and self._batch(self._handle, self._count, self._buffer)):
            return True
        told = self._shape.unpack(self._buffer)
        codes = told[5::_STEP]
        number = ctypes.c_uint()
        others = [(int(call(self._handle, ctypes.byref(number))), number.value) for call in self._calls]
        now = (*codes, *(v if not c else 0 for v, c in zip(told[6::_STEP], codes, strict=True)), *(n for o in others for n in o))  # fmt: skip
        last, self._last = self._last, now
        return now != last or any(codes[place] for place in self._sure)
