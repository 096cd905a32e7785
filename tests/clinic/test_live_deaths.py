"""Processes that really die or hang on this machine: the right cause, process and time."""

from __future__ import annotations

import datetime as dt
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gpuclinic.clinic import Answer, examine
from gpuclinic.clinic.gathering import Question, gather
from gpuclinic.observe import Places
from gpuclinic.observe.live import LiveHost

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")
_EATER = "x = [bytearray(1 << 20) for _ in range(256)]"
"""Takes more than its cgroup allows, and little enough to harm nobody where that should not hold."""


def ask(**question: object) -> Answer:
    host = LiveHost()
    try:
        gathered = gather(host, Question(**question))  # type: ignore[arg-type]
    finally:
        host.close()
    return examine(Places([]), "en", None, gathered)


def kernel_log_told(pid: int) -> bool:
    """The kernel's log can be read here and speaks of the process."""
    host = LiveHost()
    try:
        ring = host.file("/dev/kmsg", 8 << 20)
        return str(pid) in (ring.text if ring.ok else host.command("dmesg").text)
    finally:
        host.close()


def at_about(answer: Answer, moment: float) -> bool:
    """The root's time is the moment, as well as the kernel's clock and ours agree."""
    told = answer.causes[0].time
    return told is not None and abs(dt.datetime.fromisoformat(told).timestamp() - moment) < 30


