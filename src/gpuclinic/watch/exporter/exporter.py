"""The exporter in the agent: takes each tick in microseconds; /metrics, textfile and OpenTelemetry are served by threads from memory."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from gpuclinic.model import UserError
from gpuclinic.store import whole_file
from gpuclinic.watch.exporter.assignments import Asker
from gpuclinic.watch.exporter.dcgm import dcgm_families
from gpuclinic.watch.exporter.exposition import (
    OPENMETRICS,
    TEXT,
    Family,
    Sample,
    in_openmetrics,
    in_text,
    labels,
    wants_openmetrics,
)
from gpuclinic.watch.exporter.families import own_families
from gpuclinic.watch.exporter.server import Server, is_loopback
from gpuclinic.watch.exporter.snapshot import snapshot

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuclinic.model import Tick
    from gpuclinic.watch.config import Exporting
    from gpuclinic.watch.exporter.assignments import Assignments
    from gpuclinic.watch.exporter.pushing import Pushing
    from gpuclinic.watch.exporter.snapshot import Snapshot
    from gpuclinic.watch.state import State

TEXTFILE_EVERY_S = 15.0


class Exporter:
    """config: as the agent's file says. say: told of what does not work, one line each, once. boot: id of this boot.

    What cannot be started (an address in use, a certificate that is none) is said, and the rest goes on: sampling must not depend on it.
    """

    def __init__(self, config: Exporting, say: Callable[[str], None], boot: str = "") -> None:
        self._config, self._say = config, say
        self._hostname = os.uname().nodename
        self._shot: Snapshot | None = None
        self._lock = threading.Lock()
        self._cached: tuple[float, bool, tuple[str, bytes]] | None = None
        self._textfile_at = float("-inf")
        self._troubles: set[str] = set()
        self._render_s = 0.0
        self._asker = Asker(config.job_mapping_dir, config.pod_resources, self._once)
        self.server: Server | None = None
        self._pushing: Pushing | None = None
        if config.listen:
            self._started(self._listen)
        if config.otlp:
            self._started(lambda: self._push(boot))

    def _started(self, start: Callable[[], None]) -> None:
        try:
            start()
        except UserError as problem:
            self._say(str(problem))

    def _listen(self) -> None:
        config = self._config
        self.server = Server(config, self.page, self._once)
        if not is_loopback(config.listen) and not (config.token_file or config.client_ca_file):
            self._say(
                f"exporter.listen = {config.listen!r}: whoever reaches this address may read it; set token_file, or client_ca_file with TLS"
            )

    def _push(self, boot: str) -> None:
        from gpuclinic.watch.exporter.pushing import Pushing

        self._pushing = Pushing(self._config.otlp, self._config.otlp_every_s, self._newest, self._say, boot)

    def take(self, tick: Tick, state: State) -> None:
        """A tick, after the agent has done with it."""
        self._shot = snapshot(tick, state)
        if self._pushing is not None:
            self._pushing.take(tick, state.alerts)
        if self._config.textfile and tick.mono - self._textfile_at >= TEXTFILE_EVERY_S:
            self._textfile_at = tick.mono
            self._write_textfile()

    def close(self) -> None:
        """Ends the threads; a textfile is taken away, for nobody keeps it true any more."""
        if self.server is not None:
            self.server.close()
        if self._pushing is not None:
            self._pushing.close()
        self._asker.close()
        if self._config.textfile:
            try:
                Path(self._config.textfile).unlink(missing_ok=True)
            except OSError as problem:
                self._say(f"exporter.textfile: {problem}")

    def page(self, accept: str = "") -> tuple[str, bytes]:
        """Type and body of /metrics; made once for a tick and format, however many ask."""
        modern = wants_openmetrics(accept)
        with self._lock:
            shot = self._shot
            stamp = shot.tick.mono if shot is not None else 0.0
            if self._cached is not None and self._cached[:2] == (stamp, modern) and time.monotonic() - stamp < 1.0:
                return self._cached[2]
            began = time.monotonic()
            made = self.families(shot, self._asker.newest())
            page = (OPENMETRICS, in_openmetrics(made).encode()) if modern else (TEXT, in_text(made).encode())
            self._render_s = time.monotonic() - began
            self._cached = (stamp, modern, page)
            return page

    def families(self, shot: Snapshot | None, given: Assignments) -> list[Family]:
        """Everything that is exported of a snapshot."""
        made = [] if shot is None else own_families(shot, given)
        if shot is not None and self._config.dcgm_names:
            made += dcgm_families(shot, given, self._hostname, self._config.hostname_label)
        return [*made, *self._own()]

    def _own(self) -> list[Family]:
        up = Family(
            "gpuclinic_agent_up",
            "gauge",
            "1: the agent runs; other metrics come with its first sample",
            [Sample(labels(), 1)],
        )
        render = Family(
            "gpuclinic_page_duration_seconds",
            "gauge",
            "how long the page before took to make",
            [Sample(labels(), self._render_s)],
        )
        made = [up, render]
        if self.server is not None:
            samples = [Sample(labels(("code", code)), count) for code, count in sorted(self.server.scrapes.items())]
            made.append(
                Family("gpuclinic_page_requests_total", "counter", "answers of the exporter, by HTTP status", samples)
            )
        if self._pushing is not None:
            for name, value in (
                ("sent", self._pushing.sent),
                ("failed", self._pushing.failed),
                ("records_dropped", self._pushing.dropped),
            ):
                made.append(
                    Family(
                        f"gpuclinic_otlp_{name}_total",
                        "counter",
                        f"OpenTelemetry requests: {name}",
                        [Sample(labels(), value)],
                    )
                )
        return made

    def _newest(self) -> tuple[Snapshot, Assignments] | None:
        return (self._shot, self._asker.newest()) if self._shot is not None else None

    def _write_textfile(self) -> None:
        """node_exporter reads the folder at any moment: the file is there whole or not at all."""
        path = Path(self._config.textfile)
        try:
            data = in_text(self.families(self._shot, self._asker.newest())).encode()
            with whole_file(path, 0o644) as file:
                file.write(data)
        except OSError as problem:
            self._once(f"exporter.textfile: {path}: {problem.strerror or problem}")

    def _once(self, text: str) -> None:
        if text not in self._troubles and len(self._troubles) < 100:
            self._troubles.add(text)
            self._say(text)
