"""What the tests of `check` share: fake servers by SKU, and check in this process as `gpuclinic check` runs it."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from fakes.library import NoCompilerError
from fakes.server import Server, build_server
from gpuclinic.clinic.checking import CheckAnswer, CheckOptions, check
from gpuclinic.observe.asking import Answer
from gpuclinic.observe.live import LiveHost

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from gpuclinic.model import Finding

_SHOWN = ("GPUCLINIC_NVML", "GPUCLINIC_ROOT", "FAKE_NVML_SCENARIO", "LD_LIBRARY_PATH", "PATH")
_MOST_SLEPT = 0.3
_ROOMY = {"size": 100 << 30, "free": 60 << 30, "available": 55 << 30, "files": 1_000_000, "files_free": 900_000}


class FastHost(LiveHost):
    """A fake server whose time goes on by what was to be waited for, while little of it is slept."""

    ahead = 0.0

    def clock(self) -> float:
        """Now, and what was not slept."""
        return super().clock() + self.ahead

    def wait(self, seconds: float) -> None:
        """Sleeps a bit, so that counters go on."""
        super().wait(min(seconds, _MOST_SLEPT))
        self.ahead += max(0.0, seconds - _MOST_SLEPT)

    def space(self, path: str) -> Answer:
        """Room enough: how full the disk is on which the tests run is no matter of theirs."""
        return Answer(f"space {path}", json.dumps(_ROOMY).encode(), at=self.clock(), seconds=0.001)


class Room:
    """Servers of one session, one for each SKU and count; a server is handed out healed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._servers: dict[tuple[str, int], Server] = {}
        self._clean: set[tuple[str, int]] = set()

    def server(self, sku: str, gpus: int = 8, faults: list[str] | None = None) -> Server:
        """A server of that SKU with these faults and no others; skips the test where the library cannot be built."""
        place = (sku, gpus)
        if place not in self._servers:
            try:
                self._servers[place] = build_server(self.folder / f"{sku}-{gpus}", sku, gpus)
            except NoCompilerError as problem:
                pytest.skip(str(problem))
        elif place not in self._clean:
            self._servers[place].reset()
        self._clean.discard(place)
        if faults:
            self._servers[place].inject(*faults)
        return self._servers[place]


def seen_by(
    server: Server, patch: pytest.MonkeyPatch, host: Callable[[str], LiveHost] = FastHost, **options: Any
) -> CheckAnswer:
    """What `gpuclinic check` answers on this server."""
    for name in _SHOWN:
        patch.setenv(name, server.env[name])
    patch.setenv("PATH", f"{server.bin}{os.pathsep}/usr/local/bin:/usr/bin:/bin")
    asked = host(str(server.root))
    try:
        return check(asked, CheckOptions(**options))
    finally:
        asked.close()


def told(findings: list[Finding], *, info: bool = False) -> list[str]:
    """Findings as one reads them in the message of a failed test."""
    return [
        f"{f.severity} {f.id} {f.subject} gpu={f.gpu} ({f.title})" for f in findings if info or f.severity != "info"
    ]
