"""Whether the driver confined an uncorrectable memory error to the process that owned the data.

Xid 48 (and 171, 172 with it) tells that the error was found, not whom it hits: that is told when the bad data are used, by Xid 94
(contained, only that process is ended) or Xid 95 (not contained, all channels of the GPU are ended). Sources: NVIDIA's Xid catalogue and
memory error management guide; NVIDIA/open-gpu-kernel-modules src/nvidia/src/kernel/gpu/gpu_error_cont.c (the table of both outcomes).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuclinic.diagnose.decide import same_host
from gpuclinic.knowledge.xids import judge

if TYPE_CHECKING:
    from gpuclinic.diagnose.candidates import Candidate
    from gpuclinic.model import Signal

_FOUND = frozenset({"48", "171", "172"})
_CONTAINED = "94"
_UNCONTAINED = frozenset({"95", "140"})
_ASKS_FOR_RESET = frozenset({"reset_gpu", "reboot", "rma"})
_TOGETHER_S = 60.0
_TOLD = 0.8


def prefer_contained(candidates: list[Candidate], xids: list[Signal]) -> None:
    """Where the driver says "contained" of each error it found and asks for no reset, that is the cause, and Xid 48 its evidence."""
    for found in [c for c in candidates if c.cause == "hw.gpu.ecc_uncorrectable"]:
        contained = next((c for c in candidates if c.cause == "hw.gpu.ecc_contained" and _same_card(c, found)), None)
        failed = any(
            c.cause == "hw.gpu.row_remap_failed" and c.strength >= _TOLD and _same_card(c, found) for c in candidates
        )
        if contained is None or failed or found.action in _ASKS_FOR_RESET or not _all_contained(found.gpu, xids):
            continue
        contained.supports.extend(found.supports)
        contained.sources |= found.sources
        contained.settle()
        candidates[:] = [c for c in candidates if c is not found]
        for other in candidates:
            if other.explained_by is found:
                other.explained_by = None


def _same_card(first: Candidate, second: Candidate) -> bool:
    hosts_agree = not first.host or not second.host or same_host(first.host, second.host)
    return first.gpu is not None and first.gpu == second.gpu and hosts_agree


def _all_contained(gpu: str | None, xids: list[Signal]) -> bool:
    """The GPU's Xids: each error found has its "contained" beside it, none was uncontained, and no line asks for a reset."""
    of_gpu = [(s.groups.get("code", ""), s) for s in xids if s.gpu == gpu]
    contained = [s for code, s in of_gpu if code == _CONTAINED]
    if any(code in _UNCONTAINED for code, _ in of_gpu):
        return False
    if any(judge("xid", 94, s.where.text).action == "reset_gpu" for s in contained):
        return False
    return bool(contained) and all(
        any(_together(s, other) for other in contained) for code, s in of_gpu if code in _FOUND
    )


def _together(first: Signal, second: Signal) -> bool:
    """Logged within a minute of one another; lines without times are taken to be."""
    if first.time is None or second.time is None or first.time.uptime != second.time.uptime:
        return True
    return abs(first.time.seconds - second.time.seconds) <= _TOGETHER_S
