"""What vendors and cloud providers ask for with a faulty GPU, as data."""

from __future__ import annotations

import functools
from typing import Any

import msgspec

from gpuclinic.knowledge._load import DATA, packed


class Piece(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One thing that is asked for. of: gpu (fields of the gpu facts), file, json, kvp (of Hyper-V), report (a file made before).

    command: what brings it where it is missing.
    """

    id: str
    of: str
    en: str
    zh: str
    command: str
    source: str
    fields: list[str] = []
    paths: list[str] = []


class Vendor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who takes the ticket, which pieces are asked for, and what to know before."""

    id: str
    name: str
    pieces: list[str]
    advice_en: str
    advice_zh: str
    source: str


class Tickets(msgspec.Struct, frozen=True):
    """The table."""

    pieces: dict[str, Piece]
    vendors: dict[str, Vendor]


VENDORS = ("nvidia", "dell", "supermicro", "hpe", "lenovo", "aws", "azure", "gcp", "aliyun", "tencent")


@functools.cache
def load_tickets() -> Tickets:
    """The shipped table."""

    def parse(raw: dict[str, list[Any]]) -> Tickets:
        pieces = msgspec.convert(raw["piece"], list[Piece])
        vendors = msgspec.convert(raw["vendor"], list[Vendor])
        return Tickets({p.id: p for p in pieces}, {v.id: v for v in vendors})

    return packed("tickets", [DATA / "tickets.toml"], parse, Tickets)
