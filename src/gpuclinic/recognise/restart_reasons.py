"""Why a boot that no shutdown preceded came about: what the processor, the kernel, the board's controller and a UPS say. Pure.

Tables restart_reasons.tsv (who says what, and how much that is worth) and restart_hows.tsv (what is then said).
"""

from __future__ import annotations

import functools
import re
from time import gmtime
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from gpuclinic.model import Fact, Signal, Where
from gpuclinic.recognise.board_log import BootTime, told_by_board
from gpuclinic.recognise.parsers.gpu_tables import read_table
from gpuclinic.recognise.timestamps import in_year

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_RESET_REGISTER = "boot.reset_reason"
_NO_ANSWER = "0xffffffff"
"""What the register reads as in a virtual machine, or where it does not answer."""
_AFTER_BOOT = 900.0
_BEFORE_BOOT = 6 * 3600.0
_SLACK = 120.0
_SURE = 28
"""Up to this rank a line tells even of a boot of which it is not known whether a shutdown preceded it."""
_SWITCHED_OFF = 40
"""From this rank on the board's log says only that the machine was off, as it also is after an orderly shutdown."""
_SETTLED = ("planned", "panic")


class Heard(msgspec.Struct):
    """What was read beside the login records. signals and facts: of all texts, and of the looks.

    past: sources that hold messages of boots that are over (crash dumps): their uptimes count from those. clock: as of board_log.BootTime.
    """

    signals: list[Signal] = []
    facts: list[Fact] = []
    past: frozenset[str] = frozenset()
    zone: float = 0.0
    clock: float | None = None


class _Reason(NamedTuple):
    how: str
    rank: int
    where: Where


@functools.cache
def _rows(told_by: str) -> dict[str, tuple[str, int]]:
    """what is said -> (how, rank)."""
    return {
        row["says"]: (row["how"], int(row["rank"]))
        for row in read_table("restart_reasons.tsv")
        if row["told_by"] == told_by
    }


@functools.cache
def restart_hows() -> dict[str, dict[str, str]]:
    """Each way in which a boot can come about without a shutdown, with its cause and its texts."""
    return {row["how"]: row for row in read_table("restart_hows.tsv")}


def explained(restarts: Sequence[Fact], heard: Heard) -> list[Fact]:
    """The facts `restart` with how they came about, as far as anything tells, and its texts. A planned one stays planned.

    Events of the board's log that say so get the field of_restart.
    """
    starts = [number for fact in restarts if (number := _number(fact.fields.get("at"))) is not None]
    known = {_RESET_REGISTER, *_rows("signal"), *_rows("signal_before")}
    heard = msgspec.structs.replace(heard, signals=[s for s in heard.signals if s.signature in known])
    out: list[Fact] = []
    for fact in restarts:
        how = str(fact.fields.get("how"))
        at = _number(fact.fields.get("at"))
        reason = None
        if how not in _SETTLED and at is not None:
            reason = _best(_reasons(fact, at, starts, heard), how)
        lost = reason is not None and reason.how == "power_loss"
        if at is not None and fact.fields.get("latest") and (lost or how == "planned"):
            _mark(fact, at, heard, planned=not lost)
        out.append(_told(fact, reason))
    return out


def _best(reasons: list[_Reason], how: str) -> _Reason | None:
    telling = [r for r in reasons if how == "unclean" or r.rank <= _SURE]
    return min(telling, key=lambda reason: reason.rank, default=None)


def _reasons(fact: Fact, at: float, starts: list[float], heard: Heard) -> list[_Reason]:
    latest = bool(fact.fields.get("latest"))
    out = _of_logs(at, starts, heard, latest=latest)
    if latest:
        boot = _boot_time(fact, at, heard)
        events = [f for f in heard.facts if f.kind == "sel_event"]
        out += [_Reason(t.how, t.rank, t.event.where()) for t in told_by_board(events, boot)]
        out += _of_controller(heard.facts) + _of_watchdogs(heard.facts)
    return out


def _boot_time(fact: Fact, at: float, heard: Heard) -> BootTime:
    return BootTime(at, _number(fact.fields.get("last_line_at")), heard.clock, heard.zone)


