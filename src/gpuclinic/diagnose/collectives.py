"""Which rank a hanging collective waits for: desync, missing ranks, flight recorder and watchdog positions."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpuclinic.diagnose.candidates import Candidate
    from gpuclinic.diagnose.evidence import Reading
    from gpuclinic.model import Signal

_NAMED = (
    "c10d.desync_never_joined",
    "c10d.desync_not_joined_next",
    "c10d.monitored_barrier",
    "fr.missing_ranks",
    "fr.missing_ranks_table",
)
_RANKS = re.compile(r"\d{1,9}")
_MANY = 6
"""From so many ranks on, the only one without a time-out is the late one."""


def blame(candidates: list[Candidate], reading: Reading) -> None:
    """Sets the rank of a collective time-out to the rank that is late or out of step, where the input tells it."""
    timeouts = [c for c in candidates if c.cause in ("net.collective_timeout", "app.hang", "perf.straggler")]
    if not timeouts:
        return
    by_id = reading.by_id()
    rank, certain = _late_rank(by_id)
    if rank is None:
        return
    for candidate in timeouts:
        candidate.rank, candidate.pid = rank, None
        if certain and candidate.strength >= 0.5:
            candidate.role = "root"
            for support in candidate.supports:
                if support.rank == rank:
                    support.worth = max(support.worth, 0.9)
            candidate.supports.sort(key=lambda s: (s.rank != rank, s.order))
            candidate.strength = max(candidate.strength, 0.9)


def _late_rank(by_id: dict[str, list[Signal]]) -> tuple[int | None, bool]:
    """(rank, certain) of the rank that the others wait for."""
    for name in _NAMED:
        for signal in by_id.get(name, ()):
            ranks = [int(r) for r in _RANKS.findall(signal.groups.get("ranks", ""))]
            if ranks and len(ranks) <= 8:
                return ranks[0], True
    mismatch = by_id.get("c10d.collective_mismatch")
    if mismatch and mismatch[0].groups.get("peer", "").isdecimal():
        return int(mismatch[0].groups["peer"]), True
    for signal in by_id.get("horovod.stall_ranks", ()):
        if signal.groups.get("rank", "").isdecimal():
            return int(signal.groups["rank"]), True
    watchdogs = [s for s in by_id.get("c10d.watchdog_timeout", ()) if s.rank is not None]
    odd = _odd_one(watchdogs)
    if odd is not None:
        return odd, True
    lagging = _lagging(by_id.get("c10d.watchdog_position", []))
    if lagging is not None:
        return lagging, True
    return _silent(watchdogs), len({s.rank for s in watchdogs}) >= _MANY


def _odd_one(watchdogs: list[Signal]) -> int | None:
    """The rank that waits in another operation, size or sequence number than all others."""
    for key in (("op", "numel_in"), ("op",), ("seq",)):
        states = {s.rank: tuple(s.groups.get(k) for k in key) for s in watchdogs}
        counts = Counter(states.values())
        if len(counts) == 2 and len(states) >= 3:
            (common, many), (rare, few) = counts.most_common(2)
            if few < many and few <= 2 and None not in rare and None not in common:
                return next(r for r, state in states.items() if state == rare)
    return None


def _lagging(positions: list[Signal]) -> int | None:
    """The rank whose last enqueued or completed work is behind the others'."""
    for key in ("enqueued", "completed"):
        last: dict[int, int] = {}
        for signal in positions:
            text = signal.groups.get(key, "")
            if signal.rank is not None and text.isdecimal():
                last[signal.rank] = int(text)
        if len(last) >= 2:
            lowest = min(last.values())
            behind = [r for r, v in last.items() if v == lowest]
            if len(behind) == 1 and max(last.values()) > lowest:
                return behind[0]
    return None


def _silent(watchdogs: list[Signal]) -> int | None:
    """The one rank of an otherwise complete range that printed no time-out."""
    ranks = {s.rank for s in watchdogs if s.rank is not None}
    if len(ranks) < 3:
        return None
    missing = set(range(max(ranks) + 1)) - ranks
    return missing.pop() if len(missing) == 1 else None
