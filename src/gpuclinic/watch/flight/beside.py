"""The recorder's process: at low priority while the job runs, at the usual one when it has ended and a person waits for the answer."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from typing import TYPE_CHECKING, NamedTuple

from gpuclinic.watch.flight.launchers import is_rank

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuclinic.watch.flight.front import Flight
    from gpuclinic.watch.flight.recorder import Taken

_NICE = 10


class Options(NamedTuple):
    """hang_after_s: 0 for never. folder: where bundles go. keep: how many. most: bytes of one. always: also where the job ended well."""

    hang_after_s: float = 1800.0
    folder: str = ""
    keep: int = 20
    most: int = 20 << 20
    always: bool = False
    quiet: bool = False
    verbose: bool = False
    lang: str = "en"
    job: str = ""


class _Watch(threading.Thread):
    """Records the flight. Linux has a priority for each thread (nice(2), NOTES), and without privileges none can be raised again:
    so what runs beside the job is a thread, and the answer is made by the other one."""

    def __init__(self, flight: Flight, told: int, options: Options, say: Callable[[str], None]) -> None:
        super().__init__(daemon=True)
        self._what = flight, told, options, say
        self.taken: Taken | None = None
        self.problem: BaseException | None = None

    def run(self) -> None:
        """The thread's life."""
        with contextlib.suppress(OSError):
            os.nice(_NICE)
        try:
            from gpuclinic.watch.flight.recorder import Recorder

            self.taken = Recorder(*self._what).run()
        except BaseException as problem:  # noqa: BLE001 - raised again by the other thread
            self.problem = problem

    def ended(self) -> Taken:
        """Waits until the job has ended."""
        self.join()
        if self.problem is not None:
            raise self.problem
        if self.taken is None:
            raise RuntimeError("nothing was recorded")
        return self.taken


def record(flight: Flight, told: int, answer: int, options: Options, conclude: Callable[[Taken], str]) -> None:
    """The recorder's life. conclude: makes record, bundle and answer of what was taken; its text goes to the front.

    Whatever goes wrong becomes a word in the record, and one line for the person.
    """
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})

    def say(text: str) -> None:
        with contextlib.suppress(OSError):
            os.write(2 if options.verbose else answer, f"gpuclinic: {text}\n".encode("utf-8", "replace"))

    try:
        watch = _Watch(flight, told, options, say)
        watch.start()
        taken = watch.ended()
        if taken.status == 0 and not options.always and not is_rank(os.environ):
            return  # nothing is kept or said of it: what makes an answer need not even be loaded
        text = conclude(taken)
        with contextlib.suppress(OSError):
            os.write(answer, text.encode("utf-8", "replace"))
    except Exception as problem:  # noqa: BLE001 - said, and the job's end does not depend on it
        if not options.quiet:
            say(f"the job was not recorded to its end ({type(problem).__name__}: {str(problem)[:200]})")
