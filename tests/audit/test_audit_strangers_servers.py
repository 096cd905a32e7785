"""Thirty servers by somebody who had not seen the audit (first run: 27 verdicts right, 26 wholly, no false finding); each has its answer beside it."""

from __future__ import annotations

import json
import sys
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gpuclinic.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Iterator

ARCHIVE = Path(__file__).parents[1] / "data" / "audit-servers.tar.xz"
SAFE: dict[str, Any] = {"filter": "data"} if sys.version_info >= (3, 12) else {}


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("servers")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, **SAFE)
    return folder


def names() -> list[str]:
    with tarfile.open(ARCHIVE) as archive:
        return sorted(
            {m.name.split("/")[1] for m in archive if m.name.count("/") == 2 and m.name.endswith("/case.json")}
        )


@pytest.mark.parametrize("name", names())
def test_a_strangers_server(name: str, servers: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = json.loads((servers / name / "case.json").read_text())
    main(["audit", "--json", "--host", str(servers / name)])
    told = json.loads(capsys.readouterr().out)
    verdict = (
        told["compromise"]
        if told["compromise"] in ("infected", "suspicious")
        else "weak"
        if told["posture"] == "weak"
        else "clean"
    )
    shown = [(f["id"], f["severity"], f["subject"]) for f in told["findings"]]
    assert verdict == case["verdict"], shown
    assert not set(case["must_find"]) - {f["id"] for f in told["findings"]}, shown
    assert not set(case["must_not_find"]) & {f["id"] for f in told["findings"] if f["severity"] != "info"}, shown
