"""`judge` over a window and the stream say the same of the same samples; and what only a stream has: durations, ends, what is not seen."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from gpuclinic.diagnose.expression import reads
from gpuclinic.diagnose.judge import Sample, judge
from gpuclinic.diagnose.sliding import Sliding
from gpuclinic.knowledge import Check, load_checks, watched_rows
from gpuclinic.model import Fact, Gap, Tick

ROWS = load_checks().checks
KEYS = ("0000:3b:00.0", "0000:5e:00.0", "c")


def row(identity: str) -> Check:
    return next(r for r in ROWS if r.id == identity)


def compares(one: Check) -> bool:
    """It looks at a number over the window."""
    return bool(one.rate or reads([one.critical, one.warning, one.info]).series)


def vocabulary() -> dict[str, dict[str, list[Any]]]:
    """Of each kind the fields and values that the rows' own examples use: what tips a row stands there, and what nearly does."""
    out: dict[str, dict[str, list[Any]]] = {}
    for one in ROWS:
        for window in (*one.holds, *one.holds_not):
            for sample in window:
                for kind, facts in sample.items():
                    if kind not in ("at", "severity"):
                        for fields in facts:
                            for name, value in fields.items():
                                if name != "key" and value not in out.setdefault(kind, {}).setdefault(name, []):
                                    out[kind][name].append(value)
    return out


WORDS = vocabulary()


@st.composite
def windows(draw: st.DrawFn) -> tuple[list[Check], list[Sample]]:
    """Rows of one example's kinds and five to nine samples, four seconds apart, of values from the examples; now and then a fact is missing."""
    seed = draw(st.sampled_from(ROWS))
    kinds = {k for w in (*seed.holds, *seed.holds_not) for s in w for k in s if k not in ("at", "severity")}
    kinds = {k for k in kinds if k in WORDS}
    rows = [
        msgspec.structs.replace(r, for_s=min(r.for_s, 9.0) or float(draw(st.sampled_from((0, 0, 7)))))
        for r in ROWS
        if r.over in kinds and not (compares(r) and r.for_s)
    ]
    rows = [msgspec.structs.replace(r, for_s=0.0) if compares(r) else r for r in rows]
    needed = sorted({(k, f) for k in kinds for f in WORDS[k]})
    chosen = draw(st.lists(st.sampled_from(needed), max_size=14)) if needed else []
    for window in (seed.holds[0],):
        chosen += [
            (k, f) for k, facts in window[0].items() if k in kinds for fields in facts for f in fields if f != "key"
        ]
    steady = {
        (k, key, f): draw(st.sampled_from(WORDS[k][f]))
        for k, f in dict.fromkeys(chosen)
        for key in KEYS[:2]
        if f in WORDS[k]
    }
    samples = []
    for number in range(draw(st.integers(5, 9))):
        for place in list(steady):
            if draw(st.integers(0, 9)) == 0:
                steady[place] = draw(st.sampled_from([*WORDS[place[0]][place[2]], None]))
        facts = []
        for kind in sorted(kinds):
            for key in KEYS[:2]:
                if draw(st.integers(0, 19)):
                    facts.append(
                        Fact(
                            kind,
                            key,
                            {
                                f: v
                                for (k, other, f), v in steady.items()
                                if k == kind and other == key and v is not None
                            },
                            {},
                            "t",
                        )
                    )
        samples.append(Sample(4.0 * number, facts))
    return rows, samples


@settings(
    max_examples=300, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate]
)  # shrinking takes minutes
@given(windows())
def test_stream_and_window_agree(drawn: tuple[list[Check], list[Sample]]) -> None:
    rows, samples = drawn
    sliding = Sliding(rows)
    for sample in samples:
        sliding.take(Tick(sample.at, sample.at, sample.facts))
    said = {(j.row.id, j.fact.key if j.fact else "", j.severity) for j in sliding.holding()}
    # The stream compares counters from when a subject came; a window from its first sample with a value. Both are defined where it was always there.
    always = {
        (k, key)
        for k, key in ((f.kind, f.key) for f in samples[0].facts)
        if all(any(f.kind == k and f.key == key for f in s.facts) for s in samples)
    }
    told = {(j.row.id, j.fact.key if j.fact else "", j.severity) for j in judge(rows, samples) if j.state == "holds"}
    by_id = {r.id: r for r in rows}
    both = {(i, k, s) for i, k, s in said ^ told if not compares(by_id[i]) or (by_id[i].over, k) in always}
    assert not both


def gpu(key: str = "0000:3b:00.0", **fields: Any) -> Fact:
    return Fact("gpu", key, {"index": 0, **fields}, {}, "nvml")


def run(
    rows: list[Check], moments: list[tuple[float, list[Fact]]], gaps: list[Gap] | None = None
) -> list[tuple[float, str, int, int]]:
    sliding = Sliding(rows)
    out = []
    for at, facts in moments:
        out += [(at, t.row.id, t.was, t.now) for t in sliding.take(Tick(at, at, facts, gaps=gaps or []))]
    return out


