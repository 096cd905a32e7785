"""Samples of the job's processes, of the host and its cgroup, cheap enough to be taken for weeks."""

from __future__ import annotations

import contextlib
import os
import re
import time
from typing import Any

from gpuclinic.recognise.proc_files import Stat, cgroup_paths, parse_stat

_MOST_PROCESSES = 512
_LOOKED_INTO = 64
"""Processes whose descriptors and bytes are counted, the first ones of the tree."""
_PAGE = 4096
_HOST = re.compile(rb"^(MemTotal|MemAvailable|Shmem|SwapTotal|SwapFree|Dirty):\s+(\d+) kB", re.MULTILINE)
_PRESSURE = re.compile(rb"^(some|full) avg10=([\d.]+)", re.MULTILINE)
_MEMORY = (
    "memory.current", "memory.max", "memory.high", "memory.peak", "memory.swap.max", "memory.events", "memory.events.local",
    "memory.usage_in_bytes", "memory.limit_in_bytes", "memory.max_usage_in_bytes", "memory.failcnt", "memory.oom_control",
)  # fmt: skip
_CGROUP_ROOTS = ("/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/memory")


class Seen:
    """One process of the job. words: /proc/PID/cmdline as it is, secrets and all. first, last: when it was seen, Unix seconds.

    cpu_s: used when last seen. rss_mib: most seen. end: wait status where known, ended: when.
    """

    def __init__(self, stat: Stat, words: bytes, now: float) -> None:
        self.pid = stat.pid
        self.ppid = stat.ppid
        self.name = stat.name
        self.words = words
        self.start = stat.start
        self.first = self.last = now
        self.cpu_s = self.rss_mib = 0.0
        self.end: int | None = None
        self.ended: float | None = None


