"""What a number did over a window: how much it grew, how fast, whether steadily. Pure."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

Point = tuple[float, float]
"""Seconds on a clock that nobody sets, and the value then."""


def grown(points: Sequence[Point]) -> float | None:
    """How much more it is than at first; a counter that went back was reset in between. None where there is one point only."""
    if len(points) < 2:
        return None
    first, last = points[0][1], points[-1][1]
    return last - first if last >= first else last


def per_minute(points: Sequence[Point]) -> float | None:
    """The growth by the minute; None where no time has gone by."""
    much = grown(points)
    if much is None or points[-1][0] <= points[0][0]:
        return None
    return much * 60.0 / (points[-1][0] - points[0][0])


def slope_and_trend(points: Sequence[Point]) -> tuple[float, float] | None:
    """Growth an hour by the median of the slopes of all pairs (Theil-Sen), and how steadily it rises (Kendall's tau-a).

    The median does not mind peaks in a third of the points. tau: 1 where every later value is higher, 0 where it is level or goes up
    and down, -1 where it always falls. None with fewer than eight points, of which nothing can be said.
    """
    if len(points) < 8:
        return None
    slopes: list[float] = []
    sign = 0
    for place, (at, value) in enumerate(points):
        for later, other in points[place + 1 :]:
            if later > at:
                slopes.append((other - value) / (later - at))
                sign += (other > value) - (other < value)
    if not slopes:
        return None
    return statistics.median(slopes) * 3600.0, sign / len(slopes)
