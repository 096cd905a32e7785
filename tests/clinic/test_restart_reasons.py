"""Why a boot came about that no shutdown preceded: by the processor, the kernel, a watchdog, a UPS, the board's controller; and what stays as it is."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

import pytest

from gpuclinic.clinic.checking import CheckOptions, check
from gpuclinic.knowledge.causes import cause_info
from gpuclinic.recognise.parsers.gpu_tables import read_table
from gpuclinic.recognise.restart_reasons import restart_hows
from made_snapshots import TAKEN, Made, boot, shutdown

if TYPE_CHECKING:
    from pathlib import Path

    from gpuclinic.model import Finding

STARTED = int(TAKEN) - 3600
AMD = {
    0: "thermal pin BP_THERMTRIP_L was tripped", 1: "power button was pressed for 4 seconds", 2: "shutdown pin was tripped",
    4: "remote ASF power off command was received", 9: "internal CPU thermal limit was tripped", 16: "system reset pin BP_SYS_RST_L was tripped",
    17: "software issued PCI reset", 18: "software wrote 0x4 to reset control register 0xCF9", 19: "software wrote 0x6 to reset control register 0xCF9",
    20: "software wrote 0xE to reset control register 0xCF9", 21: "ACPI power state transition occurred", 22: "keyboard reset pin KB_RST_L was tripped",
    23: "internal CPU shutdown event occurred", 24: "system failed to boot before failed boot timer expired", 25: "hardware watchdog timer expired",
    26: "remote ASF reset command was received", 27: "an uncorrected error caused a data fabric sync flood event",
    29: "FCH and MP1 failed warm reset handshake", 30: "a parity error occurred", 31: "a software sync flood event occurred",
}  # fmt: skip
"""s5_reset_reason_txt of torvalds/linux arch/x86/kernel/cpu/amd.c."""


def crashed(folder: Path, *, planned: bool = False, up_s: int = 3600) -> Made:
    """A machine that is up since an hour; a login record of the boot before, and of its shutdown where it was planned."""
    started = int(TAKEN) - up_s
    records = boot(started - 400_000) + shutdown(started - 300_000) + boot(started - 290_000)
    records += (shutdown(started - 60) if planned else b"") + boot(started)
    made = Made(folder).put("/proc/uptime", f"{up_s}.0 1.0\n").put("/proc/stat", f"cpu  1 2 3\nbtime {started}\n")
    return made.put("/var/log/wtmp", records)


def ring(*lines: str) -> str:
    return "6,1,1000,-;Linux version 6.17.0 (gcc)\n" + "".join(
        f"6,{n},{1_204_531 + n},-;{line}\n" for n, line in enumerate(lines, 2)
    )


def reset(code: int) -> str:
    """What the kernel prints of the register, one line a bit."""
    return ring(*(f"x86/amd: Previous system reset reason [0x{code:08x}]: {text}" for bit, text in AMD.items() if code >> bit & 1))  # fmt: skip


def findings(made: Made, lang: str = "en") -> list[Finding]:
    return check(
        made.host(), CheckOptions(only=["kernel", "log", "power", "sensors", "snapshot.texts"], deep=True, lang=lang)
    ).findings


def how(made: Made) -> str | None:
    """How the restart came about, as the finding tells it; None where there is none."""
    found = [f for f in findings(made) if f.id == "kernel.reboot.unexpected"]
    return str((found[0].observed or {}).get("value")) if found else None


def test_every_reason_of_the_register_is_in_the_table() -> None:
    rows = [row["says"] for row in read_table("restart_reasons.tsv") if row["told_by"] == "amd"]
    older = ("shutdown pin was shorted", "keyboard reset pin KB_RST_L was asserted")
    for text in (*AMD.values(), *older):
        assert len([says for says in rows if re.fullmatch(says, text)]) == 1, text
    assert len(rows) == len(AMD)


@pytest.mark.parametrize(
    ("bit", "expected"),
    [(0, "thermal"), (1, "forced"), (2, "forced"), (4, "forced"), (9, "thermal"), (16, "forced"), (17, "software"), (18, "software"),
     (19, "software"), (20, "software"), (21, "unclean"), (22, "forced"), (23, "cpu_shutdown"), (24, "unclean"), (25, "watchdog"),
     (26, "forced"), (27, "hardware_error"), (29, "unclean"), (30, "hardware_error"), (31, "hardware_error")],
)  # fmt: skip
def test_each_reason_by_itself(tmp_path: Path, bit: int, expected: str) -> None:
    made = crashed(tmp_path / "s").put("/dev/kmsg", reset(1 << bit | 0x800))
    found = [f for f in findings(made) if f.severity != "info"]
    assert [(f.id, (f.observed or {})["value"]) for f in found] == [("kernel.reboot.unexpected", expected)]
    assert found[0].evidence[0].text.endswith(AMD[bit])
    assert found[0].cause == restart_hows()[expected]["cause"]


@pytest.mark.parametrize(
    ("code", "expected"),
    [(0x08000A00, "hardware_error"), (0x00080A00, "software"), (0x00200A00, "unclean"), (0x0A000800, "hardware_error"), (0xFFFFFFFF, "unclean")],
)  # fmt: skip
def test_reasons_that_were_left_from_before(tmp_path: Path, code: int, expected: str) -> None:
    made = crashed(tmp_path / "s").put("/dev/kmsg", reset(code))
    assert how(made) == expected
    line = next(f for f in findings(made) if f.id == "kernel.reboot.unexpected").evidence[0].text
    assert (AMD[27] in line) == (expected == "hardware_error")


@pytest.mark.parametrize("code", [0x00080800, 0x00080A00, 0x08080800, 0x02200800, 0x00080801])
def test_a_planned_reboot_stays_planned(tmp_path: Path, code: int) -> None:
    """Whatever an older reset left in the register, and whatever the board's log has of a supply weeks ago and of the power-off itself."""
    before = [(-20 * 86400, "Power Supply #0x51 | Power Supply AC lost | Asserted"), (-90, "Power Unit #0x01 | Power off/down | Asserted"),
              (20, "System Boot Initiated #0xe0 | Initiated by power up | Asserted")]  # fmt: skip
    made = crashed(tmp_path / "s", planned=True).put("/dev/kmsg", reset(code))
    assert [f.id for f in findings(made) if f.severity != "info"] == []
    made.command("ipmitool-sel-elist.txt", sel(*before))
    made.command("ipmitool-chassis-status.txt", CHASSIS.format("ac-failed"))
    made.put("/sys/class/watchdog/watchdog0/bootstatus", "32\n")
    assert [f.id for f in findings(made) if f.severity != "info"] == []
    assert how(made) is None


