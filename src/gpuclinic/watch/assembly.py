"""Puts the agent's parts together: history, rules, alerts and their channels, exporter."""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING

from gpuclinic.model import CouldNotError
from gpuclinic.store import state_folder
from gpuclinic.watch.agent import Parts
from gpuclinic.watch.exporter.exporter import Exporter
from gpuclinic.watch.history_view import open_history
from gpuclinic.watch.rules import Rules
from gpuclinic.watch.sending import Sender
from gpuclinic.watch.usual import Usual

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from gpuclinic.model import Tick
    from gpuclinic.store.history import History, Past
    from gpuclinic.watch.alerts import Alert, Change
    from gpuclinic.watch.config import Config
    from gpuclinic.watch.state import State


class Assembly:
    """The parts of one configuration. say: told of what does not work, one line each. boot: id of this boot."""

    def __init__(self, config: Config, say: Callable[[str], None], boot: str) -> None:
        self._config = config
        self._history: History | None = None
        self._serials: dict[str, str] = {}
        self.folder = _kept_in(config, say)
        self._usual = Usual(lambda: open_history(config.store, read_only=True)) if self.folder is not None else None
        host = os.uname().nodename
        self.rules = Rules(
            config.rules, self.folder, usual=self._usual, repeated=self._repeated, host=host,
            interval_s=config.sampling.interval_s, boot_id=boot or None,
        )  # fmt: skip
        self._sender = Sender(config.alerts, self.folder, host, say)
        self._exporter = Exporter(config.exporter, say, boot)

    def parts(self) -> Parts:
        """What the agent calls."""
        return Parts(
            history=self._open if self.folder is not None else None,
            rules=self,
            alerts=self.rules.active,
            told=self._told,
            close=self.close,
        )

    def take(self, tick: Tick) -> list[Change]:
        """Judges a tick; findings that begin or end are kept beside the numbers."""
        for fact in tick.facts:
            if fact.kind == "gpu" and isinstance(serial := fact.fields.get("serial"), str):
                self._serials[fact.key] = serial
        changes = self.rules.take(tick)
        for change in changes:
            if self._history is not None and change.what in ("fired", "worsened", "resolved"):
                self._keep(self._history, change)
        return changes

    def close(self) -> None:
        """Ends threads, writes what was not yet."""
        if self._usual is not None:
            self._usual.close()
        self._exporter.close()
        self._sender.close()
        if self.rules.book.active or self.rules.book.over:
            self.rules.close(time.time())
        self._history = None

    def _open(self) -> History:
        self._history = open_history(self._config.store)
        return self._history

    def _keep(self, history: History, change: Change) -> None:
        alert: Alert = change.alert
        gpu = alert.finding.gpu
        serial = alert.serial or (self._serials.get(gpu) if gpu else None)
        with contextlib.suppress(CouldNotError):  # what is wrong with the history is said where ticks are written
            history.add_finding(alert.finding, alert.fired_at, serial=serial, slot=gpu, ended=alert.resolved_at)

    def _told(self, tick: Tick, state: State) -> None:
        self._sender.take(self.rules.active(), self.rules.book.over, tick.at)
        state.unsent = self._sender.waiting()
        self._exporter.take(tick, state)

    def _repeated(self, serial: str | None, slot: str | None, code: int, days: float) -> Past | None:
        if self._history is None:
            return None
        try:
            return self._history.repeated(serial, slot, code, days)
        except CouldNotError:
            return None


def _kept_in(config: Config, say: Callable[[str], None]) -> Path | None:
    """The folder of history and alerts; without one the agent samples, judges and tells all the same."""
    try:
        return state_folder(config.store.folder or None)
    except CouldNotError as problem:
        say(f"nothing is kept: {problem}")
        return None
