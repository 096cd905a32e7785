"""Judges check rows over a window of samples. Pure: the only rule engine for `check`, the agent, and generated rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from gpuclinic.diagnose.evidence import fields_of
from gpuclinic.diagnose.expression import holds, number
from gpuclinic.model import Fact

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

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

    def over_window(self, function: str, names: dict[str, Any], field: str) -> Any:
        """How much a field has grown since the first sample, or that by the minute, or the seconds between."""
        series = self._window.series(names, field, self._number) if field else []
        if function == "span":
            samples = self._window.samples
            return samples[self._number].at - samples[0].at
        if len(series) < 2:
            return None
        (first_at, first), (last_at, last) = series[0], series[-1]
        grown = last - first if last >= first else last  # a counter that went back was reset between the samples
        if function == "grown":
            return grown
        return grown * 60.0 / (last_at - first_at) if last_at > first_at else None


class _Window:
    def __init__(self, samples: Sequence[Sample]) -> None:
        self.samples = samples
        self.kinds: list[dict[str, list[dict[str, Any]]]] = []
        self.by_key: list[dict[tuple[str, str], dict[str, Any]]] = []
        for sample in samples:
            kinds: dict[str, list[dict[str, Any]]] = {}
            keyed: dict[tuple[str, str], dict[str, Any]] = {}
            for fact in sample.facts:
                fields = {**fields_of(fact), "fact_kind": fact.kind}
                kinds.setdefault(fact.kind, []).append(fields)
                keyed.setdefault((fact.kind, fact.key), fields)
            self.kinds.append(kinds)
            self.by_key.append(keyed)

    def series(self, names: dict[str, Any], field: str, until: int) -> list[tuple[float, float]]:
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
    last = len(held.samples) - 1
    names = _names(row, fact, held, last)
    if names is None or (row.where and not holds(row.where, names, _View(held, last))):
        return Judged(row, "elsewhere", None, fact)
    if any(names.get(field) is None for field in row.needs):
        return Judged(row, "unseen", None, fact)
    for severity in _WORST_FIRST:
        condition = getattr(row, severity)
        if not condition:
            continue
        if row.rate and last == 0:
            return Judged(row, "short", severity, fact)
        if holds(condition, names, _View(held, last)):
            state = _for_long_enough(row, condition, fact, held)
            if state != "no":
                return Judged(row, state, severity, fact)
    return Judged(row, "no", None, fact)


def _names(row: Check, fact: Fact | None, held: _Window, number_: int) -> dict[str, Any] | None:
    if fact is None:
        return {}
    return held.names_at(row.over, fact.key, number_)


def _for_long_enough(row: Check, condition: str, fact: Fact | None, held: _Window) -> str:
    if row.for_s <= 0:
        return "holds"
    last_at = held.samples[-1].at
    if last_at - held.samples[0].at < row.for_s:
        return "short" if _held_throughout(row, condition, fact, held, held.samples[0].at) else "no"
    return "holds" if _held_throughout(row, condition, fact, held, last_at - row.for_s) else "no"


def _held_throughout(row: Check, condition: str, fact: Fact | None, held: _Window, since: float) -> bool:
    for number_, sample in enumerate(held.samples):
        if sample.at < since:
            continue
        names = _names(row, fact, held, number_)
        if names is None or not holds(condition, names, _View(held, number_)):
            return False
    return True
