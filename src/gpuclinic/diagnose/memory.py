"""Which kind of CUDA out-of-memory it was: own need, others on the card, fragmentation, a leak."""

from __future__ import annotations

import re
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
        self.holders: list[tuple[float, int]] = []
        for signal in signals:
            for name in ("need", "free", "total", "allocated", "unallocated", "used", "reserved"):
                size = size_in_bytes(signal.groups.get(name))
                if size is not None:
                    self.values.setdefault(name, size)
            other = size_in_bytes(signal.groups.get("other_used"))
            pid = signal.groups.get("other_pid", "")
            if other is not None and pid.isdigit() and all(int(pid) != p for _, p in self.holders):
                self.holders.append((other, int(pid)))
        if "unallocated" not in self.values and "reserved" in self.values and "allocated" in self.values:
            self.values["unallocated"] = self.values["reserved"] - self.values["allocated"]

        self.own_pid = self._own_holder()
        others = sum(size for size, pid in self.holders if pid != self.own_pid)
        if others:
            self.values["others"] = others

    def _own_holder(self) -> int | None:
        """The listed process that is the failing one itself: PyTorch lists it as any other where it cannot tell (containers)."""
        mine = self.values.get("allocated")
        if mine is None or "used" in self.values:
            return None
        own = mine + self.values.get("unallocated", 0.0)
        fits = [(size, pid) for size, pid in self.holders if own * 0.98 <= size <= own + 1.5 * _UNITS["g"]]
        if len(fits) == 1:
            self.values["used"] = fits[0][0]
            return fits[0][1]
        return None

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
    if numbers.own_pid is not None and base.pid is None:
        base.pid = numbers.own_pid
    cause = _kind(numbers) or base.cause
    if cause == "app.cuda_oom_shared":
        _name_holder(base, numbers, reading)
    if not numbers.values:
        return
    if cause != base.cause:
        base.cause, base.action = cause, ""
        for other in ooms:
            if other is not base and other.cause == cause:
                base.supports.extend(other.supports)
                other.strength = 0.0
    if _kind(numbers) is not None and max(s.worth for s in base.supports) >= 0.6:
        base.strength = max(base.strength, 0.93)


def _set_gpu(base: Candidate, near: list[Signal]) -> None:
    for signal in near:
        if base.gpu_index is None and signal.gpu_index is not None:
            base.gpu_index = signal.gpu_index


def _kind(numbers: Numbers) -> str | None:
    """The kind that the numbers prove, or None where they prove none."""
    need, free, total = numbers.get("need"), numbers.get("free"), numbers.get("total")
    unallocated, allocated, others, used = (numbers.get(k) for k in ("unallocated", "allocated", "others", "used"))
    mine = used or (allocated + (unallocated or 0.0) if allocated is not None else None)
    if not total:
        return None
    if others and others > 0.35 * total and others > (mine or 0.0):
        return "app.cuda_oom_shared"
    if need and unallocated and unallocated > 0.05 * total and unallocated + (free or 0.0) > need and unallocated > 0.12 * (allocated or total):
        return "app.cuda_oom_fragmentation"
    if mine is not None and free is not None and total - free - mine > 0.4 * total and mine < 0.5 * total:
        return "app.cuda_oom_shared"
    if mine is not None and mine > 0.7 * total:
        return "app.cuda_oom"
    return None


def _name_holder(base: Candidate, numbers: Numbers, reading: Reading) -> None:
    """The process that holds most of the card's memory and is not the one that failed."""
    failed = {base.pid} if base.pid is not None else set()
    failed |= {s.pid for s in reading.signals if s.pid is not None and s.where.source in base.sources}
    held: list[tuple[float, int, Fact | None]] = [(size, pid, None) for size, pid in numbers.holders if pid not in failed]
    if not held:
        index = base.gpu_index if base.gpu_index is not None else base.rank
        listed = [f for f in processes_on(reading, physical_index(reading, index), base.gpu) if f.fields.get("pid") not in failed]
        held = [(_number(f.fields.get("memory_mib")), int(str(f.fields["pid"])), f) for f in listed if isinstance(f.fields.get("pid"), int)]
    if not held:
        return
    _, pid, fact = max(held, key=lambda h: h[0])
    base.pid, base.action = pid, "kill_process"
    if fact is not None:
        listed_index = fact.fields.get("gpu_index")
        base.gpu_index = listed_index if isinstance(listed_index, int) else base.gpu_index
        base.supports.append(Support(id="oom.holder", worth=0.7, places=[fact.where("pid")], order=10**8))


def physical_index(reading: Reading, ordinal: int | None) -> int | None:
    """nvidia-smi's index of a CUDA device number, by a CUDA_VISIBLE_DEVICES that the input shows; the number itself where none does."""
    if ordinal is None:
        return None
    values = {str(f.fields.get("value")) for f in reading.facts if f.kind == "env" and f.key == "CUDA_VISIBLE_DEVICES"}
    if len(values) == 1:
        parts = values.pop().split(",")
        if ordinal < len(parts) and parts[ordinal].strip().isdigit():
            return int(parts[ordinal])
    return ordinal


def biggest_holder(candidates: list[Candidate]) -> None:
    """Of several left-over processes the one that holds most memory is named."""
    for candidate in candidates:
        if candidate.cause == "process.orphan_vram":
            sized = [(float(s.groups["memory_mib"]), s) for s in candidate.supports if s.pid is not None and s.groups.get("memory_mib", "").replace(".", "").isdigit()]
            if sized:
                best = max(sized, key=lambda pair: pair[0])[1]
                candidate.pid = best.pid
                candidate.supports.sort(key=lambda s: (s.pid != best.pid, -s.worth))


def _number(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0


def processes_on(reading: Reading, index: int | None, bus: str | None) -> list[Fact]:
    """The GPU processes that nvidia-smi lists on a card."""
    return [
        f for f in reading.facts
        if f.kind == "gpu_process" and (index is None or f.fields.get("gpu_index") in (index, None)) and (bus is None or f.fields.get("bus_id") in (bus, None))
    ]  # fmt: skip
