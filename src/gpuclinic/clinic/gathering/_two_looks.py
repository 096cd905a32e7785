"""Two looks at a process and its descendants, and what they did between them: CPU time, bytes moved."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from gpuclinic.clinic.gathering._gathered import absent
from gpuclinic.model import digits
from gpuclinic.recognise.one_process import families, parse_status
from gpuclinic.recognise.proc_files import Stat, parse_stat

if TYPE_CHECKING:
    from gpuclinic.model import Scalar
    from gpuclinic.observe.asking import Asked

TICKS = 100
"""Clock ticks a second in /proc (USER_HZ), the same on all Linux machines of today."""
STATS, IO = "/proc/[0-9]*/stat", "/proc/[0-9]*/io"
_ANCESTORS_OF_ALL = (1, 2)
"""init and kthreadd: whatever runs descends from them, and is no part of them."""
_MOST_COUNTED = 64
_GPU_BUSY = 5.0
_IDLE_SHARE, _IDLE_BYTES = 0.02, 4096
"""Below these a process does nothing: what a wait that polls costs."""


class Seen(msgspec.Struct):
    """One look. stats, moved: what each process used, and the bytes that it read and wrote. at: when, Unix seconds.

    whole: all processes were seen, not the one alone that is asked about.
    unread: it could not be looked at, so that its absence from stats tells nothing.
    """

    family: list[int]
    stats: dict[int, Stat]
    moved: dict[int, int]
    at: float
    whole: bool
    unread: bool

    def ticks(self, pids: list[int]) -> int:
        """CPU time of these."""
        return sum(s.user_ticks + s.system_ticks for pid in pids if (s := self.stats.get(pid)) is not None)


def look(host: Asked, pid: int) -> Seen:
    """The process and its descendants; it alone where a busy machine is too slow to show all."""
    path, io = f"/proc/{pid}/stat", f"/proc/{pid}/io"
    answers, counters = host.files(STATS, 2048), host.files(IO, 1024)
    whole = STATS not in answers and IO not in counters  # a pattern without an answer in time stands there itself
    mine = answers.get(path)
    if not whole:
        mine = host.file(path, 2048)
        answers, counters = {path: mine}, {io: host.file(io, 1024)}
    stats = {s.pid: s for a in answers.values() if a.ok and (s := parse_stat(a.text)) is not None}
    family = families(stats.values(), pid) if pid not in _ANCESTORS_OF_ALL else [pid]
    moved: dict[int, int] = {}
    for member in family[:_MOST_COUNTED]:
        told = counters.get(f"/proc/{member}/io")
        if told is not None and told.ok:
            found = parse_status(told.text)
            moved[member] = sum(digits(found.get(k)) or 0 for k in ("rchar", "wchar"))
    unread = mine is not None and not mine.ok and not absent(mine)
    return Seen(family, stats, moved, mine.at if mine is not None else 0.0, whole, unread)


def add_progress(before: Seen, after: Seen, seconds: float, fields: dict[str, Scalar], places: dict[str, str]) -> None:
    """Whether the family used the CPU, moved bytes or kept a GPU busy between the two looks; nothing where one of them failed."""
    pid = after.family[0]
    if seconds <= 0 or pid not in before.stats or pid not in after.stats:
        return
    old, new = (before.family, after.family) if before.whole and after.whole else ([pid], [pid])
    share = max(0, after.ticks(new) - before.ticks(old)) / TICKS / seconds
    moved = max(0, sum(after.moved.get(p, 0) for p in new) - sum(before.moved.get(p, 0) for p in old))
    busy = fields.get("gpu_utilization_pct")
    idle_gpu = not isinstance(busy, (int, float)) or busy < _GPU_BUSY
    fields |= {
        "cpu_share": round(share, 3),
        "moved_bytes": moved,
        "sampled_s": round(seconds, 2),
        "children": len(after.family) - 1,
    }
    fields["idle"] = share < _IDLE_SHARE and moved < _IDLE_BYTES and idle_gpu
    places["cpu_share"] = places["idle"] = (
        f"CPU time over {seconds:.1f} s: {100 * share:.0f} % of one core, {moved} bytes moved, with {len(after.family) - 1} children"
    )
