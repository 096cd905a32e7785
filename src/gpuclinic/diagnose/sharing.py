"""Several owners on one card: who they are, and whether both work at the same time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpuclinic.diagnose.candidates import Pool, Support
from gpuclinic.model import LEVEL_CONFIDENCE, Fact

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuclinic.diagnose.evidence import Reading

_SERVICES = ("nvidia-cuda-mps", "xorg", "gnome-shell", "nv-hostengine", "dcgm", "xwayland")
_BUSY_SM = 20
_BUSY_CARD = 90
_MEMORY_MIB = 300
_SLOWER = 1.4


def add_sharing(pool: Pool, reading: Reading) -> None:
    """A candidate for each card on which processes of different owners compute at once; memory alone is only a hint."""
    if any(
        "oom" in s.signature or s.signature == "cuda.out_of_memory" or s.signature.startswith("mps.")
        for s in reading.signals
    ):
        return  # that has causes of its own
    owners = {f.fields["pid"]: f for f in reading.facts if f.kind == "process" and isinstance(f.fields.get("pid"), int)}
    slower = any((_number_of("slowdown")(f.fields) or 0) >= _SLOWER for f in reading.facts if f.kind == "step_time")
    for (host, card), members in _by_card(reading).items():
        known = [m for m in members if m.fields["pid"] in owners]
        if len(known) < 2 or _one_job(known, owners):
            continue
        users = {owners[m.fields["pid"]].fields.get("user") for m in known}
        level = _level(known, _utilisation(reading, card), two_users=len(users - {None}) > 1)
        level = "strong" if level == "likely" and slower else level
        if level is None:
            continue
        places = [m.where() for m in known[:3]] + [owners[m.fields["pid"]].where() for m in known[:3]]
        support = Support(
            id="sharing.two_owners", worth=LEVEL_CONFIDENCE[level], places=places, order=10**9, fatal=level != "hint"
        )
        index = next((m.fields["gpu_index"] for m in known if isinstance(m.fields.get("gpu_index"), int)), None)
        bus = next((m.fields["bus_id"] for m in known if m.fields.get("bus_id")), None)
        pool.add(
            "sched.contention", support, host=host, source=known[0].source, subject={"gpu": bus, "gpu_index": index}
        )


def _by_card(reading: Reading) -> dict[tuple[str | None, Any], list[Fact]]:
    """Compute processes of some size on each card, each pid once."""
    found: dict[tuple[str | None, Any], list[Fact]] = {}
    for fact in reading.facts:
        fields = fact.fields
        card = fields.get("gpu_index") if fields.get("gpu_index") is not None else fields.get("bus_id")
        if (
            fact.kind != "gpu_process"
            or card is None
            or not isinstance(fields.get("pid"), int)
            or "C" not in str(fields.get("type") or "C")
        ):
            continue
        if any(word in str(fields.get("name")).lower() for word in _SERVICES):
            continue
        members = found.setdefault((fact.host, card), [])
        if all(m.fields["pid"] != fields["pid"] for m in members):
            members.append(fact)
    return found


def _one_job(members: list[Fact], owners: dict[Any, Fact]) -> bool:
    """Parent and child, siblings or one user's same program: one job with several processes."""
    facts = [owners[m.fields["pid"]] for m in members]
    pids = {f.fields["pid"] for f in facts}
    parents = {f.fields.get("ppid") for f in facts}
    programs = {(f.fields.get("user"), *str(f.fields.get("command")).split()[:2]) for f in facts}
    siblings = len(parents) == 1 and parents not in ({None}, {1})
    return siblings or bool(parents & pids) or len(programs) == 1


def _utilisation(reading: Reading, card: object) -> float | None:
    cards = [
        f.fields for f in reading.facts if f.kind == "gpu" and card in (f.fields.get("index"), f.fields.get("bus_id"))
    ]
    return max((n for n in map(_number_of("utilization_pct"), cards) if n is not None), default=None)


def _number_of(name: str) -> Callable[[dict[str, Any]], float | None]:
    return lambda fields: float(fields[name]) if isinstance(fields.get(name), (int, float)) else None


def _level(members: list[Fact], utilisation: float | None, *, two_users: bool) -> str | None:
    sm, memory = _number_of("sm_pct"), _number_of("memory_mib")
    busy = [m for m in members if (sm(m.fields) or 0) >= _BUSY_SM]
    if len(busy) >= 2:
        return "strong"
    heavy = [m for m in members if (memory(m.fields) or 0) >= _MEMORY_MIB]
    if len(heavy) >= 2 and utilisation is not None and utilisation >= _BUSY_CARD and two_users:
        return "likely"
    return "hint" if len(heavy) >= 2 and two_users else None
