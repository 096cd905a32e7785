"""Judges check rows over a window of samples. Pure: the only rule engine for `check`, the agent, and generated rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from gpuclinic.diagnose.evidence import fields_of
from gpuclinic.diagnose.expression import holds, number
from gpuclinic.diagnose.lasting import (
    CRITICAL,
    ELSEWHERE,
    INFO,
    NOT,
    SEVERITY_OF,
    UNSEEN,
    WARNING,
    Lasting,
    level_when_gone,
)
from gpuclinic.diagnose.series import grown, per_minute, slope_and_trend
from gpuclinic.model import Fact

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gpuclinic.diagnose.expression import View
    from gpuclinic.diagnose.series import Point
    from gpuclinic.knowledge import Check

_WORST_FIRST = ("critical", "warning", "info")


class Sample(msgspec.Struct):
    """What was seen at one moment: at in Unix seconds; seen: how often each signature was seen in the logs until then."""

    at: float
    facts: list[Fact]
    seen: dict[str, int] = {}


class Judged(NamedTuple):
    """One row about one subject.

    state: "holds", "no", "short" (it may hold, but the window is too short to say) or "unseen" (what it needs was not there).
    severity: of what holds or may hold. fact: the newest; None for rows about the machine as a whole.
    """

    row: Check
    state: str
    severity: str | None
    fact: Fact | None


class _View:
    """One sample of the window, as conditions see it."""

    def __init__(self, window: _Window, number_: int) -> None:
        self._window = window
        self._number = number_

    def facts(self, kind: str) -> Iterable[dict[str, Any]]:
        """The fields of each fact of a kind in this sample."""
        return self._window.kinds[self._number].get(kind, ())

    def signal_count(self, pattern: str, wanted: dict[str, Any]) -> int:  # noqa: ARG002 - counters have no identity
        """How often a signature was seen until this sample."""
        return self._window.samples[self._number].seen.get(pattern, 0)

    def over_window(self, function: str, names: Mapping[str, Any], field: str) -> Any:
        """A function of a field over the samples up to this one; of the past nothing is known here."""
        if function == "span":
            samples = self._window.samples
            return samples[self._number].at - samples[0].at
        if function in OF_THE_PAST:
            place = f"{names.get('fact_kind')}/{names.get('key')}/{field}"
            return of_past(function, self._window.by_key[self._number].get(("usual", place)))
        return of_points(function, self._window.series(names, field, self._number))


class _Window:
    def __init__(self, samples: Sequence[Sample]) -> None:
        self.samples = samples
        self.kinds: list[dict[str, list[dict[str, Any]]]] = []
        self.by_key: list[dict[tuple[str, str], dict[str, Any]]] = []
        for sample in samples:
            kinds: dict[str, list[dict[str, Any]]] = {}
            keyed: dict[tuple[str, str], dict[str, Any]] = {}
            for fact in sample.facts:
                fields = names_of(fact)
                kinds.setdefault(fact.kind, []).append(fields)
                keyed.setdefault((fact.kind, fact.key), fields)
            self.kinds.append(kinds)
            self.by_key.append(keyed)

    def series(self, names: Mapping[str, Any], field: str, until: int) -> list[tuple[float, float]]:
        """Times and values of a field of the fact at hand, up to a sample."""
        place = (str(names.get("fact_kind")), str(names.get("key")))
        out: list[tuple[float, float]] = []
        for sample, keyed in zip(self.samples[: until + 1], self.by_key, strict=False):
            value = number(keyed.get(place, {}).get(field))
            if value is not None:
                out.append((sample.at, value))
        return out

    def names_at(self, kind: str, key: str, number_: int) -> dict[str, Any] | None:
        return self.by_key[number_].get((kind, key))


def judge(rows: Iterable[Check], window: Sequence[Sample]) -> list[Judged]:
    """Each row about each of its subjects; samples in order of time, the newest last."""
    if not window:
        return []
    held = _Window(window)
    newest: dict[str, list[Fact]] = {}
    for fact in window[-1].facts:
        newest.setdefault(fact.kind, []).append(fact)
    out: list[Judged] = []
    for row in rows:
        if not row.over:
            out.append(_judged(row, None, held))
            continue
        seen: set[str] = set()
        for fact in newest.get(row.over, ()):
            if fact.key not in seen:
                seen.add(fact.key)
                out.append(_judged(row, fact, held))
    return [one for one in out if one.state != "elsewhere"]


def _judged(row: Check, fact: Fact | None, held: _Window) -> Judged:
    samples = held.samples
    last = len(samples) - 1
    level = _level(row, fact, held, last)
    if level == ELSEWHERE:
        return Judged(row, "elsewhere", None, fact)
    if level == UNSEEN:
        return Judged(row, "unseen", None, fact)
    if row.rate and last == 0:
        return Judged(row, "short", next(s for s in _WORST_FIRST if getattr(row, s)), fact)
    if level == NOT:
        return Judged(row, "no", None, fact)
    if row.for_s <= 0:
        return Judged(row, "holds", SEVERITY_OF[level], fact)
    runs = Lasting()
    for number_, sample in enumerate(samples):
        runs.step(sample.at, level if number_ == last else _level(row, fact, held, number_), row.for_s)
    reached = runs.reached(samples[-1].at, row.for_s)
    if reached:
        return Judged(row, "holds", SEVERITY_OF[reached], fact)
    may_be = runs.since_first(samples[0].at)
    return Judged(row, "short", SEVERITY_OF[may_be], fact) if may_be else Judged(row, "no", None, fact)


def _level(row: Check, fact: Fact | None, held: _Window, number_: int) -> int:
    names = {} if fact is None else held.names_at(row.over, fact.key, number_)
    return level_when_gone(row.over) if names is None else level_of(row, names, _View(held, number_))


def level_of(row: Check, names: Mapping[str, Any], view: View) -> int:
    """What a row says of a subject at one moment (diagnose.lasting); a stream of samples asks it, too."""
    if row.where and not holds(row.where, names, view):
        return ELSEWHERE
    for field in row.needs:
        if names.get(field) is None:
            return UNSEEN
    if row.critical and holds(row.critical, names, view):
        return CRITICAL
    if row.warning and holds(row.warning, names, view):
        return WARNING
    return INFO if row.info and holds(row.info, names, view) else NOT


def names_of(fact: Fact) -> dict[str, Any]:
    """A fact as conditions see it."""
    return {**fields_of(fact), "fact_kind": fact.kind}


OF_THE_PAST = {"usual": "middle", "usual_low": "low", "usual_high": "high"}
"""Functions of conditions, and the fields of a fact `usual` that answer them."""


def of_past(function: str, names: Mapping[str, Any] | None) -> float | None:
    """What a number was in this server's own past: a fact `usual` with the key KIND/KEY/FIELD, as the history makes it.

    low, middle, high: of nine of ten values; of GPUs' clocks, heat and power only while they were at work (utilization_pct >= 80).
    """
    return None if names is None else number(names.get(OF_THE_PAST[function]))


def of_points(function: str, points: Sequence[Point]) -> float | None:
    """A function of conditions over the values of a window; None where there are too few, and for what only the past can tell."""
    match function:
        case "grown":
            return grown(points)
        case "per_minute":
            return per_minute(points)
        case "slope_per_hour" | "trend":
            both = slope_and_trend(points)
            return None if both is None else both[function == "trend"]
    return None
