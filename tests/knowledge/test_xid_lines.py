"""Xid triage: forty raw lines by hand, and the catalogue's own rule about severities."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuclinic.knowledge import load
from gpuclinic.knowledge.xids import catalogue, judge, recovery_action
from gpuclinic.recognise.engine import Confirmer

LINES = [row.split("\t") for row in (Path(__file__).parent.parent / "data/xid_lines.tsv").read_text().splitlines()[1:]]
NEEDS_RESET = {"reset_gpu", "reboot", "rma", "reseat_or_power"}
SIGNATURES = [s for s in load().signatures if s.id in ("nvrm.xid", "nvrm.sxid")]


@pytest.mark.parametrize(("line", "code", "kind", "severity", "action"), LINES)
def test_line_by_hand(line: str, code: str, kind: str, severity: str, action: str) -> None:
    confirmer = Confirmer(SIGNATURES)
    matches = [m for n, s in enumerate(SIGNATURES) if s.id == f"nvrm.{kind}" and (m := confirmer.confirm(n, line))]
    assert matches, "not recognised"
    groups = matches[0].groupdict()
    assert groups["code"] == code
    info = judge(kind, int(code), line, groups.get("fatal_word") or "")
    assert (info.severity, info.action) == (severity, action)


def test_codes_that_need_a_reset_or_worse_are_critical_and_no_others_of_the_application() -> None:
    for info in catalogue().values():
        if info.action in NEEDS_RESET:
            assert info.severity == "critical", info
        if info.action in ("none", "restart_app"):
            assert info.severity != "critical", info


def test_recovery_action_outranks_the_table() -> None:
    line = "NVRM: Xid (PCI:0000:0f:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"
    assert recovery_action(line) == "reboot"
