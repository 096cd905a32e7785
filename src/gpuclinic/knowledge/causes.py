"""Causes by id, with their texts in both languages."""

from __future__ import annotations

import functools

from gpuclinic.knowledge._load import DATA, load
from gpuclinic.knowledge._records import CauseInfo


@functools.cache
def _all() -> dict[str, CauseInfo]:
    found = {c.id: c for c in load().causes}
    for line in (DATA / "cause_ids.tsv").read_text(encoding="utf-8").splitlines()[1:]:
        identity, layer, domain, action, meaning = line.split("\t")[:5]
        if identity not in found:
            found[identity] = CauseInfo(
                identity, layer, domain, action, "critical", meaning, meaning, meaning, meaning, "cause_ids.tsv"
            )
    return found


def cause_info(identity: str) -> CauseInfo:
    """What is known of a cause; raises KeyError for an id that does not exist."""
    return _all()[identity]


def cause_ids() -> list[str]:
    """Every id, in the table's order."""
    return list(_all())
