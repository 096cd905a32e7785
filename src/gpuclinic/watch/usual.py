"""What this server's numbers usually are, from its own history, for rules that ask whether one is out of the ordinary."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from gpuclinic.model import CouldNotError, Fact, Where

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuclinic.store.history import Bucket, History, Series

DAYS = 14.0
_HOUR = 3600.0
_LEAVE_OUT_S = 2 * _HOUR
"""What happens now is not yet its own past."""
_LEAST_HOURS = 6
"""So many hours must be known before anything is called usual."""
_AT_WORK_PCT = 80.0
_EVERY_S = _HOUR
_OF_GPUS = frozenset({"temperature_c", "memory_temperature_c", "sm_clock_mhz", "power_w"})
_OF_THE_MACHINE = (("nvml", "devices"),)


def usual_facts(history: History, now: float) -> list[Fact]:
    """Facts `usual`, key KIND/KEY/FIELD: low, middle, high of nine of ten hours of the last two weeks, hours (how many).

    Of GPUs only the hours in which they were at work (mean utilisation of at least 80 %), since an idle card's heat says nothing.
    """
    since, until = now - DAYS * 86400.0, now - _LEAVE_OUT_S
    points = round((until - since) / _HOUR)
    by_gpu: dict[str, dict[str, Series]] = {}
    for series in history.series("gpu"):
        by_gpu.setdefault(series.key, {})[series.field] = series
    out: list[Fact] = []
    for fields in by_gpu.values():
        work = fields.get("utilization_pct")
        if work is None:
            continue
        busy = {hour(b) for b in history.query(work, since, until, points) if b.mean >= _AT_WORK_PCT}
        if len(busy) < _LEAST_HOURS:
            continue
        for field in sorted(_OF_GPUS & fields.keys()):
            buckets = history.query(fields[field], since, until, points)
            out += _fact(fields[field], [b.mean for b in buckets if hour(b) in busy])
    for kind, field in _OF_THE_MACHINE:
        for series in history.series(kind, None, field):
            out += _fact(series, [b.mean for b in history.query(series, since, until, points)])
    return out


def hour(bucket: Bucket) -> int:
    """The hour in which a stretch begins; buckets of two series are compared by it."""
    return int(bucket.at // _HOUR)


def _fact(series: Series, values: list[float]) -> list[Fact]:
    if len(values) < _LEAST_HOURS:
        return []
    values.sort()
    last = len(values) - 1
    low, middle, high = (round(values[round(last * share)], 3) for share in (0.05, 0.5, 0.95))
    key = f"{series.kind}/{series.key}/{series.field}"
    place = Where("gpuclinic history", None, f"{key}: {low:g} to {high:g} in nine of ten hours of {len(values)}")
    return [
        Fact(
            "usual", key, {"low": low, "middle": middle, "high": high, "hours": len(values)}, {"": place}, place.source
        )
    ]


class Usual:
    """Reads the past in a thread of its own once an hour, so that no sample waits for it; calling gives what was read last."""

    def __init__(self, open_it: Callable[[], History]) -> None:
        self._open = open_it
        self._facts: list[Fact] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, name="gpuclinic-usual", daemon=True)
        self._thread.start()

    def __call__(self) -> list[Fact]:
        """The facts that were made last."""
        return self._facts

    def close(self) -> None:
        """Ends the thread."""
        self._ended.set()
        self._thread.join(2.0)

    def _work(self) -> None:
        while not self._ended.wait(60.0 if not self._facts else _EVERY_S):
            try:
                with self._open() as history:
                    self._facts = usual_facts(history, time.time())
            except CouldNotError:  # the agent says what is wrong with the history; without it nothing is usual
                self._facts = []
