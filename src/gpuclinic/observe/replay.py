"""A recorded server: answers as it answered, refusals, hangs, second samples and the clock included."""

from __future__ import annotations

import errno
import fnmatch
import json
import os
from typing import TYPE_CHECKING, Any

from gpuclinic.model import CouldNotError
from gpuclinic.observe._file_child import read_regular
from gpuclinic.observe.asking import LATEST, MOST_BYTES, Answer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gpuclinic.observe._private import PrivateFolder

ANSWERS = "answers.jsonl"
NOT_ASKED = "not asked when this was captured"
_MOST_LINES = 200_000
_MOST_INDEX = 64 << 20
_MOST_DATA = 256 << 20
_Key = tuple[object, ...]


class Replay:
    """The folder of a snapshot that has answers.jsonl. Nothing outside of the folder is ever opened.

    A question asked again gets the next recorded answer, and after the last one the last again. One that nobody asked while it was recorded
    is answered from the other answers where they tell, else by "not asked when this was captured", which is no "there is none".
    """

    def __init__(self, folder: Path, label: str, about: dict[str, Any], temporary: PrivateFolder | None = None) -> None:
        self.label = label
        self.live = False
        """A running server was recorded: looks treat what it did not have as they did there."""
        self._temporary = temporary
        self.about = about
        self.damage = str(about["damage"])[:200] if about.get("damage") else None
        """Why what was captured was itself only a part."""
        self._folder = folder.resolve()
        self._lines: dict[_Key, list[dict[str, Any]]] = {}
        self._next: dict[_Key, int] = {}
        self._files: dict[str, list[dict[str, Any]]] = {}
        self._patterns: dict[str, None] = {}
        self._clocks: list[float] = []
        self._clock_at = 0
        self._marks: dict[str, tuple[int, dict[_Key, int]]] = {}
        self.samples = 1
        self._waited = 0.0
        self._load()

    def _load(self) -> None:
        path = self._folder / ANSWERS
        try:
            data, cut = read_regular(str(path), _MOST_INDEX)
        except OSError as problem:
            raise CouldNotError(f"{self.label}: {ANSWERS}: {problem.strerror or problem}") from None
        rows = data.split(b"\n")
        if cut or len(rows) > _MOST_LINES:
            raise CouldNotError(f"{self.label}: {ANSWERS} is larger than any capture's")
        for number, row in enumerate(rows):
            if not row.strip():
                continue
            try:
                line = json.loads(row)
            except (ValueError, RecursionError):
                raise CouldNotError(
                    f"{self.label}: {ANSWERS}, line {number + 1} is no JSON: damaged or cut short"
                ) from None
            if isinstance(line, dict):
                self._take(line)
        if not self._lines:
            raise CouldNotError(f"{self.label}: {ANSWERS} holds no answers: damaged or cut short")

    def _take(self, line: dict[str, Any]) -> None:
        ask = line.get("ask")
        if "gpuclinic_answers" in line:
            self.live = line.get("live") is True
        if ask == "clock":
            self._clocks.append(min(_number(line.get("at")), LATEST))
            return
        if ask == "wait":
            self.samples += not self._marks
            return
        if ask == "mark":
            self._marks[str(line.get("path"))] = (
                len(self._clocks),
                {key: len(kept) for key, kept in self._lines.items()},
            )
            return
        if not isinstance(ask, str) or not isinstance(line.get("path", ""), str):
            return
        self._lines.setdefault(_key(line), []).append(line)
        path = line.get("path")
        if ask == "file" and isinstance(path, str) and not line.get("left_out"):
            self._files.setdefault(path, []).append(line)
        elif ask == "files" and isinstance(path, str) and not line.get("left_out"):
            self._patterns[path] = None
            for one in _rows(line.get("of")):
                if isinstance(one.get("path"), str):
                    self._files.setdefault(one["path"], []).append({**one, "at": line.get("at")})

    def seek(self, mark: str) -> bool:
        """Goes on where the recording went on to another question of the person ("why"); false where it never did."""
        found = self._marks.get(mark)
        if found is None:
            return False
        self._clock_at, self._next = found[0], dict(found[1])
        return True

    def _recorded(self, key: _Key) -> dict[str, Any] | None:
        lines = self._lines.get(key)
        if not lines:
            return None
        number = self._next.get(key, 0)
        self._next[key] = number + 1
        return lines[min(number, len(lines) - 1)]

    def _answer(self, question: str, line: dict[str, Any], most: int | None = None, *, end: bool = False) -> Answer:
        why = line.get("why")
        why = str(why)[:500] if why is not None else None
        code = line.get("code")
        data = b""
        if line.get("left_out"):
            why = f"left out of the capture: {str(line['left_out'])[:200]}"
        elif isinstance(line.get("text"), str):
            data = line["text"].encode("utf-8", "surrogateescape")
        elif isinstance(line.get("in"), str):
            try:
                data = self._data(line["in"], line.get("size"), _MOST_DATA if most is None or end else most + 1)
            except OSError as problem:
                why = f"the capture's {line['in'][:200]} cannot be read: {problem.strerror or problem}"
        cut = bool(line.get("cut"))
        if most is not None and len(data) > most:
            data, cut = (data[-most:] if end else data[:most]), True
        return Answer(
            question, data, why=why, code=code if isinstance(code, int) else None, seconds=_number(line.get("seconds")),
            at=_number(line.get("at")), sample=int(_number(line.get("sample"))), cut=cut,
        )  # fmt: skip

    def _data(self, name: str, size: object, most: int) -> bytes:
        place = self._folder
        for part in name.split("/"):
            if part in ("", ".", ".."):
                raise OSError(errno.EINVAL, "a name that leads out of the capture")
            place = place / part
            if place.is_symlink():
                raise OSError(errno.ELOOP, "a link")
        held = min(size, most) if isinstance(size, int) and size >= 0 else most
        return read_regular(str(place), held)[0]

    def file(self, path: str, most: int = MOST_BYTES, *, end: bool = False) -> Answer:
        """A file as it was read."""
        question = f"file {path}"
        line = self._recorded(("file", path, most, end))
        if line is not None:
            return self._answer(question, line, most, end=end)
        lines = self._files.get(path)
        if lines:
            return self._answer(question, lines[0], most, end=end)
        if any(_matches(path, pattern) for pattern in self._patterns):
            return Answer(question, why=os.strerror(errno.ENOENT), code=errno.ENOENT)
        return Answer(question, why=NOT_ASKED)

    def files(self, pattern: str, most: int = 1 << 16) -> dict[str, Answer]:
        """Files that a pattern named."""
        line = self._recorded(("files", pattern, most))
        if line is not None and line.get("left_out"):
            return {pattern: self._answer(f"files {pattern}", line)}
        if line is not None:
            shared = {"at": line.get("at"), "seconds": line.get("seconds")}
            return {
                path: self._answer(f"file {path}", {**shared, **one}, most)
                for one in _rows(line.get("of"))
                if isinstance(path := one.get("path"), str) and _named_by(path, pattern)
            }
        found = {path: self.file(path, most) for path in sorted(self._files) if _matches(path, pattern)}
        found = {path: answer for path, answer in found.items() if answer.code not in (errno.ENOENT, errno.EISDIR)}
        return found or {pattern: Answer(f"files {pattern}", why=NOT_ASKED)}

    def _plain(self, ask: str, path: str) -> Answer:
        line = self._recorded((ask, path))
        return Answer(f"{ask} {path}", why=NOT_ASKED) if line is None else self._answer(f"{ask} {path}", line)

    def listing(self, path: str) -> Answer:
        """The names in a folder."""
        return self._plain("listing", path)

    def link(self, path: str) -> Answer:
        """Where a link led."""
        return self._plain("link", path)

    def links(self, pattern: str) -> dict[str, str]:
        """Where links led that a pattern named."""
        line = self._recorded(("links", pattern))
        found = line.get("links") if line is not None else None
        if not isinstance(found, dict):
            return {}
        return {path: to for path, to in found.items() if isinstance(to, str) and _named_by(path, pattern)}

    def find(self, start: str, names: list[str], *, depth: int = 4, most: int = 5000, seconds: float = 0.3) -> Answer:  # noqa: ARG002
        """What a search found; that of the recording, whatever its limits were."""
        return self._plain("find", start)

    def untrusted(self, paths: list[str], most: int = 1 << 16) -> dict[str, Answer]:
        """Files as they were read."""
        return {path: self.file(path, most) for path in paths}

    def stat(self, path: str) -> Answer:
        """Kind, rights, owner of a path."""
        return self._plain("stat", path)

    def space(self, path: str) -> Answer:
        """Sizes of a file system."""
        return self._plain("space", path)

    def command(self, *argv: str, deadline: float = 2.0, most: int = MOST_BYTES) -> Answer:  # noqa: ARG002 - nothing runs here
        """What a program printed."""
        question = "command " + " ".join(argv)
        line = self._recorded(("command", argv))
        return Answer(question, why=NOT_ASKED) if line is None else self._answer(question, line, most)

    def expect(self, commands: list[tuple[str, ...]]) -> None:
        """Nothing runs here."""

    def begin_nvml(self, *, deep: bool = False) -> None:
        """Nothing runs here."""

    def nvml(self, *, deep: bool = False, sample: int = 0) -> Answer:
        """What NVML said; the quick or the deep answer where only the other was recorded."""
        for key in (("nvml", deep, sample), ("nvml", not deep, sample)):
            line = self._recorded(key)
            if line is not None:
                return self._answer("nvml", line)
        return Answer("nvml", why=NOT_ASKED, sample=sample)

    def texts(self) -> Iterator[tuple[str, Answer]]:
        """What the recorded snapshot held besides."""
        for key, lines in self._lines.items():
            if key[0] == "text":
                yield str(key[1]), self._answer(str(key[1]), lines[0])

    def clock(self) -> float:
        """The recorded moments one after the other; behind the last it and what was waited since."""
        if self._clock_at < len(self._clocks):
            self._clock_at += 1
            return self._clocks[self._clock_at - 1]
        return (self._clocks[-1] if self._clocks else 0.0) + self._waited

    def wait(self, seconds: float) -> None:
        """Takes no time; the clock knows of it once its recorded moments are used up."""
        if self._clock_at >= len(self._clocks):
            self._waited += max(0.0, seconds)

    def close(self) -> None:
        """Removes what was unpacked for it."""
        if self._temporary is not None:
            self._temporary.cleanup()


