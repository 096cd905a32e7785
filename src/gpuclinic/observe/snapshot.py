"""A server on disk: a folder with root/ and commands/ as docs/contract.md says, or a mounted disk's root."""

from __future__ import annotations

import errno
import fnmatch
import functools
import json
import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from gpuclinic.model import CouldNotError, UserError
from gpuclinic.observe._dated import taken_at
from gpuclinic.observe._file_child import read_regular, stat_of
from gpuclinic.observe._walk import SKIPPED, tree, walk
from gpuclinic.observe.asking import LATEST, MOST_BYTES, Answer, slug
from gpuclinic.observe.replay import ANSWERS, Replay

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpuclinic.observe._private import PrivateFolder

_MOST_FILES = 50_000
_MOST_STEPS = 4000
"""Of a path with all its links; the kernel follows forty links."""
_SAME_WITH_ANY_OPTIONS = {"dmesg": re.compile(r"dmesg(?:-[a-z]{1,2}|-(?:ctime|human|decode|ktx|time-format)[a-z-]*)*")}
"""Programs whose options change the look of what they print, not what it is about: commands/dmesg.txt and dmesg-T.txt answer for all of them."""
_LOST = ("mode", "uid", "gid", "mtime")
"""What a file out of an archive has of whoever unpacked it."""
MOST_NVML = 8 << 20
"""Bytes of nvml.json; sixteen GPUs with all their processes and samples take one."""
_MOST_STATS = 16 << 20
_MOST_TEXT = 8 << 20
_MOST_TEXTS = 64 << 20


