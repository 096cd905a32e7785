"""What a single line cannot know: one fault told by many lines, the machine's own verdict, facts against guesses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuclinic.diagnose.collectives import blame
from gpuclinic.diagnose.deaths import attach, without_other_signals
from gpuclinic.diagnose.decide import same_host
from gpuclinic.diagnose.devices import name_devices, name_pids, name_spawned_ranks
from gpuclinic.diagnose.episodes import part_events, set_aside_answered
from gpuclinic.diagnose.generic import find_leak, weaken_generic
from gpuclinic.diagnose.hardware import refine_hardware
from gpuclinic.diagnose.health import weigh
from gpuclinic.diagnose.job import set_aside_other_victims
from gpuclinic.diagnose.memory import biggest_holder, split
from gpuclinic.diagnose.newcomer import name_newcomer
from gpuclinic.diagnose.past import set_aside_past
from gpuclinic.diagnose.recency import driver_answers_again, set_aside_old
from gpuclinic.diagnose.storage import prefer_user_tasks

if TYPE_CHECKING:
    from gpuclinic.diagnose.candidates import Candidate, Pool
    from gpuclinic.diagnose.deaths import Death
    from gpuclinic.diagnose.evidence import Reading
    from gpuclinic.diagnose.people import People

_DEVICE_LEVEL = (
    "hw.gpu.",
    "hw.pcie.",
    "hw.thermal.",
    "hw.power.throttled",
    "app.cuda_oom",
    "app.illegal",
    "app.device",
    "process.orphan",
    "perf.clock",
    "sec.crypto",
    "sec.hidden",
    "sched.contention",
)


def refine(
    candidates: list[Candidate], pool: Pool, reading: Reading, people: People, deaths: list[Death]
) -> list[Candidate]:
    """Candidates after all refinements, strongest first."""
    candidates = without_other_signals(candidates, reading, deaths)
    weaken_generic(candidates)
    driver_answers_again(candidates, reading)
    health = weigh(candidates, reading)
    candidates = merge(candidates)
    part_events(candidates)
    split(candidates, reading)
    biggest_holder(candidates)
    find_leak(candidates, reading)
    _facts_against_guesses(candidates, pool)
    refine_hardware(candidates, reading)
    prefer_user_tasks(candidates)
    blame(candidates, reading)
    name_spawned_ranks(candidates, reading)
    name_pids(candidates, reading)
    name_newcomer(candidates, reading)
    for candidate in candidates:
        people.complete(candidate, device_level=candidate.cause.startswith(_DEVICE_LEVEL))
    name_devices(candidates, reading)
    attach(candidates, deaths)
    set_aside_past(candidates, reading, pool.timeline)
    set_aside_old(candidates, pool, reading, deaths)
    set_aside_answered(candidates, reading, pool.timeline, deaths)
    set_aside_other_victims(candidates, reading, health)
    candidates.sort(key=lambda c: (-c.strength, c.order))
    return candidates


def merge(candidates: list[Candidate]) -> list[Candidate]:
    """One candidate for one fault: same cause, where host and GPU agree or one of them is not told.

    A fault of the node that shows on several named hosts or GPUs stays several, tied to the first.
    """
    kept: list[Candidate] = []
    for candidate in sorted(candidates, key=_first):
        twin = next((k for k in kept if k.cause == candidate.cause and _same_thing(k, candidate)), None)
        if twin is None:
            kept.append(candidate)
        else:
            _absorb(twin, candidate)
    first_of: dict[str, Candidate] = {}
    for candidate in kept:
        first = first_of.setdefault(candidate.cause, candidate)
        if first is not candidate:
            candidate.explained_by = first
            first.gpus.extend(g for g in candidate.gpus if g not in first.gpus)
    return kept


def _first(candidate: Candidate) -> tuple[int, float, int]:
    """The primary of several: the believed ones first, then the earliest."""
    moment = candidate.moment
    return (
        0 if candidate.strength >= 0.5 else 1,
        moment.seconds if moment and moment.clock == "wall" else 0.0,
        candidate.order,
    )


def _same_thing(first: Candidate, second: Candidate) -> bool:
    hosts_agree = not first.host or not second.host or same_host(first.host, second.host)
    if first.cause.startswith(("hw.", "driver.", "kernel.", "host.", "storage.")):
        return hosts_agree and (first.gpu is None or second.gpu is None or first.gpu == second.gpu)
    return True


def _absorb(twin: Candidate, other: Candidate) -> None:
    twin.supports.extend(other.supports)
    twin.sources |= other.sources
    for name in ("host", "gpu", "gpu_index", "gpu_uuid"):
        if getattr(twin, name) is None:
            setattr(twin, name, getattr(other, name))
    twin.gpus.extend(g for g in other.gpus if g not in twin.gpus)
    twin.settle()


def _facts_against_guesses(candidates: list[Candidate], pool: Pool) -> None:
    for candidate in candidates:
        if candidate.cause in pool.dropped and candidate.strength < 0.95:
            candidate.strength *= 0.3
