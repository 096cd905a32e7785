"""Which findings explain others: nothing is lost in a ring, the gravest stays on top."""

from __future__ import annotations

from gpuclinic.clinic.findings import settled
from gpuclinic.model import Finding, Where


def finding(identity: str, cause: str, severity: str = "critical", gpu: str | None = None) -> Finding:
    return Finding(
        identity,
        severity,
        "gpu",
        gpu or "host",
        "t",
        "",
        cause,
        "none",
        [],
        None,
        None,
        [Where("x", None, identity)],
        gpu=gpu,
    )


def test_a_log_goes_under_what_the_device_shows_of_the_same_cause() -> None:
    gpu = "0000:3b:00.0"
    out = settled(
        [
            finding("log.gpu.ecc_uncorrectable", "hw.gpu.ecc_uncorrectable", gpu=gpu),
            finding("gpu.ecc.uncorrectable", "hw.gpu.ecc_uncorrectable", gpu=gpu),
        ]
    )
    assert [(f.id, f.implies) for f in out] == [("gpu.ecc.uncorrectable", ["log.gpu.ecc_uncorrectable"])]


def test_another_gpu_stays() -> None:
    out = settled(
        [
            finding("log.gpu.ecc_uncorrectable", "hw.gpu.ecc_uncorrectable", gpu="0000:86:00.0"),
            finding("gpu.ecc.uncorrectable", "hw.gpu.ecc_uncorrectable", gpu="0000:3b:00.0"),
        ]
    )
    assert len(out) == 2


def test_the_graph_joins_log_and_row() -> None:
    out = settled(
        [
            finding("driver.module.not_loaded", "driver.not_loaded"),
            finding("driver.nouveau.bound", "driver.nouveau_conflict"),
        ]
    )
    assert [f.id for f in out] == ["driver.nouveau.bound"]


def test_two_that_explain_each_other_leave_one() -> None:
    out = settled(
        [
            finding("log.gpu.init_failed", "hw.gpu.init_failed", "warning", "0000:3b:00.0"),
            finding("driver.gsp.firmware_missing", "driver.not_loaded", "warning"),
        ]
    )
    assert len(out) == 1
    assert {out[0].id, *out[0].implies} == {"log.gpu.init_failed", "driver.gsp.firmware_missing"}


def test_the_milder_never_explains_the_graver() -> None:
    gpu = "0000:3b:00.0"
    out = settled(
        [
            finding("log.pcie.corrected", "hw.pcie.bus_error", "info", gpu),
            finding("pcie.aer.fatal", "hw.pcie.bus_error", "warning", gpu),
        ]
    )
    assert out[0].severity == "warning"


def test_a_fault_that_the_log_ties_to_a_card_is_told_once() -> None:
    gpu = "0000:98:00.0"
    row = finding("gpu.nvml.no_devices", "hw.gpu.init_failed")
    out = settled([row, finding("log.gpu.init_failed", "hw.gpu.init_failed", gpu=gpu)])
    assert [(f.id, f.implies) for f in out] == [("log.gpu.init_failed", ["gpu.nvml.no_devices"])]
    assert len(settled([row, finding("log.gpu.init_failed", "hw.gpu.init_failed", "warning", gpu=gpu)])) == 2
