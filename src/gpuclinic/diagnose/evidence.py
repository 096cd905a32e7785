"""All that was read about an incident, as the diagnosis gets it. Pure data with a few look-ups."""

from __future__ import annotations

import fnmatch
from typing import TYPE_CHECKING, Any

import msgspec

from gpuclinic.model import Boot, Fact, Signal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

YEARLESS_SPAN = 366 * 86400


class Clock(msgspec.Struct, frozen=True):
    """A comparable moment: seconds on a clock. Two moments compare only on the same clock ("wall" or one boot's uptime).

    earliest: the moment is this or later (the line had no stamp of its own).
    """

    clock: str
    seconds: float
    earliest: bool = False


class Reading(msgspec.Struct):
    """signals in reading order; counts: matches of each signature with storms included; sources: path to kind.

    boots: the starts of machines that the logs show, and whether the shutdown in front of each was orderly.
    """

    signals: list[Signal]
    facts: list[Fact]
    counts: dict[str, int]
    sources: dict[str, str]
    completed: dict[str, int] = {}
    boots: list[Boot] = []

    def by_id(self) -> dict[str, list[Signal]]:
        """Signals of each signature."""
        found: dict[str, list[Signal]] = {}
        for signal in self.signals:
            found.setdefault(signal.signature, []).append(signal)
        return found


class EvidenceView:
    """What rules' conditions may ask: facts by kind, signals by id."""

    def __init__(self, reading: Reading) -> None:
        self._facts: dict[str, list[dict[str, Any]]] = {}
        for fact in reading.facts:
            self._facts.setdefault(fact.kind, []).append(fields_of(fact))
        self._by_id = reading.by_id()
        self._counts = reading.counts

    def facts(self, kind: str) -> Iterable[dict[str, Any]]:
        """The fields of each fact of a kind, with key and host."""
        return self._facts.get(kind, ())

    def signal_count(self, pattern: str, wanted: dict[str, Any]) -> int:
        """Signals whose id is like the pattern; with identities, only those that have them."""
        ids = (
            fnmatch.filter(self._by_id, pattern)
            if any(c in pattern for c in "*?[")
            else [pattern]
            if pattern in self._by_id
            else []
        )
        if not wanted:
            return sum(self._counts.get(i, len(self._by_id[i])) for i in ids)
        return sum(1 for i in ids for s in self._by_id[i] if all(_has_identity(s, k, v) for k, v in wanted.items()))

    def over_window(self, function: str, names: Mapping[str, Any], field: str) -> Any:  # noqa: ARG002 - one reading is no window
        """Always None: an incident is one sample."""
        return None


def fields_of(fact: Fact) -> dict[str, Any]:
    """A fact's fields with its key, host and source as further names."""
    return {"key": fact.key, "host_name": fact.host, "source_path": fact.source, **fact.fields}


def _has_identity(signal: Signal, name: str, value: Any) -> bool:
    mine = getattr(signal, name, None) if name in ("gpu", "pid", "rank", "host", "gpu_index") else None
    mine = signal.groups.get(name) if mine is None else mine
    return mine is not None and str(mine).lower() == str(value).lower()
