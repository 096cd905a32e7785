"""Readings that no machine can have (a temperature of 4,000,000,000 °C) are no readings: table possible_ranges.tsv."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from gpuclinic.recognise.parsers.gpu_tables import read_table

if TYPE_CHECKING:
    from gpuclinic.model import Scalar, Where


@functools.cache
def _ranges() -> dict[str, tuple[float, float]]:
    return {row["ending"]: (float(row["lowest"]), float(row["highest"])) for row in read_table("possible_ranges.tsv")}


@functools.cache
def _units() -> dict[str, str]:
    return {row["unit"].removeprefix("°"): row["ending"] for row in read_table("possible_ranges.tsv")}


@functools.cache
def _range_of(ending: str) -> tuple[float, float] | None:
    return _ranges().get(f"_{ending}")


def is_possible(field: str, value: Scalar) -> bool:
    """The value of a field whose name ends in its unit lies in the range that the table has for it, if it has one."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return True
    known = _range_of(field.rpartition("_")[2])
    return known is None or known[0] <= value <= known[1]


def is_possible_in(unit: str, value: float) -> bool:
    """The same by unit: "°C" or "C", "W"."""
    ending = _units().get(unit.removeprefix("°"))
    return ending is None or is_possible(f"value{ending}", value)


def drop_impossible(fields: dict[str, Scalar], lines: dict[str, Where]) -> None:
    """Takes out what cannot be, and names it in the field `unreadable` (names with commas between)."""
    names = [name for name, value in fields.items() if not is_possible(name, value)]
    for name in names:
        del fields[name]
        place = lines.pop(name, None)
        if place is not None:
            lines[f"unreadable:{name}"] = place
            lines.setdefault("unreadable", place)
    if names:
        before = str(fields.get("unreadable") or "")
        fields["unreadable"] = ",".join(sorted({*names, *(name for name in before.split(",") if name)}))
