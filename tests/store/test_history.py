"""The history as a whole: what goes in comes out, packed or not, through restarts, jumps of the clock and devices that come and go."""

from __future__ import annotations

import sqlite3
import threading
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuclinic.model import CouldNotError, Event, Fact
from gpuclinic.store import history as module
from gpuclinic.store.history import History
from store.made_ticks import START, finding, gpu, steady, tick, xid

if TYPE_CHECKING:
    from pathlib import Path

    from gpuclinic.store.history import Series

HOUR = 3600


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history.db"


def one(history: History, field: str, key: str = "0000:1a:00.0", kind: str = "gpu") -> Series:
    return history.series(kind, key, field)[0]


def samples(history: History, field: str, since: float, until: float, key: str = "0000:1a:00.0") -> dict[float, float]:
    """Second by second, as far as a question at that width goes."""
    return {
        bucket.at - START: bucket.last
        for bucket in history.query(one(history, field, key), START + since, START + until, int(until - since) + 1)
    }


def fill(history: History, seconds: int, first: int = 0) -> None:
    for sample in steady(seconds, first=first):
        history.append(sample)


def test_what_goes_in_comes_out_before_and_after_packing(path: Path) -> None:
    with History.open(path) as history:
        fill(history, 2 * HOUR)
        history.flush()
        before = samples(history, "power_w", 0, 2 * HOUR)
        history.pack_all(START + 9 * HOUR)
        assert samples(history, "power_w", 0, 2 * HOUR) == before == {second: second / 8 for second in range(2 * HOUR)}


def test_a_reader_of_a_closed_history(path: Path) -> None:
    with History.open(path) as history:
        fill(history, 100)
    with History.open(path, read_only=True) as reader:
        assert samples(reader, "utilization_pct", 0, 100) == {second: second % 101 for second in range(100)}
        assert reader.span() == (START, START + 99)


def test_whole_numbers_stay_whole(path: Path) -> None:
    with History.open(path) as history:
        history.append(tick(0, gpu(big=2**60 + 1)))
        history.flush()
        assert history.query(one(history, "big"), START, START + 1, 10)[0].last == 2**60 + 1


