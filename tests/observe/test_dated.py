"""When a hand-made snapshot was taken."""

from __future__ import annotations

import datetime as dt

import pytest

from gpuclinic.observe._dated import instant_in, taken_at

MARCH = dt.datetime(2026, 3, 12, 9, 30, 0, tzinfo=dt.timezone.utc).timestamp()


@pytest.mark.parametrize(
    "text",
    [
        "Thu Mar 12 09:30:00 UTC 2026",
        "Thu Mar 12 09:30:00 2026",
        "Thu 12 Mar 2026 09:30:00 AM UTC",
        "Thu Mar 12 17:30:00 +08 2026",
        "2026-03-12T09:30:00Z",
        "2026-03-12 09:30:00 UTC",
        "2026-03-12T10:30:00+0100",
        "2026-03-12T10:30:00,123456789+01:00",
        "<timestamp>Thu Mar 12 09:30:00 2026</timestamp>",
    ],
)
def test_instants(text: str) -> None:
    assert instant_in(text) == MARCH


@pytest.mark.parametrize(
    "text", ["", "no date", "Thu Mar 42 09:30:00 UTC 2026", "Thu Mar 12 09:30:00 UTC", "9999-99-99 99:99:99"]
)
def test_no_instant(text: str) -> None:
    assert instant_in(text) is None


def test_what_counts_first() -> None:
    files = {
        "root/proc/stat": b"cpu 1\nbtime 1773300000\n",
        "root/proc/uptime": b"7800.5 1.0\n",
        "commands/date.txt": b"Thu Mar 12 09:30:00 UTC 2026\n",
    }
    assert taken_at({"when": "2026-03-12T09:30:00Z"}, files.get, ["date.txt"]) == MARCH
    assert taken_at({}, files.get, ["date.txt"]) == 1773307800.5
    del files["root/proc/uptime"]
    assert taken_at({"time": True, "now": -5}, files.get, ["date.txt"]) == MARCH
    assert taken_at({}, {}.get, ["date.txt"]) is None
