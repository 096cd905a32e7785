"""The job does not notice the recorder: exit codes, bytes, environment, descriptors, signals, groups."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from flying import GPUCLINIC, PYTHON, bundles, command, environment, fly, member, record, started, until

ENDS = [
    "exit 0", "exit 1", "exit 2", "exit 64", "exit 70", "exit 125", "exit 126", "exit 127", "exit 128", "exit 130", "exit 255", "nosuchcommand",
    *(f"kill -{name} $$" for name in ("HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE", "ALRM", "TERM", "XCPU", "SYS", "34")),
]  # fmt: skip


@pytest.mark.parametrize("text", ENDS)
def test_ends_as_the_job_ends(text: str, tmp_path: Path) -> None:
    alone = subprocess.run(["bash", "-c", text], capture_output=True, check=False)
    job = started(
        command(tmp_path, "--quiet", "bash", "-c", text),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    out, err = job.communicate(timeout=120)
    assert (job.returncode, out, err) == (alone.returncode, alone.stdout, alone.stderr)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["nosuch-command-of-ours"], 127), (["/etc/passwd"], 126), (["/"], 126), (["/etc/passwd/x"], 127), ([""], 127),
        (["--nosuch", "true"], 125), ([], 125), (["--hang-after", "soon", "true"], 125), (["--max-size", "1", "true"], 125), (["--keep", "0", "true"], 125),
    ],
)  # fmt: skip
def test_before_the_start(words: list[str], code: int, tmp_path: Path) -> None:
    done = fly(tmp_path, *words)
    assert done.returncode == code
    assert done.stderr.count(b"\n") == 1
    assert b"Traceback" not in done.stderr


def test_what_follows_is_the_jobs_alone(tmp_path: Path) -> None:
    words = ["--", "printf", "%s|", "--lang", "xx", "--verbose", "-h", "--", "--hang", "a b", ""]
    assert fly(tmp_path, *words).stdout == b"--lang|xx|--verbose|-h|--|--hang|a b||"
    assert fly(tmp_path, *words[1:]).stdout == b"--lang|xx|--verbose|-h|--|--hang|a b||"


LOOK = """
import json, os, resource, signal, sys
status = dict(l.split(':', 1) for l in open('/proc/self/status').read().splitlines())
print(json.dumps({
    'env': sorted(open('/proc/self/environ', 'rb').read().decode('latin1').split(chr(0))), 'cwd': os.getcwd(), 'umask': os.umask(0),
    'fds': sorted(int(f) for f in os.listdir('/proc/self/fd')), 'nice': os.nice(0), 'rlimits': [resource.getrlimit(n) for n in range(16)],
    'mask': status['SigBlk'], 'ignored': status['SigIgn'], 'argv': sys.argv, 'oom': open('/proc/self/oom_score_adj').read(),
    'group': os.getpgrp() == os.getpgid(os.getppid()), 'session': os.getsid(0), 'stdin': os.readlink('/proc/self/fd/0')}))
"""


def looked(words: list[str], **more: Any) -> dict[str, Any]:
    read, write = os.pipe()
    os.set_inheritable(write, True)
    env = {**environment(), "ODD": "a=b\nc", "LC_ALL": "C", "LANG": "", "EMPTY": ""}
    try:
        done = subprocess.run(
            [*words, PYTHON, "-c", LOOK, "x y"],
            stdout=subprocess.PIPE,
            env=env,
            pass_fds=(write,),
            check=True,
            timeout=60,
            **more,
        )
    finally:
        os.close(read)
        os.close(write)
    told = json.loads(done.stdout)
    assert isinstance(told, dict)
    return told


def odd_signals() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    os.umask(0o027)
    os.nice(3)


@pytest.mark.parametrize("odd", [False, True])
def test_the_surroundings_are_the_same(odd: bool, tmp_path: Path) -> None:
    more: dict[str, Any] = {"preexec_fn": odd_signals, "cwd": tmp_path} if odd else {}
    alone, flown = looked([], **more), looked(command(tmp_path), **more)
    for told in (alone, flown):
        del told["group"]
    alone["fds"], flown["fds"] = len(alone["fds"]), len(flown["fds"])
    assert flown == alone


def test_closed_streams_stay_closed(tmp_path: Path) -> None:
    text = f"{' '.join(command(tmp_path))} {PYTHON} -c 'import os; os.write(3, repr([os.path.exists(f\"/proc/self/fd/{{n}}\") for n in (0, 1, 2)]).encode())' 3>{tmp_path}/out <&- >&- 2>&-"
    assert subprocess.run(["bash", "-c", text], env=environment(), check=False).returncode == 0
    assert (tmp_path / "out").read_text() == "[False, False, False]"


BYTES = """
import hashlib, os, sys
n = int(sys.argv[1]); block = os.urandom(1 << 20); d = hashlib.sha256()
for i in range(n):
    piece = block[: (1 << 20) - i % 4097]
    d.update(piece); view = memoryview(piece)
    while view: view = view[os.write(1, view):]
