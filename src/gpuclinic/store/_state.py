"""Where what must outlive a process lies: the agent's history and state, and what is shared while it runs."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from gpuclinic.model import CouldNotError

_SYSTEM_STATE, _SYSTEM_RUNTIME = "/var/lib/gpuclinic", "/run/gpuclinic"


def state_folder(given: str | None = None, *, make: bool = True) -> Path:
    """The folder of the history: what was given, STATE_DIRECTORY (as systemd sets it), /var/lib/gpuclinic for root, else under XDG_STATE_HOME.

    Raises CouldNotError where it cannot be made, or is another user's.
    """
    root = _SYSTEM_STATE if os.geteuid() == 0 else _of_user("XDG_STATE_HOME", "~/.local/state")
    return _own(Path(given or _first("STATE_DIRECTORY") or root), make=make)


def runtime_state_folder(given: str | None = None, *, make: bool = True) -> Path:
    """The folder of what is shared while the agent runs (RUNTIME_DIRECTORY, /run/gpuclinic, XDG_RUNTIME_DIR), gone with the boot.

    Raises CouldNotError where it cannot be made, or is another user's.
    """
    base = os.environ.get("XDG_RUNTIME_DIR", "")
    if os.geteuid() == 0:
        root = _SYSTEM_RUNTIME
    else:
        root = f"{base}/gpuclinic" if base.startswith("/") else _of_user("XDG_STATE_HOME", "~/.local/state") + "/run"
    return _own(Path(given or _first("RUNTIME_DIRECTORY") or root), make=make)


def _first(name: str) -> str:
    """systemd separates several folders by colons."""
    return os.environ.get(name, "").split(":")[0]


def _of_user(name: str, otherwise: str) -> str:
    base = os.environ.get(name, "")
    return (base if base.startswith("/") else os.path.expanduser(otherwise)) + "/gpuclinic"  # noqa: PTH111 - Path's raises without a home


def _own(folder: Path, *, make: bool) -> Path:
    try:
        if make:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.lstat()
    except OSError as problem:
        raise CouldNotError(f"{folder}: {problem.strerror or problem}") from problem
    if not stat.S_ISDIR(status.st_mode):
        raise CouldNotError(f"{folder} is not a folder")
    if make and status.st_uid not in (os.geteuid(), 0):
        raise CouldNotError(f"{folder} belongs to another user")
    return folder
