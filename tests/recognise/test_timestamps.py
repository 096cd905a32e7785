from __future__ import annotations

import datetime as dt
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuclinic.recognise.months import MONTHS
from gpuclinic.recognise.timestamps import find_stamp, kernel_uptime, relative_stamps

UTC = dt.timezone.utc
WALL = {
    "[Mon Mar  2 04:11:09 2026] x": "2026-03-02T04:11:09",
    "kern  :err   : [Mon Mar  2 04:11:09 2026] x": "2026-03-02T04:11:09",
    "[Mon Mar  2 04:11:09.123456 2026] [mpm:notice] x": "2026-03-02T04:11:09.123456",
    "[一 3月  2 04:11:09 2026] NVRM: x": "2026-03-02T04:11:09",
    "kern  :info  : 2025-01-25T10:01:42,615875+00:00 hrtimer": "2025-01-25T10:01:42.615875Z",
    "2026-03-02T04:11:09,120000+0800 n1 kernel: x": "2026-03-01T20:11:09.12Z",
    "Mon 2026-03-02 04:11:09 CST n1 kernel: x": "2026-03-02T04:11:09",
    "Mon 2026-03-02 04:11:09.123456 UTC n1 kernel: x": "2026-03-02T04:11:09.123456Z",
    "<34>1 2003-10-11T22:14:15.003Z mymachine su - ID47 - x": "2003-10-11T22:14:15.003Z",
    "10.5.0.2: kern: info: [2024-05-21T08:20:00.123Z]: x": "2024-05-21T08:20:00.123Z",
    "E0000 00:00:1712345678.123456  123 cuda_dnn.cc:1] x": "2024-04-05T19:34:38.123456Z",
    "I20261130 11:22:33.123456 1 x.cc:1] x": "2026-11-30T11:22:33.123456",
    "2026-11-30 11:22:33,123 - INFO - x": "2026-11-30T11:22:33.123",
    "[2026-11-30T11:22:33.678] error: x": "2026-11-30T11:22:33.678",
    "2026-11-30T11:22:33.678901234Z stderr F msg": "2026-11-30T11:22:33.678901Z",
    "2026/11/30 11:22:33 [emerg] x": "2026-11-30T11:22:33",
    "  1 | 11/30/2026 | 11:22:33 | Memory #0x01": "2026-11-30T11:22:33",
    "  1 | 11/30/26 | 11:22:33 PM UTC | Memory": "2026-11-30T23:22:33Z",
    "[11/30/26 11:22:33] INFO     x": "2026-11-30T11:22:33",
    "[11/30/2026-11:22:33] [TRT-LLM] [I] x": "2026-11-30T11:22:33",
    "11/30/2026 12:22:33 AM x": "2026-11-30T00:22:33",
    "30.11.2026 11:22:33 x": "2026-11-30T11:22:33",
    "30/11/2026 11:22:33 x": "2026-11-30T11:22:33",
    "[Jan 25 2025 10:00:00] [INFO] [tid 1808] x": "2025-01-25T10:00:00",
    '10.0.0.1 - - [30/Nov/2026:11:22:33 +0000] "GET /"': "2026-11-30T11:22:33Z",
    "Mo 30. Nov 11:22:33 CET 2026": "2026-11-30T10:22:33Z",
    "lun. 30 nov. 2026 11:22:33 CET": "2026-11-30T10:22:33Z",
    "2026年11月30日 星期一 11:22:33 CST": "2026-11-30T11:22:33",
    "2026年 11月 30日 星期一 下午 01:22:33": "2026-11-30T13:22:33",
    "type=ANOM_ABEND msg=audit(1728402131.165:551): x": "2024-10-08T15:42:11.165Z",
    "[1728402131] x": "2024-10-08T15:42:11Z",
    "1728402131500 x": "2024-10-08T15:42:11.5Z",
    '{"level":"info","ts":1712345678.123,"msg":"x"}': "2024-04-05T19:34:38.123Z",
    'time="2022-01-11T22:34:24.924566454Z" level=info': "2022-01-11T22:34:24.924566Z",
    " 20261130  11:22:33    0   12": "2026-11-30T11:22:33",
    "worker-1  | 2025-03-03 01:27:31.328 | INFO | x": "2025-03-03T01:27:31.328",
    "(raylet) [2026-11-30 11:22:33,123 E 123 123] x": "2026-11-30T11:22:33.123",
    "Wed Mar 27 22:09:31 CET 2024 job 1": "2024-03-27T21:09:31Z",
}
YEARLESS = {
    "Mar  2 04:11:09 n1 kernel: x": "03-02T04:11:09",
    "<34>Oct 11 22:14:15 mymachine su: x": "10-11T22:14:15",
    "11月 30 04:11:09 n1 kernel: x": "11-30T04:11:09",
    "3月 02 04:11:09 n1 kernel: x": "03-02T04:11:09",
    "Mär 02 04:11:09 n1 kernel: x": "03-02T04:11:09",
    "févr. 02 04:11:09 n1 kernel: x": "02-02T04:11:09",
    "dic 02 04:11:09 n1 kernel: x": "12-02T04:11:09",
    "ноя 30 04:11:09 n1 kernel: x": "11-30T04:11:09",
    "april 24 16:02:11 n1 sudo: x": "04-24T16:02:11",
    "[rank3]:[E1130 11:22:33.123456789 ProcessGroupNCCL.cpp:1] x": "11-30T11:22:33.123456",
    "(APIServer pid=1) INFO 12-11 09:41:20 [api_server.py:1] x": "12-11T09:41:20",
    "[11/30 11:22:33 d2.engine]: x": "11-30T11:22:33",
    "[Nov30 11:22] x": "11-30T11:22:00",
    "Sep 14 06:40:04 n1 node_exporter[1]: ts=2022-05-18T07:26:23.363Z": "09-14T06:40:04",
}
UPTIMES = {
    "[  123.456789] x": 123.456789,
    "<4>[  123.456789] x": 123.456789,
    "[  123.456789][ T1234] x": 123.456789,
    "[  123.456789@3] x": 123.456789,
    "kern  :warn  : [  123.456789] x": 123.456789,
    "6,3901,227511609226,-;nvme": 227511.609226,
    "4,31,1500000,-,caller=T12;x": 1.5,
}
NONE = [
    "", "NVRM: Xid (PCI:0000:9a:00): 79, x", "[06:40:00] x", "  2%| 100/4000 [0:07:00<4:33:00,  4.14s/it]",
    "02/30 11:22:33 no such day", "10.0.0.2:41022 connected", "foo 12:34:56", "at 25:61:00 2026-01-01", "1:2:3 4:5",
]  # fmt: skip


