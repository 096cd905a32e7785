"""The history: every number that is kept, second by second for weeks and by the hour for months; events, findings and GPU time for years.

One SQLite file in WAL mode. What ticks bring waits for at most four seconds and is then committed, so that an end at any moment costs no
more than that; a power cut costs what was not yet on the disk, some fifteen seconds. Hours are packed beside the sampling, a few
milliseconds of each tick. One writer, held by a lock; as many readers as one likes, also while it writes.
"""

from __future__ import annotations

import contextlib
import functools
import sqlite3
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from gpuclinic.model import CouldNotError, Event
from gpuclinic.store import _history_events as events
from gpuclinic.store import _history_pack as pack
from gpuclinic.store import _history_read as read
from gpuclinic.store._history_codec import CodecError
from gpuclinic.store._history_files import Files, HistoryDamagedError, told
from gpuclinic.store._history_tail import HOUR_MS, MOST_SERIES, Part, Tail, packed_columns
from gpuclinic.store._history_types import Bucket, Holding, Kept, Past, Series, StoredFinding, Subject
from gpuclinic.store._history_usage import Usage, fold, read_holdings

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from types import TracebackType

    from gpuclinic.model import Finding, Tick

__all__ = ["FILE_NAME", "Bucket", "History", "Holding", "Kept", "Past", "Series", "StoredFinding", "Subject"]

FILE_NAME = "history.db"
"""In store.state_folder()."""
FLUSH_S = 4.0
_FLUSH_TICKS = 60
_GRAVE = frozenset({"xid", "gpu_lost", "gpu_hung"})
"""Events after which the machine may not live for another four seconds."""
_SYNC_S = 15.0
_PACK_S = 0.004
_HURRY_S = 0.02
_ROWS_AT_ONCE = 100
_TAIL_MS = HOUR_MS
_MOST_WAITING = 900
_DAY_MS = 86_400_000
_EVENT_DAYS = 3650.0
_ROOM = 0.97
_Answer = TypeVar("_Answer")


