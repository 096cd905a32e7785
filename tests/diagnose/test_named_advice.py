"""What to do first is what the telling line asks for, with its versions, not the general sentence of its action."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuclinic.clinic import examine
from gpuclinic.clinic.findings import settled
from gpuclinic.model import Finding, Where
from gpuclinic.observe import Places

if TYPE_CHECKING:
    from pathlib import Path

REFUSED = (
    "Feb 24 09:28:28 hgx7 nv-fabricmanager[1507]: fabric manager NVIDIA GPU driver interface version 535.183.01 don't match with "
    "driver version 535.183.06. Please update with matching NVIDIA driver package.\n"
)


def test_the_versions_of_a_refused_fabric_manager_are_in_the_command(tmp_path: Path) -> None:
    (tmp_path / "journal.txt").write_text(REFUSED)
    cause = examine(Places([str(tmp_path)])).causes[0]
    assert cause.title == "Fabric manager 535.183.01 and driver 535.183.06 are of different versions"
    assert cause.action == "change_version"
    assert "nvidia-fabricmanager-535=535.183.06" in cause.steps[0]["command"]


def _finding(identity: str, action: str, command: str) -> Finding:
    steps = [{"text": "t", "command": command, "risk": "none"}]
    return Finding(identity, "critical", "nvlink", "host", "t", "", "driver.fabric_manager", action, steps, None, None,
                   [Where("x", None, identity)])  # fmt: skip


def test_a_row_takes_the_exact_advice_of_the_log_under_it() -> None:
    row = _finding("nvlink.fabric_manager.not_running", "fix_config", "systemctl restart")
    exact = _finding("log.driver.fabric_manager", "change_version", "apt-get install")
    usual = _finding("log.driver.fabric_manager", "fix_config", "journalctl")
    assert [(f.id, f.action, f.steps[0]["command"]) for f in settled([row, exact])] == [
        (row.id, "change_version", "apt-get install")
    ]
    assert settled([row, usual])[0].steps == row.steps
