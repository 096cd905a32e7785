"""Folders deeper than Python nests calls, hardly a file that may be opened, no place to unpack to, no /proc: told in a line, and nothing is left behind."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from gpuclinic.model import CouldNotError, NotRead
from gpuclinic.observe import Places, nvml
from gpuclinic.observe._private import PrivateFolder
from gpuclinic.observe.snapshot import Snapshot, open_snapshot

HEALTHY = Path(__file__).parents[2] / "examples" / "healthy-server.tar.gz"
CODE = "from gpuclinic.cli.start import entry; entry()"


def test_folders_as_deep_as_paths_reach() -> None:
    folder = PrivateFolder()
    place = f"{folder.name}/commands"
    Path(place).mkdir()
    for _ in range(1500):
        place += "/d"
        os.mkdir(place)  # noqa: PTH102 - pathlib nests
    Path(f"{place}/log").write_text("text\n")
    found = list(Places([folder.name]).items())
    assert [item.path.rpartition("/")[2] for item in found if not isinstance(item, NotRead)] == ["log"]
    assert [answer.text for _, answer in Snapshot(Path(folder.name)).texts()] == ["text\n"]
    folder.cleanup()
    assert not Path(folder.name).exists()


def test_a_folder_that_cannot_be_entered_is_told(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("text\n")
    place = str(tmp_path)
    at = os.open(place, os.O_RDONLY)
    for _ in range(60):
        os.mkdir("d" * 100, dir_fd=at)
        below = os.open("d" * 100, os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)
    not_read = [item for item in Places([place]).items() if isinstance(item, NotRead)]
    assert [item.why for item in not_read] == [os.strerror(errno.ENAMETOOLONG)]
    assert len(not_read[0].path) < 400


def test_an_archive_under_a_tight_limit_of_descriptors_leaves_nothing_behind(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE, "check", "--host", str(HEALTHY)], env={**os.environ, "TMPDIR": str(tmp_path)}, capture_output=True,
        text=True, check=False, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (12, 12)),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.iterdir()) == []


def test_no_place_to_unpack_to_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(**_: object) -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "mkdtemp", none)
    with pytest.raises(CouldNotError, match="TMPDIR"):
        open_snapshot(HEALTHY)


def test_a_disk_too_full_to_unpack_to_is_no_damage_of_the_archive(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE, "check", "--host", str(HEALTHY)], env={**os.environ, "TMPDIR": str(tmp_path)}, capture_output=True,
        text=True, check=False, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)),
    )  # fmt: skip
    assert done.returncode == 3
    assert "cannot be unpacked to" in done.stderr
    assert "File too large" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_without_proc_no_copy_of_this_process_is_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(path: str) -> list[str]:
        raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)

    monkeypatch.setattr(os, "listdir", refused)
    assert not nvml._has_one_thread()
