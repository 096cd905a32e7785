"""What the GPUs do, asked now and then: the one place that a sampler which lives on can stand in for."""

from __future__ import annotations

import json
import os
import time
from typing import Any

_EVERY_S, _RARELY_S = 60.0, 600.0
_FIRST_S = 5.0
_SLOW_S = 2.0
_SIGNS = ("/dev/nvidiactl", "/proc/driver/nvidia/version")


class Gpus:
    """document: NVML's newest answer (docs/nvml.md), None where none was asked. NVML that takes its time is asked seldom."""

    def __init__(self) -> None:
        self.document: dict[str, Any] | None = None
        there = bool(os.environ.get("GPUCLINIC_NVML")) or any(os.path.exists(sign) for sign in _SIGNS)  # noqa: PTH110
        self._next = time.monotonic() + _FIRST_S if there else float("inf")

    def look(self, *, now: bool = False) -> bool:
        """Asks where it is time to; whether there is something new. now: at once, where NVML is not slow."""
        begun = time.monotonic()
        if self._next == float("inf") or (begun < self._next and not now):
            return False
        from gpuclinic.observe.nvml import begin_nvml

        self.document = begin_nvml()()
        took = time.monotonic() - begun
        self._next = time.monotonic() + (_RARELY_S if took > _SLOW_S else _EVERY_S)
        return True

    def text(self) -> bytes:
        """The document as a capture keeps it."""
        return json.dumps(self.document).encode() if self.document is not None else b""

    def of(self, pids: set[int]) -> list[dict[str, Any]] | None:
        """The devices that these processes hold, for a sample; None where that is not known."""
        if self.document is None or not isinstance(self.document.get("devices"), list):
            return None
        out: list[dict[str, Any]] = []
        for device in self.document["devices"]:
            if not any(process.get("pid") in pids for process in device.get("processes") or []):
                continue
            values = device.get("values") or {}
            names = ("utilization_pct", "memory_used_mib", "power_w", "power_limit_w", "temperature_c", "sm_clock_mhz")
            out.append({"bus_id": device.get("bus_id"), **{name: values[name] for name in names if name in values}})
        return out


def busy(devices: list[dict[str, Any]] | None) -> list[tuple[float, float | None]] | None:
    """For each device how busy it is in %, and the share of its power limit that it draws."""
    if devices is None:
        return None
    out: list[tuple[float, float | None]] = []
    for device in devices:
        share, limit = device.get("power_w"), device.get("power_limit_w")
        if isinstance(device.get("utilization_pct"), (int, float)):
            known = isinstance(share, (int, float)) and isinstance(limit, (int, float)) and limit > 0
            out.append(
                (float(device["utilization_pct"]), float(share) / float(limit) if known and share and limit else None)
            )
    return out
