"""A folder of our own for what is unpacked, that is gone when we are, even where hardly a file can be opened."""

from __future__ import annotations

import contextlib
import os
import tempfile
import weakref
from pathlib import Path

from gpuclinic.model import CouldNotError


class PrivateFolder:
    """A new folder that only its owner may enter. CouldNotError: there is no place for one."""

    def __init__(self) -> None:
        try:
            self.name = tempfile.mkdtemp(prefix="gpuclinic-")
        except OSError as problem:
            raise CouldNotError(
                f"no folder to unpack to ({problem.strerror or problem}); set TMPDIR to one that can be written to"
            ) from None
        self._end = weakref.finalize(self, _remove, self.name)

    def cleanup(self) -> None:
        """Removes it and all that is in it."""
        self._end()


def _remove(folder: str) -> None:
    """Removes a folder one level after the other, with one open descriptor at a time. Links are removed, not followed."""
    folders = [folder]
    for one in folders:
        with contextlib.suppress(OSError), os.scandir(one) as entries:
            for entry in list(entries):
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                else:
                    Path(entry.path).unlink()
    for one in reversed(folders):
        with contextlib.suppress(OSError):
            Path(one).rmdir()