def test_it_is_told_after_its_duration_and_over_after_as_long() -> None:
    rows = [row("gpu.busy_long")]
    moments = [(float(n), [gpu(utilization_pct=97 if n < 400 else 3)]) for n in range(900)]
    assert run(rows, moments) == [(300.0, "gpu.busy_long", 0, 1), (700.0, "gpu.busy_long", 1, 0)]


def test_one_sample_is_not_enough() -> None:
    assert not run([row("gpu.remap.pending")], [(0.0, [gpu(remap_pending=True)]), (1.0, [gpu(remap_pending=False)])])
    assert run([row("gpu.remap.pending")], [(0.0, [gpu(remap_pending=True)]), (1.0, [gpu(remap_pending=True)])]) == [
        (1.0, "gpu.remap.pending", 0, 3)
    ]


def test_what_comes_and_goes_stays_one() -> None:
    moments = [(float(n), [gpu(remap_pending=n % 20 < 10)]) for n in range(300)]
    assert [t[3] for t in run([row("gpu.remap.pending")], moments)] == [3]


def test_a_value_that_is_missing_neither_fires_nor_ends() -> None:
    rows = [row("thermal.gpu.hot")]
    hot, blind = gpu(temperature_c=93), gpu()
    moments = [(float(n), [hot if n < 5 else blind]) for n in range(400)]
    assert [t[2:] for t in run(rows, moments)] == [(0, 3)]
    assert not run(rows, [(float(n), [blind]) for n in range(100)])


@pytest.mark.parametrize("after", [[], [gpu(error="GPU is lost")], [gpu(hung=True)]])
def test_a_gpu_that_vanishes_is_not_well_again(after: list[Fact]) -> None:
    rows = [row("gpu.remap.pending"), row("thermal.gpu.hot")]
    moments = [(float(n), [gpu(remap_pending=True, temperature_c=95)] if n < 5 else after) for n in range(600)]
    assert {t[3] for t in run(rows, moments)} == {3}


def test_a_process_that_is_gone_takes_its_fault_along_unless_nobody_looked() -> None:
    stuck = row("process.gpu.stopped_holder")
    fields = stuck.holds[0][0]["gpu_holder"][0]
    holder = Fact("gpu_holder", "4711", dict(fields), {}, "t")
    moments = [(float(n), [holder] if n < 5 else []) for n in range(100)]
    assert [t[3] for t in run([stuck], moments)][-1] == 0
    assert run([stuck], moments, [Gap("process.gpu", "no permission")])[-1][3] > 0


def test_it_gets_graver_at_once_and_milder_slowly() -> None:
    temperatures = [81] * 5 + [86] * 5 + [93] * 5 + [86] * 60 + [60] * 60
    moments = [(float(n), [gpu(temperature_c=t)]) for n, t in enumerate(temperatures)]
    assert [t[2:] for t in run([row("thermal.gpu.hot")], moments)] == [(0, 1), (1, 2), (2, 3), (3, 2), (2, 0)]


def test_a_restart_tells_nothing_twice_and_ends_what_is_over() -> None:
    sliding = Sliding([row("gpu.remap.pending")])
    sliding.restore([("gpu.remap.pending", "0000:3b:00.0", 3), ("no.such.row", "x", 1)])
    turns = [t for n in range(50) for t in sliding.take(Tick(n, n, [gpu(remap_pending=True)]))]
    assert not turns
    turns = [t for n in range(50, 100) for t in sliding.take(Tick(n, n, [gpu(remap_pending=False)]))]
    assert [(t.was, t.now) for t in turns] == [(3, 0)]


def test_counters_read_once_a_minute_are_compared_at_their_own_pace() -> None:
    """Sixty errors in a minute are sixty a minute, also where the first reading came a second before."""
    rows = [row("gpu.ecc.corrected_storm")]
    sliding = Sliding(rows)
    turns = []
    for n in range(400):
        read = n // 60
        held = gpu(ecc_corrected_volatile=read * 20)
        turns += sliding.take(Tick(n, n, [held], ages={"gpu": float(n % 60)}))
    assert not turns


def test_durations_of_the_table_and_of_the_configuration() -> None:
    rows = {r.id: r for r in watched_rows(ROWS, {"thermal.gpu.hot": 7.0}, ["gpu.mig", "power.gpu.brake"])}
    assert rows["thermal.gpu.hot"].for_s == 7.0
    assert rows["thermal.gpu.over_limit"].for_s == 60.0
    assert rows["gpu.busy_long"].for_s == 300.0
    assert "power.gpu.brake" not in rows
    assert "gpu.mig.mixed" not in rows
    assert "power.gpu.brake_time" in rows
