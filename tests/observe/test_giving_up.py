"""Programs and children that are given up, interrupted or cannot be started: nothing stays behind, and what was not looked at is said."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NoReturn

import pytest

from gpuclinic.clinic.checking import CheckOptions, check
from gpuclinic.observe import live
from gpuclinic.observe.live import LiveHost
from gpuclinic.observe.nvml import Deadlines, begin_nvml

WAITS = 20.0
"""Seconds that a loaded machine may take for what takes none elsewhere."""
STARTS = """
import sys
from gpuclinic.observe.live import LiveHost
host = LiveHost()
try:
    host.expect([("sh", "-c", "sleep 300 & echo $$ $! > " + sys.argv[1] + "; wait"), ("sleep", "301")])
    host.command("sh", "-c", "sleep 300 & echo $$ $! > " + sys.argv[1] + "; wait", deadline=300.0)
finally:
    host.close()
"""


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text("ascii", "replace").rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def _gone(pids: list[int]) -> bool:
    until = time.monotonic() + WAITS
    while any(_lives(pid) for pid in pids):
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL, signal.SIGTERM])
def test_an_end_of_any_kind_leaves_no_program_behind(tmp_path: Path, number: int) -> None:
    noted = tmp_path / "pids"
    ours = subprocess.Popen([sys.executable, "-c", STARTS, str(noted)], stderr=subprocess.DEVNULL)
    until = time.monotonic() + WAITS
    while not (noted.exists() and noted.read_text().strip()) and time.monotonic() < until:
        time.sleep(0.02)
    pids = [int(word) for word in noted.read_text().split()]
    assert len(pids) == 2
    time.sleep(0.2)  # both programs are started and told of
    ours.send_signal(number)
    assert ours.wait(WAITS) != 0
    assert _gone(pids)


def test_what_a_program_leaves_behind_ends_with_it() -> None:
    host = LiveHost()
    try:
        answer = host.command("sh", "-c", "sleep 300 >/dev/null 2>&1 & echo $!", deadline=WAITS)
        assert answer.ok
        assert _gone([int(answer.line)])
    finally:
        host.close()


def test_a_program_that_printed_in_time_is_heard_however_late_one_asks() -> None:
    host = LiveHost()
    try:
        argv = ("sh", "-c", "echo here")
        host.expect([argv])
        time.sleep(0.4)
        assert host.command(*argv, deadline=0.1).line == "here"
    finally:
        host.close()


def test_programs_that_never_answer_use_up_the_patience_for_the_others() -> None:
    host = LiveHost()
    try:
        host._wasted_s = 1000.0
        answer = host.command("sleep", "300", deadline=100.0)
        assert (answer.why or "").startswith("no answer within")
        assert answer.seconds < 50
        assert host.command("echo", "quick", deadline=100.0).line == "quick"
    finally:
        host.close()


def test_files_that_never_answer_use_up_the_patience_for_the_others() -> None:
    host = LiveHost()
    try:
        host._hung_s = live._MOST_HUNG_S + 1
        assert host.file("/proc/uptime").ok
        host._files.ask = lambda question, deadline: None  # type: ignore[method-assign]
        answer = host.space("/")
        assert "all that was left" in (answer.why or "")
        assert not (answer.why or "").startswith("no answer within")  # which would be called a dead mount
    finally:
        host.close()


def test_a_child_that_reads_files_holds_none_of_our_pipes() -> None:
    host = LiveHost()
    read, write = os.pipe()
    try:
        assert host.file("/proc/uptime").ok
        theirs = Path(f"/proc/{host._files._pid}/fd")
        assert Path(f"/proc/self/fd/{write}").readlink() not in {place.readlink() for place in theirs.iterdir()}
        assert (theirs / "1").readlink() == Path("/dev/null")
    finally:
        host.close()
        os.close(read)
        os.close(write)


def _no_more() -> NoReturn:
    raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")


def test_without_a_process_to_be_had_the_kernel_is_still_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fork", _no_more)
    host = LiveHost()
    try:
        assert host.file("/proc/uptime").ok
        assert host.files("/proc/sys/kernel/osr*")
        for answer in (
            host.space("/"),
            host.file("/mnt/share/x"),
            host.file("/proc/1/environ"),
            host.file("/etc/../mnt/x"),
        ):
            assert "no process can be started" in (answer.why or "")
    finally:
        host.close()


def test_check_answers_without_a_process_to_be_had(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, text in {"proc/uptime": "90.0 9.0\n", "sys/bus/pci/devices/0000:9a:00.0/vendor": "0x10de\n", "sys/bus/pci/devices/0000:9a:00.0/class": "0x030200\n"}.items():  # fmt: skip
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(os, "fork", _no_more)

    def refused(*args: object, **kwargs: object) -> NoReturn:
        _no_more()

    monkeypatch.setattr(subprocess, "Popen", refused)
    monkeypatch.setattr(os, "posix_spawn", refused)
    host = LiveHost(str(tmp_path))
    try:
        answer = check(host, CheckOptions())
    finally:
        host.close()
    assert answer.verdict in ("critical", "unknown")
    assert any(gap.check == "gpu.nvml" and gap.required for gap in answer.not_looked_at)
    assert not any("stumbled" in gap.why for gap in answer.not_looked_at)


def test_nvml_that_is_given_up_costs_no_deadline(tmp_path: Path) -> None:
    begun = begin_nvml(Deadlines(60.0, 60.0, 60.0), library=str(tmp_path / "none.so"), runtime=tmp_path)
    pid = begun._pid
    begun.give_up()
    begun.give_up()
    assert not pid or _gone([pid])
