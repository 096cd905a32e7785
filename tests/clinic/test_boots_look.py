"""How a machine came to be booted: the finding with its time, planned reboots and old ones silent."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpuclinic.clinic.looks import Wanted
from gpuclinic.clinic.looks.boots import look_at_boots
from gpuclinic.clinic.looks.kernel_log import look_at_earlier_logs, look_at_kernel_log
from gpuclinic.diagnose.judge import Sample, judge
from gpuclinic.knowledge import load_checks
from made_snapshots import TAKEN, Made, boot, shutdown

if TYPE_CHECKING:
    from pathlib import Path

ROWS = [row for row in load_checks().checks if row.look == "kernel.boots"]


def judged(made: Made) -> dict[str, str | None]:
    seen = look_at_boots(made.host(), Wanted())
    return {one.row.id: one.severity for one in judge(ROWS, [Sample(0.0, seen.facts)]) if one.state == "holds"}


def machine(folder: Path, up_s: float, wtmp: bytes = b"") -> Made:
    made = Made(folder).put("/proc/uptime", f"{up_s} 1.0\n")
    return made.put("/var/log/wtmp", wtmp) if wtmp else made


@pytest.mark.parametrize(
    ("up_s", "clean", "expected"),
    [(3600, True, {}), (3600, False, {"kernel.reboot.unexpected": "warning"}), (3 * 86400, False, {"kernel.reboot.unexpected": "info"}), (30 * 86400, False, {})],
)  # fmt: skip
def test_by_age_and_shutdown(tmp_path: Path, up_s: int, clean: bool, expected: dict[str, str]) -> None:
    now = int(TAKEN)
    started = now - up_s
    wtmp = boot(started - 99_999) + shutdown(started - 88_888) + boot(started - 77_777)
    wtmp += (shutdown(started - 60) if clean else b"") + boot(started)
    assert judged(machine(tmp_path / "s", up_s, wtmp)) == expected


@pytest.mark.parametrize("recorded", [True, False])
def test_the_same_boot_is_the_same_at_every_look(tmp_path: Path, recorded: bool) -> None:
    """Clocks are read one after the other and set between: the boot's time, by which its finding is known, stays."""
    now = int(TAKEN)
    started = now - 3600 - now % 60 + 20
    keys = set()
    for number, (later, moved) in enumerate([(0.0, 0), (7.3, 0), (61.9, 1), (120.4, -1)]):
        made = Made(tmp_path / str(number), at=now + later)
        made.put("/proc/uptime", f"{now + later - started - 0.7 * number:.2f} 1.0\n")
        made.put("/proc/stat", f"cpu  1 2 3\nintr 5 0 0\nctxt 7\nbtime {started + moved}\nprocesses 9\n")
        if recorded:
            made.put("/var/log/wtmp", boot(started - 77_777) + boot(started))
        else:
            made.command(
                "journalctl-b-1-n-40-o-short-iso-no-pager-q.txt", "2026-11-30T10:20:00+0000 n1 systemd[1]: x\n"
            )
        facts = [f for f in look_at_boots(made.host(), Wanted()).facts if f.kind == "restart" and f.fields["latest"]]
        keys |= {fact.key for fact in facts}
    assert len(keys) == 1


def test_a_clock_that_was_wrong_at_the_start_is_not_believed(tmp_path: Path) -> None:
    started = int(TAKEN) - 3600
    made = machine(tmp_path / "s", 3600, boot(started - 99_999) + boot(started - 40_000))
    made.put("/proc/stat", f"cpu  1\nbtime {started}\n")
    latest = next(f for f in look_at_boots(made.host(), Wanted()).facts if f.kind == "restart" and f.fields["latest"])
    assert abs(float(latest.fields["at"] or 0) - started) <= 30


