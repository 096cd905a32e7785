"""Searches a part of the file system for folders that hold a name, within limits, following no link."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MOST_ENTRIES = 4000
"""Entries of one folder that are looked at; data sets have millions of files in one."""
SKIPPED = [
    "proc",
    "sys",
    "dev",
    "node_modules",
    "__pycache__",
    "site-packages",
    "dist-packages",
    "pkgs",
    ".git",
    ".snapshot",
    "lost+found",
    "overlay2",
]
"""Folders that hold no projects of people, or too much."""
_MOST_TOLD = 50


def tree(
    start: str, failed: Callable[[OSError], object]
) -> Iterator[tuple[str, list[os.DirEntry[str]], list[os.DirEntry[str]]]]:
    """Each folder from `start` on with its folders and its other entries, links among these.

    What the caller sorts or takes out of the folders counts. As os.walk, but as deep as paths reach, with one open descriptor.
    failed: told of folders that cannot be read.
    """
    waiting = [start]
    while waiting:
        place = waiting.pop()
        try:
            with os.scandir(place) as entries:
                every = list(entries)
        except OSError as problem:
            failed(problem)
            continue
        folders: list[os.DirEntry[str]] = []
        others: list[os.DirEntry[str]] = []
        for entry in every:
            (folders if _is_folder(entry) else others).append(entry)
        yield place, folders, others
        waiting += [folder.path for folder in reversed(folders)]


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False


def walk(
    root: str, starts: list[str], names: list[str], *, depth: int, most: int, seconds: float, skip: list[str]
) -> dict[str, Any]:
    """Paths at or below the starts (without `root` before them) that end in one of the names, nearest first.

    depth: levels of folders below each start that are opened. A folder that holds one of the names is not searched further. Hidden
    folders are opened, those in them are not. skip: names of folders that are left out. most: folders that are opened, seconds: about
    how long it may take; what was not reached by then is told in `cut`. refused: folders that may not be opened.
    """
    ends = time.monotonic() + seconds
    out: dict[str, Any] = {"found": [], "folders": 0, "refused": [], "cut": None}
    left_out, wanted = frozenset(skip), frozenset(names)
    level = [start.rstrip("/") or "/" for start in starts]
    for below in range(depth + 1):
        further: list[str] = []
        for folder in level:
            if out["folders"] >= most or time.monotonic() > ends:
                out["cut"] = f"{out['folders']} folders" if out["folders"] >= most else f"{seconds:g} s"
                return out
            out["folders"] += 1
            try:
                found, folders = _opened(root + folder, wanted, left_out)
            except OSError as problem:
                if len(out["refused"]) < _MOST_TOLD and isinstance(problem, PermissionError):
                    out["refused"].append(folder)
                if len(starts) == 1 and below == 0 and not isinstance(problem, PermissionError):
                    raise
                continue
            path = "" if folder == "/" else folder
            if found:
                out["found"] += [f"{path}/{name}" for name in found]
            elif not (below and path.rpartition("/")[2].startswith(".")):
                further += [f"{path}/{name}" for name in folders]
        level = further
    return out


def _opened(path: str, wanted: frozenset[str], left_out: frozenset[str]) -> tuple[list[str], list[str]]:
    """Which of the names a folder holds, and the folders in it."""
    found: list[str] = []
    folders: list[str] = []
    with os.scandir(path) as entries:
        for number, entry in enumerate(entries):
            if number >= MOST_ENTRIES:
                break
            if entry.name in wanted and not entry.is_symlink():
                found.append(entry.name)
            elif entry.name not in left_out and entry.is_dir(follow_symlinks=False):
                folders.append(entry.name)
    return sorted(found), sorted(folders)
