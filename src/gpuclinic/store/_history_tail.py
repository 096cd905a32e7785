"""From ticks to rows: which cell a number goes to, and the rows that wait to be written.

The numbers of one kind of fact stand side by side in parts of at most 64 columns, a row each time that the kind was looked at. A part lives
for at most an hour of the clock, and its moments only go forward: a new hour, a clock set back, or a number not seen before opens a new one.
"""

from __future__ import annotations

import struct
from array import array
from typing import TYPE_CHECKING, NamedTuple

from gpuclinic.store._history_codec import ABSENT_FLOAT, ABSENT_INT

if TYPE_CHECKING:
    from gpuclinic.model import Fact, Scalar, Tick
    from gpuclinic.store._history_types import Kept

HOUR_MS = 3_600_000
COLUMNS = 64
MOST_SERIES = 20_000
"""More is no machine but something that makes up names: what comes later is not kept, and that is said."""
IDENTITY = (
    "index",
    "name",
    "serial",
    "uuid",
    "bus_id",
    "module_id",
    "minor",
    "minor_number",
    "device",
    "profile",
    "gpu_index",
)
_FORGET_S = 3600.0
_FRESH_S = 0.05
Name = tuple[str, str, str]


class NewSeries(NamedTuple):
    """A series that the file does not know yet."""

    id: int
    kind: str
    key: str
    field: str


class Part:
    """Columns that are written together. columns: series ids; types: q or d each."""

    def __init__(self, number: int, kind: str, names: list[Name], ids: list[int], types: str, opened: int) -> None:
        self.number, self.kind, self.names, self.ids, self.types, self.opened = number, kind, names, ids, types, opened
        self.layout = struct.Struct("<" + types)
        self.absent: list[int | float] = [ABSENT_INT if code == "q" else ABSENT_FLOAT for code in types]
        self.last = -(1 << 62)
        self.at = array("q")
        self.rows: list[bytes] = []
        self.written = False
        self.count = 0

    def fits(self, at: int) -> bool:
        """The moment belongs to this part."""
        return at > self.last and at // HOUR_MS == self.opened // HOUR_MS


class Segment(NamedTuple):
    """Where the fields of one fact stand in a part: from base on, each with the mark for "no value"."""

    part: Part
    base: int
    fields: list[tuple[str, int | float]]


class _Thing:
    """A fact that is followed. unseen: its fields that are kept and have not been told yet."""

    __slots__ = ("identified", "seen", "segments", "unseen")

    def __init__(self, unseen: set[str]) -> None:
        self.unseen = unseen
        self.segments: list[Segment] = []
        self.seen = 0.0
        self.identified = False


