"""Who sent a deadly signal, and whom the kernel chose when memory ran out: two tracepoints in an instance of tracefs of our own.

Source: linux include/trace/events/signal.h and oom.h, Documentation/trace/ftrace.rst (instances). Costs 0.2 to 0.9 microseconds for
each signal on the whole machine, which is why it is asked for (sampling.trace_signals) and not the default.
"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import NamedTuple

_PLACES = ("/sys/kernel/tracing", "/sys/kernel/debug/tracing")
_NAME = "gpuclinic"
_DEADLY = (1, 2, 3, 4, 6, 7, 8, 9, 11, 15, 24)
_LINE = re.compile(
    rb"^\s*(?P<comm>.{1,16}?)-(?P<sender>\d{1,10})\s+\[\d+\].{1,40}?\s[\d.]+:\s+(?P<event>signal_generate|mark_victim):\s(?P<rest>.*)$"
)
_SIGNAL = re.compile(rb"sig=(\d+) errno=-?\d+ code=(-?\d+) comm=.{0,16}? pid=(\d+)")
_VICTIM = re.compile(rb"pid=(\d+)")
_LARGEST = 1 << 18


class Sent(NamedTuple):
    """A signal that was sent. sender: 0 where the kernel sent it. victim: of the OOM killer."""

    pid: int
    signal: int
    sender: int
    sender_name: str
    victim: bool = False


class SignalTrace:
    """Raises OSError where there is no tracefs, or no right to it."""

    def __init__(self) -> None:
        base = next((place for place in _PLACES if Path(f"{place}/instances").is_dir()), None)
        if base is None:
            raise FileNotFoundError(2, "no tracefs is mounted")
        self._folder = Path(f"{base}/instances/{_NAME}")
        self._folder.mkdir(exist_ok=True)
        try:
            events = self._folder / "events"
            wanted = " || ".join(f"sig=={number}" for number in _DEADLY)
            (events / "signal/signal_generate/filter").write_text(wanted, encoding="ascii")
            (events / "signal/signal_generate/enable").write_text("1", encoding="ascii")
            with contextlib.suppress(OSError):
                (events / "oom/mark_victim/enable").write_text("1", encoding="ascii")
            self._pipe = os.open(self._folder / "trace_pipe", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            self._remove()
            raise
        self._rest = b""

    def take(self) -> list[Sent]:
        """What was sent since the last time; never waits."""
        out: list[Sent] = []
        with contextlib.suppress(BlockingIOError):
            while piece := os.read(self._pipe, _LARGEST):
                *lines, self._rest = (self._rest + piece).split(b"\n")
                out += [sent for line in lines if (sent := read_line(line)) is not None]
                if len(out) > 10_000 or len(self._rest) > _LARGEST:
                    break
        return out

    def close(self) -> None:
        """Takes the instance away."""
        os.close(self._pipe)
        self._remove()

    def _remove(self) -> None:
        with contextlib.suppress(OSError):
            self._folder.rmdir()


def read_line(line: bytes) -> Sent | None:
    """A line of trace_pipe; None where it is another's."""
    found = _LINE.match(line)
    if found is None:
        return None
    sender, name = int(found["sender"]), found["comm"].strip().decode("utf-8", "replace")
    if found["event"] == b"mark_victim":
        victim = _VICTIM.search(found["rest"])
        return Sent(int(victim[1]), 9, 0, "", victim=True) if victim else None
    told = _SIGNAL.search(found["rest"])
    if told is None:
        return None
    by_kernel = int(told[2]) > 0  # SI_KERNEL and the codes of faults; 0 and below are people and programs
    return Sent(int(told[3]), int(told[1]), 0 if by_kernel else sender, "" if by_kernel else name)
