"""The console script's door: Ctrl-C ends it with the contract's code from the first moment on, before anything else is imported."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # built in; `signal` itself would import much first
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

_INTERRUPTED = 130


def _leave(number: int, frame: object) -> NoReturn:  # noqa: ARG001 - as signal handlers are called
    os._exit(_INTERRUPTED)


_OURS = _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler
"""Ctrl-C was not switched off by who started us (a job in the background)."""
if _OURS:
    _signal.signal(_signal.SIGINT, _leave)


def _begin() -> None:
    """From here on an interrupt is an exception, since there may be something to clean up."""
    if _OURS:
        _signal.signal(_signal.SIGINT, _signal.default_int_handler)


def entry() -> NoReturn:
    """Runs the command line."""
    from gpuclinic.cli.main import entry as run

    run(_begin)
