"""What OpenTelemetry's semantic conventions call numbers of ours (knowledge/data/otel_names.tsv)."""

from __future__ import annotations

import functools
from typing import NamedTuple

from gpuclinic.knowledge._load import DATA


class OtelName(NamedTuple):
    """name, unit (UCUM), instrument (gauge, counter, updown) and attributes of a field of a kind of fact; the field times `factor`."""

    kind: str
    field: str
    name: str
    unit: str
    factor: float
    instrument: str
    attributes: tuple[tuple[str, str], ...]
    source: str


@functools.cache
def otel_names() -> dict[tuple[str, str], OtelName]:
    """By kind and field."""
    lines = (DATA / "otel_names.tsv").read_text(encoding="utf-8").splitlines()[1:]
    out = {}
    for line in filter(None, lines):
        kind, field, name, unit, factor, instrument, attributes, source = line.split("\t")
        pairs = tuple((part.partition("=")[0], part.partition("=")[2]) for part in attributes.split(",") if part)
        out[kind, field] = OtelName(kind, field, name, unit, float(factor), instrument, pairs, source)
    return out
