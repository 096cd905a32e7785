"""Questions that a check asks of a machine, and what an answer to one is: bytes, or "could not look, because ..."."""

from __future__ import annotations

import json
import re
from typing import Any, Protocol

import msgspec

MOST_BYTES = 1 << 20
"""What a file or a command may give at most, unless the question says otherwise."""

LATEST = 250_000_000_000.0
"""Unix seconds in the year 9892: later ones cannot be written as a date in every time zone, and no machine tells them."""


class Answer(msgspec.Struct, frozen=True):
    """What a machine answered.

    question: as recorded ("file /proc/modules", "command dmesg --raw", "nvml").
    data: what was read. why: the reason where nothing could be read; never both None and untrue.
    code: a command's return code, or the errno of a refusal. seconds: how long it took. at: Unix time when it was asked.
    sample: 0 for the first time that this was asked, 1 for the next. cut: more was there than was taken.
    place: the file of a snapshot that holds what a command printed ("commands/dmesg.txt"); "" where the command itself was asked.
    """

    question: str
    data: bytes = b""
    why: str | None = None
    code: int | None = None
    seconds: float = 0.0
    at: float = 0.0
    sample: int = 0
    cut: bool = False
    place: str = ""

    def named(self, otherwise: str) -> str:
        """What to call the source of this answer: the file that was read, else a name for the command."""
        return self.place or otherwise

    @property
    def ok(self) -> bool:
        """Something was answered, be it nothing at all."""
        return self.why is None

    @property
    def text(self) -> str:
        """The data as text, whatever its bytes."""
        return self.data.decode("utf-8", "replace")

    @property
    def line(self) -> str:
        """The first line, as single-valued files of /proc and /sys hold it."""
        return self.text.partition("\n")[0].strip()

    def lines(self) -> list[str]:
        """The lines that are not empty."""
        return [line for line in self.text.splitlines() if line.strip()]

    def json(self) -> dict[str, Any]:
        """The object that the data hold; empty where it is none."""
        try:
            value = json.loads(self.data)
        except (ValueError, RecursionError):
            return {}
        return value if isinstance(value, dict) else {}


class Asked(Protocol):
    """A machine that can be asked: the running server, a snapshot, a recording that is replayed.

    Every question comes back within its deadline. Paths are those of the examined machine.
    """

    label: str
    live: bool

    def file(self, path: str, most: int = MOST_BYTES, *, end: bool = False) -> Answer:
        """The beginning of a file, or its end."""

    def files(self, pattern: str, most: int = 1 << 16) -> dict[str, Answer]:
        """All files that a shell pattern names ("/sys/class/net/*/mtu"), each with its answer; at most some thousands."""

    def listing(self, path: str) -> Answer:
        """The names in a folder, sorted, one a line."""

    def link(self, path: str) -> Answer:
        """Where a symbolic link leads, as it is written."""

    def links(self, pattern: str) -> dict[str, str]:
        """Where all symbolic links lead that a pattern names."""

    def find(self, start: str, names: list[str], *, depth: int = 4, most: int = 5000, seconds: float = 0.3) -> Answer:
        """A JSON object: found (paths at or below start that end in one of the names), folders (how many were opened), refused, cut.

        start may be a shell pattern that names many folders. No link is followed; see observe/_walk.py for the limits.
        """

    def untrusted(self, paths: list[str], most: int = 1 << 16) -> dict[str, Answer]:
        """Files in folders where others may put links: what a link leads to is refused where the link's owner could not read it."""

    def stat(self, path: str) -> Answer:
        """A JSON object: kind (file, folder, link, character, block, fifo, socket), mode (octal text), uid, gid, size, mtime, major, minor."""

    def space(self, path: str) -> Answer:
        """A JSON object of the file system under a path: size, free, available (bytes), files, files_free."""

    def command(self, *argv: str, deadline: float = 2.0, most: int = MOST_BYTES) -> Answer:
        """What a program prints on standard output; `code` is its status, `why` tells that it is absent or was given up."""

    def expect(self, commands: list[tuple[str, ...]]) -> None:
        """Says which commands will be asked for, so that they can run beside one another."""

    def begin_nvml(self, *, deep: bool = False) -> None:
        """Says that NVML will be asked, so that it can begin beside other questions."""

    def nvml(self, *, deep: bool = False, sample: int = 0) -> Answer:
        """NVML's view of all GPUs as JSON (docs/nvml.md)."""

    def clock(self) -> float:
        """Unix time on the examined machine when it was asked."""

    def wait(self, seconds: float) -> None:
        """Lets time pass between two samples; a replay does not."""

    def close(self) -> None:
        """Gives up what still runs."""


def slug(argv: tuple[str, ...] | list[str]) -> str:
    """The name under which a snapshot keeps what a command printed: "nvidia-smi -q -x" is nvidia-smi-q-x."""
    return re.sub(r"[^A-Za-z0-9_.]+", "-", " ".join(argv)).strip("-")[:120]
