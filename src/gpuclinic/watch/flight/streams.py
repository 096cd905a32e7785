"""What the job gets as standard output and error: the file itself, or a pipe or pseudo-terminal that a relay empties."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import stat
from typing import TYPE_CHECKING, Literal

from gpuclinic.watch.flight.apart import forked
from gpuclinic.watch.flight.tail import Tail

if TYPE_CHECKING:
    from collections.abc import Callable

Kind = Literal["file", "relayed", "silent", "closed"]
_WAITS_S = 0.05


class Stream:
    """Standard output (1) or error (2). kind: file: its tail is read from it; relayed: tail has it; silent: nobody looks (/dev/null).

    given: the descriptor that the job gets in its place (-1: its own). control: pipes to and from the relay.
    same: it is the same as standard output, whose tail has both.
    """

    def __init__(self, number: int, kind: Kind) -> None:
        self.number = number
        self.kind = kind
        self.given = -1
        self.tail: Tail | None = None
        self.same = False
        self.terminal = False
        self.relay = 0
        self.control: tuple[int, ...] = ()
        self.begins = 0

    @property
    def name(self) -> str:
        """As people call it."""
        return "stdout" if self.number == 1 else "stderr"


def look(number: int) -> tuple[Stream, os.stat_result | None]:
    """What a standard stream is."""
    try:
        about = os.fstat(number)
    except OSError:
        return Stream(number, "closed"), None
    stream = Stream(number, "silent")
    if stat.S_ISREG(about.st_mode):
        stream.kind, stream.begins = "file", about.st_size
    elif stat.S_ISFIFO(about.st_mode) or stat.S_ISSOCK(about.st_mode):
        stream.kind = "relayed"
    elif os.isatty(number):
        stream.kind, stream.terminal = "relayed", True
    return stream, about


def prepare() -> list[Stream]:
    """Both streams, relays started. Where no relay can be started the job gets the stream itself, and nobody reads along."""
    (out, about_out), (err, about_err) = look(1), look(2)
    with contextlib.suppress(OSError):
        about_in = os.fstat(0)
        for stream, about in ((out, about_out), (err, about_err)):
            if about is not None and stat.S_ISSOCK(about.st_mode) and _same(about, about_in):
                stream.kind = "silent"  # both directions of one connection: the job may ask it for more than writing
    if about_out is not None and about_err is not None and _same(about_out, about_err):
        err.same = True
    for stream in (out, err):
        if stream.kind != "relayed":
            continue
        if stream.same:
            stream.given, stream.kind = out.given, out.kind
            continue
        try:
            _relay(stream)
        except OSError:
            stream.kind = "silent"
    return [out, err]


def _same(one: os.stat_result, other: os.stat_result) -> bool:
    return (one.st_dev, one.st_ino, one.st_rdev) == (other.st_dev, other.st_ino, other.st_rdev)


def _relay(stream: Stream) -> None:
    """Starts the relay of a stream. OSError: it cannot be."""
    from gpuclinic.watch.flight.relay import Line, relay

    tail = Tail()
    source, given = _terminal(stream.number) if stream.terminal else os.pipe2(os.O_CLOEXEC)
    told, tell_ = os.pipe2(os.O_CLOEXEC)
    answer, answered = os.pipe2(os.O_CLOEXEC)
    line = Line(source, stream.number, told, answered, stream.terminal)
    try:
        stream.relay = forked(
            f"gpuclinic-relay {stream.name}", lambda: relay(line, tail), (source, stream.number, told, answered)
        )
    except OSError:
        for end in (given, tell_, answer):
            os.close(end)
        raise
    finally:
        for end in (source, told, answered):
            os.close(end)
    stream.tail, stream.given, stream.control = tail, given, (tell_, answer)


def _terminal(real: int) -> tuple[int, int]:
    """(master, slave) of a pseudo-terminal that looks like the real one."""
    import termios

    from gpuclinic.watch.flight.relay import settle

    master, slave = os.openpty()
    try:
        fcntl.ioctl(slave, termios.TIOCSWINSZ, fcntl.ioctl(real, termios.TIOCGWINSZ, bytes(8)))
        settle(slave, termios.tcgetattr(real))
        fcntl.ioctl(master, termios.TIOCPKT, (1).to_bytes(4, "little"))
    except (OSError, termios.error) as problem:
        os.close(master)
        os.close(slave)
        raise OSError(str(problem)) from problem
    return master, slave


def tell(stream: Stream, word: bytes, until: Callable[[], bool]) -> None:
    """Says something to a relay and waits for it to be done, until the relay is gone or the caller has enough."""
    if not stream.control:
        return
    told, answer = stream.control
    with contextlib.suppress(OSError):
        os.write(told, word)
        poll = select.poll()
        poll.register(answer, select.POLLIN)
        while not until():
            if poll.poll(_WAITS_S * 1000):
                os.read(answer, 64)
                return


def resized(streams: list[Stream], job: int) -> None:
    """The terminal's window has changed: the job's view of it, too; and the job is told once more, for it may have looked too early."""
    mine = [stream for stream in streams if stream.terminal and stream.control]
    from gpuclinic.watch.flight.relay import WINDOW

    tries = iter(range(4))
    for stream in mine:
        tell(stream, WINDOW, lambda: next(tries, None) is None)
    if mine:
        with contextlib.suppress(OSError):
            os.kill(job, signal.SIGWINCH)
