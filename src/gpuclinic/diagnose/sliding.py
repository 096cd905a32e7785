"""The rows of `check` over a stream of ticks: since when each holds for whom, when it is told, and when it is over. Pure.

What a row says at a moment, and for how long it has, is `judge.level_of` and `lasting.Lasting`, as in `judge`. New here: a row is judged
again only when something that it reads was read anew; it is told after its duration and two samples, and over only when it has not
held for as long, so that what comes and goes stays one thing; what cannot be seen any more is not over.
"""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, Any, NamedTuple

from gpuclinic.diagnose.expression import number, reads
from gpuclinic.diagnose.judge import OF_THE_PAST, Judged, level_of, names_of, of_past, of_points
from gpuclinic.diagnose.lasting import ELSEWHERE, NOT, PATIENCE_S, SEVERITY_OF, UNSEEN, Lasting, level_when_gone

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpuclinic.diagnose.series import Point
    from gpuclinic.knowledge import Check
    from gpuclinic.model import Fact, Tick

WINDOW_S = 60.0
"""Over so long counters are compared where a row does not say: a minute, so that what is read once a minute has grown or not."""
LEAST_SPAN_S = 10.0
"""Counters compared over less say too much about too little."""
ENDS_AFTER_S = 30.0
"""So long at least a row must not hold before it is over."""
GONE_S = 600.0
"""What is gone and had not been told of yet is forgotten after so long."""
_POINTS = 64
"""A window keeps about so many values of a number; the slopes of all pairs of them are what costs."""
_MOVES_NOT = frozenset({"source_path", "key", "host_name", "fact_kind"})


class Turn(NamedTuple):
    """A row about a subject changed its standing. was, now: 0 nothing, 1 info, 2 warning, 3 critical. since: when it began (mono).

    fact: as it is, or as it was last seen to hold; None for rows about the machine as a whole. gone: the subject is no more.
    """

    row: Check
    key: str
    fact: Fact | None
    was: int
    now: int
    since: float
    gone: bool = False


class _Plan:
    """A row with what it reads."""

    __slots__ = ("own", "reads", "row", "series", "window_s")

    def __init__(self, row: Check) -> None:
        self.row = row
        self.reads = reads([row.where, row.critical, row.warning, row.info])
        self.own = frozenset(self.reads.own | set(row.needs)) - _MOVES_NOT
        self.window_s = row.window_s or WINDOW_S
        self.series = frozenset(self.reads.series)


class _Standing:
    __slots__ = ("below_peak", "below_samples", "below_since", "fact", "fired", "gone", "level", "runs")

    def __init__(self) -> None:
        self.runs = Lasting()
        self.level = NOT
        self.fired = NOT
        self.fact: Fact | None = None
        self.gone = False
        self.below_since: float | None = None
        self.below_peak = NOT
        self.below_samples = 0

    def nothing_left(self, now: float) -> bool:
        """It does not hold; or it was not seen for so long that what it was counts no more."""
        return self.level != UNSEEN or (self.gone and now - self.runs.seen_at > GONE_S)


class _Held(NamedTuple):
    fact: Fact
    names: dict[str, Any]
    since: float
    troubled: bool


class _Series:
    """Values of a number over a window, thinned to some sixty; the newest is always there."""

    __slots__ = ("cached", "moved_at", "points", "window_s")

    def __init__(self, window_s: float) -> None:
        self.points: list[Point] = []
        self.window_s = window_s
        self.moved_at: float | None = None
        self.cached: dict[str, tuple[tuple[float, int], float | None]] = {}

    def add(self, at: float, value: float) -> bool:
        """Takes a value; whether anything that is said of the window may be another thing now: not where it was level for so long."""
        points = self.points
        moved = self.moved_at is None or value != points[-1][1]
        if moved:
            self.moved_at = at
        if len(points) >= 2 and at - points[-2][0] < self.window_s / _POINTS:
            points[-1] = (at, value)
            return moved
        points.append((at, value))
        while len(points) > 2 and points[1][0] <= at - self.window_s:
            del points[0]  # the last one before the window is kept: it says what the number was when the window began
        return moved or at - (self.moved_at or at) <= 2 * self.window_s

    def of(self, function: str) -> float | None:
        """Slopes are counted anew only when the window has gone on by a step."""
        if function in ("grown", "per_minute"):
            return of_points(function, self.points)
        stamp = (self.points[0][0], len(self.points)) if self.points else (0.0, 0)
        held = self.cached.get(function)
        if held is None or held[0] != stamp:
            held = self.cached[function] = (stamp, of_points(function, self.points))
        return held[1]