def test_a_panic_on_record_names_the_crash(tmp_path: Path) -> None:
    now = int(TAKEN)
    made = machine(tmp_path / "s", 3600, shutdown(now - 90_000) + boot(now - 80_000) + boot(now - 3600))
    made.put(
        f"/var/lib/systemd/pstore/{now - 3700}/dmesg.txt",
        "Panic#1 Part1\n<0>[76000.1] Kernel panic - not syncing: hung_task: blocked tasks\n",
    )
    seen = look_at_boots(made.host(), Wanted())
    latest = next(f for f in seen.facts if f.kind == "restart" and f.fields["latest"])
    assert latest.fields["how"] == "panic"
    assert any("Kernel panic" in data.decode() for _, data in seen.texts)


def test_a_panic_lies_before_the_boot_whatever_the_files_time(tmp_path: Path) -> None:
    made = machine(tmp_path / "s", 10 * 86400).put(
        "/sys/fs/pstore/dmesg-erst-7530486857247", "Panic#1 Part1\n<0>[899651.0] Kernel panic - not syncing: x\n"
    )
    made.mode("/sys/fs/pstore/dmesg-erst-7530486857247", kind="file", mtime=TAKEN)
    record = next(f for f in look_at_boots(made.host(), Wanted()).facts if f.kind == "crash_record")
    assert record.fields["age_s"] == 10 * 86400 + 120.0


def test_without_login_records_the_journal_tells(tmp_path: Path) -> None:
    name = "journalctl-b-1-n-40-o-short-iso-no-pager-q.txt"
    made = machine(tmp_path / "s", 3600).command(
        name, "2026-11-30T10:59:00+0000 n1 systemd[1]: Reached target System Reboot.\n"
    )
    assert judged(made) == {}
    made.command(name, "2026-11-30T10:20:00+0000 n1 systemd[1]: Started session-99.scope.\n")
    assert judged(made) == {"kernel.reboot.unexpected": "warning"}


def test_login_records_that_ended_with_an_upgrade_are_not_of_this_boot(tmp_path: Path) -> None:
    now = int(TAKEN)
    name = "journalctl-b-1-n-40-o-short-iso-no-pager-q.txt"
    old = shutdown(now - 90 * 86400) + boot(now - 89 * 86400) + boot(now - 88 * 86400)
    made = machine(tmp_path / "s", 3600, old).put("/proc/stat", f"cpu  1\nbtime {now - 3600}\n")
    made.mode("/var/log/wtmp", kind="file", mtime=now - 88 * 86400)
    assert judged(made) == {}
    made.command(name, "2026-11-30T10:59:00+0000 n1 systemd[1]: Reached target reboot.target - System Reboot.\n")
    assert judged(made) == {}
    made.command(name, "2026-11-30T10:20:00+0000 n1 systemd[1]: Started session-99.scope.\n")
    assert judged(made) == {"kernel.reboot.unexpected": "warning"}


def test_nothing_known_is_nothing_said(tmp_path: Path) -> None:
    assert judged(machine(tmp_path / "s", 3600)) == {}


def test_rotated_logs_are_read_newest_first(tmp_path: Path) -> None:
    import gzip

    made = machine(tmp_path / "s", 3600)
    made.put("/var/log/kern.log", "a\n").put("/var/log/kern.log.1", "b\n").put(
        "/var/log/kern.log.2.gz", gzip.compress(b"c\n")
    )
    made.put("/var/log/kern.log.3.gz", b"no gzip").put("/var/log/kern.log.bak", "z\n")
    seen = look_at_earlier_logs(made.host(), Wanted())
    assert seen.texts == [
        ("/var/log/kern.log", b"a\n"),
        ("/var/log/kern.log.1", b"b\n"),
        ("/var/log/kern.log.2.gz", b"c\n"),
    ]
    assert ["kern.log.3.gz" in gap.why for gap in seen.gaps] == [True]


def test_no_log_at_all_is_a_gap_with_a_fix(tmp_path: Path) -> None:
    seen = look_at_kernel_log(machine(tmp_path / "s", 3600).host(), Wanted())
    assert [(gap.check, bool(gap.fix)) for gap in seen.gaps] == [("kernel.log", True)]