os.write(1, b'no line feed'); d.update(b'no line feed'); os.write(2, d.hexdigest().encode())
"""


def test_all_bytes_arrive(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    size = 1024 if request.config.getoption("--slow") else 48
    job = started(
        command(tmp_path, PYTHON, "-c", BYTES, str(size)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    assert job.stdout is not None
    assert job.stderr is not None
    digest = hashlib.sha256()
    while piece := job.stdout.read(1 << 18):
        digest.update(piece)
    assert job.stderr.read().decode() == digest.hexdigest()
    assert job.wait(timeout=60) == 0


def test_order_of_two_streams_into_one(tmp_path: Path) -> None:
    text = "import os\nfor i in range(2000): os.write(1 + i % 2, b'%d\\n' % i)"
    done = subprocess.run(
        command(tmp_path, PYTHON, "-c", text),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment(),
        check=True,
    )
    assert done.stdout == b"".join(b"%d\n" % i for i in range(2000))


def test_files_are_the_jobs_own(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with out.open("wb") as file:
        done = subprocess.run(
            command(tmp_path, PYTHON, "-c", "import os; print(os.readlink('/proc/self/fd/1')); raise SystemExit('no')"), stdout=file, stderr=subprocess.STDOUT, env=environment(), check=False
        )  # fmt: skip
    assert done.returncode == 1
    assert out.read_bytes().startswith(str(out).encode() + b"\nno\n")
    (bundle,) = bundles(tmp_path)
    assert member(bundle, "stdout.log") == str(out).encode() + b"\nno\n"


def test_a_reader_that_leaves_ends_the_job(tmp_path: Path) -> None:
    text = f"{' '.join(command(tmp_path, '--quiet'))} yes | head -n 3; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", text], capture_output=True, env=environment(), timeout=60, check=True)
    assert done.stdout == b"y\ny\ny\n141\n"


def test_grandchildren_that_hold_the_pipe(tmp_path: Path) -> None:
    """The job's end is seen at once, what its daemon writes still arrives."""
    text = "(sleep 2; echo late) & echo early"
    job = started(command(tmp_path, "sh", "-c", text), stdout=subprocess.PIPE, env=environment())
    assert job.stdout is not None
    assert job.stdout.readline() == b"early\n"
    assert job.wait(timeout=60) == 0
    assert job.stdout.read() == b"late\n"


def test_signals_are_passed_on_once(tmp_path: Path) -> None:
    """To the front alone: the job gets it. To the group: the job has it already, and gets it once."""
    text = (
        "import os, signal, time\nfor s in (signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP, signal.SIGINT, signal.SIGRTMIN): "
        "signal.signal(s, lambda n, f: os.write(1, b'%d\\n' % n))\nos.write(1, b'ready\\n')\nend = time.time() + 60\n"
        "while time.time() < end and not os.path.exists(os.environ['END']): time.sleep(0.02)"
    )
    end = tmp_path / "end"
    job = started(
        command(tmp_path, PYTHON, "-c", text), stdout=subprocess.PIPE, env=environment({"END": str(end)}), start_new_session=True
    )  # fmt: skip
    assert job.stdout is not None
    assert job.stdout.readline() == b"ready\n"
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP, signal.SIGINT, signal.SIGRTMIN):
        os.kill(job.pid, number)
        assert int(job.stdout.readline()) == number
        os.killpg(job.pid, number)
        assert int(job.stdout.readline()) == number
        time.sleep(0.3)
    end.touch()
    assert job.stdout.read() == b""
    assert job.wait(timeout=60) == 0


