"""What makes a process of ours one that stands apart from the job: own session, nothing of the job's held, its own name."""

from __future__ import annotations

import contextlib
import gc
import os
import re
import signal
import sys
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 4, 36


def forked(name: str, work: Callable[[], None], keep: Iterable[int], *, session: bool = True) -> int:
    """Forks a process that does the work and nothing else; its pid. keep: descriptors that it needs, all others are closed.

    All signals are blocked in it. OSError: none can be started.
    """
    sys.stdout and sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    _life(name, work, keep, session=session)
    return None


def _life(name: str, work: Callable[[], None], keep: Iterable[int], *, session: bool) -> NoReturn:
    code = 70
    try:
        gc.disable()
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        if session:
            os.setsid()
        let_go(keep)
        call_it(name)
        work()
        code = 0
    finally:
        os._exit(code)  # nothing may return into the code of the process that was copied


def let_go(keep: Iterable[int]) -> None:
    """Closes every descriptor but those; what is closed of 0 to 2 leads nowhere from then on."""
    kept = set(keep)
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        if standard not in kept and standard != null:
            os.dup2(null, standard)
    try:
        held = [int(name) for name in os.listdir("/proc/self/fd")]  # noqa: PTH208 - not worth importing pathlib
    except OSError:
        held = list(range(4096))
    for handle in held:
        if handle > 2 and handle not in kept:
            with contextlib.suppress(OSError):
                os.close(handle)


def call_it(name: str) -> None:
    """Shows the process under this name, so that `pkill -f` with the job's words finds the job alone. Where /proc refuses, nothing changes."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        with open("/proc/self/comm", "wb") as file:  # noqa: PTH123
            file.write(name.encode()[:15])
        with open("/proc/self/stat", "rb") as file:  # noqa: PTH123
            rest = file.read().rpartition(b")")[2].split()
        start, end = int(rest[45]), int(rest[46])  # arg_start, arg_end: fields 48 and 49 of proc(5)
        room = end - start
        if 16 < room < 1 << 21:
            memory = os.open("/proc/self/mem", os.O_RDWR | os.O_CLOEXEC)
            try:
                os.pwrite(memory, name.encode()[: room - 1].ljust(room, b"\0"), start)
            finally:
                os.close(memory)


def prctl(option: int, value: int) -> bool:
    """prctl(2); whether it worked."""
    import ctypes

    try:
        return int(ctypes.CDLL(None).prctl(option, value, 0, 0, 0)) == 0
    except (OSError, AttributeError):
        return False


def pending(pid: int, number: int) -> bool:
    """Whether a signal waits to be taken by a process (the whole of it, not one of its threads)."""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:  # noqa: PTH123
            found = re.search(rb"^ShdPnd:\s*([0-9a-f]+)", file.read(), re.MULTILINE)
    except OSError:
        return False
    return found is not None and bool(int(found[1], 16) >> (number - 1) & 1)
