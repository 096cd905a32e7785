"""Codes of other software: exit codes, signals, errno, CUDA, cuDNN, cuBLAS, NCCL, NVML, Slurm, Kubernetes.

One table each in `data/codes/`; a code or name that no table has is an answer too, never an error.
"""

from __future__ import annotations

import functools
import re

import msgspec

from gpuclinic.knowledge._load import DATA

TOPICS = ("signal", "errno", "cuda", "cudnn", "cublas", "nccl", "nvml", "slurm", "k8s", "exit")
"""Tables in the order in which a bare name is looked up."""

_OLD = re.compile(r" \((?:.*\bolder|old\b.*)\)$")


class CodeInfo(msgspec.Struct, frozen=True):
    """One row. code: a number, or the name itself where the software has no numbers (Slurm, Kubernetes).

    cause: id it points at, or empty. remark: what kind of name it is, or its short form ("NF").
    """

    topic: str
    code: int | str
    name: str
    severity: str
    action: str
    cause: str
    text_en: str
    text_zh: str
    source: str
    remark: str = ""

    @property
    def plain_name(self) -> str:
        """The name without a remark in brackets."""
        return _OLD.sub("", self.name)


@functools.cache
def codes(topic: str) -> tuple[CodeInfo, ...]:
    """All rows of a table; none where the table does not exist."""
    path = DATA / "codes" / f"{topic}.tsv"
    if not path.is_file():
        return ()
    lines = path.read_text(encoding="utf-8").splitlines()
    head = lines[0].split("\t")
    rows: list[CodeInfo] = []
    for line in lines[1:]:
        if not line or line.startswith("#"):
            continue
        row = dict(zip(head, line.split("\t"), strict=False))
        code, name = row.get("code", ""), row.get("name", "")
        numbered = re.fullmatch(r"-?\d+", code) is not None
        rows.append(
            CodeInfo(
                topic=topic,
                code=int(code) if numbered else code,
                name=(name or code) if numbered else code,
                severity=row.get("severity") or "warning",
                action=row.get("action") or "collect_evidence",
                cause=row.get("cause", ""),
                text_en=row.get("text_en", ""),
                text_zh=row.get("text_zh", ""),
                source=row.get("source", ""),
                remark="" if numbered else name,
            )
        )
    return tuple(rows)


def by_code(topic: str, code: int | str) -> list[CodeInfo]:
    """Rows with this code: today's first, those of old versions last."""
    if isinstance(code, str):
        code = code.casefold()
        found = [row for row in codes(topic) if str(row.code).casefold() == code]
    else:
        found = [row for row in codes(topic) if row.code == code]
    return sorted(found, key=lambda row: row.plain_name != row.name)


def by_name(name: str, topic: str = "") -> list[CodeInfo]:
    """Rows with this name, whatever its case; of one table or of all."""
    wanted = name.strip().casefold()
    tables = [topic] if topic else [t for t in TOPICS if t != "exit" or not wanted.isalpha()]
    found = [row for table in tables for row in _names(table).get(wanted, ())]
    if topic and not found:
        found = [row for row in codes(topic) if row.remark.isupper() and row.remark.casefold() == wanted]
    return sorted(found, key=lambda row: row.plain_name != row.name)


@functools.cache
def _names(topic: str) -> dict[str, list[CodeInfo]]:
    found: dict[str, list[CodeInfo]] = {}
    for row in codes(topic):
        for key in {row.name.casefold(), row.plain_name.casefold()}:
            found.setdefault(key, []).append(row)
    return found


def all_names() -> list[str]:
    """Every name of every table but exit codes, each once."""
    return list(dict.fromkeys(row.plain_name for topic in TOPICS if topic != "exit" for row in codes(topic)))
