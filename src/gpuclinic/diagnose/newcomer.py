"""Who came last: of several programs on one GPU the newcomer is named."""

from __future__ import annotations

import time as _time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpuclinic.diagnose.candidates import Candidate
    from gpuclinic.diagnose.evidence import Reading
    from gpuclinic.model import Fact

_FORMATS = ("%a %b %d %H:%M:%S %Y", "%Y-%m-%d %H:%M:%S", "%H:%M:%S", "%H:%M")


def name_newcomer(candidates: list[Candidate], reading: Reading) -> None:
    """Sets the process of a contended GPU to the one that was started last, where that is told for all of them."""
    for candidate in candidates:
        if candidate.cause != "sched.contention" or candidate.gpu_index is None:
            continue
        on_card = [
            f.fields
            for f in reading.facts
            if f.kind == "gpu_process" and f.fields.get("gpu_index") == candidate.gpu_index
        ]
        pids = {fields["pid"] for fields in on_card if isinstance(fields.get("pid"), int)}
        listed = [f for f in reading.facts if f.kind == "process" and f.fields.get("pid") in pids]
        ages = {f.fields["pid"]: age for f in listed if (age := _youth(f)) is not None}
        if len(pids) < 2 or set(ages) != pids or len({kind for kind, _ in ages.values()}) != 1:
            continue
        newest = max(ages, key=lambda pid: ages[pid][1])
        if isinstance(newest, int):
            candidate.pid = newest


def _youth(fact: Fact) -> tuple[str, float] | None:
    """(kind, figure) of when a process was started: larger is later. Figures of one kind compare."""
    elapsed = fact.fields.get("etime_s")
    if isinstance(elapsed, (int, float)):
        return "elapsed", -float(elapsed)
    start = str(fact.fields.get("start") or "")
    for form in _FORMATS:
        try:
            return form, _time.mktime(_time.strptime(start, form))
        except (ValueError, OverflowError):
            continue
    return None
