"""Brings time stamps of many clocks onto one line where the input allows it, and never where it does not."""

from __future__ import annotations

import bisect
import calendar
import statistics
import time as _time

from gpuclinic.diagnose.evidence import Clock
from gpuclinic.model import Signal, Stamp

_PLACEHOLDER_YEAR = 2000


class Timeline:
    """Turns a signal's stamp into a Clock. Years are filled in from stamps that have one; uptimes joined by shared messages."""

    def __init__(self, signals: list[Signal], known_years: list[int]) -> None:
        self._year = statistics.mode(known_years) if known_years else None
        self.year_known = self._year is not None
        self.zoned = any(s.time is not None and s.time.zoned for s in signals)
        self._boots = self._boot_times(signals)

    def clock(self, signal: Signal) -> Clock | None:
        """The moment of a signal, or None where its line has no time."""
        stamp = signal.time
        if stamp is None:
            return None
        if stamp.uptime:
            boot = self._boots.get((signal.where.source, signal.boot))
            if boot is not None:
                return Clock("wall", boot + stamp.seconds)
            return Clock(f"uptime {signal.host or signal.where.source} {signal.boot}", stamp.seconds)
        return Clock("wall", self._dated(stamp))

    def wall(self, signal: Signal) -> tuple[float, bool, bool] | None:
        """(Unix seconds, zoned, year known) of a signal where its moment is a wall-clock one."""
        moment = self.clock(signal)
        if moment is None or moment.clock != "wall" or signal.time is None:
            return None
        return moment.seconds, signal.time.zoned, not signal.time.yearless or self._year is not None

    def _dated(self, stamp: Stamp) -> float:
        if not stamp.yearless or self._year is None:
            return stamp.seconds
        parts = _time.gmtime(stamp.seconds)
        return calendar.timegm((self._year, *parts[1:6], 0, 0, 0)) + stamp.seconds % 1

    def _boot_times(self, signals: list[Signal]) -> dict[tuple[str, int], float]:
        """Boot moments of uptime clocks, from messages that another log shows with wall time."""
        walls: dict[str, list[float]] = {}
        for signal in signals:
            if signal.time is not None and not signal.time.uptime:
                walls.setdefault(_message(signal.where.text), []).append(self._dated(signal.time))
        offsets: dict[tuple[str, int], list[float]] = {}
        for signal in signals:
            if signal.time is not None and signal.time.uptime:
                for wall in walls.get(_message(signal.where.text), ())[:8]:
                    offsets.setdefault((signal.where.source, signal.boot), []).append(wall - signal.time.seconds)
        return {key: _densest(values) for key, values in offsets.items()}


def _message(text: str) -> str:
    """The part of a kernel line behind its stamps, to find the same message in two logs."""
    for mark in ("kernel: ", "] ", ";"):
        if mark in text:
            text = text.split(mark, 1)[1]
    return text.strip()[-120:]


def _densest(values: list[float]) -> float:
    """The value with most others within five seconds."""
    values = sorted(values)
    return max(values, key=lambda v: bisect.bisect(values, v + 5) - bisect.bisect(values, v - 5))
