"""The history's file: how it is opened, who may write it, and what is done with one that cannot be used."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
import time
from typing import TYPE_CHECKING

from gpuclinic.model import CouldNotError

if TYPE_CHECKING:
    from pathlib import Path

FORMAT = 1
_APPLICATION = 0x67707568
_WAIT_S = 5.0
_TABLES = """
CREATE TABLE series (id INTEGER PRIMARY KEY, kind TEXT NOT NULL, key TEXT NOT NULL, field TEXT NOT NULL);
CREATE TABLE subject (kind TEXT NOT NULL, key TEXT NOT NULL, at INTEGER NOT NULL, fields TEXT NOT NULL, PRIMARY KEY (kind, key, at)) WITHOUT ROWID;
CREATE TABLE part (id INTEGER PRIMARY KEY, opened INTEGER NOT NULL, columns BLOB NOT NULL, types TEXT NOT NULL);
CREATE TABLE tail (id INTEGER PRIMARY KEY, at BLOB NOT NULL, cells BLOB NOT NULL);
CREATE TABLE bundle (part INTEGER PRIMARY KEY, opened INTEGER NOT NULL, ended INTEGER NOT NULL, times BLOB NOT NULL, cells BLOB NOT NULL);
CREATE INDEX bundle_opened ON bundle (opened);
CREATE TABLE rollup (
  series INTEGER NOT NULL, opened INTEGER NOT NULL, part INTEGER NOT NULL, ended INTEGER NOT NULL, n INTEGER NOT NULL,
  low REAL, high REAL, total REAL, first REAL, last REAL, place INTEGER NOT NULL, length INTEGER NOT NULL,
  PRIMARY KEY (series, opened, part)) WITHOUT ROWID;
CREATE TABLE event (
  id INTEGER PRIMARY KEY, at INTEGER NOT NULL, kind TEXT NOT NULL, subject TEXT NOT NULL, serial TEXT, slot TEXT, code INTEGER,
  text TEXT NOT NULL, data BLOB NOT NULL);
CREATE UNIQUE INDEX event_once ON event (at, kind, subject, text);
CREATE INDEX event_serial ON event (serial, code, at) WHERE serial IS NOT NULL;
CREATE INDEX event_slot ON event (slot, code, at) WHERE slot IS NOT NULL;
CREATE TABLE finding (
  id INTEGER PRIMARY KEY, at INTEGER NOT NULL, finding TEXT NOT NULL, severity TEXT NOT NULL, subject TEXT NOT NULL,
  serial TEXT, slot TEXT, ended INTEGER, data BLOB NOT NULL);
CREATE INDEX finding_at ON finding (at);
CREATE UNIQUE INDEX finding_once ON finding (finding, subject, at);
CREATE INDEX finding_serial ON finding (serial, at) WHERE serial IS NOT NULL;
CREATE INDEX finding_slot ON finding (slot, at) WHERE slot IS NOT NULL;
CREATE TABLE holder (
  id INTEGER PRIMARY KEY, gpu TEXT NOT NULL, pid INTEGER NOT NULL, user TEXT NOT NULL, job TEXT NOT NULL, program TEXT NOT NULL,
  UNIQUE (gpu, pid, user, job, program));
CREATE TABLE holding (
  holder INTEGER NOT NULL, minute INTEGER NOT NULL, held REAL NOT NULL, share REAL NOT NULL, busy REAL NOT NULL, unknown REAL NOT NULL,
  peak REAL, PRIMARY KEY (minute, holder)) WITHOUT ROWID;