class History:
    """An open history. Made by `open`; a context manager that closes.

    Every method may raise CouldNotError with one line for people: the disk is full, the file is damaged, another program holds it.
    A writer that meets a damaged file sets it aside under another name, begins a new one, and says so in `notes`.
    """

    def __init__(
        self, files: Files, *, most_mib: int, kept: Kept | None, raw_days: float, days: float, event_days: float
    ) -> None:
        self._files = files
        self._kept = kept
        self._most = most_mib << 20
        self._raw_ms, self._roll_ms, self._event_ms = (int(x * _DAY_MS) for x in (raw_days, days, event_days))
        self._usage = Usage()
        self._loaded: pack.Loaded | None = None
        self._packed: list[int] = []
        self._events: list[Event] = []
        self._flushed = self._synced = time.monotonic()
        self._unflushed = 0
        self._swept = 0.0
        self._newest = 0
        self._told_full = self._told_series = False
        self._syncing: threading.Thread | None = None
        self._digits: dict[int, int | None] = {}
        self.path = files.path
        self.notes = files.notes
        """What its owner should hear: files set aside, samples removed. Lines in English; whoever tells them takes them out."""
        if not files.read_only:
            try:
                self._begin()
            except sqlite3.Error as problem:
                raise told(problem, files.path) from problem

    @classmethod
    def open(
        cls, path: Path | str, *, read_only: bool = False, most_mib: int = 2048, kept: Kept | None = None,
        raw_days: float = 30.0, days: float = 400.0, event_days: float = _EVENT_DAYS,
    ) -> History:  # fmt: skip
        """Opens a history; a writer makes one where there is none.

        kept: which numbers (knowledge.metrics.kept_fields()); None: every number of every fact. raw_days: samples as they were taken;
        days: hourly figures and GPU time; event_days: events and findings. most_mib: the file's size, beyond which the oldest samples go.
        """
        files = Files(Path(path), read_only=read_only)
        begin = functools.partial(
            cls, files, most_mib=most_mib, kept=kept, raw_days=raw_days, days=days, event_days=event_days
        )
        try:
            try:
                return begin()
            except HistoryDamagedError as problem:
                if read_only:
                    raise
                files.set_aside(str(problem))
                return begin()
        except BaseException:
            files.close()
            raise

    def __enter__(self) -> History:  # noqa: PYI034 - typing has Self from 3.11 on
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            with contextlib.suppress(CouldNotError):
                self.close()
        else:
            self.close()

    # -- writing

    def append(self, tick: Tick) -> None:
        """Takes the numbers, the events and the GPU time of a tick. What cannot be written waits and is tried again."""
        at = round(tick.at * 1000)
        if at < self._newest and not any(event.kind == "agent" for event in tick.events):
            back = (self._newest - at) / 1000
            self.notes.append(f"the clock was set back by {back:.1f} s; what follows overlaps what is there")
            self._events.append(
                Event(tick.at, "agent", "", f"the clock was set back by {back:.1f} s", {"set_back_s": back})
            )
        self._newest = at
        self._tail.take(tick)
        self._usage.take(tick)
        self._events.extend(tick.events)
        self._told_refusals()
        self._unflushed += 1
        grave = any(event.kind in _GRAVE for event in tick.events)
        if grave or self._unflushed >= _FLUSH_TICKS or time.monotonic() - self._flushed >= FLUSH_S:
            self.flush()
        else:
            self._pack_some(at)

    def add_event(self, event: Event) -> None:
        """Keeps an event that came by another way than a tick. The same one twice is kept once."""
        self._events.append(event)

    def add_finding(
        self, finding: Finding, at: float, *, serial: str | None = None, slot: str | None = None, ended: float | None = None
    ) -> None:  # fmt: skip
        """Keeps a finding that holds since `at` (Unix seconds); again with `ended` when it holds no longer."""
        self._guarded(lambda db: events.insert_finding(db, at, finding, serial, slot, ended))

    def flush(self) -> None:
        """Commits all that waits."""
        self._flushed = time.monotonic()
        self._unflushed = 0
        try:
            self._guarded(self._write_waiting)
        except CouldNotError:
            self._bound_waiting()
            raise
        for part in self._tail.waiting:
            part.written = True
            part.rows.clear()
            del part.at[:]
        self._tail.waiting.clear()
        self._tail.new_series.clear()
        self._tail.new_subjects.clear()
        self._events.clear()
        self._usage.forget()
        self._sweep()
        self._sync()

    def pack_all(self, now: float, *, tail_s: float = 0.0) -> None:
        """Packs every part whose hour has passed for so long, at once. For imports and tests: the agent packs as it goes."""
        self.flush()
        while self._pack_one(round(now * 1000), int(tail_s * 1000), float("inf")):
            pass

    def close(self) -> None:
        """Commits and gives the file back."""
        try:
            if not self._files.read_only:
                self.flush()
                if self._syncing is not None:
                    self._syncing.join()
        finally:
            self._files.close()

    # -- reading

    def series(self, kind: str | None = None, key: str | None = None, field: str | None = None) -> list[Series]:
        """Every series of that kind, key and field; None: of any."""
        return self._asked(lambda db: read.list_series(db, kind, key, field))

    def subjects(self, kind: str | None = None) -> list[Subject]:
        """What things were known as, and since when; a GPU that was changed stands there twice."""
        return self._asked(lambda db: read.list_subjects(db, kind))

    def query(self, series: Series, since: float, until: float, points: int = 1000) -> list[Bucket]:
        """The series from `since` to `until` (Unix seconds) in at most `points` stretches of one width; those without a sample are left out.

        The width is one of 1 s to 10 min, or an hour and more; the ends are rounded outwards to it, `until` itself is not in it.
        Where samples are gone, an hour is one stretch.
        """
        return self._asked(lambda db: read.buckets(db, series, since, until, points))

    def newest(self, seconds: float, now: float | None = None) -> dict[Series, list[tuple[float, float]]]:
        """Samples (Unix seconds, value) of the last seconds, at most an hour, of every series that has any."""
        at = round((time.time() if now is None else now) * 1000)

        def ask(db: sqlite3.Connection) -> dict[Series, list[tuple[float, float]]]:
            found = read.newest_samples(db, at, min(seconds, 3600.0))
            return {one: found[one.id] for one in read.list_series(db, None, None, None) if one.id in found}

        return self._asked(ask)

    def span(self) -> tuple[float, float] | None:
        """When the first and the last sample were taken, in Unix seconds; None where there is none."""

        def ask(db: sqlite3.Connection) -> tuple[float, float] | None:
            first, last = db.execute("SELECT min(opened), max(ended) FROM rollup").fetchone()
            waiting = db.execute("SELECT min(opened) FROM part").fetchone()[0]
            row = db.execute("SELECT at FROM tail ORDER BY id DESC LIMIT 1").fetchone()
            ends = [last] if last is not None else []
            if row:
                ends.append(int.from_bytes(row[0][-8:], "little", signed=True))
            begins = [one for one in (first, waiting) if one is not None]
            return (min(begins) / 1000, max(ends) / 1000) if begins and ends else None

        return self._asked(ask)

    def events(
        self, since: float, until: float, kinds: Collection[str] | None = None, subject: str | None = None,
        serial: str | None = None, slot: str | None = None, most: int = 10_000,
    ) -> list[Event]:  # fmt: skip
        """Events of that time, oldest first; the newest where there are more than `most`."""
        return self._asked(lambda db: events.read_events(db, since, until, kinds, subject, serial, slot, most))

    def findings(
        self, since: float, until: float, subject: str | None = None, serial: str | None = None,
        slot: str | None = None, most: int = 10_000,
    ) -> list[StoredFinding]:  # fmt: skip
        """Findings that began in that time, oldest first."""
        return self._asked(lambda db: events.read_findings(db, since, until, subject, serial, slot, most))

    def repeated(
        self, serial: str | None, slot: str | None, code: int, days: float, *, now: float | None = None, kind: str = "xid"
    ) -> Past:  # fmt: skip
        """How often this card, and this slot, had that code in the last days; with it tells whether a fault moves with the card."""
        at = time.time() if now is None else now
        return self._asked(lambda db: events.repeated(db, serial, slot, code, days, at, kind))

    def usage(self, since: float, until: float) -> list[Holding]:
        """GPU time in that time, by process and GPU. To the minute; to the hour where samples are gone."""
        return self._asked(lambda db: read_holdings(db, since, until))

    def size(self) -> int:
        """Bytes that are used in the file."""
        return self._asked(pack.bytes_used)

    # -- within

    def _begin(self) -> None:
        db = self._files.connection
        ids = {(one.kind, one.key, one.field): one.id for one in read.list_series(db, None, None, None)}
        top = db.execute(
            "SELECT max(coalesce((SELECT max(id) FROM part), 0), coalesce((SELECT max(part) FROM rollup), 0))"
        ).fetchone()[0]
        about = {(one.kind, one.key): tuple(one.fields.values()) for one in read.list_subjects(db, None)}
        self._digits = {number: self._decimals(kind, field) for (kind, _, field), number in ids.items()}
        self._tail = Tail(self._kept, ids, top + 1, about)
        self._packed = pack.left_behind(db)
        newest = db.execute("SELECT max(opened) FROM part").fetchone()[0]
        self._newest = newest or 0

    def _decimals(self, kind: str, field: str) -> int | None:
        return None if self._kept is None else self._kept.get(kind, {}).get(field)

    def _asked(self, ask: Callable[[sqlite3.Connection], _Answer]) -> _Answer:
        """An answer from one state of the file, whatever is written meanwhile."""
        db = self._files.connection
        try:
            own = not db.in_transaction
            if own:
                db.execute("BEGIN")
            try:
                return ask(db)
            finally:
                if own and db.in_transaction:
                    db.execute("COMMIT")
        except sqlite3.Error as problem:
            raise told(problem, self.path) from problem
        except (CodecError, msgspec.DecodeError) as problem:
            raise HistoryDamagedError(f"{self.path}: the history is damaged ({problem})") from problem

    def _guarded(self, write: Callable[[sqlite3.Connection], None]) -> None:
        """One transaction. A damaged file is set aside, and the same is written to a new one."""
        try:
            self._transaction(write)
        except HistoryDamagedError as problem:
            self._replace_file(problem)
            self._transaction(write)

    def _transaction(self, write: Callable[[sqlite3.Connection], None]) -> None:
        db = self._files.connection
        try:
            db.execute("BEGIN IMMEDIATE")
            try:
                write(db)
                db.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    db.execute("ROLLBACK")
                raise
        except sqlite3.Error as problem:
            raise told(problem, self.path) from problem

    def _replace_file(self, problem: HistoryDamagedError) -> None:
        """A new file, which is told of all series that are open, and gets the rows that wait."""
        self._files.set_aside(str(problem))
        self._loaded = None
        self._packed.clear()
        self._tail.tell_all()

    def _write_waiting(self, db: sqlite3.Connection) -> None:
        tail = self._tail
        db.executemany("INSERT OR IGNORE INTO series VALUES (?,?,?,?)", tail.new_series)
        for one in tail.new_series:
            self._digits[one.id] = self._decimals(one.kind, one.field)
        db.executemany(
            "INSERT OR REPLACE INTO subject VALUES (?,?,?,?)",
            [(kind, key, at, msgspec.json.encode(about).decode()) for kind, key, at, about in tail.new_subjects],
        )
        for part in tail.waiting:
            _write_part(db, part)
        if self._events:
            events.insert_events(db, [events.event_row(event) for event in self._events])
        self._usage.store(db)

    def _bound_waiting(self) -> None:
        """While nothing can be written, a quarter of an hour is kept in memory; the oldest goes first."""
        lost = 0
        for part in self._tail.waiting:
            surplus = len(part.rows) - _MOST_WAITING
            if surplus > 0:
                del part.rows[:surplus]
                del part.at[:surplus]
                lost = max(lost, surplus)
        del self._events[: max(0, len(self._events) - 100_000)]
        if lost and not self._told_full:
            self._told_full = True
            self.notes.append(
                "the history could not be written for a quarter of an hour; the oldest samples in memory are dropped"
            )

    def _told_refusals(self) -> None:
        if self._tail.refused and not self._told_series:
            self._told_series = True
            self.notes.append(f"more than {MOST_SERIES} series: those that came later are not kept")

    # -- packing, retention, the disk

    def _pack_some(self, now: int) -> None:
        """A few milliseconds of packing, more where packing falls behind."""
        late = self._loaded is not None and now - self._loaded.opened > 4 * HOUR_MS
        try:
            self._pack_one(now, _TAIL_MS, _HURRY_S if late else _PACK_S)
        except HistoryDamagedError as problem:
            self._replace_file(problem)

    def _pack_one(self, now: int, keep: int, budget: float) -> bool:
        """Goes on with a part that is due; False where none is."""
        begun = time.perf_counter()
        if self._packed:
            done: list[bool] = []
            self._guarded(lambda db: done.append(pack.remove_rows(db, self._packed[-1], _ROWS_AT_ONCE)))
            if done and done[-1]:
                self._packed.pop()
            return True
        if self._loaded is None:
            number = self._asked(lambda db: pack.due(db, self._tail.open_parts(), now, keep))
            if number is None:
                return False
            self._loaded = self._asked(lambda db: pack.Loaded(db, number, self._digits.get))
            return True
        loaded = self._loaded
        try:
            whole = loaded.go_on(begun + budget)
        except sqlite3.Error as problem:
            raise told(problem, self.path) from problem
        if whole:
            self._guarded(loaded.store)
            self._loaded = None
            self._packed.append(loaded.number)
        return True

    def _sweep(self) -> None:
        """Once a minute: removes what is too old, or too much."""
        now = time.monotonic()
        if now - self._swept < 60.0 or not self._newest:
            return
        daily = self._swept == 0.0 or int(now // 86400) != int(self._swept // 86400)
        self._swept = now
        self._guarded(lambda db: self._drop(db, daily=daily))

    def _drop(self, db: sqlite3.Connection, *, daily: bool) -> None:
        newest = self._newest
        pack.drop_raw(db, newest - self._raw_ms)
        if pack.bytes_used(db) > self._most * _ROOM:
            self._make_room(db)
        if daily:
            db.execute("DELETE FROM rollup WHERE opened < ?", (newest - self._roll_ms,))
            events.trim_events(db, newest - self._event_ms)
            hour = newest // HOUR_MS * 60
            fold(db, hour - 60 * 24 * 7, (newest - self._roll_ms) // 60000)
        db.execute("PRAGMA incremental_vacuum(200)").fetchall()

    def _make_room(self, db: sqlite3.Connection) -> None:
        """The oldest hours of samples go; where there are none left, the oldest hourly figures."""
        oldest = pack.oldest_raw(db)
        if oldest is not None:
            until = (oldest // HOUR_MS + 1) * HOUR_MS
            pack.drop_raw(db, until)
            what = "samples"
        else:
            (oldest,) = db.execute("SELECT min(opened) FROM rollup").fetchone()
            if oldest is None:
                return
            until = oldest + _DAY_MS
            db.execute("DELETE FROM rollup WHERE opened < ?", (until,))
            what = "hourly figures"
        day = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(until / 1000))
        if not self._told_full:
            self._told_full = True
            said = f"the history has reached {self._most >> 20} MiB: {what} before {day} were removed, and the oldest will go on being so"
            self.notes.append(said)
            events.insert_events(
                db, [events.event_row(Event(self._newest / 1000, "agent", "", said, {"removed_until": until / 1000}))]
            )

    def _sync(self) -> None:
        """Every quarter of a minute the log goes into the file and onto the disk, in a thread that nobody waits for."""
        now = time.monotonic()
        if now - self._synced < _SYNC_S or (self._syncing is not None and self._syncing.is_alive()):
            return
        self._synced = now
        self._syncing = threading.Thread(target=_checkpoint, args=(self.path,), name="history-sync", daemon=True)
        self._syncing.start()


def _write_part(db: sqlite3.Connection, part: Part) -> None:
    if not part.written:
        db.execute(
            "INSERT OR REPLACE INTO part VALUES (?,?,?,?)",
            (part.number, part.opened, packed_columns(part.ids), part.types),
        )
    if part.rows:
        part.count += 1
        db.execute(
            "INSERT OR REPLACE INTO tail VALUES (?,?,?)",
            ((part.number << pack.SHIFT) + part.count, part.at.tobytes(), b"".join(part.rows)),
        )


def _checkpoint(path: Path) -> None:
    """A problem here shows again when something is written."""
    with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(path, timeout=0.1)) as db:
        db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
