"""kill -9 at random moments: no corrupt file, and all that was said to be written is there."""

from __future__ import annotations

import os
import random
import select
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from gpuclinic.store.history import History
from store.made_ticks import START

_WRITER = """
import sys
sys.path[:0] = [{src!r}, {tests!r}]
from store.made_ticks import steady
from gpuclinic.store import history as module
module._FLUSH_TICKS = 20
module._SYNC_S = 0.05
first = int(sys.argv[2])
history = module.History.open(sys.argv[1], raw_days=1)
print("open", flush=True)
for number, sample in enumerate(steady(10**6, first=first), 1):
    history.append(sample)
    if number % 20 == 0:
        history.flush()
        print(first + number - 1, flush=True)
"""
_GAP = 40


def _killed_after(path: Path, first: int, seconds: float) -> int:
    """Writes from that second on until it is killed; the last second of which it said that it is written."""
    tests = Path(__file__).parents[1]
    program = _WRITER.format(src=str(tests.parent / "src"), tests=str(tests))
    child = subprocess.Popen([sys.executable, "-c", program, str(path), str(first)], stdout=subprocess.PIPE)
    assert child.stdout is not None
    try:
        assert child.stdout.readline() == b"open\n"
        select.select([], [], [], seconds)
    finally:
        os.kill(child.pid, signal.SIGKILL)
        told = child.stdout.read().split(b"\n")
        child.wait()
        child.stdout.close()
    whole = [int(line) for line in told[:-1]]
    return whole[-1] if whole else first - 1


def _survives(path: Path, times: int, seed: int) -> None:
    moments = random.Random(seed)
    first, written = 0, []
    for _ in range(times):
        last = _killed_after(path, first, moments.uniform(0.0, 0.3))
        written.append((first, last))
        first = last + _GAP
        db = sqlite3.connect(path)
        assert db.execute("PRAGMA quick_check").fetchone() == ("ok",)
        db.close()
    with History.open(path) as history:
        assert history.notes == []
        series = history.series("gpu", None, "power_w")[0]
        for begun, ended in written:
            if ended < begun:
                continue
            for start in range(begun, ended + 1, 3000):
                stop = min(start + 3000, ended + 1)
                found = {
                    bucket.at - START: bucket for bucket in history.query(series, START + start, START + stop, 3000)
                }
                assert list(found) == list(range(start, stop))
                assert all(bucket.n == 1 and bucket.last == second / 8 for second, bucket in found.items())


def test_killed_ten_times(tmp_path: Path) -> None:
    _survives(tmp_path / "history.db", 10, 1)


@pytest.mark.slow
def test_killed_two_hundred_times(tmp_path: Path) -> None:
    _survives(tmp_path / "history.db", 200, 2)
