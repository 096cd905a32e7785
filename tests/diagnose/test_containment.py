"""Whom an uncorrectable memory error hit is told by Xid 94 and 95, not by the Xid 48 that found it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpuclinic.clinic import examine
from gpuclinic.observe import Places

if TYPE_CHECKING:
    from pathlib import Path

    from gpuclinic.model import Cause

FOUND = (48, "An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer at partition 9.")
REMAPPED = (63, "Row Remapper: New row marked for remapping, reset gpu to activate.")
CONTAINED = (94, "Contained: SM (0x1). RST: No, D-RST: No")
RESET = (94, "Contained: FBHUB (0x1). RST: Yes, D-RST: No")
UNCONTAINED = (95, "Uncontained: LTC TAG (0x2,0x0). RST: Yes, D-RST: No")
DRAIN = (154, "GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)")
FAILED = (64, "Row Remapper: Failed to write row remapping info to InfoROM.")


def _cause(folder: Path, *xids: tuple[int, str], minutes: int = 0) -> Cause:
    lines = [
        f"[Sat Sep  5 15:{2 + number * minutes:02d}:02 2026] NVRM: Xid (PCI:0000:9c:00): {code}, pid=20311, name=python3, {words}\n"
        for number, (code, words) in enumerate(xids)
    ]
    (folder / "dmesg.txt").write_text("".join(lines))
    return examine(Places([str(folder)])).causes[0]


def test_contained_is_what_the_driver_says(tmp_path: Path) -> None:
    cause = _cause(tmp_path, FOUND, REMAPPED, CONTAINED)
    assert (cause.id, cause.action, cause.pid) == ("hw.gpu.ecc_contained", "restart_app", 20311)
    assert any("double bit error" in place.text for place in cause.evidence)


@pytest.mark.parametrize(
    ("xids", "minutes", "cause"),
    [
        ((FOUND, UNCONTAINED), 0, "hw.gpu.ecc_uncorrectable"),
        ((FOUND, CONTAINED, UNCONTAINED), 0, "hw.gpu.ecc_uncorrectable"),
        ((FOUND, CONTAINED, DRAIN), 0, "hw.gpu.ecc_uncorrectable"),
        ((FOUND, RESET), 0, "hw.gpu.ecc_uncorrectable"),
        ((FOUND, CONTAINED), 7, "hw.gpu.ecc_uncorrectable"),
        ((FOUND, CONTAINED, FAILED), 0, "hw.gpu.row_remap_failed"),
        ((FOUND,), 0, "hw.gpu.ecc_uncorrectable"),
    ],
)
def test_otherwise_the_gpu_is_reset_or_replaced(
    tmp_path: Path, xids: tuple[tuple[int, str], ...], minutes: int, cause: str
) -> None:
    found = _cause(tmp_path, *xids, minutes=minutes)
    assert found.id == cause
    assert found.action in ("reset_gpu", "rma")
    assert "not contained" not in found.title
