"""Jobs that die in ten ways: the right cause is named, at once and later from the bundle."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

import pytest
from flying import PYTHON, bundles, command, environment, fly, member, record, started, until, why


class Way(NamedTuple):
    """causes: any of them is right. code: what the caller sees (negative: a signal)."""

    words: list[str]
    causes: tuple[str, ...]
    code: int
    options: tuple[str, ...] = ()


def python(text: str, *options: str) -> list[str]:
    return [*options, PYTHON, "-u", "-c", text]


EXCEPTION = python("import json\nprint('epoch 1 loss 0.3')\njson.loads('{')")
EXIT_CODE = ["sh", "-c", "echo loading; echo 'dataset not found, giving up' >&2; exit 3"]
SEGFAULT = python("import ctypes\nprint('step 1')\nctypes.string_at(0)")
BUS_ERROR = python(
    "import mmap, os, tempfile\nf = tempfile.TemporaryFile()\nf.truncate(1 << 16)\nm = mmap.mmap(f.fileno(), 1 << 16)\nf.truncate(0)\nprint(m[100])"
)
CUDA_OOM = python(
    "print('step 7 loss 2.1')\n"
    "class OutOfMemoryError(RuntimeError): pass\nOutOfMemoryError.__module__ = 'torch'\n"
    "raise OutOfMemoryError('CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 79.15 GiB of which 11.06 GiB "
    "is free. Including non-PyTorch memory, this process has 68.08 GiB memory in use. Of the allocated memory 66.61 GiB is allocated by "
    "PyTorch, and 989.06 MiB is reserved by PyTorch but unallocated.')"
)
TIME_LIMIT = [
    "sh", "-c", ("echo 'step 100 loss 1.0'; "
    "echo 'slurmstepd: error: *** JOB 4711 ON node17 CANCELLED AT 2026-03-02T04:11:09 DUE TO TIME LIMIT ***' >&2; kill -TERM $$"),
]  # fmt: skip
SIMPLE = {
    "exception": Way(EXCEPTION, ("app.exception",), 1),
    "exit_code": Way(EXIT_CODE, ("app.exception",), 3),
    "segfault": Way(SEGFAULT, ("process.segfault",), -signal.SIGSEGV),
    "bus_error": Way(BUS_ERROR, ("process.segfault", "host.shm_exhausted"), -signal.SIGBUS),
    "cuda_oom": Way(CUDA_OOM, ("app.cuda_oom",), 1),
    "time_limit": Way(TIME_LIMIT, ("sched.slurm_limit",), -signal.SIGTERM),
}


def rounds(request: pytest.FixtureRequest) -> int:
    return 10 if request.config.getoption("--slow") else 1


def judged(folder: Path, done: subprocess.CompletedProcess[bytes], causes: tuple[str, ...]) -> None:
    """The paragraph is there, and the bundle tells the same cause."""
    assert b"gpuclinic: " in done.stderr
    (bundle,) = bundles(folder)
    told = why(bundle)
    assert told["causes"], (told, done.stderr)
    assert told["causes"][0]["id"] in causes, (told["causes"][0], done.stderr)
    assert told["causes"][0]["title"].rstrip(".").encode() in done.stderr


@pytest.mark.parametrize("name", SIMPLE)
def test_simple_deaths(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    way = SIMPLE[name]
    for number in range(rounds(request)):
        folder = tmp_path / str(number)
        done = fly(folder, *way.options, *way.words)
        assert done.returncode == way.code, done.stderr
        judged(folder, done, way.causes)


def test_killed_by_a_person(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    for number in range(rounds(request)):
        folder = tmp_path / str(number)
        job = started(
            command(folder, *python("import os, time\nprint(os.getpid())\ntime.sleep(600)")), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
        )  # fmt: skip
        assert job.stdout is not None
        os.kill(int(job.stdout.readline()), signal.SIGKILL)
        out, err = job.communicate(timeout=120)
        judged(folder, subprocess.CompletedProcess([], job.returncode, out, err), ("process.killed",))
        assert job.returncode == -signal.SIGKILL


def test_a_sender_is_named(tmp_path: Path) -> None:
    job = started(
        command(tmp_path, *python("import time\nprint('on')\ntime.sleep(600)")), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    )  # fmt: skip
    assert job.stdout is not None
    job.stdout.readline()
    job.terminate()
    _, err = job.communicate(timeout=120)
    assert job.returncode == -signal.SIGTERM
    assert f"which process {os.getpid()} (" in err.decode()


MEMORY_ROOT = Path("/sys/fs/cgroup/memory") if Path("/sys/fs/cgroup/memory").is_dir() else Path("/sys/fs/cgroup")


@pytest.fixture
def small_cgroup():
    """A cgroup of 64 MiB below our own; its tasks file."""
    own = next(
        (
            line.split(":", 2)
            for line in Path("/proc/self/cgroup").read_text().splitlines()
            if ":memory:" in line or line.startswith("0::")
        ),
        None,
    )
    base = MEMORY_ROOT / (own[2].lstrip("/") if own else "")
    folder = base / f"gpuclinic-test-{os.getpid()}-{time.monotonic_ns()}"
    limit = "memory.limit_in_bytes" if MEMORY_ROOT.name == "memory" else "memory.max"
    try:
        folder.mkdir()
        (folder / limit).write_text(str(64 << 20))
        swap = folder / "memory.swap.max"
        if swap.exists():
            swap.write_text("0")
    except OSError as problem:
        pytest.skip(f"no cgroup can be made here: {problem}")
    yield folder / ("tasks" if MEMORY_ROOT.name == "memory" else "cgroup.procs")
    until(lambda: not (folder / "cgroup.procs").read_text().strip())
    folder.rmdir()


def test_cgroup_out_of_memory(tmp_path: Path, small_cgroup: Path, request: pytest.FixtureRequest) -> None:
    hungry = f"open({str(small_cgroup)!r}, 'w').write('0')\nprint('allocating')\nhoard = []\nwhile True:\n    hoard.append(bytearray(b'x') * (1 << 20))"
    for number in range(rounds(request)):
        folder = tmp_path / str(number)
        done = fly(folder, *python(hungry))
        assert done.returncode == -signal.SIGKILL
        judged(folder, done, ("host.cgroup_oom",))


def fake_machine(tmp_path: Path, line: str) -> dict[str, str]:
    """A root tree whose kernel log holds the line, a moment from now."""
    root = tmp_path / "root"
    up = float(Path("/proc/uptime").read_text().split()[0])
    for name, text in {
        "dev/kmsg": f"6,1,1000000,-;Linux version 6.8.0\n4,2,{int((up + 1) * 1e6)},-;{line}\n",
        "proc/uptime": f"{up} {up}\n",
        "proc/sys/kernel/hostname": "node17\n",
    }.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return {"GPUCLINIC_ROOT": str(root)}


def test_xid(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    text = "NVRM: Xid (PCI:0000:9a:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
    job = python("import sys\nprint('step 8')\nsys.exit('RuntimeError: CUDA error: unspecified launch failure')")
    for number in range(rounds(request)):
        folder = tmp_path / str(number)
        done = fly(folder, *job, env=fake_machine(folder, text))
        assert done.returncode == 1
        judged(folder, done, ("hw.gpu.fallen_off_bus",))


def test_hang(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    stuck = "import os, time\nprint('step 1', flush=True)\nwhile not os.path.exists(os.environ['END']): time.sleep(0.5)\nos.kill(os.getpid(), 15)"
    for number in range(rounds(request)):
        folder, end = tmp_path / str(number), tmp_path / f"end{number}"
        job = started(
            command(folder, "--hang-after", "5s", "-v", *python(stuck)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment({"END": str(end)})
        )  # fmt: skip
        assert job.stderr is not None
        said = job.stderr.readline()
        assert b"no progress for" in said
        end.touch()
        out, err = job.communicate(timeout=120)
        judged(folder, subprocess.CompletedProcess([], job.returncode, out, err), ("app.hang",))
        (bundle,) = bundles(folder)
        assert b"--- /proc/" in member(bundle, "hang-1-stacks.txt")
        assert record(bundle)["hangs"]


def test_interrupts_and_good_ends_are_brief(tmp_path: Path) -> None:
    done = fly(tmp_path, "sh", "-c", "kill -INT $$")
    assert done.returncode == -signal.SIGINT
    assert b"was interrupted (SIGINT)" in done.stderr
    assert fly(tmp_path, "true").stderr == b""
    assert bundles(tmp_path) == []
    done = fly(tmp_path, "--always", "sh", "-c", "echo fine")
    assert (done.returncode, done.stdout) == (0, b"fine\n")
    assert b"ended well" in done.stderr
    (bundle,) = bundles(tmp_path)
    assert member(bundle, "stdout.log") == b"fine\n"


def test_secrets_do_not_leave(tmp_path: Path) -> None:
    fly(
        tmp_path,
        "sh",
        "-c",
        "echo export HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyzABCDEFGH; exit 4",
        env={"WANDB_API_KEY": "0123456789abcdef" * 2},
    )
    (bundle,) = bundles(tmp_path)
    for name in ("stdout.log", "run.json", "samples.jsonl"):
        assert b"hf_abcdefghij" not in member(bundle, name)
        assert b"0123456789abcdef" not in member(bundle, name)
