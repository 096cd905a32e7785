"""Generic lines give way to specific ones: an exception's last line to what it says, growing memory to a leak."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from gpuclinic.diagnose.candidates import Candidate, Support
from gpuclinic.diagnose.memory import size_in_bytes
from gpuclinic.model import LEVEL_CONFIDENCE, Signal

if TYPE_CHECKING:
    from gpuclinic.diagnose.evidence import Reading
    from gpuclinic.model import Fact, Where

_NEAR_LINES = 6
_GENERIC = ("python.error", "python.process_pool", "exit.", "death.", "vllm.engine", "elastic.")


def weaken_generic(candidates: list[Candidate]) -> None:
    """An "ordinary exception" within a few lines of a recognised error of the same source is that error, told again."""
    specific: dict[str, list[int]] = {}
    for candidate in candidates:
        for support in candidate.supports:
            if not support.id.startswith(_GENERIC) and support.worth >= 0.5 and support.role == "root":
                for place in support.places:
                    if place.line is not None:
                        specific.setdefault(place.source, []).append(place.line)
    for candidate in candidates:
        if candidate.cause != "app.exception":
            continue
        for support in candidate.supports:
            if support.id.startswith("python.error") and any(
                place.line is not None
                and any(abs(place.line - line) <= _NEAR_LINES for line in specific.get(place.source, ()))
                for place in support.places
            ):
                support.worth = min(support.worth, 0.2)
        candidate.settle()


def find_leak(candidates: list[Candidate], reading: Reading) -> Candidate | None:
    """The out-of-memory that ends a steady rise over many steps, as a leak; memory that the framework only reserves does not count."""
    ooms = [c for c in candidates if c.cause.startswith("app.cuda_oom") and c.strength >= 0.5]
    if not ooms:
        return None
    by_source: dict[str, list[tuple[Signal, float]]] = {}
    seen: set[tuple[str, int | None]] = set()
    for signal in reading.signals:
        if signal.signature in ("torch.memory_step", "torch.memory_line"):
            size = size_in_bytes(signal.groups.get("mem_allocated") or signal.groups.get("memory"))
            place = (signal.where.source, signal.where.line)
            if size is not None and (place[1] is None or place not in seen):  # several signatures may know one line
                seen.add(place)
                by_source.setdefault(f"{signal.where.source} {signal.rank}", []).append((signal, size))
    of_pids: dict[str, list[Fact]] = {}
    for fact in reading.facts:
        if fact.kind == "gpu_process" and isinstance(fact.fields.get("memory_mib"), int):
            of_pids.setdefault(f"{fact.source} {fact.key}", []).append(fact)
    for watched in of_pids.values():
        if rises([float(str(f.fields["memory_mib"])) for f in watched], fewest=6):
            return _as_leak(
                ooms[0], [f.where("memory_mib") for f in (watched[0], watched[len(watched) // 2], watched[-1])]
            )
    for series in by_source.values():
        if rises([size for _, size in series]):
            return _as_leak(ooms[0], [s.where for s in (series[0][0], series[len(series) // 2][0], series[-1][0])])
    return None


def _as_leak(oom: Candidate, places: list[Where]) -> Candidate:
    oom.cause, oom.action = "app.vram_leak", ""
    oom.supports.append(
        Support(id="memory.steady_rise", worth=LEVEL_CONFIDENCE["strong"], places=places, order=oom.order)
    )
    oom.settle()
    return oom


def rises(sizes: list[float], fewest: int = 8) -> bool:
    """At least eight (or as many as said) values that grow by a third or more, hardly ever falling.

    >>> rises([1, 2, 3, 4, 5, 6, 7, 8]), rises([5, 9, 9, 9, 9, 9, 9, 9]), rises([1, 8, 2, 8, 2, 8, 2, 8])
    (True, False, False)
    """
    if len(sizes) < fewest or sizes[-1] < 1.33 * sizes[0]:
        return False
    ups = sum(b > a for a, b in itertools.pairwise(sizes))
    downs = sum(b < 0.98 * a for a, b in itertools.pairwise(sizes))
    warm = sizes[len(sizes) // 4]  # the first steps always grow: caches and optimizer states fill
    return ups >= 0.6 * (len(sizes) - 1) and downs <= 0.1 * len(sizes) and sizes[-1] >= 1.15 * warm
