"""Tells a signal to the whole process group, which the job has got too, from one to the front alone, which has to be passed on."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time

from gpuclinic.watch.flight.apart import forked, pending

NOT_PASSED_ON = frozenset(
    {
        signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD, signal.SIGPIPE, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE,
        signal.SIGILL, signal.SIGTRAP, signal.SIGSYS, signal.SIGWINCH,
    }
)  # fmt: skip
"""SIGWINCH goes its own way (streams.resized); the others cannot be caught or are of the process that they befall."""
_PATIENCE_S = 0.04
_STEP_S = 0.002
_ONE_BURST_S = 0.02


class Witness:
    """A process that is in the front's group and only notes which signals it gets. Where it cannot be started, every signal is passed on."""

    def __init__(self) -> None:
        self._notes = self._ours = -1
        self._seen: dict[int, float] = {}
        self.pid = 0
        with contextlib.suppress(OSError):
            self._start()

    def _start(self) -> None:
        notes, write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        alive, ours = os.pipe2(os.O_CLOEXEC)
        try:
            self.pid = forked("gpuclinic-witness", lambda: _look_on(write, alive), (write, alive), session=False)
        finally:
            os.close(write)
            os.close(alive)
        self._notes, self._ours = notes, ours

    def keeps(self) -> list[int]:
        """Descriptors of the front's that must stay open."""
        return [self._notes, self._ours] if self.pid else []

    def saw(self, number: int) -> bool:
        """The signal that the front has just got went to the group. Waits a few hundredths of a second before it says no."""
        if not self.pid:
            return False
        begun = time.monotonic()
        if begun - self._seen.get(number, 0.0) < _ONE_BURST_S:
            self._new()
            return True  # equal signals may have been one for the witness and two for us
        until = begun + _PATIENCE_S
        while True:
            if pending(self.pid, number) or number in self._new():
                self._seen[number] = time.monotonic()
                return True
            left = until - time.monotonic()
            if left <= 0:
                return False
            select.select([self._notes], [], [], min(left, _STEP_S))

    def _new(self) -> bytes:
        try:
            return os.read(self._notes, 256)
        except OSError:
            return b""


def _look_on(notes: int, alive: int) -> None:
    """Each signal becomes a byte in the pipe, written by the interpreter's own handler; ends with the front."""
    signal.set_wakeup_fd(notes, warn_on_full_buffer=False)
    for number in signal.valid_signals() - NOT_PASSED_ON:
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, _nothing)
    signal.pthread_sigmask(signal.SIG_SETMASK, NOT_PASSED_ON)
    os.read(alive, 1)


def _nothing(number: int, frame: object) -> None:
    """The byte is written already."""
