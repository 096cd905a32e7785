"""From hits to a verdict: signs of one intruder are joined by what links them, and weighed. Pure.

The rule is that of the study of public rule sets: one conclusive sign, or two strong ones of different kinds on one subject, or a strong one with
two of medium strength, or three kinds of strong ones on the host, mean a break-in. One strong sign, or two of medium strength on one subject, or one of medium
strength that the GPUs' figures support, are a suspicion. Weak signs alone never count, any number of them.
"""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

import msgspec

from gpuclinic.audit.places import odd_place
from gpuclinic.knowledge.audit import GRADES, load_audit

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuclinic.audit.hits import Hit

_INFECTED, _SUSPICIOUS, _NONE = "infected", "suspicious", "none"


def grade_of(hit: Hit) -> str | None:
    """How much a hit proves of a break-in; None for a weak setting."""
    row = load_audit()[hit.id]
    return (hit.grade or row.grade) if row.of == "compromise" else None


def severity_of(hit: Hit) -> str:
    """How grave a hit is: of a sign by its grade, of a weak setting by its row."""
    grade = grade_of(hit)
    if grade is None:
        return hit.severity or load_audit()[hit.id].severity
    return hit.severity or {"conclusive": "critical", "strong": "critical", "medium": "warning", "weak": "info"}[grade]


def groups(hits: Iterable[Hit]) -> list[list[Hit]]:
    """Hits of a break-in that share a link, directly or by others; one without a link is a group of its own."""
    out: list[tuple[set[str], list[Hit]]] = []
    for hit in hits:
        if grade_of(hit) is None:
            continue
        links = _links(hit)
        mine = [pair for pair in out if pair[0] & links]
        refs, members = set(links), [hit]
        for pair in mine:
            refs |= pair[0]
            members = [*pair[1], *members]
            out.remove(pair)
        out.append((refs, members))
    return [members for _, members in out]


def _links(hit: Hit) -> set[str]:
    """Its links, and the hidden folders of its files: what lies in one of these belongs together."""
    out = set(hit.refs)
    for ref in hit.refs:
        kind, _, path = ref.partition(":")
        if kind == "file" and odd_place(path) == "hidden":
            out.add(f"folder:{posixpath.dirname(path)}")
    return out


def _kinds(hits: Iterable[Hit], grade: str) -> set[str]:
    """Different kinds of a grade; what stands among the stronger does not count again."""
    return {hit.kind or hit.id for hit in hits if grade_of(hit) == grade and hit.severity != "info"}


def of_group(group: list[Hit]) -> str:
    """What the signs of one subject amount to."""
    strong = _kinds(group, "strong")
    medium = _kinds(group, "medium") - strong
    weak = _kinds(group, "weak") - strong - medium
    if _kinds(group, GRADES[-1]) or len(strong) >= 2 or (strong and len(medium) >= 2):
        return _INFECTED
    return _SUSPICIOUS if strong or len(medium) >= 2 or (medium and weak) else _NONE


def compromise(hits: list[Hit]) -> str:
    """infected, suspicious or none."""
    verdicts = {of_group(group) for group in groups(hits)}
    if _INFECTED in verdicts or len(_kinds(hits, "strong")) >= 3:
        return _INFECTED
    return _SUSPICIOUS if _SUSPICIOUS in verdicts else _NONE


def settled(hits: list[Hit]) -> list[Hit]:
    """Signs that amount to nothing on their subject become informations: no verdict rests on them."""
    idle = {id(hit) for group in groups(hits) if of_group(group) == _NONE for hit in group}
    return [msgspec.structs.replace(hit, severity="info") if id(hit) in idle else hit for hit in hits]


def posture(hits: list[Hit]) -> str:
    """weak where a weak setting is above an information, else sound."""
    return "weak" if any(grade_of(hit) is None and severity_of(hit) != "info" for hit in hits) else "sound"
