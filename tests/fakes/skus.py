"""The SKUs of skus.toml as objects."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

try:
    import tomllib
except ImportError:  # Python 3.10
    import tomli as tomllib  # type: ignore[no-redef]


@dataclass(frozen=True)
class Sku:
    """One row of skus.toml; sizes in MiB, power in W, clocks in MHz, temperatures in degrees Celsius."""

    key: str
    name: str
    form: str
    device: int
    subsystem: int
    compute_capability: str
    architecture: int
    brand: int
    memory: dict[str, int]
    power: dict[str, float]
    clocks: dict[str, int]
    temperature: dict[str, Any]
    pcie: dict[str, int]
    ecc: dict[str, Any]
    fans: int
    mig_max: int
    gsp: bool
    source: str
    nvlink: dict[str, Any] | None = None
    note: str = ""

    @property
    def fabric(self) -> bool:
        """Whether the GPUs hang on NVSwitches that report a fabric state (from Hopper on)."""
        return bool(self.nvlink and self.architecture >= 9 and self.form in ("sxm", "superchip"))

    @property
    def fabric_manager(self) -> bool:
        """Whether the server runs nvidia-fabricmanager: NVSwitches stand on its own board."""
        return bool(self.nvlink and self.nvlink["nvswitches"])

    @property
    def is_display(self) -> bool:
        """Whether the function on the bus is a VGA controller rather than a 3D controller."""
        return self.form in ("ws", "geforce")

    @property
    def remaps_rows(self) -> bool:
        """Row remapping (from Ampere on) rather than page retirement."""
        return self.ecc["kind"] in ("row_remapping", "off") and self.ecc.get("histogram_max") is not None

    @property
    def open_module(self) -> bool:
        """Whether a current driver uses the open kernel module for it (Turing and newer)."""
        return self.architecture >= 6


@functools.cache
def load_skus() -> dict[str, Sku]:
    """All SKUs by key."""
    data = tomllib.loads((Path(__file__).parent / "skus.toml").read_text(encoding="utf-8"))
    return {key: Sku(key=key, **row) for key, row in data.items()}
