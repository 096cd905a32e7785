"""`nvidia-smi topo -m`: how each pair of GPUs and network cards is joined."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpuclinic.model import digits
from gpuclinic.recognise.parsers.gpu_text import Draft, Scalar, make

if TYPE_CHECKING:
    from gpuclinic.model import Document, Fact

_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
_NAME = re.compile(r"(?:GPU|NIC|mlx5_|mlx4_|ib|bnxt_re|efa_)\w*$")
_PATH = re.compile(r"(?:X|SYS|NODE|PHB|PXB|PIX|PIXB|NV\d+|SOC|N/A|-)$")
_NIC = re.compile(r"^\s*(NIC\d+): (\S+)\s*$")


def parse_topo(document: Document) -> list[Fact]:
    """Facts topo (a, b, path), topo_gpu (affinity) and gpu_count of every matrix in the text."""
    facts: list[Fact] = []
    columns: list[str] = []
    gpus: list[tuple[int, str]] = []
    for index, raw in enumerate(document.lines()):
        line = _ESCAPE.sub("", raw)
        if len(line) > 4000:
            continue
        words = line.split()
        if not words:
            continue
        if len(words) > 1 and words[0] == "GPU0" and _is_head(words, line):
            facts += _counted(document, gpus)
            gpus = []
            columns = [w for w in words if _NAME.match(w) and w != "GPU"]
            columns = columns[: columns.index("GPU") if "GPU" in columns else None]
            continue
        if columns and words[0] in columns and len(words) > len(columns):
            cells = words[1 : len(columns) + 1]
            if not all(_PATH.match(c) for c in cells):
                continue
            if words[0].startswith("GPU"):
                gpus.append((index, line))
                rest = words[len(columns) + 1 :]
                fields: dict[str, Scalar] = {"gpu_index": digits(words[0][3:])}
                if rest:
                    fields["cpu_affinity"] = rest[0]
                if len(rest) > 1:
                    fields["numa"] = rest[1]
                facts.append(make(document, "topo_gpu", words[0], fields, index, line))
            at = columns.index(words[0])
            for other, cell in list(zip(columns, cells, strict=True))[at + 1 :]:
                facts.append(_pair(document, words[0], other, cell, index, line))
        nic = _NIC.match(line)
        if nic:
            facts.append(make(document, "topo_nic", nic.group(1), {"device": nic.group(2)}, index, line))
    return facts + _counted(document, gpus)


def _is_head(words: list[str], line: str) -> bool:
    return "CPU Affinity" in line or (len(words) > 1 and words[1] == "GPU1") or "NUMA" in line


def _pair(document: Document, a: str, b: str, path: str, index: int, line: str) -> Fact:
    links = int(path[2:]) if re.match(r"NV\d{1,4}$", path) else None
    fields: dict[str, Scalar] = {
        "a": a,
        "b": b,
        "path": path,
        "nvlinks": links,
        "between_gpus": a.startswith("GPU") and b.startswith("GPU"),
        "through_host": path in ("PHB", "NODE", "SYS", "SOC"),
    }
    return make(document, "topo", f"{a}-{b}", fields, index, line)


def _counted(document: Document, gpus: list[tuple[int, str]]) -> list[Fact]:
    if not gpus:
        return []
    draft = Draft(document, "gpu_count", "nvidia-smi topo", *gpus[-1])
    draft.fields.update(value=len(gpus), tool="nvidia-smi topo")
    return [draft.fact()]
