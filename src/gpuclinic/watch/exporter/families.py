"""Our own metrics of a tick, with names and units of knowledge/data/metrics.tsv. What a card does not have is left out, never 0."""

from __future__ import annotations

import re
import time
from collections import Counter
from typing import TYPE_CHECKING

from gpuclinic import __version__
from gpuclinic.knowledge.metrics import Metric, metrics
from gpuclinic.knowledge.xids import catalogue
from gpuclinic.model import SEVERITIES
from gpuclinic.recognise.parsers.nvidia_smi_fields import reasons_of_mask
from gpuclinic.watch.exporter.devices import Gpus, labels_of
from gpuclinic.watch.exporter.exposition import Family, Labels, Number, Sample, labels
from gpuclinic.watch.state import trouble_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuclinic.model import Fact
    from gpuclinic.watch.exporter.assignments import Assignments
    from gpuclinic.watch.exporter.snapshot import Snapshot

MOST_SERIES = 2000
"""Of one metric: cgroups and links come in any number; what is left out is counted."""
_IDENTITY = (
    ("serial", "serial"), ("board_part_number", "board_part_number"), ("vbios", "vbios_version"), ("pci_id", "pci_id"),
    ("architecture", "architecture"), ("compute_capability", "compute_capability"), ("module", "module_id"),
    ("minor_number", "minor_number"), ("inforom", "inforom_version"),
)  # fmt: skip
STATES = (
    "error", "compute_mode", "mig_mode", "mig_pending", "ecc_mode", "ecc_mode_pending", "recovery_action",
    "virtualization_mode", "vgpu_license", "fabric_state", "fabric_status", "sku_use", "sku_form",
    "sku_nvlink_by", "sku_ecc",
)  # fmt: skip
"""Fields of a GPU that are words: each is a series whose value is 1, so that a rule may ask for the word."""
CRITICAL_XIDS = tuple(
    sorted(code for (kind, code), info in catalogue().items() if kind == "xid" and info.severity == "critical")
)


class _Book:
    """Families by name, in the order in which they came."""

    def __init__(self) -> None:
        self.families: dict[str, Family] = {}
        self.left_out = 0

    def add(self, name: str, kind: str, text: str, of: Labels, value: Number) -> None:
        family = self.families.get(name)
        if family is None:
            family = self.families[name] = Family(name, kind, text)
        if len(family.samples) >= MOST_SERIES:
            self.left_out += 1
            return
        family.samples.append(Sample(of, value))

    def gauge(self, name: str, text: str, value: Number | None, of: Labels | None = None) -> None:
        if value is not None:
            self.add(name, "gauge", text, of or labels(), value)

    def counter(self, name: str, text: str, value: Number, of: Labels | None = None) -> None:
        self.add(name, "counter", text, of or labels(), value)


def own_families(shot: Snapshot, given: Assignments) -> list[Family]:
    """All of them. given: which jobs and pods the GPUs are given to."""
    book = _Book()
    gpus = Gpus(shot.tick.facts)
    _counts(book, shot)
    _identity(book, gpus, shot.tick.facts)
    _numbers(book, gpus, shot.tick.facts)
    _words(book, gpus, shot.tick.facts)
    _assignments(book, gpus, given)
    _xids(book, gpus, shot)
    _alerts(book, shot)
    _agent(book, shot)
    book.gauge("gpuclinic_series_left_out", "series that were more than one metric may have", book.left_out)
    return list(book.families.values())


def _counts(book: _Book, shot: Snapshot) -> None:
    book.gauge("gpuclinic_gpus_expected", "GPUs that this machine should have", shot.gpus.expected)
    book.gauge("gpuclinic_gpus_present", "GPUs that the driver lists", shot.gpus.present)
    book.gauge("gpuclinic_gpus_readable", "GPUs that answer", shot.gpus.readable)


def _identity(book: _Book, gpus: Gpus, facts: list[Fact]) -> None:
    driver = next((f.fields for f in facts if f.kind == "driver" and f.fields.get("version")), {})
    for fact in gpus.facts:
        own = gpus.labels(fact)
        more = [(label, fact.fields.get(field)) for label, field in _IDENTITY]
        info = own.plus(*more, ("driver", driver.get("version")), ("cuda", driver.get("cuda_version")))
        book.add(
            "gpuclinic_gpu_info", "info", "which card stands where; join it to get serial number or driver", info, 1
        )
        why = trouble_of(fact)
        book.gauge(
            "gpuclinic_gpu_up",
            "1 where the GPU answers, 0 where it hangs, is lost or cannot be read",
            int(why is None),
            own,
        )


