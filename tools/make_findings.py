"""Writes docs/findings.md, the table of all findings of `check`: python tools/make_findings.py [--check]."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from gpuclinic.knowledge import load_checks
from gpuclinic.model import SEVERITIES

PAGE = Path(__file__).resolve().parent.parent / "docs" / "findings.md"
HEAD = """# Findings of `gpuclinic check`

Made by tools/make_findings.py from the rows in src/gpuclinic/knowledge/data/checks; `gpuclinic explain ID` says when each holds.
Ids are stable: none is renamed or given another meaning, and none is also a cause.

| id | component | severity | cause | what it says | 含义 |
| --- | --- | --- | --- | --- | --- |
"""
LOGS = """
## What this machine's logs tell

A cause that the logs show becomes the finding of the first row that fits it; older than a day (or as the row says) it counts milder.

| id | component | severity | causes |
| --- | --- | --- | --- |
"""


def page() -> str:
    """The whole page."""
    tables = load_checks()
    out = [HEAD]
    for row in sorted(tables.checks, key=lambda r: r.id):
        told = ", ".join(s for s in reversed(SEVERITIES) if getattr(row, s))
        en, zh = (re.sub(r"\{(\w+)\}", r"`\1`", getattr(row, f"title_{x}")).replace("|", "\\|") for x in ("en", "zh"))
        out.append(f"| {row.id} | {row.component} | {told} | {row.cause or '-'} | {en} | {zh} |\n")
    out.append(LOGS)
    ids = dict.fromkeys(row.id for row in tables.log_findings if row.severity != "none")
    for identity in ids:
        rows = [row for row in tables.log_findings if row.id == identity]
        told = ", ".join(dict.fromkeys(row.severity for row in rows))
        out.append(f"| {identity} | {rows[0].component} | {told} | {', '.join(row.cause for row in rows)} |\n")
    return "".join(out)


def main() -> None:
    """Writes the page, or with --check says whether it is current."""
    if "--check" in sys.argv:
        if not PAGE.exists() or PAGE.read_text(encoding="utf-8") != page():
            sys.exit("docs/findings.md is not what tools/make_findings.py makes: run it")
        return
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
