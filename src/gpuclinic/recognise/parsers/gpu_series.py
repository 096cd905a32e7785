"""Long series of samples of the same GPUs: keep the telling ones, and say how the whole went."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from gpuclinic.recognise.parsers.gpu_text import Draft, Scalar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuclinic.model import Document, Fact

KEPT = 24
"""How many samples of one GPU stay facts of their own."""

_MEASURES = (
    "utilization_pct",
    "power_w",
    "temperature_c",
    "memory_temperature_c",
    "memory_used_mib",
    "sm_clock_mhz",
    "pcie_gen",
    "pcie_width",
    "memory_utilization_pct",
)
_TELLING = ("error", "throttle_active", "pcie_width", "ecc_uncorrected_volatile", "performance_state", "fan_error")


def thin(document: Document, samples: Sequence[Draft]) -> list[Fact]:
    """Facts of a series: each GPU's first and last samples, the changes, some between; and a gpu_series."""
    by_gpu: dict[str, list[Draft]] = {}
    for sample in samples:
        by_gpu.setdefault(sample.key, []).append(sample)
    facts: list[Fact] = []
    for own in by_gpu.values():
        facts += [own[i].fact() for i in _chosen(own)]
        if len(own) >= 3:
            facts.append(_series(document, own))
    return facts


def _chosen(own: list[Draft]) -> list[int]:
    if len(own) <= KEPT:
        return list(range(len(own)))
    chosen = {0, len(own) - 1, *range(0, len(own), max(1, len(own) // 12))}
    before: tuple[Scalar, ...] | None = None
    changes = 0
    for i, sample in enumerate(own):
        now = tuple(sample.fields.get(name) for name in _TELLING)
        if before is not None and now != before and changes < KEPT // 2:
            chosen.add(i)
            changes += 1
        before = now
    return sorted(chosen)


def _series(document: Document, own: list[Draft]) -> Fact:
    first, last = own[0], own[-1]
    draft = Draft(document, "gpu_series", first.key)
    draft.lines[""] = last.lines.get("") or first.lines[""]
    draft.fields["samples"] = len(own)
    for name in (
        "index",
        "bus_id",
        "uuid",
        "name",
        "power_limit_w",
        "default_power_limit_w",
        "memory_total_mib",
        "tool",
    ):
        for sample in (first, last):
            if sample.fields.get(name) is not None:
                draft.fields[name] = sample.fields[name]
    for name in _MEASURES:
        pairs = [(v, s) for s in own if isinstance(v := s.fields.get(name), int | float) and not isinstance(v, bool)]
        if not pairs:
            continue
        stem, unit = name.rsplit("_", 1)
        values = [v for v, _ in pairs]
        high, low = max(pairs, key=lambda p: p[0]), min(pairs, key=lambda p: p[0])
        for what, value, sample in (
            ("peak", high[0], high[1]),
            ("lowest", low[0], low[1]),
            ("first", pairs[0][0], pairs[0][1]),
            ("last", pairs[-1][0], pairs[-1][1]),
            ("typical", statistics.median_low(values), pairs[-1][1]),
        ):
            draft.fields[f"{stem}_{what}_{unit}"] = value
            place = sample.lines.get(name) or sample.lines.get("")
            if place:
                draft.lines[f"{stem}_{what}_{unit}"] = place
    draft.time = last.time
    return draft.fact()