def descendants(pid: int) -> dict[str, list[int]]:
    """Names of a process's children to their numbers."""
    found: dict[str, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            head, _, rest = stat.read_text().rpartition(")")
        except OSError:
            continue
        if int(rest.split()[1]) == pid:
            found.setdefault(head.partition("(")[2], []).append(int(head.split()[0]))
    return found


@pytest.mark.parametrize("to", ["pipe", "file"])
def test_killing_us_leaves_the_job_running_and_writing(to: str, tmp_path: Path) -> None:
    go, out = tmp_path / "go", tmp_path / "out"
    text = (
        "import os, sys, time\nprint('before', os.getpid(), flush=True)\nwhile not os.path.exists(os.environ['GO']): time.sleep(0.02)\n"
        "for i in range(20000): print('after', i, flush=True)\nopen(os.environ['GO'] + '.done', 'w')\nsys.exit(5)"
    )
    with out.open("wb") as file:
        target = file if to == "file" else subprocess.PIPE
        front = started(command(tmp_path, PYTHON, "-c", text), stdout=target, env=environment({"GO": str(go)}))
    lines = iter(front.stdout or [])
    first = until(lambda: out.read_bytes()) if to == "file" else next(lines)
    recorder = until(lambda: descendants(front.pid).get("gpuclinic-recor"))[0]
    front.kill()
    front.wait()
    go.touch()
    seen = [] if to == "file" else list(lines)
    until((tmp_path / "go.done").exists)
    if to == "file":
        seen = out.read_bytes().splitlines(keepends=True)[1:]
    assert first.startswith(b"before")
    assert seen == [b"after %d\n" % i for i in range(20000)]
    until(lambda: not Path(f"/proc/{recorder}").exists() or bundles(tmp_path))
    (bundle,) = until(lambda: bundles(tmp_path))
    assert record(bundle)["recorder_alone"] is True


def test_orphans_are_seen_and_daemons_live_on(tmp_path: Path) -> None:
    text = "(sh -c 'sleep 0.3; kill -9 $$' &) ; (setsid sleep 30 >/dev/null 2>&1 & echo $!); sleep 4; exit 9"
    done = fly(tmp_path, "bash", "-c", text)
    daemon = int(done.stdout)
    os.kill(daemon, 0)
    os.kill(daemon, signal.SIGKILL)
    assert done.returncode == 9
    (bundle,) = bundles(tmp_path)
    assert any(end["signal"] == 9 for end in record(bundle)["ends"])


def test_many_at_once_name_the_first_failure(tmp_path: Path) -> None:
    text = (
        "import os, sys, time\nr = int(os.environ['RANK'])\nprint('step 1')\nif r == 2: raise ValueError('bad batch in shard 7')\n"
        "time.sleep(60)"
    )
    jobs = []
    for rank in range(4):
        env = environment({"RANK": str(rank), "WORLD_SIZE": "4", "TORCHELASTIC_RUN_ID": "r1"})
        jobs.append(
            started(command(tmp_path, PYTHON, "-c", text), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env)
        )
    jobs[2].wait(timeout=120)
    said = {2: jobs[2].communicate()[1]}
    for rank in (0, 1, 3):
        jobs[rank].terminate()
    for rank in (0, 1, 3):
        said[rank] = jobs[rank].communicate(timeout=120)[1]
    assert all(b"Rank 2 on " in said[rank] and b"failed first" in said[rank] for rank in (0, 1, 3)), said
    assert b"Rank " not in said[2]
    assert len(list((tmp_path / "ranks-r1").glob("rank-*.json"))) == 4


def test_no_place_for_records(tmp_path: Path) -> None:
    taken = tmp_path / "file"
    taken.write_text("")
    done = fly(taken / "below", "sh", "-c", "echo out; exit 6")
    assert (done.returncode, done.stdout) == (6, b"out\n")
    assert b"Not recorded: no bundle" in done.stderr


def test_old_records_go(tmp_path: Path) -> None:
    other = tmp_path / "notes.tar.gz"
    other.write_text("mine")
    for _ in range(3):
        fly(tmp_path, "--keep", "2", "sh", "-c", "exit 6")
    assert len(bundles(tmp_path)) == 2
    assert other.exists()


def test_first_process_of_a_container(tmp_path: Path) -> None:
    """As pid 1: orphans are reaped, signals reach the job, deaths by signal become 128+n."""
    text = "(sleep 0.1 &); sleep 1; ls -d /proc/[0-9]* | wc -l; exit 3"
    words = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    if subprocess.run([*words, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no pid namespace can be made here")
    done = subprocess.run(
        [*words, *command(tmp_path, "--quiet", "bash", "-c", text)],
        capture_output=True,
        env=environment(),
        check=False,
        timeout=60,
    )
    assert done.returncode == 3
    done = subprocess.run(
        [*words, *command(tmp_path, "--quiet", "bash", "-c", "kill -9 $$")],
        capture_output=True,
        env=environment(),
        check=False,
        timeout=60,
    )
    assert done.returncode == 137
    job = started(
        [
            *words,
            *command(
                tmp_path, "--quiet", "bash", "-c", "trap 'echo got; exit 8' TERM; echo on; while :; do sleep 0.1; done"
            ),
        ],
        stdout=subprocess.PIPE,
        env=environment(),
    )
    assert job.stdout is not None
    assert job.stdout.readline() == b"on\n"
    inner = until(lambda: [p for name, pids in descendants(job.pid).items() for p in pids])[0]
    os.kill(inner, signal.SIGTERM)
    assert job.stdout.read() == b"got\n"
    assert job.wait(timeout=60) == 8


def test_inside_itself(tmp_path: Path) -> None:
    done = fly(tmp_path, *GPUCLINIC, "run", "--quiet", "sh", "-c", "echo deep; exit 4")
    assert (done.returncode, done.stdout) == (4, b"deep\n")


def test_non_blocking_pipes_and_slow_readers(tmp_path: Path) -> None:
    read, write = os.pipe()
    fcntl.fcntl(write, fcntl.F_SETFL, os.O_NONBLOCK)
    job = started(command(tmp_path, "head", "-c", "3000000", "/dev/zero"), stdout=write, env=environment())
    os.close(write)
    got = bytearray()
    slow = threading.Timer(0.5, lambda: None)
    slow.start()
    slow.join()
    while piece := os.read(read, 1 << 16):
        got += piece
    os.close(read)
    assert job.wait(timeout=60) == 0
    assert bytes(got) == bytes(3000000)
