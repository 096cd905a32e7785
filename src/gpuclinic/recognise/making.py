"""Makes facts out of small files of /proc and /sys, each field with the file that shows it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gpuclinic.model import Fact, Where

if TYPE_CHECKING:
    from gpuclinic.model import Scalar


class Making:
    """One fact as its fields come in; what is None stays out."""

    def __init__(self, kind: str, key: str, source: str) -> None:
        self.kind, self.key, self.source = kind, key[:300], source
        self.fields: dict[str, Scalar] = {}
        self.places: dict[str, Where] = {}

    def put(self, name: str, value: Scalar, path: str = "", text: str = "") -> None:
        """A field, and the text that shows it."""
        if value is None:
            return
        self.fields[name] = value
        self.places[name] = Where(path or self.source, None, (text or f"{name} = {value}")[:500])

    def fact(self) -> Fact:
        """The fact."""
        places = {"": Where(self.source, None, f"{self.kind} {self.key}"), **self.places}
        return Fact(self.kind, self.key, dict(self.fields), places, self.source)


def number(text: str | None, base: int = 10) -> float | None:
    """The number that a file of one value holds; None where it is none or absurdly long."""
    if text is None:
        return None
    word = text.strip().split(" ")[0].split("\n")[0][:40]
    try:
        value = float(int(word, base)) if base != 10 else float(word)
    except (ValueError, OverflowError):
        return None
    return value if math.isfinite(value) else None


def whole(text: str | None, base: int = 10) -> int | None:
    """The same as a whole number."""
    value = number(text, base)
    return int(value) if value is not None and abs(value) < 1e19 else None


def pairs(text: str) -> dict[str, int]:
    """Lines of "name number", as vmstat, memory.events and memory.stat have them."""
    out: dict[str, int] = {}
    for line in text.splitlines()[:2000]:
        name, _, value = line.strip().partition(" ")
        if name and value.strip().isdecimal() and len(value) < 25:
            out[name] = int(value)
    return out
