"""DCGM: `dcgmi diag` as JSON (3 and 4) and as a table, `dcgmi health`, `dcgmi discovery`."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from gpuclinic.recognise.parsers.gpu_text import Draft, Scalar, make, pci_address

if TYPE_CHECKING:
    from gpuclinic.model import Document, Fact

_ROOTS = ("DCGM GPU Diagnostic", "DCGM Diagnostic")
_MOST_JSON = 16 << 20


def parse_diag_json(document: Document) -> list[Fact]:
    """Facts dcgm_test (those not passed) and dcgm_diag (the whole run) of each JSON object in the text."""
    facts: list[Fact] = []
    text = document.text
    if len(text) > _MOST_JSON:
        return facts
    decoder = json.JSONDecoder()
    at = text.find("{")
    tries = 0
    while at >= 0 and tries < 50:
        tries += 1
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            at = text.find("\n{", at + 1)
            at = at + 1 if at >= 0 else -1
            continue
        root = next(
            (value[name] for name in _ROOTS if isinstance(value, dict) and isinstance(value.get(name), dict)), None
        )
        if root is not None:
            facts += _run(document, value, root, at)
        at = text.find("{", end)
    return facts


def _run(document: Document, whole: dict[str, Any], root: dict[str, Any], start: int) -> list[Fact]:
    tests = list(_tests(root))
    facts: list[Fact] = []
    counts = {"PASS": 0, "FAIL": 0, "WARN": 0, "SKIP": 0}
    for category, test in tests:
        name = str(test.get("name", "?"))
        for result in _results(test):
            status = str(result.get("status", "")).upper()
            for word in counts:
                if status.startswith(word):
                    counts[word] += 1
            if status.startswith(("FAIL", "WARN")):
                facts += _failed(document, category, name, result, status, start)
    line = document.text.count("\n", 0, start)
    draft = Draft(document, "dcgm_diag", "dcgmi diag", line, document.lines()[line])
    metadata = whole.get("metadata") if isinstance(whole.get("metadata"), dict) else root
    draft.fields.update(
        passed=counts["PASS"],
        failed=counts["FAIL"],
        warned=counts["WARN"],
        skipped=counts["SKIP"],
        driver=_text(metadata, "Driver Version Detected"),
        version=_text(metadata, "version"),
        runtime_error=_text(root, "runtime_error"),
    )
    return [*facts, draft.fact()]


def _text(holder: object, name: str) -> str | None:
    value = holder.get(name) if isinstance(holder, dict) else None
    return str(value)[:300] if value is not None else None


def _tests(root: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    found: list[tuple[str, dict[str, Any]]] = []
    for category in _listed(root.get("test_categories")):
        found += [(str(category.get("category", "")), test) for test in _listed(category.get("tests"))]
    found += [("", test) for test in _listed(root.get("tests"))]
    return found


def _results(test: dict[str, Any]) -> list[dict[str, Any]]:
    return _listed(test.get("results"))


def _listed(value: object) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)][:5000] if isinstance(value, list) else []


def _failed(
    document: Document, category: str, name: str, result: dict[str, Any], status: str, start: int
) -> list[Fact]:
    warnings = result.get("warnings", result.get("warning"))
    messages: list[dict[str, Any]] = []
    for item in warnings if isinstance(warnings, list) else [warnings]:
        if isinstance(item, dict):
            messages.append(item)
        elif item:
            messages.append({"warning": item})
    messages = messages or [{"warning": str(result.get("info", ""))}]
    ids = str(result.get("gpu_ids", "") or "")
    group = str(result.get("entity_group", "GPU" if ids or "gpu_id" in result else ""))
    entities = [part.strip() for part in ids.split(",") if part.strip().isdecimal()]
    for key in ("entity_id", "gpu_id"):
        if isinstance(result.get(key), int):
            entities = entities or [str(result[key])]
    facts: list[Fact] = []
    for entity in (entities or [""])[:64]:
        for message in messages[:8]:
            text = str(message.get("warning", ""))[:500]
            line, shown = _where(document, text, start)
            fields: dict[str, Scalar] = {
                "test": name,
                "category": category,
                "status": "fail" if status.startswith("FAIL") else "warn",
                "message": text,
                "entity": group,
                "gpu_index": int(entity) if entity and group.upper() in ("GPU", "") else None,
                "error_id": message.get("error_id") if isinstance(message.get("error_id"), int) else None,
                "error_category": message.get("error_category")
                if isinstance(message.get("error_category"), int)
                else None,
                "severity": message.get("error_severity") if isinstance(message.get("error_severity"), int) else None,
            }
            facts.append(make(document, "dcgm_test", f"{name}/{entity}", fields, line, shown))
    return facts


def _where(document: Document, text: str, start: int) -> tuple[int, str]:
    """The line that holds a message, or the start of the object."""
    escaped = json.dumps(text)[1:-1][:120]
    at = document.text.find(escaped, start) if escaped else -1
    line = document.text.count("\n", 0, at if at >= 0 else start)
    return line, document.lines()[line]


_ROW = re.compile(r"^\|\s*(?P<name>[A-Za-z][\w /().:,-]{1,40}?)\s*\|\s*(?P<value>\S.*?)\s*\|?\s*$")
_STATUS = re.compile(r"^(?P<status>Pass|Fail|Warn|Skip)(?:\s*-\s*(?P<what>.*))?$")
_TABLE = re.compile(r"^\+-+.*Diagnostic")
_GPUS = re.compile(r"(?:GPU|Entity)s?:? ?(?P<ids>\d+(?:\s*,\s*\d+)*)")


def parse_diag_table(document: Document) -> list[Fact]:
    """Facts dcgm_test of the table that `dcgmi diag` prints."""
    facts: list[Fact] = []
    name = ""
    draft: Draft | None = None
    for index, line in enumerate(document.lines()):
        if len(line) > 400:
            continue
        row = _ROW.match(line)
        if not row:
            if draft is not None and line.startswith("|") and draft.fields.get("message") is not None:
                extra = line.strip("| ").strip()
                draft.fields["message"] = f"{draft.fields['message']} {extra}".strip()[:500]
            continue
        status = _STATUS.match(row["value"])
        label = row["name"].strip()
        if label.startswith("-----"):
            continue
        if status:
            facts += [draft.fact()] if draft else []
            draft = None
            name = label
            if status["status"] in ("Fail", "Warn"):
                draft = Draft(document, "dcgm_test", f"{name}/", index, line)
                draft.fields.update(test=name, status=status["status"].lower(), message="")
                gpus = _GPUS.search(status["what"] or "")
                if gpus:
                    first = gpus["ids"].split(",")[0].strip()
                    draft.fields.update(gpu_index=int(first[:4]), gpus=gpus["ids"])
                    draft.key = f"{name}/{first}"
        elif draft is not None and label in ("Warning", "Error", "Info", "More Information"):
            gpu = re.search(r"GPU (\d{1,3})", row["value"])
            draft.put("message", f"{draft.fields.get('message') or ''} {row['value']}".strip()[:500], index, line)
            if gpu and draft.fields.get("gpu_index") is None:
                draft.fields["gpu_index"] = int(gpu.group(1))
    return facts + ([draft.fact()] if draft else [])


_HEALTH = re.compile(
    r"^\|\s*(?:\|?[\s-]*)?(?P<what>Overall Health|GPU ID: (?P<gpu>\d+)|[A-Z][\w ]+?)\s*\|\s*(?P<value>Healthy|Warn"
    r"ing|Failure|.+?)\s*\|\s*$"
)


def parse_health(document: Document) -> list[Fact]:
    """Facts dcgm_health of `dcgmi health -c`: each GPU's state and what was found wrong."""
    facts: list[Fact] = []
    draft: Draft | None = None
    for index, line in enumerate(document.lines()):
        if len(line) > 400 or "|" not in line:
            continue
        gpu = re.search(r"GPU ID:? ?(\d{1,3})|^\|\s*-?>?\s*(\d{1,3})\s*\|", line)
        state = re.search(r"\b(Healthy|Warning|Failure)\b", line)
        if state and ("Overall Health" in line or gpu):
            facts += [draft.fact()] if draft else []
            number = next((g for g in gpu.groups() if g), None) if gpu else None
            draft = Draft(document, "dcgm_health", number or "all", index, line)
            draft.fields.update(state=state.group(1), gpu_index=int(number) if number else None, message="")
        elif draft is not None:
            words = line.strip("|- >+").strip()
            if words and not words.startswith("="):
                draft.put("message", f"{draft.fields.get('message') or ''} {words}".strip()[:600], index, line)
    return facts + ([draft.fact()] if draft else [])


