"""A small cache of derived files, safe to delete at any time."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from pathlib import Path

_LARGEST = 64 << 20
_KEEP = 12


def cache_folder() -> Path | None:
    """Our folder under XDG_CACHE_HOME, made if need be; None where none can be had or it is another user's."""
    base = os.environ.get("XDG_CACHE_HOME") or ""
    root = Path(base) if base.startswith("/") else Path(os.path.expanduser("~/.cache"))  # noqa: PTH111 - the Path method raises without a home
    folder = root / "gpuclinic"
    try:
        if not root.parent.is_dir():  # no home: none is made
            return None
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.lstat()
        if (
            not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid()
        ):  # a link, or somebody else could plant a file there
            return None
    except OSError:
        return None
    return folder


def read_cache(name: str) -> bytes | None:
    """The bytes of a cached file, or None."""
    folder = cache_folder()
    if folder is None:
        return None
    try:
        path = folder / name
        if path.stat().st_size > _LARGEST:
            return None
        return path.read_bytes()
    except OSError:
        return None


def write_cache(name: str, data: bytes) -> None:
    """Keeps a file, whole or not at all; drops the oldest beyond a dozen."""
    folder = cache_folder()
    if folder is None:
        return
    with contextlib.suppress(OSError):
        handle, temporary = tempfile.mkstemp(dir=folder)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            Path(temporary).replace(folder / name)
        except OSError:
            Path(temporary).unlink(missing_ok=True)
            raise
        files = sorted((p for p in folder.iterdir() if p.is_file()), key=lambda p: p.stat().st_mtime)
        for old in files[:-_KEEP]:
            old.unlink(missing_ok=True)