def test_stretches_of_a_long_question_are_exact(path: Path) -> None:
    with History.open(path) as history:
        fill(history, 3 * HOUR)
        history.pack_all(START + 9 * HOUR)
        buckets = history.query(one(history, "power_w"), START, START + 3 * HOUR, 3)
        assert [bucket.n for bucket in buckets] == [HOUR] * 3
        assert buckets[1].low == HOUR / 8
        assert buckets[1].high == buckets[1].last == (2 * HOUR - 1) / 8
        assert buckets[1].mean == pytest.approx((HOUR + (HOUR - 1) / 2) / 8)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    times=st.lists(st.integers(0, 3 * HOUR * 10), min_size=1, max_size=60, unique=True),
    since=st.integers(0, 3 * HOUR), length=st.integers(1, 3 * HOUR), points=st.integers(1, 500), packed=st.booleans(),
)  # fmt: skip
def test_any_question_agrees_with_a_plain_count(
    tmp_path_factory: pytest.TempPathFactory, times: list[int], since: int, length: int, points: int, packed: bool
) -> None:
    moments = sorted(moment / 10 for moment in times)
    with History.open(tmp_path_factory.mktemp("any") / "history.db") as history:
        for moment in moments:
            history.append(tick(moment, gpu(power_w=moment)))
        history.flush()
        if packed:
            history.pack_all(START + 9 * HOUR)
        found = history.query(one(history, "power_w"), START + since, START + since + length, points)
        width = module.read.step_for(0, length, points) / 1000
        start, end = (START + since) // width * width, -(-(START + since + length) // width) * width
        expected: dict[float, list[float]] = {}
        for moment in moments:
            if start <= START + moment < end:
                expected.setdefault((START + moment) // width * width, []).append(moment)
    assert {bucket.at: (bucket.n, bucket.low, bucket.high, bucket.last) for bucket in found} == {
        at: (len(values), min(values), max(values), values[-1]) for at, values in expected.items()
    }


def test_gaps_are_gaps(path: Path) -> None:
    with History.open(path) as history:
        history.append(tick(0, gpu(index=0, power_w=1.5, fan_pct=None)))
        history.append(tick(1, gpu(index=0)))
        history.append(tick(2))
        history.append(tick(3, gpu(index=0, power_w=2.5, error="GPU is lost")))
        history.append(tick(4, gpu(index=0, power_w="ERR!")))
        history.pack_all(START + 9 * HOUR)
        assert samples(history, "power_w", 0, 5) == {0: 1.5, 3: 2.5}
        assert not history.series("gpu", None, "fan_pct")
        assert not history.series("gpu", None, "error")


def test_a_number_that_turns_out_to_have_decimals(path: Path) -> None:
    with History.open(path) as history:
        history.append(tick(0, gpu(a=1, power_w=300, z=2)))
        history.append(tick(1, gpu(a=1, power_w=300.25, z=2)))
        history.append(tick(2, gpu(a=1, power_w=2**70, z=2)))
        history.append(tick(3, gpu(a=1, power_w=301, z=2)))
        history.pack_all(START + 9 * HOUR)
        assert samples(history, "power_w", 0, 4) == {0: 300, 1: 300.25, 2: 2.0**70, 3: 301}
        assert samples(history, "z", 0, 4) == dict.fromkeys(range(4), 2)


def test_devices_come_and_go(path: Path) -> None:
    with History.open(path) as history:
        for second in range(3):
            history.append(tick(second, gpu("a", power_w=1.0)))
        for second in range(3, 6):
            history.append(
                tick(
                    second,
                    gpu("a", power_w=1.0),
                    gpu("b", power_w=2.0),
                    Fact("mig_device", "0/1", {"memory_used_mib": 5}, {}, "nvml"),
                )
            )
        for second in range(6, 9):
            history.append(tick(second, gpu("b", power_w=2.0, temperature_c=40)))
        history.pack_all(START + 9 * HOUR)
        assert sorted(samples(history, "power_w", 0, 9, "a")) == [0, 1, 2, 3, 4, 5]
        assert sorted(samples(history, "power_w", 0, 9, "b")) == [3, 4, 5, 6, 7, 8]
        assert sorted(samples(history, "temperature_c", 0, 9, "b")) == [6, 7, 8]
        assert [series.key for series in history.series("mig_device")] == ["0/1"]


def test_more_columns_than_a_part_has(path: Path) -> None:
    with History.open(path) as history:
        for second in range(5):
            history.append(
                tick(second, *(gpu(f"g{i}", **{f"f{j}": second * i + j for j in range(40)}) for i in range(7)))
            )
        history.pack_all(START + 9 * HOUR)
        for i in range(7):
            assert samples(history, "f39", 0, 5, f"g{i}") == {second: second * i + 39 for second in range(5)}


def test_the_clock_set_back_loses_nothing_and_is_told(path: Path) -> None:
    with History.open(path) as history:
        fill(history, 100, first=1000)
        for number, sample in enumerate(steady(50, first=500)):
            sample.mono = 1200.0 + number
            history.append(sample)
        for number, sample in enumerate(steady(30, first=1060)):
            sample.mono = 1300.0 + number
            history.append(sample)
        history.pack_all(START + 9 * HOUR)
        found = {b.at - START: b.n for b in history.query(one(history, "power_w"), START, START + 2000, 5000)}
        assert sum(found.values()) == 180
        assert found[1070] == 2
        told = history.events(START, START + 2000, ["agent"])
        assert [event.fields["set_back_s"] for event in told] == [599.0]
        assert any("set back" in note for note in history.notes)


def test_the_sampler_that_tells_of_the_clock_is_not_repeated(path: Path) -> None:
    with History.open(path) as history:
        history.append(tick(100, gpu(power_w=1.0)))
        history.append(
            tick(50, gpu(power_w=1.0), mono=101, events=[Event(START + 50, "agent", "", "the clock was set")])
        )
        history.flush()
        assert len(history.events(START, START + 200)) == 1


def test_what_is_read_less_often_counts_once(path: Path) -> None:
    with History.open(path) as history:
        for second in range(25):
            disk = Fact("fs", "/", {"used_mib": second // 10}, {}, "statvfs")
            history.append(tick(second, gpu(power_w=1.0), disk, ages={"fs": float(second % 10)}))
        history.flush()
        found = history.query(history.series("fs", "/", "used_mib")[0], START, START + 30, 100)
        assert [(bucket.at - START, bucket.n) for bucket in found] == [(0, 1), (10, 1), (20, 1)]


def test_only_what_is_kept(path: Path) -> None:
    with History.open(path, kept={"gpu": {"power_w": 1}}) as history:
        history.append(tick(0, gpu(power_w=1.26, other=5), Fact("process", "7", {"rss_mib": 1}, {}, "/proc")))
        history.append(tick(HOUR, gpu(power_w=1.0)))
        history.pack_all(START + 9 * HOUR)
        assert [(series.kind, series.field) for series in history.series()] == [("gpu", "power_w")]
        assert samples(history, "power_w", 0, 1) == {0: 1.3}


def test_restarts_go_on_where_it_ended(path: Path) -> None:
    for start in range(0, 400, 100):
        with History.open(path) as history:
            fill(history, 100, first=start)
    with History.open(path) as history:
        history.pack_all(START + 9 * HOUR)
        assert samples(history, "power_w", 0, 400) == {second: second / 8 for second in range(400)}
        assert len(history.series()) == 5


def test_who_a_gpu_is_and_that_it_was_changed(path: Path) -> None:
    with History.open(path) as history:
        history.append(tick(0, gpu(index=0, serial="S1", name="H100", power_w=1.0)))
        history.append(tick(HOUR, gpu(index=0, serial="S2", name="H100", power_w=1.0)))
        history.flush()
        assert [(subject.fields["serial"], subject.at - START) for subject in history.subjects("gpu")] == [
            ("S1", 0),
            ("S2", HOUR),
        ]


def test_the_newest_samples_of_all_series(path: Path) -> None:
    with History.open(path) as history:
        fill(history, 3 * HOUR)
        history.flush()
        found = history.newest(10, START + 3 * HOUR)
        power = found[one(history, "power_w")]
        assert power == [(START + second, second / 8) for second in range(3 * HOUR - 10, 3 * HOUR)]
        assert len(found) == 5


def test_packing_goes_on_beside_the_ticks(path: Path) -> None:
    with History.open(path) as history:
        fill(history, 4 * HOUR)
        db = sqlite3.connect(path)
        assert db.execute("SELECT count(*) FROM bundle").fetchone()[0] >= 1
        history.flush()
        assert samples(history, "power_w", 0, 4 * HOUR) == {second: second / 8 for second in range(4 * HOUR)}
        db.close()


def test_hourly_figures_outlive_the_samples(path: Path) -> None:
    with History.open(path, raw_days=0.1) as history:
        fill(history, 2 * HOUR)
        history.pack_all(START + 9 * HOUR)
        fill(history, 10, first=86400)
        history._swept = 0.0
        history.flush()
        assert history._files.connection.execute("SELECT count(*) FROM bundle").fetchone()[0] == 0
        buckets = history.query(one(history, "power_w"), START, START + 2 * HOUR, 1000)
        assert [(bucket.at - START, bucket.n) for bucket in buckets] == [(0, HOUR), (HOUR, HOUR)]


def test_old_figures_go_too(path: Path) -> None:
    with History.open(path, raw_days=0.1, days=1) as history:
        history.append(tick(0, gpu(power_w=1.0), events=[xid(0)]))
        history.pack_all(START + 9 * HOUR)
        history.append(tick(2 * 86400, gpu(power_w=1.0)))
        history.pack_all(START + 2 * 86400)
        history._swept = 0.0
        history.flush()
        assert [
            bucket.at - START for bucket in history.query(one(history, "power_w"), START, START + 3 * 86400, 1000)
        ] == [2 * 86400]
        assert len(history.events(START, START + 1)) == 1


def test_the_size_is_kept_by_letting_the_oldest_samples_go(path: Path) -> None:
    with History.open(path, most_mib=1) as history:
        noise = [i * 2654435761 % 2**32 for i in range(HOUR)]
        for hour in range(8):
            for second in range(0, HOUR, 4):
                place = hour * HOUR + second
                history.append(
                    tick(place, gpu(**{f"n{i}": (noise[second] * (i + 3 + hour)) % 2**40 for i in range(60)}))
                )
            history._swept = 0.0
            history.pack_all(START + (hour + 1) * HOUR)
        assert history.size() < 1.4 * (1 << 20)
        first = history._files.connection.execute("SELECT min(opened) FROM bundle").fetchone()[0] / 1000
        assert first > START
        assert history.query(one(history, "n7"), START, START + HOUR, 1)[0].n == HOUR / 4
        assert sum("1 MiB" in note for note in history.notes) == 1
        assert [event.kind for event in history.events(START, START + 9 * HOUR)] == ["agent"]


def test_one_writer(path: Path) -> None:
    with History.open(path), pytest.raises(CouldNotError, match="written already by process"):
        History.open(path)
    History.open(path).close()


def test_many_readers_while_it_writes(path: Path) -> None:
    History.open(path).close()
    wrong: list[object] = []
    ended = threading.Event()

    def read() -> None:
        try:
            seen = 0
            while not ended.is_set():
                with History.open(path, read_only=True) as reader:
                    for series in reader.series("gpu", None, "power_w"):
                        found = sum(bucket.n for bucket in reader.query(series, START, START + 9 * HOUR, 50))
                        if found < seen:
                            wrong.append((found, seen))
                        seen = found
        except CouldNotError as problem:
            wrong.append(problem)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    try:
        with History.open(path) as history:
            for number, sample in enumerate(steady(3 * HOUR)):
                history.append(sample)
                if number % 200 == 0:
                    history.flush()
            history.pack_all(START + 9 * HOUR)
    finally:
        ended.set()
        for reader in readers:
            reader.join()
    assert not wrong


def test_events_are_found_by_time_kind_card_and_slot(path: Path) -> None:
    with History.open(path) as history:
        history.append(tick(0, gpu(power_w=1.0), events=[xid(0, 79), xid(0, 48, "S2", "0000:3b:00.0")]))
        history.add_event(xid(5, 31))
        history.add_event(Event(START + 6, "exit", "4711", "ended by signal 9", {"pid": 4711, "signal": 9}))
        history.add_event(xid(5, 31))
        history.flush()
        assert [event.fields.get("code") for event in history.events(START, START + 10)] == [79, 48, 31, None]
        assert [event.fields["code"] for event in history.events(START, START + 10, serial="S1")] == [79, 31]
        assert [event.subject for event in history.events(START, START + 10, ["exit"])] == ["4711"]
        assert [event.fields["code"] for event in history.events(START, START + 10, slot="0000:3b:00.0")] == [48]
        assert history.events(START + 7, START + 10) == []
        assert len(history.events(START, START + 10, most=2)) == 2


def test_events_come_back_whole(path: Path) -> None:
    event = Event(
        START + 1.5,
        "xid",
        "0000:1a:00.0",
        "Xid 79, GPU has fallen off the bus",
        {"code": 79, "pid": 5},
        "S1",
        "0000:1a:00.0",
    )
    with History.open(path) as history:
        history.add_event(event)
        history.flush()
        assert history.events(START, START + 2) == [event]


def test_a_fault_that_moves_with_the_card(path: Path) -> None:
    with History.open(path) as history:
        for day, slot in ((1, "0000:1a:00.0"), (5, "0000:1a:00.0"), (9, "0000:5d:00.0")):
            history.add_event(xid(day * 86400, 79, "S1", slot))
        history.add_event(xid(2 * 86400, 79, "S2", "0000:5d:00.0"))
        history.add_event(xid(2 * 86400, 31, "S1", "0000:1a:00.0"))
        history.flush()
        past = history.repeated("S1", "0000:5d:00.0", 79, 14, now=START + 10 * 86400)
        assert [(at - START) / 86400 for at in past.by_serial] == [1, 5, 9]
        assert past.slots == ["0000:1a:00.0", "0000:5d:00.0"]
        assert [(at - START) / 86400 for at in past.by_slot] == [2, 9]
        assert past.serials == ["S2", "S1"]
        assert history.repeated("S1", None, 79, 3, now=START + 10 * 86400).by_serial == [START + 9 * 86400]


def test_findings_begin_and_end(path: Path) -> None:
    with History.open(path) as history:
        history.add_finding(finding(), START, serial="S1", slot="0000:1a:00.0")
        history.add_finding(finding("gpu.thermal.hot"), START + 5)
        history.add_finding(finding(), START, serial="S1", slot="0000:1a:00.0", ended=START + 60)
        stored = history.findings(START, START + 10)
        assert [(found.finding.id, found.ended) for found in stored] == [
            ("gpu.ecc.uncorrectable", START + 60),
            ("gpu.thermal.hot", None),
        ]
        assert stored[0].finding == finding()
        assert len(history.findings(START, START + 10, serial="S1")) == 1


def test_gpu_time_by_process(path: Path) -> None:
    def process(pid: int, gpu_key: str = "0000:1a:00.0", **fields: object) -> Fact:
        return Fact(
            "gpu_process",
            f"{gpu_key}/{pid}",
            {"pid": pid, "name": "/usr/bin/python3", "gpu_key": gpu_key, "memory_mib": pid, **fields},
            {},
            "nvml",
        )

    with History.open(path) as history:
        card = gpu(index=0, utilization_pct=50, memory_used_mib=900)
        holder = Fact(
            "gpu_holder", "7", {"pid": 7, "user": "ann", "slurm_job": "4711", "program": "train.py"}, {}, "/proc"
        )
        for second in range(121):
            history.append(tick(second, card, process(7), holder))
        for second in range(121, 181):
            history.append(tick(second, card, process(7), process(8, user="bob"), holder))
        for second in range(181, 241):
            history.append(tick(second, card))
        history.append(tick(2000, card, process(7), holder))
        history.flush()
        found = {holding.pid: holding for holding in history.usage(START, START + 3000)}
    assert (found[0].held_s, found[0].share_s, found[0].busy_s, found[0].peak_mib) == (240, 180, 120, 900)
    assert (found[7].user, found[7].job, found[7].program) == ("ann", "4711", "train.py")
    assert (found[7].held_s, found[7].share_s, found[7].busy_s, found[7].unknown_s, found[7].peak_mib) == (
        180,
        150,
        60,
        30,
        7,
    )
    assert (found[8].user, found[8].held_s, found[8].share_s, found[8].unknown_s) == ("bob", 60, 30, 30)


def test_gpu_time_folds_to_hours(path: Path) -> None:
    with History.open(path) as history:
        for second in range(0, 7200, 10):
            history.append(tick(second, gpu(utilization_pct=100, memory_used_mib=second)))
        history.flush()
        before = history.usage(START, START + 7200)
        history.append(tick(8 * 86400 + 3600, gpu(utilization_pct=100)))
        history._swept = 0.0
        history.flush()
        assert history.usage(START, START + 7200) == before
        rows = history._files.connection.execute("SELECT minute FROM holding ORDER BY minute").fetchall()
        assert [row[0] - START // 60 for row in rows] == [0, 60]


def test_rows_of_packed_parts_that_an_end_left_behind_are_removed(path: Path) -> None:
    with History.open(path) as history:
        fill(history, 2 * HOUR)
        history.pack_all(START + HOUR)
        number = history._files.connection.execute("SELECT min(id) FROM part").fetchone()[0]
        history._files.connection.execute("DELETE FROM part WHERE id = ?", (number,))
    with History.open(path) as history:
        assert history._packed == [number]
        history.pack_all(START + HOUR)
        assert history._files.connection.execute(
            "SELECT count(*) FROM tail WHERE id >> 24 = ?", (number,)
        ).fetchone() == (0,)
