"""What the watcher itself costs: processor time and memory of its process and all below it."""

from __future__ import annotations

import contextlib
import os
from typing import NamedTuple

_TICKS = float(os.sysconf("SC_CLK_TCK"))
_MOST_PROCESSES = 64


class Cost(NamedTuple):
    """cpu_s: processor seconds since the start, of ended children too. pss_mib: proportional memory, None where it is not told."""

    cpu_s: float
    pss_mib: float | None
    processes: int


def cost(root: int | None = None) -> Cost:
    """The cost of a process (by default ours) and of all that descend from it now."""
    waiting, seen = [root or os.getpid()], 0
    cpu, pss, known = 0.0, 0.0, False
    while waiting and seen < _MOST_PROCESSES:
        pid = waiting.pop()
        seen += 1
        waiting += _children(pid)
        cpu += _cpu_s(pid)
        part = _pss_mib(pid)
        if part is not None:
            known = True
            pss += part
    return Cost(round(cpu, 2), round(pss, 1) if known else None, seen)


def _read(path: str) -> str:
    with contextlib.suppress(OSError), open(path, "rb") as file:  # noqa: PTH123 - many small files
        return file.read(1 << 16).decode("utf-8", "replace")
    return ""


def _children(pid: int) -> list[int]:
    return [int(word) for word in _read(f"/proc/{pid}/task/{pid}/children").split() if word.isdecimal()]


def _cpu_s(pid: int) -> float:
    words = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    times = words[11:15]  # utime, stime, cutime, cstime (proc(5), fields 14 to 17)
    return sum(int(word) for word in times if word.isdecimal()) / _TICKS


def _pss_mib(pid: int) -> float | None:
    for line in _read(f"/proc/{pid}/smaps_rollup").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    return None