def started(*argv: str, **more: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen(argv, **more)  # type: ignore[call-overload,no-any-return]


def until_state(pid: int, *states: str) -> None:
    """Waits until a process is in one of these states; fails after ten seconds."""
    for _ in range(1000):
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        if state in states:
            return
        time.sleep(0.01)
    pytest.fail(f"process {pid} never came into state {states}")


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = started("sleep", "1000")
    yield process
    process.kill()
    process.wait()


def test_killed_and_not_collected(sleeper: subprocess.Popen[bytes]) -> None:
    sleeper.kill()
    until_state(sleeper.pid, "Z")
    answer = ask(pid=sleeper.pid)
    root = answer.causes[0]
    assert (root.id, root.pid) == ("process.killed", sleeper.pid)
    assert "SIGKILL" in root.title
    assert root.confidence <= 0.85
    assert any("audit" in item["command"] for item in answer.missing)


def test_killed_and_nothing_recorded_it(sleeper: subprocess.Popen[bytes]) -> None:
    sleeper.kill()
    sleeper.wait()
    answer = ask(pid=sleeper.pid)
    if answer.outcome == "not_enough_evidence" and any("kernel log" in item["what"] for item in answer.missing):
        pytest.skip("the kernel log cannot be read here")
    root = answer.causes[0]
    assert (answer.outcome, root.id, root.pid) == ("hint", "process.killed", sleeper.pid)
    assert "not recorded" in root.title
    wanted = " ".join(item["command"] for item in answer.missing)
    assert "auditctl" in wanted
    assert "gpuclinic run" in wanted


def test_terminated(sleeper: subprocess.Popen[bytes]) -> None:
    sleeper.terminate()
    until_state(sleeper.pid, "Z")
    root = ask(pid=sleeper.pid).causes[0]
    assert (root.id, root.pid) == ("process.killed", sleeper.pid)
    assert "SIGTERM" in root.title


def test_segmentation_fault() -> None:
    process = started(sys.executable, "-c", "import ctypes; ctypes.string_at(0)")
    until_state(process.pid, "Z")
    moment = time.time()
    answer = ask(pid=process.pid)
    process.wait()
    root = answer.causes[0]
    assert (answer.outcome, root.id, root.pid) == ("cause", "process.segfault", process.pid)
    if kernel_log_told(process.pid):
        assert at_about(answer, moment)
        collected = ask(pid=process.pid)
        assert (collected.causes[0].id, collected.causes[0].pid) == ("process.segfault", process.pid)


@pytest.fixture
def small_cgroup() -> Iterator[Path]:
    """A memory cgroup of our own with 48 MiB, of version 2 or 1."""
    name = f"gpuclinic-test-{os.getpid()}"
    made: Path | None = None
    for parent, limit, swap in (
        ("/sys/fs/cgroup", "memory.max", "memory.swap.max"),
        ("/sys/fs/cgroup/unified", "memory.max", "memory.swap.max"),
        ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.memsw.limit_in_bytes"),
    ):
        folder = Path(parent) / name
        if not (Path(parent) / "cgroup.procs").exists():
            continue
        try:
            folder.mkdir()
        except OSError:
            continue
        try:
            (folder / limit).write_text(str(48 << 20))
            if (folder / swap).exists():
                (folder / swap).write_text("0" if swap == "memory.swap.max" else str(48 << 20))
        except OSError:
            folder.rmdir()
            continue
        made = folder
        break
    if made is None:
        pytest.skip("no memory cgroup can be made here")
    yield made
    made.rmdir()


def test_killed_at_the_limit_of_a_cgroup(small_cgroup: Path) -> None:
    script = f"open({str(small_cgroup / 'cgroup.procs')!r}, 'w').write('0')\n{_EATER}"
    process = started(sys.executable, "-c", script)
    assert process.wait(60) == -signal.SIGKILL
    moment = time.time()
    if not kernel_log_told(process.pid):
        pytest.skip("the kernel log cannot be read here")
    answer = ask(pid=process.pid)
    root = answer.causes[0]
    assert (answer.outcome, root.id, root.pid) == ("cause", "host.cgroup_oom", process.pid)
    assert at_about(answer, moment)
    recent = ask(since=moment - 300)
    assert recent.causes[0].id == "host.cgroup_oom"


def test_another_process_killed_at_its_limit_is_not_this_one(
    small_cgroup: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    script = f"open({str(small_cgroup / 'cgroup.procs')!r}, 'w').write('0')\n{_EATER}"
    assert started(sys.executable, "-c", script).wait(60) == -signal.SIGKILL
    sleeper.kill()
    until_state(sleeper.pid, "Z")
    assert [c.id for c in ask(pid=sleeper.pid).causes] == ["process.killed"]


@pytest.fixture
def small_tmpfs(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "shm"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("no tmpfs can be mounted here")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=False)


def test_full_shared_memory(small_tmpfs: Path) -> None:
    script = (
        "import mmap, os\n"
        f"f = os.open({str(small_tmpfs / 'nccl-shm')!r}, os.O_RDWR | os.O_CREAT)\n"
        "os.ftruncate(f, 4 << 20)\nm = mmap.mmap(f, 4 << 20)\n"
        "for at in range(0, 4 << 20, 4096): m[at] = 1\n"
    )
    process = started(sys.executable, "-c", script)
    until_state(process.pid, "Z")
    answer = ask(pid=process.pid)
    process.wait()
    root = answer.causes[0]
    assert (answer.outcome, root.id, root.pid) == ("cause", "host.shm_exhausted", process.pid)


def test_an_exception_in_its_log(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    with log.open("wb") as out:
        process = started(sys.executable, "-c", "raise ValueError('wrong shape (3, 4)')", stdout=out, stderr=out)
        until_state(process.pid, "Z")
    answer = ask(pid=process.pid, folder=str(tmp_path))
    process.wait()
    root = answer.causes[0]
    assert root.id == "app.exception"
    assert any("wrong shape" in place.text for place in root.evidence)


def test_stopped(sleeper: subprocess.Popen[bytes]) -> None:
    sleeper.send_signal(signal.SIGSTOP)
    until_state(sleeper.pid, "T")
    answer = ask(pid=sleeper.pid)
    root = answer.causes[0]
    assert (answer.outcome, root.id, root.pid) == ("cause", "app.hang", sleeper.pid)
    assert root.steps[0]["command"] == f"kill -CONT {sleeper.pid}"


def test_waits_for_a_fifo(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    process = started("cat", str(tmp_path / "fifo"))
    until_state(process.pid, "S")
    answer = ask(pid=process.pid)
    process.kill()
    process.wait()
    wchan_hidden = any("wchan" in gap.path or "syscall" in gap.path for gap in answer.not_read)
    if not answer.causes and wchan_hidden:
        pytest.skip("wait channels are hidden here")
    root = answer.causes[0]
    assert (root.id, root.pid) == ("app.hang", process.pid)


def test_works() -> None:
    process = started(sys.executable, "-c", "while True: pass")
    until_state(process.pid, "R")
    answer = ask(pid=process.pid)
    process.kill()
    process.wait()
    assert (answer.outcome, answer.causes) == ("nothing_wrong", [])
    assert f"Process {process.pid} (python" in answer.notes[0]


def test_idle_is_not_called_well_or_ill(sleeper: subprocess.Popen[bytes]) -> None:
    until_state(sleeper.pid, "S")
    answer = ask(pid=sleeper.pid)
    assert (answer.outcome, answer.causes) == ("not_enough_evidence", [])


def test_no_such_process() -> None:
    most = int(Path("/proc/sys/kernel/pid_max").read_text())
    answer = ask(pid=most + 5)
    assert (answer.outcome, answer.causes) == ("not_enough_evidence", [])
    assert str(most) in answer.notes[0]
