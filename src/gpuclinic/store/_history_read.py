"""Questions about numbers: which series there are, and what they were."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from gpuclinic.store._history_codec import CodecError, decode, decode_times
from gpuclinic.store._history_pack import tail_rows
from gpuclinic.store._history_tail import HOUR_MS, columns_of
from gpuclinic.store._history_types import Bucket, Series, Subject

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator

STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800)
"""Widths of buckets, in seconds. From an hour on the hourly figures answer; what lies between ten minutes and an hour is not offered,
since it would have weeks of samples unpacked for a picture that looks the same."""
Samples = list[tuple[float, float]]


class Stretch(NamedTuple):
    """Samples or hourly figures on their way into buckets. at: milliseconds; order: the part's number, which only grows."""

    at: int
    order: int
    n: int
    low: float
    high: float
    total: float
    last: float


def step_for(since: float, until: float, points: int) -> int:
    """The narrowest width that needs no more than so many buckets, in milliseconds."""
    needed = (until - since) / max(points, 1)
    return 1000 * next((step for step in STEPS_S if step >= needed), STEPS_S[-1] * max(1, round(needed / STEPS_S[-1])))


def list_series(connection: sqlite3.Connection, kind: str | None, key: str | None, field: str | None) -> list[Series]:
    """Series of a kind, key, field; None: of any."""
    wanted = [(name, value) for name, value in (("kind", kind), ("key", key), ("field", field)) if value is not None]
    where = " WHERE " + " AND ".join(f"{name} = ?" for name, _ in wanted) if wanted else ""
    rows = connection.execute(
        f"SELECT id, kind, key, field FROM series{where} ORDER BY kind, field, key",  # noqa: S608 - names are ours
        [value for _, value in wanted],
    )
    return [Series(*row) for row in rows]


def list_subjects(connection: sqlite3.Connection, kind: str | None) -> list[Subject]:
    """What things were known as, oldest first."""
    rows = connection.execute(
        "SELECT kind, key, at, fields FROM subject WHERE ? IS NULL OR kind = ? ORDER BY at", (kind, kind)
    )
    return [Subject(row[0], row[1], row[2] / 1000, msgspec.json.decode(row[3])) for row in rows]


def buckets(connection: sqlite3.Connection, series: Series, since: float, until: float, points: int) -> list[Bucket]:
    """The series in stretches of one width, those without a sample left out."""
    step = step_for(since, until, points)
    start, end = int(since * 1000) // step * step, -(-int(until * 1000) // step) * step
    found = list(_stretches(connection, series, start, end, step))
    found.extend(_of_tail(connection, series, start, end, step))
    return _joined(found, step)


def _stretches(connection: sqlite3.Connection, series: Series, start: int, end: int, step: int) -> Iterator[Stretch]:
    """From packed hours. An hour whose samples are gone counts as a whole at its beginning."""
    rows = connection.execute(
        "SELECT opened, ended, part, n, low, high, total, last, place, length FROM rollup WHERE series = ? AND opened >= ? AND opened < ?",
        (series.id, start - HOUR_MS, end),
    ).fetchall()
    for opened, ended, part, n, low, high, total, last, place, length in rows:
        if ended < start:
            continue
        whole = opened >= start and ended < end and opened // step == ended // step
        raw = None
        if not whole:
            raw = connection.execute(
                "SELECT times, substr(cells, ?, ?) FROM bundle WHERE part = ?", (place + 1, length, part)
            ).fetchone()
        if raw is None:
            yield Stretch(max(opened, start), part, n, low, high, total, last)
        else:
            yield from _of_samples(*_samples(raw[0], raw[1]), part, start, end, step)


def _samples(times: bytes, cells: bytes) -> tuple[list[int], list[float]]:
    at = decode_times(times)
    column = decode(cells)
    if column.places is not None:
        try:
            at = [at[place] for place in column.places]
        except IndexError as problem:
            raise CodecError("a column that is not whole") from problem
    if len(at) != len(column.values):
        raise CodecError("a column that is not whole")
    return at, column.values


