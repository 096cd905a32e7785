"""Whether a job stands: no output, no GPU that gets on, no CPU time beyond waiting in a loop, for as long as was asked. Pure."""

from __future__ import annotations

from typing import NamedTuple

_IDLE_CPU = 0.02
"""Share of one core below which a job does nothing but look at clocks."""
_GPU_IDLE_PCT = 3.0
_SPINS_PCT, _SPINS_POWER = 95.0, 0.35
"""A kernel that waits in a loop (a collective without its peers) shows a GPU fully used that draws little of its power limit."""
_MOVED_A_SECOND = 4096.0


class Moment(NamedTuple):
    """at: monotonic seconds. output: bytes written so far. cpu_s: CPU time so far. moved: bytes read and written so far, None unknown.

    gpus: for each GPU that the job holds (share of its time it was busy in %, share of its power limit or None); None: not known.
    """

    at: float
    output: int
    cpu_s: float
    moved: int | None
    gpus: list[tuple[float, float | None]] | None


class Standstill:
    """Fed with moments; knows since when nothing has moved."""

    def __init__(self, after_s: float) -> None:
        self._after_s = after_s
        self._since: Moment | None = None
        self._last: Moment | None = None
        self.told = False

    def take(self, moment: Moment) -> bool:
        """Whether the job has just been found to stand, which is said once until it moves again."""
        before, self._last = self._last, moment
        if self._since is None or before is None or self._moves(before, moment):
            self._since, self.told = moment, False
            return False
        if self._after_s > 0 and not self.told and moment.at - self._since.at >= self._after_s:
            self.told = True
            return True
        return False

    def stands_s(self) -> float:
        """For how long nothing has moved."""
        return self._last.at - self._since.at if self._last is not None and self._since is not None else 0.0

    def _moves(self, before: Moment, now: Moment) -> bool:
        seconds = max(now.at - before.at, 0.1)
        if now.output != before.output:
            return True
        if (
            now.moved is not None
            and before.moved is not None
            and (now.moved - before.moved) / seconds > _MOVED_A_SECOND
        ):
            return True
        busy = (now.cpu_s - before.cpu_s) / seconds > _IDLE_CPU
        if now.gpus:  # with GPUs at hand the CPU tells nothing: whoever waits for them may spin
            return any(not _waits(gpu) for gpu in now.gpus)
        return busy


def _waits(gpu: tuple[float, float | None]) -> bool:
    busy, power = gpu
    return busy <= _GPU_IDLE_PCT or (busy >= _SPINS_PCT and power is not None and power < _SPINS_POWER)
