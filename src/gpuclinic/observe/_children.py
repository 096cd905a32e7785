"""Children of ours: what ties one to its parent is cut, the dead are collected, and what they started ends with us."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import time

CHILD = b"gpuclinic-child"
"""How our processes are named to the kernel, so that what becomes of them is not taken for the death of somebody's job."""
_LEFT: list[int] = []
"""Children of this process that were killed and are not collected yet."""


def reap(patience: float) -> None:
    """Collects children that died, for so many seconds at most."""
    until = time.monotonic() + patience
    while _LEFT:
        for pid in list(_LEFT):
            with contextlib.suppress(ChildProcessError):
                if os.waitpid(pid, os.WNOHANG)[0] == 0:
                    continue
            _LEFT.remove(pid)
        if not _LEFT or time.monotonic() >= until:
            return
        time.sleep(0.001)


def give_up(pid: int, patience: float) -> None:
    """Kills a child; one in uninterruptible sleep is left, and looked for again at the next occasion."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    _LEFT.append(pid)
    reap(patience)


def settle(*kept: int) -> None:
    """Called in a forked child: it keeps only these descriptors, since one that hangs must not hold a pipe that somebody reads to its end."""
    gc.disable()
    with contextlib.suppress(OSError), open("/proc/self/comm", "wb", 0) as name:  # noqa: PTH123 - pathlib allocates much
        name.write(CHILD)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGALRM, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    with contextlib.suppress(OSError):
        os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    try:
        held = [int(name) for name in os.listdir("/proc/self/fd") if name.isdecimal()]
    except OSError:
        held = list(range(256))
    for handle in held:
        if handle > 2 and handle not in kept:
            with contextlib.suppress(OSError):
                os.close(handle)


class Keeper:
    """A process that only waits for ours to end, however it ends, and then kills the groups of programs that ours still had running.

    Programs run in sessions of their own, so that they can be given up with all they started: nothing else would end them after SIGKILL.
    Where no process can be started there is none.
    """

    def __init__(self) -> None:
        self._pid = 0
        self._pipe = -1

    def add(self, group: int) -> None:
        """A program was started as the leader of this group."""
        if not self._pid:
            self._start()
        self._tell(f"+{group}\n")

    def drop(self, group: int) -> None:
        """The program has ended."""
        self._tell(f"-{group}\n")

    def close(self) -> None:
        """Lets the process go; it kills what is left."""
        if self._pid:
            os.close(self._pipe)
            _LEFT.append(self._pid)
            self._pid, self._pipe = 0, -1
            reap(0.05)

    def _tell(self, line: str) -> None:
        if self._pid:
            with contextlib.suppress(OSError):
                os.write(self._pipe, line.encode())

    def _start(self) -> None:
        try:
            read, write = os.pipe()
        except OSError:
            return
        try:
            pid = os.fork()
        except OSError:
            os.close(read)
            os.close(write)
            return
        if pid == 0:
            try:
                settle(read)
                _keep(read)
            finally:
                os._exit(0)
        os.close(read)
        self._pid, self._pipe = pid, write


def _keep(told: int) -> None:
    """Reads which groups run until nobody is left to tell; then ends those that do."""
    groups: set[int] = set()
    with os.fdopen(told, "rb") as lines:
        for line in lines:
            number = int(line[1:])
            (groups.add if line[:1] == b"+" else groups.discard)(number)
    for group in groups:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)