def _of_samples(at: list[int], values: list[float], part: int, start: int, end: int, step: int) -> Iterator[Stretch]:
    place = bisect_left(at, start)
    stop = bisect_left(at, end)
    while place < stop:
        edge = (at[place] // step + 1) * step
        after = min(bisect_left(at, edge, place), stop)
        piece = values[place:after]
        yield Stretch(at[place], part, len(piece), min(piece), max(piece), float(sum(piece)), piece[-1])
        place = after


def _of_tail(connection: sqlite3.Connection, series: Series, start: int, end: int, step: int) -> Iterator[Stretch]:
    """From parts that are not packed yet."""
    rows = connection.execute(
        "SELECT id, columns, types FROM part WHERE opened < ? AND opened >= ? ORDER BY id", (end, start - HOUR_MS)
    ).fetchall()
    for number, columns, types in rows:
        ids = columns_of(columns)
        if series.id not in ids:
            continue
        place = ids.index(series.id)
        at, values = _unpacked(connection, number, place, len(ids), types[place])
        yield from _of_samples(at, values, number, start, end, step)


def _unpacked(
    connection: sqlite3.Connection, number: int, place: int, width: int, code: str
) -> tuple[list[int], list[float]]:
    at, cells = array("q"), array("q")
    rows = tail_rows(connection, number)
    at.frombytes(b"".join(row[0] for row in rows))
    cells.frombytes(b"".join(row[1] for row in rows))
    return present(at, cells[place::width], code)


def present(at: array[int], column: array[int], code: str) -> tuple[list[int], list[float]]:
    """Moments and values of a column without its gaps."""
    if code == "d":
        floats = array("d", column.tobytes())
        kept = [(moment, value) for moment, value in zip(at, floats, strict=True) if value == value]
    else:
        kept = [(moment, value) for moment, value in zip(at, column, strict=True) if value != -(1 << 63)]
    return [moment for moment, _ in kept], [value for _, value in kept]


def _joined(found: list[Stretch], step: int) -> list[Bucket]:
    found.sort(key=lambda one: (one.at // step, one.order, one.at))
    made: list[Bucket] = []
    place = 0
    while place < len(found):
        slot = found[place].at // step
        n, low, high, total = 0, found[place].low, found[place].high, 0.0
        last = found[place].last
        while place < len(found) and found[place].at // step == slot:
            one = found[place]
            n, low, high, total, last = n + one.n, min(low, one.low), max(high, one.high), total + one.total, one.last
            place += 1
        made.append(Bucket(slot * step / 1000, n, low, high, total / n, last))
    return made


def newest_samples(connection: sqlite3.Connection, now_ms: int, seconds: float) -> dict[int, Samples]:
    """The last seconds before that moment of every series, by its id, as they were taken: from the tail alone, which has an hour at least."""
    start = now_ms - int(seconds * 1000)
    found: dict[int, Samples] = {}
    rows = connection.execute(
        "SELECT id, columns, types FROM part WHERE opened >= ? ORDER BY id", (start - HOUR_MS,)
    ).fetchall()
    for number, columns, types in rows:
        ids = columns_of(columns)
        at, cells = _since(tail_rows(connection, number), start)
        for place, series in enumerate(ids if at else ()):
            moments, values = present(at, cells[place :: len(ids)], types[place])
            if moments:
                found.setdefault(series, []).extend(
                    (moment / 1000, value) for moment, value in zip(moments, values, strict=True) if moment >= start
                )
    return found


def _since(rows: list[tuple[bytes, bytes]], start: int) -> tuple[array[int], array[int]]:
    at, cells = array("q"), array("q")
    for moments, some in rows:
        piece = array("q", moments)
        if piece[-1] >= start:
            at.extend(piece)
            cells.frombytes(some)
    return at, cells
