"""Signals and nice values for processes: only to the very process that was shown, and never to some."""

from __future__ import annotations

import contextlib
import os
import signal

from gpuclinic.model import CouldNotError
from gpuclinic.top.processes import read_stat

_PF_KTHREAD = 0x00200000
"""include/linux/sched.h: I am a kernel thread."""


def _checked(pid: int, start: int | None, root: str) -> None:
    """Raises CouldNotError where nobody should do anything to it, or it is not the process that was shown."""
    if root:
        raise CouldNotError("these are another machine's files: its processes are not here")
    if pid <= 1:
        raise CouldNotError("never to process 1")
    if pid in (os.getpid(), os.getppid()):
        raise CouldNotError("never to gpuclinic itself or what started it")
    stat = read_stat("", pid)
    if stat is None:
        raise CouldNotError(f"process {pid} is gone")
    if stat.flags & _PF_KTHREAD or stat.ppid == 2 or pid == 2:
        raise CouldNotError(f"{pid} is a thread of the kernel")
    if start is None or stat.start != start:
        raise CouldNotError(f"{pid} is another process now")


def send(pid: int, start: int | None, number: int, root: str = "") -> None:
    """Sends a signal to the process that began at `start` (clock ticks since boot). Raises CouldNotError with why not."""
    try:
        handle = os.pidfd_open(pid) if pid > 1 and not root else -1
    except ProcessLookupError:
        raise CouldNotError(f"process {pid} is gone") from None
    except OSError:
        handle = -1  # a kernel before 5.3
    try:
        _checked(pid, start, root)  # after the descriptor: from here on the number cannot mean another process
        if handle >= 0:
            signal.pidfd_send_signal(handle, number)
        else:
            os.kill(pid, number)
    except ProcessLookupError:
        raise CouldNotError(f"process {pid} is gone") from None
    except PermissionError:
        raise CouldNotError(f"no permission to signal {pid}") from None
    finally:
        if handle >= 0:
            with contextlib.suppress(OSError):
                os.close(handle)


def renice(pid: int, start: int | None, nice: int, root: str = "") -> None:
    """Sets the nice value of that process. Raises CouldNotError with why not."""
    _checked(pid, start, root)
    try:
        os.setpriority(os.PRIO_PROCESS, pid, nice)
    except ProcessLookupError:
        raise CouldNotError(f"process {pid} is gone") from None
    except PermissionError:
        raise CouldNotError(f"no permission to set nice {nice} for {pid}") from None
