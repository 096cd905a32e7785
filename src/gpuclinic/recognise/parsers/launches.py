"""Error files of torch elastic; lists of machines as CSV with a header, or without one."""

from __future__ import annotations

import csv
import json
import re
from typing import TYPE_CHECKING, Any

from gpuclinic.model import Document, Fact, Stamp
from gpuclinic.recognise.parsers._host_util import MAX_FACTS, clipped_lines, fact, whole

if TYPE_CHECKING:
    from gpuclinic.model._types import Scalar


def parse_error_file(document: Document) -> list[Fact]:
    """error.json of torch elastic: "error_file" with message, exception, time."""
    try:
        data: Any = json.loads(document.text)
    except (ValueError, RecursionError):
        return _broken_error_file(document)
    message = data.get("message") if isinstance(data, dict) else None
    if message is None:
        return []
    extra: dict[str, Any] = message.get("extraInfo", {}) if isinstance(message, dict) else {}
    text = str(message.get("message", "")) if isinstance(message, dict) else str(message)
    trace = str(extra.get("py_callstack", "")) if isinstance(extra, dict) else ""
    when = extra.get("timestamp") if isinstance(extra, dict) else None
    where = re.search(r"attempt_\d+/(\d+)/error\.json|rank[_-]?(\d+)", document.source)
    fields: dict[str, Scalar] = {
        "message": text[:2000],
        "exception": text.split(":", 1)[0][:200],
        "last_line": (trace.strip().splitlines() or [""])[-1][:500],
        "local_rank": whole(where.group(1) or where.group(2)) if where else None,
        "exit_code": whole(str(message.get("errorCode"))) if isinstance(message, dict) else None,
    }
    index = next((place for place, line in enumerate(document.lines()) if '"message"' in line), 0)
    seconds = whole(str(when)) if when is not None else None
    time = Stamp(float(seconds), zoned=True) if seconds else None
    return [fact(document, "error_file", document.source, fields, index, document.lines()[index][:500], time=time)]


def _broken_error_file(document: Document) -> list[Fact]:
    match = re.search(r'"message"\s*:\s*"((?:[^"\\]|\\.){1,2000})', document.text[:200_000])
    if not match:
        return []
    index = document.text.count("\n", 0, match.start())
    fields: dict[str, Scalar] = {"message": match.group(1), "exception": match.group(1).split(":", 1)[0][:200]}
    return [fact(document, "error_file", document.source, fields, index, document.lines()[index][:500])]


_GPU_MODEL = re.compile(r"\b(?:HGX|DGX|[ABHLVPT]\d{1,3}0?0?|GB?\d{3}|RTX|GH200|MI\d{3}|K80|T4)\b", re.IGNORECASE)
_HEADER = {
    "host": ("host", "hostname", "node", "server", "name", "machine", "主机", "节点"),
    "gpus": (
        "gpus",
        "gpu",
        "gpu_count",
        "gpucount",
        "num_gpus",
        "ngpu",
        "count",
        "gpu数",
        "卡数",
        "gpu count",
        "number of gpus",
    ),
    "model": ("model", "type", "product", "gpu_model", "gpu model", "型号", "sku"),
    "serial": ("serial", "sn", "serial number", "序列号"),
    "state": ("state", "status", "状态"),
}


def parse_inventory(document: Document) -> list[Fact]:
    """Lists of machines as CSV, with or without a header: "inventory" with host, gpus, model."""
    facts: list[Fact] = []
    columns: dict[str, int] = {}
    for index, line in enumerate(clipped_lines(document)):
        if not line.strip() or line.lstrip().startswith("#") or len(line) > 2000:
            continue
        mark = max(";,\t|", key=line.count)
        if line.count(mark) < 1:
            continue
        try:
            row = [cell.strip() for cell in next(csv.reader([line.replace("\0", "")], delimiter=mark), [])]
        except csv.Error:  # a carriage return within a field, a field beyond the limit
            continue
        lower = [cell.lower() for cell in row]
        named = {field: place for field, names in _HEADER.items() for place, cell in enumerate(lower) if cell in names}
        if "host" in named and ("gpus" in named or "model" in named):
            columns = named
            continue
        found = _by_header(row, columns) if columns else _by_shape(row)
        if found:
            facts.append(fact(document, "inventory", str(found["host"]), found, index, line))
    return facts[:MAX_FACTS]


def _by_header(row: list[str], columns: dict[str, int]) -> dict[str, Scalar] | None:
    fields: dict[str, Scalar] = {field: row[place] for field, place in columns.items() if place < len(row)}
    gpus = str(fields.get("gpus") or "")
    amount = re.match(r"^(\d{1,2})(?:\s*[x×].*)?$", gpus)
    fields["gpus"] = int(amount.group(1)) if amount else None
    fields["machine"] = fields.get("host")
    return fields if fields.get("host") else None


def _by_shape(row: list[str]) -> dict[str, Scalar] | None:
    if len(row) < 3 or not re.fullmatch(r"[A-Za-z][\w.-]{1,60}", row[0]):
        return None
    counts = [int(cell) for cell in row[1:] if re.fullmatch(r"\d{1,2}", cell)]
    models = [cell for cell in row[1:] if _GPU_MODEL.search(cell)]
    boards = bool(models) and re.search(r"HGX|DGX", models[0]) is not None  # "1" of these is a board, "8" its GPUs
    if len(counts) != 1 or not models or not 1 <= counts[0] <= 16 or (boards and counts[0] < 4):
        return None
    return {"host": row[0], "machine": row[0], "gpus": counts[0], "model": models[0]}
