"""Passes what the job writes to a pipe or terminal on to where it would have gone, and keeps the tail."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import select
import termios
import time
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from gpuclinic.watch.flight.tail import Tail

_CHUNK = 1 << 20
_FULL, _BUSY = 60 << 10, 8
"""So many reads of so many bytes in a row make a busy stream: its pipe gets as large as one read."""
_ATOMIC = 4096
"""PIPE_BUF of Linux: a write of so many bytes to a pipe is never mixed with those of others (pipe(7))."""
_SETTLE_MS, _SETTLED_S = 20, 0.5
"""What was written to a pseudo-terminal arrives a moment later (the kernel's flip buffers)."""
_TIOCPKT_IOCTL = 64
_EXTPROC = 0o200000
"""Linux asm-generic/termbits.h: with it the kernel tells the master of every change that the slave's users make (tty_ioctl(4), TIOCPKT)."""
FLUSH, WINDOW, DONE = b"f", b"w", b"d"


class Line(NamedTuple):
    """source: where the job's bytes come from. sink: where they go. control: the front's word. done: our answer to it.

    terminal: the source is a pseudo-terminal.
    """

    source: int
    sink: int
    control: int
    done: int
    terminal: bool


def relay(line: Line, tail: Tail) -> None:
    """Passes bytes on until nobody can write any more, or nobody reads: then it ends, and the job learns it as it would have without us."""
    memory = mmap.mmap(-1, _CHUNK)  # page-aligned: the kernel copies into such memory several times faster
    view = memoryview(memory)
    terminal = _Terminal(line) if line.terminal else None
    poll = select.poll()
    poll.register(line.source, select.POLLIN)
    poll.register(line.control, select.POLLIN)
    poll.register(line.sink, 0)
    flush: _Flush | None = None
    full = 0
    while True:
        ready = dict(poll.poll(_SETTLE_MS if flush is not None else None))
        if ready.get(line.sink, 0):
            return  # nobody reads
        size = 0
        if line.source in ready:
            size = _read(line, view)
            if not size:
                return
            start = 0
            if terminal is not None:
                start = 1
                if memory[0]:
                    terminal.news(memory[0])
                    continue
            if not _written(line.sink, memory, view, start, size):
                return
            tail.add(view[start:size])
            full = full + 1 if size >= _FULL else 0
            if full == _BUSY:
                _widen(line)
        if flush is not None and flush.done(size):
            flush = None
            _say(line.done)
        if line.control in ready:
            words = _told(line.control)
            if not words:
                poll.unregister(line.control)  # the front is gone; the job may go on
            if FLUSH in words:
                flush = _Flush(line)
            if WINDOW in words and terminal is not None:
                terminal.resize()
                _say(line.done)


def _widen(line: Line) -> None:
    """Fewer changes of process for a stream that always has more to say; where the user's pipes have enough memory already, no more."""
    if not line.terminal:
        with contextlib.suppress(OSError):
            fcntl.fcntl(line.source, fcntl.F_SETPIPE_SZ, _CHUNK)


class _Flush:
    """What was written before now has to go through; what others write afterwards is not waited for."""

    def __init__(self, line: Line) -> None:
        self._until = time.monotonic() + _SETTLED_S if line.terminal else float("inf")
        waiting = bytearray(4)
        fcntl.ioctl(line.source, termios.FIONREAD, waiting)
        self._left = -1 if line.terminal else int.from_bytes(waiting, "little")

    def done(self, size: int) -> bool:
        """So many bytes went through; 0: there were none."""
        self._left -= size
        return (
            size == 0
            or self._left == 0
            or (self._left < 0 and self._until == float("inf"))
            or time.monotonic() > self._until
        )


def _say(done: int) -> None:
    with contextlib.suppress(OSError):
        os.write(done, DONE)


def _told(control: int) -> bytes:
    try:
        return os.read(control, 64)
    except OSError:
        return b""


def _read(line: Line, view: memoryview) -> int:
    """How many bytes came; 0 at the end."""
    try:
        return os.readv(line.source, [view])
    except OSError as problem:
        if problem.errno == errno.EIO:  # a pseudo-terminal that nobody holds any more
            return 0
        raise


def _written(sink: int, memory: mmap.mmap, view: memoryview, at: int, size: int) -> bool:
    """Writes all of it; lines stay whole where a pipe has several writers. False: nobody reads any more."""
    while at < size:
        end = size
        if size - at > _ATOMIC:
            end = memory.rfind(b"\n", at, at + _ATOMIC) + 1 or size
        try:
            at += os.write(sink, view[at:end])
        except BlockingIOError:
            poll = select.poll()
            poll.register(sink, select.POLLOUT)
            poll.poll()
        except OSError as problem:
            if problem.errno in (errno.EPIPE, errno.EIO, errno.ECONNRESET, errno.ENXIO, errno.EBADF):
                return False
            raise
    return True


class _Terminal:
    """The pseudo-terminal that stands in for the job's own as its output: what the job sets on it is set on the real one, too.

    The real one alone processes output, so that nothing is processed twice; input never passes through here.
    """

    def __init__(self, line: Line) -> None:
        self._master, self._real = line.source, line.sink
        self._last = termios.tcgetattr(self._master)

    def resize(self) -> None:
        """The window has changed."""
        with contextlib.suppress(OSError):
            fcntl.ioctl(self._master, termios.TIOCSWINSZ, fcntl.ioctl(self._real, termios.TIOCGWINSZ, bytes(8)))

    def news(self, kind: int) -> None:
        """The kernel tells of something that is no output."""
        if kind & _TIOCPKT_IOCTL:
            self._mirror()

    def _mirror(self) -> None:
        """Sets on the real terminal what was changed on ours since the last time."""
        with contextlib.suppress(OSError, termios.error):
            now, real = termios.tcgetattr(self._master), termios.tcgetattr(self._real)
            for flags in range(4):
                changed = (now[flags] ^ self._last[flags]) & ~(_EXTPROC if flags == _LOCAL else 0)
                real[flags] = real[flags] & ~changed | now[flags] & changed
            for number, (old, new) in enumerate(zip(self._last[_CHARACTERS], now[_CHARACTERS], strict=True)):
                if old != new:
                    real[_CHARACTERS][number] = new
            termios.tcsetattr(self._real, termios.TCSANOW, real)
            if (
                now[_OUTPUT] & termios.OPOST or not now[_LOCAL] & _EXTPROC
            ):  # only then: the kernel tells us of our own changes, too
                settle(self._master, now)
                now = termios.tcgetattr(self._master)
            self._last = now


def settle(terminal: int, attributes: list[Any]) -> None:
    """Sets them with what a terminal of ours always has: no processing of output, and word of every change."""
    attributes = list(attributes)
    attributes[_OUTPUT] &= ~termios.OPOST
    attributes[_LOCAL] |= _EXTPROC
    termios.tcsetattr(terminal, termios.TCSANOW, attributes)


_OUTPUT, _LOCAL, _CHARACTERS = 1, 3, 6
"""Places in the list of termios.tcgetattr."""
