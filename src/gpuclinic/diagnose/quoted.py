"""What a text only quotes happened to nobody: handbooks, rules of monitors, data sets, prompts, code, patches."""

from __future__ import annotations

import bisect
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from gpuclinic.diagnose.evidence import Reading

_WHOLE = frozenset({"handbook", "patch"})
"""Kinds of quotation in which the output of tools is quoted, too."""

_ONLY_FAULTS = frozenset({"test"})
"""Kinds of quotation that tell of success: only faults told in them are left out, not that a run ended well."""


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


def without_quotations(reading: Reading, context: frozenset[str] = frozenset()) -> Reading:
    """The reading less the signals, and for handbooks and patches less the facts, that stand in quotations.

    context: ids of the signatures that name no cause.
    """
    lines: dict[str, _Ranges] = {}
    texts: dict[str, _Ranges] = {}
    good: dict[str, _Ranges] = {}
    for fact in reading.facts:
        first, last = fact.fields.get("first"), fact.fields.get("last")
        if fact.kind == "quoted" and isinstance(first, int) and isinstance(last, int):
            into = good if fact.fields.get("why") in _ONLY_FAULTS else lines
            into.setdefault(fact.source, _Ranges()).add(first, last)
            if fact.fields.get("why") in _WHOLE:
                texts.setdefault(fact.source, _Ranges()).add(first, last)
    if not lines and not good:
        return reading
    nowhere = _Ranges()
    counts = dict(reading.counts)
    signals = []
    for signal in reading.signals:
        source, line = signal.where.source, signal.where.line
        fault = signal.signature not in context
        if line in lines.get(source, nowhere) or (fault and line in good.get(source, nowhere)):
            counts[signal.signature] = max(0, counts.get(signal.signature, 0) - 1)
        else:
            signals.append(signal)
    kept = {s.signature for s in signals}
    counts = {name: count for name, count in counts.items() if name in kept}
    facts = [f for f in reading.facts if f.kind == "quoted" or f.where().line not in texts.get(f.source, nowhere)]
    return msgspec.structs.replace(reading, signals=signals, facts=facts, counts=counts)