def of_mask(raw: object) -> object:
    """A mask of bits as a number; the facts have it as nvidia-smi writes it, "0x0000000000000004"."""
    return int(raw, 16) if isinstance(raw, str) and re.fullmatch(r"0x[0-9a-fA-F]{1,16}", raw) else raw


def value_of(metric: Metric, raw: object) -> Number | None:
    """A field's value in the metric's base unit; None where it is no number."""
    raw = of_mask(raw) if metric.field.endswith("_mask") else raw
    if isinstance(raw, bool):
        return int(raw)
    if not isinstance(raw, int | float):
        return None
    factor = metric.factor
    return raw if factor == 1.0 else raw * int(factor) if factor.is_integer() else raw * factor


def _numbers(book: _Book, gpus: Gpus, facts: list[Fact]) -> None:
    by_kind: dict[str, list[tuple[Fact, Labels]]] = {}
    wanted = {metric.kind for metric in metrics()}
    for fact in facts:
        if fact.kind in wanted:
            by_kind.setdefault(fact.kind, []).append((fact, labels_of(fact, gpus)))
    for metric in metrics():
        for fact, own in by_kind.get(metric.kind, ()):
            value = value_of(metric, fact.fields.get(metric.field))
            if value is not None:
                book.add(metric.name, metric.type, metric.title_en, own, value)


def reason_label(word: str) -> str:
    """NVML's reason for lowered clocks as a label's value: "HW Thermal Slowdown" is hw_thermal_slowdown."""
    return word.lower().replace(" ", "_")


def _words(book: _Book, gpus: Gpus, facts: list[Fact]) -> None:
    said = "what a GPU says of itself in words"
    for fact in gpus.facts:
        own = gpus.labels(fact)
        mask, supported = (of_mask(fact.fields.get(name)) for name in ("throttle_mask", "throttle_supported_mask"))
        if isinstance(mask, int):
            known = reasons_of_mask(supported if isinstance(supported, int) else mask)
            active = set(reasons_of_mask(mask))
            for word in dict.fromkeys((*known, *active)):
                book.gauge(
                    "gpuclinic_gpu_throttled", "1 while this reason holds the clocks down; reasons that the card knows",
                    int(word in active), own.plus(("reason", reason_label(word))),
                )  # fmt: skip
        for field in STATES:
            value = fact.fields.get(field)
            if isinstance(value, str) and value:
                book.add("gpuclinic_gpu_state_info", "info", said, own.plus(("field", field), ("value", value)), 1)
    for fact in facts:
        if fact.kind == "nvlink_gpu" and fact.fields.get("state"):
            own = gpus.labels(fact).plus(("field", "nvlink_state"), ("value", fact.fields["state"]))
            book.add("gpuclinic_gpu_state_info", "info", said, own, 1)


def _assignments(book: _Book, gpus: Gpus, given: Assignments) -> None:
    for fact in gpus.facts:
        own = gpus.labels(fact)
        for owner in given.of(fact):
            if owner.job is not None:
                book.add(
                    "gpuclinic_gpu_job_info", "info", "the scheduler's job that a GPU is given to",
                    own.plus(("hpc_job", owner.job), ("gpu_instance", owner.instance)), 1,
                )  # fmt: skip
            else:
                book.add(
                    "gpuclinic_gpu_pod_info", "info", "the pod that a GPU is given to", own.plus(*owner.pod_pairs(), ("device", owner.device)), 1
                )  # fmt: skip


