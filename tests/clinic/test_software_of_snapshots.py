"""Environments of a snapshot whose GPUs only nvidia-smi's output tells of are judged against these GPUs, by check, compat and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpuclinic.cli.software import judge_software
from gpuclinic.clinic import examine
from gpuclinic.clinic.checking import CheckOptions, check
from gpuclinic.clinic.environment_list import list_environments
from gpuclinic.observe import Places
from gpuclinic.observe.snapshot import open_snapshot

if TYPE_CHECKING:
    from pathlib import Path

SMI = """
==============NVSMI LOG==============

Timestamp                                 : Mon Apr 21 08:00:00 2025
Driver Version                            : 570.124.06
CUDA Version                              : 12.8

Attached GPUs                             : 1
GPU 00000000:01:00.0
    Product Name                          : NVIDIA GeForce RTX 5090
    Product Brand                         : GeForce
"""
LOG = "RuntimeError: CUDA error: no kernel image is available for execution on the device\n"
SITE = "root/opt/vllm/lib/python3.10/site-packages"


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    files = {
        "commands/nvidia-smi-q.txt": SMI,
        "root/var/log/vllm.log": LOG,
        "root/opt/vllm/pyvenv.cfg": "home = /usr/bin\nversion = 3.10.12\n",
        "root/opt/vllm/bin/python": "",
        f"{SITE}/torch/version.py": "__version__ = '2.6.0+cu124'\ncuda = '12.4'\n",
        f"{SITE}/torch/__init__.py": "",
        f"{SITE}/torch-2.6.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: torch\nVersion: 2.6.0\n\nName: other\n",
        f"{SITE}/torch-2.6.0.dist-info/RECORD": "torch/__init__.py,,\n",
    }
    for name, text in files.items():
        place = tmp_path / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    return tmp_path


def test_check_names_the_environment(snapshot: Path) -> None:
    host = open_snapshot(snapshot)
    try:
        answer = check(host, CheckOptions(), software=judge_software)
    finally:
        host.close()
    found = next(f for f in answer.findings if f.id == "software.environment.arch")
    assert "torch 2.6.0" in found.detail


def test_compat_does_not_call_it_working(snapshot: Path) -> None:
    host = open_snapshot(snapshot)
    try:
        answer = list_environments(host, judge_software, "en")
    finally:
        host.close()
    assert answer.machine.gpus == ["NVIDIA GeForce RTX 5090"]
    assert answer.verdict == "fails"


def test_why_names_the_versions(snapshot: Path) -> None:
    cause = examine(Places([str(snapshot)]), "en", None, None, judge_software).causes[0]
    assert cause.id == "compat.arch_unsupported"
    assert "torch==2.7.0" in cause.steps[0]["command"]
    assert any(place.source.endswith("torch-2.6.0.dist-info/METADATA") for place in cause.evidence)
    assert not any("'9.0'" in step["command"] for step in cause.steps)
