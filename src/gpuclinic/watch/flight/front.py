"""The front: what the caller started. Starts the job and everything beside it, passes signals on, adopts orphans, ends as the job ended."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from gpuclinic.watch.flight import launch
from gpuclinic.watch.flight.apart import PR_SET_CHILD_SUBREAPER, forked, let_go, prctl
from gpuclinic.watch.flight.streams import Stream, prepare, resized, tell
from gpuclinic.watch.flight.witness import NOT_PASSED_ON, Witness

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_MIRRORED = (signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)
"""Stops by the terminal's job control: the shell has to see us stop as it would have seen the job."""
_IMPATIENT = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP})
PATIENCE_S, QUICK_S = 30.0, 1.0
"""How long the answer of a job that died is waited for, and the recorder's last word of one that ended well."""
_MOST_TEXT = 1 << 16


class Flight(NamedTuple):
    """What the recorder has to know. command: as given. began: Unix seconds; mono: the same on the monotonic clock."""

    command: list[str]
    front: int
    job: int
    began: float
    mono: float
    streams: list[Stream]
    helpers: frozenset[int]
    problems: list[str]


def fly(
    command: Sequence[str], record: Callable[[Flight, int, int], None], *, well_s: float = 0.0, speaks: bool = False
) -> NoReturn:
    """Runs the command to its end and ends in the same way. well_s: for how long the recorder is waited for where all went well.
    speaks: it has standard error of its own, for words while the job runs.

    record: the recorder's life, in a process of its own, with the flight, the pipe on which the front tells, and the one on which a text
    for standard error is answered.
    """
    ours = launch.inherited()
    everything = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
    signal.pthread_sigmask(signal.SIG_BLOCK, everything)
    if signal.getsignal(signal.SIGCHLD) is not signal.SIG_DFL:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored ones would be reaped without a word
    problems: list[str] = []
    try:
        streams, witness = prepare(), Witness()
    except (OSError, MemoryError, ImportError) as problem:
        _fall_back(command, ours, f"{type(problem).__name__}: {problem}")
    began, mono = time.time(), time.monotonic()
    prctl(PR_SET_CHILD_SUBREAPER, 1)  # before the job can leave an orphan; it does not inherit this
    try:
        job, code = launch.start(command, ours, streams)
    except OSError as problem:
        _fall_back(command, ours, f"no process can be started: {problem.strerror}")
    if not job:
        _refuse(command, code)
    helpers = frozenset({stream.relay for stream in streams if stream.relay} | ({witness.pid} - {0}))
    flight = Flight(list(command), os.getpid(), job, began, mono, streams, helpers, problems)
    front = _Front(flight, witness, everything)
    front.begin(record, speaks=speaks)
    status = front.wait()
    front.finish(status, PATIENCE_S if status else well_s)
    launch.same_end(status)


def _fall_back(command: Sequence[str], ours: launch.Inherited, why: str) -> NoReturn:
    """Nothing can be recorded: then the job at least runs, in our place."""
    _say(f"gpuclinic: {command[0]} runs unrecorded: {why}\n")
    prctl(PR_SET_CHILD_SUBREAPER, 0)
    launch.put_back(ours)
    number = launch.replaced(command, ours.environment)
    _say(f"gpuclinic: {command[0]}: {os.strerror(number)}\n")
    os._exit(launch.FAILED)


def _refuse(command: Sequence[str], code: int) -> NoReturn:
    words = {launch.NOT_FOUND: "command not found", launch.CANNOT_RUN: "cannot be run"}.get(
        code, "could not be started"
    )
    _say(f"gpuclinic: {command[0][:200]}: {words}\n")
    os._exit(code)


def _say(text: str) -> None:
    with contextlib.suppress(OSError):
        os.write(2, text.encode("utf-8", "replace"))


def _name(pid: int) -> str:
    """What a process that sent a signal is called, while it is still there; 0 is the kernel (the terminal's Ctrl-C)."""
    if pid == 0:
        return "terminal"
    with contextlib.suppress(OSError), open(f"/proc/{pid}/comm", "rb") as file:  # noqa: PTH123
        return file.read(64).decode("utf-8", "replace").strip()
    return ""


