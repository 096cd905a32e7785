"""What no machine can have is not read, whichever tool says it; how NVML failed is shown by the call that failed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpuclinic.model import Document
from gpuclinic.recognise.parsers import bmc
from gpuclinic.recognise.parsers.nvml import parse_nvml
from gpuclinic.recognise.possible import is_possible, is_possible_in
from gpuclinic.report.machine import machine


def told(**more: Any) -> list[Any]:
    text = json.dumps({"gpuclinic_nvml": 1, "init": {"code": 0}, "count": 1, "devices": [], **more})
    return parse_nvml(Document("nvml", text, name_hint="nvml.json"))


@pytest.mark.parametrize(
    ("field", "good", "bad"),
    [("temperature_c", 92, 4_000_000_000), ("power_w", 700.0, 4e9), ("fan_pct", 105, 4_000_000_000),
     ("sm_clock_mhz", 2100, -5), ("memory_used_mib", 288_000, 2**44), ("temperature_limit_c", -3, -300)],
)  # fmt: skip
def test_the_ranges(field: str, good: float, bad: float) -> None:
    assert is_possible(field, good)
    assert not is_possible(field, bad)


def test_an_impossible_reading_of_nvml_is_unreadable() -> None:
    device = {"index": 0, "bus_id": "00000000:3B:00.0", "values": {"temperature_c": 4_000_000_000, "sm_clock_mhz": 1980},
              "errors": {"fan_pct": {"code": 999, "error": "Unknown Error", "call": "nvmlDeviceGetFanSpeed"}}}  # fmt: skip
    gpu = next(f for f in told(devices=[device]) if f.kind == "gpu")
    assert "temperature_c" not in gpu.fields
    assert gpu.fields["sm_clock_mhz"] == 1980
    assert gpu.fields["unreadable"] == "fan_pct,temperature_c"
    assert "4000000000" in gpu.lines["unreadable:temperature_c"].text


def test_an_impossible_reading_of_the_board_is_none() -> None:
    text = "Inlet Temp       | 999999 degrees C  | cr\nCPU1 Temp        | 51 degrees C      | ok\n"
    found = {f.key: f.fields for f in bmc.parse_sensors(Document("sdr", text, name_hint="ipmitool sdr"))}
    assert (found["Inlet Temp"].get("value"), found["Inlet Temp"]["bad"]) == (None, False)
    assert found["CPU1 Temp"]["value"] == 51
    assert not is_possible_in("°C", 1e6)
    assert is_possible_in("furlongs", 1e9)


@pytest.mark.parametrize(
    ("init", "shown"),
    [
        ({"crashed": {"call": "nvmlSystemGetDriverVersion", "signal": 11}}, "nvmlSystemGetDriverVersion() ended the process that called it, signal 11"),
        ({"crashed": {"call": "nvmlInitWithFlags", "signal": None, "error": "x"}}, "nvmlInitWithFlags() ended the process that called it"),
        ({"code": None, "error": "no child"}, "nvmlInitWithFlags(): no child"),
    ],
)  # fmt: skip
def test_the_call_that_failed_is_shown(init: dict[str, Any], shown: str) -> None:
    fact = next(f for f in told(init=init, count=None) if f.kind == "nvml")
    assert fact.where().text == shown


def test_no_library_is_named_that_was_not_loaded() -> None:
    assert machine(told(init={"code": None, "load": "missing"}, asked_for="/etc/passwd", library=None))["nvml"] is None
