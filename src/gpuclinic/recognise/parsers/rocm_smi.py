"""`rocm-smi --json`: AMD cards."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from gpuclinic.recognise.parsers.gpu_text import Draft, number, pci_address

if TYPE_CHECKING:
    from gpuclinic.model import Document, Fact

_FIELDS = (
    (re.compile(r"Temperature \(Sensor (?:edge|junction)\) \(C\)"), "temperature_c"),
    (re.compile(r"Temperature \(Sensor memory\) \(C\)"), "memory_temperature_c"),
    (re.compile(r"(?:Average|Current Socket) Graphics Package Power \(W\)"), "power_w"),
    (re.compile(r"Max Graphics Package Power \(W\)"), "power_limit_w"),
    (re.compile(r"GPU use \(%\)"), "utilization_pct"),
    (re.compile(r"Fan speed \(%\)"), "fan_pct"),
)


def parse_rocm(document: Document) -> list[Fact]:
    """Facts gpu of each card in rocm-smi's JSON."""
    at = document.text.find("{")
    try:
        value: Any = json.JSONDecoder().raw_decode(document.text, at)[0] if at >= 0 else None
    except (ValueError, RecursionError):
        return []
    facts: list[Fact] = []
    for card, data in value.items() if isinstance(value, dict) else ():
        found = re.fullmatch(r"card(\d{1,3})", str(card))
        if found and isinstance(data, dict):
            facts.append(_card(document, found.group(1), data))
    return facts


def _card(document: Document, index: str, data: dict[str, Any]) -> Fact:
    bus = pci_address(str(data.get("PCI Bus", "")))
    draft = Draft(document, "gpu", bus or index, 0, f"card{index}")
    draft.fields.update(index=int(index), vendor="amd", tool="rocm-smi")
    if bus:
        draft.fields["bus_id"] = bus
    name = data.get("Card series") or data.get("Card Series") or data.get("Card model")
    if name:
        draft.fields["name"] = str(name)[:100]
    for key, text in data.items():
        for pattern, field in _FIELDS:
            amount = number(str(text)) if pattern.fullmatch(str(key)) else None
            if amount is not None:
                draft.fields[field] = amount
    used, total = (
        number(str(data.get("VRAM Total Used Memory (B)", ""))),
        number(str(data.get("VRAM Total Memory (B)", ""))),
    )
    if used is not None:
        draft.fields["memory_used_mib"] = int(used) >> 20
    if total is not None:
        draft.fields["memory_total_mib"] = int(total) >> 20
    return draft.fact()
