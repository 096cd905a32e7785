"""The scan of Python environments: what it finds, what it says of broken ones, and that it runs nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from clinic.asked_fake import FakeAsked
from gpuclinic.clinic.environment_places import thorough
from gpuclinic.clinic.environments import Environment, Scan, Search, scan
from gpuclinic.observe.asking import Answer
from gpuclinic.observe.live import LiveHost
from gpuclinic.observe.recording import RecordingHost, answer_lines, written
from gpuclinic.observe.replay import Replay
from gpuclinic.observe.snapshot import Snapshot
from made_environments import conda, interpreter, package, put, torch, venv

if TYPE_CHECKING:
    from collections.abc import Callable


def passwd(root: Path, *users: tuple[str, int, str]) -> None:
    lines = [
        "root:x:0:0:root:/root:/bin/bash",
        *(f"{name}:x:{uid}:{uid}::{home}:/bin/bash" for name, uid, home in users),
    ]
    put(root / "etc" / "passwd", "\n".join(lines) + "\n")


def live(root: Path, search: Search | None = None) -> Scan:
    host = LiveHost(str(root))
    try:
        return scan(host, search or thorough())
    finally:
        host.close()


def snapshot(root: Path, search: Search | None = None) -> Scan:
    folder = root.parent / "snapshot"
    if not folder.exists():
        folder.mkdir()
        (folder / "root").symlink_to(root)
        (folder / "root").unlink()
        shutil.copytree(root, folder / "root", symlinks=True)
    return scan(Snapshot(folder), search or thorough())


HOSTS = pytest.mark.parametrize("asked", [live, snapshot])


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "machine"
    interpreter(folder)
    passwd(folder, ("alice", 1000, "/home/alice"), ("bob", 1001, "/data/homes/bob"))
    return folder


def by_path(found: Scan) -> dict[str, Environment]:
    return {one.path: one for one in found.environments}


def versions(environment: Environment) -> dict[str, str]:
    return {one.name: one.version for one in environment.packages}


@HOSTS
def test_finds_environments_of_every_kind(root: Path, asked: Callable[[Path], Scan]) -> None:
    torch(venv(root / "home/alice/project/.venv", more="uv = 0.5.1\n"), "2.5.1+cu124", "12.4")
    torch(venv(root / "home/alice/deep/er/proj/env"), "2.4.0+cu121", "12.1")
    conda(root / "home/alice/miniforge3")
    conda(root / "home/alice/miniforge3/envs/train", ("pytorch", "2.5.1", "py3.10_cuda12.4_cudnn9.1.0_0"))
    conda(root / "scratch2/registered", ("cupy", "13.3.0", "py310h0_0"))
    put(root / "home/alice/.conda/environments.txt", "/home/alice/miniforge3\n/scratch2/registered\n/gone\n\n")
    package(venv(root / "home/alice/.local/share/uv/tools/vllm"), "vllm", "0.6.3")
    package(venv(root / "home/alice/.local/share/pipx/venvs/nvitop", more="virtualenv = 20\n"), "nvitop", "1.3.2")
    torch(venv(root / "home/alice/.cache/pypoetry/virtualenvs/x-py3.11"), "2.3.0", "12.1")
    torch(root / "home/alice/.local/lib/python3.10/site-packages", "2.1.0+cu118", "11.8")
    torch(root / "home/alice/.pyenv/versions/3.11.7/lib/python3.11/site-packages", "2.6.0+cu124", "12.4")
    torch(venv(root / "data/homes/bob/v"), "2.5.1+cpu", None)
    conda(root / "opt/conda", ("tensorflow", "2.15.0", "cuda120py310h9360858_3"))
    package(root / "usr/lib/python3/dist-packages", "numpy", "1.21.5", record=False)  # Debian leaves it away
    package(root / "usr/local/lib/python3.10/dist-packages", "jax", "0.4.30")
    found = asked(root)
    got = by_path(found)
    kinds = {path: one.kind for path, one in got.items()}
    assert kinds == {
        "/home/alice/project/.venv": "uv",
        "/home/alice/deep/er/proj/env": "venv",
        "/home/alice/miniforge3": "conda",
        "/home/alice/miniforge3/envs/train": "conda",
        "/scratch2/registered": "conda",
        "/home/alice/.local/share/uv/tools/vllm": "uv",
        "/home/alice/.local/share/pipx/venvs/nvitop": "pipx",
        "/home/alice/.cache/pypoetry/virtualenvs/x-py3.11": "poetry",
        "/home/alice/.local/lib/python3.10/site-packages": "user",
        "/home/alice/.pyenv/versions/3.11.7/lib/python3.11/site-packages": "pyenv",
        "/data/homes/bob/v": "venv",
        "/opt/conda": "conda",
        "/usr/lib/python3/dist-packages": "system",
        "/usr/local/lib/python3.10/dist-packages": "system",
    }
    assert not found.gaps
    assert got["/home/alice/project/.venv"].torch_cuda == "12.4"
    assert got["/home/alice/project/.venv"].python == "3.11.4"
    assert got["/home/alice/miniforge3/envs/train"].package("pytorch").cuda == "12.4"  # type: ignore[union-attr]
    assert got["/home/alice/miniforge3/envs/train"].python == "3.10.13"
    assert got["/opt/conda"].package("tensorflow").cuda == "12.0"  # type: ignore[union-attr]
    assert got["/data/homes/bob/v"].build_told
    assert got["/data/homes/bob/v"].torch_cuda is None
    assert got["/home/alice/.local/lib/python3.10/site-packages"].python == "3.10"
    assert all(not one.problems for one in found.environments)


@HOSTS
def test_broken_ones_are_said(root: Path, asked: Callable[[Path], Scan]) -> None:
    site = venv(root / "opt/broken")
    torch(site, "2.5.1+cu124", "12.4")
    package(site, "torch", "2.4.0")  # a second one; the files are those of the other
    package(site, "xformers", "0.0.28", module="")  # metadata without the package
    put(site / "~riton" / "__init__.py")
    put(
        site / "vllm-0.6.3.dist-info" / "METADATA",
        b"Name: vllm\nVersion: 0.6.3\nAuthor: \xff\xfe\xfa Zo\xeb and a good deal more\n\nText\n",
    )
    put(site / "vllm" / "__init__.py")
    put(site / "vllm-0.6.3.dist-info" / "RECORD")
    put(site / "deepspeed-0.15.0.dist-info" / "METADATA", b"")
    put(site / "deepspeed-0.15.0.dist-info" / "RECORD")
    put(site / "deepspeed" / "__init__.py")
    put(site / "bitsandbytes-0.44.0.dist-info" / "RECORD")
    put(site / "bitsandbytes" / "__init__.py")
    package(site, "flash-attn", "2.6.3", record=False)
    put(site / "tensorflow" / "__init__.py")
    put(site / "jax" / "__pycache__" / "x.pyc")
    put(site / "nonsense.dist-info" / "METADATA")
    put(Path(os.fsdecode(os.fsencode(site) + b"/caf\xe9-1.0.dist-info/METADATA")), "Name: x\n")
    put(site / "__editable__.megatron_core-0.9.0.pth")
    package(site, "megatron-core", "0.9.0", module="")
    got = by_path(asked(root))["/opt/broken"]
    codes = {code for code, _ in got.problems}
    assert codes == {"twice", "no_module", "leftover", "broken", "no_metadata", "remains", "bad_name", "disagree"}
    told = [about for code, about in got.problems if code == "broken"]
    assert any("vllm" in about and "UTF-8" in about for about in told)
    assert any("deepspeed" in about and "empty" in about for about in told)
    assert any("bitsandbytes" in about and "No such file" in about for about in told)
    assert any("flash_attn" in about and "RECORD" in about for about in told)
    assert ("twice", "torch 2.4.0, 2.5.1+cu124") in got.problems
    assert got.editable == ["megatron-core"]
    assert all(text.encode() for _, text in got.problems)  # no half characters


@HOSTS
def test_an_interpreter_that_is_gone_and_files_that_are_no_settings(root: Path, asked: Callable[[Path], Scan]) -> None:
    torch(venv(root / "srv/a/v", python="3.9.2", home="/usr/lib/gone/bin"), "2.0.1+cu118", "11.8")
    put(root / "srv/b/pyvenv.cfg", b"\xff\xff\0\0")
    put(root / "srv/c/pyvenv.cfg", "home = /usr/bin\nversion = 3.11.2\n")
    (root / "srv/d/conda-meta").mkdir(parents=True)
    put(root / "srv/d/conda-meta/pytorch-2.5.1-cuda126_0.json", "no json")
    put(root / "srv/d/conda-meta/what.json", "{}")
    got = by_path(asked(root))
    assert ("interpreter_gone", "/usr/lib/gone/bin/python3.9") in got["/srv/a/v"].problems
    assert {code for code, _ in got["/srv/d"].problems} == {"broken", "bad_name"}
    assert "/srv/c" not in got or got["/srv/c"].problems


def test_conda_and_pip_beside_one_another(root: Path) -> None:
    site = conda(
        root / "opt/conda", ("pytorch", "2.4.1", "py3.10_cuda12.1_cudnn9.1.0_0"), ("numpy", "1.26.4", "py310hb13e2d6_0")
    )
    torch(site, "2.6.0+cu124", "12.4")
    package(site, "numpy", "1.26.4")
    got = by_path(live(root))["/opt/conda"]
    assert ("conda_and_pip", "torch 2.4.1 / 2.6.0+cu124") in got.problems
    assert versions(got) == {"python": "3.10.13", "numpy": "1.26.4", "torch": "2.6.0+cu124"}
    assert got.count == 3


def test_unreadable_homes_are_a_gap_and_no_crash(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch(venv(root / "home/alice/v"), "2.5.1+cu124", "12.4")
    torch(venv(root / "home/secret/v"), "2.5.1+cu124", "12.4")
    (root / "home/secret").chmod(0)
    if os.access(root / "home/secret", os.R_OK):
        pytest.skip("root may read everything: nothing is refused here")
    found = live(root)
    assert "/home/alice/v" in by_path(found)
    assert any("/home/secret" in gap.why and "root" in gap.why for gap in found.gaps)


def test_what_the_child_may_not_open_is_a_gap() -> None:
    class Refusing(FakeAsked):
        def find(self, start: str, names: list[str], **limits: object) -> Answer:
            if start == "/home/*":
                return Answer(
                    "find",
                    b'{"found": ["/home/a/v/pyvenv.cfg"], "folders": 3, "refused": ["/home/secret"], "cut": null}',
                )
            return super().find(start, names)

    found = scan(Refusing({"/home/a/v/pyvenv.cfg": "home = /usr/bin\nversion = 3.11.2\n"}), Search())
    assert [gap.why for gap in found.gaps] == ["1 folders cannot be opened (/home/secret); as root they can"]
    assert ("no_packages", "/home/a/v/lib") in found.environments[0].problems


def test_no_link_leads_out(root: Path, tmp_path: Path) -> None:
    secret = put(tmp_path / "secret", "Name: secret\nVersion: 9\n")
    secret.chmod(0o600)
    site = venv(root / "opt/v")
    package(site, "torch", "2.5.1")
    metadata = site / "torch-2.5.1.dist-info/METADATA"
    metadata.unlink()
    metadata.symlink_to(secret)
    (root / "opt/loop").symlink_to(root / "opt")
    (root / "opt/out").symlink_to(tmp_path)
    os.mkfifo(site / "vllm-0.6.3.dist-info")
    found = live(root)
    assert set(by_path(found)) == {"/opt/v"}
    if os.getuid() == 0:
        os.lchown(metadata, 1000, 1000)
        got = by_path(live(root))["/opt/v"]
        assert (
            "broken",
            "/opt/v/lib/python3.11/site-packages/torch-2.5.1.dist-info/METADATA: a link to what its owner may not read",
        ) in got.problems


def test_a_recorded_scan_replays_the_same(root: Path, tmp_path: Path) -> None:
    torch(venv(root / "home/alice/v"), "2.5.1+cu124", "12.4")
    conda(root / "opt/conda", ("pytorch", "2.5.1", "cuda126_py310_0"))
    recorder = RecordingHost(LiveHost(str(root)))
    first = scan(recorder, thorough())
    recorder.close()
    files = written(recorder, lambda _, data: data, lambda text: text)
    for name, data in files.files.items():
        put(tmp_path / "capture" / name, data)
    put(tmp_path / "capture" / "answers.jsonl", answer_lines(files.lines, "0", live=True))
    again = scan(Replay(tmp_path / "capture", "x", {}), thorough())
    assert [one.path for one in again.environments] == [one.path for one in first.environments]
    assert again.environments == first.environments


def test_limits_are_told(root: Path) -> None:
    for number in range(60):
        put(root / f"data/d{number}/x/file")
    torch(venv(root / "data/zz/v"), "2.5.1", "12.4")
    found = live(root, Search(folders=20, deep=True))
    assert any(text.startswith("/data (20 folders") for text in found.cut)
    assert "/data/zz/v" in by_path(live(root))


def test_containers_are_searched_where_they_can_be_reached(root: Path) -> None:
    merged = root / "var/lib/docker/overlay2/0a1b2c3d4e5f67/merged"
    interpreter(merged)
    torch(merged / "usr/local/lib/python3.10/dist-packages", "2.6.0a0+ecf3bae40a.nv25.1", "12.8")
    torch(venv(merged / "opt/venv"), "2.5.1+cu124", "12.4")
    found = by_path(live(root))
    inside = {path: one.container for path, one in found.items() if one.container}
    base = "/var/lib/docker/overlay2/0a1b2c3d4e5f67/merged"
    assert inside == {
        f"{base}/usr/local/lib/python3.10/dist-packages": "0a1b2c3d4e5f",
        f"{base}/opt/venv": "0a1b2c3d4e5f",
    }
    assert not any(one.container for one in live(root, Search()).environments)


_TRACED = """
import sys
from pathlib import Path
sys.path.insert(0, {src!r})
from gpuclinic.observe.asking import Answer
from gpuclinic.observe.live import LiveHost
from gpuclinic.clinic.environment_places import thorough
from gpuclinic.clinic.environments import scan
scan(LiveHost({empty!r}), thorough())      # imports what it needs itself
seen = []
def hook(event, arguments):
    if event in ("import", "exec", "compile", "os.exec", "os.posix_spawn", "subprocess.Popen", "os.system", "ctypes.dlopen"):
        seen.append((event, str(arguments)[:200]))
