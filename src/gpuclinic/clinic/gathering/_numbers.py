"""Whether a process number can have belonged to a process of this boot."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from gpuclinic.observe.asking import Asked

_RESERVED = 300
"""Numbers below are given out once, to the kernel's threads and the first programs of a boot."""


class Numbers(msgspec.Struct):
    """How process numbers were given out since boot: in order up to most, then again from 300 on (Linux kernel/pid.c, RESERVED_PIDS).

    newest: given last. most: pid_max. started: processes and threads since boot, of all containers. highest: of those that live.
    first: the machine's own first processes are seen, so that this is no container with numbers of its own.
    """

    newest: int | None
    most: int | None
    started: int | None
    highest: int
    first: bool

    def never_given(self, pid: int) -> bool:
        """Above all that were given out, and they never began anew, as far as can be seen."""
        if self.newest is None or self.most is None or self.started is None or self.started >= self.most - 1:
            return False
        return pid > self.newest and self.highest <= self.newest + 1

    def given(self, pid: int) -> str:
        """What shows that some process or thread of this boot had the number, long after the boot's first moments; nothing where nothing does."""
        if self.first and pid < _RESERVED:
            return ""
        if self.newest is not None and pid <= self.newest:
            return f"the newest pid is {self.newest}, and they are given out in order"
        if self.first and self.started is not None and self.most is not None and self.started >= 2 * self.most:
            return f"{self.started} processes and threads have begun since boot, and pids end at {self.most}"
        return ""


def numbers_of(host: Asked) -> Numbers:
    """What the machine tells of the numbers that it gave out."""
    last = host.file("/proc/loadavg", 256).line.split()
    started = re.search(r"^processes (\d{1,18})$", host.file("/proc/stat", 1 << 20).text, re.MULTILINE)
    most = host.file("/proc/sys/kernel/pid_max", 64).line
    names = [int(name) for name in host.listing("/proc").lines() if name.isdecimal() and len(name) < 9]
    return Numbers(
        int(last[4]) if len(last) > 4 and last[4].isdecimal() and len(last[4]) < 9 else None,
        int(most) if most.isdecimal() and len(most) < 9 else None,
        int(started[1]) if started else None,
        max(names, default=0),
        "(kthreadd)" in host.file("/proc/2/stat", 4096).text,
    )