_GPU_ROW = re.compile(r"^\|\s*(?P<id>\d{1,3})\s*\|\s*Name:\s*(?P<name>.+?)\s*\|")
_FOUND = re.compile(r"^(?P<n>\d{1,4}) (?P<what>GPUs?|NvSwitch(?:es)?|CPUs?) found\.")


def parse_discovery(document: Document) -> list[Fact]:
    """Facts gpu, gpu_count and nvswitch_count of `dcgmi discovery -l`."""
    facts: list[Fact] = []
    draft: Draft | None = None
    for index, line in enumerate(document.lines()):
        found = _FOUND.match(line)
        if found:
            kind = {"G": "gpu_count", "N": "nvswitch_count"}.get(found["what"][0])
            if kind:
                facts.append(
                    make(
                        document,
                        kind,
                        "dcgmi discovery",
                        {"value": int(found["n"]), "tool": "dcgmi discovery"},
                        index,
                        line,
                    )
                )
            continue
        row = _GPU_ROW.match(line)
        if row:
            facts += [draft.fact()] if draft else []
            draft = Draft(document, "gpu", row["id"], index, line)
            draft.fields.update(index=int(row["id"]), name=row["name"], tool="dcgmi discovery")
        elif draft is not None and "PCI Bus ID:" in line:
            bus = pci_address(line.split("PCI Bus ID:")[1])
            if bus:
                draft.key = bus
                draft.put("bus_id", bus, index, line)
        elif draft is not None and "Device UUID:" in line:
            draft.put("uuid", line.split("Device UUID:")[1].strip("| ").strip()[:60], index, line)
    return facts + ([draft.fact()] if draft else [])
