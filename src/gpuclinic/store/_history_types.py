"""What goes into the history and what comes out."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from gpuclinic.model import Finding

Kept = Mapping[str, Mapping[str, int | None]]
"""Which numbers are kept: by a fact's kind, its fields, each with the decimals that its source has (None: exactly as told)."""


class Series(msgspec.Struct, frozen=True):
    """One number of one thing over time: a field of the facts of this kind and key."""

    id: int
    kind: str
    key: str
    field: str


class Bucket(msgspec.Struct, frozen=True):
    """What a stretch of time held. at: Unix seconds of its beginning. n: samples; a stretch without any is no bucket.

    last: the latest sample by the order in which they came.
    """

    at: float
    n: int
    low: float
    high: float
    mean: float
    last: float


class Subject(msgspec.Struct, frozen=True):
    """What a thing was known as from a moment on: of a GPU its index, name, serial, uuid."""

    kind: str
    key: str
    at: float
    fields: dict[str, str | int | float | bool | None]


class Past(msgspec.Struct, frozen=True):
    """How often a fault came before. by_serial: moments at which this card had it. slots: where the card was then, in order of time.

    by_slot: moments at which any card in this slot had it. serials: these cards, in order of time.
    """

    code: int
    days: float
    by_serial: list[float]
    slots: list[str]
    by_slot: list[float]
    serials: list[str]


class Holding(msgspec.Struct, frozen=True):
    """What one process held of one GPU. pid 0: the GPU itself; its held is how long it was watched, its busy what the GPU reports.

    Seconds: held; share (of the time that a GPU was held, divided among those that held it at once); busy, of its share; unknown: the part
    of its share of which nobody can tell whether it was busy. peak_mib: most memory (None: not told).
    """

    gpu: str
    pid: int
    user: str
    job: str
    program: str
    held_s: float
    share_s: float
    busy_s: float
    unknown_s: float
    peak_mib: float | None


class StoredFinding(msgspec.Struct, frozen=True):
    """A finding and when it began, with the card and the slot that it was about. ended: when it no longer held, if so."""

    at: float
    finding: Finding
    serial: str | None = None
    slot: str | None = None
    ended: float | None = None
