"""What /proc says of the processes on GPUs, at every tick: little, and only of those."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE_MIB = os.sysconf("SC_PAGE_SIZE") / (1 << 20)
_MOST = 400
_LARGEST = 4096


class Stat(NamedTuple):
    """/proc/PID/stat as proc_pid_stat(5) has it. start: clock ticks since boot. cpu_s: user and system. flags: the kernel's PF_*."""

    name: str
    state: str
    ppid: int
    flags: int
    cpu_s: float
    nice: int
    start: int
    rss_mib: float


class ProcessNow(NamedTuple):
    """A process at this moment. cpu_pct: of one processor, since the reading before."""

    state: str
    ppid: int
    user: str
    command: str
    cpu_pct: float | None
    rss_mib: float
    age_s: float | None
    nice: int
    start: int


class _Kept(NamedTuple):
    start: int
    cpu_s: float
    at: float
    command: str
    user: str


def read_stat(root: str, pid: int) -> Stat | None:
    """The stat line of a process; None where there is none, or none that can be read."""
    data = _head(f"{root}/proc/{pid}/stat")
    before, bracket, after = data.rpartition(")")
    cells = after.split()
    if not bracket or len(cells) < 22:
        return None
    name = before.partition("(")[2]
    try:
        return Stat(
            name, cells[0], int(cells[1]), int(cells[6]), (int(cells[11]) + int(cells[12])) / _TICKS, int(cells[16]),
            int(cells[19]), int(cells[21]) * _PAGE_MIB,
        )  # fmt: skip
    except ValueError:
        return None


def _head(path: str) -> str:
    """The beginning of a file of /proc; "" where it cannot be read."""
    try:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - text paths, many of them a second
            return (file.read(_LARGEST) or b"").decode("utf-8", "replace")
    except OSError:
        return ""


class Processes:
    """Reads them again and again. root: where the machine's files are ("" for here)."""

    def __init__(self, root: str = "") -> None:
        self._root = root
        self._kept: dict[int, _Kept] = {}
        self._users: dict[int, str] = {}

    def read(self, pids: Iterable[int]) -> dict[int, ProcessNow]:
        """Those that are there."""
        out: dict[int, ProcessNow] = {}
        kept: dict[int, _Kept] = {}
        up = self._up_s()
        for pid in sorted(pids)[:_MOST]:
            stat = read_stat(self._root, pid)
            if stat is None:
                continue
            before = self._kept.get(pid)
            moment = time.monotonic()
            cpu = None
            if before is not None and before.start == stat.start:
                command, user = before.command, before.user
                if moment > before.at:
                    cpu = max(0.0, 100 * (stat.cpu_s - before.cpu_s) / (moment - before.at))
            else:
                command, user = self._command(pid) or f"[{stat.name}]", self._user(pid)
            kept[pid] = _Kept(stat.start, stat.cpu_s, moment, command, user)
            age = max(0.0, up - stat.start / _TICKS) if up is not None else None
            out[pid] = ProcessNow(stat.state, stat.ppid, user, command, cpu, stat.rss_mib, age, stat.nice, stat.start)
        self._kept = kept
        return out

    def _up_s(self) -> float | None:
        first = _head(f"{self._root}/proc/uptime").partition(" ")[0]
        try:
            return float(first)
        except ValueError:
            return None

    def _command(self, pid: int) -> str:
        return _head(f"{self._root}/proc/{pid}/cmdline").rstrip("\0").replace("\0", " ")

    def _user(self, pid: int) -> str:
        for line in _head(f"{self._root}/proc/{pid}/status").splitlines():
            if line.startswith("Uid:"):
                word = line.split()[1]
                return self._name(int(word)) if word.isdecimal() else ""
        return ""

    def _name(self, uid: int) -> str:
        if uid not in self._users:
            self._users[uid] = _user_name(uid) if not self._root else ""
        return self._users[uid]


def _user_name(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
