"""A whole fake GPU server: the NVML, a root tree and commands, all telling the same story."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from .library import build_library
from .scenario import Scenario, Value, healthy
from .skus import Sku, load_skus


@dataclass
class Server:
    """One fake server; ``scenario`` is what it says, ``set`` changes it while somebody looks."""

    folder: Path
    sku: Sku
    gpus: int
    library: Path
    scenario: Scenario = field(repr=False)
    addresses: list[str] = field(default_factory=list)

    @property
    def root(self) -> Path:
        """The examined machine's root folder."""
        return self.folder / "root"

    @property
    def bin(self) -> Path:
        """The folder of its commands."""
        return self.folder / "bin"

    @property
    def scenario_file(self) -> Path:
        """The file that the library and the commands read."""
        return self.folder / "scenario"

    @property
    def env(self) -> dict[str, str]:
        """The environment for a program that shall see this server."""
        return {
            **os.environ, "GPUCLINIC_NVML": str(self.library), "GPUCLINIC_ROOT": str(self.root),
            "FAKE_NVML_SCENARIO": str(self.scenario_file), "PATH": f"{self.bin}:{os.environ.get('PATH', '/usr/bin:/bin')}",
            "LD_LIBRARY_PATH": f"{self.library.parent}:{os.environ.get('LD_LIBRARY_PATH', '')}".rstrip(":"),
        }  # fmt: skip

    def set(self, values: Mapping[str, Value]) -> None:
        """Changes scenario keys ("3.temp", "count") and writes the file."""
        for key, value in values.items():
            self.scenario[key] = str(value)
        self.scenario.write(self.scenario_file)


def build_server(
    folder: Path, sku: str, gpus: int = 8, faults: Mapping[str, str] | None = None, *, driver: str = "580.105.08"
) -> Server:
    """Builds the server under ``folder``. Raises NoCompilerError where the library cannot be built."""
    found = load_skus()[sku]
    folder.mkdir(parents=True, exist_ok=True)
    addresses = [f"0000:{0x18 + index * 0x10:02x}:00.0" for index in range(gpus)]
    scenario = healthy(found, gpus, addresses, driver)
    server = Server(folder, found, gpus, build_library(), scenario, addresses)
    server.root.mkdir(exist_ok=True)
    server.bin.mkdir(exist_ok=True)
    server.set(faults or {})
    return server
