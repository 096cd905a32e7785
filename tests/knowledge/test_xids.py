"""The catalogue of Xids and SXids, and what a line adds to a code."""

from __future__ import annotations

import pytest

from gpuclinic.knowledge import DATA
from gpuclinic.knowledge.xids import XidInfo, catalogue, judge, nvlink5_fault, recovery_action, xid_info
from gpuclinic.model import ACTIONS

CRITICAL_ACTIONS = {"reset_gpu", "reboot", "reseat_or_power", "rma"}
CAUSES = {line.split("\t")[0] for line in (DATA / "cause_ids.tsv").read_text().splitlines()[1:]}


def test_catalogue_is_complete() -> None:
    codes = catalogue()
    assert {code for kind, code in codes if kind == "xid"} == set(range(1, 176))
    assert sum(1 for kind, _ in codes if kind == "sxid") == 399


@pytest.mark.parametrize("row", catalogue().values(), ids=lambda row: f"{row.kind}{row.code}")
def test_each_row_is_sound(row: XidInfo) -> None:
    assert row.severity in {"critical", "warning", "info"}
    assert row.action in ACTIONS
    assert set(row.escalation) <= ACTIONS
    assert row.role in {"root", "consequence"}
    assert not row.cause or row.cause in CAUSES
    assert (row.level == "context") == (not row.cause)
    assert row.name
    assert row.text_en
    assert row.text_zh
    assert row.source
    if row.action in CRITICAL_ACTIONS:
        assert row.severity == "critical"
    if row.action in {"none", "restart_app"}:
        assert row.severity != "critical"


@pytest.mark.parametrize(
    ("code", "cause", "role"),
    [
        (13, "app.illegal_access", "root"),
        (31, "app.illegal_access", "root"),
        (43, "app.illegal_access", "consequence"),
        (45, "app.illegal_access", "consequence"),
        (48, "hw.gpu.ecc_uncorrectable", "root"),
        (63, "hw.gpu.row_remap_pending", "root"),
        (64, "hw.gpu.row_remap_failed", "root"),
        (74, "hw.gpu.nvlink_error", "root"),
        (79, "hw.gpu.fallen_off_bus", "root"),
        (94, "hw.gpu.ecc_contained", "root"),
        (95, "hw.gpu.ecc_uncorrectable", "root"),
        (119, "hw.gpu.gsp_failure", "root"),
        (143, "hw.gpu.init_failed", "root"),
        (154, "", "root"),
    ],
)
def test_known_codes(code: int, cause: str, role: str) -> None:
    info = xid_info("xid", code)
    assert (info.cause, info.role) == (cause, role)


def test_unknown_code_is_an_answer() -> None:
    for kind in ("xid", "sxid"):
        info = xid_info(kind, 987654)
        assert info.name is None
        assert (info.severity, info.action, info.cause) == ("warning", "collect_evidence", "")


RECOVERY = [
    ("GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)", "reset_gpu"),
    ("GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)", "reboot"),
    ("GPU recovery action changed from 0x0 (None) to 0x3 (Drain P2P)", "drain_node"),
    ("GPU recovery action changed from 0x3 (Drain P2P) to 0x4 (Drain and Reset)", "reset_gpu"),
    ("GPU recovery action changed from 0x0 (None) to 0x5 (Recover IMEX Domain)", "fix_config"),
    ("GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)", "none"),
    ("GPU recovery action changed from 0x0 (None) to 0x2 (Something New)", "reboot"),
    ("GPU recovery action changed from 0x0 (None) to 0x17 (Something New)", "collect_evidence"),
]


@pytest.mark.parametrize(("text", "action"), RECOVERY)
def test_recovery_action(text: str, action: str) -> None:
    assert recovery_action(text) == action
    assert judge("xid", 154, text).action == action


def test_other_text_has_no_recovery_action() -> None:
    assert recovery_action("Ch 00000008") is None


def test_nvlink5_fatal_line() -> None:
    text = "RLW_SRC_TRACK Fatal XC0 i0 Link 03 (0x040988e2 0x00000001 0x00000000 0x00000000 0x00000000 0x00000000)"
    fault = nvlink5_fault(145, text)
    assert fault is not None
    assert (fault.units, fault.fatal, fault.link, fault.action) == ("RLW_SRC_TRACK", True, 3, "reset_gpu")
    assert judge("xid", 145, text).severity == "critical"


def test_nvlink5_nonfatal_line() -> None:
    text = "RLW_SRC_TRACK Nonfatal XC1 i0 Link 12 (0x040988e2 0x00000002 0x00000000 0x00000000)"
    info = judge("xid", 145, text)
    assert (info.severity, info.action, info.level) == ("info", "none", "hint")


def test_nvlink5_link_down_reasons() -> None:
    cable = nvlink5_fault(149, "NETIR_LINK_EVT  Fatal   XC0 i0 Link 15 (0x02a046c6 0x00000000 0x0 0x0 0x0 0x0)")
    assert cable is not None
    assert (cable.reason, cable.look_at, cable.link) == (42, "cable", 15)
    peer = nvlink5_fault(149, "NETIR_LINK_EVT/NETIR_LINK_DOWN Fatal XC0 i0 Link 00 (0x015046c6 0x00000000)")
    assert peer is not None
    assert peer.look_at == "peer"
    whole = nvlink5_fault(149, "NETIR Fatal XC0 i0 Link -1 (0x00000006 0x00000000 0x00000000)")
    assert whole is not None
    assert whole.link is None


def test_nvlink5_torn_line() -> None:
    fault = nvlink5_fault(149, "NETIR Fatal XC0 i0 Link -1 (0x")
    assert fault is not None
    assert fault.fatal
    assert nvlink5_fault(149, "Placeholder message") is None
    assert nvlink5_fault(79, "RLW_CTRL Fatal XC0 i0 Link 00 (0x0 0x0)") is None


def test_sxid_word_outranks_catalogue() -> None:
    fatal = judge("sxid", 11011, fatal_word="Fatal")
    assert (fatal.severity, fatal.level, fatal.action) == ("critical", "strong", "reset_gpu")
    mild = judge("sxid", 12020, fatal_word="Non-fatal")
    assert (mild.severity, mild.action) == ("warning", "none")
    assert judge("sxid", 22013, fatal_word="Non-fatal").level == "context"
    assert judge("sxid", 20034).cause == "hw.gpu.nvswitch_error"


def test_contained_error_that_needs_a_reset() -> None:
    assert judge("xid", 94, "Contained: FBHUB (0x1). RST: Yes, D-RST: No").action == "reset_gpu"
    assert judge("xid", 94, "Contained: FBHUB (0x1). RST: No, D-RST: No").severity == "warning"
