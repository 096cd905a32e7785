"""Kills of the audit log among other deaths: to whom each call was, and which of them nobody asks about."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpuclinic.model import Fact, Signal

_CALL, _TARGET = "kill.audit_syscall", "kill.audit_target"
_EVENT = re.compile(r"audit\((\d+\.\d+:\d+)\)")


def audit_callers(signals: list[Signal], victims: dict[int, int]) -> dict[int, int]:
    """order of each audited call of kill -> the process that it reached, which the next record of the same event names."""
    reached = {
        event: victims[s.order]
        for s in signals
        if s.signature == _TARGET and s.order in victims and (event := _event(s))
    }
    return {s.order: reached[e] for s in signals if s.signature == _CALL and (e := _event(s)) in reached}


def without_mere_kills(
    signals: list[Signal], facts: list[Fact], victims: dict[int, int], *, named: bool
) -> tuple[list[Signal], list[Fact]]:
    """Both without kills that services do all day, where something else died, too, and no process is named.

    Container runtimes, supervisors and time-outs send SIGKILL without a fault; a kill from somebody's login is told.
    """
    died = {pid for order, pid in victims.items()} - _only_killed(signals, victims)
    died |= {pid for f in facts if f.kind == "death" and isinstance(pid := f.fields.get("pid"), int)}
    if named or not died:
        return signals, facts
    told = {
        f.fields.get("pid")
        for f in facts
        if f.kind == "kill" and ("sender_login" in f.fields or f.fields.get("pid") in died)
    }
    return (
        [s for s in signals if s.signature not in (_CALL, _TARGET) or victims.get(s.order) in told],
        [f for f in facts if f.kind != "kill" or f.fields.get("pid") in told],
    )


def _only_killed(signals: list[Signal], victims: dict[int, int]) -> set[int]:
    """Processes of which the audit log alone tells."""
    kills = {victims[s.order] for s in signals if s.order in victims and s.signature in (_CALL, _TARGET)}
    return kills - {victims[s.order] for s in signals if s.order in victims and s.signature not in (_CALL, _TARGET)}


def _event(signal: Signal) -> str:
    found = _EVENT.search(signal.where.text)
    return found[1] if found else ""
