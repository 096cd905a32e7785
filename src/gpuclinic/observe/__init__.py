"""The only room that reads the examined machine."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpuclinic.observe.host import Host, Item
    from gpuclinic.observe.places import Places

__all__ = ["Host", "Item", "Places"]

_MODULES = {"Host": "host", "Item": "host", "Places": "places"}


def __getattr__(name: str) -> object:
    """Imported when asked for: a child that samples NVML takes one small module of this room, and lives for months."""
    if name not in _MODULES:
        raise AttributeError(name)
    return getattr(importlib.import_module(f"gpuclinic.observe.{_MODULES[name]}"), name)
