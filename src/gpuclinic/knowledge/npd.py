"""Rules over the kernel's log for node-problem-detector: patterns in Go's language, the Xids from the catalogue."""

from __future__ import annotations

import functools
from typing import NamedTuple

from gpuclinic.knowledge._load import DATA
from gpuclinic.knowledge.xids import catalogue


class KernelRule(NamedTuple):
    """kind: permanent (the node is not well) or temporary (an event). pattern: matches to the end of the line, as NPD appends \\z."""

    kind: str
    reason: str
    pattern: str
    example: str
    source: str


@functools.cache
def kernel_rules() -> tuple[KernelRule, ...]:
    """All of them; {critical_xids} in a pattern stands for the codes that cost a GPU."""
    codes = sorted(code for (kind, code), info in catalogue().items() if kind == "xid" and info.severity == "critical")
    lines = (DATA / "npd_kernel.tsv").read_text(encoding="utf-8").splitlines()[1:]
    out = []
    for line in filter(None, lines):
        kind, reason, pattern, example, source = line.split("\t")
        out.append(
            KernelRule(kind, reason, pattern.replace("{critical_xids}", "|".join(map(str, codes))), example, source)
        )
    return tuple(out)
