"""A snapshot that does not say when it was made: no time is told by the reader's clock; ages are told all the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuclinic.clinic.checking import CheckAnswer, CheckOptions, check
from gpuclinic.observe.snapshot import open_snapshot
from gpuclinic.report.checkup import check_text

if TYPE_CHECKING:
    from pathlib import Path

LOST = "[74889.900000] NVRM: Xid (PCI:0000:02:00): 79, pid=1, GPU has fallen off the bus.\n"
YEARLESS = "Nov 28 10:00:00 gn1 kernel: NVRM: Xid (PCI:0000:02:00): 79, pid=1, GPU has fallen off the bus.\n"
SMI = "==============NVSMI LOG==============\n\nTimestamp                                 : Mon Apr 21 08:00:00 2025\n"
VERSION = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  {}  Thu Mar 22 00:42:57 PDT 2018\n"


def asked(folder: Path, files: dict[str, str], driver: str = "390.48") -> CheckAnswer:
    files = {"root/proc/uptime": "74990.00 1.00\n", "root/proc/driver/nvidia/version": VERSION.format(driver), **files}
    for name, text in files.items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    host = open_snapshot(folder)
    try:
        return check(host, CheckOptions())
    finally:
        host.close()


def lost(answer: CheckAnswer) -> tuple[str, str | None]:
    return next((f.severity, f.time) for f in answer.findings if f.id == "log.gpu.fallen_off_bus")


def test_seconds_since_boot_are_no_date(tmp_path: Path) -> None:
    answer = asked(tmp_path, {"commands/dmesg.txt": LOST})
    assert lost(answer) == ("critical", None)
    text = check_text(answer, colour=False)
    assert "time not known" in text
    assert "21:13" not in text


def test_a_stamp_without_a_year_gets_none(tmp_path: Path) -> None:
    assert lost(asked(tmp_path, {"root/var/log/messages": YEARLESS})) == ("critical", None)


def test_seconds_since_boot_are_one_where_the_snapshot_tells_its_own(tmp_path: Path) -> None:
    answer = asked(tmp_path, {"commands/dmesg.txt": LOST, "commands/date.txt": "Mon Apr 21 08:00:00 UTC 2025\n"})
    assert lost(answer)[1] == "2025-04-21T07:58:19.900000+00:00"


def test_a_branch_is_judged_by_the_snapshots_own_date(tmp_path: Path) -> None:
    dated = asked(tmp_path / "dated", {"commands/nvidia-smi-q.txt": SMI}, driver="570.124.06")
    assert not [f for f in dated.findings if f.id == "driver.branch.ended"]
    undated = asked(tmp_path / "undated", {}, driver="570.124.06")
    found = next(f for f in undated.findings if f.id == "driver.branch.ended")
    assert "judged by today, " in found.evidence[0].text
