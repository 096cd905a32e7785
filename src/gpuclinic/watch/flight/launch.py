"""Starts the job as it would have been started without us: same environment, signals, descriptors, folder; found as a shell finds it."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
from typing import TYPE_CHECKING, NamedTuple, NoReturn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuclinic.watch.flight.streams import Stream

FAILED, CANNOT_RUN, NOT_FOUND = 125, 126, 127
"""Exit codes: ours before the start; as POSIX shells have them: found but not runnable, not found."""
_USUAL_PATH = b"/bin:/usr/bin"
_RESTORED = (signal.SIGPIPE, signal.SIGXFSZ)
"""The interpreter switches these off when it starts; who started us hardly had."""


class Inherited(NamedTuple):
    """What we were started with. ignored: signals that were switched off. closed: of the standard streams, those that were."""

    environment: dict[bytes, bytes]
    mask: frozenset[int]
    ignored: frozenset[int]
    closed: tuple[int, ...]


def inherited() -> Inherited:
    """Taken before anything of ours changes it. The environment is the kernel's copy, since the interpreter may have set a locale."""
    ignored = {
        number for number in signal.valid_signals() - set(_RESTORED) if signal.getsignal(number) is signal.SIG_IGN
    }
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    closed = tuple(number for number in (0, 1, 2) if not _open(number))
    for _ in closed:
        os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)  # takes the lowest free number, so that no pipe of ours gets it
    return Inherited(_environment(), frozenset(mask), frozenset(ignored), closed)


def _open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def _environment() -> dict[bytes, bytes]:
    try:
        with open("/proc/self/environ", "rb") as file:  # noqa: PTH123
            data = file.read()
    except OSError:
        return dict(os.environb)
    pairs = (item.partition(b"=") for item in data.split(b"\0") if b"=" in item[1:])
    found: dict[bytes, bytes] = {}
    for name, _, value in pairs:
        found.setdefault(name, value)
    return found or dict(os.environb)


def start(command: Sequence[str], ours: Inherited, streams: Sequence[Stream]) -> tuple[int, int]:
    """(pid, 0) of the job, or (0, exit code) where it cannot be started and why was said. OSError: no process can be started."""
    read, write = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        _become(command, ours, streams, write)
    os.close(write)
    with os.fdopen(read, "rb") as answer:
        told = answer.read(16)
    if not told:
        return pid, 0
    os.waitpid(pid, 0)
    number = int(told)
    return 0, NOT_FOUND if number in (errno.ENOENT, errno.ENOTDIR) else CANNOT_RUN if number != -1 else FAILED


def _become(command: Sequence[str], ours: Inherited, streams: Sequence[Stream], write: int) -> NoReturn:
    """The child: puts everything back and becomes the job; tells the reason where it cannot."""
    number = -1
    try:
        for stream in streams:
            if stream.given >= 0:
                os.dup2(stream.given, stream.number)
        for closed in ours.closed:
            os.close(closed)
        put_back(ours)
        number = replaced(command, ours.environment)
    finally:
        with contextlib.suppress(OSError):
            os.write(write, b"%d" % number)
        os._exit(FAILED)


def put_back(ours: Inherited) -> None:
    """Signals as we were started with them; those of the interpreter are forgotten."""
    for one in signal.valid_signals() - ours.ignored - {signal.SIGKILL, signal.SIGSTOP}:
        if signal.getsignal(one) not in (signal.SIG_DFL, None):
            signal.signal(one, signal.SIG_DFL)
    for number in ours.ignored:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ours.mask)


def replaced(command: Sequence[str], environment: dict[bytes, bytes]) -> int:
    """Becomes the command; returns the error number where it cannot. Looks for it as execvp(3) does."""
    words = [os.fsencode(word) for word in command]
    name = words[0]
    places = [name]
    if b"/" not in name:
        path = environment.get(b"PATH", _USUAL_PATH)
        places = [(folder or b".") + b"/" + name for folder in path.split(b":")] if name else []
    worst = errno.ENOENT
    for place in places:
        try:
            os.execve(place, words, environment)  # noqa: S606 - what we are for
        except OSError as problem:
            number = problem.errno or errno.EINVAL
        except ValueError:
            return errno.EINVAL
        if number == errno.ENOEXEC:
            with contextlib.suppress(OSError):
                os.execve(b"/bin/sh", [b"sh", place, *words[1:]], environment)  # noqa: S606
        if number not in (errno.ENOENT, errno.ENOTDIR):
            worst = number
            if number != errno.EACCES:
                break
    return worst


def same_end(status: int) -> NoReturn:
    """Ends this process as the wait status says: with the exit code, or of the same signal; without a core of our own."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        import resource

        from gpuclinic.watch.flight.apart import PR_SET_DUMPABLE, prctl

        prctl(PR_SET_DUMPABLE, 0)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
        os.kill(os.getpid(), number)
        os._exit(128 + number)  # the first process of a container cannot be killed from inside
    os._exit(os.WEXITSTATUS(status))
