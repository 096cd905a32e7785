"""A fake server for tests of the NVML reader; skips where the fake cannot be built."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

import pytest

from gpuclinic.observe import nvml
from gpuclinic.observe.nvml import Deadlines, ask_nvml

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

library = pytest.importorskip("fakes.library", reason="the fake NVML is not here")
server = pytest.importorskip("fakes.server", reason="the fake server is not here")

SHORT = Deadlines(init=2.0, device=0.6, whole=6.0)
"""Deadlines that a loaded machine keeps and a test can wait for."""


class Asked:
    """A fake server that is asked."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.monkeypatch = monkeypatch
        self.server: Any = None
        self.runtime = folder / "runtime"
        self.runtime.mkdir()

    def build(self, sku: str = "h100-sxm", gpus: int = 4, keys: Mapping[str, str] | None = None) -> Any:
        """Builds the server with scenario keys."""
        try:
            self.server = server.build_server(self.folder / "server", sku, gpus)
        except library.NoCompilerError as problem:
            pytest.skip(str(problem))
        self.server.set(dict(keys or {}))
        for name in ("GPUCLINIC_NVML", "GPUCLINIC_ROOT", "FAKE_NVML_SCENARIO"):
            self.monkeypatch.setenv(name, self.server.env[name])
        return self.server

    def ask(self, deadlines: Deadlines = SHORT, **options: Any) -> dict[str, Any]:
        """NVML's document."""
        return ask_nvml(deadlines, runtime=self.runtime, **options)

    def document(self, sku: str = "h100-sxm", gpus: int = 4, **keys: str) -> dict[str, Any]:
        """Builds and asks; in keys "__" stands for a dot, a leading "g" before a number is dropped."""
        plain = {key.removeprefix("g").replace("__", "."): value for key, value in keys.items()}
        self.build(sku, gpus, plain)
        return self.ask()


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Asked]:
    yield Asked(tmp_path, monkeypatch)
    for child in nvml._unreaped:  # what a test's own way to end a child has left alive
        if child.status is None:
            os.kill(child.pid, signal.SIGKILL)
            os.waitpid(child.pid, 0)
    nvml._unreaped.clear()
