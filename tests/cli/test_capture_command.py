"""`gpuclinic capture` as a program: what it writes, says and refuses."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
CODE = "from gpuclinic.cli.main import entry; entry()"


def run(*arguments: str, folder: Path | None = None, **environment: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-c", CODE, *arguments], input=b"", capture_output=True, timeout=120, cwd=folder,
        env={**os.environ, "LC_ALL": "C.UTF-8", **environment},
    )  # fmt: skip


@pytest.fixture
def server(tmp_path: Path) -> Path:
    """A sick server on disk."""
    for name, text in {
        "root/dev/kmsg": "3,101,500000000,-;NVRM: Xid (PCI:0000:9a:00): 79, pid=41822, name=python, GPU has fallen off the bus.\n",
        "root/proc/uptime": "600.0 1000.0\n", "root/proc/sys/kernel/hostname": "dgx-h100-03\n",
        "root/sys/bus/pci/devices/0000:9a:00.0/vendor": "0x10de\n", "root/sys/bus/pci/devices/0000:9a:00.0/class": "0x030200\n",
        "snapshot.json": '{"time": "2026-03-02T04:12:00+00:00"}',
    }.items():  # fmt: skip
        (tmp_path / "server" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "server" / name).write_text(text)
    return tmp_path / "server"


def answer(*arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(*arguments, "--json").stdout)
    return {name: value for name, value in found.items() if name not in ("time", "seconds")}


def test_verdict_place_and_how_to_go_on(server: Path, tmp_path: Path) -> None:
    done = run("capture", "--host", str(server), "-o", str(tmp_path / "a.tar.gz"))
    assert (done.returncode, done.stderr) == (0, b"")
    lines = done.stdout.decode().splitlines()
    assert lines[0].startswith("CRITICAL: ")
    assert str(tmp_path / "a.tar.gz") in lines[1]
    assert stat.S_IMODE((tmp_path / "a.tar.gz").stat().st_mode) == 0o600
    assert answer("check", "--host", str(tmp_path / "a.tar.gz")) == {
        **answer("check", "--host", str(server)),
        "host": "dgx-h100-03",
    }
    why = run("why", str(tmp_path / "a.tar.gz"))
    assert b"hw.gpu.fallen_off_bus" in why.stdout


def test_the_default_name_tells_host_and_time(server: Path, tmp_path: Path) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    assert run("capture", "--host", str(server), folder=folder).returncode == 0
    assert run("capture", "--host", str(server), "-o", str(folder), folder=tmp_path).returncode == 0
    name = "gpuclinic-dgx-h100-03-20260302T041200Z"
    assert sorted(path.name for path in folder.iterdir()) == [
        f"{name}-1.tar.gz",
        f"{name}.tar.gz",
    ]  # no older one is lost


@pytest.mark.parametrize("name", ["new", "new/", "new.d/"])
def test_a_folder_that_is_not_there_is_made(server: Path, tmp_path: Path, name: str) -> None:
    done = run("capture", "--host", str(server), "-o", f"{tmp_path}/{name}")
    assert (done.returncode, done.stderr) == (0, b"")
    assert [path.name for path in (tmp_path / name).iterdir()] == ["gpuclinic-dgx-h100-03-20260302T041200Z.tar.gz"]


def test_nothing_that_exists_is_replaced_unasked(server: Path, tmp_path: Path) -> None:
    archive, mapping = tmp_path / "a.tar.gz", tmp_path / "names.json"
    command = ["capture", "--host", str(server), "--anonymise", "-o", str(archive), "--mapping", str(mapping)]
    assert run(*command).returncode == 0
    for lost in (archive, mapping):
        other = mapping if lost is archive else archive
        other.unlink()
        before = lost.read_bytes()
        done = run(*command)
        assert done.returncode == 64
        assert f"{lost}: exists already".encode() in done.stderr
        assert lost.read_bytes() == before
        assert not other.exists()
        assert run(*command, "--force").returncode == 0
        assert lost.read_bytes() != before
        assert other.exists()


@pytest.mark.parametrize(
    "how", ["x.tar.gz", "./x.tar.gz", "sub/../x.tar.gz", "link.tar.gz", "hard.tar.gz", "linked/x.tar.gz"]
)
@pytest.mark.parametrize("there", [True, False])
def test_the_list_of_names_never_takes_the_place_of_the_archive(
    server: Path, tmp_path: Path, how: str, there: bool
) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "linked").symlink_to(tmp_path)
    (tmp_path / "link.tar.gz").symlink_to(tmp_path / "x.tar.gz")
    if there:
        (tmp_path / "x.tar.gz").write_bytes(b"older")
        (tmp_path / "hard.tar.gz").hardlink_to(tmp_path / "x.tar.gz")
    elif how == "hard.tar.gz":
        pytest.skip("there is no second name of what is not there")
    for given in (["-o", "x.tar.gz", "--mapping", how], ["-o", how, "--mapping", "x.tar.gz"]):
        done = run("capture", "--host", str(server), "--anonymise", "--force", *given, folder=tmp_path)
        assert done.returncode == 64
        assert b"the archive itself" in done.stderr
        assert (tmp_path / "x.tar.gz").exists() == there
        assert not there or (tmp_path / "x.tar.gz").read_bytes() == b"older"


def test_nor_the_place_of_the_file_that_the_archive_is_written_to(server: Path, tmp_path: Path) -> None:
    with (tmp_path / "x.tar.gz").open("wb") as out:
        done = subprocess.run(
            [sys.executable, "-m", "gpuclinic", "capture", "--host", str(server), "--anonymise", "--force", "-o", "-", "--mapping", "x.tar.gz"],
            cwd=tmp_path, stdout=out, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
    assert done.returncode == 64
    assert b"the archive itself" in done.stderr


def test_standard_output_holds_the_archive_alone(server: Path, tmp_path: Path) -> None:
    done = run("capture", "--host", str(server), "-o", "-", "--lang", "zh")
    assert done.returncode == 0
    assert "严重" in done.stderr.decode()
    (tmp_path / "b.tar.gz").write_bytes(done.stdout)
    with tarfile.open(tmp_path / "b.tar.gz") as archive:
        assert any(name.endswith("/answers.jsonl") for name in archive.getnames())


@pytest.mark.parametrize("ending", [".tar", ".tar.xz", ".tgz"])
def test_other_archives(server: Path, tmp_path: Path, ending: str) -> None:
    assert run("capture", "--host", str(server), "-o", str(tmp_path / f"a{ending}")).returncode == 0
    assert answer("check", "--host", str(tmp_path / f"a{ending}"))["verdict"] == "critical"


def test_names_are_replaced_and_the_owner_has_the_list(server: Path, tmp_path: Path) -> None:
    mapping = tmp_path / "names.json"
    done = run(
        "capture", "--host", str(server), "-o", str(tmp_path / "a.tar.gz"), "--anonymise", "--mapping", str(mapping)
    )
    assert done.returncode == 0
    assert stat.S_IMODE(mapping.stat().st_mode) == 0o600
    name = json.loads(mapping.read_text())["dgx-h100-03"]
    assert answer("check", "--host", str(tmp_path / "a.tar.gz"))["host"] == name
    again = run(
        "capture",
        "--host",
        str(server),
        "-o",
        str(tmp_path / "b.tar.gz"),
        "--anonymise",
        "--mapping",
        str(mapping),
        "--force",
    )
    assert again.returncode == 0
    assert json.loads(mapping.read_text())["dgx-h100-03"] != name  # another capture, another key


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["-o", "a.zip"], b"ends in one of"),
        (["-o", "/nowhere/a.tar.gz"], b"/nowhere/a.tar.gz: No such file"),
        (["-o", "/nowhere/folder"], b"/nowhere/folder/gpuclinic-"),
        (["-o", "/dev/null"], b"ends in one of"),
        (["-o", "/dev/null/a.tar.gz"], b"a.tar.gz"),
        (["--since", "yesteryear"], b"--since"),
        (["--max-size", "9"], b"--max-size"),
        (["--max-size", "x"], b"--max-size"),
        (["--mapping", "m.json"], b"--anonymise"),
        (["--host", "/nowhere"], b"no such file"),
    ],
)
def test_wrong_command_lines(server: Path, tmp_path: Path, arguments: list[str], told: bytes) -> None:
    done = run("capture", *([] if "--host" in arguments else ["--host", str(server)]), *arguments, folder=tmp_path)
    assert done.returncode == 64
    assert told in done.stderr
    assert done.stderr.count(b"\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["server"]


def test_a_broken_archive_is_a_line_and_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "a.tar.gz").write_bytes(b"\x1f\x8b\x08\0\0\0\0\0\0\0 nothing")
    for command in (["check", "--host"], ["capture", "--host"]):
        done = run(*command, str(tmp_path / "a.tar.gz"), folder=tmp_path)
        assert done.returncode == 3
        assert b"Traceback" not in done.stderr
        assert done.stderr.count(b"\n") == 1


def test_an_interrupted_capture_leaves_nothing(server: Path, tmp_path: Path) -> None:
    """The archive gets its name at the end; until then it has none, or a hidden one that is removed."""
    folder = tmp_path / "out"
    folder.mkdir()
    code = (
        "import sys; import gpuclinic.clinic.capturing as c\n"
        "def stop(*a):\n    a[1].write(b'half'); raise KeyboardInterrupt\n"
        "c.write_capture = stop\n" + CODE
    )  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", code, "capture", "--host", str(server), "-o", str(folder / "a.tar.gz")], capture_output=True, timeout=60
    )  # fmt: skip
    assert done.returncode == 130
    assert list(folder.iterdir()) == []


def test_this_machine(tmp_path: Path) -> None:
    """With or without GPU, root or driver: it captures, and the archive gives what check gave here."""
    done = run("capture", "-o", str(tmp_path / "a.tar.gz"), "--since", "1m", "--max-time", "60")
    assert done.returncode in (0, 3)
    assert (tmp_path / "a.tar.gz").stat().st_size < 50 << 20
    there = answer("check", "--host", str(tmp_path / "a.tar.gz"))
    assert (
        done.stdout.decode().split("\n", 1)[0].partition(":")[0].lower().replace("fit for work", "ok")
        == there["verdict"]
    )


@pytest.mark.parametrize(
    ("example", "verdict", "found"),
    [("healthy-server", "ok", set()), ("sick-server", "critical", {"gpu.lost", "gpu.remap.pending"})],
)
def test_the_examples_need_no_gpu(example: str, verdict: str, found: set[str]) -> None:
    path = EXAMPLES / f"{example}.tar.gz"
    assert path.stat().st_size < 200_000
    given = answer("check", "--host", str(path))
    assert given["verdict"] == verdict
    assert {one["id"] for one in given["findings"] if one["severity"] != "info"} == found
    why = answer("why", str(path))
    assert [cause["id"] for cause in why["causes"]][:1] == (["hw.gpu.fallen_off_bus"] if found else [])


def test_help_names_examples() -> None:
    assert b"ssh node17 gpuclinic capture -o -" in run("capture", "--help").stdout
