"""All checks, in the order in which they are taken."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuclinic.audit.hits import Hit
    from gpuclinic.audit.scene import Scene

MODULES = (
    "mining",
    "miner_files",
    "gpu_load",
    "hiding",
    "libraries",
    "schedules",
    "units",
    "shells",
    "ssh_keys",
    "privileges",
    "sshd",
    "accounts",
    "jupyter",
    "services",
    "containers",
    "updates",
    "carriers",
)


def all_checks() -> list[tuple[str, Callable[[Scene], list[Hit]]]]:
    """(id, function); one id may stand for several functions."""
    return [pair for name in MODULES for pair in importlib.import_module(f"gpuclinic.audit.{name}").CHECKS]
