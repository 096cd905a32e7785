"""Brings time stamps of many clocks onto one line where the input allows it, and never where it does not."""

from __future__ import annotations

import bisect
import calendar
import itertools
import re
import statistics
import time as _time
from typing import TYPE_CHECKING

from gpuclinic.diagnose.evidence import Clock

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuclinic.model import Fact, Signal, Stamp

_PLACEHOLDER_YEAR = 2000
_YEAR = 366 * 86400.0
_NEW_YEAR_GAP = 60 * 86400.0
_TOGETHER = 5.0
_KERNEL_PREFIX = re.compile(
    r"^(?:<\d{1,3}>)?(?:.{0,120}?\bkernel(?:\[\d+\])?: ?)?(?:\w+ *: *\w+ *: ?)?(?:\d+,\d+,\d+,[^;]{0,60};)?"
    r"(?:\[[^\]]{0,50}\d\d:\d\d:\d\d[^\]]{0,20}\] ?)?(?:\[ *\d{1,9}\.\d{6}\](?:\[ *[TC]\d+\])? ?)?"
)
_BOTH = re.compile(r"\bkernel(?:\[\d+\])?: ?\[ *(\d{1,9}\.\d{6})\]")


class Timeline:
    """Turns a signal's stamp into a Clock.

    Years left out are filled in from stamps that have one; without any, a log that runs over New Year keeps its order.
    Uptimes are joined to wall time by messages that another log shows with wall time, by lines that show both, or by
    the known time of boot.
    """

    def __init__(self, signals: list[Signal], known_years: list[int], facts: Iterable[Fact] = ()) -> None:
        self._year = statistics.mode(known_years) if known_years else None
        self.year_known = self._year is not None
        facts = list(facts)
        self.zoned = any(s.time is not None and s.time.zoned for s in signals) or any(
            f.kind == "death" and f.time is not None and f.time.zoned for f in facts
        )
        dated = [s.time.seconds for s in signals if s.time is not None and not s.time.yearless and not s.time.uptime]
        self._anchor = statistics.median(dated) if dated else None
        self._old_from = _turn_of_year(
            [s.time.seconds for s in signals if s.time is not None and s.time.yearless and not s.time.uptime]
        )
        self._boots = self._boot_times(signals)
        self._starts = _boot_facts(facts)

    def clock(self, signal: Signal) -> Clock | None:
        """The moment of a signal, or None where its line has no time."""
        stamp = signal.time
        if stamp is None:
            return None
        if stamp.uptime:
            boot = self._boot_of(signal)
            if boot is not None:
                return Clock("wall", boot + stamp.seconds, stamp.earliest)
            return Clock(f"uptime {signal.host or signal.where.source} {signal.boot}", stamp.seconds, stamp.earliest)
        return Clock("wall", self._dated(stamp), stamp.earliest)

    def wall(self, signal: Signal) -> tuple[float, bool, bool] | None:
        """(Unix seconds, zoned, year known) of a signal where its moment is a wall-clock one."""
        moment = self.clock(signal)
        if moment is None or moment.clock != "wall" or signal.time is None:
            return None
        return moment.seconds, signal.time.zoned, not signal.time.yearless or self._year is not None

    def _boot_of(self, signal: Signal) -> float | None:
        """When the machine of this uptime stamp started, by the best there is."""
        boot = self._boots.get((signal.where.source, signal.boot))
        if boot is None and signal.host is not None:
            boot = self._boots.get((f"host {signal.host}", -1))
        if boot is None:
            boot = self._boots.get(("", -1))
        if boot is None:
            boot = self._starts.get(signal.host, self._starts.get(None))
        return boot

    def _dated(self, stamp: Stamp) -> float:
        """Seconds with the year filled in: nearest to what is dated, else the placeholder, split at New Year."""
        if not stamp.yearless:
            return stamp.seconds
        if self._anchor is not None:
            year = _time.gmtime(self._anchor).tm_year
            choices = [_in_year(stamp.seconds, y) for y in (year - 1, year, year + 1)]
            anchor = self._anchor
            return min(choices, key=lambda seconds: abs(seconds - anchor))
        year = self._year if self._year is not None else _PLACEHOLDER_YEAR
        late = self._old_from is not None and stamp.seconds >= self._old_from
        return _in_year(stamp.seconds, year - 1 if late else year)

    def _boot_times(self, signals: list[Signal]) -> dict[tuple[str, int], float]:
        """Boot moments by (source, boot) from shared messages; by host, and for all, from lines with both clocks."""
        walls: dict[str, list[float]] = {}
        both: dict[str, list[float]] = {}
        for signal in signals:
            if signal.time is None or signal.time.uptime:
                continue
            wall = self._dated(signal.time)
            walls.setdefault(_message(signal.where.text), []).append(wall)
            found = _BOTH.search(signal.where.text[:200])
            if found:
                both.setdefault(f"host {signal.host}", []).append(wall - float(found[1]))
        offsets: dict[tuple[str, int], list[float]] = {}
        for signal in signals:
            if signal.time is not None and signal.time.uptime:
                for wall in walls.get(_message(signal.where.text), ())[:8]:
                    offsets.setdefault((signal.where.source, signal.boot), []).append(wall - signal.time.seconds)
        out = {key: _densest(values) for key, values in offsets.items()}
        steady = {name: _densest(values) for name, values in both.items() if max(values) - min(values) < 12 * _TOGETHER}
        out.update({(name, -1): boot for name, boot in steady.items()})
        if len(both) == 1 and steady:
            out["", -1] = next(iter(steady.values()))
        return out


def _in_year(seconds: float, year: int) -> float:
    """The same moment of another year; 29 February of a common year becomes 1 March."""
    parts = _time.gmtime(seconds)
    return float(calendar.timegm((year, *parts[1:6], 0, 0, 0))) + seconds % 1


def _turn_of_year(seconds: list[float]) -> float | None:
    """Where stamps without a year lie on both sides of New Year: the first one of the old year, else None."""
    if not seconds:
        return None
    moments = sorted(set(seconds))
    around = moments[0] + _YEAR - moments[-1]
    gaps = [(later - earlier, later) for earlier, later in itertools.pairwise(moments)]
    if not gaps:
        return None
    widest, first_old = max(gaps)
    return first_old if around < _NEW_YEAR_GAP and widest > 3 * _NEW_YEAR_GAP else None


def _boot_facts(facts: Iterable[Fact]) -> dict[str | None, float]:
    """The latest known start of each host, from `uptime -s`, `who -b`, `last reboot`, `journalctl --list-boots`."""
    out: dict[str | None, float] = {}
    for fact in facts:
        if fact.kind == "boot" and fact.time is not None and not fact.time.yearless and not fact.time.uptime:
            out[fact.host] = max(out.get(fact.host, 0.0), fact.time.seconds)
    if len(out) == 1:
        out[None] = next(iter(out.values()))
    return out


def _message(text: str) -> str:
    """The part of a kernel line behind its stamps, to find the same message in two logs."""
    return _KERNEL_PREFIX.sub("", text.strip(), count=1).strip()[:160]


def _densest(values: list[float]) -> float:
    """The value with most others within five seconds."""
    values = sorted(values)
    return max(values, key=lambda v: bisect.bisect(values, v + _TOGETHER) - bisect.bisect(values, v - _TOGETHER))
