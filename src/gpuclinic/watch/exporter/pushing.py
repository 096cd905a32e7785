"""Sends metrics and logs to an OpenTelemetry collector, from a thread of its own: with a deadline, again with growing pauses, bounded."""

from __future__ import annotations

import collections
import gzip
import http.client
import random
import threading
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from gpuclinic import __version__
from gpuclinic.model import UserError
from gpuclinic.watch.exporter.otlp import logs_request, metrics_request, of_alert, of_event

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuclinic.model import Tick
    from gpuclinic.watch.alerts import Alert
    from gpuclinic.watch.exporter.assignments import Assignments
    from gpuclinic.watch.exporter.snapshot import Snapshot

DEADLINE_S = 10.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 2.0, 120.0
_MOST_RECORDS, _AT_ONCE = 5000, 500
_AGAIN = frozenset((429, 502, 503, 504))
"""Answers after which the same may be sent again (OTLP specification, failures)."""


class Pushing:
    """url: of the collector ("http://host:4318"); /v1/metrics and /v1/logs are added. newest: what is known now.

    Raises UserError for a URL that is none.
    """

    def __init__(
        self, url: str, every_s: float, newest: Callable[[], tuple[Snapshot, Assignments] | None], say: Callable[[str], None], boot: str = "",
    ) -> None:  # fmt: skip
        parts = urlsplit(url)
        try:
            port = parts.port
        except ValueError:
            port = -1
        if parts.scheme not in ("http", "https") or not parts.hostname or port == -1 or parts.username is not None:
            raise UserError(f"exporter.otlp = {url!r} is not http://HOST:PORT or https://HOST:PORT")
        self._tls, self._host, self._port = parts.scheme == "https", parts.hostname, port
        self._base = parts.path.rstrip("/").removesuffix("/v1/metrics")
        self._every_s, self._newest, self._say, self._boot = every_s, newest, say, boot
        self._records: collections.deque[dict[str, Any]] = collections.deque(maxlen=_MOST_RECORDS)
        self._known: dict[str, tuple[Alert, str]] = {}
        self._lock = threading.Lock()
        self._trouble: str | None = None
        self._pause_s = 0.0
        self._ends = threading.Event()
        self.sent = self.failed = self.dropped = 0
        self._thread = threading.Thread(target=self._run, name="gpuclinic-otlp", daemon=True)
        self._thread.start()

    def take(self, tick: Tick, alerts: list[Alert]) -> None:
        """Events of a tick, and findings that began, changed or ended since the tick before."""
        fresh = [of_event(event) for event in tick.events]
        now = {alert.id: alert for alert in alerts}
        for identity, alert in now.items():
            before = self._known.get(identity)
            if before is None:
                fresh.append(of_alert(alert, "fired", tick.at))
            elif before[1] != alert.severity:
                fresh.append(of_alert(alert, "changed", tick.at))
        fresh += [
            of_alert(alert, "resolved", tick.at) for identity, (alert, _) in self._known.items() if identity not in now
        ]
        self._known = {identity: (alert, alert.severity) for identity, alert in now.items()}
        if fresh:
            with self._lock:
                self.dropped += max(0, len(self._records) + len(fresh) - _MOST_RECORDS)
                self._records.extend(fresh)

    def close(self) -> None:
        """Ends within a moment; what waits is tried once more."""
        self._ends.set()
        self._thread.join(DEADLINE_S / 2)

    def _run(self) -> None:
        due = time.monotonic() + min(self._every_s, 1.0)
        while True:
            ends = self._ends.wait(max(0.0, due - time.monotonic()))
            worked = self._round()
            if ends:
                return
            if worked:
                self._pause_s = 0.0
                due = max(due + self._every_s, time.monotonic())
            else:
                self._pause_s = min(LONGEST_PAUSE_S, self._pause_s * 2 or FIRST_PAUSE_S)
                due = time.monotonic() + self._pause_s * random.uniform(0.8, 1.2)  # noqa: S311 - spreads, hides nothing

    def _round(self) -> bool:
        """Everything once. A number that is old is not sent late: the next is as good; logs wait."""
        now = self._newest()
        worked = now is None or self._post("metrics", metrics_request(*now, self._boot))
        while worked and (batch := self._batch()):
            worked = self._post("logs", logs_request(batch, self._boot))
            if not worked:
                with self._lock:
                    self._records.extendleft(reversed(batch))
        return worked

    def _batch(self) -> list[dict[str, Any]]:
        with self._lock:
            return [self._records.popleft() for _ in range(min(_AT_ONCE, len(self._records)))]

    def _post(self, what: str, request: dict[str, Any]) -> bool:
        """Whether it need not be sent again: it was taken, or the collector wants none of it."""
        body = gzip.compress(msgspec.json.encode(request), 1)
        headers = {
            "Content-Type": "application/json",
            "Content-Encoding": "gzip",
            "User-Agent": f"gpuclinic/{__version__}",
        }
        make = http.client.HTTPSConnection if self._tls else http.client.HTTPConnection
        connection = make(self._host, self._port, timeout=DEADLINE_S)
        try:
            connection.request("POST", f"{self._base}/v1/{what}", body, headers)
            answer = connection.getresponse()
            answer.read(1 << 16)
            status = answer.status
        except (OSError, http.client.HTTPException) as problem:
            reason = getattr(problem, "strerror", None) or str(problem) or type(problem).__name__
            return self._failed(f"exporter.otlp: {self._host}: {reason}", again=True)
        finally:
            connection.close()
        if 200 <= status < 300:
            self.sent += 1
            if self._trouble is not None:
                self._trouble = None
                self._say(f"exporter.otlp: {self._host}: takes what is sent again")
            return True
        return self._failed(f"exporter.otlp: {self._host}: HTTP {status} for /v1/{what}", again=status in _AGAIN)

    def _failed(self, text: str, *, again: bool) -> bool:
        self.failed += 1
        if text != self._trouble:
            self._trouble = text
            self._say(text)
        return not again
