"""A server on disk: a folder with root/ and commands/ as docs/contract.md says, or a mounted disk's root."""

from __future__ import annotations

import errno
import fnmatch
import json
import os
import stat
from typing import TYPE_CHECKING

from gpuclinic.model import UserError
from gpuclinic.observe._file_child import read_regular, stat_of
from gpuclinic.observe.asking import MOST_BYTES, Answer, slug

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_MOST_FILES = 50_000


class Snapshot:
    """A folder that holds root/, commands/ and the JSON files of a snapshot. Nothing outside of it is ever opened."""

    live = False

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()
        self.label = folder.name
        inside = self._folder / "root"
        self._root = inside if inside.is_dir() else self._folder
        self._about = self._own("snapshot.json").json()

    def _own(self, name: str) -> Answer:
        return self._read(self._folder / name, name, MOST_BYTES * 64, end=False)

    def _inside(self, path: str) -> Path:
        """Where a path of the examined machine lies; its links are followed as if root/ were the root, never out of it."""
        place = self._root
        parts = [part for part in path.split("/") if part not in ("", ".")]
        for _ in range(400):
            if not parts:
                return place
            part = parts.pop(0)
            if part == "..":
                place = place.parent if place != self._root else place
                continue
            step = place / part
            if step.is_symlink():
                target = os.readlink(step)
                parts = [p for p in target.split("/") if p not in ("", ".")] + parts
                place = self._root if target.startswith("/") else place
                continue
            place = step
        raise OSError(errno.ELOOP, "too many links", path)

    def _read(self, place: Path, question: str, most: int, *, end: bool) -> Answer:
        try:
            data, cut = read_regular(str(place), most, end=end)
        except OSError as problem:
            return Answer(question, why=problem.strerror or str(problem), code=problem.errno)
        return Answer(question, data, cut=cut)

    def file(self, path: str, most: int = MOST_BYTES, *, end: bool = False) -> Answer:
        """A file under root/."""
        question = f"file {path}"
        try:
            return self._read(self._inside(path), question, most, end=end)
        except OSError as problem:
            return Answer(question, why=problem.strerror or str(problem), code=problem.errno)

    def files(self, pattern: str, most: int = 1 << 16) -> dict[str, Answer]:
        """Files under root/ that a pattern names."""
        found = {path: self.file(path, most) for path in self._matching(pattern)}
        return {path: answer for path, answer in found.items() if answer.code != errno.EISDIR}

    def links(self, pattern: str) -> dict[str, str]:
        """Links under root/ that a pattern names."""
        return {path: answer.text for path in self._matching(pattern) if (answer := self.link(path)).ok}

    def _matching(self, pattern: str) -> Iterator[str]:
        """Paths of the examined machine like a pattern, sorted; links to folders are followed inside root/."""
        paths = [""]
        for part in [p for p in pattern.split("/") if p]:
            if not any(c in part for c in "*?["):
                paths = [f"{path}/{part}" for path in paths]
                continue
            grown: list[str] = []
            for path in paths:
                names = self.listing(path or "/")
                grown += [
                    f"{path}/{name}"
                    for name in names.lines()
                    if fnmatch.fnmatchcase(name, part) and not name.startswith(".")
                ]
            paths = grown[:_MOST_FILES]
        for path in paths:
            parent, _, name = path.rpartition("/")
            try:
                os.lstat(self._inside(parent or "/") / name)
            except OSError:
                continue
            yield path

    def listing(self, path: str) -> Answer:
        """Names in a folder under root/."""
        try:
            return Answer(
                f"listing {path}", "\n".join(sorted(os.listdir(self._inside(path)))).encode("utf-8", "surrogateescape")
            )
        except OSError as problem:
            return Answer(f"listing {path}", why=problem.strerror or str(problem), code=problem.errno)

    def link(self, path: str) -> Answer:
        """Where a link under root/ leads."""
        parent, _, name = path.rpartition("/")
        try:
            return Answer(
                f"link {path}", os.readlink(self._inside(parent or "/") / name).encode("utf-8", "surrogateescape")
            )
        except OSError as problem:
            return Answer(f"link {path}", why=problem.strerror or str(problem), code=problem.errno)

    def stat(self, path: str) -> Answer:
        """What stat.json says of a path; else what the folder itself has."""
        question = f"stat {path}"
        kept = self._own("stat.json").json().get(path)
        if isinstance(kept, dict):
            return Answer(question, json.dumps(kept).encode())
        try:
            return Answer(question, json.dumps(stat_of(str(self._inside(path)))).encode())
        except OSError as problem:
            return Answer(question, why=problem.strerror or str(problem), code=problem.errno)

    def space(self, path: str) -> Answer:
        """A snapshot does not know sizes of file systems but by df."""
        return Answer(f"space {path}", why="not in the snapshot", code=errno.ENOENT)

    def command(self, *argv: str, deadline: float = 2.0, most: int = MOST_BYTES) -> Answer:  # noqa: ARG002 - nothing runs here
        """What a command printed when the snapshot was made: commands/<its words joined by ->."""
        question = "command " + " ".join(argv)
        name = slug(argv).lower()
        folder = self._folder / "commands"
        try:
            names = sorted(os.listdir(folder))
        except OSError:
            names = []
        for candidate in names:
            stem, _, ending = candidate.rpartition(".")
            if candidate.lower() == name or (stem.lower() == name and len(ending) <= 4):
                status = os.lstat(folder / candidate)
                if stat.S_ISREG(status.st_mode):
                    return self._read(folder / candidate, question, most, end=False)
        return Answer(question, why="not in the snapshot", code=errno.ENOENT)

    def expect(self, commands: list[tuple[str, ...]]) -> None:
        """Nothing runs here."""

    def nvml(self, *, deep: bool = False, sample: int = 0) -> Answer:  # noqa: ARG002 - there is one
        """nvml.json."""
        answer = self._own("nvml.json")
        return Answer(
            "nvml", answer.data, why=None if answer.ok else "not in the snapshot", code=answer.code, sample=sample
        )

    def clock(self) -> float:
        """When the snapshot was made, as far as it tells."""
        when = self._about.get("time", self._about.get("taken_at"))
        if isinstance(when, (int, float)):
            return float(when)
        import datetime as dt

        if isinstance(when, str):
            try:
                return dt.datetime.fromisoformat(when.replace("Z", "+00:00")).timestamp()
            except ValueError:
                pass
        return self._folder.stat().st_mtime

    def wait(self, seconds: float) -> None:
        """Time does not pass here."""

    def close(self) -> None:
        """Nothing runs here."""


def open_snapshot(path: Path) -> Snapshot:
    """The snapshot at a path."""
    if path.is_dir():
        return Snapshot(path)
    raise UserError(f"{path}: not a snapshot folder")