class Tail:
    """Rows that wait to be written. ids: the series that the file knows; next_part: the first free number."""

    def __init__(
        self, kept: Kept | None, ids: dict[Name, int], next_part: int, about: dict[tuple[str, str], tuple[Scalar, ...]]
    ) -> None:
        self._kept = kept
        self._ids = ids
        self._next_series = max(ids.values(), default=0) + 1
        self._next_part = next_part
        self._types: dict[Name, str] = {}
        self._things: dict[tuple[str, str], _Thing] = {}
        self._parts: dict[str, list[Part]] = {}
        self._looked: dict[str, float] = {}
        self._about = about
        self.waiting: list[Part] = []
        self.new_series: list[NewSeries] = []
        self.new_subjects: list[tuple[str, str, int, dict[str, Scalar]]] = []
        self.refused = 0

    def tell_all(self) -> None:
        """Everything that a new file must be told: the series of all open parts and of rows that wait, and who things are."""
        parts = {part.number: part for parts in self._parts.values() for part in parts}
        parts |= {part.number: part for part in self.waiting}
        names = {name: self._ids[name] for part in parts.values() for name in part.names}
        self.new_series = [NewSeries(number, *name) for name, number in self._ids.items() if name in names]
        self.new_series.sort()
        self._about.clear()
        for part in parts.values():
            part.written = False
        for thing in self._things.values():
            thing.identified = False

    def open_parts(self) -> set[int]:
        """Numbers of the parts to which rows are still added."""
        return {part.number for parts in self._parts.values() for part in parts}

    def take(self, tick: Tick) -> None:
        """The numbers of a tick, as rows."""
        fresh: dict[str, int | None] = {}
        looked = []
        for fact in tick.facts:
            kind = fact.kind
            if kind not in fresh:
                fresh[kind] = self._moment(kind, tick)
            at = fresh[kind]
            if at is not None:
                looked.append((fact, self._thing(fact, at, tick.mono)))
        rows: dict[Part, list[int | float]] = {}
        for fact, thing in looked:
            _place(fact, thing, rows)
        for part, row in rows.items():
            at = fresh[part.kind]
            if at is not None:
                self._write(part, at, row)

    def _moment(self, kind: str, tick: Tick) -> int | None:
        """When the kind was looked at, in milliseconds; None where it is not kept, or was told before already."""
        if self._kept is not None and kind not in self._kept:
            return None
        age = tick.ages.get(kind, 0.0)
        looked = tick.mono - age
        if looked <= self._looked.get(kind, float("-inf")) + _FRESH_S and age > 0:
            return None
        self._looked[kind] = looked
        at = round((tick.at - age) * 1000)
        if any(not part.fits(at) for part in self._parts.get(kind, ())):
            self._reopen(kind, at, tick.mono)
        return at

    def _thing(self, fact: Fact, at: int, mono: float) -> _Thing:
        """What is known of the fact's thing, with columns for all that it tells."""
        thing = self._things.get((fact.kind, fact.key))
        if thing is None:
            thing = self._things[fact.kind, fact.key] = _Thing(self._wanted(fact))
        elif self._kept is None:
            thing.unseen |= self._wanted(fact) - {name for segment in thing.segments for name, _ in segment.fields}
        thing.seen = mono
        if not thing.identified:
            thing.identified = True
            self._note_identity(fact, at)
        if thing.unseen and not thing.unseen.isdisjoint(fact.fields):
            self._extend(thing, fact, at)
        return thing

    def _wanted(self, fact: Fact) -> set[str]:
        if self._kept is not None:
            return set(self._kept[fact.kind])
        return {name for name, value in fact.fields.items() if isinstance(value, (int, float))}

    def _extend(self, thing: _Thing, fact: Fact, at: int) -> None:
        """Columns for fields that are told for the first time: in the kind's last part, which is opened anew with them."""
        found = [name for name in sorted(thing.unseen) if isinstance(fact.fields.get(name), (int, float))]
        if not found:
            return
        names = []
        for field in found:
            name = (fact.kind, fact.key, field)
            if name not in self._ids:
                if len(self._ids) >= MOST_SERIES:
                    self.refused += 1
                    thing.unseen.discard(field)
                    continue
                self._ids[name] = self._next_series
                self.new_series.append(NewSeries(self._next_series, *name))
                self._next_series += 1
            self._types[name] = "d" if isinstance(fact.fields[field], float) else "q"
            names.append(name)
        thing.unseen.difference_update(found)
        parts = self._parts.setdefault(fact.kind, [])
        while names:
            last = parts[-1] if parts and len(parts[-1].names) < COLUMNS else None
            if last is not None:
                parts.remove(last)
            room = COLUMNS - (len(last.names) if last else 0)
            self._replace(last, fact.kind, [*(last.names if last else []), *names[:room]], at)
            names = names[room:]

    def _note_identity(self, fact: Fact, at: int) -> None:
        """Who the thing is, where that is new or has changed."""
        about = {name: fact.fields[name] for name in IDENTITY if fact.fields.get(name) is not None}
        if about and self._about.get((fact.kind, fact.key)) != tuple(about.values()):
            self._about[fact.kind, fact.key] = tuple(about.values())
            self.new_subjects.append((fact.kind, fact.key, at, about))

    def _replace(self, old: Part | None, kind: str, names: list[Name], at: int) -> Part:
        """A part with these columns; the things that stood in the old one, and those that are new, stand in it."""
        part = Part(
            self._next_part, kind, names, [self._ids[name] for name in names],
            "".join(self._types[name] for name in names), at,
        )  # fmt: skip
        self._next_part += 1
        self._parts.setdefault(kind, []).append(part)
        keys = dict.fromkeys(key for _, key, _ in names)
        for key in keys:
            thing = self._things[kind, key]
            thing.segments = [segment for segment in thing.segments if segment.part is not old]
        self._lay_out(part)
        return part

    def _lay_out(self, part: Part) -> None:
        base = 0
        names = part.names
        while base < len(names):
            end = base
            while end < len(names) and names[end][1] == names[base][1]:
                end += 1
            fields = [(names[i][2], part.absent[i]) for i in range(base, end)]
            self._things[part.kind, names[base][1]].segments.append(Segment(part, base, fields))
            base = end

    def _reopen(self, kind: str, at: int, mono: float) -> None:
        """New parts with the columns of all things that were seen in the last hour."""
        old = self._parts.pop(kind, [])
        gone = [place for place, thing in self._things.items() if place[0] == kind and mono - thing.seen > _FORGET_S]
        for place in gone:
            del self._things[place]
        for place, thing in self._things.items():
            if place[0] == kind:
                thing.segments = []
                thing.identified = False
        for part in old:
            names = [name for name in part.names if name[:2] in self._things]
            if names:
                self._replace(None, kind, names, at)

    def _write(self, part: Part, at: int, row: list[int | float]) -> None:
        try:
            cells = part.layout.pack(*row)
        except (struct.error, TypeError, OverflowError):
            part, row = self._mended(part, at, row)
            cells = part.layout.pack(*row)
        if not part.rows:
            self.waiting.append(part)
        part.at.append(at)
        part.rows.append(cells)
        part.last = at

    def _mended(self, part: Part, at: int, row: list[int | float]) -> tuple[Part, list[int | float]]:
        """Words are no values; a whole number that turns out to have decimals makes its column one of floats, in a new part."""
        wider = False
        for place, value in enumerate(row):
            if not isinstance(value, (int, float)):
                row[place] = part.absent[place]
            elif part.types[place] == "q" and (isinstance(value, float) or not ABSENT_INT < value < -ABSENT_INT):
                self._types[part.names[place]] = "d"
                wider = True
        if not wider:
            return part, row
        parts = self._parts[part.kind]
        parts.remove(part)
        wide = self._replace(part, part.kind, part.names, at)
        for place, code in enumerate(wide.types):
            value = row[place]
            if code == "d":
                row[place] = ABSENT_FLOAT if isinstance(value, int) and value == ABSENT_INT else _as_float(value)
        return wide, row


def _place(fact: Fact, thing: _Thing, rows: dict[Part, list[int | float]]) -> None:
    get = fact.fields.get
    for part, base, fields in thing.segments:
        row = rows.get(part)
        if row is None:
            row = rows[part] = part.absent.copy()
        row[base : base + len(fields)] = [
            absent if (value := get(name)) is None else value  # type: ignore[misc]
            for name, absent in fields
        ]


def _as_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return ABSENT_FLOAT


def columns_of(blob: bytes) -> array[int]:
    """Series ids of a part."""
    columns = array("I")
    columns.frombytes(blob)
    return columns


def packed_columns(ids: list[int]) -> bytes:
    """The other way round."""
    return array("I", ids).tobytes()
