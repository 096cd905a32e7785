"""The commands of a fake server: small sh scripts that print files rendered from its state."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import logs, pci, smi
from .driver_files import dkms_status, modinfo

if TYPE_CHECKING:
    from pathlib import Path

    from .machine import Machine
    from .nodes import Nodes
    from .scenario import Scenario
    from .skus import Sku


@dataclass(frozen=True)
class Answer:
    """What a command prints and how it ends."""

    text: str
    code: int = 0
    to_error: bool = False


Answers = dict[str, dict[str, Answer]]  # command to (pattern of its arguments to answer), the first that fits


def _smi(machine: Machine, sku: Sku, scenario: Scenario) -> dict[str, Answer]:
    init = int(scenario.get("init", "0"))
    if init:
        return {"*": Answer(smi.INIT_MESSAGES.get(init, f"Failed to initialize NVML: error {init}\n"), min(255, init))}
    if not smi.shown(scenario):
        return {"*": Answer("No devices were found\n", 6)}
    lost = any(scenario.of(gpu, "lost", "0") != "0" for gpu in smi.shown(scenario))
    xml = Answer(smi.query_xml(scenario, sku, machine.now), 15 if lost else 0)
    version = (f"NVIDIA-SMI version  : {machine.user_space}\nNVML version        : {machine.user_space.rsplit('.', 1)[0]}\n"
               f"DRIVER version      : {scenario['driver_version']}\nCUDA Version        : {int(scenario['cuda_version']) // 1000}.0\n")  # fmt: skip
    return {"*topo*-p2p*": Answer(smi.p2p(scenario)), "*topo*": Answer(smi.topo(scenario)),
            "*nvlink*-e*": Answer(smi.nvlink(scenario, sku, errors=True)), "*nvlink*": Answer(smi.nvlink(scenario, sku, errors=False)),
            "*--version*": Answer(version), "*-q*-x*|*-x*-q*|*--query*--xml*": xml, "*-L*": Answer(smi.listing(scenario, sku), 15 if lost else 0),
            "": Answer(smi.table(scenario, sku, machine.now), 15 if lost else 0)}  # fmt: skip


def _journal(machine: Machine) -> dict[str, Answer]:
    boots = len(machine.earlier_boots)
    answers = {"*--list-boots*": Answer(logs.list_boots(machine))}
    for back in range(boots, 0, -1):
        for iso in (True, False):
            tail = "*short-iso*" if iso else "*"
            pattern = "|".join(
                f"*{option}{after}{tail}"
                for option in (f"-b -{back}", f"-b-{back}", f"--boot=-{back}")
                for after in ("", " ")
            )
            answers[pattern] = Answer(logs.earlier_journal(machine, back, iso=iso))
    everything = "".join(
        logs.earlier_journal(machine, back, iso=True) for back in range(boots, 0, -1)
    ) + logs.journal_iso(machine)
    return answers | {"*-o*json*|*--output=json*": Answer(logs.journal_json(machine)), "*_TRANSPORT=kernel*--since*": Answer(everything),
                      "*short-iso*": Answer(logs.journal_iso(machine)), "*": Answer(logs.journal(machine))}  # fmt: skip


def _ipmitool(machine: Machine) -> dict[str, Answer]:
    sdr = "".join(f"{sensor.name:<16} | {sensor.value:<17} | {sensor.status}\n" for sensor in machine.sensors)
    elist = "".join(f"{sensor.name:<16} | {number:02X}h | {sensor.status:<3} |  7.{number} | {sensor.value if sensor.name[-6:] not in ('Status', 'ndancy') else _STATES.get(sensor.value, sensor.value)}\n"
                    for number, sensor in enumerate(machine.sensors, 1))  # fmt: skip
    rows = "".join(f"{number:4x} | {text}\n" for number, text in enumerate(machine.sel, 1)) or "SEL has no entries\n"
    watts = machine.power_w
    power = (f"\n    Instantaneous power reading:              {watts:>8} Watts\n    Minimum during sampling period:           {watts - 90:>8} Watts\n"
             f"    Maximum during sampling period:           {watts + 200:>8} Watts\n    Average power reading over sample period: {watts:>8} Watts\n"
             "    Power reading state is:                   activated\n\n")  # fmt: skip
    cause, event = machine.chassis
    chassis = f"System Power         : on\nPower Overload       : false\nPower Restore Policy : always-on\nLast Power Event     : {event}\n"
    clock = time.strftime("%m/%d/%Y %H:%M:%S\n", time.gmtime(machine.now))
    return {
        "*chassis*restart_cause*": Answer(f"System restart cause: {cause}\n"),
        "*chassis*status*": Answer(chassis),
        "*sel*time*get*": Answer(clock),
        "*sel*": Answer(rows),
        "*dcmi*power*": Answer(power),
        "*elist*": Answer(elist),
        "*sdr*|*sensor*": Answer(sdr),
        "*": Answer("Invalid command\n", 1, to_error=True),
    }


# Discrete sensors as `sdr elist` words them.
_STATES = {
    "0x01": "Presence detected",
    "0x0b": "Presence detected, Failure detected, Power Supply AC lost",
    "0x02": "Redundancy Lost",
}


def answers_of(machine: Machine, sku: Sku, scenario: Scenario) -> Answers:
    """All answers; those of ``machine.answers`` come first."""
    kernels = [kernel for kernel in {machine.next_kernel, *machine.module_files} if kernel != machine.kernel]
    infos = {f"*-k*{kernel}*": Answer(*modinfo(machine, kernel)) for kernel in kernels}
    text, code = modinfo(machine, machine.kernel)
    answers: Answers = {
        "nvidia-smi": _smi(machine, sku, scenario), "journalctl": _journal(machine), "ipmitool": _ipmitool(machine),
        "dmesg": {"*--time-format=iso*|*--time-format iso*": Answer(logs.dmesg_iso(machine)), "*-T*|*--ctime*": Answer(logs.dmesg_time(machine)), "*": Answer(logs.dmesg(machine))},
        "timedatectl": {"*": Answer("Timezone=Etc/UTC\nLocalRTC=no\nCanNTP=yes\nNTP=yes\nNTPSynchronized=yes\n")},
        "getent": {"*": Answer("10.0.0.11       STREAM gpu01.example\n".replace("gpu01", machine.hostname)) if machine.hostname in str(machine.files.get("etc/hosts", machine.hostname)) else Answer("", 2)},
        "dkms": {"*": Answer(dkms_status(machine))}, "modinfo": {**infos, "*nvidia*": Answer(text, code, to_error=bool(code)), "*": Answer("", 1)},
        "lspci": {"*": Answer(pci.lspci(machine.bus))}, "mokutil": {"*": Answer(f"SecureBoot {'enabled' if machine.secure_boot else 'disabled'}\n")},
        "uname": {"*-r*": Answer(f"{machine.kernel}\n"), "*-m*": Answer(f"{machine.arch}\n"), "*": Answer(f"Linux {machine.hostname} {machine.kernel} #52-Ubuntu SMP {machine.arch} GNU/Linux\n")},
    }  # fmt: skip
    for (command, pattern), (reply, status) in machine.answers.items():
        others = {known: answer for known, answer in answers.get(command, {}).items() if known != pattern}
        answers[command] = {pattern: Answer(reply, status), **others}
    return answers


SYSTEMCTL = """\
d="${0%/*}/../answers/systemctl"; verb=; units=; worst=0; skip=
set -f
for a; do
    [ "$skip" ] && { skip=; continue; }
    case "$a" in
    -p|-n|-o|-t) skip=1;;
    -*) ;;
    *) if [ "$verb" ]; then units="$units $a"; else verb=$a; fi;;
    esac