class _Front:
    """The front after the job's start. Whatever fails here costs the record, never the job."""

    def __init__(self, flight: Flight, witness: Witness, everything: set[signal.Signals]) -> None:
        self._flight = flight
        self._witness = witness
        self._everything = everything
        self._tell = self._answer = -1
        self._recorder = 0
        self._rusage: Any = None

    def begin(self, record: Callable[[Flight, int, int], None], *, speaks: bool) -> None:
        """Starts the recorder, and lets go of everything that the job alone should hold."""
        flight = self._flight
        with contextlib.suppress(OSError):
            told, tell_ = os.pipe2(os.O_CLOEXEC)
            answer, answered = os.pipe2(os.O_CLOEXEC)
            os.set_blocking(tell_, False)
            self._recorder = forked(
                "gpuclinic-recorder",
                lambda: record(flight, told, answered),
                (told, answered, *_files(flight.streams), *([2] if speaks else ())),
            )
            os.close(told)
            os.close(answered)
            self._tell, self._answer = tell_, answer
        keep = {2, self._tell, self._answer, *self._witness.keeps()}
        keep |= {end for stream in flight.streams for end in stream.control}
        let_go(keep)

    def wait(self) -> int:
        """Until the job has ended; its wait status."""
        job = self._flight.job
        while True:
            status = self._reap()
            if status is not None:
                return status
            got = signal.sigwaitinfo(self._everything)
            number = got.si_signo
            if number == signal.SIGWINCH:
                resized(self._flight.streams, job)
            elif number not in NOT_PASSED_ON:
                sender = _name(got.si_pid)
                alone = not self._witness.saw(number)
                if alone:
                    with contextlib.suppress(OSError):
                        os.kill(job, number)
                self._note(
                    {
                        "number": number,
                        "from": got.si_pid,
                        "uid": got.si_uid,
                        "name": sender,
                        "alone": alone,
                        "at": time.time(),
                    }
                )

    def _reap(self) -> int | None:
        """Collects whoever ended; the job's wait status if it was among them. Orphans that we adopted are told to the recorder."""
        found = None
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG | os.WUNTRACED)
            except ChildProcessError:
                return found if found is not None else 0
            if pid == 0:
                return found
            if os.WIFSTOPPED(status):
                if pid == self._flight.job and os.WSTOPSIG(status) in _MIRRORED:
                    self._stop(os.WSTOPSIG(status))
            elif pid == self._flight.job:
                found, self._rusage = status, usage
            elif pid not in self._flight.helpers and pid != self._recorder:
                self._note({"orphan": pid, "status": status, "at": time.time()})

    def _stop(self, number: int) -> None:
        """Stops as the job was stopped; goes on when somebody continues us, who continues the job by the same signal."""
        if os.getpid() == 1:
            return
        signal.sigtimedwait({number}, 0)  # the group's own, which we may not have taken yet: one stop, not two
        os.kill(os.getpid(), number)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
        signal.pthread_sigmask(signal.SIG_BLOCK, {number})

    def _note(self, word: dict[str, Any]) -> None:
        if self._tell >= 0:
            import json

            with contextlib.suppress(OSError):
                os.write(self._tell, json.dumps(word).encode() + b"\n")

    def finish(self, status: int, patience: float) -> None:
        """Lets the relays pass on what the job wrote, hears the recorder, and says what it says."""
        from gpuclinic.watch.flight.relay import FLUSH

        usage = self._rusage
        self._note(
            {"status": status, "at": time.time(), "max_rss_kib": usage.ru_maxrss if usage else None,
             "user_s": usage.ru_utime if usage else None, "system_s": usage.ru_stime if usage else None}
        )  # fmt: skip
        for stream in self._flight.streams:
            tell(stream, FLUSH, self._hurried)
        text = self._heard(patience) if patience else b""
        if text:
            with contextlib.suppress(OSError):
                while text:
                    text = text[os.write(2, text) :]

    def _hurried(self) -> bool:
        """Somebody wants us to end now."""
        return signal.sigtimedwait(_IMPATIENT, 0) is not None

    def _heard(self, patience: float) -> bytes:
        """What the recorder answers until it closes its end, within so many seconds."""
        if self._answer < 0:
            return b""
        until, text = time.monotonic() + patience, b""
        poll = select.poll()
        poll.register(self._answer, select.POLLIN)
        while time.monotonic() < until and not self._hurried() and len(text) < _MOST_TEXT:
            if poll.poll(50):
                piece = os.read(self._answer, 4096)
                if not piece:
                    break
                text += piece
        return text


def _files(streams: list[Stream]) -> list[int]:
    """Streams that are files, whose ends the recorder reads."""
    return [stream.number for stream in streams if stream.kind == "file"]
