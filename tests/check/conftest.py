"""One room of fake servers for the session, and a cache and a runtime folder of its own."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from .clinic_room import Room

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def room(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Room]:
    folder = tmp_path_factory.mktemp("servers")
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield Room(folder)
        return
    import tempfile

    with tempfile.TemporaryDirectory(prefix="gpuclinic-servers-", dir=memory) as quick:
        yield Room(Path(quick))


@pytest.fixture(autouse=True)
def own_folders(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    base = tmp_path_factory.getbasetemp() / "own"
    for name in ("XDG_CACHE_HOME", "XDG_RUNTIME_DIR"):
        (base / name).mkdir(parents=True, exist_ok=True, mode=0o700)
        monkeypatch.setenv(name, str(base / name))
