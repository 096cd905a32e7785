"""From the tail to bundles: an hour's part is packed a column at a time, a few milliseconds of each tick, so that no tick waits for it."""

from __future__ import annotations

import time
from array import array
from typing import TYPE_CHECKING

from gpuclinic.store._history_codec import Figures, encode, encode_times
from gpuclinic.store._history_tail import HOUR_MS, columns_of

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable

_ROWS_READ = 150
SHIFT = 24
"""Of a tail row's id: the part's number stands above, a count below."""


class Loaded:
    """A part that is being packed."""

    def __init__(self, connection: sqlite3.Connection, number: int, digits: Callable[[int], int | None]) -> None:
        row = connection.execute("SELECT opened, columns, types FROM part WHERE id = ?", (number,)).fetchone()
        self.number, self.opened, self.ids, self.types = number, row[0], columns_of(row[1]), row[2]
        self._digits = digits
        self.at = array("q")
        self._cells = array("q")
        self._connection = connection
        self._next: int | None = number << SHIFT
        self._done = 0
        self._data: list[bytes] = []
        self._length = 0
        self.rollups: list[tuple[int | float, ...]] = []

    def go_on(self, until: float) -> bool:
        """Reads rows, then packs columns, until that moment of the performance clock, at least one step; True when all are packed."""
        while self._next is not None:
            self._next = self._read(self._next)
            if time.perf_counter() >= until:
                return False
        width = len(self.ids)
        while self._done < width:
            self._pack(self._done, width)
            self._done += 1
            if time.perf_counter() >= until:
                break
        return self._done >= width

    def _read(self, start: int) -> int | None:
        """Some rows more; where to go on, None at the end."""
        rows = self._connection.execute(
            "SELECT id, at, cells FROM tail WHERE id >= ? AND id < ? ORDER BY id LIMIT ?",
            (start, (self.number + 1) << SHIFT, _ROWS_READ),
        ).fetchall()
        for _, at, cells in rows:
            self.at.frombytes(at)
            self._cells.frombytes(cells)
        return rows[-1][0] + 1 if len(rows) == _ROWS_READ else None

    def _pack(self, place: int, width: int) -> None:
        column: array[int] | array[float] = self._cells[place::width]
        series = self.ids[place]
        if self.types[place] == "d":
            column = array("d", column.tobytes())
        packed = encode(column, self._digits(series))
        if packed is None:
            return
        blob, figures = packed
        self.rollups.append(_rollup(series, self, figures, self._length, len(blob)))
        self._data.append(blob)
        self._length += len(blob)

    def store(self, connection: sqlite3.Connection) -> None:
        """Puts the bundle in the part's place; its rows in the tail count no longer, and are removed by and by. Within a transaction."""
        if self.rollups:
            connection.execute(
                "INSERT OR REPLACE INTO bundle VALUES (?, ?, ?, ?, ?)",
                (self.number, self.at[0], self.at[-1], encode_times(self.at), b"".join(self._data)),
            )
            connection.executemany("INSERT OR REPLACE INTO rollup VALUES (?,?,?,?,?,?,?,?,?,?,?,?)", self.rollups)
        connection.execute("DELETE FROM part WHERE id = ?", (self.number,))


def _rollup(series: int, part: Loaded, figures: Figures, place: int, length: int) -> tuple[int | float, ...]:
    return (
        series, part.at[0], part.number, part.at[-1], figures.n, figures.low, figures.high, figures.total, figures.first,
        figures.last, place, length,
    )  # fmt: skip


def tail_rows(connection: sqlite3.Connection, number: int) -> list[tuple[bytes, bytes]]:
    """Moments and cells of a part that is not packed yet, in the order in which they came."""
    return connection.execute(
        "SELECT at, cells FROM tail WHERE id >= ? AND id < ? ORDER BY id", (number << SHIFT, (number + 1) << SHIFT)
    ).fetchall()


def remove_rows(connection: sqlite3.Connection, number: int, most: int) -> bool:
    """Removes some of the rows of a part that is packed; True when none is left."""
    gone = connection.execute(
        "DELETE FROM tail WHERE id IN (SELECT id FROM tail WHERE id >= ? AND id < ? ORDER BY id LIMIT ?)",
        (number << SHIFT, (number + 1) << SHIFT, most),
    ).rowcount
    return gone < most


def left_behind(connection: sqlite3.Connection) -> list[int]:
    """Parts that are packed and whose rows are still there: it ended before they were removed."""
    parts = {number for (number,) in connection.execute("SELECT id FROM part")}
    found = []
    after = 0
    while (first := connection.execute("SELECT min(id) FROM tail WHERE id >= ?", (after,)).fetchone()[0]) is not None:
        number = first >> SHIFT
        if number not in parts:
            found.append(number)
        after = (number + 1) << SHIFT
    return found


def due(connection: sqlite3.Connection, still_open: set[int], now: int, keep: int) -> int | None:
    """The oldest part that takes no more rows and whose hour has passed for as long as the tail keeps them (all in milliseconds).

    One from the future, left behind by a clock that was set back, is packed, too.
    """
    before = now // HOUR_MS * HOUR_MS - keep
    for (number,) in connection.execute(
        "SELECT id FROM part WHERE opened < ? OR opened > ? ORDER BY id", (before, now + HOUR_MS)
    ):
        if number not in still_open:
            return int(number)
    return None


def drop_raw(connection: sqlite3.Connection, before: int) -> int:
    """Removes bundles opened before that moment; returns how many. Their figures stay."""
    return connection.execute("DELETE FROM bundle WHERE opened < ?", (before,)).rowcount


def oldest_raw(connection: sqlite3.Connection) -> int | None:
    """When the oldest bundle was opened; None: there is none."""
    found = connection.execute("SELECT min(opened) FROM bundle").fetchone()[0]
    return None if found is None else int(found)


def bytes_used(connection: sqlite3.Connection) -> int:
    """Of the file, without pages that are free."""
    pages, free, size = (
        connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
    )
    return int((pages - free) * size)
