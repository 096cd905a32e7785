"""How the command line ends: a full disk, a reader who leaves, Ctrl-C at any moment, a folder that is gone, values left empty."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

CODE = "from gpuclinic.cli.start import entry; entry()"
FULL = Path("/dev/full")
HEALTHY = Path(__file__).parents[2] / "examples" / "healthy-server.tar.gz"
SICK = {
    "root/proc/uptime": "600.0 1000.0\n", "root/sys/bus/pci/devices/0000:9a:00.0/vendor": "0x10de\n",
    "root/sys/bus/pci/devices/0000:9a:00.0/class": "0x030200\n", "root/sys/bus/pci/devices/0000:9a:00.0/device": "0x2330\n",
    "root/dev/kmsg": "6,100,1000000,-;Linux version 6.1.0 (x@y) #1 SMP\n"
    "3,101,500000000,-;NVRM: Xid (PCI:0000:9a:00): 79, pid=41822, name=python, GPU has fallen off the bus.\n",
    "snapshot.json": '{"time": "2026-03-02T04:12:00+00:00"}',
}  # fmt: skip


def _run(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    options.setdefault("stdout", subprocess.PIPE)
    return subprocess.run(
        [sys.executable, "-c", CODE, *arguments], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False, **options
    )  # fmt: skip


@pytest.fixture
def sick(tmp_path: Path) -> str:
    """A snapshot of a server with a lost GPU."""
    for name, text in SICK.items():
        place = tmp_path / "sick" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    return str(tmp_path / "sick")


@pytest.mark.skipif(not FULL.exists(), reason="no /dev/full here")
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["check", "--host", "SICK"], 2), (["check", "--json", "--host", "SICK"], 2), (["check", "--list"], 3), (["explain", "xid", "79"], 3),
        (["why", "--host", "SICK", "--pid", "5"], 3), (["why", "--json", "SICK"], 3), (["completion", "bash"], 3),
        (["capture", "--host", "SICK", "-o", "-"], 3),
    ],
)  # fmt: skip
def test_a_full_disk_under_the_answer_is_no_fault_of_ours(sick: str, arguments: list[str], code: int) -> None:
    with FULL.open("w") as full:
        done = _run(*[sick if word == "SICK" else word for word in arguments], stdout=full)
    assert done.returncode == code
    assert "could not be written: No space left on device" in done.stderr
    assert "fault of gpuclinic" not in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(not FULL.exists(), reason="no /dev/full here")
@pytest.mark.parametrize("arguments", [["check"], ["check", "--json"], ["compat", "--gpu", "H100", "--driver", "570.86.15", "--want", "torch==2.6.0+cu124"]])  # fmt: skip
def test_an_answer_that_nobody_got_is_not_fit(arguments: list[str]) -> None:
    asked = [*arguments, "--host", str(HEALTHY)] if arguments[0] == "check" else arguments
    assert _run(*asked).returncode in (0, 1)
    with FULL.open("w") as full:
        assert _run(*asked, stdout=full).returncode == 3


def test_a_capture_that_nobody_takes_is_none(sick: str) -> None:
    read, write = os.pipe()
    os.close(read)
    done = _run("capture", "--host", sick, "-o", "-", stdout=write)
    os.close(write)
    assert done.returncode == 3
    assert "could not be written" in done.stderr


def test_a_capture_that_grows_too_large_for_this_user_is_none(sick: str, tmp_path: Path) -> None:
    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (512, 512))

    done = _run("capture", "--host", sick, "-o", str(tmp_path / "new" / "a.tar"), preexec_fn=limited)
    assert done.returncode == 64  # there is no such folder
    done = _run("capture", "--host", sick, "-o", str(tmp_path / "a.tar"), preexec_fn=limited)
    assert done.returncode == 3
    assert "File too large" in done.stderr
    assert not (tmp_path / "a.tar").exists()


@pytest.mark.parametrize("more", [["-o", "CLOSED/x.tar.gz"], ["-o", "CLOSED/new"], ["--anonymise", "--mapping", "CLOSED/m.json", "-o", "-"]])  # fmt: skip
def test_a_folder_that_is_closed_to_this_user_is_no_fault_of_ours(tmp_path: Path, sick: str, more: list[str]) -> None:
    closed = str(tmp_path / "closed")
    code = f"""
import errno, os
def closed(ask):
    def asked(path, *more, **options):
        if str(path).startswith({closed!r} + "/") and "dir_fd" not in options:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return ask(path, *more, **options)
    return asked
