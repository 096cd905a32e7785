"""On a terminal: window, typing, raw mode, Ctrl-C, Ctrl-Z and fg, hang-up, as without us."""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import termios
from typing import TYPE_CHECKING

from flying import PYTHON, bundles, command, environment, member, on_a_terminal, record, types, until

if TYPE_CHECKING:
    from pathlib import Path


def resizes(terminal: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))


def test_it_is_a_terminal_and_can_be_typed_on(tmp_path: Path) -> None:
    text = "import os; print(os.isatty(0), os.isatty(1), os.isatty(2), os.get_terminal_size(1).columns, os.getpgrp() == os.tcgetpgrp(0)); print(input('name? '))"
    shown, status = on_a_terminal(command(tmp_path, PYTHON, "-c", text), [(b"name? ", types(b"bob\n"))])
    assert shown == b"True True True 100 True\r\nname? bob\r\nbob\r\n"
    assert status == 0


def test_ctrl_c_comes_once_and_is_told_briefly(tmp_path: Path) -> None:
    text = "import time, signal\ndef hit(n, f): print('hit', flush=True)\nsignal.signal(2, hit)\nprint('go', flush=True)\ntime.sleep(1)\nsignal.signal(2, signal.SIG_DFL)\nprint('again', flush=True)\ntime.sleep(60)"
    shown, status = on_a_terminal(
        command(tmp_path, PYTHON, "-c", text), [(b"go", types(b"\x03")), (b"again", types(b"\x03"))]
    )
    assert shown.count(b"hit\r\n") == 1
    assert b"was interrupted (SIGINT)" in shown
    assert os.WTERMSIG(status) == signal.SIGINT


def test_stops_and_goes_on_in_a_shell(tmp_path: Path) -> None:
    words = " ".join(command(tmp_path, "--quiet", "sh", str(tmp_path / "ticks")))
    (tmp_path / "ticks").write_text("for i in 1 2 3 4; do echo tick-$i; sleep 0.5; done\n")
    script = [
        (b"# ", types(b"PS1='P''> '; stty -echo\n")), (b"P> ", types(words.encode() + b"\n")), (b"tick-2", types(b"\x1a")),
        (b"Stopped", types(b"fg; echo done=$?\n")), (b"tick-4", lambda terminal: None), (b"done=0", types(b"exit\n")),
    ]  # fmt: skip
    shown, _ = on_a_terminal(["bash", "--norc", "-i"], script, {"PS1": "# "})
    assert shown.count(b"Stopped") == 1
    assert shown.count(b"tick-") == 4


def test_the_window_is_passed_on(tmp_path: Path) -> None:
    text = (
        "import os, signal, time\nsignal.signal(signal.SIGWINCH, lambda *a: None)\nprint('ready', flush=True)\nend = time.time() + 30\n"
        "while os.get_terminal_size(1).columns != 120 and time.time() < end: time.sleep(0.05)\nprint(os.get_terminal_size(1).columns, os.get_terminal_size(2).lines)"
    )
    shown, status = on_a_terminal(command(tmp_path, PYTHON, "-c", text), [(b"ready", resizes)])
    assert b"120 40" in shown
    assert status == 0


def test_what_is_set_on_the_output_is_set_on_the_terminal(tmp_path: Path) -> None:
    text = (
        "import termios, time\na = termios.tcgetattr(1)\na[3] &= ~(termios.ECHO | termios.ICANON)\ntermios.tcsetattr(1, termios.TCSANOW, a)\n"
        "end = time.time() + 30\nwhile termios.tcgetattr(0)[3] & termios.ECHO and time.time() < end: time.sleep(0.05)\n"
        "b = termios.tcgetattr(0)\nprint(bool(b[3] & termios.ECHO), bool(b[3] & termios.ICANON), bool(b[1] & termios.OPOST))"
    )
    shown, status = on_a_terminal(command(tmp_path, PYTHON, "-c", text), [])
    assert shown == b"False False True\r\n"
    assert status == 0


def test_the_tail_of_a_terminal_is_kept(tmp_path: Path) -> None:
    shown, status = on_a_terminal(command(tmp_path, "sh", "-c", "echo one; echo two >&2; exit 7"), [])
    assert shown.startswith(b"one\r\ntwo\r\n")
    assert os.WEXITSTATUS(status) == 7
    (bundle,) = bundles(tmp_path)
    assert member(bundle, "stdout.log") == b"one\ntwo\n"


def test_hang_up_ends_the_job_and_ignoring_it_does_not(tmp_path: Path) -> None:
    """The terminal goes away: the job gets SIGHUP, unless it ignores it."""
    for ignored in (False, True):
        folder = tmp_path / str(ignored)
        folder.mkdir()
        done = folder / "done"
        trap = "trap '' HUP; " if ignored else ""
        pid, terminal = os.forkpty()
        if pid == 0:
            text = f"{trap}echo ready; sleep 3; : > {done}; exit 3"
            os.execvpe(
                "sh",
                ["sh", "-c", f'{trap}exec "$@"', "sh", *command(folder, "--always", "sh", "-c", text)],
                environment(),
            )
        seen = b""
        while b"ready" not in seen:
            seen += os.read(terminal, 1000)
        os.close(terminal)
        os.waitpid(pid, 0)
        (bundle,) = until(lambda where=folder: bundles(where))
        assert record(bundle)["signal" if not ignored else "exit_code"] == (3 if ignored else signal.SIGHUP)
        assert done.exists() is ignored


def test_only_one_stream_is_a_terminal(tmp_path: Path) -> None:
    words = " ".join(command(tmp_path, "sh", "-c", "'echo out; echo err >&2; exit 5'"))
    shown, status = on_a_terminal(["bash", "-c", f"{words} | cat > {tmp_path}/out; exit ${{PIPESTATUS[0]}}"], [])
    assert (tmp_path / "out").read_bytes() == b"out\n"
    assert shown.startswith(b"err\r\n")
    assert os.WEXITSTATUS(status) == 5
