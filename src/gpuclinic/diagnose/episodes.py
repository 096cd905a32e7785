"""Which lines of a log that goes back for weeks belong to one event, and which events are over by the machine's own later state."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpuclinic.diagnose.candidates import Candidate, Support
    from gpuclinic.diagnose.deaths import Death
    from gpuclinic.diagnose.evidence import Reading
    from gpuclinic.diagnose.timeline import Timeline

_ONE_EVENT_S = 3600.0
_LATER_S = 7 * 86400.0
"""So long after the last sign of a fault, a GPU that is listed in order shows that it is over."""
_WENT_ON_S = 86400.0
"""The log itself goes on so long after it: the fault is not what its reader looked for last."""
_PAST = 0.3
_NOISE = 0.1
_KERNELS = ("xid.", "aer.")


def part_events(candidates: list[Candidate]) -> None:
    """Takes out what by nature follows from something (channels cleaned up) and is of another process and another hour than the rest."""
    for candidate in candidates:
        if not candidate.cause.startswith("app."):
            continue
        roots = [s for s in candidate.supports if s.role == "root"]
        kept = [
            s for s in candidate.supports if s.role == "root" or not roots or any(_one_event(s, root) for root in roots)
        ]
        if len(kept) < len(candidate.supports):
            candidate.supports = kept
            candidate.settle()


def _one_event(first: Support, second: Support) -> bool:
    if first.pid is None or second.pid is None or first.pid == second.pid:
        return True
    mine, its, end = first.moment, second.moment, second.last_moment or second.moment
    if mine is None or its is None or end is None or mine.clock != its.clock:
        return True
    return its.seconds - _ONE_EVENT_S <= mine.seconds <= end.seconds + _ONE_EVENT_S


def set_aside_answered(
    candidates: list[Candidate], reading: Reading, timeline: Timeline, deaths: list[Death]
) -> None:  # fmt: skip
    """Weakens what only the kernel's log tells, where the same GPUs are listed in order a week later and nothing else went wrong since.

    A fault that is the newest thing in its log stays: that is what somebody came to ask about.
    """
    listed = _listed(reading)
    if not listed:
        return
    ends = _ends(reading, timeline)
    died = [d.moment.seconds for d in deaths if d.moment is not None and d.moment.clock == "wall"]
    for candidate in candidates:
        last = _last(candidate)
        if last is None or not all(s.id.startswith(_KERNELS) for s in candidate.supports):
            continue
        when = listed.get(candidate.gpu) if candidate.gpu else max(listed.values())
        if when is None or when - last < _LATER_S or any(moment > last - _ONE_EVENT_S for moment in died):
            continue
        if not any(s.fatal for s in candidate.supports):
            candidate.strength = min(candidate.strength, _NOISE)
        elif candidate.cause.startswith("app.") and ends.get(candidate.source, 0.0) - last >= _WENT_ON_S:
            candidate.strength = min(candidate.strength, _PAST)


def _listed(reading: Reading) -> dict[str | None, float]:
    """For each GPU that nvidia-smi shows without a complaint the moment at which it did."""
    out: dict[str | None, float] = {}
    for fact in reading.facts:
        stamp = fact.time
        if fact.kind != "gpu" or stamp is None or stamp.yearless or stamp.uptime:
            continue
        if any(fact.fields.get(name) for name in ("error", "hung", "unreachable", "unreadable")):
            continue
        key = str(fact.fields.get("bus_id") or fact.key)
        out[key] = max(out.get(key, 0.0), stamp.seconds)
    return out


def _ends(reading: Reading, timeline: Timeline) -> dict[str, float]:
    """The newest moment of each source."""
    out: dict[str, float] = {}
    for signal in reading.signals:
        moment = timeline.clock(signal)
        if moment is not None and moment.clock == "wall":
            out[signal.where.source] = max(out.get(signal.where.source, 0.0), moment.seconds)
    return out


def _last(candidate: Candidate) -> float | None:
    """When its last sign was logged; None where a sign has no moment on the wall clock."""
    moments = [s.last_moment or s.moment for s in candidate.supports]
    seconds = [m.seconds for m in moments if m is not None and m.clock == "wall"]
    return max(seconds) if seconds and len(seconds) == len(moments) else None
