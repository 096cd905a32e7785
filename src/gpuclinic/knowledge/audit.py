"""What the audit can find, as data: one row for each id, with its texts, how much it proves, and its source."""

from __future__ import annotations

import functools
from typing import Any

import msgspec

from gpuclinic.knowledge._load import DATA, packed

GRADES = ("weak", "medium", "strong", "conclusive")
"""How much a sign of a break-in proves, least first: weak alone never counts; conclusive is what honest software does not do."""


class Step(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One thing to do; it keeps evidence. command: read-only, or clearly the remedy."""

    en: str
    zh: str
    command: str = ""


class AuditFinding(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A row.

    of: "compromise" (has a grade) or "posture" (a weak setting). severity: info, warning, critical. action: as docs/contract.md lists them.
    title, detail: texts with {places} that a hit's values fill. alike: the honest look-alike that it is told apart from, and by what.
    source: where it is said that this is a sign, or a weakness.
    """

    id: str
    of: str
    severity: str
    action: str
    title_en: str
    title_zh: str
    detail_en: str
    detail_zh: str
    source: str
    grade: str | None = None
    alike_en: str = ""
    alike_zh: str = ""
    steps: list[Step] = []


@functools.cache
def load_audit() -> dict[str, AuditFinding]:
    """All rows by id.

    Raises ValueError where two rows have one id, or a row of a break-in has no grade.
    """

    def parse(raw: dict[str, list[Any]]) -> dict[str, AuditFinding]:
        rows = msgspec.convert(raw["finding"], list[AuditFinding])
        out = {row.id: row for row in rows}
        bad = [
            r.id for r in rows if (r.of == "compromise") != (r.grade in GRADES) or r.of not in ("compromise", "posture")
        ]
        if len(out) != len(rows) or bad:
            raise ValueError(f"audit findings: an id twice, or a grade that does not fit: {bad}")
        return out

    return packed("audit", sorted((DATA / "audit").glob("findings_*.toml")), parse, dict[str, AuditFinding])