def _xids(book: _Book, gpus: Gpus, shot: Snapshot) -> None:
    """Counters that are there from the start, at 0: growth from nothing is no growth to Prometheus."""
    named = {fact.key for fact in gpus.facts}
    text = "Xids of this boot, by code; those that cost a GPU are there from 0"
    for key in [*(fact.key for fact in gpus.facts), *(key for key in shot.gpu_xids if key not in named)]:
        counts = shot.gpu_xids.get(key, {})
        own = gpus.of_key(key)
        for code in sorted({*CRITICAL_XIDS, *counts} if key in named else counts):
            book.counter(
                "gpuclinic_gpu_xids_total",
                text,
                counts.get(code, 0),
                own.plus(("xid", code), ("severity", _severity("xid", code))),
            )
    for code in sorted({*CRITICAL_XIDS, *shot.xids}):
        book.counter(
            "gpuclinic_xids_total", "Xids of this boot on any GPU, by code", shot.xids.get(code, 0),
            labels(("xid", code), ("severity", _severity("xid", code))),
        )  # fmt: skip
    for code, count in sorted(shot.sxids.items()):
        book.counter(
            "gpuclinic_sxids_total", "SXids (of NVSwitches) of this boot, by code", count, labels(("sxid", code))
        )


def _severity(kind: str, code: int) -> str:
    found = catalogue().get((kind, code))
    return found.severity if found is not None else "unknown"


def _alerts(book: _Book, shot: Snapshot) -> None:
    counts: Counter[str] = Counter()
    for alert in shot.alerts:
        finding = alert.finding
        counts[alert.severity] += 1
        of = labels(
            ("rule", alert.rule), ("severity", alert.severity), ("component", finding.component), ("subject", alert.subject),
            ("gpu", finding.gpu_index), ("pci_bus_id", finding.gpu), ("cause", finding.cause), ("explained_by", alert.explained_by),
            ("alert_id", alert.id),
        )  # fmt: skip
        book.gauge(
            "gpuclinic_alert_active",
            "what the agent has found and holds now; explained_by: another alert is its cause",
            1,
            of,
        )
    for severity in SEVERITIES:
        book.gauge(
            "gpuclinic_alerts", "findings that hold now, by severity", counts[severity], labels(("severity", severity))
        )


def _agent(book: _Book, shot: Snapshot) -> None:
    tick, own = shot.tick, shot.own
    age = max(0.0, time.monotonic() - tick.mono)
    book.add("gpuclinic_agent_info", "info", "the agent's version", labels(("version", __version__)), 1)
    book.gauge("gpuclinic_agent_start_time_seconds", "when the agent was started, Unix time", shot.started)
    book.gauge("gpuclinic_sample_timestamp_seconds", "when the newest sample was begun, Unix time", tick.at)
    book.gauge("gpuclinic_sample_age_seconds", "how old the newest sample is", age)
    book.gauge(
        "gpuclinic_sample_duration_seconds",
        "how long the newest sample took; slow samples often come before a wedged driver",
        tick.took_s,
    )
    book.gauge(
        "gpuclinic_sample_duration_slowest_seconds", "the slowest sample since the agent's start", shot.slowest_s
    )
    book.counter("gpuclinic_samples_total", "samples since the agent's start", shot.ticks)
    book.counter("gpuclinic_samples_slow_total", "samples that took longer than the interval", shot.slow_ticks)
    book.counter("gpuclinic_samples_missed_total", "samples that were due while another still ran", shot.missed)
    for name, field, factor, text in (
        ("gpuclinic_agent_memory_bytes", "pss_mib", 1 << 20, "proportional set size of the agent with its children"),
        ("gpuclinic_agent_processes", "processes", 1, "processes of the agent"),
    ):
        value = own.get(field)
        book.gauge(name, text, value * factor if isinstance(value, int | float) else None)
    cpu = own.get("cpu_s")
    if isinstance(cpu, int | float):
        book.counter("gpuclinic_agent_cpu_seconds_total", "processor time of the agent with its children", cpu)
    book.gauge("gpuclinic_agent_problems", "what the agent cannot do now (see state.json)", shot.problems)
    for check, count in sorted(Counter(gap.check for gap in tick.gaps).items()):
        book.gauge(
            "gpuclinic_not_looked_at",
            "looks that were not possible; no values is not the same as healthy",
            count,
            labels(("look", check)),
        )
    for kind, seconds in sorted(tick.ages.items()):
        book.gauge(
            "gpuclinic_reading_age_seconds",
            "how old the readings of a kind of fact are",
            seconds,
            labels(("kind", kind)),
        )


def names_of_families(families: Iterable[Family]) -> set[str]:
    """Their names, for who checks that rules and dashboards ask for metrics that exist."""
    return {family.name for family in families}
