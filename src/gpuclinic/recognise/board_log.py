"""What the log of the board's controller (SEL) says about how a boot came about. Pure.

Its clock is often wrong, in another zone, or not set yet when a line is written. So the order of its lines counts first: what stands in front
of the controller's own lines about a boot; its times only say how far in front.
"""

from __future__ import annotations

import functools
import itertools
import re
from typing import TYPE_CHECKING, NamedTuple

from gpuclinic.recognise.parsers.gpu_tables import read_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuclinic.model import Fact

_SLACK = 900.0
"""Seconds by which a controller's clock may differ from the system's and still be called right; firmware may take that long to start."""
_ZONES = 14.5 * 3600.0
_HALF_HOUR = 1800.0
_ONE_START = 1200.0
"""Seconds within which several lines about a boot are about the same one."""
_UNSET = 1_262_304_000.0
"""2010: a controller without a battery starts its clock at 1970 or at the day when its firmware was built."""
_WITHOUT_SIGN = 3600.0
_MOST_OUTAGE = 7 * 86400.0
_NEAR = 20
_WHOLE_UNIT = 24
"""Rank of lines that say the whole server was without power: the next boot follows from it, however long it took."""


class BootTime(NamedTuple):
    """The boot in question. at: Unix seconds. last_line: when the boot before wrote its last line, None where that is not known.

    clock: seconds that the controller's clock was ahead of the system's when both were read, None where it was not read; zone: seconds that
    local time is ahead of UTC.
    """

    at: float
    last_line: float | None = None
    clock: float | None = None
    zone: float = 0.0

    @property
    def gap(self) -> float:
        """Seconds before the boot within which the boot before ended, as far as is known."""
        if self.last_line is None:
            return _WITHOUT_SIGN
        return min(max(0.0, self.at - self.last_line), _MOST_OUTAGE) + _SLACK

    @property
    def offsets(self) -> tuple[float, ...]:
        """By how many seconds a controller whose clock is right may be ahead."""
        return (0.0, self.zone) if self.clock is None else (self.clock,)


class Told(NamedTuple):
    """How the boot before ended (table restart_hows), how much that line is worth (less is more), and the line."""

    how: str
    rank: int
    event: Fact


class _Entry(NamedTuple):
    event: Fact
    at: float | None
    boot: bool
    how: str
    rank: int


@functools.cache
def _rows(told_by: str) -> list[tuple[re.Pattern[str], str, int]]:
    return [
        (re.compile(row["says"], re.IGNORECASE), row["how"], int(row["rank"]))
        for row in read_table("restart_reasons.tsv")
        if row["told_by"] == told_by
    ]


def told_by_board(events: Sequence[Fact], boot: BootTime) -> list[Told]:
    """What stands in front of the boot in each of the logs; events: facts `sel_event` in the order of their lines."""
    logs: dict[str, list[Fact]] = {}
    for event in events:
        logs.setdefault(event.source, []).append(event)
    out: list[Told] = []
    for log in logs.values():
        entries = _in_order([_entry(event) for event in log])
        last = _marker(entries, boot)
        out += _by_time(entries, boot) if last is None else _by_order(entries, last, boot)
    return out


def _entry(event: Fact) -> _Entry:
    text = f"{event.fields.get('sensor')} | {event.fields.get('event')}"[:400]
    at = event.time.seconds if event.time is not None and not event.time.uptime else None
    asserted = bool(event.fields.get("asserted"))
    boot = (asserted or "severity" in event.fields) and any(p.search(text) for p, _, _ in _rows("sel_boot"))
    for pattern, how, rank in _rows("sel" if asserted else "sel_deasserted"):
        if pattern.search(text):
            return _Entry(event, at, boot, how, rank)
    return _Entry(event, at, boot, "", 0)


def _in_order(entries: list[_Entry]) -> list[_Entry]:
    """The oldest first; some programs print the newest first."""
    stamps = [entry.at for entry in entries if entry.at is not None]
    falls = sum(later < earlier for earlier, later in itertools.pairwise(stamps))
    rises = sum(later > earlier for earlier, later in itertools.pairwise(stamps))
    return entries[::-1] if falls > rises else entries


def _marker(entries: list[_Entry], boot: BootTime) -> int | None:
    """The controller's last line about this boot; None where it has none, as of a log that is full or tells of older boots only."""
    markers = [place for place, entry in enumerate(entries) if entry.boot]
    for place in reversed(markers):
        at = entries[place].at
        if at is not None and any(abs(at - offset - boot.at) <= _SLACK for offset in boot.offsets):
            return place
    if not markers or any(_UNSET <= (entry.at or 0.0) < boot.at - _ZONES for entry in entries[markers[-1] + 1 :]):
        return None  # the lines behind it are older than this boot
    at = entries[markers[-1]].at
    if at is None or at < _UNSET or at > boot.at + 2 * 86400.0:
        return markers[-1]
    if abs(at - boot.at) > _ZONES:
        return None
    return markers[-1] if boot.clock is None or _hours_apart(at - boot.at) else None


def _hours_apart(seconds: float) -> bool:
    """Firmware writes its lines in local time now and then, into a log of which the rest is in UTC."""
    return abs(seconds - round(seconds / _HALF_HOUR) * _HALF_HOUR) <= 300.0


def _by_order(entries: list[_Entry], last: int, boot: BootTime) -> list[Told]:
    first = _first_of(entries, last)
    before = next((place for place in range(first - 1, -1, -1) if entries[place].boot), -1)
    began = next((entry.at for entry in entries[first : last + 1] if entry.at is not None and entry.boot), None)
    out: list[Told] = []
    for place in range(before + 1, first):
        entry = entries[place]
        if entry.how and (entry.rank == _WHOLE_UNIT or _shortly(entry, began, first - place, boot)):
            out.append(Told(entry.how, entry.rank, entry.event))
    for entry in entries[first : last + 1]:
        if entry.at is None and entry.how == "power_loss":
            out.append(Told(entry.how, entry.rank, entry.event))
        elif entry.at is None and entry.boot and any(one.at is not None for one in entries[:first]):
            out += [Told(how, rank, entry.event) for _, how, rank in _rows("sel_clock")]
    return out


def _first_of(entries: list[_Entry], last: int) -> int:
    """The first of the lines about the boot whose last line this is."""
    first, ours = last, entries[last].at
    for place in range(last - 1, -1, -1):
        if not entries[place].boot:
            continue
        its = entries[place].at
        if its is None:
            if first - place > _NEAR:
                break
        elif ours is None or abs(ours - its) > _ONE_START:
            break
        first, ours = place, ours if its is None else its
    return first


def _shortly(entry: _Entry, began: float | None, lines: int, boot: BootTime) -> bool:
    """The line was written when the boot before ended. Where the clock was not set, or was set in between, its nearness tells."""
    if entry.at is None or began is None or entry.at > began + _SLACK:
        return lines <= _NEAR
    return began - entry.at <= boot.gap


def _by_time(entries: list[_Entry], boot: BootTime) -> list[Told]:
    """Without lines about the boot the times must do."""
    return [
        Told(entry.how, entry.rank, entry.event)
        for entry in entries
        if entry.how
        and entry.at is not None
        and any(-boot.gap <= entry.at - offset - boot.at <= _SLACK for offset in boot.offsets)
    ]
