"""The names by which hits, files, units and processes are linked."""

from __future__ import annotations

import posixpath


def pid_ref(pid: int) -> str:
    """A process."""
    return f"pid:{pid}"


def file_ref(path: str) -> str:
    """A file, however it is spelled, whether it still is there or not.

    >>> file_ref("/tmp/./x/../.a/m (deleted)")
    'file:/tmp/.a/m'
    """
    return f"file:{posixpath.normpath(path.removesuffix(' (deleted)'))}"


def unit_ref(name: str) -> str:
    """A systemd unit."""
    return f"unit:{name.rpartition('/')[2]}"