class Snapshot:
    """A folder that holds root/, commands/ and the JSON files of a snapshot. Nothing outside of it is ever opened."""

    live = False

    samples = 1
    """Made by hand, it holds one moment."""

    def __init__(
        self,
        folder: Path,
        label: str | None = None,
        temporary: PrivateFolder | None = None,
        damage: str | None = None,
    ) -> None:
        """damage: why only a part of what it was made from could be had."""
        self._folder = folder.resolve()
        self._temporary = temporary
        self.damage = damage
        self._given: set[str] = set()
        self._ways: dict[str, str] = {}
        self.label = label or folder.name
        inside = self._folder / "root"
        self._root = inside if inside.is_dir() and not _is_disk(self._folder) else self._folder
        self.about = self._own("snapshot.json", MOST_BYTES).json()

    def _own(self, name: str, most: int) -> Answer:
        """One of the snapshot's own files, which are small; a larger one is none."""
        if (self._folder / name).is_symlink():
            return Answer(name, why="a link", code=errno.ELOOP)
        answer = self._read(self._folder / name, name, most, end=False)
        return Answer(name, why=f"larger than {most >> 20} MiB", code=errno.EFBIG) if answer.cut else answer

    def own_json(self, name: str) -> dict[str, Any]:
        """An object that the snapshot itself holds beside root/ ("pid_probe.json"); empty where there is none."""
        return self._own(name, _MOST_STATS).json()

    @functools.cached_property
    def _stats(self) -> dict[str, Any]:
        told = self._own("stat.json", _MOST_STATS).json()
        files = told.get("files")
        return {**told, **files} if isinstance(files, dict) else told

    def rights_known(self, path: str) -> bool:
        """Owner and mode are the examined machine's: stat.json tells them, or this is its own disk, not a copy of some files."""
        return isinstance(self._stats.get(path), dict) or (self._temporary is None and self._root == self._folder)

    def _inside(self, path: str) -> str:
        """Where a path of the examined machine lies; its links are followed as if root/ were the root, never out of it."""
        path = path.rstrip("/")
        folder, _, name = path.rpartition("/")
        above = self._ways.get(folder)
        if above is None:
            if len(self._ways) > _MOST_FILES:
                self._ways.clear()
            above = self._ways[folder] = self._followed(folder)
        if name in ("", ".", ".."):
            return self._followed(path)
        step = f"{above}/{name}"
        return self._followed(path) if _target(step) is not None else step

    def _followed(self, path: str) -> str:
        """The path step by step."""
        root = place = str(self._root)
        parts = path.split("/")[::-1]
        for _ in range(_MOST_STEPS):
            while parts and parts[-1] in ("", "."):
                parts.pop()
            if not parts:
                return place
            part = parts.pop()
            if part == "..":
                place = place.rpartition("/")[0] if place != root else root
                continue
            target = _target(f"{place}/{part}")
            if target is None:
                place = f"{place}/{part}"
                continue
            parts += target.split("/")[::-1]
            place = root if target.startswith("/") else place
        raise OSError(errno.ELOOP, "too many links", path)

    def _read(self, place: Path | str, question: str, most: int, *, end: bool) -> Answer:
        try:
            data, cut = read_regular(str(place), most, end=end)
        except (OSError, ValueError) as problem:
            return _refusal(question, problem)
        return Answer(question, data, cut=cut)

    def file(self, path: str, most: int = MOST_BYTES, *, end: bool = False) -> Answer:
        """A file under root/."""
        question = f"file {path}"
        try:
            place = self._inside(path)
            self._given.add(place)
            return self._read(place, question, most, end=end)
        except (OSError, ValueError) as problem:
            return _refusal(question, problem)

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
                os.lstat(f"{self._inside(parent or '/')}/{name}")
            except (OSError, ValueError):
                continue
            yield path

    def listing(self, path: str) -> Answer:
        """Names in a folder under root/."""
        try:
            return Answer(
                f"listing {path}", "\n".join(sorted(os.listdir(self._inside(path)))).encode("utf-8", "surrogateescape")
            )
        except (OSError, ValueError) as problem:
            return _refusal(f"listing {path}", problem)

    def link(self, path: str) -> Answer:
        """Where a link under root/ leads."""
        parent, _, name = path.rpartition("/")
        try:
            return Answer(
                f"link {path}", os.readlink(f"{self._inside(parent or '/')}/{name}").encode("utf-8", "surrogateescape")
            )
        except (OSError, ValueError) as problem:
            told = self._stats.get(path)
            if isinstance(told, dict) and isinstance(told.get("symlink"), str):  # an archive that kept no links
                return Answer(f"link {path}", told["symlink"].encode("utf-8", "surrogateescape"))
            return _refusal(f"link {path}", problem)

    def find(self, start: str, names: list[str], *, depth: int = 4, most: int = 5000, seconds: float = 0.3) -> Answer:
        """Searches below a folder under root/. It does not hurry: a snapshot answers the same each time."""
        question = f"find {start}"
        wild = any(sign in start for sign in "*?[")
        try:
            starts = [self._inside(path) for path in (self._matching(start) if wild else [start])]
            found = walk("", starts, names, depth=depth, most=most, seconds=max(seconds, 10.0), skip=SKIPPED)
        except (OSError, ValueError) as problem:
            return _refusal(question, problem)
        above = len(str(self._root))
        for name in ("found", "refused"):
            found[name] = [path[above:] for path in found[name]]
        return Answer(question, json.dumps(found).encode())

    def untrusted(self, paths: list[str], most: int = 1 << 16) -> dict[str, Answer]:
        """Files under root/, out of which no link leads."""
        return {path: self.file(path, most) for path in paths}

    def stat(self, path: str) -> Answer:
        """What stat.json says of a path; else what the folder itself has, of an archive only what unpacking does not change."""
        question = f"stat {path}"
        kept = self._stats.get(path)
        if isinstance(kept, dict):
            return Answer(question, json.dumps(kept).encode())
        try:
            found = stat_of(self._inside(path))
            for name in _LOST if self._temporary is not None else ():
                found.pop(name, None)
            return Answer(question, json.dumps(found).encode())
        except (OSError, ValueError) as problem:
            return _refusal(question, problem)

    def space(self, path: str) -> Answer:
        """A snapshot does not know sizes of file systems but by df."""
        return Answer(f"space {path}", why="not in the snapshot", code=errno.ENOENT)

    def command(self, *argv: str, deadline: float = 2.0, most: int = MOST_BYTES) -> Answer:  # noqa: ARG002 - nothing runs here
        """What a command printed when the snapshot was made: commands/<its words joined by ->."""
        question = "command " + " ".join(argv)
        name = slug(argv).lower()
        folder = self._folder / "commands"
        try:
            names = [] if folder.is_symlink() else sorted(os.listdir(folder))
        except OSError:
            names = []
        alike = _SAME_WITH_ANY_OPTIONS.get(argv[0])

        def same(given: str) -> bool:
            return given.lower() == name or (alike is not None and alike.fullmatch(given.lower()) is not None)

        for candidate in names:
            stem, _, ending = candidate.rpartition(".")
            if same(candidate) or (len(ending) <= 4 and same(stem)):
                status = os.lstat(folder / candidate)
                if stat.S_ISREG(status.st_mode):
                    self._given.add(str(folder / candidate))
                    answer = self._read(folder / candidate, question, most, end=False)
                    return msgspec.structs.replace(answer, place=f"commands/{candidate}")
        return Answer(question, why="not in the snapshot", code=errno.ENOENT)

    def expect(self, commands: list[tuple[str, ...]]) -> None:
        """Nothing runs here."""

    def begin_nvml(self, *, deep: bool = False) -> None:
        """Nothing runs here."""

    def nvml(self, *, deep: bool = False, sample: int = 0) -> Answer:  # noqa: ARG002 - there is one
        """nvml.json."""
        answer = self._own("nvml.json", MOST_NVML)
        why = answer.why if answer.code != errno.ENOENT else "not in the snapshot"
        return Answer("nvml", answer.data, why=why, code=answer.code, sample=sample)

    @functools.cached_property
    def dated(self) -> float | None:
        """When it was made, as far as anything in it tells."""
        try:
            outputs = os.listdir(self._folder / "commands")
        except OSError:
            outputs = []

        def read(name: str) -> bytes | None:
            place = name.removeprefix("root") if name.startswith("root/") else None
            answer = (
                self.file(place, 1 << 20)
                if place is not None
                else self._read(self._folder / name, name, 1 << 16, end=False)
            )
            return answer.data if answer.ok else None

        return taken_at(
            self.about, read, [name for name in outputs if not (self._folder / "commands" / name).is_symlink()]
        )

    def clock(self) -> float:
        """When it was made, as far as it tells; else when its folder was written."""
        return self.dated if self.dated is not None else min(max(0.0, self._folder.stat().st_mtime), LATEST)

    def wait(self, seconds: float) -> None:
        """Time does not pass here."""

    def texts(self) -> Iterator[tuple[str, Answer]]:
        """All logs and outputs of commands in it that nobody has asked for by name, each as it is shown and its content."""
        left = _MOST_TEXTS
        for name in self._unread():
            place = self._folder / name
            if place.is_symlink() or left <= 0:
                continue
            answer = self._read(place, name, min(_MOST_TEXT, left), end=True)
            left -= len(answer.data)
            if answer.data:
                yield name, answer

    def _unread(self) -> Iterator[str]:
        for top in ("commands", "root/var/log"):
            try:
                start = Path(self._inside("/var/log")) if top.startswith("root/") else self._folder / top
            except OSError:
                continue  # who asks for a log by its name is told why
            above = len(str(self._folder)) + 1
            for _, folders, others in tree(str(start), lambda _: None) if not start.is_symlink() else ():
                folders.sort(key=lambda entry: entry.name)
                for path in sorted(entry.path for entry in others)[:_MOST_FILES]:
                    if path not in self._given:
                        yield path[above:]

    def close(self) -> None:
        """Removes what was unpacked for it."""
        if self._temporary is not None:
            self._temporary.cleanup()


