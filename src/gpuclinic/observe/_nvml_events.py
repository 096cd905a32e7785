"""NVML's events (Xid, ECC errors, recovery), waited for in a thread of the sampling child: the wait blocks, and may hang without harm."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_KINDS = {
    0x1: "single_bit_ecc",
    0x2: "double_bit_ecc",
    0x8: "xid",
    0x200: "dram_retirement_event",
    0x400: "dram_retirement_failure",
    0x800: "non_fatal_poison",
    0x1000: "fatal_poison",
    0x2000: "unavailable_error",
    0x4000: "recovery_action",
}
"""nvml.h, nvmlEventType...; clocks, power states and MIG changes are no faults and come in plenty."""

_PLAIN = (0x8, 0x2, 0x1)
"""What a device that names no supported events may still take."""

_WAIT_MS = 5000
_PAUSE_S = 1.0
_TIMEOUT, _LOST = 10, 15
_MOST_A_SECOND = 50


class _Event(ctypes.Structure):
    _fields_ = (
        ("device", ctypes.c_void_p), ("kind", ctypes.c_ulonglong), ("data", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint), ("compute_instance", ctypes.c_uint),
    )  # fmt: skip


def follow(library: ctypes.CDLL, handles: Mapping[int, int], to: int) -> None:
    """Starts the thread. handles: of the devices, by index. to: a pipe that takes one JSON line for each event, and never blocks.

    A line: device (index), kind (a name of _KINDS), data (an Xid's code), at (Unix seconds), gi, ci (of MIG) where they are told; or
    `problem` where events cannot be had.
    """
    threading.Thread(target=_wait, args=(library, dict(handles), to), daemon=True).start()


def _tell(to: int, **content: object) -> None:
    with contextlib.suppress(OSError):  # full: whoever reads has stopped; the kernel's log tells the same
        os.write(to, json.dumps(content).encode("ascii") + b"\n")


def _wait(library: ctypes.CDLL, handles: dict[int, int], to: int) -> None:
    try:
        wait = getattr(library, "nvmlEventSetWait_v2", None) or library.nvmlEventSetWait
        events = ctypes.c_void_p()
        code = int(library.nvmlEventSetCreate(ctypes.byref(events)))
        registered = 0 if code else sum(_registered(library, handle, events) for handle in handles.values())
    except AttributeError:
        code, registered = 13, 0
    if code or not registered:
        _tell(to, problem=f"NVML registers no events (code {code})")
        return
    indices = {handle: index for index, handle in handles.items()}
    event = _Event()
    told, since = 0, time.monotonic()
    while True:
        event.gpu_instance = event.compute_instance = 0xFFFFFFFF
        begun = time.monotonic()
        code = int(wait(events, ctypes.byref(event), _WAIT_MS))
        now = time.monotonic()
        if now - since >= 1:
            told, since = 0, now
        if code == 0 and told < _MOST_A_SECOND:
            told += 1
            _tell(to, device=indices.get(event.device or 0, -1), kind=_KINDS.get(event.kind, hex(event.kind)), data=event.data,
                  at=time.time(), gi=_instance(event.gpu_instance), ci=_instance(event.compute_instance))  # fmt: skip
        elif code == 0 or now - begun < _PAUSE_S:  # a storm, or a wait that ends at once (lost device): no spinning
            time.sleep(_PAUSE_S)


def _instance(number: int) -> int | None:
    return None if number == 0xFFFFFFFF else number


def _registered(library: ctypes.CDLL, handle: int, events: ctypes.c_void_p) -> bool:
    """Whether the device sends at least one kind of event to the set."""
    device, supported = ctypes.c_void_p(handle), ctypes.c_ulonglong()
    known = int(library.nvmlDeviceGetSupportedEventTypes(device, ctypes.byref(supported))) == 0
    wanted = sum(kind for kind in _KINDS if supported.value & kind) if known else 0

    def register(kinds: int) -> bool:
        return int(library.nvmlDeviceRegisterEvents(device, ctypes.c_ulonglong(kinds), events)) == 0

    if wanted and register(wanted):
        return True
    taken = [register(kind) for kind in _PLAIN]
    return any(taken)
