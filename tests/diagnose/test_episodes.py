"""Logs that go back for weeks: what the machine's later state shows to be over is no cause, what is newest in its log stays one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuclinic.clinic import Answer, examine
from gpuclinic.observe import Places

if TYPE_CHECKING:
    from pathlib import Path

FAULT = (
    "[Wed Nov 18 14:02:07 2026] NVRM: Xid (PCI:0000:e1:00): 31, pid=88122, name=python3, Ch 00000008, intr 00000000. MMU Fault: "
    "ENGINE GRAPHICS GPCCLIENT_T1_0 faulted @ 0x7f1c_20000000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ\n"
)
CLEANED = "[Fri Nov 27 18:40:55 2026] NVRM: Xid (PCI:0000:e1:00): 45, pid=90011, name=python3, Ch 00000010\n"
AER = (
    "[Sat Oct 31 07:46:52 2026] pcieport 0000:15:01.0: AER: Corrected error message received from 0000:e1:00.0\n"
    "[Sat Oct 31 07:46:52 2026] nvidia 0000:e1:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)\n"
)
SMI = """
==============NVSMI LOG==============

Timestamp                                 : {when}
Driver Version                            : 560.35.03
CUDA Version                              : 12.6

Attached GPUs                             : 1
GPU 00000000:E1:00.0
    Product Name                          : NVIDIA RTX 6000 Ada Generation
    Product Brand                         : NVIDIA RTX
"""


def _asked(folder: Path, log: str, when: str = "Mon Nov 30 10:00:00 2026") -> Answer:
    (folder / "dmesg-T.txt").write_text(log)
    (folder / "nvidia-smi-q.txt").write_text(SMI.format(when=when))
    return examine(Places([str(folder)]))


def test_an_old_fault_of_a_program_that_is_gone_is_a_hint_at_most(tmp_path: Path) -> None:
    answer = _asked(tmp_path, FAULT + CLEANED)
    assert answer.outcome in ("hint", "nothing_wrong")
    assert all("90011" not in place.text for cause in answer.causes for place in cause.evidence)


def test_the_newest_line_of_its_log_stays_the_cause(tmp_path: Path) -> None:
    assert _asked(tmp_path, FAULT).outcome == "cause"


def test_a_fault_of_these_days_stays_the_cause(tmp_path: Path) -> None:
    assert _asked(tmp_path, FAULT + CLEANED, "Wed Nov 18 16:00:00 2026").outcome == "cause"


def test_the_clean_up_of_another_process_is_no_evidence(tmp_path: Path) -> None:
    answer = _asked(tmp_path, FAULT + CLEANED, "Wed Nov 18 16:00:00 2026")
    assert all("90011" not in place.text for place in answer.causes[0].evidence)
    mine = CLEANED.replace("90011", "88122")
    assert any("45, pid=88122" in place.text for place in _asked(tmp_path, FAULT + mine).causes[0].evidence)


def test_a_corrected_error_at_a_boot_long_ago_is_nothing(tmp_path: Path) -> None:
    assert _asked(tmp_path, AER).outcome == "nothing_wrong"
