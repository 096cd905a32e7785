"""Who dies, how, and by whose hand."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuclinic.observe import exits as module
from gpuclinic.observe._signal_trace import Sent, read_line
from gpuclinic.observe.exits import Exit, Exits

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "1000"])
    yield process
    process.kill()
    process.wait()


class _Refused:
    def __init__(self) -> None:
        raise PermissionError(1, "Operation not permitted")


def ended(exits: Exits, pid: int) -> Exit:
    for _ in range(500):
        found = [one for one in exits.take() if one.pid == pid]
        if found:
            return found[0]
        time.sleep(0.01)
    raise AssertionError("its end was not seen")


def test_a_gpu_process_that_is_killed(sleeper: subprocess.Popen[bytes]) -> None:
    exits = Exits()
    exits.watch({sleeper.pid: "trainer"})
    assert exits.take() == [] or all(one.pid != sleeper.pid for one in exits.take())
    sleeper.send_signal(signal.SIGKILL)
    sleeper.wait()
    one = ended(exits, sleeper.pid)
    assert (one.name, one.on_gpu, one.sender) == ("trainer", True, None)
    assert one.status in (signal.SIGKILL, None)
    exits.close()


def test_without_rights_processes_on_gpus_are_still_seen(
    monkeypatch: pytest.MonkeyPatch, sleeper: subprocess.Popen[bytes]
) -> None:
    monkeypatch.setattr(module, "ProcConnector", _Refused)
    exits = Exits()
    (gap,) = exits.gaps()
    assert "Operation not permitted" in gap.why
    assert exits.gaps() == []
    assert exits.fileno() == -1
    exits.watch({sleeper.pid: ""})
    sleeper.send_signal(signal.SIGTERM)
    sleeper.wait()
    one = ended(exits, sleeper.pid)
    assert one.name == "sleep"
    assert one.status in (signal.SIGTERM, None)
    exits.close()


def test_a_kernel_that_tells_no_status_is_said_once(
    monkeypatch: pytest.MonkeyPatch, sleeper: subprocess.Popen[bytes]
) -> None:
    monkeypatch.setattr(module, "ProcConnector", _Refused)
    monkeypatch.setattr(module, "_GET_INFO", 0xC040FF63)
    exits = Exits()
    exits.gaps()
    exits.watch({sleeper.pid: "x"})
    sleeper.kill()
    sleeper.wait()
    assert ended(exits, sleeper.pid).status is None
    assert [("how processes" in gap.why) for gap in exits.gaps()] == [True]
    exits.close()


def test_no_tracefs_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuclinic.observe._signal_trace._PLACES", ("/nonexistent",))
    exits = Exits(trace=True)
    assert any("no tracefs" in gap.why for gap in exits.gaps())
    exits.close()


def test_ends_by_a_signal_are_told_of_any_process_and_ordinary_ones_are_not() -> None:
    exits = Exits()
    if exits.fileno() < 0:
        pytest.skip("the process connector is closed to this user")
    bad = subprocess.Popen(["sleep", "1000"])
    plain = subprocess.Popen(["sh", "-c", "exit 3"])
    plain.wait()
    bad.terminate()
    bad.wait()
    seen: list[Exit] = []
    for _ in range(500):
        seen += exits.take()
        if any(one.pid == bad.pid for one in seen):
            break
        time.sleep(0.01)
    else:
        pytest.skip("the kernel tells nothing here")
    told = next(one for one in seen if one.pid == bad.pid)
    assert (told.status, told.on_gpu) == (signal.SIGTERM, False)
    assert plain.pid not in [one.pid for one in seen]
    exits.close()


def test_a_number_given_again_is_another_process(sleeper: subprocess.Popen[bytes]) -> None:
    exits = Exits()
    exits.watch({sleeper.pid: "first"})
    exits._watched[sleeper.pid] = exits._watched[sleeper.pid]._replace(started=1)
    assert ended(exits, sleeper.pid).name == "first"
    exits.close()


def test_the_sender_of_a_signal() -> None:
    line = b"    sudo kill-4242    [003] d..1.  1234.567890: signal_generate: sig=9 errno=0 code=0 comm=python3 pid=777 grp=1 res=0"
    assert read_line(line) == Sent(777, 9, 4242, "sudo kill")
    fault = b"         python3-777   [003] d..1.  1234.5: signal_generate: sig=11 errno=0 code=1 comm=python3 pid=777 grp=0 res=0"
    assert read_line(fault) == Sent(777, 11, 0, "")
    victim = b"          kswapd-12    [000] .....  99.000001: mark_victim: pid=888 comm=python3 total-vm:1kB"
    assert read_line(victim) == Sent(888, 9, 0, "", victim=True)
    assert read_line(b"CPU:3 [LOST 12 EVENTS]") is None


def test_who_sent_it_is_told_with_the_end(sleeper: subprocess.Popen[bytes]) -> None:
    class Traced:
        def take(self) -> list[Sent]:
            return [Sent(sleeper.pid, 9, 4242, "slurmstepd")]

        def close(self) -> None:
            pass

    exits = Exits()
    exits._trace = Traced()  # type: ignore[assignment]
    exits.watch({sleeper.pid: "trainer"})
    sleeper.kill()
    sleeper.wait()
    one = ended(exits, sleeper.pid)
    if one.status is None:
        pytest.skip("this kernel does not tell how processes end")
    assert (one.sender, one.sender_name, one.oom) == (4242, "slurmstepd", False)
    exits.close()


@given(st.binary(max_size=200))
def test_whatever_stands_in_the_trace_is_no_trouble(line: bytes) -> None:
    read_line(line)


def test_nothing_is_left_open() -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        exits = Exits()
        exits.watch({os.getpid(): "self"})
        exits.close()
    assert len(list(Path("/proc/self/fd").iterdir())) == before
