"""p2pBandwidthLatencyTest of the CUDA samples: is direct traffic between GPUs slower than staged traffic?"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpuclinic.recognise.parsers.gpu_text import Scalar, make

if TYPE_CHECKING:
    from gpuclinic.model import Document, Fact

_HEAD = re.compile(r"^(Uni|Bi)directional P2P=(Enabled|Disabled) Bandwidth .*Matrix \(GB/s\)")
_ROW = re.compile(r"^\s*(\d{1,2})((?:\s+\d{1,9}\.\d{1,9})+)\s*$")


def parse_p2p_test(document: Document) -> list[Fact]:
    """Fact p2p_pair (a, b, direct_gbs, staged_gbs) of every pair with both numbers."""
    matrices: dict[str, dict[tuple[int, int], tuple[float, int, str]]] = {}
    current: dict[tuple[int, int], tuple[float, int, str]] | None = None
    for index, line in enumerate(document.lines()):
        head = _HEAD.match(line)
        if head:
            current = matrices.setdefault(head[2], {}) if head[1] == "Uni" else None
            continue
        row = _ROW.match(line) if current is not None else None
        if row is not None and current is not None:
            for column, cell in enumerate(row[2].split()):
                current[int(row[1]), column] = (float(cell), index, line)
        elif line.strip() and "D\\D" not in line:
            current = None
    staged = matrices.get("Disabled", {})
    facts: list[Fact] = []
    for (a, b), (direct, index, line) in matrices.get("Enabled", {}).items():
        if a != b and (a, b) in staged:
            fields: dict[str, Scalar] = {"a": a, "b": b, "direct_gbs": direct, "staged_gbs": staged[a, b][0]}
            facts.append(make(document, "p2p_pair", f"{a}-{b}", fields, index, line))
    return facts
