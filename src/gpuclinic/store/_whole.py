"""Files that are there whole or not at all, for their owner alone."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def whole_file(path: Path, mode: int = 0o600) -> Iterator[BinaryIO]:
    """A file to write to that appears under its name only when all is written; an error, a signal or a power cut leaves no half of it.

    OSError: the folder cannot be written to.
    """
    folder = path.parent
    handle, name = _begun(folder, mode)
    try:
        with os.fdopen(handle, "w+b") as file:
            yield cast("BinaryIO", file)
            file.flush()
            os.fsync(file.fileno())
            if name is None:
                name = _linked(file.fileno(), folder)
        Path(name).replace(path)
        name = None
    finally:
        if name is not None:
            Path(name).unlink(missing_ok=True)


def _begun(folder: Path, mode: int) -> tuple[int, str | None]:
    """An open file without a name, which vanishes with us; with a name of its own where the file system knows no such files."""
    with contextlib.suppress(OSError):
        if not Path("/proc/self/fd").is_dir():
            raise OSError
        return os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, mode), None
    handle, name = tempfile.mkstemp(dir=folder, prefix=".gpuclinic-")
    os.fchmod(handle, mode)
    return handle, name


def _linked(handle: int, folder: Path) -> str:
    """The file under a name of its own beside its final one. A folder's handle makes Python call linkat, which follows the link of /proc."""
    beside = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for _ in range(100):
            name = f".gpuclinic-{os.urandom(8).hex()}"
            with contextlib.suppress(FileExistsError):
                os.link(f"/proc/self/fd/{handle}", name, src_dir_fd=beside, dst_dir_fd=beside, follow_symlinks=True)
                return str(folder / name)
        raise FileExistsError(str(folder))
    finally:
        os.close(beside)