done
[ "$verb" = list-units ] && { cat "$d/list-units"; exit 0; }
[ "$units" = " *" ] && units=$(cat "$d/failed")
for u in $units; do
    f="$d/${u%.service}"; [ -f "$f" ] || f="$d/unknown"
    while IFS= read -r line; do case "$line" in ActiveState=*) active=${line#*=};; UnitFileState=*) enabled=${line#*=};; esac; done <"$f"
    case "$verb" in
    is-active) echo "$active"; [ "$active" = active ] || worst=3;;
    is-failed) echo "$active"; [ "$active" = failed ] || worst=1;;
    is-enabled) echo "$enabled"; [ "$enabled" = enabled ] || worst=1;;
    show) [ "$f" = "$d/unknown" ] && echo "Id=$u"; cat "$f"; echo;;
    status) echo "● $u - $u"; echo "     Loaded: loaded (/usr/lib/systemd/system/$u; $enabled; preset: enabled)"
        echo "     Active: $active since Fri 2026-11-20 08:00:00 UTC; 10 days ago"; [ "$active" = active ] || worst=3;;
    esac
done
exit $worst
"""


def _quoted(pattern: str) -> str:
    return pattern.replace("**", "*").replace(" ", "\\ ") or "''"


def render_commands(machine: Machine, sku: Sku, scenario: Scenario) -> Nodes:
    """Scripts under bin/ and what they print under answers/."""
    nodes: Nodes = {}
    for command, replies in answers_of(machine, sku, scenario).items():
        cases = ""
        for number, (pattern, answer) in enumerate(replies.items()):
            nodes[f"answers/{command}/{number}"] = answer.text
            cases += (
                f'    {_quoted(pattern)}) cat "$d/{number}"{" >&2" if answer.to_error else ""}; exit {answer.code};;\n'
            )
        nodes[f"bin/{command}"] = _script(
            machine,
            command,
            f'd="${{0%/*}}/../answers/{command}"\ncase "$*" in\n{cases}    esac\necho "{command}: this fake does not know: $*" >&2; exit 64\n',
        )
    nodes["bin/systemctl"] = _script(machine, "systemctl", SYSTEMCTL)
    failed = ""
    for unit, state in machine.units.items():
        nodes[f"answers/systemctl/{unit}"] = "".join(
            f"{key}={value}\n" for key, value in {"Id": f"{unit}.service", **state}.items()
        )
        if state["ActiveState"] == "failed":
            failed += f"● {unit}.service loaded failed failed {unit}\n"
    nodes["answers/systemctl/unknown"] = "LoadState=not-found\nActiveState=inactive\nSubState=dead\nUnitFileState=\n"
    nodes["answers/systemctl/failed"] = (
        " ".join(unit for unit, state in machine.units.items() if state["ActiveState"] == "failed") + "\n"
    )
    nodes["answers/systemctl/list-units"] = f"  UNIT LOAD ACTIVE SUB DESCRIPTION\n{failed}\n0 loaded units listed.\n"
    return nodes


def _script(machine: Machine, command: str, body: str) -> str:
    hang = f"sleep {machine.hangs[command]}\n" if command in machine.hangs else ""
    return f"#!/bin/sh\n{hang}{body}"


def make_executable(folder: Path) -> None:
    """Sets the mode of the scripts."""
    for path in folder.iterdir():
        if not path.stat().st_mode & 0o100:
            path.chmod(0o755)
