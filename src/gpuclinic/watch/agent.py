"""The agent's loop: sample, keep, judge, tell; whatever one part of it cannot do is said once, and sampling goes on."""

from __future__ import annotations

import contextlib
import gc
import sqlite3
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from gpuclinic import __version__
from gpuclinic.model import CouldNotError, Event, UserError
from gpuclinic.observe.kernel_follow import Position, boot_id
from gpuclinic.watch._own_cost import cost
from gpuclinic.watch._service import Lock, Signals, Systemd
from gpuclinic.watch.config import load_config
from gpuclinic.watch.sampling import Sampler
from gpuclinic.watch.state import State, known_gpus, read_state

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from gpuclinic.model import Tick
    from gpuclinic.watch.config import Config

STATE_EVERY_S = 5.0
_COST_EVERY_S = 60.0
_AGAIN_S = 60.0
_CLOCK_SET_S = 2.0
_SLOW_SAID_S = 60.0
_MOST_UNKEPT = 2000
"""Events that wait for a history that takes nothing now."""

_SHARE_SLOW = 1.0
"""A sample that takes longer than this share of the interval is told as slow."""


class Keeps(Protocol):
    """The history, as the agent uses it (docs/watch.md). notes: what it has to tell; who tells it takes it out."""

    notes: list[str]

    def append(self, tick: Tick) -> None:
        """Keeps a tick."""

    def flush(self) -> None:
        """Brings what was kept to the disk."""

    def close(self) -> None:
        """Ends."""


class Judges(Protocol):
    """The rules, as the agent uses them: takes a tick, returns what has changed of the alerts."""

    def take(self, tick: Tick) -> list[Any]:
        """Judges a tick."""


@dataclass
class Parts:
    """What the agent hands its ticks to; what is not there is left out.

    history: opens the store, and may fail. rules: makes what judges. alerts: those that hold now, for the state.
    told: called with every tick after all else (the exporter). close: ends what the others do not.
    """

    history: Callable[[], Keeps] | None = None
    rules: Judges | None = None
    alerts: Callable[[], list[Any]] | None = None
    told: Callable[[Tick, State], None] | None = None
    close: Callable[[], None] | None = None