def read(path: str, most: int = 1 << 16) -> bytes:
    """A file of /proc or /sys; nothing where it cannot be read."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return b""
    try:
        return os.read(handle, most)
    except OSError:
        return b""
    finally:
        os.close(handle)


class Tree:
    """The job and everything that it started, orphans that the front adopted included; who has gone stays listed."""

    def __init__(self, job: int, front: int, helpers: frozenset[int]) -> None:
        self._job = job
        self._front = front
        self._helpers = helpers | {os.getpid(), front}
        self.seen: dict[int, Seen] = {}

    def sample(self, *, deep: bool) -> dict[str, Any]:
        """Sums over the living: processes, threads, CPU seconds, resident MiB, states. deep: new ones are looked for, bytes moved counted."""
        now = time.time()
        living, stats = self._found() if deep or not self.seen else self._known()
        out: dict[str, Any] = {"processes": len(living), "threads": 0, "cpu_s": 0.0, "rss_mib": 0.0, "states": ""}
        for pid in living:
            stat = stats[pid]
            one = self.seen.get(pid)
            if one is None or one.start != stat.start:
                words = read(f"/proc/{pid}/cmdline", 4096)
                one = self.seen[pid] = Seen(stat, words, now)
            one.last, one.cpu_s = now, (stat.user_ticks + stat.system_ticks) / 100
            rss = stat.rss_pages * _PAGE / (1 << 20)
            one.rss_mib = max(one.rss_mib, round(rss, 1))
            if stat.state == "Z":
                one.end, one.ended = stat.wait_status, one.ended or now
            out["threads"] += stat.threads
            out["rss_mib"] += rss
            out["states"] += stat.state
        out["cpu_s"] = round(sum(one.cpu_s for one in self.seen.values()), 2)
        out["rss_mib"] = round(out["rss_mib"], 1)
        out["states"] = out["states"][:64]
        if deep:
            out |= _moved(living[:_LOOKED_INTO])
        return out

    def _known(self) -> tuple[list[int], dict[int, Stat]]:
        """Those that the last deep look found."""
        stats: dict[int, Stat] = {}
        for one in self.seen.values():
            stat = (
                None
                if one.end is not None
                else parse_stat(read(f"/proc/{one.pid}/stat", 1024).decode("utf-8", "replace"))
            )
            if stat is not None and stat.start == one.start:
                stats[one.pid] = stat
        return list(stats), stats

    def _found(self) -> tuple[list[int], dict[int, Stat]]:
        """All of them."""
        stats, children = self._all()
        living = [pid for pid in (self._job, *self._orphans(children)) if pid in stats]
        for pid in living:
            living += [child for child in children.get(pid, ()) if child not in self._helpers]
            if len(living) > _MOST_PROCESSES:
                break
        return living, stats

    def _all(self) -> tuple[dict[int, Stat], dict[int, list[int]]]:
        stats: dict[int, Stat] = {}
        children: dict[int, list[int]] = {}
        with contextlib.suppress(OSError):
            for name in os.listdir("/proc"):  # noqa: PTH208
                if name.isdecimal():
                    data = read(f"/proc/{name}/stat", 1024)
                    if (stat := parse_stat(data.decode("utf-8", "replace"))) is not None:
                        stats[stat.pid] = stat
                        children.setdefault(stat.ppid, []).append(stat.pid)
        return stats, children

    def _orphans(self, children: dict[int, list[int]]) -> list[int]:
        return [pid for pid in children.get(self._front, ()) if pid not in self._helpers and pid != self._job]

    def living(self) -> list[int]:
        """Those that were there at the last look and are there still."""
        return [pid for pid, one in self.seen.items() if one.end is None and os.path.exists(f"/proc/{pid}")]  # noqa: PTH110


def _moved(pids: list[int]) -> dict[str, Any]:
    """Open descriptors, and bytes read and written by system calls (rchar, wchar of proc(5))."""
    descriptors = moved = 0
    known = False
    for pid in pids:
        with contextlib.suppress(OSError):
            descriptors += len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208
        found = re.match(rb"rchar: (\d+)\nwchar: (\d+)", read(f"/proc/{pid}/io", 512))
        if found:
            known = True
            moved += int(found[1]) + int(found[2])
    return {"descriptors": descriptors, "moved_bytes": moved if known else None}


def host() -> dict[str, Any]:
    """Memory, pressure, load and /dev/shm of the machine."""
    out: dict[str, Any] = {f"{m[1].decode()}_mib": int(m[2]) >> 10 for m in _HOST.finditer(read("/proc/meminfo"))}
    for what in ("memory", "cpu", "io"):
        for found in _PRESSURE.finditer(read(f"/proc/pressure/{what}", 512)):
            out[f"{what}_pressure_{found[1].decode()}"] = float(found[2])
    with contextlib.suppress(OSError):
        out["load"] = os.getloadavg()[0]
    with contextlib.suppress(OSError):
        shm = os.statvfs("/dev/shm")  # noqa: S108 - looked at, not used
        out["shm_mib"] = shm.f_blocks * shm.f_frsize >> 20
        out["shm_free_mib"] = shm.f_bavail * shm.f_frsize >> 20
    return out


class Cgroup:
    """The job's cgroup as far as memory goes. It can move into another one (a scheduler does that early on): the newest counts."""

    def __init__(self, pid: int) -> None:
        self._folder = ""
        self.paths: set[str] = set()
        self.began: dict[str, str] = {}
        self.latest: dict[str, str] = {}
        self.look(pid)

    def look(self, pid: int) -> None:
        """Reads it again; a process that is gone leaves the folder known before."""
        paths = cgroup_paths(read(f"/proc/{pid}/cgroup").decode("utf-8", "replace"))
        path = paths.get("memory") or paths.get("", "")
        if len(path) > 1 and ".." not in path:
            folder = next((f"{root}{path}" for root in _CGROUP_ROOTS if _is_memory(f"{root}{path}")), "")
            self.paths.add(path.lower())
            if folder != self._folder:
                self._folder, self.began = folder, {}
        found = (
            {name: read(f"{self._folder}/{name}", 4096).decode("utf-8", "replace").strip() for name in _MEMORY}
            if self._folder
            else {}
        )
        self.latest = {name: text for name, text in found.items() if text} or self.latest
        self.began = self.began or self.latest

    def use(self) -> dict[str, int]:
        """Bytes in use and the limit, for a sample."""
        out: dict[str, int] = {}
        for key, names in (("cgroup_bytes", (_MEMORY[0], _MEMORY[7])), ("cgroup_max_bytes", (_MEMORY[1], _MEMORY[8]))):
            text = next((self.latest[n] for n in names if n in self.latest), "")
            if text.isdecimal() and int(text) < 1 << 62:
                out[key] = int(text)
        return out

    def text(self) -> str:
        """As `head` on its files would print it; what counts events tells those of the job's time alone."""
        lines: list[str] = []
        for name, text in self.latest.items():
            if name == "memory.events" and "memory.events.local" in self.latest:
                continue  # those of its children and its own: the own ones are told
            shown = "memory.events" if name == "memory.events.local" else name
            if name in ("memory.events", "memory.events.local", "memory.oom_control"):
                text = _grown(self.began.get(name, ""), text)
            if text:
                lines += [f"==> {self._folder}/{shown} <==", text]
        return "\n".join(lines) + "\n" if lines else ""


def _is_memory(folder: str) -> bool:
    return bool(read(f"{folder}/{_MEMORY[0]}", 64) or read(f"{folder}/{_MEMORY[7]}", 64))


def _grown(before: str, after: str) -> str:
    """The counters that grew, and by how much.

    >>> _grown("oom 1\\noom_kill 1", "oom 2\\noom_kill 1")
    'oom 1'
    """
    old = dict(line.split()[:2] for line in before.splitlines() if len(line.split()) > 1)
    lines: list[str] = []
    for line in after.splitlines():
        name, _, value = line.partition(" ")
        past = old.get(name, "0")
        if name in ("max", "oom", "oom_kill") and value.isdecimal() and past.isdecimal() and int(value) > int(past):
            lines.append(f"{name} {int(value) - int(past)}")
    return "\n".join(lines)