def shown(seconds: float) -> dt.datetime:
    return dt.datetime.fromtimestamp(round(seconds, 6), UTC)


@pytest.mark.parametrize(("line", "expected"), WALL.items())
def test_wall_clock_forms(line: str, expected: str) -> None:
    stamp = find_stamp(line)
    assert stamp is not None
    assert (stamp.zoned, stamp.yearless, stamp.uptime) == (expected.endswith("Z"), False, False)
    assert abs((shown(stamp.seconds) - parse(expected)).total_seconds()) < 2e-6


def parse(text: str) -> dt.datetime:
    whole, _, fraction = text.rstrip("Z").partition(".")
    moment = dt.datetime.strptime(whole, "%Y-%m-%dT%H:%M:%S").replace(tzinfo=UTC)
    return moment + dt.timedelta(microseconds=int(fraction.ljust(6, "0")) if fraction else 0)


@pytest.mark.parametrize(("line", "expected"), YEARLESS.items())
def test_forms_without_a_year(line: str, expected: str) -> None:
    stamp = find_stamp(line)
    assert stamp is not None
    assert stamp.yearless
    assert abs((shown(stamp.seconds) - parse(f"2000-{expected}")).total_seconds()) < 2e-6


@pytest.mark.parametrize(("line", "seconds"), UPTIMES.items())
def test_kernel_uptimes(line: str, seconds: float) -> None:
    stamp = find_stamp(line)
    assert stamp is not None
    assert stamp.uptime
    assert stamp.seconds == pytest.approx(seconds)
    assert kernel_uptime(line) == pytest.approx(seconds)


@pytest.mark.parametrize("line", NONE)
def test_what_is_no_stamp(line: str) -> None:
    assert find_stamp(line) is None


def test_uptime_behind_a_syslog_stamp() -> None:
    assert kernel_uptime("Mar  2 04:11:09 n1 kernel: [   12.500000] x") == 12.5
    assert kernel_uptime("Mar  2 04:11:09 n1 kernel: x [12] y") is None


def test_dmesg_h_adds_up() -> None:
    text = "[Nov30 11:22] a\n[  +0.500000] b\n[  +1.250000] c\n[Nov30 11:23] d\n[  +1.000000] e\nplain"
    found = relative_stamps(text)
    first = found[1].seconds
    assert [round(found[n].seconds - first, 6) for n in (1, 2, 3, 4, 5)] == [0, 0.5, 1.75, 60, 61]
    assert 6 not in found
    assert relative_stamps("[  +0.5] no\n") == {}


moments = st.datetimes(dt.datetime(1990, 1, 1), dt.datetime(2060, 1, 1)).map(lambda d: d.replace(tzinfo=UTC))


@given(
    moments,
    st.sampled_from(
        ["%Y-%m-%d %H:%M:%S", "%Y/%m/%d %H:%M:%S", "%a %b %e %H:%M:%S %Y", "%m/%d/%Y-%H:%M:%S", "[%d/%b/%Y:%H:%M:%S]"]
    ),
)
def test_reads_back_what_strftime_writes(moment: dt.datetime, form: str) -> None:
    stamp = find_stamp(moment.strftime(form) + " message")
    assert stamp is not None
    assert shown(stamp.seconds) == moment.replace(microsecond=0)


@given(moments, st.integers(-14 * 60, 14 * 60))
def test_offsets_give_the_same_moment(moment: dt.datetime, minutes: int) -> None:
    there = moment.astimezone(dt.timezone(dt.timedelta(minutes=minutes)))
    stamp = find_stamp(there.isoformat(timespec="microseconds") + " message")
    assert stamp is not None
    assert stamp.zoned
    assert abs(stamp.seconds - moment.timestamp()) < 1e-5


@given(st.sampled_from(sorted(MONTHS)), st.integers(1, 28), st.times())
def test_months_of_all_locales(name: str, day: int, clock: dt.time) -> None:
    stamp = find_stamp(f"{name} {day:02d} {clock.strftime('%H:%M:%S')} host kernel: x")
    assert stamp is not None
    assert (shown(stamp.seconds).month, shown(stamp.seconds).day) == (MONTHS[name], day)


@given(st.text(alphabet=string.printable + "月日年é[]", max_size=300))
def test_never_raises(line: str) -> None:
    find_stamp(line)
    kernel_uptime(line)
    relative_stamps(line)
