"""`gpuclinic compat` where no look brought a GPU: by what nvidia-smi printed, else not "works"."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from gpuclinic.cli.main import main
from made_environments import interpreter, torch, venv

if TYPE_CHECKING:
    from pathlib import Path

_SMI = """\
==============NVSMI LOG==============

Timestamp                                 : Mon Nov  2 10:00:00 2026
Driver Version                            : 570.124.06
CUDA Version                              : 12.8

Attached GPUs                             : 1
GPU 00000000:01:00.0
    Product Name                          : NVIDIA GeForce RTX 5090
    Product Brand                         : GeForce
    Persistence Mode                      : Disabled
"""


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A snapshot made by hand without GPU and driver."""
    root = tmp_path / "root"
    interpreter(root)
    torch(venv(root / "opt/old"), "2.6.0+cu124", "12.4")
    return tmp_path


def asked(folder: Path, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict]:
    code = main(["compat", "--host", str(folder), "--json", *words])
    return code, json.loads(capsys.readouterr().out)


def test_gpus_and_driver_by_what_nvidia_smi_printed(bare: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (bare / "commands").mkdir()
    (bare / "commands/nvidia-smi-q.txt").write_text(_SMI)
    code, body = asked(bare, capsys)
    assert (code, body["problems"][0]["id"]) == (2, "compat.arch_unsupported")
    assert body["machine"]["gpus"] == ["NVIDIA GeForce RTX 5090"]
    assert body["machine"]["driver"] == "570.124.06"
    code, body = asked(bare, capsys, "--want", "torch==2.6.0+cu124")
    assert (code, body["problems"][0]["id"]) == (2, "compat.arch_unsupported")


def test_without_gpu_or_driver_nothing_for_gpus_works(bare: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, body = asked(bare, capsys)
    assert code == 3
    assert body["environments"][0]["verdict"] == "unknown"
    assert "--gpu" in body["environments"][0]["unknown"][0]
    assert asked(bare, capsys, "--want", "torch==1.8.0+cu102")[0] == 3
    assert asked(bare, capsys, "--gpu", "A100", "--want", "torch==2.6.0+cu124")[0] == 3
    assert asked(bare, capsys, "--gpu", "A100", "--driver", "550.54.15", "--want", "torch==2.6.0+cu124")[0] == 0
    assert asked(bare, capsys, "--want", "numpy==1.26.4")[0] == 0
    assert asked(bare, capsys, "--want", "torch==2.6.0", "numpy==1.26.4", "torch==2.5.0")[0] == 2
    assert not any("--expect-gpus" in gap["why"] for gap in asked(bare, capsys)[1]["not_looked_at"])


def test_a_gpu_alone_is_told_of(bare: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compat", "--host", str(bare), "--gpu", "H100"]) == 3
    out = capsys.readouterr().out
    assert "Hopper" in out
    assert "--driver" in out
