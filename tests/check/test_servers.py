"""Servers on disk, written by hand from public reports without knowledge of the program: what `check --host` says of each.

tests/servers/NAME: server.txt (bundle.py), expect.json: verdict (those allowed), cause (ids allowed, null: any), gpu, healthy, expect_gpus.
h..: healthy, s..: sick, with /proc and /sys; n..: healthy, m..: sick, with little but outputs of commands.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gpuclinic.clinic.checking import CheckAnswer, CheckOptions, check
from gpuclinic.observe.snapshot import open_snapshot

if TYPE_CHECKING:
    from gpuclinic.model import Finding

SERVERS = Path(__file__).parents[1] / "servers"
sys.path.insert(0, str(SERVERS))
from bundle import packed, unpacked  # noqa: E402 - beside the servers, since it also makes them

NAMES = sorted(place.parent.name for place in SERVERS.glob("*/server.txt"))


def _laid_out(name: str, folder: Path) -> tuple[Path, dict[str, Any]]:
    place = SERVERS / name
    expected: dict[str, Any] = json.loads((place / "expect.json").read_text())
    return unpacked((place / "server.txt").read_text(errors="surrogateescape"), folder / name), expected


def _asked(folder: Path, options: CheckOptions) -> CheckAnswer:
    host = open_snapshot(folder)
    try:
        return check(host, options)
    finally:
        host.close()


def _told(answer: CheckAnswer) -> str:
    return "\n".join(f"{f.severity} {f.id} {f.subject} {f.gpu} {f.cause} {f.title}" for f in answer.findings)


def _names(finding: Finding, gpu: str) -> bool:
    shown = f"{finding.title} {finding.detail} {' '.join(place.text or '' for place in finding.evidence)}"
    return gpu in (finding.gpu, finding.subject) or gpu in shown


@pytest.mark.parametrize("name", NAMES)
def test_server(name: str, tmp_path: Path) -> None:
    folder, expected = _laid_out(name, tmp_path)
    answer = _asked(folder, CheckOptions(expect_gpus=expected.get("expect_gpus")))
    allowed = [expected["verdict"]] if isinstance(expected["verdict"], str) else expected["verdict"]
    assert answer.verdict in allowed, _told(answer)
    grave = [finding for finding in answer.findings if finding.severity != "info"]
    if expected["healthy"]:
        assert not grave, _told(answer)
        return
    causes = expected["cause"] if isinstance(expected["cause"], list) else [expected["cause"]]
    fitting = [finding for finding in grave if finding.cause in causes or None in causes]
    assert fitting, _told(answer)
    if expected["gpu"]:
        assert any(_names(finding, expected["gpu"]) for finding in fitting), _told(answer)


@pytest.mark.parametrize("name", ["s02-driver-library-mismatch", "s19-xid79-only-in-dmesg", "m01-inodes-gone"])
def test_evidence_names_files_of_the_snapshot(name: str, tmp_path: Path) -> None:
    folder, _ = _laid_out(name, tmp_path)
    answer = _asked(folder, CheckOptions())
    sources = {place.source for finding in answer.findings for place in finding.evidence}
    of_commands = {source for source in sources if source.startswith("commands/")}
    assert of_commands
    assert all((folder / source).is_file() for source in of_commands)
    assert not any(source.startswith(("dmesg", "journalctl", "nvidia-smi -")) for source in sources)


def test_what_a_snapshot_does_not_tell_is_said(tmp_path: Path) -> None:
    folder, _ = _laid_out("n03-hgx-ibstat-two-unused-ethernet", tmp_path)
    answer = _asked(folder, CheckOptions())
    gaps = {gap.check: gap for gap in answer.not_looked_at}
    assert {"storage.devices", "network.interfaces", "host.cpu"} <= gaps.keys()
    assert "storage.mounts" not in gaps
    assert "process.gpu" not in gaps
    assert not any(gap.required for gap in gaps.values())
    assert "root/proc/diskstats" in (gaps["storage.devices"].fix or "")


@pytest.mark.parametrize(
    ("required", "verdict"),
    [("storage.space", "ok"), ("storage.block", "unknown"), ("kernel.reboot", "unknown"), ("host.time", "ok")],
)
def test_what_is_required_and_cannot_be_judged_is_unknown(required: str, verdict: str, tmp_path: Path) -> None:
    folder, _ = _laid_out("n03-hgx-ibstat-two-unused-ethernet", tmp_path)
    answer = _asked(folder, CheckOptions(require=[required]))
    assert answer.verdict == verdict
    if verdict == "unknown":
        assert any(gap.required and gap.check == required for gap in answer.not_looked_at)


def test_a_bundle_holds_what_it_was_made_of(tmp_path: Path) -> None:
    folder = tmp_path / "one"
    (folder / "root/proc/7").mkdir(parents=True)
    (folder / "root/proc/7/cmdline").write_bytes(b"python3\0train.py\0\n")
    (folder / "commands").mkdir()
    (folder / "commands/dmesg.txt").write_text("a\n\nb\n")
    (folder / "root/empty").write_text("")
    (folder / "root/link").symlink_to("../commands")
    text = packed(folder)
    again = unpacked(text, tmp_path / "two")
    assert packed(again) == text
    assert (again / "root/proc/7/cmdline").read_bytes() == b"python3\0train.py\0\n"
    assert (again / "root/link").readlink() == Path("../commands")
