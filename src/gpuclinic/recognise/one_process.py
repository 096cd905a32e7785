"""What /proc tells of one process: its files become the facts `process`, `kernel_stack`, `asked_process` and `death`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from gpuclinic.knowledge.codes import by_code
from gpuclinic.knowledge.waiting_calls import waiting_calls
from gpuclinic.model import Fact, Scalar, Where, digits
from gpuclinic.recognise.making import whole
from gpuclinic.recognise.parsers.processes import miner_points, program_of
from gpuclinic.recognise.proc_files import Stat, ended_by
from gpuclinic.recognise.secrets import masked_cmdline

if TYPE_CHECKING:
    from collections.abc import Iterable

_PAGE_KIB = 4
_PYTHON = re.compile(r"python|torchrun|deepspeed|ray::|vllm|sglang|accelerate|pt_main_thread", re.IGNORECASE)
STATES = {
    "R": "running", "S": "sleeping", "D": "uninterruptible", "T": "stopped", "t": "traced", "Z": "zombie", "X": "dead", "I": "idle",
}  # fmt: skip


def parse_status(text: str) -> dict[str, str]:
    """The "Name:	value" lines of /proc/PID/status."""
    pairs = (line.partition(":") for line in text.splitlines())
    return {name: value.strip() for name, colon, value in pairs if colon}


def signal_name(number: int) -> str:
    """SIGKILL for 9; "signal 40" for one without a name."""
    found = by_code("signal", number)
    return found[0].plain_name if found else f"signal {number}"


def command_line(data: bytes) -> str:
    """The words of /proc/PID/cmdline, as a shell would show them, secrets hidden."""
    return masked_cmdline(data).rstrip(b"\0").replace(b"\0", b" ").decode("utf-8", "replace")[:1000]


def parse_call(text: str, machine: str) -> tuple[str | None, int | None]:
    """(name of the call a process is in, the file descriptor it is on) from /proc/PID/syscall.

    >>> parse_call("0 0x3 0x7ffd 0x1 0x0 0x0 0x0 0x7ffd 0x7f94", "x86_64")
    ('read', 3)
    """
    words = text.split()
    if not words or not words[0].isdecimal():
        return (words[0] if words else None), None
    number = digits(words[0])
    name = waiting_calls().get((machine, -1 if number is None else number), f"system call {words[0][:20]}")
    on = whole(words[1], 16) if name in _ON_A_DESCRIPTOR and len(words) > 1 else None
    return name, on if on is not None and on < 1 << 20 else None


_ON_A_DESCRIPTOR = frozenset(
    (
        "read", "write", "readv", "writev", "recvfrom", "recvmsg", "sendto", "sendmsg", "accept", "accept4", "connect", "ioctl", "fsync",
        "flock", "pread64", "pwrite64", "epoll_wait", "epoll_pwait", "fdatasync", "splice",
    )
)  # fmt: skip


class View(msgspec.Struct):
    """The files of one process (or thread), as far as they could be read; command: as command_line gives it."""

    stat: Stat
    source: str
    text: str
    status: dict[str, str] = {}
    command: str = ""
    wchan: str = ""
    user: str | None = None
    cgroup: str = ""


def process_fact(view: View, *, now: float, boot: float, ticks: int = 100) -> Fact:
    """A fact `process` (docs/facts.md), as ps would give it. now, boot: Unix seconds; ticks: clock ticks a second."""
    stat = view.stat
    shown = view.command or f"[{stat.name}]"
    wchan = view.wchan if view.wchan not in ("", "0") else None
    fields: dict[str, Scalar] = {
        "pid": stat.pid, "ppid": stat.ppid, "user": view.user, "state": stat.state, "command": shown,
        "program": program_of(view.command) if view.command else stat.name, "rss_mib": stat.rss_pages * _PAGE_KIB / 1024,
        "wchan": wchan, "etime_s": max(0.0, now - boot - stat.start / ticks), "cpu_s": (stat.user_ticks + stat.system_ticks) / ticks,
        "threads": stat.threads, "cgroup": view.cgroup or None, "zombie": stat.state == "Z", "uninterruptible": stat.state == "D",
        "stopped": stat.state in ("T", "t"), "kernel_thread": bool(stat.flags & 0x200000), "python": bool(_PYTHON.search(shown)),
        "miner": miner_points(view.command),
    }  # fmt: skip
    line = Where(
        view.source, 1, f"pid {stat.pid} ({stat.name}) state {stat.state} {STATES.get(stat.state, '')} ppid {stat.ppid}"
    )
    places = {"": line, "state": line}
    if wchan:
        places["wchan"] = places[""] = Where(
            view.source.rsplit("/", 1)[0] + "/wchan", 1, f"{line.text}, waits in {wchan}"
        )
    return _fact("process", str(stat.pid), fields, places, view.source)


def death_fact(
    pid: int, wait_status: int | None, recorder: str, place: Where, *, name: str | None = None, signal: int | None = None,
    exit_code: int | None = None, **more: Scalar,
) -> Fact:  # fmt: skip
    """A fact `death`: who recorded how a process ended. wait_status as wait(2) gives it, or signal or exit_code themselves."""
    if wait_status is not None:
        signal, exit_code = ended_by(wait_status)
    fields: dict[str, Scalar] = {
        "pid": pid, "name": name, "recorder": recorder, "signal": signal, "exit_code": exit_code,
        "signal_name": signal_name(signal) if signal else None, **more,
    }  # fmt: skip
    return _fact("death", str(pid), fields, {"": place}, place.source)


def _fact(kind: str, key: str, fields: dict[str, Scalar], places: dict[str, Where], source: str) -> Fact:
    return Fact(kind, key, {k: v for k, v in fields.items() if v is not None}, places, source)


def families(stats: Iterable[Stat], pid: int) -> list[int]:
    """The process and all its descendants, nearest first."""
    children: dict[int, list[int]] = {}
    for stat in stats:
        children.setdefault(stat.ppid, []).append(stat.pid)
    found = [pid]
    for parent in found:
        found += [child for child in children.get(parent, ()) if child not in found]
        if len(found) > 5000:
            break
    return found
