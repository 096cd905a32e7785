"""Whole servers, fake but complete: check and why on the capture equal what the server gave, with and without its names."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
server_of = pytest.importorskip("fakes.server", reason="the fake server is not here")

if TYPE_CHECKING:
    from pathlib import Path

CODE = "from gpuclinic.cli.main import entry; entry()"
FAULTS = [
    [],
    ["lost:3"],
    ["lost:3", "remap_pending:1"],
    ["ecc_ue:2"],
    ["module_mismatch"],
    ["no_driver"],
    ["pcie_width:1:8"],
]


def _run(server: Any, *arguments: str) -> dict[str, Any]:
    """The JSON of a command on the server, or on an archive; what depends on the moment of asking is left out."""
    done = subprocess.run(
        [sys.executable, "-c", CODE, *arguments, "--json"],
        capture_output=True,
        env={**os.environ, **server.env},
        timeout=120,
    )
    assert b"Traceback" not in done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return {name: value for name, value in found.items() if name not in ("time", "seconds")}


def _capture(server: Any, *arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE, "capture", *arguments],
        capture_output=True,
        env={**os.environ, **server.env},
        timeout=120,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("faults", FAULTS, ids=lambda faults: "+".join(faults) or "healthy")
def test_check_gives_the_same_from_the_archive(tmp_path: Path, faults: list[str]) -> None:
    server = server_of.build_server(tmp_path / "server", "h100-sxm", 8, faults=faults)
    live = _run(server, "check")
    _capture(server, "-o", str(tmp_path / "a.tar.gz"))
    assert _run(server, "check", "--host", str(tmp_path / "a.tar.gz")) == live


def test_check_gives_the_same_without_names(tmp_path: Path) -> None:
    server = server_of.build_server(tmp_path / "server", "h100-sxm", 8, faults=["lost:3", "remap_pending:1"])
    live = _run(server, "check")
    mapping = tmp_path / "names.json"
    _capture(server, "-o", str(tmp_path / "a.tar.gz"), "--anonymise", "--mapping", str(mapping))
    there = _run(server, "check", "--host", str(tmp_path / "a.tar.gz"))
    names = json.loads(mapping.read_text())
    assert there["host"] == names[live["host"]]
    text = json.dumps(live)
    for old, new in sorted(names.items(), key=lambda pair: -len(pair[0])):
        text = text.replace(old, new)
    assert there["findings"] == json.loads(text)["findings"]
    assert there["not_looked_at"] == json.loads(text)["not_looked_at"]


def test_samples_are_replayed(tmp_path: Path) -> None:
    """Counters that grow are seen to grow in the archive, too."""
    server = server_of.build_server(tmp_path / "server", "h100-sxm", 2)
    _capture(server, "-o", str(tmp_path / "a.tar.gz"), "--seconds", "2")
    first = _run(server, "check", "--host", str(tmp_path / "a.tar.gz"))
    again = _run(server, "check", "--host", str(tmp_path / "a.tar.gz"))
    assert first == again
    assert first["verdict"] == "ok"
    _capture(server, "--host", str(tmp_path / "a.tar.gz"), "-o", str(tmp_path / "b.tar.gz"))
    assert _run(server, "check", "--host", str(tmp_path / "b.tar.gz")) == first


@pytest.mark.parametrize("faults", FAULTS[:4], ids=lambda faults: "+".join(faults) or "healthy")
def test_why_gives_the_same_from_the_archive(tmp_path: Path, faults: list[str]) -> None:
    server = server_of.build_server(tmp_path / "server", "h100-sxm", 8, faults=faults)
    live = _run(server, "why", "--live")
    _capture(server, "-o", str(tmp_path / "a.tar.gz"))
    there = _run(server, "why", str(tmp_path / "a.tar.gz"))
    assert there == live
    assert (live["outcome"] == "cause") == bool(faults)
    mapping = tmp_path / "names.json"
    _capture(server, "-o", str(tmp_path / "b.tar.gz"), "--anonymise", "--mapping", str(mapping))
    text = json.dumps(live)
    for old, new in sorted(json.loads(mapping.read_text()).items(), key=lambda pair: -len(pair[0])):
        text = text.replace(old, new)
    named = _run(server, "why", str(tmp_path / "b.tar.gz"))
    assert named["causes"] == json.loads(text)["causes"]
    assert named["outcome"] == live["outcome"]


@pytest.mark.parametrize("faults", [[], ["gsp_timeout"]], ids=lambda faults: "+".join(faults) or "healthy")
def test_questions_about_processes_get_the_same_answer_from_the_archive(tmp_path: Path, faults: list[str]) -> None:
    """What a capture cannot hold (a program asked about one process) is told as not read; all else is as it was there."""
    server = server_of.build_server(tmp_path / "server", "h100-sxm", 8, faults=faults)
    _capture(server, "-o", str(tmp_path / "a.tar.gz"))
    for question in (["--pid", "1"], ["--pid", "2"], ["--pid", "1201"], ["--pid", "41004"], ["--pid", "43214"], ["--job", "999"]):  # fmt: skip
        live = _run(server, "why", *question)
        there = _run(server, "why", "--host", str(tmp_path / "a.tar.gz"), *question)
        for name in ("outcome", "causes", "notes", "missing", "fingerprint", "asked"):
            assert there[name] == live[name], (question, name)
        new = [gap for gap in there["not_read"] if gap not in live["not_read"]]
        assert all(gap["why"] == "not asked when this was captured" for gap in new)
