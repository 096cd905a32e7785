"""A fake server for tests of what watches: built once for a module, healed for each test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fakes.library import NoCompilerError
from fakes.server import Server, build_server
from gpuclinic.observe.nvml import Deadlines

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SHORT = Deadlines(init=20.0, device=0.4, whole=20.0)
"""A start may take long on a busy machine; a device that hangs is found soon."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Server:
    try:
        return build_server(tmp_path_factory.mktemp("server"), "h100-sxm", 4)
    except NoCompilerError as problem:
        pytest.skip(str(problem))


@pytest.fixture
def server(built: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Server]:
    """The server, healthy, and what the environment must hold for a library that is loaded here."""
    built.reset()
    monkeypatch.setenv("FAKE_NVML_SCENARIO", str(built.scenario_file))
    monkeypatch.setenv("GPUCLINIC_NVML", str(built.library))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return built
