"""A machine of which a test says what it answers."""

from __future__ import annotations

import errno
import fnmatch
import json
from typing import Any

from gpuclinic.observe.asking import MOST_BYTES, Answer

NOW = 1_772_424_000.0  # 2026-03-02 04:00:00 UTC
UP = 864_000.0


class FakeAsked:
    """files: path to text or errno. commands: beginning of a command line to what it prints, or an exception-like reason "!why"."""

    def __init__(
        self, files: dict[str, Any] | None = None, commands: dict[str, str] | None = None, *, live: bool = True
    ) -> None:
        self.label, self.live, self.now = "node17", live, NOW
        self.asked: list[str] = []
        self._files: dict[str, Any] = {
            "/proc/uptime": f"{UP} 1.0\n",
            "/proc/loadavg": "0.1 0.1 0.1 1/900 99000\n",
            "/proc/sys/kernel/pid_max": "4194304\n",
            "/proc/stat": "cpu 1 2 3\nprocesses 5000000\n",
            "/dev/kmsg": "6,1,1000,-;Linux version 6.8.0-45-generic\n",
            **(files or {}),
        }
        self._commands = commands or {}
        self.nvml_answer = Answer("nvml", why="NVML is not asked here")

    def file(self, path: str, most: int = MOST_BYTES, *, end: bool = False) -> Answer:
        held = self._files.get(path)
        if held is None:
            return Answer(f"file {path}", why="No such file or directory", code=errno.ENOENT)
        if isinstance(held, int):
            return Answer(f"file {path}", why="Permission denied", code=held)
        data = held if isinstance(held, bytes) else str(held).encode()
        return Answer(f"file {path}", data[-most:] if end else data[:most])

    def files(self, pattern: str, most: int = 1 << 16) -> dict[str, Answer]:
        return {path: self.file(path, most) for path in self._files if fnmatch.fnmatchcase(path, pattern)}

    def listing(self, path: str) -> Answer:
        names = {p[len(path) :].lstrip("/").split("/")[0] for p in self._files if p.startswith(path.rstrip("/") + "/")}
        if not names:
            return Answer(f"listing {path}", why="No such file or directory", code=errno.ENOENT)
        return Answer(f"listing {path}", "\n".join(sorted(names)).encode())

    def link(self, path: str) -> Answer:
        return self.file(path)

    def links(self, pattern: str) -> dict[str, str]:
        return {path: answer.text for path, answer in self.files(pattern).items()}

    def find(self, start: str, names: list[str], *, depth: int = 4, most: int = 5000, seconds: float = 0.3) -> Answer:
        found = [
            p for p in self._files if p.rpartition("/")[2] in names and fnmatch.fnmatchcase(p, start.rstrip("/") + "/*")
        ]
        if not found:
            return Answer(f"find {start}", why="No such file or directory", code=errno.ENOENT)
        return Answer(f"find {start}", json.dumps({"found": found, "folders": 1, "refused": [], "cut": None}).encode())

    def untrusted(self, paths: list[str], most: int = 1 << 16) -> dict[str, Answer]:
        return {path: self.file(path, most) for path in paths}

    def stat(self, path: str) -> Answer:
        if path not in self._files:
            return Answer(f"stat {path}", why="No such file or directory", code=errno.ENOENT)
        about = {"kind": "file", "mode": "0644", "uid": 0, "gid": 0, "size": 1, "mtime": NOW - 60}
        return Answer(f"stat {path}", json.dumps(about).encode())

    def space(self, path: str) -> Answer:
        return Answer(f"space {path}", why="not known here", code=errno.ENOENT)

    def command(self, *argv: str, deadline: float = 2.0, most: int = MOST_BYTES) -> Answer:
        line = " ".join(argv)
        self.asked.append(line)
        key = max((k for k in self._commands if line.startswith(k)), key=len, default=None)
        if key is None:
            return Answer(f"command {line}", why=f"{argv[0]} is not installed")
        text = self._commands[key]
        if text.startswith("!"):
            return Answer(f"command {line}", why=text[1:], code=1)
        return Answer(f"command {line}", text.encode()[:most])

    def expect(self, commands: list[tuple[str, ...]]) -> None:
        pass

    def nvml(self, *, deep: bool = False, sample: int = 0) -> Answer:
        return self.nvml_answer

    def clock(self) -> float:
        return self.now

    def wait(self, seconds: float) -> None:
        pass

    def close(self) -> None:
        pass


def kmsg(*lines: str, before: float = 120.0) -> str:
    """Records of /dev/kmsg, the first so many seconds before now."""
    start = (UP - before) * 1e6
    return "".join(f"3,{n},{start + n:.0f},-;{line}\n" for n, line in enumerate(lines))
