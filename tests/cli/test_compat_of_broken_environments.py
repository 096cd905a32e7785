"""`gpuclinic compat` on environments of which nobody can say that nothing for GPUs is in them, and on captures that were not asked for any."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

from gpuclinic.cli.main import main
from gpuclinic.clinic import environment_list
from gpuclinic.model import Gap
from gpuclinic.observe import _file_child
from gpuclinic.observe.replay import NOT_ASKED
from gpuclinic.recognise import python_env
from made_environments import interpreter, package, put, torch, venv
from made_snapshots import driver_server

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def listed(folder: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, dict]:
    main(["compat", "--host", str(folder), "--json"])
    return {one["path"]: one for one in json.loads(capsys.readouterr().out)["environments"]}


def test_what_is_not_whole_is_unknown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = driver_server(tmp_path / "snapshot")
    root = made.folder / "root"
    interpreter(root)
    package(venv(root / "opt/plain"), "requests", "2.32.0")
    torch(venv(root / "opt/bare"), "2.6.0", "12.4")
    shutil.rmtree(next((root / "opt/bare").rglob("torch-2.6.0.dist-info")))
    put(venv(root / "opt/half") / "torch/lib/libtorch.so", "x")
    put(venv(root / "opt/egg") / "torch-2.6.0-py3.11.egg-info", "Name: torch\nVersion: 2.6.0\n")
    told = listed(made.folder, capsys)
    assert told["/opt/plain"]["verdict"] is None
    for path in ("/opt/bare", "/opt/half", "/opt/egg"):
        assert told[path]["verdict"] == "unknown"
        assert "torch" in told[path]["unknown"][0]


def test_names_beyond_the_cap_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(python_env, "MOST_NAMES", 30)
    made = driver_server(tmp_path / "snapshot")
    root = made.folder / "root"
    interpreter(root)
    site = venv(root / "opt/many")
    for number in range(40):
        (site / f"p{number}-1.0.dist-info").mkdir()
    torch(site, "2.6.0", "12.4")
    told = listed(made.folder, capsys)["/opt/many"]
    assert told["verdict"] == "unknown"
    assert "not all were read" in told["unknown"][0]


def test_a_listing_holds_as_many_names_as_are_read() -> None:
    assert _file_child.MOST_NAMES == python_env.MOST_NAMES >= 100_000


def test_what_a_capture_was_not_asked_for_is_one_gap() -> None:
    gaps = [Gap("software.environments", f"/place/{number}: {NOT_ASKED}") for number in range(40)]
    other = Gap("software.environments", "/root: Permission denied")
    joined = environment_list._joined_gaps([*gaps, other])
    assert joined[0] == other
    assert len(joined) == 2
    assert "(40)" in joined[1].why


def test_a_capture_without_environments_says_that_nobody_looked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = '{"gpuclinic_answers": 1, "version": "0.1.0", "live": true}'
    absent = '{"ask": "listing", "path": "/proc/driver/nvidia", "at": 0, "seconds": 0, "why": "No such file or directory", "code": 2}'
    (tmp_path / "answers.jsonl").write_text(f"{first}\n{absent}\n")
    (tmp_path / "capture.json").write_text('{"asked": {"deep": false}}')
    assert main(["compat", "--host", str(tmp_path)]) == 3
    out = capsys.readouterr().out
    assert "No Python environment was found" not in out
    assert "no Python environments were looked for" in out
    assert "--expect-gpus" not in out
    assert out.count("not asked when this was captured") <= 6
