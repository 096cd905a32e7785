"""Which kind of CUDA out-of-memory it was: own need, others on the card, fragmentation, a leak."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpuclinic.diagnose.candidates import Candidate, Support
from gpuclinic.diagnose.people import People

if TYPE_CHECKING:
    from gpuclinic.diagnose.evidence import Reading
    from gpuclinic.model import Fact, Signal

_SIZE = re.compile(r"([\d.]+) ?([KMGTP])?(i)?(?:B|bytes)?", re.IGNORECASE)
_UNITS = {"": 1.0, "k": 1024.0, "m": 1024.0**2, "g": 1024.0**3, "t": 1024.0**4, "p": 1024.0**5}
_MOST_BESIDE = 8 * 1024.0**3
"""Contexts, CUDA graphs and NCCL buffers that a process holds beside what PyTorch's allocator has."""
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

    def __init__(self, signals: list[Signal], failed_pid: int | None = None) -> None:
        self.values: dict[str, float] = {}
        self.holders: list[tuple[float, int]] = []
        self._failed_pid = failed_pid
        for signal in signals:
            for name in ("need", "free", "total", "allocated", "unallocated", "used", "reserved"):
                size = size_in_bytes(_with_unit(signal.groups.get(name), signal.groups.get("total")))
                if size is not None:
                    self.values.setdefault(name, size)
            other = size_in_bytes(signal.groups.get("other_used"))
            pid = signal.groups.get("other_pid", "")
            if other is not None and pid.isdecimal() and all(int(pid) != p for _, p in self.holders):
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
        fits = [(size, pid) for size, pid in self.holders if pid == self._failed_pid]
        # PyTorch says "this process has" where it finds itself in NVML's list; where it does not say so, it is one of the others it lists
        fits = fits or sorted((size, pid) for size, pid in self.holders if own * 0.98 <= size <= own + _MOST_BESIDE)
        if not fits:
            return None
        self.values["used"] = fits[0][0]
        return fits[0][1]

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
    near = [
        s
        for s in reading.signals
        if abs(s.order - first) < 60 and ("oom" in s.signature or {"need", "free"} & s.groups.keys())
    ]
    near = [s for s in near if s.where.source in base.sources] or near
    numbers = Numbers(near[:12], _failed_pid(base, near, reading))
    for other in ooms:  # the same failure, told in other words
        if (
            other is not base
            and other.strength <= base.strength
            and other.sources & base.sources
            and other.explained_by is None
        ):
            other.explained_by = base
    _set_gpu(base, near)
    if numbers.own_pid is not None and base.pid is None:
        base.pid = numbers.own_pid
    _complete_total(base, numbers, reading)
    holder = _survivor(base, numbers, reading)
    cause = _kind(numbers) or ("app.cuda_oom_shared" if holder else base.cause)
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
    if holder and _kind(numbers) is None:
        base.strength = min(
            base.strength, 0.85
        )  # the process that nvidia-smi lists may be the failing one, still there
    if _kind(numbers) is not None and max(s.worth for s in base.supports) >= 0.6:
        base.strength = max(base.strength, 0.93)


def _with_unit(size: str | None, total: str | None) -> str | None:
    """A size printed without unit beside a total that has one ("19.61/79.25 GiB")."""
    unit = re.search(r"[A-Za-z]+$", total or "")
    return f"{size} {unit[0]}" if size and unit and re.fullmatch(r"[\d.]+", size.strip()) else size


def _failed_pid(base: Candidate, near: list[Signal], reading: Reading) -> int | None:
    """The process that ran out of memory, where its rank or its own lines tell it."""
    people = People(reading.signals, reading.facts)
    ranks = {s.rank for s in near if s.rank is not None}
    if base.pid is not None and not _by_a_rule(base):
        return base.pid
    return people.pid_of(ranks.pop()) if len(ranks) == 1 else None


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
    if (
        need
        and unallocated
        and unallocated > 0.05 * total
        and unallocated + (free or 0.0) > need
        and unallocated > 0.12 * (allocated or total)
    ):
        return "app.cuda_oom_fragmentation"
    if mine is not None and free is not None and total - free - mine > 0.4 * total and mine < 0.5 * total:
        return "app.cuda_oom_shared"
    if mine is not None and mine > 0.7 * total:
        return "app.cuda_oom"
    return None


_HELD = ("gpu.held_before_start", "process.other_user_holds_vram", "app.card_full_at_start")
_RULES_FROM = 10**8
"""Rules have no place in the reading order; their supports are numbered from here."""


def _name_holder(base: Candidate, numbers: Numbers, reading: Reading) -> None:
    """The process that holds most of the card's memory and is not the one that failed."""
    failed: set[int | None] = {base.pid} if base.pid is not None and not _by_a_rule(base) else set()
    failed |= {s.pid for s in reading.signals if s.pid is not None and s.where.source in base.sources}
    held: list[tuple[float, int, Fact | None]] = [
        (size, pid, None) for size, pid in numbers.holders if pid not in failed
    ]
    card = _card_with(numbers, reading)
    if card is not None:
        base.gpu, base.gpus = card.key, [card.key]
        base.gpu_index = index if isinstance(index := card.fields.get("index"), int) else base.gpu_index
    if not held:
        index = base.gpu_index if base.gpu_index is not None else base.rank
        index = index if card is not None else physical_index(reading, index)
        listed = [f for f in processes_on(reading, index, base.gpu) if f.fields.get("pid") not in failed]
        held = [
            (_number(f.fields.get("memory_mib")), int(str(f.fields["pid"])), f)
            for f in listed
            if isinstance(f.fields.get("pid"), int)
        ]
    if not held:
        return
    _, pid, fact = max(held, key=lambda h: h[0])
    base.pid = pid
    base.action = "fix_config" if _of_another_user(pid, failed, reading) else "kill_process"
    base.supports[:] = [s for s in base.supports if s.id not in _HELD or s.pid in (None, pid)] or base.supports
    if fact is not None:
        index = fact.fields.get("gpu_index")
        base.gpu_index = index if isinstance(index, int) else base.gpu_index
        base.supports.append(Support(id="oom.holder", worth=0.7, places=[fact.where("pid")], order=10**8))


