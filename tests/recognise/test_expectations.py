"""Facts of one machine told together: models, links, power, ages; and power supplies of the firmware's table."""

from __future__ import annotations

import struct

import pytest

from gpuclinic.model import Fact, Stamp
from gpuclinic.recognise.dmi import power_supply
from gpuclinic.recognise.expectations import complete, model_of


def fact(kind: str, key: str, **fields: str | float | bool | None) -> Fact:
    return Fact(kind, key, dict(fields), {}, "test")


@pytest.mark.parametrize(
    ("name", "pci_id", "wanted"),
    [
        ("NVIDIA H100 80GB HBM3", None, "NVIDIA H100 80GB HBM3"),
        ("Graphics Device", "10de:2330", "NVIDIA H100 80GB HBM3"),
        ("NVIDIA GH200 480GB", "10de:2342", "NVIDIA GH200 120GB / 480GB"),
        ("Quadro RTX 8000", "10de:1e30", "Quadro RTX 8000"),  # an id of two boards: the name decides
        ("NVIDIA H2000", "10de:ffff", None),
        (None, None, None),
    ],
)
def test_models_go_by_id_then_by_whole_name(name: str | None, pci_id: str | None, wanted: str | None) -> None:
    row = model_of(name, pci_id)
    assert (row["nvml_name"] if row else None) == wanted


def test_gpus_links_and_bus_get_each_others_fields() -> None:
    gpu = fact("gpu", "0000:18:00.0", index=0, bus_id="0000:18:00.0", name="NVIDIA H100 80GB HBM3", utilization_pct=97)
    device = fact("pci_device", "0000:18:00.0", id="10de:2330", is_gpu=True)
    links = fact("nvlink_gpu", "0", gpu_index=0, active=18)
    complete([gpu, device, links], 0.0)
    assert (gpu.fields["sku_nvlinks"], gpu.fields["sku_use"], gpu.fields["sku_nvlink_by"]) == (
        18,
        "data_centre",
        "switch",
    )
    assert device.fields["utilization_pct"] == 97
    assert (links.fields["sku_nvlinks"], links.fields["bus_id"]) == (18, "0000:18:00.0")
    before = dict(gpu.fields)
    complete([gpu, device, links], 0.0)
    assert gpu.fields == before


def gpus(count: int, limit: float | None) -> list[Fact]:
    return [fact("gpu", str(n), index=n, power_limit_w=limit) for n in range(count)]


def test_power_that_is_needed() -> None:
    budget = fact("power_budget", "host", cpu_w=700.0, sockets=2)
    supplies = [fact("psu", f"39-{n}", present=True, capacity_w=3300.0) for n in range(6)] + [
        fact("psu", "39-6", present=False)
    ]
    complete([*gpus(8, 700.0), budget, *supplies], 0.0)
    assert budget.fields["need_w"] == pytest.approx(1.2 * 5600 + 700 + 150 + 400)
    assert (budget.fields["psu_w"], budget.fields["psu_without_one_w"], budget.fields["psu_source"]) == (
        19800.0,
        16500.0,
        "DMI",
    )


@pytest.mark.parametrize("capacity", [None, 90.0])
def test_supplies_of_unknown_or_implausible_size_are_not_summed(capacity: float | None) -> None:
    budget = fact("power_budget", "host")
    complete([*gpus(1, 300.0), budget, fact("psu", "39-0", present=True, capacity_w=capacity)], 0.0)
    assert "psu_w" not in budget.fields


def test_what_the_person_says_of_the_supplies_counts() -> None:
    budget = fact("power_budget", "host")
    complete([*gpus(1, 300.0), budget, fact("psu", "39-0", present=True, capacity_w=2000.0)], 0.0, psu_watts=750.0)
    assert (budget.fields["psu_w"], budget.fields["psu_source"]) == (750.0, "--psu-watts")


def test_a_gpu_without_a_limit_leaves_the_need_open() -> None:
    budget = fact("power_budget", "host")
    complete([*gpus(1, 300.0), *gpus(1, None), budget], 0.0)
    assert "need_w" not in budget.fields


def test_the_same_supplies_told_twice_count_once() -> None:
    budget = fact("power_budget", "host")
    told = [
        Fact("psu", f"PSU{n}", {"present": True, "capacity_w": 2000.0}, {}, source)
        for source in ("/sys/x", "dmidecode")
        for n in (1, 2)
    ]
    complete([budget, *told], 0.0)
    assert budget.fields["psu_w"] == 4000.0


def test_events_of_the_board_have_an_age() -> None:
    event = Fact("sel_event", "PSU1", {"sensor": "PSU1"}, {}, "sel", time=Stamp(1000.0))
    complete([event], 4600.0)
    assert event.fields["age_s"] == 3600.0


def record(capacity: int, traits: int) -> bytes:
    head = struct.pack("<BBHBBBBBBBBHH", 39, 0x16, 0x2700, 1, 1, 2, 3, 4, 5, 6, 0, capacity, traits)
    return head + bytes(0x16 - len(head)) + b"Bay 1\0PSU2\0Maker\0SN\0TAG\0PWS-3K\0\0"


def test_a_power_supply_record() -> None:
    found = power_supply(record(3000, 3 << 7 | 2), "/sys/firmware/dmi/entries/39-0/raw")
    assert found is not None
    assert found.key == "39-0"
    assert {k: found.fields[k] for k in ("capacity_w", "present", "state", "ok", "plugged")} == {
        "capacity_w": 3000.0, "present": True, "state": "OK", "ok": True, "plugged": True,
    }  # fmt: skip
    unknown = power_supply(record(0x8000, 5 << 7 | 2), "/sys/firmware/dmi/entries/39-1/raw")
    assert unknown is not None
    assert "capacity_w" not in unknown.fields
    assert unknown.fields["state"] == "Critical"


@pytest.mark.parametrize("data", [b"", b"\x27", b"\x27\xff" + bytes(20), b"\x11\x16" + bytes(40), record(1, 1)[:12]])
def test_records_that_are_cut_or_foreign(data: bytes) -> None:
    assert power_supply(data, "/sys/firmware/dmi/entries/39-0/raw") is None
