from __future__ import annotations

import datetime as dt

from hypothesis import given
from hypothesis import strategies as st

from gpuclinic.diagnose.timeline import Timeline
from gpuclinic.model import Fact, Signal, Stamp, Where
from gpuclinic.recognise.timestamps import find_stamp

UTC = dt.timezone.utc


def signal(text: str, order: int = 0, source: str = "log", host: str | None = None, boot: int = 0) -> Signal:
    return Signal("x.y", Where(source, order + 1, text), order, {}, time=find_stamp(text), host=host, boot=boot)


def moment(timeline: Timeline, of: Signal) -> str:
    clock = timeline.clock(of)
    assert clock is not None
    assert clock.clock == "wall"
    return dt.datetime.fromtimestamp(clock.seconds, UTC).isoformat()[:19]


def test_the_year_comes_from_the_nearest_dated_stamp() -> None:
    signals = [
        signal("Dec 31 23:59:58 n1 x", 0),
        signal("2026-01-01T00:00:03Z y", 1),
        signal("Jan  1 00:00:05 n1 x", 2),
    ]
    timeline = Timeline(signals, [2026])
    assert [moment(timeline, s) for s in signals] == [
        "2025-12-31T23:59:58",
        "2026-01-01T00:00:03",
        "2026-01-01T00:00:05",
    ]


def test_new_year_without_any_year_keeps_the_order() -> None:
    signals = [signal("Dec 31 23:59:58 n1 x", 0), signal("Jan  1 00:00:05 n1 x", 1)]
    timeline = Timeline(signals, [])
    first, second = (timeline.clock(s) for s in signals)
    assert first is not None
    assert second is not None
    assert 0 < second.seconds - first.seconds < 60
    assert not timeline.year_known


@given(
    st.datetimes(dt.datetime(2001, 1, 1), dt.datetime(2050, 1, 1)),
    st.lists(st.integers(0, 40 * 86400), min_size=2, max_size=12),
)
def test_order_survives_missing_years(start: dt.datetime, steps: list[int]) -> None:
    moments = [start.replace(microsecond=0) + dt.timedelta(seconds=s) for s in sorted(steps)]
    signals = [signal(m.strftime("%b %e %H:%M:%S n1 x"), n) for n, m in enumerate(moments)]
    clocks = [Timeline(signals, []).clock(s) for s in signals]
    seconds = [c.seconds for c in clocks if c is not None]
    assert seconds == sorted(seconds)


def test_uptime_is_aligned_by_the_same_message() -> None:
    up = signal("[  100.500000] NVRM: Xid (PCI:0000:9a:00): 79, [x] y; z", source="dmesg")
    wall = signal("Mar  2 04:11:09 n1 kernel: [  100.500000] NVRM: Xid (PCI:0000:9a:00): 79, [x] y; z", 1, "syslog")
    timeline = Timeline([up, wall], [2026])
    assert moment(timeline, up)[5:] == "03-02T04:11:08" or moment(timeline, up)[5:] == "03-02T04:11:09"


def test_uptime_is_aligned_by_lines_with_both_clocks() -> None:
    up = signal("[  160.500000] other", source="dmesg", host="n1")
    wall = signal("2026-03-02T04:11:09Z n1 kernel: [  100.500000] first", 1, "syslog", "n1")
    assert moment(Timeline([up, wall], [2026]), up) == "2026-03-02T04:12:09"


def test_uptime_is_aligned_by_boot_facts() -> None:
    up = signal("[   60.000000] other", source="dmesg")
    boot = Fact("boot", "b", {}, {}, "last", time=Stamp(1_700_000_000.0))
    clock = Timeline([up], [], [boot]).clock(up)
    assert clock is not None
    assert (clock.clock, clock.seconds) == ("wall", 1_700_000_060.0)


def test_uptimes_alone_stay_on_their_own_clock() -> None:
    first, second = signal("[   60.000000] a", source="d", boot=0), signal("[   10.000000] b", 1, "d", boot=1)
    timeline = Timeline([first, second], [])
    clocks = timeline.clock(first), timeline.clock(second)
    assert clocks[0] is not None
    assert clocks[1] is not None
    assert clocks[0].clock != clocks[1].clock
