"""Judges an answer of `why` against a case's right answers: the figures of the acceptance sets."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

FIGURES = ("top1", "top3", "evidence", "gpu", "pid", "rank", "action")


def answer_for(folder: Path) -> dict[str, Any]:
    """The JSON answer of the shipped command for a case's input, computed in this process."""
    from gpuclinic.clinic import examine
    from gpuclinic.observe import Places
    from gpuclinic.report.as_json import why_json

    answer: dict[str, Any] = json.loads(why_json(examine(Places([str(folder / "input")]))))
    return answer


def judge(case: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
    """Marks: True, False, or None where the case does not ask."""
    causes = answer.get("causes") or []
    first = causes[0] if causes else {}
    named = first.get("id", "unknown")
    confidence = float(first.get("confidence") or 0.0)
    expected = {case["cause"], *case.get("also_ok", [])}
    right = named in expected or ("unknown" in expected and confidence < 0.5)
    shown = " ".join(e["text"] for e in first.get("evidence", []))
    known = case["cause"] != "unknown"
    return {
        "top1": right,
        "top3": right or bool({c["id"] for c in causes[:3]} & expected),
        "evidence": any(e in shown for e in case["evidence"]) if case.get("evidence") and known else None,
        "gpu": any(_gpu(g) == _gpu(first.get("gpu")) for g in _listed(case["gpu"]))
        if case.get("gpu") is not None
        else None,
        "pid": first.get("pid") == case["pid"] if case.get("pid") is not None else None,
        "rank": first.get("rank") == case["rank"] if case.get("rank") is not None else None,
        "action": first.get("action") in _actions(case) if case.get("action") and known else None,
        "named": named,
        "confidence": confidence,
        "harmless": not known,
    }


def figures(marks: list[dict[str, Any]]) -> dict[str, float]:
    """Percentages over many cases."""
    out: dict[str, float] = {}
    columns = {key: [m[key] for m in marks if m[key] is not None] for key in FIGURES}
    columns["sure"] = [m["top1"] for m in marks if m["confidence"] >= 0.9]
    columns["decided"] = [m["confidence"] >= 0.9 for m in marks if not m["harmless"]]
    columns["calm"] = [m["top1"] for m in marks if m["harmless"]]
    for key, values in columns.items():
        if values:
            out[key] = 100.0 * sum(values) / len(values)
    return out


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _actions(case: dict[str, Any]) -> set[str]:
    actions = set(_listed(case["action"]))
    if case["cause"].startswith("sec."):
        actions |= {"isolate_host", "collect_evidence"}
    if case["cause"].startswith("hw.") and actions & {"rma", "reseat_or_power", "reset_gpu", "reboot"}:
        actions |= {"drain_node"}
    return actions


def _gpu(value: Any) -> str | None:
    if value is None:
        return None
    text = str(value).lower().strip()
    address = re.search(r"(?:[0-9a-f]{4,8}:)?([0-9a-f]{2}:[0-9a-f]{2})(?:\.[0-7])?$", text)
    return address[1] if address else text.removeprefix("gpu").strip(" #:")
