"""What a text only quotes happened to nobody: handbooks, rules of monitors, data sets, prompts, code, patches."""

from __future__ import annotations

import bisect
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from gpuclinic.diagnose.evidence import Reading

_WHOLE = frozenset({"handbook", "patch"})
"""Kinds of quotation in which the output of tools is quoted, too."""


class _Ranges:
    """Lines of one source, as ranges."""

    def __init__(self) -> None:
        self._ranges: list[tuple[int, int]] = []

    def add(self, first: int, last: int) -> None:
        """Joins a further range."""
        bisect.insort(self._ranges, (first, last))

    def __contains__(self, line: object) -> bool:
        """The line lies in one of the ranges; they hardly ever overlap, so the nearest few are looked at."""
        if not isinstance(line, int):
            return False
        at = bisect.bisect(self._ranges, (line, 1 << 60))
        return any(first <= line <= last for first, last in self._ranges[max(0, at - 4) : at])


def without_quotations(reading: Reading) -> Reading:
    """The reading less the signals, and for handbooks and patches less the facts, that stand in quotations."""
    lines: dict[str, _Ranges] = {}
    texts: dict[str, _Ranges] = {}
    for fact in reading.facts:
        first, last = fact.fields.get("first"), fact.fields.get("last")
        if fact.kind == "quoted" and isinstance(first, int) and isinstance(last, int):
            lines.setdefault(fact.source, _Ranges()).add(first, last)
            if fact.fields.get("why") in _WHOLE:
                texts.setdefault(fact.source, _Ranges()).add(first, last)
    if not lines:
        return reading
    nowhere = _Ranges()
    counts = dict(reading.counts)
    signals = []
    for signal in reading.signals:
        if signal.where.line in lines.get(signal.where.source, nowhere):
            counts[signal.signature] = max(0, counts.get(signal.signature, 0) - 1)
        else:
            signals.append(signal)
    kept = {s.signature for s in signals}
    counts = {name: count for name, count in counts.items() if name in kept}
    facts = [f for f in reading.facts if f.kind == "quoted" or f.where().line not in texts.get(f.source, nowhere)]
    return msgspec.structs.replace(reading, signals=signals, facts=facts, counts=counts)
