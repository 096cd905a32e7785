"""`gpuclinic top` as it is called: --once on a fake server, and in a real terminal."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from typing import TYPE_CHECKING

import pytest

from fakes.library import NoCompilerError
from fakes.machine import Process
from fakes.server import Server, build_server

if TYPE_CHECKING:
    from pathlib import Path

TOP = [sys.executable, "-m", "gpuclinic", "top"]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Server:
    try:
        server = build_server(tmp_path_factory.mktemp("server"), "h100-sxm", 4)
    except NoCompilerError as problem:
        pytest.skip(str(problem))
    for index in range(4):
        server.add_process(Process(5000 + index, "python train.py \x1b[31mred"), {index: 61_000})
    server.set({"all.util.gpu": 97, "3.lost": 1, "1.throttle": 0x40})
    return server


def environment(server: Server, folder: Path, **more: str) -> dict[str, str]:
    return {
        **os.environ,
        **server.env,
        "RUNTIME_DIRECTORY": str(folder),
        "STATE_DIRECTORY": str(folder),
        "LC_ALL": "C.UTF-8",
        **more,
    }


def test_once(built: Server, tmp_path: Path) -> None:
    done = subprocess.run([*TOP, "--once"], env=environment(built, tmp_path), capture_output=True, timeout=120)
    told = done.stdout.decode()
    assert (done.returncode, done.stderr) == (0, b"")
    assert "python train.py" in told
    assert "\x1b" not in told
    assert "LOST  GPU is lost" in told
    assert "too hot, HW slowed" in told


def test_once_as_json(built: Server, tmp_path: Path) -> None:
    argv = [*TOP, "--once", "--json", "--gpu", "1", "--user", "user"]
    done = subprocess.run(argv, env=environment(built, tmp_path), capture_output=True, timeout=120)
    told = json.loads(done.stdout)
    assert (told["kind"], told["schema"], told["lang"]) == ("top", 1, "en")
    assert [gpu["gpu_index"] for gpu in told["gpus"]] == [1]
    assert told["gpus"][0]["runs_into"]["id"] == "hw_thermal"
    assert [process["pid"] for process in told["processes"]] == [5001]


@pytest.mark.parametrize(
    ("argv", "more", "word"),
    [(["--json"], {}, "--once"), ([], {}, "not a terminal"), (["--once", "--interval", "0"], {}, "0.5 and 60"), (["--gpu", "x"], {}, "index")],
)  # fmt: skip
def test_wrong_command_lines(argv: list[str], more: dict[str, str], word: str) -> None:
    done = subprocess.run(
        [*TOP, *argv], env={**os.environ, **more}, capture_output=True, timeout=60, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 64
    assert word in done.stderr.decode()
    assert done.stderr.count(b"\n") == 1


def in_terminal(env: dict[str, str], argv: list[str] | None = None) -> tuple[subprocess.Popen[bytes], int]:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    process = subprocess.Popen(argv or TOP, stdin=theirs, stdout=theirs, stderr=theirs, env=env, start_new_session=True)
    os.close(theirs)
    return process, ours


def read_until(handle: int, word: bytes, seconds: float = 60.0) -> bytes:
    data, until = b"", time.monotonic() + seconds
    while word not in data and time.monotonic() < until:
        if select.select([handle], [], [], 1.0)[0]:
            try:
                data += os.read(handle, 1 << 16)
            except OSError:
                break
    return data


@pytest.mark.parametrize("end", ["q", "term"])
def test_the_terminal_is_put_back(built: Server, tmp_path: Path, end: str) -> None:
    process, handle = in_terminal(environment(built, tmp_path, TERM="xterm-256color"))
    try:
        first = read_until(handle, b"LOST")
        assert b"LOST" in first
        assert b"\x1b[?1049h" in first
        if end == "q":
            os.write(handle, b"q")
        else:
            process.send_signal(signal.SIGTERM)
        last = read_until(handle, b"\x1b[?25h")
        assert b"\x1b[?1049l" in last
        assert b"\x1b[?25h" in last
        while process.poll() is None:
            read_until(handle, b"\0", 0.2)
        assert process.returncode in ((0,) if end == "q" else (128 + signal.SIGTERM,))
    finally:
        process.kill()
        process.wait(10)
        os.close(handle)


def test_a_dumb_terminal_is_told_of_once(built: Server, tmp_path: Path) -> None:
    process, handle = in_terminal(environment(built, tmp_path, TERM="dumb"))
    assert b"--once" in read_until(handle, b"--once")
    assert process.wait(30) == 64
    os.close(handle)


def test_without_textual(built: Server, tmp_path: Path) -> None:
    (tmp_path / "textual.py").write_text("raise ImportError('no')\n")
    env = environment(
        built, tmp_path, TERM="xterm", PYTHONPATH=f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    )
    process, handle = in_terminal(env)
    assert b"pip install 'gpuclinic[top]'" in read_until(handle, b"[top]'")
    assert process.wait(30) == 64
    os.close(handle)
    done = subprocess.run([*TOP, "--once"], env=env, capture_output=True, timeout=120)
    assert done.returncode == 0