CHASSIS = "System Power         : on\nPower Overload       : false\nPower Restore Policy : always-on\nLast Power Event     : {}\n"


def sel(*entries: tuple[float, str]) -> str:
    stamp = "%m/%d/%Y | %H:%M:%S"
    return "".join(f"{n:4x} | {time.strftime(stamp, time.gmtime(STARTED + when))} | {text}\n" for n, (when, text) in enumerate(entries, 1))  # fmt: skip


def test_the_board_tells_of_lost_power_and_nothing_says_it_twice(tmp_path: Path) -> None:
    lost = [(-700, "Power Unit #0x01 | AC lost | Asserted"), (-699, "Power Supply #0x51 | Power Supply AC lost | Asserted"),
            (20, "System Boot Initiated #0xe0 | Initiated by power up | Asserted")]  # fmt: skip
    made = crashed(tmp_path / "s").command("ipmitool-sel-elist.txt", sel(*lost))
    found = [f for f in findings(made) if f.severity != "info"]
    assert [(f.id, f.cause) for f in found] == [("kernel.reboot.unexpected", "host.unexpected_reboot")]
    assert found[0].evidence[0].text.endswith("Power Unit #0x01 | AC lost | Asserted")
    assert "had lost power" in found[0].title
    assert "曾断电" in next(f.title for f in findings(made, "zh") if f.id == "kernel.reboot.unexpected")


def test_an_old_fault_of_a_supply_does_not_explain_a_crash(tmp_path: Path) -> None:
    old = [(-20 * 86400, "Power Supply #0x51 | Power Supply AC lost | Asserted"), (20, "System Boot Initiated #0xe0 | Initiated by hard reset | Asserted")]  # fmt: skip
    made = crashed(tmp_path / "s").command("ipmitool-sel-elist.txt", sel(*old))
    assert how(made) == "unclean"
    detail = next(f.detail for f in findings(made) if f.id == "kernel.reboot.unexpected")
    assert "sudo ipmitool sel elist last 50" in detail


@pytest.mark.parametrize(
    ("cause", "event", "expected"),
    [("power-up due to always-restore power policy", "", "power_loss"), ("power-up due to restore-previous power policy", "ac-failed ", "power_loss"),
     ("unknown", "ac-failed ", "power_loss"), ("unknown", "overload fault ", "power_loss"), ("watchdog expired", "ac-failed ", "watchdog"),
     ("chassis power control command", "ac-failed command", "forced"), ("reset via pushbutton", "", "forced"), ("reset via PEF", "", "forced"),
     ("power-up via pushbutton", "", "unclean"), ("OEM", "command", "unclean"), ("unknown", "", "unclean")],
)  # fmt: skip
def test_the_controllers_word_on_the_restart(tmp_path: Path, cause: str, event: str, expected: str) -> None:
    made = crashed(tmp_path / "s").command("ipmitool-chassis-restart_cause.txt", f"System restart cause: {cause}\n")
    made.command("ipmitool-chassis-status.txt", CHASSIS.format(event))
    assert how(made) == expected


@pytest.mark.parametrize(("flags", "expected"), [(0x20, "watchdog"), (0x10, "power_loss"), (0x01, "thermal"), (0x8180, "unclean"), (0, "unclean")])  # fmt: skip
def test_the_watchdogs_own_status(tmp_path: Path, flags: int, expected: str) -> None:
    made = crashed(tmp_path / "s").put("/sys/class/watchdog/watchdog0/bootstatus", f"{flags}\n")
    made.put("/sys/class/watchdog/watchdog0/identity", "SP5100 TCO timer\n")
    assert how(made) == expected


