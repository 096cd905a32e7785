"""Days of a server by an accelerated clock: a normal one brings no alert; each of forty faults is found in time, once, under its name."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, NamedTuple

import pytest

from gpuclinic.watch.config import Rules as RulesConfig
from gpuclinic.watch.rules import Rules
from simulated_faults import DURATIONS, FAULTS, Fault, heal
from simulated_machine import HOUR, WALL, Simulated

if TYPE_CHECKING:
    from gpuclinic.watch.alerts import Alert

DAY = 24 * HOUR
FAULTS_A_DAY = 40


class Put(NamedTuple):
    fault: Fault
    gpu: int
    begin: float
    end: float


def drawn(seed: int) -> list[Put]:
    """Forty faults, each in a slot of its own, so that what is found can be told apart."""
    dice = random.Random(seed)
    slot = DAY / FAULTS_A_DAY
    out = []
    for number in range(FAULTS_A_DAY):
        fault = dice.choice(FAULTS)
        begin = number * slot + dice.uniform(60.0, 400.0)
        lasts = DURATIONS.get(fault.rule, 0.0) + fault.more + 2 * fault.tier + dice.uniform(60.0, 300.0)
        out.append(Put(fault, dice.randrange(8), begin, begin + lasts))
    return out


def live(seed: int, step: float, faults: list[Put], *, mig: tuple[int, ...] = (), length: float = DAY) -> list[Alert]:
    """All alerts of a day, of warnings and worse."""
    machine = Simulated(seed, mig=mig)
    machine.plan_day(length)
    rules = Rules(RulesConfig())
    waiting, running = list(faults), None
    seen: dict[tuple[str, float], Alert] = {}
    for number in range(int(length / step)):
        now = number * step
        if running is not None and now >= running.end:
            heal(machine)
            running = None
        if waiting and now >= waiting[0].begin:
            running = waiting.pop(0)
            machine.now = now
            running.fault.begin(machine, running.gpu)
        for change in rules.take(machine.tick(now)):
            if change.what in ("fired", "worsened") and change.alert.severity != "info":
                seen.setdefault((change.alert.id, change.alert.fired_at), change.alert)
    return list(seen.values())


def judge_day(puts: list[Put], alerts: list[Alert], step: float) -> list[str]:
    """What went wrong: late, missed, twice, or of no fault."""
    wrong = []
    left = list(alerts)
    for place, put in enumerate(puts):
        until = puts[place + 1].begin if place + 1 < len(puts) else DAY
        here = [a for a in alerts if put.begin <= a.fired_at - WALL < until]
        left = [a for a in left if a not in here]
        tops = [a for a in here if a.explained_by is None]
        named = [a for a in here if a.rule == put.fault.rule]
        if not named:
            wrong.append(f"{put.fault.name} on {put.gpu} at {put.begin:.0f}: not found, but {[a.rule for a in here]}")
            continue
        allowed = DURATIONS.get(put.fault.rule, 0.0) + put.fault.more + 2 * max(step, put.fault.tier) + step
        late = named[0].fired_at - WALL - put.begin
        if late > allowed:
            wrong.append(f"{put.fault.name}: after {late:.0f} s, allowed {allowed:.0f}")
        if [a.rule for a in tops] != [put.fault.rule]:
            wrong.append(f"{put.fault.name} on {put.gpu} at {put.begin:.0f}: told as {[a.rule for a in tops]}")
    return wrong + [f"of no fault: {a.rule} {a.subject} at {a.fired_at - WALL:.0f}" for a in left]


@pytest.mark.parametrize("seed", [1, 2])
def test_three_hours_with_five_faults(seed: int) -> None:
    puts = [put for put in drawn(seed) if put.end < 3 * HOUR]
    assert judge_day(puts, live(seed, 10.0, puts, length=3 * HOUR), 10.0) == []


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_each_fault(fault: Fault) -> None:
    lasts = DURATIONS.get(fault.rule, 0.0) + fault.more + 2 * fault.tier + 60
    puts = [Put(fault, 3, 300.0, 300.0 + lasts)]
    assert judge_day(puts, live(5, 10.0, puts, length=300.0 + lasts + 60), 10.0) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_a_day_with_forty_faults(seed: int) -> None:
    puts = drawn(seed)
    assert judge_day(puts, live(seed, 5.0, puts), 5.0) == []


@pytest.mark.slow
def test_a_day_with_forty_faults_second_by_second() -> None:
    puts = drawn(77)
    assert judge_day(puts, live(77, 1.0, puts), 1.0) == []


@pytest.mark.parametrize(("seed", "mig"), [(3, ()), (4, (6, 7))])
def test_normal_hours_tell_nothing(seed: int, mig: tuple[int, ...]) -> None:
    alerts = live(seed, 15.0, [], mig=mig, length=5 * HOUR)
    assert [(a.rule, a.subject, a.fired_at - WALL) for a in alerts] == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_a_normal_day_tells_nothing(seed: int) -> None:
    alerts = live(seed, 5.0, [], mig=(7,) if seed % 3 == 0 else ())
    assert [(a.rule, a.subject, a.fired_at - WALL) for a in alerts] == []
