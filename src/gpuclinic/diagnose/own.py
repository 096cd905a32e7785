"""Our own processes: that one of them died says something of what it asked (which `check` tells), but it ended nobody's work."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuclinic.diagnose.evidence import Reading
    from gpuclinic.model import Scalar

_OURS = re.compile(r"(?:^|[\s;:/])gpuclinic(?:-[\w.-]*)?$")
"""Names that our processes give themselves."""
_NAMED_IN = ("name", "command", "comm", "exe", "executable")
_DEATHS = ("process.", "compat.", "app.")
"""Causes that a death alone suggests; what the kernel or driver says of hardware stays true whoever asked."""
_FACTS = frozenset({"death", "core_dump"})


def _is_ours(fields: Mapping[str, Scalar]) -> bool:
    return any(isinstance(value := fields.get(name), str) and _OURS.search(value.strip()) for name in _NAMED_IN)


def without_own_deaths(reading: Reading, causes: Mapping[str, str]) -> Reading:
    """The reading less what tells how processes of ours died. causes: signature → the cause it suggests."""
    counts = dict(reading.counts)
    signals = []
    for signal in reading.signals:
        if causes.get(signal.signature, "").startswith(_DEATHS) and _is_ours(signal.groups):
            counts[signal.signature] = max(0, counts.get(signal.signature, 0) - 1)
        else:
            signals.append(signal)
    facts = [fact for fact in reading.facts if not (fact.kind in _FACTS and _is_ours(fact.fields))]
    counts = {name: count for name, count in counts.items() if count}
    return msgspec.structs.replace(reading, signals=signals, facts=facts, counts=counts)
