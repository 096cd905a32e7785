"""A rendered file tree: paths (relative, with slashes) to text, bytes or links, written where they changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Link:
    """A symbolic link."""

    target: str


@dataclass(frozen=True)
class Folder:
    """An empty folder."""


@dataclass(frozen=True)
class Device:
    """A file that stands for a device node: only its rights matter, making true ones needs root."""

    mode: int = 0o666


Nodes = dict[str, "str | bytes | Link | Folder | Device"]


def _remove(path: Path, root: Path) -> None:
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.is_dir() and not any(path.iterdir()):
        path.rmdir()
    for parent in path.parents:  # a folder that only held what is gone goes too
        if parent == root or any(parent.iterdir()):
            return
        parent.rmdir()


def write_changes(root: Path, before: Nodes, after: Nodes) -> None:
    """Makes the tree under ``root``, which holds ``before``, hold ``after``."""
    made: set[Path] = set()
    for name in before.keys() - after.keys():
        path = root / name
        if path.is_symlink() or path.exists():
            _remove(path, root)
    for name, node in after.items():
        path = root / name
        if before.get(name) == node and not (isinstance(node, Folder) and not path.exists()):
            continue
        if path.parent not in made:
            path.parent.mkdir(parents=True, exist_ok=True)
            made.add(path.parent)
        if isinstance(node, Link):
            if path.is_symlink() or path.exists():
                path.unlink()
            path.symlink_to(node.target)
        elif isinstance(node, Folder):
            path.mkdir(exist_ok=True)
        elif isinstance(node, Device):
            path.touch()
            path.chmod(node.mode)
        elif isinstance(node, bytes):
            path.write_bytes(node)
        else:
            path.write_text(node, encoding="utf-8")
