"""Boots within a log: which signals belong to which, and whether the shutdown before each was an orderly one."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from gpuclinic.model import Boot
from gpuclinic.recognise.timestamps import kernel_uptime

if TYPE_CHECKING:
    from gpuclinic.model import Signal

_STARTS = frozenset({"boot.journal_mark", "boot.start", "boot.command_line"})
_CLEAN = "boot.clean_shutdown"
_BACKWARDS = 20.0
_PSTORE = re.compile(r"(?:Oops|Panic|Part)#?\d+ Part\d+|^(?:<\d>)?(?:Oops|Panic)#\d+", re.MULTILINE)


def number_boots(signals: list[Signal], head: str = "") -> tuple[list[Signal], list[Boot]]:
    """The signals of one source, in order, with their boots numbered, and the starts that were seen.

    head: the beginning of the text. A log of several machines is numbered for each machine on its own.
    """
    backwards = not _PSTORE.search(head[:65536])
    several = len({signal.host for signal in signals if signal.host}) > 1
    states: dict[str | None, _State] = {}
    out: list[Signal] = []
    boots: list[Boot] = []
    for signal in signals:
        state = states.setdefault(signal.host if several else None, _State())
        if state.starts(signal, backwards=backwards):
            boots.append(Boot(signal.where.source, signal.host, state.boot, state.clean_before(signal), signal.where))
        state.note(signal)
        out.append(signal if not state.boot else msgspec.structs.replace(signal, boot=state.boot))
    return out, boots


class _State:
    """What is known of one machine while its log is walked through."""

    def __init__(self) -> None:
        self.boot = 0
        self._since: set[str] = set()
        self._uptime: float | None = None
        self._clean = False
        self._seen = False

    def starts(self, signal: Signal, *, backwards: bool) -> bool:
        """The signal is the first sign of a new boot; counts it."""
        uptime = _uptime(signal)
        went_back = backwards and uptime is not None and self._uptime is not None and uptime < self._uptime - _BACKWARDS
        kind = signal.signature
        again = kind in _STARTS and (kind in self._since or not self._since)
        if kind == "boot.command_line" and self._since and not went_back:
            again = False
        if not (again or went_back):
            if kind in _STARTS:
                self._since.add(kind)
            return False
        if kind in _STARTS and not went_back and not self._seen and not self._since and (signal.where.line or 0) <= 2:
            self._since.add(kind)  # the log begins with its own boot: nothing lies in front of it
            return False
        self.boot += 1
        self._since = {kind} & _STARTS or {"backwards"}
        self._uptime = uptime
        return True

    def clean_before(self, signal: Signal) -> bool | None:
        """Whether the shutdown in front of the boot just counted was orderly."""
        clean, self._clean = self._clean, False
        if not clean and not self._seen and (signal.where.line or 0) <= 3:
            return None
        return clean

    def note(self, signal: Signal) -> None:
        """Remembers what later signals are compared with."""
        self._seen = True
        if signal.signature == _CLEAN:
            self._clean = True
        uptime = _uptime(signal)
        if uptime is not None:
            self._uptime = uptime


def _uptime(signal: Signal) -> float | None:
    if signal.time is not None and signal.time.uptime:
        return signal.time.seconds
    return kernel_uptime(signal.where.text)
