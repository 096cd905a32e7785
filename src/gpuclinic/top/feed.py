"""Samples in a thread of its own, and hands on a view a second; the screen never waits for it."""

from __future__ import annotations

import os
import platform
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from gpuclinic.model import SEVERITIES, CouldNotError, Gap
from gpuclinic.store import runtime_state_folder, state_folder
from gpuclinic.top.processes import Processes
from gpuclinic.top.view import CpuShare, View, gpus_of, holders_of, host_of, text_of
from gpuclinic.watch.alerts import FILE as ALERTS
from gpuclinic.watch.alerts import read_book
from gpuclinic.watch.history_view import open_history
from gpuclinic.watch.rules import Rules
from gpuclinic.watch.sampling import Sampler
from gpuclinic.watch.state import FILE as STATE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from gpuclinic.model import Tick
    from gpuclinic.top.view import Gpu
    from gpuclinic.watch.alerts import Alert
    from gpuclinic.watch.config import Config

PAST_S = 3600
"""So much of the past is kept for the graphs, and asked of the agent's history at the beginning."""

_FRESH_S = 20.0
"""The agent writes its state every five seconds; what is older than this was left by one that has ended."""

_JUDGED_S = 1.9
_SETTLE_S = 20.0
_BETWEEN_S = 0.6
_GRAPHED = ("utilization_pct", "memory_used_mib", "temperature_c", "power_w")
_MOST_EVENTS = 50


class Point(NamedTuple):
    """A GPU at a moment, for the graphs. None: not told."""

    at: float
    util: float | None
    memory_pct: float | None
    power_w: float | None
    temperature_c: float | None


class Past:
    """The last hour of every GPU, by its key, oldest first."""

    def __init__(self) -> None:
        self.points: dict[str, deque[Point]] = {}
        self.drawn: dict[str, tuple[object, list[float | None]]] = {}
        """What the painter made of it last, by graph: most seconds it is still that."""

    def take(self, at: float, gpus: list[Gpu]) -> None:
        """One more moment."""
        for gpu in gpus:
            numbers = (None, None, None, None)
            if gpu.trouble is None:
                values = (
                    gpu.number("utilization_pct"),
                    gpu.memory_pct,
                    gpu.number("power_w"),
                    gpu.number("temperature_c"),
                )
                self._of(gpu.key).append(Point(at, *values))
            else:
                self._of(gpu.key).append(Point(at, *numbers))

    def _of(self, key: str) -> deque[Point]:
        return self.points.setdefault(key, deque(maxlen=PAST_S))

    def load(self, config: Config) -> None:
        """What the agent has kept of the last hour. CouldNotError: nothing can be read."""
        with open_history(config.store, read_only=True) as history:
            found = history.newest(PAST_S)
        told: dict[str, dict[int, dict[str, float]]] = {}
        totals: dict[str, float] = {}
        for series, samples in found.items():
            if series.kind == "gpu" and series.field == "memory_total_mib" and samples:
                totals[series.key] = samples[-1][1]
            if series.kind == "gpu" and series.field in _GRAPHED:
                for at, value in samples:
                    told.setdefault(series.key, {}).setdefault(int(at), {})[series.field] = value
        for key, moments in told.items():
            self.points[key] = deque(
                (_point(at, moments[at], totals.get(key)) for at in sorted(moments)), maxlen=PAST_S
            )


def _point(at: int, values: dict[str, float], total: float | None) -> Point:
    used = values.get("memory_used_mib")
    return Point(
        float(at), values.get("utilization_pct"), 100 * used / total if used is not None and total else None, values.get("power_w"),
        values.get("temperature_c"),
    )  # fmt: skip


