"""Faults long past, with work done in peace since, are history; so is a driver's complaint after which it answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuclinic.diagnose.health import PROGRESS_IDS

if TYPE_CHECKING:
    from gpuclinic.diagnose.candidates import Candidate, Pool
    from gpuclinic.diagnose.deaths import Death
    from gpuclinic.diagnose.evidence import Reading
    from gpuclinic.diagnose.timeline import Timeline

_OF_THE_MACHINE = ("hw.", "driver.", "kernel.", "host.", "storage.", "net.ib", "net.roce")
_BOARD = ("bmc.",)
_KERNELS = ("xid.", "sxid.", "nvrm.", "kernel.")
_WORKED_FOR = 7 * 86400.0
"""So long after the last sign of a fault, work that goes on shows that the fault is over or harmless."""
_BOARD_FORGETS = 30 * 86400.0
"""Event logs of boards are never emptied: what is older than this did not bring anybody here today."""
_TOGETHER = 3600.0
_PAST = 0.3
_DRIVER_ANSWERS = ("driver.library_mismatch", "driver.not_loaded", "driver.kernel_mismatch", "driver.nouveau_conflict")


def set_aside_old(candidates: list[Candidate], pool: Pool, reading: Reading, deaths: list[Death]) -> None:
    """Weakens faults of the machine, old by the newest time in the input, where nothing else went wrong at their time."""
    _long_up(candidates, reading)
    moments = _moments(reading, pool.timeline)
    if not moments:
        return
    now = max(moments)
    troubles = [
        (d.moment.seconds, {d.places[0].source}) for d in deaths if d.moment is not None and d.moment.clock == "wall"
    ]
    old: list[tuple[Candidate, float]] = []
    for candidate in candidates:
        last = _last_seen(candidate) if _of_the_machine(candidate) else None
        if last is None or now - last < _WORKED_FOR:
            if candidate.strength >= 0.5 and candidate.moment is not None and candidate.moment.clock == "wall":
                troubles.append((candidate.moment.seconds, candidate.sources))
        else:
            old.append((candidate, last))
    for candidate, last in old:
        board = all(s.id.startswith(_BOARD) for s in candidate.supports)
        over = now - last >= _BOARD_FORGETS if board else _worked_since(reading, pool.timeline, last)
        rest = [
            when
            for when, sources in troubles
            if (abs(when - last) <= _TOGETHER if board else when > last + _TOGETHER or not sources & candidate.sources)
        ]
        if over and not any(when >= last - _TOGETHER for when in rest):
            candidate.strength = min(candidate.strength, _PAST)


def _of_the_machine(candidate: Candidate) -> bool:
    """A fault of the machine, or what only the kernel's log says of a process."""
    return candidate.cause.startswith(_OF_THE_MACHINE) or all(s.id.startswith(_KERNELS) for s in candidate.supports)


def _long_up(candidates: list[Candidate], reading: Reading) -> None:
    """A machine that has been up for long went down before that: no news, where work goes on and nothing else is wrong."""
    up = min((float(f.fields.get("up_s") or 0) for f in reading.facts if f.kind == "uptime"), default=0.0)
    if up < _WORKED_FOR or not any(s.signature in PROGRESS_IDS for s in reading.signals):
        return
    if any(c.strength >= 0.5 and c.cause != "host.unexpected_reboot" for c in candidates):
        return
    for candidate in candidates:
        if candidate.cause == "host.unexpected_reboot":
            candidate.strength = min(candidate.strength, _PAST)


def _moments(reading: Reading, timeline: Timeline) -> list[float]:
    """Every moment on the wall clock that the input tells."""
    found = [
        moment.seconds for s in reading.signals if (moment := timeline.clock(s)) is not None and moment.clock == "wall"
    ]
    found += [f.time.seconds for f in reading.facts if f.time is not None and not f.time.yearless and not f.time.uptime]
    return found


def _last_seen(candidate: Candidate) -> float | None:
    """When the last of its telling signs was logged; None where one of them has no moment."""
    latest: float | None = None
    told = {(p.source, p.line): s.moment for s in candidate.supports for p in s.places if s.moment is not None}
    for support in candidate.supports:
        moment = support.last_moment or support.moment
        moment = moment or next((told[p.source, p.line] for p in support.places if (p.source, p.line) in told), None)
        if support.worth < 0.25:
            continue
        if moment is None or moment.clock != "wall":
            return None
        latest = moment.seconds if latest is None else max(latest, moment.seconds)
    return latest


def _worked_since(reading: Reading, timeline: Timeline, last: float) -> bool:
    """Runs made steps or ended well long after the moment."""
    for signal in reading.signals:
        if signal.signature in PROGRESS_IDS:
            moment = timeline.clock(signal)
            if moment is not None and moment.clock == "wall" and moment.seconds >= last + _WORKED_FOR:
                return True
    return False


def driver_answers_again(candidates: list[Candidate], reading: Reading) -> None:
    """A driver that lists its cards further down the same text is in order again."""
    listed: dict[str, int] = {}
    for fact in reading.facts:
        line = fact.where().line
        if fact.kind == "gpu" and str(fact.fields.get("tool", "")).startswith("nvidia-smi") and line is not None:
            listed[fact.source] = max(listed.get(fact.source, 0), line)
    if not listed:
        return
    for candidate in candidates:
        if candidate.cause not in _DRIVER_ANSWERS:
            continue
        over = [
            s
            for s in candidate.supports
            if s.places and all((p.line or 1 << 60) < listed.get(p.source, 0) for p in s.places)
        ]
        for support in over:
            support.worth *= 0.3
            support.fatal = False
        if over:
            candidate.settle()
