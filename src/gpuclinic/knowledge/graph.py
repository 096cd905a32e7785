"""The cause graph: which cause explains which, from explains.tsv."""

from __future__ import annotations

import fnmatch
import functools
from typing import NamedTuple

from gpuclinic.knowledge._load import DATA


class Edge(NamedTuple):
    """cause explains consequence within a scope ("gpu", "host", "job", "any") and at most within_s seconds (None: any later time)."""

    cause: str
    consequence: str
    scope: str
    within_s: float | None


@functools.cache
def edges() -> tuple[Edge, ...]:
    """All rows of explains.tsv."""
    rows: list[Edge] = []
    for line in (DATA / "explains.tsv").read_text(encoding="utf-8").splitlines()[1:]:
        parts = line.split("\t")
        if len(parts) >= 3 and not line.startswith("#"):
            within = parts[3].strip() if len(parts) > 3 else ""
            rows.append(Edge(parts[0], parts[1], parts[2] or "any", float(within) if within else None))
    return tuple(rows)


@functools.lru_cache(maxsize=8192)
def edge_between(cause: str, consequence: str) -> Edge | None:
    """The narrowest row that lets the first explain the second; None where none does. A cause never explains itself."""
    if cause == consequence:
        return None
    found = [
        e for e in edges() if fnmatch.fnmatchcase(cause, e.cause) and fnmatch.fnmatchcase(consequence, e.consequence)
    ]
    return max(found, key=lambda e: len(e.cause) + len(e.consequence), default=None)
