"""Programs that take processors from jobs without being one (knowledge/data/tables/busy_programs.tsv)."""

from __future__ import annotations

import fnmatch
import functools

from gpuclinic.knowledge._load import DATA


@functools.cache
def _rows() -> list[tuple[str, str]]:
    lines = (DATA / "tables" / "busy_programs.tsv").read_text(encoding="utf-8").splitlines()[1:]
    return [(cells[0], cells[1]) for line in lines if len(cells := line.split("\t")) == 3]


@functools.lru_cache(maxsize=4096)
def role_of(program: str) -> str | None:
    """What a program of this name (comm of proc_pid_stat(5), 15 characters) does here; None where the table has it not."""
    return next((role for pattern, role in _rows() if fnmatch.fnmatchcase(program, pattern)), None)