def test_a_fatal_record_of_the_firmware(tmp_path: Path) -> None:
    lines = ("BERT: Error records from previous boot:", "[Hardware Error]: event severity: fatal", "[Hardware Error]:   section_type: memory error")  # fmt: skip
    made = crashed(tmp_path / "s").put("/dev/kmsg", ring(*lines))
    assert how(made) == "hardware_error"


TAIL = "journalctl-b-1-n-40-o-short-iso-no-pager-q.txt"


def tail(*lines: str, ago: float = 900.0) -> str:
    at = time.gmtime(STARTED - ago)
    return "".join(f"{time.strftime('%Y-%m-%dT%H:%M:%S+0000', at)} n1 {line}\n" for line in lines)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [(["upsmon[1802]: UPS rack3@nut01 on battery"], "power_loss"),
     (["apcupsd[911]: Power failure.", "apcupsd[911]: Running on UPS batteries."], "power_loss"),
     (["nut-monitor[7]: UPS ups@localhost on battery", "nut-monitor[7]: UPS ups@localhost on line power"], "unclean"),
     (["bash[77]: echo UPS x on battery"], "unclean"),
     (["systemd[1]: Started session-99.scope."], "unclean")],
)  # fmt: skip
def test_a_ups_spoke_last(tmp_path: Path, lines: list[str], expected: str) -> None:
    assert how(crashed(tmp_path / "s").command(TAIL, tail(*lines))) == expected


def test_a_shutdown_that_only_the_journal_shows(tmp_path: Path) -> None:
    made = crashed(tmp_path / "s").command(TAIL, tail("systemd[1]: Reached target System Reboot.", ago=60.0))
    assert how(made) is None


def test_the_journal_of_a_boot_before_that_tells_nothing(tmp_path: Path) -> None:
    made = crashed(tmp_path / "s").command(TAIL, tail("systemd[1]: Reached target System Reboot.", ago=300_000.0))
    assert how(made) == "unclean"


def test_the_register_in_a_crash_dump_is_about_a_boot_that_is_over(tmp_path: Path) -> None:
    line = (
        "x86/amd: Previous system reset reason [0x08000800]: an uncorrected error caused a data fabric sync flood event"
    )
    made = crashed(tmp_path / "s").put("/var/crash/202611301050/vmcore-dmesg.txt", f"[    1.204531] {line}\n[76000.100000] Kernel panic - not syncing: x\n")  # fmt: skip
    made.mode("/var/crash/202611301050/vmcore-dmesg.txt", kind="file", mtime=STARTED - 200)
    assert how(made) in (None, "panic")  # under the panic, or told as one
    assert not any("hardware error had reset it" in f.title for f in findings(made))


def test_a_dated_log_tells_of_the_boot_that_it_is_about(tmp_path: Path) -> None:
    """Two boots since the hardware error: the line belongs to the first of them."""
    made = crashed(tmp_path / "s")
    at = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(STARTED - 290_000 + 4))
    made.put("/var/log/kern.log", f"{at} n1 kernel: x86/amd: Previous system reset reason [0x08000800]: {AMD[27]}\n")
    assert how(made) == "unclean"


@pytest.mark.parametrize(
    "text",
    ["         system boot  2026-11-30 11:00\n", "         system boot  Nov 30 11:00\n", "           系统引导  2026-11-30 11:00\n"],
)  # fmt: skip
def test_who_tells_when_and_the_board_tells_why(tmp_path: Path, text: str) -> None:
    made = Made(tmp_path / "s").put("/proc/uptime", "3600.0 1.0\n").command("who-b.txt", text)
    assert how(made) is None
    made.put("/dev/kmsg", reset(1 << 25))
    assert how(made) == "watchdog"


def test_last_tells_where_wtmp_is_absent(tmp_path: Path) -> None:
    text = ("reboot   system boot  6.8.0-45-generic Mon Nov 30 11:00   still running\n"
            "kim      pts/0        10.0.0.7         Mon Nov 30 09:30 - crash  (01:30)\n"
            "reboot   system boot  6.8.0-45-generic Fri Nov 27 08:00   still running\n")  # fmt: skip
    made = Made(tmp_path / "s").put("/proc/uptime", "3600.0 1.0\n").command("last-x.txt", text).command("who-b.txt", "         system boot  2026-11-30 11:00\n")  # fmt: skip
    assert how(made) == "unclean"
    made.command("ipmitool-chassis-restart_cause.txt", "System restart cause: power-up due to always-restore power policy\n")  # fmt: skip
    assert how(made) == "power_loss"


def test_the_tables_fit_together() -> None:
    hows = restart_hows()
    for row in read_table("restart_reasons.tsv"):
        assert row["how"] in {*hows, ""}
        assert row["source"]
        assert int(row["rank"]) >= 0
        if row["told_by"].startswith("sel"):
            re.compile(row["says"])
    for row in hows.values():
        assert cause_info(row["cause"])
        assert all(row[name] for name in ("en", "zh", "detail_en", "detail_zh", "source"))
        assert re.search(r"[\u4e00-\u9fff]", row["zh"] + row["detail_zh"])
