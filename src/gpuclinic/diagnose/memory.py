"""Which kind of CUDA out-of-memory it was: own need, others on the card, fragmentation, a leak."""

from __future__ import annotations

import re
from typing import Any

from gpuclinic.diagnose.candidates import Candidate, Support
from gpuclinic.diagnose.evidence import Reading
from gpuclinic.model import Fact, Signal

_SIZE = re.compile(r"([\d.]+) ?([KMGTP])?(i)?(?:B|bytes)?", re.IGNORECASE)
_UNITS = {"": 1.0, "k": 1024.0, "m": 1024.0**2, "g": 1024.0**3, "t": 1024.0**4, "p": 1024.0**5}
_CAUSES = ("app.cuda_oom", "app.cuda_oom_shared", "app.cuda_oom_fragmentation")


def size_in_bytes(text: str | None) -> float | None:
    """Bytes of a size as allocators print it ("10.76 GiB", "64.00 MiB", "123456").

    >>> size_in_bytes("1.50 KiB")
    1536.0
    """
    found = _SIZE.match(text.strip()) if text else None
    if not found or found[1] in (".", ""):
        return None
    try:
        return float(found[1]) * _UNITS[(found[2] or "").lower()]
    except ValueError:
        return None


class Numbers:
    """need, free, total, allocated (by the framework), unallocated (reserved by it), used (by the process), others: bytes or None."""

    def __init__(self, signals: list[Signal]) -> None:
        self.values: dict[str, float] = {}
        self.other_pids: list[int] = []
        for signal in signals:
            for name in ("need", "free", "total", "allocated", "unallocated", "used", "reserved"):
                size = size_in_bytes(signal.groups.get(name))
                if size is not None:
                    self.values.setdefault(name, size)
            other = size_in_bytes(signal.groups.get("other_used"))
            if other is not None:
                self.values["others"] = self.values.get("others", 0.0) + other
                self.other_pids.append(int(signal.groups.get("other_pid") or 0))
        if "unallocated" not in self.values and "reserved" in self.values and "allocated" in self.values:
            self.values["unallocated"] = self.values["reserved"] - self.values["allocated"]

    def get(self, name: str) -> float | None:
        """A number, or None."""
        return self.values.get(name)


def split(candidates: list[Candidate], reading: Reading) -> None:
    """Adds the kind that the numbers prove to the candidates of CUDA out-of-memory."""
    ooms = [c for c in candidates if c.cause in _CAUSES]
    if not ooms:
        return
    base = max(ooms, key=lambda c: c.strength)
    first = min((s.order for s in base.supports), default=0)
    near = [s for s in reading.signals if ("oom" in s.signature or "need" in s.groups) and abs(s.order - first) < 60]
    near = [s for s in near if s.where.source in base.sources] or near
    numbers = Numbers(near[:12])
    _set_gpu(base, near)
    verdict = _kind(numbers, reading, base)
    if verdict is None:
        return
    cause, note, places = verdict
    if cause != base.cause:
        base.cause, base.action = cause, ""
        for other in ooms:
            if other is not base and other.cause == cause:
                base.supports.extend(other.supports)
                other.strength = 0.0
    support = Support(id="oom.numbers", worth=0.88, places=places, order=first, texts={}, groups={})
    if places:
        base.supports.append(support)
    base.notes.append(note)
    base.strength = max(base.strength, 0.93)


def _set_gpu(base: Candidate, near: list[Signal]) -> None:
    for signal in near:
        if base.gpu_index is None and signal.gpu_index is not None:
            base.gpu_index = signal.gpu_index


def _kind(numbers: Numbers, reading: Reading, base: Candidate) -> tuple[str, str, list[Any]] | None:
    need, free, total = numbers.get("need"), numbers.get("free"), numbers.get("total")
    unallocated, allocated, others, used = (numbers.get(k) for k in ("unallocated", "allocated", "others", "used"))
    if total and others and others > 0.35 * total and others > (used or allocated or 0.0):
        return "app.cuda_oom_shared", "", []
    if need and unallocated and total and unallocated > max(need, 0.05 * total) and unallocated + (free or 0.0) > need and unallocated > 0.12 * (allocated or total):
        return "app.cuda_oom_fragmentation", "", []
    mine = used or allocated
    if total and mine is not None and free is not None and total - free - mine > 0.4 * total and mine < 0.5 * total:
        return "app.cuda_oom_shared", "", []
    if total and mine is not None and mine > 0.7 * total:
        return "app.cuda_oom", "", []
    return None


def processes_on(reading: Reading, index: int | None, bus: str | None) -> list[Fact]:
    """The GPU processes that nvidia-smi lists on a card."""
    return [
        f for f in reading.facts
        if f.kind == "gpu_process" and (index is None or f.fields.get("gpu_index") in (index, None)) and (bus is None or f.fields.get("bus_id") in (bus, None))
    ]  # fmt: skip
