"""What belongs together in a kernel's own report: process, foreign module, which of two came first."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpuclinic.diagnose.candidates import Candidate, Support
    from gpuclinic.model import Signal

_NEIGHBOURS = 30
_OUT_OF_TREE = re.compile(r"\b(\w+)\(\w*O\w*\)")


def refine_kernel_reports(candidates: list[Candidate], by_id: dict[str, list[Signal]]) -> None:
    """All of this module's refinements."""
    _process_of_trace(candidates, by_id.get("kernel.comm", []))
    _module_of_panic(candidates, by_id)


def _process_of_trace(candidates: list[Candidate], comms: list[Signal]) -> None:
    """The "CPU: 3 PID: 4711 Comm: python" line of a kernel report names its process."""
    for candidate in candidates:
        if not candidate.cause.startswith(("kernel.", "driver.bug")):
            continue
        proven = [s for s in candidate.supports if s.places and s.worth >= 0.3]
        if candidate.pid is not None and any(s.pid == candidate.pid and s.order < 10**9 for s in proven):
            continue
        ranked = sorted((s for s in proven if s.order < 10**9), key=lambda s: (s.worth < 0.6, s.order))
        closest = next((found for s in ranked if (found := _comm_near(s, comms)) is not None), None)
        if closest is not None:
            candidate.pid = closest.pid


def _comm_near(support: Support, comms: list[Signal]) -> Signal | None:
    """The process line of the same report as a support: of the same file, and near."""
    source = support.places[0].source
    near = [s for s in comms if s.where.source == source and abs(s.order - support.order) <= _NEIGHBOURS and s.pid]
    return min(near, key=lambda s: abs(s.order - support.order), default=None)


def _module_of_panic(candidates: list[Candidate], by_id: dict[str, list[Signal]]) -> None:
    """An oops or panic in somebody's module: of another version only where the module is not the kernel's own."""
    foreign = {
        m for s in by_id.get("kernel.modules_linked", []) for m in _OUT_OF_TREE.findall(s.groups.get("modules", ""))
    }
    foreign |= {s.groups["module"] for s in by_id.get("kernel.out_of_tree", []) if "module" in s.groups}
    panics = [c for c in candidates if c.cause == "kernel.panic"]
    for candidate in panics:
        blamed = [s for s in candidate.supports if s.groups.get("module") and s.worth >= 0.3]
        own_faults = [s for s in blamed if s.groups["module"] in foreign]
        if candidate.role == "consequence" and any(s.role == "root" and s.worth >= 0.6 for s in candidate.supports):
            candidate.role = "root"  # "Fatal exception" ends the oops of the same candidate, not of another
        candidate.action = "change_version" if own_faults else "" if blamed else candidate.action
        if own_faults:
            _before_lockup(candidate, candidates, own_faults)


def _before_lockup(panic: Candidate, candidates: list[Candidate], faults: list[Support]) -> None:
    """A lock-up inside a foreign module that ended in a panic is that module's fault."""
    decisive = any(s.worth >= 0.9 and s.role == "root" for s in panic.supports)
    for other in candidates:
        if (
            other.cause == "kernel.lockup"
            and decisive
            and faults
            and panic.explained_by is None
            and other.sources & panic.sources
        ):
            other.explained_by = other.explained_by or panic
