"""What the board's log says of a boot: by the order of its lines, whatever its clock; old lines and later ones do not count."""

from __future__ import annotations

import time

import pytest

from gpuclinic.model import Document
from gpuclinic.recognise.board_log import BootTime, told_by_board
from gpuclinic.recognise.parsers.bmc import parse_redfish, parse_sel

BOOT = 1_796_032_800.0  # 30 November 2026, 10:00 UTC
HOUR = 3600.0

EARLIER_START = (-40 * 86400, "System Boot Initiated #0xe0 | Initiated by power up | Asserted")
START = (30, "System Boot Initiated #0xe0 | Initiated by power up | Asserted")
UNIT_LOST = "Power Unit #0x01 | AC lost | Asserted"
SUPPLY_LOST = "Power Supply PS2 Status | Power Supply AC lost | Asserted"


def sel(*entries: tuple[float | str, str], ahead: float = 0.0) -> str:
    """Lines as ipmitool prints them; each with its seconds from the boot on, or its own stamp."""
    lines = []
    for number, (when, text) in enumerate(entries, 1):
        stamp = (
            when if isinstance(when, str) else time.strftime(" %m/%d/%Y | %H:%M:%S ", time.gmtime(BOOT + when + ahead))
        )
        lines.append(f"{number:4x} |{stamp}| {text}")
    return "\n".join(lines) + "\n"


def told(text: str, **boot: float) -> list[str]:
    """How the boot before ended, what is worth most first."""
    facts = parse_sel(Document("sel.txt", text))
    assert len(facts) == len(text.splitlines())
    found = told_by_board(facts, BootTime(BOOT, **boot))
    return [one.how for one in sorted(found, key=lambda one: one.rank)]


@pytest.mark.parametrize("ahead", [0.0, 8 * HOUR, -7 * HOUR, -BOOT + 86400.0, 400 * 86400.0])
def test_the_unit_without_mains_counts_by_its_place(ahead: float) -> None:
    """Right, in two other zones, never set (1970), and in another year."""
    assert told(sel(EARLIER_START, (-600, UNIT_LOST), START, ahead=ahead))[:1] == ["power_loss"]


def test_an_outage_of_days_is_still_what_happened() -> None:
    assert told(sel(EARLIER_START, (-3 * 86400, UNIT_LOST), START)) == ["power_loss"]


@pytest.mark.parametrize(
    ("before", "last_line", "expected"),
    [(600, None, ["power_loss"]), (20 * 86400, None, []), (3 * HOUR, None, []), (3 * HOUR, BOOT - 3 * HOUR, ["power_loss"]),
     (20 * 86400, BOOT - 60.0, []), (3 * HOUR, BOOT - 60.0, [])],
)  # fmt: skip
def test_one_supply_counts_only_when_the_boot_before_ended(
    before: float, last_line: float | None, expected: list[str]
) -> None:
    """A redundant supply that lost its mains weeks ago did not stop the machine."""
    assert told(sel(EARLIER_START, (-before, SUPPLY_LOST), START), last_line=last_line) == expected  # type: ignore[arg-type]


def test_what_an_older_boot_followed_from_is_not_told_again() -> None:
    lost_then = ((-40 * 86400 - 300, UNIT_LOST), EARLIER_START)
    assert told(sel(*lost_then, START)) == []


def test_what_happens_after_the_boot_is_not_its_cause() -> None:
    assert told(sel(EARLIER_START, START, (4000, UNIT_LOST))) == []


def test_a_log_that_knows_nothing_of_this_boot() -> None:
    """Full since a month, or only of starts by power: its last start is another one."""
    assert told(sel((-30 * 86400, UNIT_LOST), (-30 * 86400 + 60, START[1]))) == []
    assert told(sel(("  Pre-Init  |0000000094", START[1]), (-30 * 86400, "Fan #0x41 | Lower Critical going low | Asserted"))) == []  # fmt: skip


