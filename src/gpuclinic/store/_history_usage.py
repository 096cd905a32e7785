"""Who held which GPU for how long: minutes of GPU time by process, folded to hours when they get old."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gpuclinic.store._history_types import Holding

if TYPE_CHECKING:
    import sqlite3

    from gpuclinic.model import Fact, Scalar, Tick

_LONGEST_S = 30.0
"""Between two ticks: more is a gap, of which nobody knows who held what."""
_JOB_FIELDS = ("job", "slurm_job", "pod_uid", "container", "unit")
_TEXT = 120


class Holder(NamedTuple):
    """A process on a GPU; pid 0 is the GPU itself. Words unknown are empty."""

    gpu: str
    pid: int
    user: str
    job: str
    program: str


class Sums:
    """Seconds of one holder in one minute."""

    __slots__ = ("busy", "held", "peak", "share", "unknown")

    def __init__(self) -> None:
        self.held = self.share = self.busy = self.unknown = 0.0
        self.peak: float | None = None

    def peak_of(self, mib: Scalar) -> None:
        """Keeps the most memory that was seen."""
        if isinstance(mib, (int, float)):
            self.peak = max(self.peak or 0.0, float(mib))


class Usage:
    """Counts GPU time from ticks. minutes: what waits to be written."""

    def __init__(self) -> None:
        self._mono: float | None = None
        self.minutes: dict[tuple[int, Holder], Sums] = {}

    def take(self, tick: Tick) -> None:
        """Charges the time since the tick before to those who hold the GPUs now."""
        before, self._mono = self._mono, tick.mono
        if before is None or not 0 < tick.mono - before <= _LONGEST_S:
            return
        seconds = tick.mono - before
        minute = int(tick.at // 60)
        gpus: dict[str, Fact] = {}
        processes: dict[str, list[Fact]] = {}
        people: dict[int, dict[str, Scalar]] = {}
        for fact in tick.facts:
            if fact.kind == "gpu":
                gpus[fact.key] = fact
            elif fact.kind == "gpu_process":
                processes.setdefault(str(fact.fields.get("gpu_key") or fact.key.partition("/")[0]), []).append(fact)
            elif fact.kind == "gpu_holder":
                pid = fact.fields.get("pid")
                if isinstance(pid, int):
                    people[pid] = fact.fields
        for key, gpu in gpus.items():
            if not gpu.fields.get("hung") and "error" not in gpu.fields:
                self._charge(minute, seconds, gpu, processes.get(key, []), people)

    def _charge(
        self, minute: int, seconds: float, gpu: Fact, processes: list[Fact], people: dict[int, dict[str, Scalar]]
    ) -> None:
        own = self._sums(minute, Holder(gpu.key, 0, "", "", ""))
        load = gpu.fields.get("utilization_pct")
        own.held += seconds
        own.peak_of(gpu.fields.get("memory_used_mib"))
        busy = seconds * load / 100 if isinstance(load, (int, float)) else None
        if busy is None:
            own.unknown += seconds
        else:
            own.busy += busy
        holders = [(_holder(gpu.key, fact, people), fact) for fact in processes]
        if holders:
            own.share += seconds
        together = len({(one.user, one.job) for one, _ in holders}) == 1
        for one, fact in holders:
            sums = self._sums(minute, one)
            part = seconds / len(holders)
            sums.held += seconds
            sums.share += part
            sums.peak_of(fact.fields.get("memory_mib"))
            own_load = fact.fields.get("sm_pct")
            if isinstance(own_load, (int, float)):
                sums.busy += min(part, seconds * own_load / 100)
            elif together and busy is not None:
                sums.busy += busy / len(holders)
            else:
                sums.unknown += part

    def _sums(self, minute: int, holder: Holder) -> Sums:
        found = self.minutes.get((minute, holder))
        if found is None:
            found = self.minutes[minute, holder] = Sums()
        return found

    def store(self, connection: sqlite3.Connection) -> None:
        """Adds what was counted to the file. To be called within a transaction; `forget` after it."""
        for (minute, holder), sums in self.minutes.items():
            connection.execute(
                "INSERT INTO holder (gpu, pid, user, job, program) VALUES (?,?,?,?,?) ON CONFLICT DO NOTHING", holder
            )
            (number,) = connection.execute(
                "SELECT id FROM holder WHERE gpu = ? AND pid = ? AND user = ? AND job = ? AND program = ?", holder
            ).fetchone()
            connection.execute(
                "INSERT INTO holding VALUES (?,?,?,?,?,?,?) ON CONFLICT (minute, holder) DO UPDATE SET held = held + excluded.held, "
                "share = share + excluded.share, busy = busy + excluded.busy, unknown = unknown + excluded.unknown, "
                "peak = CASE WHEN peak IS NULL THEN excluded.peak WHEN excluded.peak IS NULL THEN peak ELSE max(peak, excluded.peak) END",
                (number, minute, sums.held, sums.share, sums.busy, sums.unknown, sums.peak),
            )

    def forget(self) -> None:
        """All that was counted is in the file."""
        self.minutes.clear()


def _holder(gpu: str, process: Fact, people: dict[int, dict[str, Scalar]]) -> Holder:
    pid = process.fields.get("pid")
    number = pid if isinstance(pid, int) else -1
    known = people.get(number, {})
    fields = process.fields
    job = next((fields.get(name) or known.get(name) for name in _JOB_FIELDS if fields.get(name) or known.get(name)), "")
    program = known.get("program") or str(fields.get("name") or "").rsplit("/", 1)[-1]
    user = fields.get("user") or known.get("user") or ""
    return Holder(gpu, number, str(user)[:_TEXT], str(job)[:_TEXT], str(program)[:_TEXT])


def read_holdings(connection: sqlite3.Connection, since: float, until: float) -> list[Holding]:
    """What was held in that time, summed by process and GPU."""
    rows = connection.execute(
        "SELECT gpu, pid, user, job, program, sum(held), sum(share), sum(busy), sum(unknown), max(peak) FROM holding "
        "JOIN holder ON holder.id = holding.holder WHERE minute >= ? AND minute <= ? GROUP BY holder.id ORDER BY gpu, pid, holder.id",
        (int(since // 60), int(until // 60)),
    )
    return [Holding(*row) for row in rows]


def fold(connection: sqlite3.Connection, before: int, gone: int) -> None:
    """Makes hours of the minutes before that one (a whole hour), and drops what is older than `gone`. Within a transaction."""
    connection.execute("DELETE FROM holding WHERE minute < ?", (gone,))
    connection.execute(
        "CREATE TEMP TABLE folded AS SELECT holder, minute / 60 * 60 AS hour, sum(held) AS held, sum(share) AS share, sum(busy) AS busy, "
        "sum(unknown) AS unknown, max(peak) AS peak FROM holding WHERE minute < ? AND minute >= ? GROUP BY holder, hour",
        (before, before - 60 * 24 * 2),
    )
    connection.execute("DELETE FROM holding WHERE minute < ? AND minute >= ?", (before, before - 60 * 24 * 2))
    connection.execute("INSERT INTO holding SELECT holder, hour, held, share, busy, unknown, peak FROM folded")
    connection.execute("DROP TABLE folded")
    connection.execute("DELETE FROM holder WHERE id NOT IN (SELECT holder FROM holding)")