def _mark(fact: Fact, at: float, heard: Heard, *, planned: bool) -> None:
    """The lines of the board's log that the restart stands for need no finding of their own; of a planned one that it was switched off."""
    events = [f for f in heard.facts if f.kind == "sel_event"]
    for told in told_by_board(events, _boot_time(fact, at, heard)):
        if told.rank >= _SWITCHED_OFF if planned else told.how == "power_loss":
            told.event.fields["of_restart"] = True


def _told(fact: Fact, reason: _Reason | None) -> Fact:
    how = reason.how if reason is not None else str(fact.fields.get("how"))
    row = restart_hows().get(how)
    if row is None:
        return fact
    fields = {**fact.fields, "how": how, "cause": row["cause"]}
    fields |= {f"how_{x}": row[x] for x in ("en", "zh")} | {name: row[name] for name in ("detail_en", "detail_zh")}
    lines = {**fact.lines, "time": fact.where("how")}
    if reason is not None:
        lines["how"] = reason.where
    return msgspec.structs.replace(fact, fields=fields, lines=lines)


# ---- logs


def _of_logs(at: float, starts: list[float], heard: Heard, *, latest: bool) -> list[_Reason]:
    out: list[_Reason] = []
    supply: list[tuple[float, Signal]] = []
    before = max((start for start in starts if start < at - _SLACK), default=0.0)
    for signal in heard.signals:
        known = signal.signature
        lag = _lag(signal, at, heard, latest=latest)
        if lag is None:
            continue
        if known in _rows("signal_before"):
            if -min(_BEFORE_BOOT, at - before) <= lag <= _SLACK:
                supply.append((lag, signal))
        elif -_SLACK <= lag <= _AFTER_BOOT:
            out += (
                _of_register(signal) if known == _RESET_REGISTER else [_Reason(*_rows("signal")[known], signal.where)]
            )
    if supply:
        last = max(supply, key=lambda pair: (pair[0], pair[1].order))[1]
        how, rank = _rows("signal_before")[last.signature]
        out += [_Reason(how, rank, last.where)] if how else []
    return out


def _lag(signal: Signal, at: float, heard: Heard, *, latest: bool) -> float | None:
    """Seconds from the boot to the line; None where the line is not dated, or is about a boot that a crash dump was left of."""
    time = signal.time
    if time is None or signal.where.source in heard.past:
        return None
    if time.uptime:
        return time.seconds if latest else None
    seconds = time.seconds
    if time.yearless:
        year = gmtime(at).tm_year
        seconds = min((in_year(seconds, one) for one in (year - 1, year, year + 1)), key=lambda one: abs(one - at))
    return seconds - (0.0 if time.zoned else heard.zone) - at


def _of_register(signal: Signal) -> list[_Reason]:
    """One of the reasons in AMD's register, of which the kernel prints each on a line of its own.

    Old ones may be left in it: by the ranks the gravest counts, and a thermal limit only by itself.
    """
    if signal.groups.get("code") == _NO_ANSWER:
        return []
    told = signal.groups.get("reason", "").strip()
    return [_Reason(*said, signal.where) for text, said in _rows("amd").items() if re.fullmatch(text, told)]


# ---- the board's controller, watchdogs


def _of_controller(facts: Iterable[Fact]) -> list[_Reason]:
    out: list[_Reason] = []
    for fact in facts:
        if fact.kind != "chassis":
            continue
        cause = str(fact.fields.get("restart_cause") or "")
        if cause in _rows("restart_cause"):
            out.append(_Reason(*_rows("restart_cause")[cause], fact.where("restart_cause")))
        for word in str(fact.fields.get("last_power_event") or "").split():
            if word in _rows("last_power_event"):
                out.append(_Reason(*_rows("last_power_event")[word], fact.where("last_power_event")))
    return out


def _of_watchdogs(facts: Iterable[Fact]) -> list[_Reason]:
    out: list[_Reason] = []
    for fact in facts:
        flags = fact.fields.get("boot_status") if fact.kind == "watchdog" else None
        if isinstance(flags, int):
            out += [
                _Reason(*said, fact.where("boot_status"))
                for flag, said in _rows("watchdog").items()
                if flags & int(flag, 16)
            ]
    return out


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
