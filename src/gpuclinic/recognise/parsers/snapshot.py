"""Answers that a snapshot keeps as JSON: what NVML said of GPU processes, what direct probes of pids found."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from gpuclinic.recognise.parsers._host_util import MAX_FACTS, fact

if TYPE_CHECKING:
    from gpuclinic.model import Document, Fact
    from gpuclinic.model._types import Scalar


def _object(document: Document) -> dict[str, Any]:
    try:
        value = json.loads("\n".join(document.lines()))
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _rows(value: object) -> list[dict[str, Any]]:
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []


def _place(lines: list[str], pid: int) -> int:
    """The line that names the pid first."""
    wanted = re.compile(rf'"pid":\s*{pid}\b')
    return next((index for index, line in enumerate(lines) if wanted.search(line)), 0)


def parse_gpu_processes(document: Document) -> list[Fact]:
    """gpu_processes.json: "gpu_process" for each process that NVML names."""
    content, lines = _object(document), list(document.lines())
    facts: list[Fact] = []
    for row in _rows(content.get("processes"))[:MAX_FACTS]:
        pid, gpu = row.get("pid"), row.get("gpu")
        if not isinstance(pid, int):
            continue
        name = row.get("nvml_name")
        fields: dict[str, Scalar] = {
            "pid": pid,
            "gpu_index": gpu if isinstance(gpu, int) else None,
            "gpu_key": str(gpu),
            "type": str(row.get("type") or "C"),
            "memory_mib": row.get("used_mib") if isinstance(row.get("used_mib"), int) else None,
            "name": str(name)[:300] if name else None,
            "name_missing": not name,
        }
        index = _place(lines, pid)
        facts.append(fact(document, "gpu_process", f"{gpu}/{pid}", fields, index, lines[index] if lines else ""))
    return facts


def parse_pid_probe(document: Document) -> list[Fact]:
    """pid_probe.json: "pid_probe" for each process (no thread) that answers though the listing lacks it."""
    content, lines = _object(document), list(document.lines())
    if not (content.get("as_root") and content.get("in_initial_pid_ns")):
        return []  # elsewhere a pid may be out of sight for good reasons
    facts: list[Fact] = []
    for row in _rows(content.get("alive")):
        pid = row.get("pid")
        hidden = row.get("listed") is False and row.get("direct_open") and row.get("kill0") and row.get("tgid") == pid
        if isinstance(pid, int) and hidden:
            fields: dict[str, Scalar] = {"pid": pid, "opens": True, "listed": False}
            index = _place(lines, pid)
            facts.append(fact(document, "pid_probe", str(pid), fields, index, lines[index] if lines else ""))
    return facts[:MAX_FACTS]
