"""NVML sampled by a child that lives on: what it reads, and what a GPU that hangs, is lost or comes back costs."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest
from watched_server import SHORT, built, server

from gpuclinic.observe._nvml_fast import COLUMNS
from gpuclinic.observe._nvml_panel import READ
from gpuclinic.observe._nvml_sampler import NvmlSampler, Reading
from gpuclinic.observe._stuck import Ledger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from fakes.server import Server

__all__ = ["built", "server"]

PLACES = {column.field: place for place, column in reversed(list(enumerate(COLUMNS)))}


@pytest.fixture
def sampler(server: Server, tmp_path: Path) -> Iterator[NvmlSampler]:
    made = NvmlSampler(deadlines=SHORT, runtime=tmp_path)
    yield made
    made.close()
    assert made.children() == []


def until(sampler: NvmlSampler, holds: Callable[[Reading], bool], tier: str | None = None, most: int = 400) -> Reading:
    """Ticks until something holds."""
    for _ in range(most):
        reading = sampler.tick(tier)
        if holds(reading):
            return reading
        tier = None
        time.sleep(0.01)
    raise AssertionError("it never held")


def value(reading: Reading, device: int, field: str) -> int:
    record = reading.records[device]
    assert record.state == READ
    assert record.codes[PLACES[field]] == 0
    return record.values[PLACES[field]]


def test_the_first_tick_tells_everything(sampler: NvmlSampler) -> None:
    reading = sampler.tick()
    assert sorted(reading.records) == [0, 1, 2, 3]
    assert reading.document["init"] == {"code": 0}
    assert reading.document["count"] == 4
    device = reading.document["devices"][2]
    assert device["bus_id"] == "0000:33:00.0"
    assert len(device["nvlinks"]) == 18
    assert "asked" not in device
    assert value(reading, 0, "temperature_c") == 29
    assert value(reading, 0, "power_w") == 69000
    assert reading.why is None
    assert not reading.happenings


def test_what_moves_is_read_by_every_tick_without_starting_nvml_again(
    server: Server, sampler: NvmlSampler, tmp_path: Path
) -> None:
    server.set(trace=str(tmp_path / "trace"))
    sampler.tick()
    for degrees in (41, 52, 63):
        server.set({"1.temp": degrees})
        assert value(sampler.tick(), 1, "temperature_c") == degrees
    calls = [line.split()[1] for line in (tmp_path / "trace").read_text().splitlines()]
    assert calls.count("nvmlInitWithFlags") == 1


def test_a_tick_between_the_tiers_makes_no_expensive_call(server: Server, sampler: NvmlSampler, tmp_path: Path) -> None:
    sampler.tick()
    server.set(trace=str(tmp_path / "trace"))
    sampler.tick()
    calls = {line.split()[1] for line in (tmp_path / "trace").read_text().splitlines()}
    dear = ("Process", "PcieThroughput", "FanSpeed", "Init", "NvLink", "Handle")
    assert not [call for call in calls if any(word in call for word in dear)]
    assert "nvmlDeviceGetFieldValues" in calls


def test_a_slower_tier_asks_only_what_has_changed(server: Server, sampler: NvmlSampler, tmp_path: Path) -> None:
    sampler.tick()
    until(sampler, lambda r: r.changed, "minutes")
    until(sampler, lambda r: r.changed, "minutes")
    server.set({"trace": str(tmp_path / "trace"), "2.remap.unc": 1, "2.ecc.ue.agg": 3})
    reading = until(sampler, lambda r: r.changed, "minutes")
    assert reading.document["devices"][2]["values"]["remapped_uncorrectable"] == 1
    asked = {line.split()[2] for line in (tmp_path / "trace").read_text().splitlines() if "RemapperHistogram" in line}
    assert asked == {"2"}
    assert reading.document["devices"][1]["values"]["remapped_uncorrectable"] == 0


def test_processes_are_listed_when_memory_has_changed(server: Server, sampler: NvmlSampler) -> None:
    assert "processes" not in sampler.tick().document["devices"][1]
    server.set({"1.proc.compute": f"4711:{5 << 30}", "1.memory.used": 5120})
    sampler.tick()
    reading = until(sampler, lambda r: "processes" in r.document["devices"][1], "minutes")
    assert reading.document["devices"][1]["processes"] == [{"pid": 4711, "type": "C", "memory_mib": 5120}]
    server.set({"1.proc.compute": "", "1.memory.used": 0})
    sampler.tick()
    until(sampler, lambda r: "processes" not in r.document["devices"][1], "minutes")


def test_a_gpu_that_hangs_costs_only_its_own_values(server: Server, sampler: NvmlSampler) -> None:
    sampler.tick()
    server.set({"2.hang.temp": "inf"})
    reading = sampler.tick()
    assert sorted(reading.records) == [0, 1, 3]
    assert [(h.what, h.device, h.call) for h in reading.happenings] == [("hung", 2, "nvmlDeviceGetTemperature")]
    device = reading.document["devices"][2]
    assert device["hung"]["call"] == "nvmlDeviceGetTemperature"
    assert device["uuid"]
    assert "temperature_c" not in device["values"]
    after = sampler.tick()
    assert sorted(after.records) == [0, 1, 3]
    assert not after.happenings


def test_a_hang_in_a_slow_tier_is_found_without_delaying_the_others(server: Server, sampler: NvmlSampler) -> None:
    sampler.tick()
    server.set({"1.hang.ecc": "inf", "1.ecc.ue.agg": 1})
    reading = until(sampler, lambda r: bool(r.happenings), "all")
    assert [(h.what, h.device) for h in reading.happenings] == [("hung", 1)]
    reading = until(sampler, lambda r: sorted(r.records) == [0, 2, 3])
    assert reading.document["devices"][1]["hung"]["call"] == "nvmlDeviceGetTotalEccErrors"


@pytest.mark.parametrize("ticks", [pytest.param(1000, marks=pytest.mark.slow), 60])
def test_many_ticks_with_a_hang_leave_one_child(server: Server, tmp_path: Path, ticks: int) -> None:
    made = NvmlSampler(deadlines=SHORT, runtime=tmp_path, retry_s=0.2)
    try:
        made.tick()
        server.set({"3.hang.any": "inf"})
        for _ in range(ticks):
            reading = made.tick()
        assert sorted(reading.records) == [0, 1, 2]
        server.set({"3.hang.any": "0"})
        until(made, lambda r: sorted(r.records) == [0, 1, 2, 3])
        until(made, lambda _: len(made.children()) == 1)
    finally:
        made.close()


def test_a_gpu_that_hung_comes_back(server: Server, tmp_path: Path) -> None:
    made = NvmlSampler(deadlines=SHORT, runtime=tmp_path, retry_s=0.1)
    try:
        made.tick()
        server.set({"0.hang.util": "inf"})
        assert made.tick().happenings[0].device == 0
        server.set({"0.hang.util": "0"})
        reading = until(made, lambda r: bool(r.happenings))
        assert [(h.what, h.device) for h in reading.happenings] == [("back", 0)]
        until(made, lambda r: 0 in r.records and r.document["devices"][0]["hung"] is None)
    finally:
        made.close()


def test_a_child_that_cannot_be_killed_keeps_others_from_its_device(server: Server, tmp_path: Path) -> None:
    spared: list[int] = []
    made = NvmlSampler(deadlines=SHORT, runtime=tmp_path, retry_s=0.05, end=spared.append)
    try:
        made.tick()
        server.set({"1.hang.temp": "inf"})
        for _ in range(20):
            reading = made.tick()
            time.sleep(0.01)
        assert len(spared) == 1
        assert reading.document["devices"][1]["hung"]["stuck"]["pid"] == spared[0]
        assert set(Ledger(tmp_path).living()) == {"gpu-1"}
        other = NvmlSampler(deadlines=SHORT, runtime=tmp_path)
        assert sorted(other.tick().records) == [0, 2, 3]
        other.close()
    finally:
        for pid in made.children():
            os.kill(pid, 9)
        made.close()


def test_a_lost_gpu_tells_its_code(server: Server, sampler: NvmlSampler) -> None:
    sampler.tick()
    server.set({"3.lost": 1})
    reading = sampler.tick()
    assert {code for code in reading.records[3].codes if code >= 0} == {15}
    assert value(reading, 2, "temperature_c") > 0


def test_a_lost_gpu_stays_who_it_was(server: Server, sampler: NvmlSampler) -> None:
    before = sampler.tick().document["devices"][3]
    server.set({"3.lost": 1})
    reading = until(sampler, lambda r: "handle" in r.document["devices"][3]["errors"], "all")
    now = reading.document["devices"][3]
    assert [now[name] for name in ("bus_id", "uuid", "serial", "name")] == [
        before[name] for name in ("bus_id", "uuid", "serial", "name")
    ]
    assert "temperature_c" not in now["values"]


def test_without_a_driver_there_is_a_reason_and_it_is_tried_again(server: Server, tmp_path: Path) -> None:
    server.set(init=9)
    made = NvmlSampler(deadlines=SHORT, runtime=tmp_path, retry_s=0.1)
    try:
        reading = made.tick()
        assert reading.records == {}
        assert reading.document["init"]["code"] == 9
        assert reading.why == "Driver Not Loaded"
        server.set(init=0)
        until(made, lambda r: len(r.records) == 4)
    finally:
        made.close()


def test_a_start_that_hangs_is_given_up(server: Server, tmp_path: Path) -> None:
    server.set({"hang.init": "inf"})
    made = NvmlSampler(deadlines=SHORT._replace(init=1.0, whole=0.5), runtime=tmp_path)
    try:
        reading = until(made, lambda r: bool(r.happenings))
        assert reading.happenings[0].device == -1
        assert "does not come back" in str(reading.why)
        made.tick()
        assert len(made.children()) <= 1
    finally:
        made.close()


def test_no_library_is_a_reason(tmp_path: Path) -> None:
    made = NvmlSampler(str(tmp_path / "none.so"), deadlines=SHORT, runtime=tmp_path)
    try:
        reading = until(made, lambda r: "load" in r.document.get("init", {}))
        assert reading.document["init"]["load"] == "missing"
        assert reading.why
    finally:
        made.close()


def test_events_come_as_they_happen(server: Server, sampler: NvmlSampler) -> None:
    sampler.tick()
    server.set(xid="3:79")
    reading = until(sampler, lambda r: bool(r.events))
    assert [(e["device"], e["kind"], e["data"]) for e in reading.events] == [(3, "xid", 79)]


def test_cards_without_these_fields_are_asked_the_old_way(server: Server, sampler: NvmlSampler) -> None:
    server.set({f"{gpu}.{key}": "N/A" for gpu in range(4) for key in ("field.186", "field.185", "temp.margin")})
    reading = sampler.tick()
    last = len(COLUMNS) - 1
    assert COLUMNS[last].call == "nvmlDeviceGetPowerUsage"
    assert reading.records[0].codes[0] == 3
    assert reading.records[0].codes[last] == 0
    assert reading.records[0].values[last] == 69000
