"""Captures of real machines: nothing above info on healthy ones, the fault on sick ones."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gpuclinic.clinic.checking import CheckOptions, check
from gpuclinic.observe.snapshot import Snapshot

if TYPE_CHECKING:
    from gpuclinic.model import Finding

SHARED = Path(os.environ.get("GPUCLINIC_SHARED", Path(__file__).parents[3] / "shared")) / "data"
SICK = {
    "qx-gb200-lost.xml": {("gpu.lost", "0000:0b:00.0"), ("gpu.remap.failed", "0000:0a:00.0")},
    "qx-gb200-ecc-injected.xml": {("gpu.remap.failed", "0000:0a:00.0")},
    "qx-gb200-fabric-degraded.xml": {("gpu.fabric.health", "0000:0b:00.0")},
}
XML = sorted(SHARED.glob("nvidia-smi-xml/**/*.xml"))
TEXTS = sorted(SHARED.glob("nvidia-smi-captures/*.txt"))
LINKS = sorted(SHARED.glob("topo/nvlink__*.txt"))

pytestmark = pytest.mark.skipif(not SHARED.is_dir(), reason=f"no captures in {SHARED} (GPUCLINIC_SHARED)")


def findings(tmp_path: Path, capture: Path, name: str) -> list[Finding]:
    (tmp_path / "commands").mkdir()
    shutil.copyfile(capture, tmp_path / "commands" / name)
    answer = check(Snapshot(tmp_path), CheckOptions())
    return [finding for finding in answer.findings if finding.severity != "info"]


@pytest.mark.parametrize("capture", XML, ids=lambda path: path.name)
def test_xml(tmp_path: Path, capture: Path) -> None:
    found = {(f.id, f.gpu) for f in findings(tmp_path, capture, "nvidia-smi-q-x.xml")}
    assert found == SICK.get(capture.name, set())


@pytest.mark.parametrize("capture", TEXTS, ids=lambda path: path.name)
def test_text(tmp_path: Path, capture: Path) -> None:
    assert not findings(tmp_path, capture, "nvidia-smi-q.txt")


@pytest.mark.parametrize("capture", LINKS, ids=lambda path: path.name)
def test_links(tmp_path: Path, capture: Path) -> None:
    assert not findings(tmp_path, capture, "nvidia-smi-nvlink-s.txt")
