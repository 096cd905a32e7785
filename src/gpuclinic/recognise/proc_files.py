"""What /proc's short files of a process say, read with nothing heavy imported: a flight recorder reads them for weeks."""

from __future__ import annotations

import re
from typing import NamedTuple

_STAT = re.compile(r"^(?P<pid>\d{1,10}) \((?P<name>.*)\) (?P<state>[A-Za-z]) (?P<rest>[-\d ]+)", re.DOTALL)
_NUMBER = re.compile(r"-?\d{1,20}", re.ASCII)


class Stat(NamedTuple):
    """/proc/PID/stat (proc(5)). Times in clock ticks; start: since boot. wait_status: of a zombie, as wait(2) gives it."""

    pid: int
    name: str
    state: str
    ppid: int
    user_ticks: int
    system_ticks: int
    threads: int
    start: int
    rss_pages: int
    flags: int
    wait_status: int


def parse_stat(text: str) -> Stat | None:
    """The line of /proc/PID/stat; None where it is none.

    >>> parse_stat("7 (a) b) Z 1 7 7 0 -1 4 0 0 0 0 3 4 0 0 20 0 1 0 118747 0 0" + " 0" * 27 + " 9").wait_status
    9
    """
    found = _STAT.match(text)
    if found is None:
        return None
    parts = found["rest"].split()
    if len(parts) < 21 or not all(_NUMBER.fullmatch(part) for part in parts):
        return None
    rest = [int(part) for part in parts]
    return Stat(
        int(found["pid"]), found["name"], found["state"], rest[0], rest[10], rest[11], rest[16], rest[18], rest[20], rest[5],
        rest[48] if len(rest) > 48 else 0,
    )  # fmt: skip


def ended_by(wait_status: int) -> tuple[int | None, int | None]:
    """(signal, exit code) of a wait status; one of them is None.

    >>> ended_by(9), ended_by(256), ended_by(139)
    ((9, None), (None, 1), (11, None))
    """
    number = wait_status & 0x7F
    return (number, None) if number else (None, wait_status >> 8 & 0xFF)


def cgroup_paths(text: str) -> dict[str, str]:
    """Controller ("" for version 2) to path, from /proc/PID/cgroup."""
    out: dict[str, str] = {}
    for line in text.splitlines():
        _, _, rest = line.partition(":")
        names, colon, path = rest.partition(":")
        if colon:
            out |= dict.fromkeys(names.split(",") if names else [""], path)
    return out