class Agent:
    """One agent. config: as load_config gives it, with the file. folder: of state.json and the lock. build: makes the parts.

    Raises CouldNotError where another agent runs.
    """

    def __init__(
        self, config: Config, path: Path | None, folder: Path, build: Callable[[Config, str], Parts], root: str = "", *,
        say: Callable[[str], None] | None = None,
    ) -> None:  # fmt: skip
        self._config, self._path, self._folder, self._build, self._root = config, path, folder, build, root
        self._lock = Lock(folder)
        self._say_to = say or to_stderr
        self._said: set[str] = set()
        self._events: list[Event] = []
        self._unkept: list[Event] = []
        self._systemd = Systemd()
        earlier = _earlier(folder)
        self._sampler = Sampler(
            config.sampling, root, since=_position(earlier), eager=True, gpus=known_gpus(earlier, boot_id(root))
        )
        boot = self._sampler.position.boot
        self.state = State(config.sampling.expect_gpus, earlier, boot)
        self._parts = build(config, boot)
        self._history: Keeps | None = None
        self._history_at = 0.0
        self._offset = time.time() - time.monotonic()
        self._state_at = self._cost_at = self._slow_at = -1e9
        self._cost_before: tuple[float, float] | None = None
        if earlier is None or earlier.get("boot_id") != boot:
            self._event("boot", f"the machine was started {_ago(_booted(root))} before the agent", at=_booted(root))
        self._event("agent", f"gpuclinic agent {__version__} started")
        gc.collect()
        gc.freeze()  # what is loaded stays; children share it

    def run(self, signals: Signals) -> None:
        """Runs until it is told to end."""
        interval = self._config.sampling.interval_s
        due = time.monotonic()
        self._systemd.ready("sampling")
        try:
            while not signals.ends:
                self.step()
                self._systemd.alive()
                if signals.reload:
                    signals.reload = False
                    self.reload()
                    interval = self._config.sampling.interval_s
                due += interval
                moment = time.monotonic()
                if due < moment:
                    missed = int((moment - due) / interval) + 1
                    self.state.missed += missed
                    due += missed * interval
                if self._sampler.wait(due, signals.fileno()):
                    signals.heard()
        finally:
            self._systemd.tell("STOPPING=1")
            self.close()

    def step(self) -> Tick:
        """One sample, handed to all parts."""
        tick = self._sampler.tick()
        self._clock(tick)
        self._slow(tick)
        tick.events = [*self._events, *tick.events]
        self._events = []
        self.state.take(tick)
        self.state.log = self._sampler.position
        self._keep(tick)
        if self._parts.rules is not None:
            self._parts.rules.take(tick)
        if self._parts.alerts is not None:
            self.state.alerts = self._parts.alerts()
        if self._parts.told is not None:
            self._parts.told(tick, self.state)
        self._own(tick)
        if tick.mono - self._state_at >= STATE_EVERY_S:
            self._state_at = tick.mono
            self._write_state()
        return tick

    def reload(self) -> None:
        """Reads the configuration again; one with a mistake changes nothing."""
        self._systemd.reloading()
        try:
            config, path = load_config(str(self._path) if self._path is not None else None)
        except UserError as problem:
            self._event("agent", f"the configuration was not taken: {problem}", say=True)
            self._systemd.ready("sampling, with the configuration of before")
            return
        old, self._config, self._path = self._config, config, path
        interval = msgspec.structs.replace(old.sampling, interval_s=config.sampling.interval_s)
        if interval != config.sampling:
            since = self._sampler.position
            self._sampler.close()
            known = known_gpus(self.state.document(), self.state.boot)
            self._sampler = Sampler(config.sampling, self._root, since=since, eager=True, gpus=known)
        if config != old:
            self._close_parts()
            self._parts = self._build(config, self.state.boot)
            self._history_at = 0.0
        self._event("agent", "the configuration was read again", say=True)
        self._systemd.ready("sampling")

    def close(self) -> None:
        """Ends everything in order; what was sampled is kept."""
        self._sampler.close()
        self._event("agent", "gpuclinic agent stopped")
        if self._history is not None and self.state.tick is not None:
            last = msgspec.structs.replace(
                self.state.tick, at=time.time(), mono=time.monotonic(), facts=[], events=self._events, gaps=[]
            )
            with self._guarded("the history"):
                self._history.append(last)
        self._write_state()
        self._close_parts()
        self._lock.release()

    def _close_parts(self) -> None:
        history, self._history = self._history, None
        if history is not None:
            with self._guarded("the history"):
                history.close()
        if self._parts.close is not None:
            self._parts.close()

    # ---- what is told

    def _event(self, kind: str, text: str, *, at: float | None = None, say: bool = False, **fields: Any) -> None:
        self._events.append(Event(time.time() if at is None else at, kind, "", text[:500], fields))
        if say:
            self._say_to(text)

    def _say_once(self, text: str) -> None:
        """A trouble of ours: said once until it is over."""
        if text not in self._said:
            self._said.add(text)
            self._event("agent", text, say=True)
            self.state.problems = sorted(self._said)

    def _over(self, begin: str) -> None:
        """A trouble is over; the next one is said again."""
        gone = {text for text in self._said if text.startswith(begin)}
        if gone:
            self._said -= gone
            self.state.problems = sorted(self._said)
            self._event("agent", f"{begin}: works again", say=True)

    @contextlib.contextmanager
    def _guarded(self, what: str) -> Any:
        """Trouble of a part costs only that part."""
        try:
            yield
        except (OSError, UserError, sqlite3.Error) as problem:
            reason = getattr(problem, "strerror", None) or str(problem) or type(problem).__name__
            self._say_once(f"{what}: {reason}; sampling goes on")
        else:
            self._over(what)

    def _keep(self, tick: Tick) -> None:
        if self._history is None and self._parts.history is not None and tick.mono >= self._history_at:
            self._history_at = tick.mono + _AGAIN_S
            with self._guarded("the history"):
                self._history = self._parts.history()
        kept = msgspec.structs.replace(tick, events=[*self._unkept, *tick.events]) if self._unkept else tick
        self._unkept = kept.events[-_MOST_UNKEPT:] if self._parts.history is not None else []
        if self._history is not None:
            with self._guarded("the history"):
                self._history.append(kept)
                self._unkept = []
            self._tell_notes(self._history)

    def _tell_notes(self, history: Keeps) -> None:
        """What the history has to say: files set aside, samples removed for want of room."""
        for note in history.notes:
            self._event("agent", f"the history: {note}", say=True)
        history.notes.clear()

    def _write_state(self) -> None:
        with self._guarded("state.json"):
            self.state.write(self._folder)

    def _clock(self, tick: Tick) -> None:
        offset = tick.at - tick.mono
        moved = offset - self._offset
        self._offset = offset
        if abs(moved) > _CLOCK_SET_S:
            self._event("agent", f"the clock was set by {moved:+.1f} s", clock_moved_s=round(moved, 1), say=True)

    def _slow(self, tick: Tick) -> None:
        if self.state.ticks == 0 or tick.took_s <= self._config.sampling.interval_s * _SHARE_SLOW:
            return  # the first one starts NVML
        self.state.slow_ticks += 1
        if tick.mono - self._slow_at > _SLOW_SAID_S:
            self._slow_at = tick.mono
            self._event("agent", f"sampling slow: a sample took {tick.took_s:.2f} s", took_s=tick.took_s, slow=True)

    def _own(self, tick: Tick) -> None:
        """What we cost, once a minute; the share is that of the last minute."""
        if tick.mono - self._cost_at < _COST_EVERY_S:
            return
        self._cost_at = tick.mono
        spent = cost()
        before, self._cost_before = self._cost_before, (tick.mono, spent.cpu_s)
        share = None
        if before is not None and tick.mono > before[0]:
            share = round(100 * max(0.0, spent.cpu_s - before[1]) / (tick.mono - before[0]), 3)
        self.state.own = {
            "cpu_s": spent.cpu_s, "cpu_pct": share, "pss_mib": spent.pss_mib, "processes": spent.processes,
            "kernel_log": self._sampler.log_source,
        }  # fmt: skip


