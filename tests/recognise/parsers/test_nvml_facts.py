"""NVML's document as facts: the names, units and words of nvidia-smi's, and nothing but what is readable of a damaged one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuclinic.model import Document, Fact
from gpuclinic.recognise.parsers import parse, parsers_for
from gpuclinic.recognise.parsers.nvml import parse_nvml


def document(**changes: Any) -> dict[str, Any]:
    device = {
        "index": 1, "bus_id": "0000:3b:00.0", "uuid": "GPU-1", "serial": "165", "minor": 1, "name": "NVIDIA H100 80GB HBM3",
        "values": {
            "temperature_c": 61, "power_w": 312.5, "memory_total_mib": 81559, "ecc_mode": "Enabled", "ecc_uncorrected_volatile": 2,
            "throttle_mask": 0x44, "persistence": True, "remap_pending": False, "slowdown_temp_c": 87,
        },
        "errors": {
            "fan_pct": {"code": 3, "error": "Not Supported", "call": "nvmlDeviceGetFanSpeed"},
            "memory_temperature_c": {"code": 999, "error": "Unknown Error", "call": "nvmlDeviceGetFieldValues", "of": "field 82"},
            "inforom_valid": {"code": 4, "error": "Insufficient Permissions", "call": "nvmlDeviceValidateInforom"},
        },
        "calls": {}, "hung": None, "seconds": 0.004,
        "processes": [{"pid": 4242, "type": "C", "memory_mib": 512, "name": "python"}, {"pid": 4243, "type": "C"}],
        "mig": [], "nvlinks": [
            {"link": 0, "state": "active", "speed_gbs": 26.562, "replay_errors": 0, "crc_errors": 3},
            {"link": 1, "state": "inactive"}, {"link": 2, "state": "sleep", "speed_gbs": 26.562, "effective_ber": 1e-9},
        ],
    }  # fmt: skip
    told = {
        "gpuclinic_nvml": 1, "asked_for": "libnvidia-ml.so.1", "library": "/usr/lib/libnvidia-ml.so.1", "sample": 0,
        "init": {"code": 0}, "system": {"driver_version": "580.105.08", "nvml_version": "13.580.105.08", "cuda_driver_version": "13.0"},
        "count": 2, "devices": [device], "stuck": [], "seconds": 0.1, "slow_calls": [],
        "calls": {
            "ecc_uncorrected_volatile": "nvmlDeviceGetTotalEccErrors/UNCORRECTED, VOLATILE", "temperature_c": "nvmlDeviceGetTemperature",
            "throttle_mask": "nvmlDeviceGetCurrentClocksEventReasons",
        },
    }  # fmt: skip
    return {**told, **changes}


def facts(told: Any) -> list[Fact]:
    return parse_nvml(Document("nvml", told if isinstance(told, str) else json.dumps(told)))


def only(told: Any, kind: str) -> Fact:
    (found,) = [fact for fact in facts(told) if fact.kind == kind]
    return found


def test_found_by_content() -> None:
    for text in (json.dumps(document()), json.dumps(document(), indent=1), json.dumps(document(), sort_keys=True)):
        (entry,) = [entry for entry in parsers_for(text) if entry.name == "NVML answers"]
        assert {fact.kind for fact in parse(entry, Document("nvml.json", text))} >= {"gpu", "nvml", "driver"}


def test_a_device_has_the_names_and_words_of_nvidia_smi() -> None:
    gpu = only(document(), "gpu")
    assert gpu.key == "0000:3b:00.0"
    expected = {
        "tool": "nvml", "index": 1, "minor_number": 1, "temperature_c": 61, "power_w": 312.5, "fan_pct": None,
        "throttle_active": "SW Power Cap, HW Thermal Slowdown", "throttle_mask": "0x0000000000000044", "persistence": True,
        "ecc_uncorrected_volatile": 2, "compute_capability": "9.0", "error": "Unknown Error", "error_cells": 1,
        "unreadable": "memory_temperature_c", "denied": "inforom_valid", "unsupported": "fan_pct",
        "processes": 2, "compute_processes": 2, "process_memory_mib": 512, "process_memory_known": False,
    }  # fmt: skip
    assert {key: gpu.fields.get(key) for key in expected} == expected


def test_evidence_names_the_call() -> None:
    gpu = only(document(), "gpu")
    place = gpu.where("ecc_uncorrected_volatile")
    assert (place.source, place.line) == ("nvml", None)
    assert place.text == "nvmlDeviceGetTotalEccErrors(GPU 1 0000:3b:00.0, UNCORRECTED, VOLATILE) = 2"
    assert gpu.where("temperature_c").text == "nvmlDeviceGetTemperature(GPU 1 0000:3b:00.0) = 61 °C"
    assert gpu.where("unreadable:memory_temperature_c").text.endswith("field 82) = 999: Unknown Error")
    assert "HW Thermal Slowdown" in gpu.where("throttle:HW Thermal Slowdown").text


def test_versions_count_processes() -> None:
    assert only(document(), "driver").fields == {"version": "580.105.08", "cuda_version": "13.0", "tool": "nvml"}
    assert only(document(), "driver_component").fields == {"component": "nvml", "version": "580.105.08"}
    assert only(document(), "gpu_count").fields == {"value": 2, "tool": "nvml"}
    first, second = [fact for fact in facts(document()) if fact.kind == "gpu_process"]
    assert (first.key, first.fields["gpu_key"], first.fields["name"]) == ("0000:3b:00.0/4242", "0000:3b:00.0", "python")
    assert first.fields["name_missing"] is False
    assert "memory_mib" not in second.fields


def test_links() -> None:
    whole = only(document(), "nvlink_gpu")
    assert (whole.key, whole.fields["links"], whole.fields["active"], whole.fields["inactive"]) == ("1", 3, 2, 1)
    assert (whole.fields["state"], whole.fields["first_inactive"]) == ("partial", 1)
    links = [fact for fact in facts(document()) if fact.kind == "nvlink"]
    assert [link.key for link in links] == ["1/0", "1/1", "1/2"]
    assert (links[0].fields["errors"], links[0].fields["worst_error"]) == (3, "crc errors")
    assert "errors" not in links[2].fields


def test_mig() -> None:
    device = document()["devices"][0]
    device["values"]["mig_mode"] = "Enabled"
    device["mig"] = [{"device": 0, "gi": 1, "ci": 0, "profile": "1g.10gb", "memory_total_mib": 9856, "uuid": "MIG-1"}]
    told = document(devices=[device])
    assert only(told, "mig_device").key == "1/0"
    assert only(told, "mig_device").fields["profile"] == "1g.10gb"
    assert only(told, "gpu").fields["mig_devices"] == 1


def test_a_hang_and_a_stuck_child() -> None:
    device = document()["devices"][0]
    device["hung"] = {"call": "nvmlDeviceGetTemperature", "of": "GPU", "after_s": 1.5}
    gpu = only(document(devices=[device]), "gpu")
    assert (gpu.fields["hung"], gpu.fields["hung_call"], gpu.fields["hung_s"]) == (
        True,
        "nvmlDeviceGetTemperature/GPU",
        1.5,
    )
    assert "processes" not in gpu.fields
    assert "did not return for 1.5 s" in gpu.where("hung").text
    device["hung"] = {
        "call": "x",
        "after_s": None,
        "stuck": {"pid": 77, "since": 1e9, "state": "D", "wchan": "os_acquire_mutex"},
    }
    told = document(devices=[device])
    assert only(told, "gpu").fields["hung_pid"] == 77
    assert only(told, "gpu").fields["hung_wchan"] == "os_acquire_mutex"
    assert only(told, "nvml").fields["hung_devices"] == "1"


def test_a_device_without_a_handle() -> None:
    device = {
        "index": 2,
        "bus_id": None,
        "values": {},
        "errors": {"handle": {"code": 15, "error": "GPU is lost", "call": "h"}},
    }
    gpu = only(document(devices=[device]), "gpu")
    assert (gpu.key, gpu.fields["error"], gpu.fields["unreachable"]) == ("2", "GPU is lost", True)


@pytest.mark.parametrize(
    ("init", "count", "reason"),
    [
        ({"code": 0}, 8, "ok"),
        ({"code": 0}, 0, "no_devices"),
        ({"code": 0, "count_code": 999}, None, "failed"),
        ({"code": 9}, None, "driver_not_loaded"),
        ({"code": 9, "control_device": "missing", "module_version": "580.1"}, None, "no_device_nodes"),
        ({"code": 9, "control_device": "missing"}, None, "driver_not_loaded"),
        ({"code": 999, "control_device": "EPERM"}, None, "device_denied"),
        ({"code": 999, "control_device": "EACCES"}, None, "no_permission"),
        ({"code": 4}, None, "no_permission"),
        ({"code": 18}, None, "mismatch"),
        ({"code": 999}, None, "failed"),
        ({"code": None, "load": "missing"}, None, "library_missing"),
        ({"code": None, "load": "foreign"}, None, "library_foreign"),
        ({"code": None, "load": "unreadable"}, None, "library_unreadable"),
        ({"code": None, "load": "bindings"}, None, "bindings_missing"),
        ({"hung_s": 4.0, "call": "nvmlInitWithFlags"}, None, "hung"),
        ({"code": 0, "hung_s": 4.0, "call": "nvmlDeviceGetCount"}, None, "hung"),
        ({"crashed": {"call": "dlopen", "signal": 11}}, None, "crashed"),
        ({}, None, "failed"),
        ("?", None, "failed"),
    ],
)
def test_reasons(init: Any, count: int | None, reason: str) -> None:
    assert only(document(init=init, count=count, devices=[]), "nvml").fields["reason"] == reason


def test_a_cut_document_tells_its_whole_parts() -> None:
    text = json.dumps(document())
    cut = text[: text.index('"calls": {"ecc_unc')]
    assert only(cut, "gpu").fields["temperature_c"] == 61
    assert only(cut, "nvml").fields["cut"] is True
    early = text[: text.index('"processes"')]
    assert [fact.kind for fact in facts(early)] == ["nvml", "driver", "driver_component", "gpu_count"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "null",
        '{"gpuclinic_nvml": 1',
        '{"gpuclinic_nvml": 1, "devices": ' + "[" * 100_000,
        "\x00",
        '"gpuclinic_nvml"',
    ],
)
def test_what_is_none_gives_no_gpu(text: str) -> None:
    assert not [fact for fact in facts(text) if fact.kind == "gpu"]


def test_values_of_the_wrong_type_are_dropped() -> None:
    device = document()["devices"][0]
    device["values"].update(
        temperature_c="hot",
        power_w=[1],
        persistence=1,
        ecc_mode=7,
        index=9,
        tool="x",
        sm_clock_mhz=True,
        **{"Bad Name": 1, "x" * 90: 1},
    )
    gpu = only(document(devices=[device]), "gpu")
    for field in ("temperature_c", "power_w", "persistence", "ecc_mode", "sm_clock_mhz", "Bad Name"):
        assert field not in gpu.fields
    assert (gpu.fields["index"], gpu.fields["tool"]) == (1, "nvml")
    text = (
        json.dumps(document())
        .replace('"temperature_c": 61', '"temperature_c": ' + "9" * 5000)
        .replace("312.5", "1e999")
    )
    assert "temperature_c" not in only(text, "gpu").fields
    assert "power_w" not in only(text, "gpu").fields


def test_many_of_everything_is_bounded() -> None:
    device = document()["devices"][0]
    device["values"] = {f"field_{number}": number for number in range(50_000)}
    device["processes"] = [{"pid": number} for number in range(1, 50_000)]
    found = facts(document(devices=[device]))
    assert len(found) < 5000
    assert max(len(fact.fields) for fact in found) < 600


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_value_anywhere_is_no_exception(data: st.DataObject) -> None:
    told: Any = document()
    for _ in range(data.draw(st.integers(1, 4))):
        place: Any = told
        for _ in range(5):
            keys = (
                list(place) if isinstance(place, dict) else list(range(len(place))) if isinstance(place, list) else []
            )
            if not keys:
                break
            key = data.draw(st.sampled_from(keys))
            if data.draw(st.booleans()) or not isinstance(place[key], dict | list):
                place[key] = data.draw(_JSON)
                break
            place = place[key]
    for fact in facts(json.dumps(told)):
        assert all(value is None or isinstance(value, str | int | float) for value in fact.fields.values())