class Sliding:
    """Rows over a stream. What a number was in this server's own past comes as facts `usual` (judge.of_past)."""

    def __init__(self, rows: Iterable[Check]) -> None:
        self._plans = [_Plan(row) for row in rows]
        self._own: dict[str, dict[str, list[int]]] = {}
        self._over: dict[str, list[int]] = {}
        self._others: dict[str, dict[str, list[int]]] = {}
        self._other_kinds: dict[str, list[int]] = {}
        self._series_of: dict[str, dict[tuple[str, float], list[int]]] = {}
        self._always: list[int] = []
        for place, plan in enumerate(self._plans):
            self._index(place, plan)
        self._standings: dict[tuple[int, str], _Standing] = {}
        self.forget()

    def _index(self, place: int, plan: _Plan) -> None:
        over = plan.row.over
        self._over.setdefault(over, []).append(place)
        for field in plan.own:
            self._own.setdefault(over, {}).setdefault(field, []).append(place)
        for kind, fields in plan.reads.others.items():
            self._other_kinds.setdefault(kind, []).append(place)
            for field in fields - _MOVES_NOT:
                self._others.setdefault(kind, {}).setdefault(field, []).append(place)
        for field in plan.series:
            self._series_of.setdefault(over, {}).setdefault((field, plan.window_s), []).append(place)
        if plan.reads.anything:
            self._always.append(place)

    def forget(self) -> None:
        """Another boot: nothing that was seen before counts any more. What had been told is no longer told."""
        self._facts: dict[str, dict[str, _Held]] = {}
        self._series: dict[tuple[str, str, str, float], _Series] = {}
        self._read_at: dict[str, float] = {}
        self._young: collections.deque[tuple[float, str, str]] = collections.deque()
        self._first: float | None = None
        self._last = 0.0
        self._standings.clear()
        self._restored: list[tuple[int, str]] = []
        self._counts: collections.Counter[str] = collections.Counter()

    def restore(self, told: Iterable[tuple[str, str, int]]) -> None:
        """What had been told before a restart, by row, key and severity: it is not told again, and is over when it holds no more."""
        places = {plan.row.id: place for place, plan in enumerate(self._plans)}
        for identity, key, severity in told:
            place = places.get(identity)
            if place is not None:
                standing = self._standings.setdefault((place, key), _Standing())
                standing.fired, standing.level = severity, UNSEEN
                self._restored.append((place, key))

    def take(self, tick: Tick) -> list[Turn]:
        """One more tick. Durations count on its monotonic clock. A fact that comes again as the same object is taken as unchanged."""
        now = tick.mono
        if self._first is None:
            self._first = now
        if now - self._last > PATIENCE_S:  # asleep, or stopped: nobody knows what was in between
            for standing in self._standings.values():
                standing.runs.blind = True
        self._last = now
        for event in tick.events:
            if event.kind == "kernel":
                self._counts[str(event.fields.get("signature"))] += 1
        view = _View(self, now)
        blind = {gap.check for gap in tick.gaps}
        for place, key in self._dirty(tick):
            self._judge(place, key, view, blind)
        turns = []
        idle = []
        for at, standing in self._standings.items():
            turn = self._step(at, standing, now)
            if turn is not None:
                turns.append(turn)
            if standing.fired == NOT and standing.level <= NOT and standing.nothing_left(now):
                idle.append(at)
        for at in idle:
            del self._standings[at]
        return turns

    def holding(self) -> list[Judged]:
        """What holds now for as long as it must, as `judge` would say of the same samples: before two samples, and without waiting for its end."""
        out = []
        for (place, key), standing in self._standings.items():
            row = self._plans[place].row
            reached = standing.level if row.for_s <= 0 else standing.runs.reached(standing.runs.seen_at, row.for_s)
            if standing.level > NOT and reached > NOT:
                held = self._facts.get(row.over, {}).get(key)
                out.append(Judged(row, "holds", SEVERITY_OF[reached], held.fact if held else None))
        return out

    def _dirty(self, tick: Tick) -> set[tuple[int, str]]:
        """Takes the facts in; which rows must be judged again for whom."""
        incoming: dict[str, dict[str, Fact]] = {}
        for fact in tick.facts:
            incoming.setdefault(fact.kind, {}).setdefault(fact.key, fact)
        dirty: set[tuple[int, str]] = set(self._restored)
        self._restored.clear()
        others: set[int] = set(self._always)
        while self._young and self._young[0][0] <= tick.mono:  # its counters may be compared from now on
            _, kind, key = self._young.popleft()
            dirty.update((place, key) for place in self._over.get(kind, ()))
        for kind in self._facts.keys() - incoming.keys():
            incoming[kind] = {}
        for kind, facts in incoming.items():
            self._take_kind(kind, facts, tick, dirty, others)
        if "" in self._over and tick.mono == self._first:
            others.update(self._over[""])
        for place in others:
            over = self._plans[place].row.over
            dirty.update((place, key) for key in (self._facts.get(over, ()) if over else ("",)))
        return dirty

    def _take_kind(
        self, kind: str, facts: Mapping[str, Fact], tick: Tick, dirty: set[tuple[int, str]], others: set[int]
    ) -> None:
        held = self._facts.setdefault(kind, {})
        own, cross = self._own.get(kind, {}), self._others.get(kind, {})
        came_or_went = False
        for key, fact in facts.items():
            before = held.get(key)
            if before is not None and (before.fact is fact or _same(before.fact, fact)):
                continue
            names = names_of(fact)
            since = tick.mono if before is None else before.since
            held[key] = _Held(fact, names, since, kind == "gpu" and _in_trouble(names))
            if before is None:
                came_or_went = True
                dirty.update((place, key) for place in self._over.get(kind, ()))
                if kind in self._series_of:
                    self._young.append((tick.mono + LEAST_SPAN_S, kind, key))
                continue
            was = before.names
            for field in names.keys() | was.keys() if names.keys() != was.keys() else names:
                if names.get(field) != was.get(field):
                    for place in own.get(field, ()):
                        dirty.add((place, key))
                    others.update(cross.get(field, ()))
        for key in [key for key in held if key not in facts]:
            del held[key]
            came_or_went = True
            dirty.update((place, key) for place in self._over.get(kind, ()))
            for field, window_s in self._series_of.get(kind, ()):
                self._series.pop((kind, key, field, window_s), None)
        if came_or_went:
            others.update(self._other_kinds.get(kind, ()))
        self._take_series(kind, held, tick, dirty)

    def _take_series(self, kind: str, held: Mapping[str, _Held], tick: Tick, dirty: set[tuple[int, str]]) -> None:
        """The values of this reading, at the moment when they were read. A reading that was there already says nothing new."""
        wanted = self._series_of.get(kind)
        if not wanted:
            return
        at = tick.mono - tick.ages.get(kind, 0.0)
        if at <= self._read_at.get(kind, float("-inf")) + 0.05:
            return
        self._read_at[kind] = at
        for key, one in held.items():
            for (field, window_s), places in wanted.items():
                value = number(one.names.get(field))
                if value is None:
                    continue
                series = self._series.get((kind, key, field, window_s))
                if series is None:
                    series = self._series[kind, key, field, window_s] = _Series(window_s)
                if series.add(at, value):
                    dirty.update((place, key) for place in places)

    def _judge(self, place: int, key: str, view: _View, blind: set[str]) -> None:
        plan = self._plans[place]
        row = plan.row
        held = self._facts.get(row.over, {}).get(key)
        standing = self._standings.get((place, key))
        gone = held is None and bool(row.over)
        if gone:  # noqa: SIM108 - two things of a line each
            level = UNSEEN if row.look in blind else level_when_gone(row.over)
        else:
            level = self._level(plan, held, view)
        if standing is None:
            if level <= NOT:
                return
            standing = self._standings[place, key] = _Standing()
        standing.level, standing.gone = level, gone
        if held is not None and level > NOT:
            standing.fact = held.fact

    def _level(self, plan: _Plan, held: _Held | None, view: _View) -> int:
        row = plan.row
        names = held.names if held is not None else {}
        view.window_s = plan.window_s
        view.since = held.since if held is not None else self._first or view.now
        if row.rate and view.now - view.since < LEAST_SPAN_S:
            return UNSEEN
        level = level_of(row, names, view)
        if level in (NOT, ELSEWHERE):
            if held is not None and held.troubled and any(names.get(field) is None for field in plan.own):
                return UNSEEN  # it does not answer: what was wrong with it before has not become well by that
            return NOT
        return level

    def _step(self, at: tuple[int, str], standing: _Standing, now: float) -> Turn | None:
        row = self._plans[at[0]].row
        level = standing.level
        standing.runs.step(now, level, row.for_s)
        if level == UNSEEN:
            return None
        reached = standing.runs.reached(now, row.for_s)
        while reached > standing.fired:
            begun = standing.runs.since[reached]
            if begun is not None and begun < now:  # two samples
                was, standing.fired, standing.below_since = standing.fired, reached, None
                return Turn(row, at[1], standing.fact, was, reached, begun)
            reached -= 1
        if level >= standing.fired:
            standing.below_since = None
            return None
        if standing.below_since is None:
            standing.below_since, standing.below_peak, standing.below_samples = now, level, 1
            return None
        standing.below_samples += 1
        standing.below_peak = max(standing.below_peak, level)
        if now - standing.below_since < max(row.for_s, ENDS_AFTER_S) or standing.below_samples < 2:
            return None
        was, standing.fired, since = standing.fired, standing.below_peak, standing.below_since
        standing.below_since = None
        return Turn(row, at[1], standing.fact, was, standing.fired, since, gone=standing.gone)


