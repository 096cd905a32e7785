"""Several recorders of one distributed job: each leaves a few lines at its end, and whoever reads them sees which rank failed first."""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
from typing import TYPE_CHECKING

import msgspec

from gpuclinic.store import whole_file

if TYPE_CHECKING:
    from pathlib import Path

    from gpuclinic.watch.flight.launchers import Place

_MOST, _LARGEST = 4096, 1 << 16
_CLOCKS_S = 2.0
"""Clocks of machines differ by so much: of ends this close the one that follows from nothing is the first."""
_FOLLOWS = ("net.collective_timeout", "net.remote_rank_died")
_ENDED_FROM_OUTSIDE = (1, 2, 15)


class End(msgspec.Struct):
    """How one rank ended. ended: Unix seconds. cause, title, evidence: of the answer; bundle: its file."""

    rank: int
    host: str
    began: float
    ended: float
    exit_code: int | None = None
    signal: int | None = None
    cause: str | None = None
    confidence: float = 0.0
    title: str = ""
    evidence: str = ""
    bundle: str = ""
    world: int | None = None
    command: str = ""
    gpuclinic_rank: int = 1

    @property
    def failed(self) -> bool:
        """It did not end well."""
        return bool(self.exit_code or self.signal)


def leave(folder: Path, place: Place, end: End) -> None:
    """Writes this rank's lines. OSError: the folder takes none."""
    where = _folder(folder, place)
    where.mkdir(parents=True, exist_ok=True)
    with whole_file(where / f"rank-{end.rank}.json", 0o640) as file:
        file.write(
            json.dumps(msgspec.to_builtins(end), indent=1, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
        )


def _folder(folder: Path, place: Place) -> Path:
    return folder / f"ranks-{place.group}"


def others(folder: Path, place: Place, since: float) -> list[End]:
    """What the ranks that ended already left, first ends first; those of an earlier start under the same name are left out."""
    found: list[End] = []
    with contextlib.suppress(OSError):
        for name in sorted(os.listdir(_folder(folder, place)))[:_MOST]:  # noqa: PTH208
            end = _read(_folder(folder, place) / name) if re.fullmatch(r"rank-\d+\.json", name) else None
            if end is not None and end.ended >= since:
                found.append(end)
    return sorted(found, key=lambda end: end.ended)


def _read(path: Path) -> End | None:
    with contextlib.suppress(OSError, ValueError, msgspec.MsgspecError):
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            if stat.S_ISREG(os.fstat(handle).st_mode):
                return msgspec.convert(json.loads(file.read(_LARGEST)), End)
    return None


def first_failure(ends: list[End]) -> End | None:
    """The rank that failed first. Of those that ended together it is the one whose end follows from no other's."""
    failed = sorted((end for end in ends if end.failed), key=lambda end: end.ended)
    if not failed:
        return None
    together = [end for end in failed if end.ended - failed[0].ended <= _CLOCKS_S]
    return min(together, key=lambda end: (_follows(end), end.ended))


def _follows(end: End) -> bool:
    """Ended by its launcher, or for want of a peer."""
    return (
        end.signal in _ENDED_FROM_OUTSIDE or end.cause in _FOLLOWS or (end.exit_code or 0) - 128 in _ENDED_FROM_OUTSIDE
    )
