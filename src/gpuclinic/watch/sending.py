"""Sends alerts: collected for a moment, once each, again where that was asked for; tried again later where it failed. Never waits for a network."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING

import msgspec

from gpuclinic.model import SEVERITIES, CouldNotError
from gpuclinic.store import whole_file
from gpuclinic.watch.alerts import Alert, Silence, read_silences
from gpuclinic.watch.channels import ChannelError, Message, deliver, label_of, message_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from gpuclinic.watch.config import Alerts, Channel

FILE = "outbox.json"
_MOST = 500
"""So many messages wait for a channel that does not take them; the oldest are dropped, and that is said."""
_BACK_OFF_S = (5.0, 15.0, 60.0, 300.0, 900.0)
_RESEND_S = 60.0
_TOLD_OVER_FOR_S = 900.0
"""Alertmanager is told of what is over for so long."""
_LARGEST = 16 << 20
_OLDEST_S = 86400.0


class _Announced(msgspec.Struct):
    severity: str
    at: float


class _Box(msgspec.Struct):
    """What one channel has been told, and what waits for it."""

    announced: dict[str, _Announced] = {}
    waiting: list[Message] = []


class Sender:
    """Feeds the channels. take() is called with every tick, and only puts into boxes; a thread for each channel sends.

    say: told of what did not go out (one line, no secrets), once until it goes again. start: False sends nothing by itself (tests).
    """

    def __init__(
        self, config: Alerts, folder: Path | None, host: str, say: Callable[[str], None], *, start: bool = True
    ) -> None:
        self._config = config
        self._folder = folder
        self._path = folder / FILE if folder is not None else None
        self._host = host
        self._say = say
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._wake = threading.Condition(self._lock)
        self._ended = False
        self._changed = False
        self._silences: list[Silence] = []
        self._silences_at = float("-inf")
        self._resent: dict[int, float] = {}
        self._boxes = self._read()
        self._threads = [
            threading.Thread(target=self._work, args=(number,), name=f"gpuclinic-channel-{number}", daemon=True)
            for number in range(len(config.channels))
        ]
        if start:
            for thread in self._threads:
                thread.start()

    def take(self, active: list[Alert], over: list[Alert], now: float) -> None:
        """The alerts that hold, and those that are over: whatever is news for a channel is put into its box."""
        self._read_silences(now)
        with self._wake:
            for number, channel in enumerate(self._config.channels):
                if channel.kind == "alertmanager":
                    self._restate(number, channel, active, over, now)
                else:
                    self._news(number, channel, active, over, now)
            if self._changed:
                self._wake.notify_all()

    def close(self, wait_s: float = 2.0) -> None:
        """Gives what is on its way a moment; the rest waits in the file for the next start."""
        with self._wake:
            self._ended = True
            self._wake.notify_all()
        until = time.monotonic() + wait_s
        for thread in self._threads:
            if thread.is_alive():
                thread.join(max(0.0, until - time.monotonic()))
        self._save()

    def waiting(self) -> int:
        """Messages that have not gone out."""
        with self._lock:
            return sum(len(box.waiting) for box in self._boxes)

    def _news(self, number: int, channel: Channel, active: list[Alert], over: list[Alert], now: float) -> None:
        box = self._boxes[number]
        for alert in active:
            told = box.announced.get(alert.id)
            if not self._goes_to(channel, alert):
                continue
            if told is None:
                if alert.fired_at + self._config.wait_s <= now:
                    self._put(box, alert, "fired", channel, now)
            elif alert.severity != told.severity:
                worse = SEVERITIES.index(alert.severity) > SEVERITIES.index(told.severity)
                self._put(box, alert, "worsened" if worse else "eased", channel, now)
            elif self._config.repeat_s and now - told.at >= self._config.repeat_s:
                self._put(box, alert, "repeated", channel, now)
        holding = {alert.id for alert in active}
        for identity in [i for i in box.announced if i not in holding]:
            gone = next((a for a in reversed(over) if a.id == identity), None)
            if gone is not None:
                self._put(box, gone, "resolved", channel, now)
            box.announced.pop(identity, None)
            self._changed = True

    def _restate(self, number: int, channel: Channel, active: list[Alert], over: list[Alert], now: float) -> None:
        """Alertmanager wants the whole state again and again, so nothing is queued: what holds now, and what ended just now."""
        box = self._boxes[number]
        told = [a for a in active if a.fired_at + self._config.wait_s <= now and self._goes_to(channel, a)]
        ended = [
            a
            for a in over
            if a.resolved_at is not None and now - a.resolved_at < _TOLD_OVER_FOR_S and a.id in box.announced
        ]
        stamp = {a.id: _Announced(a.severity, 0.0) for a in (*told, *ended)}
        news = {i: s.severity for i, s in stamp.items()} != {i: s.severity for i, s in box.announced.items()} or any(
            a.resolved_at is not None and box.announced[a.id].at == 0.0 for a in ended
        )
        if not news and now - self._resent.get(number, float("-inf")) < _RESEND_S:
            return
        self._resent[number] = now
        holding = {a.id for a in told}
        for alert in ended:
            stamp[alert.id].at = now
        box.announced = stamp
        box.waiting = [message_of(a, "fired", channel.lang, self._host, now) for a in told] + [
            message_of(a, "resolved", channel.lang, self._host, now) for a in ended if a.id not in holding
        ]
        self._changed = True

    def _goes_to(self, channel: Channel, alert: Alert) -> bool:
        return (
            alert.explained_by is None
            and SEVERITIES.index(alert.severity) >= SEVERITIES.index(channel.least)
            and not any(silence.covers(alert) for silence in self._silences)
        )

    def _put(self, box: _Box, alert: Alert, what: str, channel: Channel, now: float) -> None:
        box.announced[alert.id] = _Announced(alert.severity, now)
        box.waiting.append(message_of(alert, what, channel.lang, self._host, now))
        if len(box.waiting) > _MOST:
            del box.waiting[0]
            self._say(f"{label_of(channel)}: more than {_MOST} messages wait; the oldest was dropped")
        self._changed = True

    def _read_silences(self, now: float) -> None:
        if self._folder is None or now - self._silences_at < 5.0:
            self._silences = [s for s in self._silences if s.until > now]
            return
        self._silences_at = now
        with contextlib.suppress(CouldNotError):  # the command that writes them says what is wrong with the file
            self._silences = read_silences(self._folder, now)

    def _work(self, number: int) -> None:
        channel, box = self._config.channels[number], self._boxes[number]
        failed = 0
        while True:
            with self._wake:
                while not self._ended and not box.waiting:
                    self._wake.wait()
                if self._ended and (failed or not box.waiting):
                    return
                batch = box.waiting[:20] if channel.kind != "alertmanager" else list(box.waiting)
            self._save()
            failed = self._try(channel, box, batch, failed)
            if failed:
                with self._wake:
                    if not self._ended:
                        self._wake.wait_for(lambda: self._ended, _BACK_OFF_S[min(failed, len(_BACK_OFF_S)) - 1])

    def _try(self, channel: Channel, box: _Box, batch: list[Message], failed: int) -> int:
        """Sends a batch; how often in a row it has failed since."""
        try:
            deliver(channel, batch)
        except ChannelError as problem:
            old = time.time() - batch[0].at > _OLDEST_S
            if problem.last or old:
                self._say(f"{label_of(channel)}: {problem}; {len(batch)} messages dropped")
                self._take_out(box, batch)
                return 0
            if not failed:
                self._say(f"{label_of(channel)}: {problem}; tried again later")
            return failed + 1
        if failed:
            self._say(f"{label_of(channel)}: takes messages again")
        self._take_out(box, batch)
        return 0

    def _take_out(self, box: _Box, batch: list[Message]) -> None:
        gone = {id(message) for message in batch}
        with self._lock:
            box.waiting[:] = [message for message in box.waiting if id(message) not in gone]
            self._changed = True
        self._save()

    def _read(self) -> list[_Box]:
        """What waited when the agent ended; where the channels are others now, or the file is torn, nothing."""
        empty = [_Box() for _ in self._config.channels]
        if self._path is None:
            return empty
        try:
            with self._path.open("rb") as file:
                kept = msgspec.json.decode(file.read(_LARGEST), type=dict[str, _Box])
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            return empty
        return [kept.get(_name(number, channel)) or _Box() for number, channel in enumerate(self._config.channels)]

    def _save(self) -> None:
        """Writes what waits; the lock is not held meanwhile, since a disk may take its time and take() must not wait for it."""
        if self._path is None:
            return
        with self._writing:
            with self._lock:
                if not self._changed:
                    return
                self._changed = False
                named = {_name(n, channel): self._boxes[n] for n, channel in enumerate(self._config.channels)}
                data = msgspec.json.encode(named)
            with contextlib.suppress(OSError), whole_file(self._path) as file:  # a full disk: they wait in memory
                file.write(data)


def _name(number: int, channel: Channel) -> str:
    return f"{number} {label_of(channel)}"