def to_stderr(text: str) -> None:
    """One line for whoever reads the service's log."""
    with contextlib.suppress(OSError):
        sys.stderr.write(f"gpuclinic agent: {text}\n")
        sys.stderr.flush()


def _earlier(folder: Path) -> dict[str, Any] | None:
    try:
        return read_state(folder)
    except CouldNotError:
        return None  # none yet, or one that cannot be read: what it knew is lost, nothing else


def _position(earlier: dict[str, Any] | None) -> Position | None:
    """How far the last agent had read the kernel's log."""
    told = (earlier or {}).get("kernel_log")
    if not isinstance(told, dict):
        return None
    boot, sequence, cursor = told.get("boot"), told.get("sequence"), told.get("cursor")
    if not isinstance(boot, str) or not isinstance(sequence, int) or not isinstance(cursor, str):
        return None
    return Position(boot[:64], max(0, sequence), cursor[:400])


def _booted(root: str) -> float:
    """Unix time of the machine's start."""
    with contextlib.suppress(OSError, ValueError), open(f"{root}/proc/uptime", encoding="ascii") as file:  # noqa: PTH123
        return time.time() - float(file.read(64).split()[0])
    return time.time()


def _ago(at: float) -> str:
    seconds = max(0.0, time.time() - at)
    return (
        f"{seconds:.0f} s"
        if seconds < 120
        else f"{seconds / 60:.0f} min"
        if seconds < 7200
        else f"{seconds / 3600:.1f} h"
    )
