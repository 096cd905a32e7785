"""What the logs of the examined machine become as findings: each fault that nothing else explains, each GPU by itself."""

from __future__ import annotations

import datetime as dt
import fnmatch
import time as _time
from typing import TYPE_CHECKING

import msgspec

from gpuclinic.clinic.answer import build_cause
from gpuclinic.diagnose.decide import explains
from gpuclinic.knowledge import load_checks
from gpuclinic.knowledge.xids import judge
from gpuclinic.model import SEVERITIES, Finding
from gpuclinic.recognise.decoding import printable
from gpuclinic.recognise.timestamps import find_stamp, in_year

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuclinic.diagnose.candidates import Candidate, Support
    from gpuclinic.diagnose.diagnosis import Diagnosis
    from gpuclinic.diagnose.evidence import Clock
    from gpuclinic.knowledge import LogFinding
    from gpuclinic.model import Signal

_BELIEVED = 0.5
_TELLING = 0.3
_SLACK = 60.0
"""Seconds by which two clocks of one machine may differ."""
_MILDER_FOR = 10.0
"""So many times as long as it is fresh, a fault is told one step milder; then it is history."""
_DRIVER_LOADED = "nvrm.loaded"
_OF_DEVICES = ("hw.", "driver.", "storage.")
"""What came of a fault makes it graver where a device is out of order then; the echo of a killed process does not."""


class Now(msgspec.Struct, frozen=True):
    """The examined machine's time when it was asked.

    seconds: Unix. told: that time is its own; else it serves for ages only.
    up_s: since its boot, None where that is unknown. zone_s: its local time less UTC.
    crashes: Unix times of the crash records, by the path they were read from, since their own stamps count from a boot that is over.
    answering: addresses of the GPUs that NVML could read just now. switches: those of NVSwitches, which logs name as they name GPUs.
    """

    seconds: float
    up_s: float | None = None
    zone_s: float = 0.0
    crashes: dict[str, float] = {}
    answering: frozenset[str] = frozenset()
    switches: frozenset[str] = frozenset()
    told: bool = True

    @property
    def booted(self) -> float | None:
        """Unix time of the boot."""
        return None if self.up_s is None else self.seconds - self.up_s


def logged(result: Diagnosis, signals: Iterable[Signal], lang: str, now: Now) -> list[Finding]:
    """A finding for each unexplained candidate that the table names, and one for codes that no catalogue has."""
    loaded = _last_load(signals, result, now)
    out: list[Finding] = []
    for candidate in result.candidates:
        row = _row_for(candidate)
        if row is None or row.severity == "none" or _explained(candidate, result.candidates):
            continue
        out.append(_finding(candidate, row, result, lang, now, loaded))
    if result.unknown_codes:
        out.append(_unknown(result, lang))
    return out


def _row_for(candidate: Candidate) -> LogFinding | None:
    """The first row of the table that fits the cause, its strength and, where it names signs, one of the reasons for it."""
    telling = [s for s in candidate.supports if s.worth >= _TELLING]
    for row in load_checks().log_findings:
        if not fnmatch.fnmatchcase(candidate.cause, row.cause) or candidate.strength < row.least:
            continue
        if row.per_day and not any(_per_day(s) >= row.per_day for s in telling):
            continue
        if not row.signs or any(fnmatch.fnmatchcase(s.id, sign) for s in telling for sign in row.signs):
            return row
    return None


def _per_day(support: Support) -> float:
    """Lines a day, over a day at least; all of them where the log has no times."""
    first, last = support.moment, support.last_moment
    if first is None or last is None or first.clock != last.clock:
        return float(support.count)
    return support.count / max(1.0, (last.seconds - first.seconds) / 86400.0)


def _explained(candidate: Candidate, candidates: list[Candidate]) -> bool:
    """Something of another cause is behind it. The same fault of another GPU, which it is tied to, is not."""
    step = candidate.explained_by
    while step is not None and step.cause == candidate.cause:
        step = step.explained_by
    if step is not None:
        return True
    if candidate.explained_by is None:
        return False
    return any(
        other.strength >= max(_BELIEVED, candidate.strength - 0.2)
        and other.cause != candidate.cause
        and explains(other, candidate)
        and not explains(candidate, other)
        for other in candidates
    )


def _finding(
    candidate: Candidate, row: LogFinding, result: Diagnosis, lang: str, now: Now, loaded: float | None
) -> Finding:
    cause = build_cause(candidate, "c1", "root", 1.0, lang, result.timeline)
    last = _last_seen(candidate, now)
    first = _first_seen(candidate, now)
    address = cause.gpu if cause.gpu and ":" in cause.gpu and cause.gpu not in now.switches else None
    severity = _severity(candidate, row, last, now, loaded)
    behind: set[str] = set()
    for other in result.candidates:
        its = _row_for(other) if _behind(other) is candidate and other.cause != candidate.cause else None
        if its is not None and its.severity != "none":
            behind.add(its.id)
            if other.cause.startswith(_OF_DEVICES):
                severity = _worse(severity, _severity(other, its, _last_seen(other, now), now, loaded))
    return Finding(
        id=row.id, severity=severity, component=row.component, subject=cause.gpu or (str(cause.pid) if cause.pid else "host"),
        title=(row.title_zh if lang == "zh" else row.title_en) or cause.title, detail=cause.explanation, cause=cause.id,
        action=cause.action, steps=cause.steps, observed=None, expected=None,
        evidence=cause.evidence, gpu=address, gpu_index=cause.gpu_index, pid=cause.pid, time=(_iso(first) if now.told else None) or cause.time,
        implies=sorted(behind - {row.id}),
    )  # fmt: skip


