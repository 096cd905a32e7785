"""Scales and times for charts, on a terminal and in SVG."""

from __future__ import annotations

import datetime as dt
import itertools
import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpuclinic.store.history import Bucket

_STEPS_S = (
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800, 1209600, 2592000, 7776000, 31536000,
)  # fmt: skip
_GAP = 3.5


def scale(low: float, high: float, least: float = 0.0) -> tuple[float, float]:
    """Round ends of an axis that holds both. Values that are never negative begin at nought unless they move far away from it."""
    if low >= least and low < 0.6 * high:
        low = least
    if high <= low:
        high = low + 1.0
    step = _nice((high - low) / 4)
    return math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step


def _nice(step: float) -> float:
    power = 10.0 ** math.floor(math.log10(step))
    return next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= step * 0.999)


def number(value: float) -> str:
    """A value as an axis shows it: at most five figures."""
    if not math.isfinite(value):
        return str(value)
    size = abs(value)
    if size >= 1e15:
        return f"{value:.2e}"
    for parts, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if size >= parts:
            return f"{value / parts:.4g}{letter}"
    if size >= 10_000 or value == int(value):
        return f"{value:.0f}"
    if size >= 1000:
        return f"{value:.1f}"
    return f"{value:.4g}" if size >= 0.001 else f"{value:.2g}"


def ticks(since: float, until: float, most: int) -> list[float]:
    """Moments for labels, at round local times, at most so many."""
    needed = (until - since) / max(most, 1)
    step = next((step for step in _STEPS_S if step >= needed), _STEPS_S[-1])
    offset = dt.datetime.fromtimestamp(since).astimezone().utcoffset() or dt.timedelta()
    local = since + offset.total_seconds()
    first = math.ceil(local / step) * step - offset.total_seconds()
    return [first + step * i for i in range(int((until - first) // step) + 1)] if first <= until else []


def moment(at: float, span: float) -> str:
    """A moment as an axis over so many seconds shows it: local time."""
    form = (
        "%H:%M:%S" if span < 600 else "%H:%M" if span <= 100_000 else "%m-%d %H:%M" if span < 12 * 86400 else "%Y-%m-%d"
    )
    return dt.datetime.fromtimestamp(at).astimezone().strftime(form)


def stamp(at: float) -> str:
    """A moment in full: local time."""
    return dt.datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def pieces(buckets: list[Bucket]) -> list[list[Bucket]]:
    """The buckets in stretches without a gap. What is sampled seldom has no gap between its samples."""
    if len(buckets) < 2:
        return [buckets] if buckets else []
    distances = sorted(after.at - before.at for before, after in itertools.pairwise(buckets))
    widest = _GAP * distances[len(distances) // 2]
    found = [[buckets[0]]]
    for before, after in itertools.pairwise(buckets):
        if after.at - before.at > widest:
            found.append([])
        found[-1].append(after)
    return found
