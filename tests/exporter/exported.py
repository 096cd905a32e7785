"""What tests of the exporter share: ticks of made facts, a page read back, tools of Debian's packages."""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from gpuclinic.model import Event, Fact, Tick
from gpuclinic.watch.exporter.assignments import Assignments
from gpuclinic.watch.exporter.snapshot import Snapshot, snapshot
from gpuclinic.watch.state import State

KEY = "0000:3b:00.0"
GPU: dict[str, Any] = {
    "tool": "nvml", "index": 1, "bus_id": KEY, "uuid": "GPU-11111111-2222-3333-4444-555555555555", "serial": "165", "minor_number": 1,
    "name": "NVIDIA H100 80GB HBM3", "utilization_pct": 57, "memory_used_mib": 1024, "memory_free_mib": 80000, "memory_total_mib": 81559,
    "temperature_c": 61, "power_w": 312.5, "energy_j": 12.5, "sm_clock_mhz": 1980, "throttle_mask": "0x0000000000000044", "throttle_supported_mask": 511,
    "pcie_tx_kbs": 7, "remap_pending": False, "ecc_uncorrected_volatile": 0, "sku_use": "data_centre",
}  # fmt: skip
DRIVER = Fact("driver", "nvml", {"version": "580.105.08", "cuda_version": "13.0"}, {}, "nvml")
NOBODY = Assignments()


def fact(kind: str, key: str, **fields: Any) -> Fact:
    return Fact(kind, key, fields, {}, "test")


def gpu(**other: Any) -> Fact:
    fields = {**GPU, **other}
    return Fact(
        "gpu", str(fields["bus_id"]), {name: value for name, value in fields.items() if value is not None}, {}, "nvml"
    )


def xid(code: int, key: str = KEY) -> Event:
    return Event(time.time(), "xid", key, f"Xid {code}", {"code": code})


def shot(*facts: Fact, events: tuple[Event, ...] = (), alerts: tuple[Any, ...] = ()) -> Snapshot:
    state = State()
    tick = Tick(time.time(), time.monotonic(), list(facts), list(events))
    state.take(tick)
    state.alerts = list(alerts)
    return snapshot(tick, state)


_SERIES = re.compile(
    r'^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{((?:[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\]|\\["\\n])*",?)*)\})? (\S+)$'
)


def read_page(text: str) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """Every series of a page; fails where a line is none that the format knows."""
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for line in text.splitlines():
        if line.startswith("#") or not line:
            continue
        match = _SERIES.match(line)
        assert match is not None, line
        pairs = tuple(re.findall(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\["\\n])*)"', match[2] or ""))
        series = found.setdefault(match[1], {})
        assert pairs not in series, f"twice: {line}"
        series[pairs] = float(match[3])
    return found


def tool(name: str, package: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not here: apt-get install {package}")
    return found


def until(done: Any, seconds: float = 30.0) -> Any:
    """Waits for something to come true, and gives what it was."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        got = done()
        if got:
            return got
        time.sleep(0.05)
    pytest.fail("did not come in time")


REPOSITORY = Path(__file__).parents[2]