def _complete_total(base: Candidate, numbers: Numbers, reading: Reading) -> None:
    """The card's size as nvidia-smi tells it, or what others hold on the one card listed, where the failing program did not say."""
    if "total" in numbers.values or numbers.get("allocated") is None:
        return
    index = physical_index(reading, base.gpu_index)
    cards = [f for f in reading.facts if f.kind == "gpu" and f.fields.get("memory_total_mib")]
    mine = [f for f in cards if f.fields.get("index") == index] or (cards if len(cards) == 1 else [])
    if mine:
        numbers.values["total"] = _number(mine[0].fields["memory_total_mib"]) * _UNITS["m"]
        return
    listed = processes_on(reading, index, None)
    if len({f.fields.get("bus_id") or f.fields.get("gpu_key") for f in listed}) == 1:
        held = sum(_number(f.fields.get("memory_mib")) for f in listed) * _UNITS["m"]
        numbers.values["total"] = max(held, numbers.values["allocated"]) + (numbers.get("free") or 0.0)


def _survivor(base: Candidate, numbers: Numbers, reading: Reading) -> bool:
    """A program that ended with a traceback told nothing of its own use, and another process has a good part of its card afterwards."""
    ended = any(
        s.signature == "python.frame" and s.groups.get("op") == "<module>" and s.where.source in base.sources
        for s in reading.signals
    )
    if (
        base.cause != "app.cuda_oom"
        or base.gpu_index is None
        or not ended
        or numbers.get("allocated")
        or numbers.get("used")
    ):
        return False
    failed = {base.pid} | {s.pid for s in reading.signals if s.pid is not None and s.where.source in base.sources}
    totals = {
        f.fields.get("index"): _number(f.fields.get("memory_total_mib")) for f in reading.facts if f.kind == "gpu"
    }
    index = physical_index(reading, base.gpu_index)
    total = totals.get(index) or 0.0
    return any(
        _number(f.fields.get("memory_mib")) > 0.5 * total > 0 and f.fields.get("pid") not in failed
        for f in processes_on(reading, index, None)
    )


def _by_a_rule(base: Candidate) -> bool:
    """The candidate's process is one that a rule over nvidia-smi's list blames, not the one that failed."""
    return any(s.pid == base.pid and s.order >= _RULES_FROM for s in base.supports)


def _card_with(numbers: Numbers, reading: Reading) -> Fact | None:
    """The one card whose memory in use, as nvidia-smi lists it, is what the failing process found in use."""
    total, free = numbers.get("total"), numbers.get("free")
    if not total or free is None:
        return None
    found = sorted(
        (abs(_number(f.fields["memory_used_mib"]) * _UNITS["m"] - (total - free)) / total, f.key, f)
        for f in reading.facts
        if f.kind == "gpu" and f.fields.get("memory_used_mib") and f.key.count(":") == 2
    )
    near = [(off, f) for off, _, f in found if off < 0.01]
    return near[0][1] if near and (len(found) == 1 or found[1][0] > 2 * found[0][0] + 0.001) else None


def _of_another_user(pid: int, failed: set[int | None], reading: Reading) -> bool:
    """The holder is a living process of somebody else, as far as a process list tells."""
    users = {
        f.fields.get("pid"): f.fields.get("user") for f in reading.facts if f.kind == "process" and f.fields.get("user")
    }
    mine = {users[p] for p in failed if p in users}
    return pid in users and users[pid] not in mine and len(set(users.values())) > 1


def physical_index(reading: Reading, ordinal: int | None) -> int | None:
    """nvidia-smi's index of a CUDA device number, by a CUDA_VISIBLE_DEVICES that the input shows; the number itself where none does."""
    if ordinal is None:
        return None
    values = {str(f.fields.get("value")) for f in reading.facts if f.kind == "env" and f.key == "CUDA_VISIBLE_DEVICES"}
    if len(values) == 1:
        parts = values.pop().split(",")
        if ordinal < len(parts) and parts[ordinal].strip().isdecimal():
            return int(parts[ordinal])
    return ordinal


def biggest_holder(candidates: list[Candidate]) -> None:
    """Of several left-over processes the one that holds most memory is named."""
    for candidate in candidates:
        if candidate.cause == "process.orphan_vram":
            sized = [
                (float(s.groups["memory_mib"]), s)
                for s in candidate.supports
                if s.pid is not None and s.groups.get("memory_mib", "").replace(".", "").isdecimal()
            ]
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
        if f.kind == "gpu_process"
        and (index is None or f.fields.get("gpu_index") in (index, None))
        and (bus is None or f.fields.get("bus_id") in (bus, None))
    ]  # fmt: skip
