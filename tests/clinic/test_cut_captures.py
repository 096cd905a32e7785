"""A capture that was cut short anywhere: what came before the cut is looked at, and that it was cut is told."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from gpuclinic.clinic.checking import CheckOptions, check
from gpuclinic.observe.replay import Replay
from gpuclinic.observe.snapshot import Snapshot, open_snapshot

SICK = Path(__file__).parents[2] / "examples" / "sick-server.tar.gz"
CODE = "from gpuclinic.cli.start import entry; entry()"


def _cut(folder: Path, share: float) -> Path:
    whole = SICK.read_bytes()
    cut = folder / "cut.tar.gz"
    cut.write_bytes(whole[: int(len(whole) * share)])
    return cut


@pytest.mark.parametrize("share", [0.3, 0.6, 0.8, 0.95, 0.99])
def test_more_of_a_capture_never_tells_less(tmp_path: Path, share: float) -> None:
    host = open_snapshot(_cut(tmp_path, share))
    answer = check(host, CheckOptions())
    host.close()
    assert answer.verdict == "critical"
    assert "gpu.lost" in {finding.id for finding in answer.findings}
    assert any("cut short" in gap.why and gap.required for gap in answer.not_looked_at)
    assert not any("not asked" in gap.why and gap.required for gap in answer.not_looked_at)


@pytest.mark.parametrize("share", [0.6, 0.99])
def test_why_reads_a_cut_capture_and_says_that_it_is_cut(tmp_path: Path, share: float) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE, "why", "--json", str(_cut(tmp_path, share))], capture_output=True, text=True, check=True
    )  # fmt: skip
    answer = json.loads(done.stdout)
    assert answer["causes"][0]["id"] == "hw.gpu.fallen_off_bus"
    assert any("cut short" in item["why"] for item in answer["not_read"])
    assert "cut short" in done.stderr


@pytest.mark.parametrize("kept", [0, 0.5])
def test_half_a_list_of_answers_in_a_folder_does_not_hide_the_files(tmp_path: Path, kept: float) -> None:
    with tarfile.open(SICK) as archive:
        archive.extractall(tmp_path, filter="data") if sys.version_info >= (3, 12) else archive.extractall(tmp_path)
    folder = next(tmp_path.iterdir())
    index = folder / "answers.jsonl"
    data = index.read_bytes()
    index.write_bytes(data[: int(len(data) * kept) - 7] if kept else b"")
    host = open_snapshot(folder)
    assert isinstance(host, Snapshot)
    answer = check(host, CheckOptions())
    assert "gpu.lost" in {finding.id for finding in answer.findings}
    assert any(gap.check == "snapshot" and gap.required for gap in answer.not_looked_at)


def test_a_whole_capture_is_asked_as_the_server_was() -> None:
    host = open_snapshot(SICK)
    assert isinstance(host, Replay)
    assert host.damage is None
    host.close()
