"""The same numbers under the names, labels and units that dcgm-exporter gives, for dashboards and alerts that exist.

Labels and their order: NVIDIA/dcgm-exporter, internal/pkg/rendermetrics/render_metrics.go and internal/pkg/transformation; names and
units: etc/default-counters.csv and DCGM's dcgm_fields.h. What is different on purpose: values of a whole GPU are written once, and not
again for each of its MIG instances, so that a sum of watts is a sum of watts.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpuclinic.knowledge.metrics import metrics
from gpuclinic.knowledge.xids import catalogue
from gpuclinic.watch.exporter.devices import Gpus
from gpuclinic.watch.exporter.exposition import Family, Labels, Number, Sample, labels
from gpuclinic.watch.exporter.families import of_mask

if TYPE_CHECKING:
    from gpuclinic.knowledge.metrics import Metric
    from gpuclinic.model import Fact
    from gpuclinic.watch.exporter.assignments import Assignments, Owner
    from gpuclinic.watch.exporter.snapshot import Snapshot

_OF_MIG = {
    "DCGM_FI_DEV_FB_USED": "memory_used_mib",
    "DCGM_FI_DEV_FB_FREE": "",
    "DCGM_FI_DEV_FB_TOTAL": "memory_total_mib",
}
_COUNTERS = frozenset(
    ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
     "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", "DCGM_FI_DEV_POWER_VIOLATION", "DCGM_FI_DEV_THERMAL_VIOLATION",
     "DCGM_FI_DEV_SYNC_BOOST_VIOLATION", "DCGM_FI_DEV_BOARD_LIMIT_VIOLATION", "DCGM_FI_DEV_LOW_UTIL_VIOLATION",
     "DCGM_FI_DEV_RELIABILITY_VIOLATION", "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
     "DCGM_FI_DEV_ECC_SBE_AGG_TOTAL", "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL", "DCGM_FI_DEV_RETIRED_SBE", "DCGM_FI_DEV_RETIRED_DBE",
     "DCGM_FI_DEV_RETIRED_PENDING")
)  # fmt: skip
"""What default-counters.csv types as counter."""


def dcgm_families(shot: Snapshot, given: Assignments, hostname: str, hostname_label: str) -> list[Family]:
    """All metrics of dcgm-exporter that NVML tells, in the order of metrics.tsv."""
    facts = shot.tick.facts
    gpus = Gpus(facts)
    driver = next((str(f.fields["version"]) for f in facts if f.kind == "driver" and f.fields.get("version")), "")
    tail = ((hostname_label, hostname), ("DCGM_FI_DRIVER_VERSION", driver))
    migs: dict[object, list[Fact]] = {}
    for fact in facts:
        if fact.kind == "mig_device":
            migs.setdefault(fact.fields.get("gpu_index"), []).append(fact)
    sets = [(fact, _sets(_head(fact), tail, _of_whole(given, fact))) for fact in gpus.facts]
    out: list[Family] = []
    for metric in metrics():
        if metric.kind != "gpu" or metric.dcgm_name is None:
            continue
        family = Family(metric.dcgm_name, "counter" if metric.dcgm_name in _COUNTERS else "gauge", metric.title_en)
        for fact, label_sets in sets:
            parts = migs.get(fact.fields.get("index"), []) if metric.dcgm_name in _OF_MIG else []
            if parts:
                family.samples += _of_parts(metric, fact, parts, tail, given)
                continue
            value = _value(metric, fact.fields.get(metric.field))
            if value is not None:
                family.samples += [Sample(own, value) for own in label_sets]
        out.append(family)
    out.append(_last_xids(shot, gpus, tail, given))
    return out


def _head(gpu: Fact) -> tuple[tuple[str, object], ...]:
    fields = gpu.fields
    minor = fields.get("minor_number", fields.get("index"))
    return (
        ("gpu", fields.get("index")), ("UUID", fields.get("uuid")), ("pci_bus_id", long_address(gpu.key)),
        ("device", f"nvidia{minor}"), ("modelName", fields.get("name")),
    )  # fmt: skip


def _of_whole(given: Assignments, gpu: Fact) -> list[Owner]:
    """Who has the GPU as a whole; who has a part of it stands beside that part's values."""
    return [owner for owner in given.of(gpu) if not owner.instance]


def _sets(head: tuple[tuple[str, object], ...], tail: tuple[tuple[str, str], ...], owners: list[Owner]) -> list[Labels]:
    """One set for each who has the device, as dcgm-exporter writes a series for each job."""
    sets = [
        labels(*head, *tail, *((("hpc_job", owner.job),) if owner.job is not None else owner.pod_pairs()))
        for owner in owners
    ]
    return list(dict.fromkeys(sets)) or [labels(*head, *tail)]


def _of_parts(
    metric: Metric, gpu: Fact, parts: list[Fact], tail: tuple[tuple[str, str], ...], given: Assignments
) -> list[Sample]:
    out = []
    for part in parts:
        used, total = part.fields.get("memory_used_mib"), part.fields.get("memory_total_mib")
        if metric.dcgm_name == "DCGM_FI_DEV_FB_FREE":
            raw: object = total - used if isinstance(total, int | float) and isinstance(used, int | float) else None
        else:
            raw = part.fields.get(_OF_MIG[metric.dcgm_name or ""])
        value = _value(metric, raw)
        if value is not None:
            head = (*_head(gpu), ("GPU_I_PROFILE", part.fields.get("profile")), ("GPU_I_ID", part.fields.get("gi")))
            out += [Sample(own, value) for own in _sets(head, tail, given.of_mig(part))]
    return out


def _value(metric: Metric, raw: object) -> Number | None:
    factor = metric.dcgm_factor or 1.0
    raw = of_mask(raw) if metric.field.endswith("_mask") else raw
    if isinstance(raw, bool):
        return int(raw)
    if not isinstance(raw, int | float):
        return None
    value = raw if factor == 1.0 else raw * factor
    return round(value) if metric.dcgm_name == "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION" else value


def _last_xids(shot: Snapshot, gpus: Gpus, tail: tuple[tuple[str, str], ...], given: Assignments) -> Family:
    """The last Xid of each GPU, as long as the machine runs; 0 where there was none."""
    family = Family("DCGM_FI_DEV_XID_ERRORS", "gauge", "the last Xid of this boot")
    for fact in gpus.facts:
        code = shot.last_xids.get(fact.key, 0)
        known = catalogue().get(("xid", code))
        words = (
            ("err_code", code),
            ("err_msg", (known.name or known.text_en) if known is not None else "No Error" if code == 0 else "Unknown"),
        )
        for own in _sets(_head(fact), tail, _of_whole(given, fact)):
            family.samples.append(Sample(labels(*own.pairs, *words), code))
    return family


def long_address(address: str) -> str:
    """A PCI address as NVML writes it: "0000:3b:00.0" is 00000000:3B:00.0."""
    found = re.fullmatch(r"([0-9a-f]{4,8}):([0-9a-f]{2}:[0-9a-f]{2}\.[0-7])", address)
    return f"{found[1]:0>8}:{found[2]}".upper() if found else address
