"""Faults that ended the boot before: the machine is up again since two hours."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from .faults import fault
from .machine import LogLine

if TYPE_CHECKING:
    from .server import Server

_UP_S = 7200.0
_ENDED_S = 899_000.0
"""Seconds from the start of the boot before to its last line; the machine was down for the quarter of an hour after it."""


def _boot_that_ended(server: Server, lines: list[tuple[float, str]]) -> None:
    machine = server.machine
    identity, begun, ended, _ = machine.earlier_boots[-1]
    machine.earlier_boots[-1] = (
        identity,
        begun,
        ended,
        [LogLine(0.0, f"Linux version {machine.kernel}"), *(LogLine(at, text, 3) for at, text in lines)],
    )


def _booted_anew(server: Server) -> None:
    machine = server.machine
    passed = machine.uptime_s - _UP_S
    machine.uptime_s = _UP_S
    machine.earlier_boots = [
        (identity, begun - passed, ended - passed, lines) for identity, begun, ended, lines in machine.earlier_boots
    ]
    for process in machine.processes.values():
        process.age_s = min(process.age_s, int(_UP_S) - 20)


def _just_stopped(server: Server) -> None:
    _booted_anew(server)
    _boot_that_ended(server, [(_ENDED_S, "systemd[1]: Started session-99.scope.")])


def _board_log(server: Server, *entries: tuple[float, str], ahead: float = 0.0) -> None:
    """Lines of the board's log, each so many seconds before the boot, by a clock that is so many seconds ahead."""
    boot = server.machine.now - _UP_S
    for before, text in entries:
        stamp = time.strftime("%m/%d/%Y | %H:%M:%S", time.gmtime(boot - before + ahead))
        server.machine.sel.append(f"{stamp} | {text}")


_STARTED = ((-40.0, "System Boot Initiated #0xe0 | Initiated by power up | Asserted"), (-75.0, "OS Boot #0x22 | C: boot completed | Asserted"))  # fmt: skip
_EARLIER = (
    (900_700.0, "System Boot Initiated #0xe0 | Initiated by warm reset | Asserted"),
    (900_000.0, "Power Supply #0x52 | Power Supply AC lost | Asserted"),
    (899_000.0, "Power Supply #0x52 | Power Supply AC lost | Deasserted"),
)


@fault()
def crashed(server: Server) -> None:
    """The boot before this one ended in a panic; pstore has it."""
    _booted_anew(server)
    panic = "Kernel panic - not syncing: Fatal hardware error!"
    _boot_that_ended(
        server,
        [
            (899_650.0, "mce: [Hardware Error]: CPU 3: Machine Check Exception: 5 Bank 7: be00000000800400"),
            (899_651.0, panic),
        ],
    )
    server.machine.files["sys/fs/pstore"] = None
    server.machine.files["sys/fs/pstore/dmesg-erst-7530486857247"] = f"Panic#1 Part1\n<0>[899651.000000] {panic}\n"


@fault()
def stopped(server: Server) -> None:
    """The boot before this one just stopped; nothing tells why."""
    _just_stopped(server)
    _board_log(server, *_EARLIER, *_STARTED)


@fault()
def power_loss(server: Server, ahead_s: int = 0) -> None:
    """The boot before this one just stopped; the board's log has the power loss, by a clock that is so far ahead."""
    _just_stopped(server)
    lost = [
        (800.0, f"{what} | Asserted")
        for what in ("Power Unit #0x01 | AC lost", "Power Supply #0x51 | Power Supply AC lost")
    ]
    _board_log(server, *_EARLIER, *lost, *_STARTED, ahead=float(ahead_s))


@fault()
def board_says(server: Server, cause: str = "watchdog expired", event: str = "") -> None:
    """The boot before this one just stopped; the board's controller says why this one started and what the last power event was."""
    _just_stopped(server)
    server.machine.chassis = (cause, event)


@fault()
def reset_reason(server: Server, code: str = "0x08000800", text: str = "an uncorrected error caused a data fabric sync flood event") -> None:  # fmt: skip
    """The boot before this one just stopped; the kernel (6.16 and later) prints AMD's reset register."""
    _just_stopped(server)
    for one in text.split("; "):
        server.machine.say(f"x86/amd: Previous system reset reason [{code}]: {one}", ago=_UP_S - 1.2, level=6)


@fault()
def watchdog_reset(server: Server, flags: int = 0x20) -> None:
    """The boot before this one just stopped; the watchdog's driver has found that it was the one."""
    _just_stopped(server)
    server.machine.files["sys/class/watchdog/watchdog0/bootstatus"] = f"{flags}\n"
    server.machine.files["sys/class/watchdog/watchdog0/identity"] = "SP5100 TCO timer\n"


@fault()
def ups_empty(server: Server) -> None:
    """The boot before this one just stopped, on the batteries of a UPS."""
    _booted_anew(server)
    _boot_that_ended(
        server,
        [(_ENDED_S - 300.0, "upsmon[1802]: UPS rack3@nut01 on battery"), (_ENDED_S, "upsmon[1802]: UPS rack3@nut01 battery is low")],
    )  # fmt: skip


@fault()
def planned_after_ac_loss(server: Server) -> None:
    """A planned reboot; the board's log has a power supply without mains from days before, and the power-off itself."""
    _booted_anew(server)
    _board_log(server, *_EARLIER, (200.0, "Power Unit #0x01 | Power off/down | Asserted"), *_STARTED)
    server.machine.say("x86/amd: Previous system reset reason [0x00080a00]: internal CPU thermal limit was tripped", ago=_UP_S - 1.2, level=6)  # fmt: skip