"""
"""part: columns that were written together for a while, at most an hour: series ids (four bytes each) and their types (q, d).
tail: rows of a part as they came; id is the part's number << 24 and a count. bundle: the same part packed, moments and columns;
rollup: the figures of each column, and where it lies in the bundle; they outlive it. Times are milliseconds since 1970.
holding: what a process held of a GPU in a minute (later an hour), in seconds."""


class HistoryDamagedError(CouldNotError):
    """The file is no history, or parts of it are damaged."""


class Files:
    """The lock and the connection. path: of the database."""

    def __init__(self, path: Path, *, read_only: bool) -> None:
        self.path = path
        self.read_only = read_only
        self.notes: list[str] = []
        self._lock: int | None = None
        if not read_only:
            self._lock = _locked(path)
        try:
            self.connection = self._opened()
        except BaseException:
            self._unlock()
            raise

    def close(self) -> None:
        """Gives file and lock back."""
        self.connection.close()
        self._unlock()

    def set_aside(self, why: str) -> None:
        """The file gets another name, and an empty one takes its place. Nothing is deleted."""
        with contextlib.suppress(sqlite3.Error):
            self.connection.close()
        self._move_aside(why)
        self.connection = self._opened()

    def _unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _opened(self) -> sqlite3.Connection:
        if self.read_only:
            return _for_reading(self.path)
        try:
            return _for_writing(self.path)
        except HistoryDamagedError as problem:
            self._move_aside(str(problem))
            return _for_writing(self.path)

    def _move_aside(self, why: str) -> None:
        name = f"{self.path.name}.damaged-{time.strftime('%Y%m%dT%H%M%S')}"
        count = 0
        while (aside := self.path.with_name(name + (f"-{count}" if count else ""))).exists():
            count += 1
        try:
            for end in ("-wal", "-shm", ""):
                with contextlib.suppress(FileNotFoundError):
                    self.path.with_name(self.path.name + end).rename(aside.with_name(aside.name + end))
        except OSError as problem:
            raise CouldNotError(f"{why}; it could not be set aside: {problem.strerror or problem}") from problem
        self.notes.append(f"{why}; it is kept as {aside.name}, and a new history was begun")


def told(problem: sqlite3.Error, path: Path) -> CouldNotError:
    """What SQLite says, as one line of ours."""
    text = str(problem)
    if isinstance(problem, sqlite3.DatabaseError) and ("malformed" in text or "not a database" in text):
        return HistoryDamagedError(f"{path}: the history is damaged ({text})")
    if "database or disk is full" in text:
        return CouldNotError(f"{path}: no space left on the file system, or the file's limit is reached")
    if "readonly" in text or "read-only" in text:
        return CouldNotError(f"{path}: cannot be written (read-only)")
    if "locked" in text:
        return CouldNotError(f"{path}: another program holds the history")
    return CouldNotError(f"{path}: {text}")


def _locked(path: Path) -> int:
    """One writer. The lock dies with its process."""
    name = path.with_name(path.name + ".lock")
    try:
        handle = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as problem:
        raise CouldNotError(f"{name}: {problem.strerror or problem}") from problem
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as problem:
        who = os.read(handle, 32).decode("ascii", "replace").strip()
        os.close(handle)
        by = f" by process {who}" if who.isdecimal() else ""
        raise CouldNotError(f"{path}: the history is being written already{by}; one writer at a time") from problem
    with contextlib.suppress(OSError):  # who holds it is a courtesy: a full disk does not take the lock away
        os.ftruncate(handle, 0)
        os.write(handle, f"{os.getpid()}\n".encode())
    return handle


def _for_writing(path: Path) -> sqlite3.Connection:
    _refuse_strange(path)
    connection = None
    try:
        made = not path.exists() or path.stat().st_size == 0
        connection = sqlite3.connect(path, timeout=_WAIT_S, isolation_level=None, check_same_thread=False)
        if made:
            path.chmod(0o600)
            connection.execute("PRAGMA page_size = 4096")
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA cache_size = -2048")
        connection.execute("PRAGMA wal_autocheckpoint = 0")  # done beside, so that no sample waits for the disk
        _made_or_known(connection, path)
    except OSError as problem:
        raise CouldNotError(f"{path}: {problem.strerror or problem}") from problem
    except (sqlite3.Error, CouldNotError) as problem:
        if connection is not None:
            connection.close()
        raise (told(problem, path) if isinstance(problem, sqlite3.Error) else problem) from problem
    return connection


def _for_reading(path: Path) -> sqlite3.Connection:
    if not path.exists():
        raise CouldNotError(f"{path}: there is no history yet; gpuclinic agent writes one")
    _refuse_strange(path)
    problem: sqlite3.Error | None = None
    log = path.with_name(path.name + "-wal")
    for how in ("mode=ro", "mode=ro&immutable=1"):
        if "immutable" in how and log.exists() and log.stat().st_size:
            break  # what stands in the log would be missed
        connection = None
        try:
            connection = sqlite3.connect(_uri(path, how), uri=True, timeout=_WAIT_S, isolation_level=None)
            _known(connection, path)
        except sqlite3.Error as said:
            problem = said
            if connection is not None:
                connection.close()
            continue
        except CouldNotError:
            if connection is not None:
                connection.close()
            raise
        return connection
    raise told(problem, path) if problem else CouldNotError(f"{path}: cannot be read")


def _uri(path: Path, how: str) -> str:
    return f"{path.absolute().as_uri()}?{how}"


def _refuse_strange(path: Path) -> None:
    try:
        if not path.exists():
            return
        if not path.is_file():
            raise CouldNotError(f"{path}: not a file")
        with path.open("rb") as file:
            head = file.read(16)
    except OSError as problem:
        raise CouldNotError(f"{path}: {problem.strerror or problem}") from problem
    if head and head != b"SQLite format 3\0":
        raise HistoryDamagedError(f"{path}: not a history (no SQLite database)")


def _made_or_known(connection: sqlite3.Connection, path: Path) -> None:
    if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0:
        connection.execute("BEGIN IMMEDIATE")
        for statement in _TABLES.split(";"):
            if statement.strip():
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {_APPLICATION}")
        connection.execute(f"PRAGMA user_version = {FORMAT}")
        connection.execute("COMMIT")
        return
    _known(connection, path)


def _known(connection: sqlite3.Connection, path: Path) -> None:
    if connection.execute("PRAGMA application_id").fetchone()[0] != _APPLICATION:
        raise CouldNotError(f"{path}: a database of another program; it is left alone")
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version > FORMAT:
        raise CouldNotError(
            f"{path}: written by a newer gpuclinic (format {version}, this one knows {FORMAT}); it is left alone"
        )
