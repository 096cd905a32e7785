"""The system calls in which processes wait, by number (knowledge/data/tables/waiting_calls.tsv)."""

from __future__ import annotations

import functools

from gpuclinic.knowledge._load import DATA


@functools.cache
def waiting_calls() -> dict[tuple[str, int], str]:
    """(machine, number) to the name of a system call; machine as uname gives it: x86_64 or aarch64."""
    out: dict[tuple[str, int], str] = {}
    for line in (DATA / "tables" / "waiting_calls.tsv").read_text(encoding="utf-8").splitlines()[1:]:
        name, x86, arm = line.split("\t")[:3]
        if x86:
            out["x86_64", int(x86)] = name
        if arm:
            out["aarch64", int(arm)] = name
    return out
