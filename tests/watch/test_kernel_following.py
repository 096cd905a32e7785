"""The kernel's log as it grows, from a file that stands in for /dev/kmsg, and from a journal that stands in for the machine's."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuclinic.observe.kernel_follow import KernelFollower, KernelLine, Position

if TYPE_CHECKING:
    from collections.abc import Callable

BOOT = "7c1f3f6e-0a52-4d4e-9a0f-3c1b2a4d5e6f"
XID = "NVRM: Xid (PCI:0000:9c:00): 79, pid=1, name=python3, GPU has fallen off the bus."


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "dev").mkdir()
    (tmp_path / "proc/sys/kernel/random").mkdir(parents=True)
    (tmp_path / "proc/sys/kernel/random/boot_id").write_text(BOOT + "\n")
    (tmp_path / "dev/kmsg").write_text("6,1,100,-;old line\n")
    return tmp_path


def add(root: Path, text: str) -> None:
    with (root / "dev/kmsg").open("a") as file:
        file.write(text)


def until(take: Callable[[], list[KernelLine]]) -> list[KernelLine]:
    for _ in range(500):
        lines = take()
        if lines:
            return lines
        time.sleep(0.01)
    raise AssertionError("nothing came")


def test_only_what_comes_after_the_start_is_told(root: Path) -> None:
    log = KernelFollower(str(root))
    assert log.source == "/dev/kmsg"
    assert log.take() == []
    add(root, f"4,2,200,-;{XID}\n")
    (line,) = log.take()
    assert (line.sequence, line.priority, line.text) == (2, 4, XID)
    assert log.take() == []
    assert log.position == Position(BOOT, 2)
    log.close()


def test_it_goes_on_where_it_was_in_this_boot(root: Path) -> None:
    add(root, "4,2,200,-;second\n4,3,300,-;third\n")
    log = KernelFollower(str(root), Position(BOOT, 2))
    assert [line.text for line in log.take()] == ["third"]
    log.close()


def test_a_place_of_another_boot_means_nothing(root: Path) -> None:
    log = KernelFollower(str(root), Position("another", 1))
    add(root, "4,1,200,-;new\n")
    assert [line.text for line in log.take()] == ["new"]
    log.close()


def test_a_line_that_is_not_whole_waits_for_its_end(root: Path) -> None:
    log = KernelFollower(str(root))
    add(root, "4,2,200,-;first ")
    assert log.take() == []
    add(root, "half\n SUBSYSTEM=pci\n")
    assert [line.text for line in log.take()] == ["first half"]
    log.close()


def test_neither_log_nor_journal_is_said_once(tmp_path: Path) -> None:
    log = KernelFollower(str(tmp_path))
    assert log.source == ""
    (gap,) = log.gaps()
    assert "cannot be followed" in gap.why
    assert gap.fix
    assert log.take() == []
    assert log.gaps() == []
    log.close()


def journal(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = folder / "journalctl"
    program.write_text(f"#!/bin/sh\n{script}")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def test_the_journal_stands_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = f'{{"__CURSOR":"s=1","__REALTIME_TIMESTAMP":"1772500000000000","PRIORITY":"3","MESSAGE":"{XID}"}}'
    raw = '{"__CURSOR":"s=2","MESSAGE":[104,105,255]}'
    journal(tmp_path, f"echo '{entry}'\necho 'no json'\necho '{raw}'\nexec sleep 1000", monkeypatch)
    log = KernelFollower(path="/nonexistent/kmsg")
    assert log.source == "journalctl -k"
    lines = until(log.take)
    while len(lines) < 2:
        lines += until(log.take)
    assert lines[0] == KernelLine(1772500000.0, 0, 3, XID)
    assert lines[1].text == "hi�"
    assert log.position.cursor == "s=2"
    log.close()


def test_a_journal_that_ends_is_said_and_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal(tmp_path, "exit 1", monkeypatch)
    log = KernelFollower(path="/nonexistent/kmsg")
    for _ in range(500):
        assert log.take() == []
        gaps = log.gaps()
        if gaps:
            break
        time.sleep(0.01)
    assert "journalctl has ended" in gaps[0].why
    assert log.take() == []
    log.close()


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=300))
def test_whatever_stands_in_the_log_is_no_trouble(data: bytes) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "kmsg"
        path.write_bytes(b"")
        log = KernelFollower(name, path="/kmsg")
        path.write_bytes(data + b"\n4,9,9,-;end\n")
        assert log.take()[-1].text == "end"
        log.close()
