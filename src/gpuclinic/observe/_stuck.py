"""The ledger of children that would not die: a process in uninterruptible sleep inside the driver cannot be killed.

One small file for each device (or stage) names the child that is stuck on it, so that later runs leave that device
alone while the child lives: however often somebody looks, at most one child hangs on a device.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import time
from pathlib import Path
from typing import Any, NamedTuple

from gpuclinic.store import cache_folder

_PREFIX = "nvml-stuck-"
_LARGEST = 4096
_MOST_ENTRIES = 4096
_FORGET_S = 7 * 86400.0


class Stuck(NamedTuple):
    """A child that was killed and lives on.

    subject: "init", "names" or "gpu-3". started: start time in clock ticks since boot (proc(5), stat, field 22).
    since: Unix seconds of the call that it hangs in. call: NVML's function. bus_id: the device's address where it was known.
    """

    subject: str
    pid: int
    started: int
    since: float
    call: str
    bus_id: str | None = None

    def told(self, proc: Path = Path("/proc")) -> dict[str, Any]:
        """What a report shows of it: pid, since, state and wait channel as the kernel gives them now."""
        status = _stat(self.pid, proc)
        return {
            "pid": self.pid,
            "since": round(self.since, 3),
            "state": status[0] if status else None,
            "wchan": _wchan(self.pid, proc),
        }


def _stat(pid: int, proc: Path = Path("/proc")) -> tuple[str, int] | None:
    """State letter and start time of a process; None where there is none."""
    try:
        text = (proc / str(pid) / "stat").read_text("ascii", "replace")
    except OSError:
        return None
    parts = text[text.rfind(")") + 1 :].split()  # the name before it may hold blanks and brackets
    return (parts[0], int(parts[19])) if len(parts) > 19 and parts[19].isdecimal() else None


def waited_for_a_processor(pid: int, proc: Path = Path("/proc")) -> float:
    """Seconds that a process was ready to run and was not let; 0 where the kernel does not count them.

    Source: Linux Documentation/scheduler/sched-stats, second field of /proc/PID/schedstat.
    """
    try:
        return int((proc / str(pid) / "schedstat").read_text("ascii").split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


def _wchan(pid: int, proc: Path = Path("/proc")) -> str | None:
    try:
        text = (proc / str(pid) / "wchan").read_text("ascii", "replace").strip()[:80]
    except OSError:
        return None
    return text if text not in ("", "0") else None


def start_time(pid: int) -> int | None:
    """Start time of a living process in clock ticks since boot; None where there is none."""
    status = _stat(pid)
    return status[1] if status else None


def _boot() -> str:
    """What a pid is valid in: this boot and this pid namespace. A home on a network is shared by many machines."""
    boot, space = "", ""
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii", "replace").strip()[:36]
    with contextlib.suppress(OSError):
        space = os.readlink("/proc/self/ns/pid")[-16:]
    return "".join(c for c in f"{boot}{space}" if c.isalnum())[:48]


def runtime_folder() -> Path | None:
    """Where the ledger lies: XDG_RUNTIME_DIR, else our cache; None where this user has neither."""
    base = os.environ.get("XDG_RUNTIME_DIR") or ""
    if base.startswith("/"):
        folder = _own(Path(base) / "gpuclinic")
        if folder is not None:
            return folder
    cache = cache_folder()
    return _own(cache / "stuck") if cache is not None else None  # the cache drops its oldest files, but no folder


def _own(folder: Path) -> Path | None:
    """The folder, made if need be; None where it is a link or another user's."""
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
        if stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid():
            return folder
    return None


class Ledger:
    """The entries of this user on this machine. folder: None where nothing can be kept."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self._boot = _boot()

    def _path(self, subject: str) -> Path | None:
        return self.folder / f"{_PREFIX}{self._boot}-{subject}.json" if self.folder else None

    def living(self) -> dict[str, Stuck]:
        """The children that still live, by subject. Entries of dead ones are removed, torn and foreign ones passed over."""
        found: dict[str, Stuck] = {}
        if self.folder is None:
            return found
        try:
            names = [n for n in os.listdir(self.folder)[:_MOST_ENTRIES] if n.startswith(_PREFIX)]
        except OSError:
            return found
        for name in names:
            path = self.folder / name
            entry = self._read(path)
            mine = name.startswith(f"{_PREFIX}{self._boot}-")
            if mine and entry is not None and self._path(entry.subject) == path and _lives(entry):
                found[entry.subject] = entry
            elif mine or _old(path):
                with contextlib.suppress(OSError):
                    path.unlink()
        return found

    def _read(self, path: Path) -> Stuck | None:
        try:
            handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_size > _LARGEST:
                return None
            content = json.loads(os.read(handle, _LARGEST))
        except (OSError, ValueError, RecursionError):
            return None
        finally:
            os.close(handle)
        return _entry(content)

    def write(self, entry: Stuck) -> None:
        """Notes a child, whole or not at all; one that is noted for the same subject and lives stays."""
        path = self._path(entry.subject)
        if path is None:
            return
        known = self._read(path)
        if known is not None and known.pid != entry.pid and _lives(known):
            return
        temporary = path.with_name(f"{path.name}.{os.getpid()}")
        with contextlib.suppress(OSError):
            handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                os.write(handle, json.dumps(entry._asdict()).encode("ascii"))
            finally:
                os.close(handle)
            temporary.replace(path)

    def forget(self, entry: Stuck) -> None:
        """The child died after all."""
        path = self._path(entry.subject)
        if path is None:
            return
        known = self._read(path)
        if known is not None and known.pid == entry.pid:
            with contextlib.suppress(OSError):
                path.unlink()


def _lives(entry: Stuck) -> bool:
    status = _stat(entry.pid)
    return status is not None and status[1] == entry.started and status[0] not in "ZX"


def _old(path: Path) -> bool:
    """Left by another boot long ago."""
    try:
        return time.time() - path.lstat().st_mtime > _FORGET_S
    except OSError:
        return False


def _entry(content: object) -> Stuck | None:
    """The entry that a file holds; None where it is none of ours."""
    if not isinstance(content, dict):
        return None
    subject, pid, started = content.get("subject"), content.get("pid"), content.get("started")
    since, call, bus = content.get("since"), content.get("call"), content.get("bus_id")
    if not isinstance(subject, str) or not isinstance(call, str) or not (bus is None or isinstance(bus, str)):
        return None
    if not (isinstance(pid, int) and isinstance(started, int) and isinstance(since, int | float)):
        return None
    if not 1 < int(pid) < 1 << 31 or len(subject) > 40 or not 0 <= since < 1e12:
        return None
    return Stuck(subject, int(pid), int(started), float(since), call[:100], bus[:32] if bus else None)
