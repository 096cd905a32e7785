"""From candidates to a ranking: who explains whom, what is left as root, and how sure that is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuclinic.knowledge.graph import Edge, edge_between

if TYPE_CHECKING:
    from gpuclinic.diagnose.candidates import Candidate

EARLIER_BY = 60.0
"""A cause may be logged up to this many seconds after its consequence: loggers buffer, clocks differ."""
_REBOOT_SEEN = 1800.0
_BELIEVED = 0.5
_SEEN = 0.3
_LEAST = 0.15
_NO_ORDER = 10**8
"""Reasons by facts have orders from here on: a table has no place in the course of a log."""
_SURE = 0.75
_OF_A_CARD = ("hw.gpu.", "hw.pcie.", "driver.unsupported_gpu", "driver.bug")


def link(candidates: list[Candidate]) -> None:
    """Sets explained_by of each candidate to the strongest one that explains it; no cycles."""
    believed = [c for c in candidates if c.strength >= _BELIEVED]
    for candidate in candidates:
        if candidate.explained_by is not None:
            continue
        explainers = [
            o for o in believed
            if o is not candidate and _sure_enough(o, candidate) and explains(o, candidate) and not _descends(o, candidate)
        ]  # fmt: skip
        if explainers:
            candidate.explained_by = max(explainers, key=lambda o: (o.strength + 0.02 * _depth(o, believed), -o.order))


def _sure_enough(cause: Candidate, other: Candidate) -> bool:
    """A guess does not take the verdict away from what is proven."""
    return cause.strength >= _SURE or cause.strength >= other.strength - 0.2


def _descends(candidate: Candidate, ancestor: Candidate) -> bool:
    step: Candidate | None = candidate
    while step is not None:
        if step is ancestor:
            return True
        step = step.explained_by
    return False


def _depth(candidate: Candidate, believed: list[Candidate]) -> int:
    """How many believed candidates this one explains: a cause high up the graph is preferred as parent."""
    return sum(edge_between(candidate.cause, other.cause) is not None for other in believed)


def explains(cause: Candidate, other: Candidate) -> bool:
    """Whether one candidate can be the reason of the other, by graph, time and subject."""
    edge = edge_between(cause.cause, other.cause)
    if edge is None or not _same_subject(edge, cause, other):
        return False
    if cause.role == "consequence" and other.role != "consequence":
        return False  # what by nature follows from something else is no reason for a fault of its own
    if cause.moment is not None and other.moment is not None and cause.moment.clock == other.moment.clock:
        lag = _without_zone_shift(
            other.moment.seconds - cause.moment.seconds, same_source=bool(cause.sources & other.sources)
        )
        if lag < 0 and other.moment.earliest:
            lag = 0.0  # the other's line is later than its stamp by an unknown time
        if cause.cause == "host.unexpected_reboot" and -_REBOOT_SEEN <= lag < 0:
            lag = 0.0  # a reboot is seen only when the machine is back
        if lag < -EARLIER_BY and cause.moment.clock != "wall":
            return False
        if lag < -EARLIER_BY and abs(lag) < 300 * 86400:  # a stamp a year off is a clock problem, not an order
            return False
        if edge.within_s is not None and edge.within_s < lag < 300 * 86400:
            return False
    elif (
        cause.source == other.source
        and cause.moment is None
        and other.moment is None
        and other.order + 400 < cause.order < _NO_ORDER
    ):
        return False
    return True


def _without_zone_shift(lag: float, *, same_source: bool) -> float:
    """The lag between two logs of which one may be in local time and the other in UTC: a whole number of half hours is taken off."""
    if same_source or abs(lag) > 14 * 3600:
        return lag
    rest = lag - round(lag / 1800) * 1800
    return rest if lag < -EARLIER_BY and abs(rest) <= 2 * EARLIER_BY else lag


def _same_subject(edge: Edge, cause: Candidate, other: Candidate) -> bool:
    if edge.scope == "gpu" and cause.gpus and other.gpus:
        return bool(set(cause.gpus) & set(other.gpus))
    if edge.scope in ("gpu", "host") and cause.host and other.host:
        return same_host(cause.host, other.host)
    return True


def same_host(first: str, second: str) -> bool:
    """Host names agree, with or without domain."""
    short, other = (name.split(".")[0].lower().replace("[", "").replace("]", "") for name in (first, second))
    return first == second or short == other


def rank(candidates: list[Candidate]) -> list[Candidate]:
    """Roots by merit; consequences hang on them through explained_by."""
    roots = [c for c in candidates if c.explained_by is None and c.strength >= _LEAST]
    roots.sort(key=lambda c: (-merit(c, candidates), c.order))
    for root in roots:
        _victims(root, [c for c in candidates if c is not root and _root_of(c) is root])
    return roots


_ONLY_WAIT = frozenset({"net.collective_timeout", "net.remote_rank_died", "sched.slurm_limit", "app.hang"})
"""Consequences whose rank is that of somebody who waited: asked for an identity last."""


def _victims(root: Candidate, followers: list[Candidate]) -> None:
    """A cause that names no process (a file system, a card) is about the process in which it was seen first."""
    followers.sort(key=lambda c: (c.cause in _ONLY_WAIT, -c.strength, c.order))
    near = [
        c for c in followers if not (root.gpus and c.gpus) or set(root.gpus) & set(c.gpus)
    ]  # not who used another card
    for name, other in (("pid", "rank"), ("rank", "pid")):
        if getattr(root, name) is None:
            agreeing = [
                c for c in near if getattr(root, other) in (None, getattr(c, other)) or getattr(c, other) is None
            ]
            setattr(root, name, next((getattr(c, name) for c in agreeing if getattr(c, name) is not None), None))
    cards = {g for c in followers if c.strength >= _BELIEVED for g in (*c.gpus, c.gpu) if g}
    if root.gpu is None and root.gpu_index is None and root.cause.startswith(_OF_A_CARD) and len(cards) == 1:
        root.gpu = cards.pop()
        root.gpus = [root.gpu]


def merit(candidate: Candidate, candidates: list[Candidate]) -> float:
    """Strength, with a little for what it explains, less for what by nature only follows from something else."""
    explained = [c for c in candidates if _root_of(c) is candidate and c is not candidate]
    value = candidate.strength + min(0.12, 0.03 * len(explained))
    if not any(s.fatal for s in candidate.supports if s.worth >= 0.3):
        value -= 0.08
    if candidate.role == "consequence":
        value -= 0.25
    return value


def _root_of(candidate: Candidate) -> Candidate:
    while candidate.explained_by is not None:
        candidate = candidate.explained_by
    return candidate


def confidence(root: Candidate, roots: list[Candidate], candidates: list[Candidate]) -> float:
    """How sure the first root is: its strength, less for rivals that it leaves unexplained."""
    value = root.strength
    if root.role == "consequence":
        value = min(value, 0.8)
    for rival in roots:
        if rival is root or rival.strength < _BELIEVED:
            continue
        closeness = max(0.0, 1.0 - 2.5 * max(0.0, merit(root, candidates) - merit(rival, candidates)))
        value *= 1.0 - 0.3 * rival.strength * closeness
    explained = [c for c in candidates if c is not root and _root_of(c) is root]
    if explained:
        value = 1.0 - (1.0 - value) * (0.7 if any(c.strength >= _SEEN for c in explained) else 0.85)
    return round(min(0.985, value), 3)