def _worse(first: str, second: str) -> str:
    """A fault is as grave as what came of it."""
    return max(first, second, key=SEVERITIES.index)


def _behind(candidate: Candidate) -> Candidate | None:
    """What explains a believed candidate in the end; None for those that stand for themselves."""
    if candidate.explained_by is None or candidate.strength < _BELIEVED:
        return None
    step = candidate
    while step.explained_by is not None:
        step = step.explained_by
    return step


def _severity(candidate: Candidate, row: LogFinding, last: float | None, now: Now, loaded: float | None) -> str:
    """The row's severity, less for what healthy machines log, too, for mild codes, for what is over and for what is old."""
    level = SEVERITIES.index(row.severity)
    telling = [s for s in candidate.supports if s.worth >= _TELLING]
    if not row.signs and telling and not any(s.fatal for s in telling):
        level = 0
    capped = _code_severity(telling)
    if capped is not None:
        level = min(level, capped)
    if _is_over(candidate, row, last, now, loaded):
        level = min(level, max(0, SEVERITIES.index(row.severity) - 1))
    if last is not None:
        age = max(0.0, now.seconds - last)
        if age > row.fresh_s:
            level = max(0, level - 1) if age <= _MILDER_FOR * row.fresh_s else 0
    return SEVERITIES[level]


def _code_severity(supports: list[Support]) -> int | None:
    """The worst that the catalogue says of the Xids and SXids, where nothing else supports the candidate."""
    levels: list[int] = []
    for support in supports:
        kind, _, code = support.id.removeprefix("reported.").partition(".")
        if kind not in ("xid", "sxid") or not code.isdecimal():
            return None
        for place in support.places:
            info = judge(kind, int(code), place.text, support.groups.get("fatal_word", ""))
            levels.append(SEVERITIES.index(info.severity) if info.severity in SEVERITIES else 1)
    return max(levels, default=None)


def _is_over(candidate: Candidate, row: LogFinding, last: float | None, now: Now, loaded: float | None) -> bool:
    """After the last line the machine was booted or, where that ends it, the driver loaded anew; or the GPU answers again."""
    if not row.ends:
        return False
    if candidate.sources and all(source in now.crashes for source in candidate.sources):
        return True
    if row.ends == "answers" and candidate.gpu in now.answering:
        return True
    if last is None:
        return False
    if now.booted is not None and last < now.booted - _SLACK:
        return True
    return row.ends in ("driver", "answers") and loaded is not None and last < loaded - 1.0


def _last_load(signals: Iterable[Signal], result: Diagnosis, now: Now) -> float | None:
    """When the driver was last loaded, as far as the logs show it."""
    moments = [
        _absolute(moment, signal.where.text, now)
        for signal in signals
        if signal.signature == _DRIVER_LOADED
        and signal.where.source not in now.crashes
        and (moment := result.timeline.clock(signal)) is not None
    ]
    return max((m for m in moments if m is not None), default=None)


def _last_seen(candidate: Candidate, now: Now) -> float | None:
    """Unix time of the last line that speaks of it; None where the log does not say when."""
    return max(_moments(candidate, now), default=None)


def _first_seen(candidate: Candidate, now: Now) -> float | None:
    return min(_moments(candidate, now), default=None)


def _moments(candidate: Candidate, now: Now) -> list[float]:
    out: list[float] = []
    for support in candidate.supports:
        source = support.places[0].source if support.places else ""
        if source in now.crashes:
            out.append(now.crashes[source])
            continue
        text = support.places[0].text if support.places else ""
        for moment in (support.moment, support.last_moment):
            seconds = _absolute(moment, text, now) if moment is not None else None
            if seconds is not None:
                out.append(seconds)
    return out


def _absolute(moment: Clock, text: str, now: Now) -> float | None:
    """Unix time of a moment: uptimes count from this boot, local times are put right, a year left out is the last that fits."""
    if moment.clock != "wall":
        return None if now.booted is None else now.booted + moment.seconds
    stamp = find_stamp(text)
    if stamp is None or stamp.uptime or stamp.zoned:
        return moment.seconds
    seconds = moment.seconds - now.zone_s
    if stamp.yearless:
        year = _time.gmtime(now.seconds).tm_year
        choices = [in_year(seconds, y) for y in (year - 1, year)]
        seconds = max((s for s in choices if s <= now.seconds + 86400.0), default=choices[0])
    return seconds


def _iso(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    try:
        return dt.datetime.fromtimestamp(round(seconds, 3), dt.timezone.utc).isoformat()
    except (OverflowError, ValueError, OSError):
        return None


def _unknown(result: Diagnosis, lang: str) -> Finding:
    """Codes of the driver that nobody has listed: told, never dropped."""
    row = load_checks().unknown_code
    suffix = "zh" if lang == "zh" else "en"
    evidence = [msgspec.structs.replace(p, text=printable(p.text)) for p in result.unknown_codes[:8]]
    steps = [{"text": getattr(s, suffix), "command": s.command, "risk": s.risk} for s in row.steps]
    return Finding(
        id=row.id, severity=row.severity, component=row.component, subject="host", title=getattr(row, f"title_{suffix}"), detail="",
        cause=None, action=row.action, steps=steps, observed={"value": len(result.unknown_codes), "unit": "codes"}, expected=None, evidence=evidence,
    )  # fmt: skip
