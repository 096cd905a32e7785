"""Hosts made of what a person points at: files, folders, archives, snapshots, standard input."""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

from gpuclinic.model import NotRead, UserError
from gpuclinic.observe.archives import nested
from gpuclinic.observe.host import Item

MOST_FILES = 50_000
_CORE = b"\x7fELF"


class Places:
    """Paths named by a person; "-" is standard input. Links a person names, or inside the folder, are followed; links leading out are not."""

    def __init__(self, paths: list[str], stdin: BinaryIO | None = None) -> None:
        self.label = ", ".join(paths)
        self._paths = paths
        self._stdin = stdin

    def items(self) -> Iterator[Item | NotRead]:
        """Every file under the paths once, archives opened."""
        seen: set[tuple[int, int]] = set()
        for path in self._paths:
            if path == "-":
                stream = self._stdin
                if stream is None:
                    raise UserError("standard input is not available")
                raw = stream if isinstance(stream, io.BufferedReader) else io.BufferedReader(cast("io.RawIOBase", stream))
                yield from nested(Item("-", None, lambda raw=raw: cast("BinaryIO", raw)), 2)
            else:
                yield from self._under(Path(path), seen)

    def _under(self, path: Path, seen: set[tuple[int, int]]) -> Iterator[Item | NotRead]:
        try:
            top = path.stat()
        except OSError as problem:
            yield NotRead(str(path), problem.strerror or str(problem))
            return
        if not stat.S_ISDIR(top.st_mode):
            yield from _file(path, path.name, seen)
            return
        root = path.resolve()
        count = 0
        for folder, folders, files in os.walk(path, onerror=None):
            folders.sort()
            for name in sorted(files):
                count += 1
                if count > MOST_FILES:
                    yield NotRead(str(path), f"more than {MOST_FILES} files; the rest was left out")
                    return
                full = Path(folder) / name
                shown = str(full.relative_to(path))
                if full.is_symlink():
                    try:
                        inside = full.resolve(strict=True).is_relative_to(root)
                    except (OSError, RuntimeError):
                        yield NotRead(shown, "a link to nothing")
                        continue
                    if not inside:
                        yield NotRead(shown, "a link that leads out of the folder")
                        continue
                yield from _file(full, shown, seen)
            for name in list(folders):
                if not os.access(Path(folder) / name, os.R_OK | os.X_OK):
                    yield NotRead(str((Path(folder) / name).relative_to(path)), "no permission to open the folder")


def _file(path: Path, shown: str, seen: set[tuple[int, int]]) -> Iterator[Item | NotRead]:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | getattr(os, "O_NOCTTY", 0))
    except OSError as problem:
        yield NotRead(shown, problem.strerror or str(problem))
        return
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode):
        os.close(handle)
        kinds = ((stat.S_ISFIFO, "a FIFO"), (stat.S_ISSOCK, "a socket"), (stat.S_ISCHR, "a device"), (stat.S_ISBLK, "a device"))
        yield NotRead(shown, next((name for test, name in kinds if test(status.st_mode)), "not a file"))
        return
    if (status.st_dev, status.st_ino) in seen:
        os.close(handle)
        return
    seen.add((status.st_dev, status.st_ino))
    head = os.pread(handle, 64, 0)
    os.close(handle)
    if not head and status.st_size == 0:
        yield NotRead(shown, "empty")
    elif head.startswith(_CORE):
        core = len(head) > 17 and head[16] == 4
        yield NotRead(shown, "a core dump" if core else "a program or library")
    else:
        yield from nested(Item(shown, status.st_size, lambda: cast("BinaryIO", path.open("rb")), path), 2)
