"""A deadline for work on hostile text: some texts make some expression take for ever."""

from __future__ import annotations

import contextlib
import signal
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType


class TooSlowError(ValueError):
    """The deadline passed."""


@contextlib.contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Raises TooSlowError in the block when the time is over; Python's re looks for signals while it searches.

    Works in the main thread only; elsewhere, and where somebody else uses the alarm, there is no deadline.
    """
    usable = threading.current_thread() is threading.main_thread() and hasattr(signal, "setitimer")
    if not usable or signal.getitimer(signal.ITIMER_REAL)[0]:
        yield
        return

    def late(_number: int, _frame: FrameType | None) -> None:
        raise TooSlowError(f"took more than {seconds:g} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
