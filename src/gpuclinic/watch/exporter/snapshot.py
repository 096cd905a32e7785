"""What the exporter knows of one tick: taken by the agent's loop in microseconds, read by any thread afterwards."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpuclinic.model import Tick
    from gpuclinic.watch.alerts import Alert
    from gpuclinic.watch.state import Gpus, State


@dataclass(frozen=True)
class Snapshot:
    """One tick with what the agent knows beside it; facts are not changed after a tick, the rest is copied.

    names as in state.State. taken: on the monotonic clock.
    """

    tick: Tick
    gpus: Gpus
    xids: dict[int, int]
    sxids: dict[int, int]
    gpu_xids: dict[str, dict[int, int]]
    last_xids: dict[str, int]
    alerts: list[Alert]
    own: dict[str, Any]
    ticks: int
    slow_ticks: int
    missed: int
    slowest_s: float
    started: float
    problems: int
    taken: float


def snapshot(tick: Tick, state: State) -> Snapshot:
    """Of this tick and what is known now."""
    return Snapshot(
        tick, state.gpus(), dict(state.xids), dict(state.sxids), {gpu: dict(counts) for gpu, counts in state.gpu_xids.items()},
        dict(state.last_xids), list(state.alerts), dict(state.own), state.ticks, state.slow_ticks, state.missed, state.slowest_s,
        state.started, len(state.problems), time.monotonic(),
    )  # fmt: skip
