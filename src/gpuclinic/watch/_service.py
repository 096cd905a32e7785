"""What a service owes the machine it runs on: one at a time, signals heard at once, and word to systemd."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import time
from typing import TYPE_CHECKING

from gpuclinic.model import CouldNotError

if TYPE_CHECKING:
    from pathlib import Path

LOCK = "agent.lock"


class Lock:
    """Held while an agent runs; the kernel lets go of it however the agent ends. Raises CouldNotError where another holds it."""

    def __init__(self, folder: Path) -> None:
        path = folder / LOCK
        try:
            self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        except OSError as problem:
            raise CouldNotError(f"{path}: {problem.strerror or problem}") from problem
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as problem:
            holder = os.read(self._handle, 20).decode("ascii", "replace").strip()
            os.close(self._handle)
            who = f"process {holder}" if holder.isdecimal() else "another process"
            raise CouldNotError(f"the agent runs already ({who} holds {path})") from problem
        with contextlib.suppress(OSError):  # the number is only for people
            os.ftruncate(self._handle, 0)
            os.write(self._handle, f"{os.getpid()}\n".encode())

    def release(self) -> None:
        """Lets go."""
        os.close(self._handle)


class Signals:
    """SIGTERM, SIGINT and SIGHUP as things asked of the agent, which a sleep can be woken by. ends, reload: what was asked."""

    def __init__(self) -> None:
        self.ends = self.reload = False
        self._read, self._write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._heard)

    def _heard(self, number: int, frame: object) -> None:  # noqa: ARG002 - as signal handlers are called
        if number == signal.SIGHUP:
            self.reload = True
        else:
            self.ends = True

    def fileno(self) -> int:
        """Readable when a signal has come."""
        return self._read

    def heard(self) -> None:
        """Empties what wakes."""
        with contextlib.suppress(BlockingIOError):
            while os.read(self._read, 64):
                pass


class Systemd:
    """Tells systemd how the service is (sd_notify(3)); nothing where it was not started by it."""

    def __init__(self) -> None:
        self._path = os.environ.get("NOTIFY_SOCKET", "")
        self._socket: socket.socket | None = None
        if self._path[:1] in ("/", "@"):
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
            self._socket.setblocking(False)
        every = os.environ.get("WATCHDOG_USEC", "")
        meant = os.environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        self.watchdog = every.isdecimal() and meant

    def tell(self, text: str) -> None:
        """Sends assignments, one a line ("READY=1")."""
        if self._socket is None:
            return
        address = "\0" + self._path[1:] if self._path.startswith("@") else self._path
        with contextlib.suppress(OSError):  # a manager that does not listen is no fault of ours
            self._socket.sendto(text.encode(), address)

    def ready(self, status: str) -> None:
        """The service is up."""
        self.tell(f"READY=1\nSTATUS={status}")

    def reloading(self) -> None:
        """The configuration is being read again."""
        self.tell(f"RELOADING=1\nMONOTONIC_USEC={int(time.monotonic() * 1e6)}")

    def alive(self) -> None:
        """The loop goes round."""
        if self.watchdog:
            self.tell("WATCHDOG=1")