def _key(line: dict[str, Any]) -> _Key:
    ask, path = line["ask"], line.get("path")
    most = line.get("most")
    most = most if isinstance(most, int) else None
    if ask == "file":
        return (ask, path, most, bool(line.get("end")))
    if ask == "files":
        return (ask, path, most)
    if ask == "command":
        argv = line.get("argv")
        return (ask, tuple(str(word) for word in argv) if isinstance(argv, list) else ())
    if ask == "nvml":
        return (ask, bool(line.get("deep")), int(_number(line.get("sample"))))
    return (ask, path)


def _named_by(path: str, pattern: str) -> bool:
    """A recorded path is one that the pattern could have named; what hung stands under the pattern itself."""
    return path == pattern or _matches(path, pattern)


def _rows(value: object) -> list[dict[str, Any]]:
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []


def _number(value: object) -> float:
    """What a machine measured, which is never below zero."""
    return float(value) if isinstance(value, (int, float)) and 0 <= value < 1e15 else 0.0


def _matches(path: str, pattern: str) -> bool:
    """As the shell: a star does not reach over a slash, nor to a name that begins with a dot."""
    names, parts = path.split("/"), pattern.split("/")
    return len(names) == len(parts) and all(
        fnmatch.fnmatchcase(name, part) and not (name.startswith(".") and not part.startswith("."))
        for name, part in zip(names, parts, strict=True)
    )
