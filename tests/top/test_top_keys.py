"""Keys and the mouse in a terminal that Textual plays; signals to processes of the tests' own."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import shown

from gpuclinic.model import CouldNotError
from gpuclinic.top import acting
from gpuclinic.top.app import TopApp
from gpuclinic.top.choices import Choices
from gpuclinic.top.keys import press
from gpuclinic.top.processes import Processes, read_stat

if TYPE_CHECKING:
    from pathlib import Path

    from textual.strip import Strip

    from gpuclinic.top.view import View


def keys(view: View, choices: Choices, *pressed: str) -> bool:
    ends = [press(key, key if len(key) == 1 else None, view, choices) for key in pressed]
    return any(ends)


@pytest.fixture
def sleeper():
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield process
    process.kill()
    process.wait(10)


def test_keys_of_the_app() -> None:
    async def use() -> None:
        view, past = shown.machine(8, "sick")
        app = TopApp(Choices())
        app.past = past
        async with app.run_test(size=(80, 24)) as pilot:
            await pilot.pause()
            app.give(view)
            await pilot.press("question_mark")
            assert app.choices.overlay == "help"
            await pilot.press("escape", "slash", "a", "l", "i", "c", "e", "enter")
            assert app.choices.filter == "alice"
            await pilot.press("escape", "shift+tab", "down", "enter")
            assert (app.choices.overlay, app.choices.subject) == ("alert", "a0000001")
            screen = "\n".join("".join(text for text, _ in line) for line in app.painted.lines)
            assert "HW Thermal Slowdown" in screen
            assert "nvidia-smi --gpu-reset -i 3" in screen
            await pilot.press("escape", "P", "t", "z")
            assert (app.choices.sort, app.choices.tree, app.choices.paused) == ("cpu_pct", True, True)
            other, _ = shown.machine(1)
            app.give(other)
            assert app.view_now is view
            await pilot.press("z")
            assert app.view_now is other
            await pilot.resize_terminal(120, 40)
            await pilot.pause()
            assert len(app.painted.lines) == 40
            await pilot.click(offset=(5, 3))
            assert app.choices.zone == "gpus"
            await pilot.press("q")
        assert app.return_value == 0

    asyncio.run(use())


def test_only_changed_lines_are_drawn_again() -> None:
    async def use() -> None:
        view, past = shown.machine(8)
        app = TopApp(Choices(graphs=False))
        app.past = past
        async with app.run_test(size=(120, 40)) as pilot:
            app.give(view)
            await pilot.pause()
            drawn: list[int] = []
            before = app._canvas.render_line

            def counted(y: int) -> Strip:
                drawn.append(y)
                return before(y)

            app._canvas.render_line = counted  # type: ignore[method-assign]
            same, _ = shown.machine(8)
            same.host.load1 = 99.0
            app.give(same)
            await pilot.pause()
            await pilot.pause()
            assert set(drawn) == {1}

    asyncio.run(use())


def test_a_question_waits_for_a_plain_yes(sleeper: subprocess.Popen[bytes]) -> None:
    view, _ = shown.machine(1)
    holder = view.holders[0]
    stat = read_stat("", sleeper.pid)
    assert stat is not None
    holder.pid, holder.start = sleeper.pid, stat.start
    choices = Choices()
    for no in ("n", "escape", "enter"):
        keys(view, choices, "k", no)
        assert choices.overlay == ""
        assert sleeper.poll() is None
    keys(view, choices, "k", "x", "down")
    assert choices.overlay == "kill"
    keys(view, choices, "9", "y")
    assert sleeper.wait(20) == -signal.SIGKILL
    assert "SIGKILL" in choices.said


def test_never_another_process_than_the_one_shown(sleeper: subprocess.Popen[bytes]) -> None:
    stat = read_stat("", sleeper.pid)
    assert stat is not None
    for start in (None, stat.start + 1):
        with pytest.raises(CouldNotError, match="another process"):
            acting.send(sleeper.pid, start, signal.SIGKILL)
    with pytest.raises(CouldNotError, match="another machine"):
        acting.send(sleeper.pid, stat.start, signal.SIGKILL, "/snapshot")
    assert sleeper.poll() is None


@pytest.mark.parametrize("pid", [1, 0, -1])
def test_never_init_nor_groups(pid: int) -> None:
    with pytest.raises(CouldNotError):
        acting.send(pid, 1, signal.SIGTERM)


def test_never_itself_nor_threads_of_the_kernel() -> None:
    for pid in (os.getpid(), os.getppid()):
        stat = read_stat("", pid)
        with pytest.raises(CouldNotError, match="never"):
            acting.send(pid, stat.start if stat else None, signal.SIGTERM)
    kernel = read_stat("", 2)
    if kernel is not None and kernel.name == "kthreadd":
        with pytest.raises(CouldNotError, match="kernel"):
            acting.send(2, kernel.start, signal.SIGTERM)


def test_a_gone_process_is_told(sleeper: subprocess.Popen[bytes]) -> None:
    stat = read_stat("", sleeper.pid)
    assert stat is not None
    sleeper.kill()
    sleeper.wait(10)
    with pytest.raises(CouldNotError, match="gone"):
        acting.send(sleeper.pid, stat.start, signal.SIGTERM)


def test_nicer(sleeper: subprocess.Popen[bytes]) -> None:
    stat = read_stat("", sleeper.pid)
    assert stat is not None
    acting.renice(sleeper.pid, stat.start, stat.nice + 3)
    after = read_stat("", sleeper.pid)
    assert after is not None
    assert after.nice == stat.nice + 3


def test_what_proc_says(sleeper: subprocess.Popen[bytes]) -> None:
    processes = Processes()
    processes.read([sleeper.pid, 999_999_999])
    found = processes.read([sleeper.pid, 999_999_999])
    assert set(found) == {sleeper.pid}
    assert "time.sleep(600)" in found[sleeper.pid].command
    assert found[sleeper.pid].cpu_pct is not None


def test_a_name_with_brackets_is_read(tmp_path: Path) -> None:
    (tmp_path / "proc/7").mkdir(parents=True)
    (tmp_path / "proc/7/stat").write_text(
        "7 (a) R 1 (b) S 5 7 7 0 -1 4194560 0 0 0 0 150 50 0 0 20 5 1 0 4242 0 256 0\n"
    )
    stat = read_stat(str(tmp_path), 7)
    assert stat is not None
    assert (stat.name, stat.state, stat.ppid, stat.cpu_s, stat.nice, stat.start) == (
        "a) R 1 (b",
        "S",
        5,
        200 / os.sysconf("SC_CLK_TCK"),
        5,
        4242,
    )


def test_search_goes_round() -> None:
    view, _ = shown.machine(8)
    choices = Choices(sort="pid", search="alice")
    rows = []
    for _ in range(5):
        keys(view, choices, "n")
        rows.append(choices.row("processes"))
    assert rows == [1, 3, 5, 7, 1]


def test_enter_on_a_gpu_shows_its_processes_alone() -> None:
    view, _ = shown.machine(2, "mig")
    choices = Choices(zone="gpus", at={"gpus": 2})  # GPU 0 has two MIG devices below it
    keys(view, choices, "enter")
    assert choices.only_gpus == [0]
    keys(view, choices, "enter")
    assert choices.only_gpus == []
    keys(view, choices, "down", "enter")
    assert choices.only_gpus == [1]