class _View:
    """The newest tick and the windows, as conditions see them."""

    def __init__(self, sliding: Sliding, now: float) -> None:
        self._sliding = sliding
        self.now = now
        self.window_s = WINDOW_S
        self.since = now

    def facts(self, kind: str) -> Iterable[Mapping[str, Any]]:
        """The fields of each fact of a kind."""
        return [held.names for held in self._sliding._facts.get(kind, {}).values()]

    def signal_count(self, pattern: str, wanted: dict[str, Any]) -> int:  # noqa: ARG002 - counters have no identity
        """How many kernel messages of this signature came since the beginning."""
        return self._sliding._counts[pattern]

    def over_window(self, function: str, names: Mapping[str, Any], field: str) -> Any:
        """What a field did over the row's window, or what it was in the past."""
        if function == "span":
            return min(self.window_s, self.now - self.since)
        kind, key = str(names.get("fact_kind")), str(names.get("key"))
        if function in OF_THE_PAST:
            held = self._sliding._facts.get("usual", {}).get(f"{kind}/{key}/{field}")
            return of_past(function, held.names if held is not None else None)
        series = self._sliding._series.get((kind, key, field, self.window_s))
        return series.of(function) if series is not None else None


def _same(before: Fact, now: Fact) -> bool:
    return before.fields == now.fields and before.host == now.host


def _in_trouble(names: Mapping[str, Any]) -> bool:
    return bool(
        names.get("hung") or names.get("unreachable") or names.get("not_asked") or names.get("error") == "GPU is lost"
    )