sys.addaudithook(hook)
host = LiveHost({root!r})
found = scan(host, thorough())
host.close()
print(len(found.environments), seen)
"""


def _tree(root: Path) -> None:
    for number in range(3):
        site = venv(root / f"home/alice/v{number}")
        torch(site, "2.5.1+cu124", "12.4")
        put(site / "sitecustomize.py", "raise SystemExit('ran')\n")
        put(site / "zz.pth", "import os; os.system('touch /tmp/ran')\n")


def test_nothing_is_imported_or_run(root: Path, tmp_path: Path) -> None:
    _tree(root)
    (tmp_path / "empty").mkdir()
    code = _TRACED.format(src=str(Path(__file__).parents[2] / "src"), empty=str(tmp_path / "empty"), root=str(root))
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert told.stdout == "3 []\n", told


def test_nothing_of_an_environment_is_executed_or_opened_for_writing(root: Path, tmp_path: Path) -> None:
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    _tree(root)
    (tmp_path / "empty").mkdir()
    code = _TRACED.format(src=str(Path(__file__).parents[2] / "src"), empty=str(tmp_path / "empty"), root=str(root))
    trace = tmp_path / "trace"
    told = subprocess.run(
        ["strace", "-f", "-o", str(trace), "-e", "trace=execve,openat,mmap", sys.executable, "-c", code],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    if not trace.exists() or "ptrace" in told.stderr:
        pytest.skip("strace may not trace here")
    lines = trace.read_text(errors="replace").splitlines()
    assert sum("execve(" in line for line in lines) == 1
    ours = [line for line in lines if str(root) in line]
    assert any("METADATA" in line for line in ours)
    assert not [line for line in ours if "O_RDONLY" not in line]
    assert not [line for line in ours if "sitecustomize" in line or ".pth" in line or "__init__" in line]
