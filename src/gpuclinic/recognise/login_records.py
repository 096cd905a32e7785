"""Boots and shutdowns out of /var/log/wtmp, and how each boot's predecessor ended."""

from __future__ import annotations

import struct
from typing import NamedTuple

_BOOT, _RUN_LEVEL = 2, 1
_SHAPES = ((384, "<h2xi32s4s32s256s2hi2i"), (400, "<h2xi32s4s32s256s2hqqq"))
"""Record sizes of glibc's utmp with 32-bit (x86-64) and 64-bit (arm64) times."""
_FEW = 3
MOST_RECORDS = 200_000


class Restart(NamedTuple):
    """A boot. at: Unix seconds. kernel: as it was recorded. how: "planned", "unclean" (no shutdown was recorded before it) or "unknown".

    ran_s: how long the boot before had run, as far as its records show; None for the first.
    """

    at: float
    kernel: str
    how: str
    ran_s: float | None


class _Record(NamedTuple):
    kind: int
    user: str
    host: str
    at: float


def restarts(data: bytes) -> list[Restart]:
    """All boots in a wtmp, the oldest first; none where the bytes are no such file.

    Machines that never record a shutdown (some virtual machines and images) say nothing by not recording one: "unknown".
    """
    records = _records(data)
    shutdowns = sum(r.kind == _RUN_LEVEL and r.user == "shutdown" for r in records)
    boots = sum(r.kind == _BOOT for r in records)
    out: list[Restart] = []
    last: _Record | None = None
    clean = False
    latest = 0.0
    for record in records:
        if record.kind == _RUN_LEVEL and record.user == "shutdown":
            clean, latest = True, max(latest, record.at)
        elif record.kind == _BOOT:
            if last is None:
                how = "planned" if clean else "unknown"
            else:
                how = "planned" if clean else "unclean" if shutdowns or boots < _FEW else "unknown"
            out.append(Restart(record.at, record.host, how, max(0.0, latest - last.at) if last else None))
            last, clean, latest = record, False, record.at
        else:
            latest = max(latest, record.at)
    return out


def _records(data: bytes) -> list[_Record]:
    for size, shape in _SHAPES:
        if len(data) % size == 0 and data:
            out: list[_Record] = []
            start = max(0, len(data) - size * MOST_RECORDS)
            for kind, _, _, _, user, host, *rest in struct.iter_unpack(
                f"{shape}{size - struct.calcsize(shape)}x", data[start:]
            ):
                if not 0 <= kind <= 9:
                    out = []
                    break
                out.append(_Record(kind, _text(user), _text(host), float(rest[3]) + rest[4] / 1e6))
            if out:
                return out
    return []


def _text(raw: bytes) -> str:
    return raw.partition(b"\0")[0].decode("utf-8", "replace")
