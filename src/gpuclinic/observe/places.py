"""Hosts made of what a person points at: files, folders, archives, snapshots, standard input."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

from gpuclinic.model import NotRead, UserError
from gpuclinic.observe._walk import tree
from gpuclinic.observe.archives import buffered, nested, shown_name
from gpuclinic.observe.host import Item

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_FILES = 50_000
_LONGEST_NAME = 300
"""Characters of a folder's name that could not be entered; of longer ones the end is all the same."""
_ELF = b"\x7fELF"
_SKIPPED = frozenset({".git", "__pycache__"})
_DIGITS = re.compile(r"(\d+)")
_KINDS = (
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISDIR, "a folder"),
)


class Places:
    """Paths named by a person; "-" is standard input.

    Links a person names, or inside the folder, are followed; links that lead out of the folder are not. Only regular
    files are ever opened, and pipes that the shell itself made (`why <(dmesg)`).
    """

    def __init__(self, paths: list[str], stdin: BinaryIO | None = None) -> None:
        self.label = ", ".join(shown_name(path) for path in paths)
        self._paths = paths
        self._stdin = stdin

    def items(self) -> Iterator[Item | NotRead]:
        """Every file under the paths once, archives opened."""
        seen: set[tuple[int, int]] = set()
        for path in self._paths:
            if path == "-":
                yield from nested(Item("-", None, self._standard_input))
            else:
                yield from self._under(Path(path), seen)

    def _standard_input(self) -> BinaryIO:
        if self._stdin is None:
            raise UserError("standard input is not available")
        return cast("BinaryIO", buffered(self._stdin))

    def _under(self, path: Path, seen: set[tuple[int, int]]) -> Iterator[Item | NotRead]:
        try:
            top = path.stat()
        except (OSError, ValueError) as problem:
            yield NotRead(shown_name(str(path)), _why(problem))
            return
        if stat.S_ISDIR(top.st_mode):
            yield from _folder(path, seen)
        elif stat.S_ISFIFO(top.st_mode) and str(path).startswith(("/dev/fd/", "/proc/self/fd/")):
            yield from nested(Item(str(path), None, lambda: path.open("rb")))
        else:
            yield from _file(path, shown_name(path.name), seen)


def _folder(path: Path, seen: set[tuple[int, int]]) -> Iterator[Item | NotRead]:
    root = path.resolve()
    top = str(path)
    failed: list[OSError] = []
    count = 0

    def shown(place: str) -> str:
        return shown_name(os.path.relpath(place, top) if place != top else place)

    for _, folders, others in tree(top, failed.append):
        folders.sort(key=lambda entry: natural(entry.name))
        for entry in [entry for entry in folders if entry.name in _SKIPPED]:
            folders.remove(entry)
            yield NotRead(shown(entry.path), "a folder of tools, not of logs")
        others.sort(key=lambda entry: natural(entry.name))
        for entry in others:
            if entry.is_symlink() and Path(entry.path).is_dir():
                yield NotRead(shown(entry.path), "a link to a folder")
                continue
            count += 1
            if count > MOST_FILES:
                yield NotRead(shown_name(top), f"more than {MOST_FILES} files; the rest was left out")
                return
            reason = _bad_link(Path(entry.path), root) if entry.is_symlink() else None
            if reason is not None:
                yield NotRead(shown(entry.path), reason)
            else:
                yield from _file(Path(entry.path), shown(entry.path), seen)
    for problem in failed:
        name = shown(os.fsdecode(problem.filename)) if problem.filename else shown_name(top)
        yield NotRead(name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}...", _why(problem))


def _bad_link(full: Path, root: Path) -> str | None:
    """Why a link is not followed; None where it leads to a file inside."""
    try:
        target = full.resolve(strict=True)
    except (OSError, RuntimeError, ValueError):
        return "a link to nothing"
    return None if target.is_relative_to(root) else "a link that leads out of the folder"


def natural(name: str) -> list[str | int]:
    """A key that sorts rank2 before rank10."""
    parts = _DIGITS.split(name)
    return [int(part[:18]) if number % 2 else part for number, part in enumerate(parts)]


def _why(problem: Exception) -> str:
    return (problem.strerror if isinstance(problem, OSError) else "") or str(problem) or type(problem).__name__


def _file(path: Path, shown: str, seen: set[tuple[int, int]]) -> Iterator[Item | NotRead]:
    try:
        before = path.stat()
        if not stat.S_ISREG(before.st_mode):
            yield NotRead(shown, next((name for test, name in _KINDS if test(before.st_mode)), "not a file"))
            return
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | getattr(os, "O_NOCTTY", 0))
    except (OSError, ValueError) as problem:
        yield NotRead(shown, _why(problem))
        return
    try:
        status = os.fstat(handle)
        head = os.pread(handle, 64, 0) if stat.S_ISREG(status.st_mode) else b""
    except OSError as problem:
        yield NotRead(shown, _why(problem))
        return
    finally:
        os.close(handle)
    if (status.st_dev, status.st_ino) in seen:
        return
    seen.add((status.st_dev, status.st_ino))
    if not stat.S_ISREG(status.st_mode):
        yield NotRead(shown, "not a file")
    elif not head:
        yield NotRead(shown, "empty")
    elif head.startswith(_ELF):
        yield NotRead(shown, "a core dump" if head[16:17] == b"\x04" else "a program or library")
    else:
        plain = path if status.st_size else None  # files of /proc tell no size
        yield from nested(Item(shown, status.st_size or None, lambda: path.open("rb"), plain))
