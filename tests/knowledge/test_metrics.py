"""The numbers that are kept and exported: each is one that the facts have, under names as Prometheus wants them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gpuclinic.knowledge.metrics import Metric, kept_fields, metric_of, metrics
from gpuclinic.observe import _nvml_calls as calls
from gpuclinic.recognise.host_state import memory

_DOCS = (Path(__file__).parents[2] / "docs" / "facts.md").read_text(encoding="utf-8")
_BASE_UNITS = {
    "": 1.0, "%": 0.01, "MiB": 1 << 20, "W": 1.0, "J": 1.0, "°C": 1.0, "MHz": 1e6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "kB/s": 1e3,
    "GB/s": 1e9, "Gb/s": 1.25e8,
}  # fmt: skip
_ENDS = {
    "%": "_ratio",
    "MiB": "_bytes",
    "W": "_watts",
    "J": "_joules",
    "°C": "_celsius",
    "MHz": "_hertz",
    "µs": "_seconds",
    "ms": "_seconds",
}
_DCGM_UNITS = {"%": 1.0, "MiB": 1.0, "W": 1.0, "J": 1000.0, "°C": 1.0, "MHz": 1.0, "µs": 1.0, "kB/s": 1000.0, "": 1.0}
"""dcgm-exporter's units are percent, MiB, watts, millijoules, degrees, MHz, microseconds and bytes a second."""


def _rows(kind: str) -> str:
    rows = [line for line in _DOCS.splitlines() if re.match(rf"\|[^|]*`{kind}`", line)]
    if kind == "gpu":
        start = _DOCS.index("Fields of `gpu`:")
        rows.append(_DOCS[start : _DOCS.index("Fields of `pci_device`", start)])
    return "\n".join(rows)


def _asked_of_nvml() -> set[str]:
    batches = (calls.HEALTH_FIELDS, calls.SENSOR_FIELDS, calls.PCIE_FIELDS, calls.COUNTER_FIELDS)
    single = (
        calls.STATE,
        calls.ECC,
        calls.ECC_PLACES,
        calls.AFTER_HEALTH,
        calls.SENSORS,
        calls.PCIE,
        calls.THROUGHPUT,
        calls.SETTINGS,
    )
    return {one.field for batch in batches for one in batch} | {
        name for group in single for one in group for name in one.fields
    }


def _of_meminfo() -> set[str]:
    text = "".join(
        f"{name}: {size} kB\n"
        for name, size in (
            ("MemTotal", 2000),
            ("MemFree", 900),
            ("MemAvailable", 1000),
            ("Cached", 300),
            ("AnonPages", 50),
            ("SwapTotal", 10),
            ("SwapFree", 9),
        )
    )
    return set(memory(text)[0].fields)


@pytest.mark.parametrize("metric", metrics(), ids=lambda metric: metric.name)
def test_a_field_that_the_facts_have(metric: Metric) -> None:
    told = _rows(metric.kind)
    assert told, f"docs/facts.md knows no fact {metric.kind}"
    known = re.search(rf"(?<![a-z_]){re.escape(metric.field)}(?![a-z_])", told) is not None
    asked = {"gpu": _asked_of_nvml, "memory": _of_meminfo}.get(metric.kind)
    assert known or (asked is not None and metric.field in asked()), f"{metric.kind} has no field {metric.field}"


@pytest.mark.parametrize("metric", metrics(), ids=lambda metric: metric.name)
def test_names_and_units(metric: Metric) -> None:
    assert re.fullmatch(r"gpuclinic_[a-z][a-z0-9_]*", metric.name)
    assert metric.type in ("gauge", "counter")
    assert metric.name.endswith("_total") == (metric.type == "counter")
    assert metric.factor == _BASE_UNITS[metric.unit]
    assert metric.name.removesuffix("_total").endswith(_ENDS.get(metric.unit, ""))
    assert metric.tier in (1, 10, 60)
    assert metric.digits is None or 0 <= metric.digits <= 9
    assert metric.source
    assert re.search(r"[\u4e00-\u9fff]", metric.title_zh)
    assert metric.title_en
    assert not re.search(r"[\u4e00-\u9fff]", metric.title_en)


@pytest.mark.parametrize("metric", [m for m in metrics() if m.dcgm_name], ids=lambda metric: metric.name)
def test_dcgm_names_and_units(metric: Metric) -> None:
    assert re.fullmatch(r"DCGM_FI_(DEV|PROF)_[A-Z0-9_]+", metric.dcgm_name or "")
    assert metric.dcgm_factor == _DCGM_UNITS[metric.unit]


def test_names_are_unique() -> None:
    for column in ("name", "dcgm_name"):
        names = [getattr(metric, column) for metric in metrics() if getattr(metric, column)]
        assert len(names) == len(set(names))
    assert len({(metric.kind, metric.field) for metric in metrics()}) == len(metrics())


def test_what_dashboard_12239_asks_for_and_nvml_has() -> None:
    names = {metric.dcgm_name for metric in metrics()}
    assert names >= {f"DCGM_FI_DEV_{name}" for name in ("GPU_TEMP", "POWER_USAGE", "SM_CLOCK", "GPU_UTIL", "FB_USED")}


def test_looking_up() -> None:
    power = metric_of("gpu", "power_w")
    assert power is not None
    assert power.title("zh") == "功耗"
    assert power.title("en") == "power drawn"
    assert metric_of("gpu", "name") is None
    assert kept_fields()["gpu"]["power_w"] is None
    assert kept_fields()["gpu"]["pcie_tx_kbs"] == 0
