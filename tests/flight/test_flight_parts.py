"""The recorder's parts alone: tails, standstill, launchers' variables, first failures, records of anybody's making."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuclinic.recognise.kinds import is_run_record
from gpuclinic.recognise.run_record import parse_run_record
from gpuclinic.watch.flight import launchers, ranks
from gpuclinic.watch.flight.gpus import busy
from gpuclinic.watch.flight.stalled import Moment, Standstill
from gpuclinic.watch.flight.tail import HEAD, RING, Tail

if TYPE_CHECKING:
    from pathlib import Path


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(1, RING), max_size=6))
def test_a_tail_keeps_beginning_and_end(sizes: list[int]) -> None:
    tail, everything = Tail(), bytearray()
    for number, size in enumerate(sizes):
        piece = bytes([number + 1]) * (size - 1) + b"\n"
        tail.add(memoryview(piece))
        everything += piece
    kept = tail.kept()
    assert kept.total == len(everything)
    assert kept.head == bytes(everything[:HEAD])
    assert kept.tail == bytes(everything[HEAD:])[-RING:]
    if len(everything) <= HEAD + RING:
        assert kept.text() == bytes(everything)
    else:
        assert b"bytes were not kept" in kept.text()


def stands(moments: list[dict[str, Any]], after: float = 100.0) -> list[float]:
    """When a standstill was found."""
    standstill = Standstill(after)
    base: dict[str, Any] = {"output": 0, "cpu_s": 0.0, "moved": 0, "gpus": None}
    return [m["at"] for m in moments if standstill.take(Moment(**{**base, **m}))]


SPINS, WORKS, IDLES = [(100.0, 0.2)], [(97.0, 0.8)], [(0.0, 0.1)]


@pytest.mark.parametrize(
    ("each", "found"),
    [
        (lambda t: {}, True),
        (lambda t: {"output": t}, False),
        (lambda t: {"cpu_s": float(t)}, False),
        (lambda t: {"moved": t * 100_000}, False),
        (lambda t: {"moved": None}, True),
        (lambda t: {"cpu_s": float(t), "gpus": SPINS}, True),
        (lambda t: {"cpu_s": float(t), "gpus": IDLES}, True),
        (lambda t: {"gpus": WORKS}, False),
        (lambda t: {"gpus": [*IDLES, *WORKS]}, False),
        (lambda t: {"gpus": [(100.0, None)]}, False),
    ],
)
def test_what_counts_as_progress(each: Any, found: bool) -> None:
    at = stands([{"at": t, **each(t)} for t in range(0, 300, 10)])
    assert at == ([100] if found else [])


def test_a_standstill_is_told_again_after_progress() -> None:
    outputs = {t: t // 250 for t in range(0, 500, 10)}
    assert stands([{"at": t, "output": outputs[t]} for t in outputs]) == [100, 350]
    assert stands([{"at": t} for t in range(0, 500, 10)], after=0.0) == []


def test_gpus_are_read_as_told() -> None:
    assert busy(None) is None
    assert busy([{"utilization_pct": 50, "power_w": 100, "power_limit_w": 400}, {"utilization_pct": 9}, {}]) == [
        (50.0, 0.25),
        (9.0, None),
    ]


@pytest.mark.parametrize(
    ("told", "rank", "group"),
    [
        ({"RANK": "3", "WORLD_SIZE": "8", "TORCHELASTIC_RUN_ID": "a/b"}, 3, "a-b"),
        ({"SLURM_PROCID": "2", "SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0"}, 2, "77-0"),
        ({"OMPI_COMM_WORLD_RANK": "1", "PMIX_NAMESPACE": "n@1"}, 1, "n-1"),
        ({"PMI_RANK": "0", "MASTER_ADDR": "h", "MASTER_PORT": "1"}, 0, "h-1"),
        ({"RANK": "x", "SLURM_JOB_ID": "77"}, None, ""),
        ({}, None, ""),
    ],
)
def test_launchers(told: dict[str, str], rank: int | None, group: str) -> None:
    place = launchers.place_of(told)
    assert (place.rank, place.group) == (rank, group)
    assert launchers.is_rank(told) is (rank is not None)


def end(rank: int, ended: float, **more: Any) -> ranks.End:
    return ranks.End(rank, "n", 0.0, ended, **more)


def test_the_first_failure(tmp_path: Path) -> None:
    ends = [
        end(0, 10.5, signal=15),
        end(1, 11.0, exit_code=1, cause="app.exception"),
        end(2, 5.0, exit_code=0),
        end(3, 90.0, signal=9),
    ]
    first = ranks.first_failure(ends)
    assert first is not None
    assert first.rank == 1
    assert ranks.first_failure([end(0, 1.0, exit_code=0)]) is None
    place = launchers.Place(0, 4, 0, "g")
    for one in ends:
        ranks.leave(tmp_path, place, one)
    folder = tmp_path / "ranks-g"
    (folder / "rank-9.json").write_text('{"rank": "no"}')
    (folder / "rank-8.json").write_bytes(b"\xff{")
    (folder / "rank-7.json").symlink_to("/dev/zero")
    assert [one.rank for one in ranks.others(tmp_path, place, 6.0)] == [0, 1, 3]


@settings(max_examples=200, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(
            [
                "pid",
                "signal",
                "exit_code",
                "command",
                "pids",
                "cgroups",
                "hangs",
                "ends",
                "signals",
                "boot_s",
                "shm_mib",
                "shm_use_pct",
                "ended_s",
                "stood_s",
            ]
        ),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
            lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        ),
    )
)
def test_records_of_anybodys_making(told: dict[str, Any]) -> None:
    data = json.dumps({"gpuclinic_run": 1, **told}).encode()
    assert is_run_record(data)
    for fact in parse_run_record("run.json", data):
        assert fact.kind in ("run", "death", "looked", "boot", "fs")


def test_a_record_tells_its_children() -> None:
    told = {
        "gpuclinic_run": 1,
        "pid": 7,
        "exit_code": 137,
        "ended_s": 5.0,
        "ends": [{"pid": 8, "name": "python", "signal": 9}],
    }
    facts = parse_run_record("run.json", json.dumps(told, indent=1).encode())
    deaths = {f.fields["pid"]: f.fields for f in facts if f.kind == "death"}
    assert deaths[7].get("signal") is None
    assert (deaths[8]["signal"], deaths[8]["child"]) == (9, True)
    del told["ends"]
    (alone,) = [f.fields for f in parse_run_record("run.json", json.dumps(told).encode()) if f.kind == "death"]
    assert alone["signal"] == 9