os.stat, os.lstat, os.open, os.mkdir, os.replace = map(closed, (os.stat, os.lstat, os.open, os.mkdir, os.replace))
"""
    Path(closed).mkdir()
    arguments = [word.replace("CLOSED", closed) for word in more]
    done = subprocess.run(
        [sys.executable, "-c", code + CODE, "capture", "--host", sick, *arguments],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert "fault of gpuclinic" not in done.stderr
    assert "Traceback" not in done.stderr
    assert "Permission denied" in done.stderr
    assert done.returncode == 3


def test_a_reader_who_leaves_does_not_change_the_verdict(sick: str) -> None:
    read, write = os.pipe()
    os.close(read)
    done = _run("check", "--host", sick, stdout=write)
    os.close(write)
    assert (done.returncode, done.stderr) == (2, "")


@pytest.mark.parametrize("command", [["capture", "-o", "OUT"], ["why", "--pid", "1"]])
def test_a_working_folder_that_is_gone_is_no_fault_of_ours(tmp_path: Path, command: list[str]) -> None:
    code = f"import os; os.mkdir({str(tmp_path / 'w')!r}); os.chdir({str(tmp_path / 'w')!r}); os.rmdir({str(tmp_path / 'w')!r}); {CODE}"
    words = [str(tmp_path / "out.tar.gz") if word == "OUT" else word for word in command]
    done = subprocess.run(
        [sys.executable, "-c", code, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["check", "--host", ""], ["check", "--only", ""], ["check", "--skip", ","], ["check", "--require", " "], ["check", "--expect-gpus", ""],
        ["check", "--seconds", ""], ["why", "--host", ""], ["why", "--job", ""], ["why", "--pid", ""], ["why", "--since", ""],
        ["why", "--until", " "], ["why", ""], ["capture", "--host", ""], ["capture", "-o", ""], ["capture", "--since", ""],
        ["capture", "--anonymise", "--mapping", ""], ["capture", "--max-size", ""], ["check", "--lang", ""],
    ],
    ids=" ".join,
)  # fmt: skip
def test_a_value_left_empty_is_no_other_question(arguments: list[str]) -> None:
    done = _run(*arguments)
    assert done.returncode == 64
    assert len(done.stderr.splitlines()) == 1


INTERRUPTED_AT = {
    "the first import": "import gpuclinic.cli.start; os.kill(os.getpid(), signal.SIGINT)",
    "the last import": "import gpuclinic.cli.start as s, gpuclinic.cli.main; os.kill(os.getpid(), signal.SIGINT); s.entry()",
    "the work": "import gpuclinic.cli.main as m; m.main = lambda _: os.kill(os.getpid(), signal.SIGINT) or 0; from gpuclinic.cli.start import entry; entry()",
    "the exit": "import atexit; atexit.register(os.kill, os.getpid(), signal.SIGINT); sys.argv[1:] = ['explain', 'xid', '79']; from gpuclinic.cli.start import entry; entry()",
}


@pytest.mark.parametrize("moment", INTERRUPTED_AT)
def test_an_interrupt_at_any_moment_ends_without_a_traceback(moment: str) -> None:
    code = f"import os, signal, sys; {INTERRUPTED_AT[moment]}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == (0 if moment == "the exit" else 130)
    assert done.stderr == ""


def test_an_interrupt_that_was_switched_off_stays_so() -> None:
    code = f"import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); import gpuclinic.cli.main as m; m.main = lambda _: os.kill(os.getpid(), signal.SIGINT) or 0; {CODE}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_cut_capture_is_read_as_far_as_it_goes(tmp_path: Path, sick: str) -> None:
    assert _run("capture", "--host", sick, "-o", str(tmp_path / "a.tar.gz")).returncode == 0
    whole = (tmp_path / "a.tar.gz").read_bytes()
    cut = tmp_path / "cut.tar.gz"
    for share in (0.2, 0.5, 0.9):
        cut.write_bytes(whole[: int(len(whole) * share)])
        assert _run("why", str(cut)).returncode in (0, 3)
        done = _run("check", "--host", str(cut))
        assert done.returncode in (2, 3)
        assert (done.stdout + done.stderr).count("damaged or cut short: damaged") == 0
        assert "cut short" in done.stdout + done.stderr


def test_a_pipe_that_nobody_writes_is_not_opened_to_see_whether_it_is_a_capture(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    os.mkfifo(tmp_path / "s" / "answers.jsonl")
    (tmp_path / "s" / "train.log").write_text("CUDA error: an illegal memory access was encountered\n")
    assert _run("why", str(tmp_path / "s"), timeout=100).returncode == 0


def test_a_pipe_of_the_shell_is_read_whole(tmp_path: Path) -> None:
    (tmp_path / "k").write_text(SICK["root/dev/kmsg"])
    line = f"{sys.executable} -c '{CODE}' why --oneline <(cat {tmp_path / 'k'})"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False)
    assert "9a:00" in done.stdout, done.stdout + done.stderr