class _Agent:
    """What an agent of this machine has written: its alerts, as long as it runs."""

    def __init__(self, config: Config) -> None:
        self._kept, self._runs = (
            _folder(lambda: state_folder(config.store.folder or None, make=False)),
            _folder(lambda: runtime_state_folder(make=False)),
        )
        self._stamp = 0
        self._alerts: list[Alert] = []

    def running(self) -> bool:
        """It wrote a moment ago."""
        if self._runs is None:
            return False
        try:
            return abs(time.time() - (self._runs / STATE).stat().st_mtime) < _FRESH_S
        except OSError:
            return False

    def alerts(self) -> list[Alert] | None:
        """Those that hold; None where its file cannot be read."""
        if self._kept is None:
            return None
        try:
            stamp = (self._kept / ALERTS).stat().st_mtime_ns
            if stamp != self._stamp:
                book = read_book(self._kept)
                self._alerts = sorted(
                    book.active.values(), key=lambda a: (-SEVERITIES.index(a.severity), a.fired_at, a.id)
                )
                self._stamp = stamp
        except FileNotFoundError:
            return []
        except (OSError, CouldNotError):
            return None
        return self._alerts


def _folder(ask: Callable[[], Path]) -> Path | None:
    try:
        return ask()
    except CouldNotError:
        return None


class Feed:
    """Makes views. root: where the machine's files are. Everything but `stop` is called by one thread."""

    def __init__(self, config: Config, root: str, interval_s: float) -> None:
        self.past = Past()
        self._config, self._root, self.interval_s = config, root, interval_s
        self._sampler = Sampler(config.sampling, root)
        self._rules = Rules(config.rules, None, host=platform.node(), interval_s=max(interval_s, _JUDGED_S))
        self._judged_at = float("-inf")
        self._agent = _Agent(config)
        self._processes = Processes(root)
        self._share = CpuShare()
        self._events: deque[str] = deque(maxlen=_MOST_EVENTS)
        self._wake, self._waker = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._stop = threading.Event()

    def view(self, tick: Tick | None = None) -> View:
        """One more sample, judged."""
        tick = tick if tick is not None else self._sampler.tick()
        gpus = gpus_of(tick)
        pids = {
            pid
            for fact in tick.facts
            if fact.kind in ("gpu_process", "gpu_holder") and isinstance(pid := fact.fields.get("pid"), int)
        }
        self._events.extend(f"{time.strftime('%H:%M:%S', time.localtime(e.at))} {text_of(e.text)}" for e in tick.events)
        running = self._agent.running()
        alerts = self._agent.alerts() if running else None
        if alerts is None:
            alerts = self._judged(tick)
        host = host_of(tick, self._host_name(tick), self._share)
        self.past.take(tick.at, gpus)
        holders = holders_of(tick, gpus, self._processes.read(pids))
        return View(tick.at, host, gpus, holders, alerts, tick.gaps, list(self._events), running, tick.took_s)

    def _judged(self, tick: Tick) -> list[Alert]:
        """What holds by rules of our own; every other second is enough, but what happens is judged at once."""
        if tick.events or tick.mono - self._judged_at >= _JUDGED_S:
            self._judged_at = tick.mono
            self._rules.take(tick)
        return self._rules.active()

    def _host_name(self, tick: Tick) -> str:
        told = next((fact.fields.get("host") for fact in tick.facts if fact.kind == "kernel" and self._root), None)
        return text_of(told or platform.node())

    def once(self) -> View:
        """A view with everything in it: rates need two readings, and looks at the host their time."""
        first = self._sampler.tick()
        self._sampler.settle(_SETTLE_S)
        self.view(first)
        self._sampler.wait(first.mono + _BETWEEN_S)
        return self.view()

    def run(self, show: Callable[[View], None]) -> None:
        """Views, one each interval, until `stop`. What `show` raises ends it."""
        unread: list[Gap] = []
        try:
            self.past.load(self._config)
        except CouldNotError as problem:
            unread = [Gap("history", str(problem))]
        due = time.monotonic()
        while not self._stop.is_set():
            view = self.view()
            view.gaps = [*view.gaps, *unread]
            if self._stop.is_set():
                return
            show(view)
            due = max(due + self.interval_s, time.monotonic() + 0.1)
            self._sampler.wait(due, self._wake)

    def stop(self) -> None:
        """Ends `run` soon; from any thread."""
        self._stop.set()
        os.write(self._waker, b"s")

    def close(self) -> None:
        """Ends children and lets go of everything."""
        self._sampler.close()
        os.close(self._wake)
        os.close(self._waker)
