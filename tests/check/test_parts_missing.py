"""What a snapshot made by hand does not hold was not looked at: taking a part away makes nothing worse than it was."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gpuclinic.clinic.checking import CheckOptions, check
from gpuclinic.observe.snapshot import Snapshot

if TYPE_CHECKING:
    from collections.abc import Iterator

SERVERS = Path(__file__).parents[1] / "servers"
EXAMPLES = Path(__file__).parents[2] / "examples"
sys.path.insert(0, str(SERVERS))
from bundle import unpacked  # noqa: E402 - beside the servers, since it also makes them

QUICK = (
    "h01-dgx-h100-idle",
    "h09-slurm-resumed",
    "h13-b200-open",
    "m05-new-kernel-no-module",
    "s03-next-kernel-no-module",
)
"""Of the servers those that hold most; --slow takes all."""
NAMES = sorted(place.parent.name for place in SERVERS.glob("*/server.txt"))
_OPENED = ("sys", "proc", "etc", "var", "usr", "lib")
KNOWN = {
    (
        "n02-rocky-nfs-full-mount-text",
        "commands/mount.txt",
        "storage.space.network",
    ),  # full it is, by df; only mount says that nobody writes there
}


def _grave(folder: Path, expect_gpus: int | None) -> tuple[set[str], set[str]]:
    """Findings above info; all ids told, those that others explain and those that are only mentioned included."""
    host = Snapshot(folder)
    answer = check(host, CheckOptions(expect_gpus=expect_gpus))
    told = {finding.id for finding in answer.findings} | {
        name for finding in answer.findings for name in finding.implies
    }
    return {finding.id for finding in answer.findings if finding.severity != "info"}, told


def _parts(folder: Path, *, deep: bool) -> Iterator[Path]:
    root, commands = folder / "root", folder / "commands"
    for top in sorted(root.iterdir()) if root.is_dir() else []:
        yield top
        if top.name in _OPENED and top.is_dir() and not top.is_symlink():
            for part in sorted(top.iterdir()):
                if not part.name.isdigit():  # a process less in the list of processes is one that is not there
                    yield part
                    if deep and part.is_dir() and not part.is_symlink():
                        yield from sorted(part.iterdir())
    yield from sorted(commands.iterdir()) if commands.is_dir() else []
    yield from sorted(path for path in folder.iterdir() if path.is_file())


def _grew_worse(folder: Path, aside: Path, expect_gpus: int | None, *, deep: bool) -> list[tuple[str, str]]:
    _, before = _grave(folder, expect_gpus)
    worse: list[tuple[str, str]] = []
    for part in list(_parts(folder, deep=deep)):
        part.rename(aside)
        now, _ = _grave(folder, expect_gpus)
        aside.rename(part)
        worse += [(str(part.relative_to(folder)), name) for name in sorted(now - before)]
    return worse


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in NAMES]
)
def test_what_is_not_there_is_no_fault(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    folder = unpacked((SERVERS / name / "server.txt").read_text(errors="surrogateescape"), tmp_path / "s")
    expect_gpus = json.loads((SERVERS / name / "expect.json").read_text()).get("expect_gpus")
    deep = bool(request.config.getoption("--slow"))
    worse = _grew_worse(folder, tmp_path / "aside", expect_gpus, deep=deep)
    assert [(part, found) for part, found in worse if (name, part, found) not in KNOWN] == []


@pytest.mark.parametrize("name", ["healthy-server", "sick-server"])
def test_nor_is_what_a_capture_without_its_list_of_answers_does_not_hold(name: str, tmp_path: Path) -> None:
    shutil.unpack_archive(EXAMPLES / f"{name}.tar.gz", tmp_path / "s")
    folder = next((tmp_path / "s").iterdir())
    (folder / "answers.jsonl").unlink()
    assert _grew_worse(folder, tmp_path / "aside", None, deep=False) == []


def test_slurm_alone_counts_no_gpus(tmp_path: Path) -> None:
    for path, text in {
        "proc/sys/kernel/hostname": "n1\n",
        "etc/slurm/slurm.conf": "NodeName=n1 Gres=gpu:h100:8\n",
        "etc/slurm/gres.conf": "NodeName=n1 Name=gpu File=/dev/nvidia[0-7]\n",
    }.items():
        (tmp_path / "root" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "root" / path).write_text(text)
    assert _grave(tmp_path, None)[0] == set()
