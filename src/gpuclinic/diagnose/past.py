"""Faults of an earlier boot that nothing of today's trouble goes back to."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpuclinic.diagnose.candidates import Candidate, Support
    from gpuclinic.diagnose.evidence import Reading
    from gpuclinic.diagnose.timeline import Timeline

_OF_THE_MACHINE = ("hw.", "driver.", "kernel.", "host.oom_killer")
_STARTS = frozenset({"boot.journal_mark", "boot.start", "boot.command_line"})
_CLEAN = "boot.clean_shutdown"
_SETTLED = 86400.0
"""The machine has run this long since: what made somebody ask is not the fault of the boot before."""
_TOGETHER = 3600.0
_PAST = 0.3


def set_aside_past(candidates: list[Candidate], reading: Reading, timeline: Timeline) -> None:
    """Weakens what was seen only before an orderly reboot after which the machine has run on for long."""
    starts = _last_starts(reading, timeline)
    if not starts:
        return
    past = [c for c in candidates if c.cause.startswith(_OF_THE_MACHINE) and _only_before(c, starts)]
    others = [c for c in candidates if c not in past and c.strength >= 0.5]
    for candidate in past:
        if not any(_near(candidate, other) for other in others):
            candidate.strength = min(candidate.strength, _PAST)


def _last_starts(reading: Reading, timeline: Timeline) -> dict[str, int]:
    """For each log the order number of its last start, where an orderly shutdown lies before it and long running after."""
    up = max((float(f.fields.get("up_s") or 0) for f in reading.facts if f.kind == "uptime"), default=0.0)
    marks: dict[str, tuple[int, float | None]] = {}
    clean: dict[str, int] = {}
    last: dict[str, float] = {}
    for signal in reading.signals:
        source = signal.where.source
        moment = timeline.clock(signal)
        seconds = moment.seconds if moment is not None and moment.clock == "wall" else None
        if signal.signature == _CLEAN:
            clean[source] = signal.order
        elif signal.signature in _STARTS and source in clean:
            marks[source] = (signal.order, seconds)
        if seconds is not None:
            last[source] = max(last.get(source, seconds), seconds)
    found: dict[str, int] = {}
    for source, (order, began) in marks.items():
        ran = max(last.values(), default=0.0) - began if began is not None else 0.0
        if clean[source] < order and max(ran, up) >= _SETTLED:
            found[source] = order
    return found


def _only_before(candidate: Candidate, starts: dict[str, int]) -> bool:
    """All that supports the candidate stands in a log before that log's last start."""
    telling = [s for s in candidate.supports if s.worth >= 0.3]
    return bool(telling) and all(_before(s, starts) for s in telling)


def _before(support: Support, starts: dict[str, int]) -> bool:
    if not support.places or support.order >= 10**9:
        return False
    start = starts.get(support.places[0].source)
    return start is not None and support.last_order < start


def _near(candidate: Candidate, other: Candidate) -> bool:
    """Something else went wrong at the same time: the old fault is what is asked about."""
    mine, its = candidate.moment, other.moment
    if mine is None or its is None or mine.clock != its.clock:
        return False
    return abs(its.seconds - mine.seconds) <= _TOGETHER
