"""Lists of machines that people keep: which model a host is and how many GPUs it should have."""

from __future__ import annotations

import re

from gpuclinic.model import Document, Fact
from gpuclinic.recognise.parsers.gpu_text import Scalar, make

_MODEL = re.compile(
    r"\b(?:HGX|DGX)[-_ ]?[A-Z]{1,2}\d{2,3}\w*|\b\d{1,2} ?x ?(?:NVIDIA )?[A-Z]{1,2}\d{2,3}\b", re.IGNORECASE
)
_SPLIT = re.compile(r"[;,|\t]")


def parse_inventory(document: Document) -> list[Fact]:
    """Facts inventory: host, model, gpus."""
    facts: list[Fact] = []
    for index, line in enumerate(document.lines()):
        if len(line) > 300 or not _MODEL.search(line):
            continue
        cells = [c.strip().strip('"') for c in _SPLIT.split(line)]
        if len(cells) < 3 or not re.fullmatch(r"[A-Za-z][\w.-]{2,80}", cells[0]):
            continue
        count = next((int(c) for c in cells[1:] if re.fullmatch(r"\d{1,2}", c) and 0 < int(c) <= 16), None)
        model = next((c for c in cells[1:] if _MODEL.search(c)), "")
        if count:
            fields: dict[str, Scalar] = {"machine": cells[0], "model": model[:60], "gpus": count}
            facts.append(make(document, "inventory", cells[0], fields, index, line))
    return facts