def _refusal(question: str, problem: OSError | ValueError) -> Answer:
    """What the file system refused; a ValueError is a name that no file can have."""
    if isinstance(problem, OSError):
        return Answer(question, why=problem.strerror or str(problem), code=problem.errno)
    return Answer(question, why=str(problem), code=errno.EINVAL)


def open_snapshot(path: Path, progress: Callable[[str], None] | None = None) -> Snapshot | Replay:
    """The snapshot at a path: a folder, or an archive of one (unpacked into a private folder that `close` removes).

    UserError: there is nothing like a snapshot, or the archive is refused.
    """
    if path.is_dir():
        return _opened(path, path.name, None)
    if not path.is_file():
        raise UserError(f"{path}: neither a folder nor an archive")
    from gpuclinic.observe.unpacking import unpacked

    folder, refused, damage = unpacked(path, progress)
    try:
        return _opened(Path(folder.name), path.name, folder, refused, damage)
    except BaseException:
        folder.cleanup()
        raise


def _opened(
    path: Path,
    label: str,
    temporary: PrivateFolder | None,
    refused: list[str] | None = None,
    damage: str | None = None,
) -> Snapshot | Replay:
    folder = snapshot_folder(path)
    if folder is None and damage is not None:
        raise CouldNotError(f"{label}: {damage}; nothing of a snapshot came out of it")
    if folder is None:
        told = f" ({refused[0]})" if refused else ""
        raise UserError(f"{label}: no snapshot: neither root/ nor commands/ nor {ANSWERS} in it{told}")
    if not (folder / ANSWERS).is_file():
        return Snapshot(folder, label, temporary, damage)
    about = Snapshot(folder).about
    try:
        replay = Replay(folder, str(about.get("host") or label)[:253], about, temporary)
    except CouldNotError as problem:
        if not any((folder / mark).exists() for mark in _MARKS if mark != ANSWERS):
            raise
        return Snapshot(
            folder, label, temporary, damage or str(problem)
        )  # the files tell more than half of the answers
    replay.damage = damage or replay.damage
    return replay


_MARKS = (ANSWERS, "root", "commands", "nvml.json")
_OF_A_DISK = ("etc", "proc", "sys", "var")
_DEEPEST = 3


def snapshot_folder(path: Path) -> Path | None:
    """The folder at or below a path that holds a snapshot or is the root of a disk; None where there is none."""
    level = [path]
    for _ in range(_DEEPEST):
        for folder in level:
            if any((folder / mark).exists() and not (folder / mark).is_symlink() for mark in _MARKS):
                return folder
        below: list[Path] = []
        for folder in level:
            if any((folder / name).is_dir() for name in _OF_A_DISK):
                return folder
            below += [step for step in _steps(folder) if step.is_dir() and not step.is_symlink()]
        level = below[:1000]
    return None


def _steps(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())[:200]
    except OSError:
        return []


def _is_disk(folder: Path) -> bool:
    """A mounted disk: its root/ is the home of root, not the root of a copy."""
    names = ("etc", "usr", "var", "proc", "sys", "dev")
    return any((folder / name).is_dir() for name in names) and not any(
        (folder / "root" / name).is_dir() for name in names
    )


def _target(place: str) -> str | None:
    """Where a link leads; None where it is none. OSError: a name that no file can have, a folder that may not be entered."""
    try:
        return os.readlink(place)
    except ValueError:
        raise OSError(errno.EINVAL, "a name that no file can have", place) from None
    except OSError as problem:
        if problem.errno in (errno.EINVAL, errno.ENOENT, errno.ENOTDIR):
            return None
        raise