def test_a_controller_that_itself_starts_anew_has_lost_its_power() -> None:
    anew = sel(
        EARLIER_START, ("  Pre-Init  |0000000094", "System ACPI Power State #0xd5 | S0/G0: working | Asserted"), START
    )
    assert told(anew) == ["power_loss"]
    reset_later = sel(
        EARLIER_START, START, ("  Pre-Init  |0000000094", "System ACPI Power State #0xd5 | S0/G0: working | Asserted")
    )
    assert told(reset_later) == []


def test_lines_of_an_unset_clock_belong_where_they_stand() -> None:
    lost = ("  Pre-Init  |0000000029", SUPPLY_LOST)
    assert told(sel(EARLIER_START, lost, START)) == ["power_loss"]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [(["Watchdog 2 #0xfd | Power cycle | Asserted", "Power Unit #0x01 | Power off/down | Asserted"], "watchdog"),
     (["Processor #0x60 | Thermal Trip | Asserted", "Power Unit #0x01 | Power off/down | Asserted"], "thermal"),
     (["Processor #0x60 | IERR | Asserted", "Watchdog 2 #0xfd | Hard reset | Asserted"], "hardware_error"),
     (["Memory #0x02 | Uncorrectable ECC (DIMM_A3) | Asserted"], "hardware_error"),
     (["Button #0x46 | Power Button pressed | Asserted", "Power Unit #0x01 | Power off/down | Asserted", SUPPLY_LOST], "forced"),
     (["System ACPI Power State #0xc1 | S4/S5: soft-off | Asserted"], "forced"),
     (["Power Unit Pwr Unit Status | Power off/down | Asserted"], "power_loss"),
     (["Power Unit #0x01 | 240VA power down | Asserted"], "power_loss"),
     (["OS Stop/Shutdown #0x46 | Run-time critical stop | Asserted"], "panic"),
     (["Power Unit #0x01 | AC lost | Deasserted"], "power_loss"),
     (["Power Supply #0x51 | Power Supply AC lost | Deasserted"], None),
     (["Power Supply #0x51 | Presence detected | Asserted"], None)],
)  # fmt: skip
def test_each_kind_of_line(lines: list[str], expected: str | None) -> None:
    found = told(sel(EARLIER_START, *((-300 + n, line) for n, line in enumerate(lines)), START))
    assert found[:1] == ([expected] if expected else [])


def test_without_lines_about_boots_the_time_tells() -> None:
    assert told(sel((-600, UNIT_LOST))) == ["power_loss"]
    assert told(sel((-600, UNIT_LOST), ahead=8 * HOUR)) == []
    assert told(sel((-600, UNIT_LOST), ahead=8 * HOUR), zone=8 * HOUR) == ["power_loss"]
    assert told(sel((-600, UNIT_LOST), ahead=-5e8), clock=-5e8) == ["power_loss"]
    assert told(sel((-9 * HOUR, UNIT_LOST))) == []


def test_a_known_clock_keeps_the_start_of_another_boot_apart() -> None:
    other = sel((-7 * HOUR - 500.0, UNIT_LOST), (-7 * HOUR - 420.0, START[1]))
    assert told(other, clock=0.0) == []


def test_programs_that_print_the_newest_first() -> None:
    lines = sel(EARLIER_START, (-900, SUPPLY_LOST), (-600, UNIT_LOST), START).splitlines()
    assert told("\n".join(reversed(lines)) + "\n") == ["power_loss", "power_loss"]


def test_redfish_entries() -> None:
    shape = '{{"@odata.type": "#LogEntry.v1_0_0.LogEntry", "Created": "{}", "Message": "{}", "MessageId": "{}", "Severity": "{}"}}'
    entries = [("2026-11-30T10:00:40+00:00", "System is turning on.", "SYS1000", "OK"),
               ("2026-11-30T09:51:00+00:00", "The power input for power supply 1 is lost.", "PSU0003", "Critical")]  # fmt: skip
    facts = parse_redfish(Document("sel.json", "\n".join(shape.format(*entry) for entry in entries)))
    assert [one.how for one in told_by_board(facts, BootTime(BOOT))] == ["power_loss"]


def test_nothing_said() -> None:
    assert told_by_board([], BootTime(BOOT)) == []
