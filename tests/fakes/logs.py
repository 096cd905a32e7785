"""The kernel log in the shapes in which a server keeps it."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from .driver_files import version_line
from .machine import LogLine, Machine

if TYPE_CHECKING:
    from .nodes import Nodes
    from .skus import Sku


def boot_lines(machine: Machine, sku: Sku) -> list[LogLine]:
    """What the kernel of a healthy server says while it boots."""
    gpus = [function for function in machine.bus if function.kind == "gpu"]
    lines = [
        (0.0, f"Linux version {machine.kernel} (buildd@lcy02-amd64-080) (x86_64-linux-gnu-gcc-13 (Ubuntu 13.3.0-6ubuntu2~24.04) 13.3.0) #52-Ubuntu SMP PREEMPT_DYNAMIC"),
        (0.0, f"Command line: BOOT_IMAGE=/boot/vmlinuz-{machine.kernel} root=UUID=2f0f8d5e-3a1b-4f52-9c8e-0d6a7b1c2e3f {' '.join(machine.kernel_options)}"),
        (0.0, "BIOS-provided physical RAM map:"), (0.9, f"Memory: {machine.memory_mib * 1000}K/{machine.memory_mib * 1024}K available"),
        (1.2, f"smpboot: Allowing {machine.cpus} CPUs, 0 hotplug CPUs"), (2.1, "ACPI: Interpreter enabled"), (2.2, "HEST: Enabling Firmware First mode for corrected errors."),
        (4.8, "systemd[1]: systemd 255.4-1ubuntu8.4 running in system mode"), (5.0, "EXT4-fs (nvme0n1p2): mounted filesystem ro with ordered data mode. Quota mode: none."),
        (9.0, "nvidia: loading out-of-tree module taints kernel."), (9.0, "nvidia: module verification failed: signature and/or required key missing - tainting kernel"),
        (9.1, "nvidia-nvlink: Nvlink Core is being initialized, major device number 511"),
    ]  # fmt: skip
    lines += [
        (
            3.0 + index / 100,
            f"pci {function.address}: [{function.vendor:04x}:{function.device:04x}] type 00 class 0x{function.pci_class:06x} PCIe Endpoint",
        )
        for index, function in enumerate(gpus)
    ]
    lines += [
        (9.2 + index / 100, f"nvidia {function.address}: enabling device (0140 -> 0142)")
        for index, function in enumerate(gpus)
    ]
    lines += [
        (9.5, f"NVRM: loading {version_line(machine)}"),
        (
            10.1,
            f"nvidia-modeset: Loading NVIDIA UNIX {machine.flavour}Kernel Mode Setting Driver for {machine.arch}  {machine.driver}  Release Build",
        ),
    ]
    lines += [
        (11.0 + index / 100, f"[drm] Initialized nvidia-drm 0.0.0 for {function.address} on minor {index + 1}")
        for index, function in enumerate(gpus)
    ]
    lines += [
        (
            12.0,
            "nvidia_uvm: module uses symbols nvUvmInterfaceDisablePolling from proprietary module nvidia, inheriting taint.",
        ),
        (12.1, "nvidia-uvm: Loaded the UVM driver, major device number 509."),
    ]
    if machine.ports:
        lines += [
            (8.0 + index / 100, f"mlx5_core: {port.device}: Port module event: module 0, Cable plugged")
            for index, port in enumerate(machine.ports)
        ]
    return [LogLine(at, text) for at, text in sorted(lines)]


def _stamp(machine: Machine, line: LogLine) -> datetime:
    return datetime.fromtimestamp(machine.now - machine.uptime_s + line.at, tz=timezone.utc)


def dmesg(machine: Machine) -> str:
    """As `dmesg` prints it."""
    return "".join(f"[{line.at:12.6f}] {line.text}\n" for line in machine.log)


def dmesg_time(machine: Machine) -> str:
    """As `dmesg -T` prints it."""
    return "".join(f"[{_stamp(machine, line):%a %b %e %H:%M:%S %Y}] {line.text}\n" for line in machine.log)


def dmesg_iso(machine: Machine) -> str:
    """As `dmesg --time-format=iso` prints it."""
    stamps = (_stamp(machine, line).isoformat(timespec="microseconds").replace(".", ",") for line in machine.log)
    return "".join(f"{stamp} {line.text}\n" for stamp, line in zip(stamps, machine.log, strict=True))


def kmsg(machine: Machine) -> str:
    """As /dev/kmsg gives it, one record a line."""
    return "".join(
        f"{line.level},{number},{int(line.at * 1e6)},-;{line.text}\n" for number, line in enumerate(machine.log)
    )


def syslog(machine: Machine) -> str:
    """As rsyslog writes /var/log/kern.log on current distributions."""
    return "".join(
        f"{_stamp(machine, line).isoformat(timespec='microseconds')} {machine.hostname} kernel: [{line.at:12.6f}] {line.text}\n"
        for line in machine.log
    )


def journal(machine: Machine) -> str:
    """As `journalctl -k -b` prints it."""
    return "".join(
        f"{_stamp(machine, line):%b %d %H:%M:%S} {machine.hostname} kernel: {line.text}\n" for line in machine.log
    )


def journal_iso(machine: Machine) -> str:
    """As `journalctl -k -b -o short-iso-precise` prints it."""
    return "".join(
        f"{_stamp(machine, line).isoformat(timespec='microseconds')} {machine.hostname} kernel: {line.text}\n"
        for line in machine.log
    )


def journal_json(machine: Machine) -> str:
    """As `journalctl -k -b -o json` prints it."""
    return "".join(json.dumps({
        "__REALTIME_TIMESTAMP": str(int(_stamp(machine, line).timestamp() * 1e6)), "__MONOTONIC_TIMESTAMP": str(int(line.at * 1e6)),
        "_BOOT_ID": machine.boot_id.replace("-", ""), "_HOSTNAME": machine.hostname, "_TRANSPORT": "kernel", "SYSLOG_IDENTIFIER": "kernel",
        "PRIORITY": str(line.level), "MESSAGE": line.text}) + "\n" for line in machine.log)  # fmt: skip


def earlier_journal(machine: Machine, back: int, *, iso: bool = False) -> str:
    """`journalctl -b -N` of an earlier boot, also with -o short-iso-precise."""
    if not 0 < back <= len(machine.earlier_boots):
        return ""
    _, begun, _, lines = machine.earlier_boots[-back]
    stamps = [datetime.fromtimestamp(machine.now - begun + line.at, tz=timezone.utc) for line in lines]
    words = [stamp.isoformat(timespec="microseconds") if iso else f"{stamp:%b %d %H:%M:%S}" for stamp in stamps]
    return "".join(f"{word} {machine.hostname} kernel: {line.text}\n" for word, line in zip(words, lines, strict=True))


def list_boots(machine: Machine) -> str:
    """As `journalctl --list-boots` prints it (systemd 255)."""
    rows = ["IDX BOOT ID                          FIRST ENTRY                 LAST ENTRY\n"]
    shape = "%a %Y-%m-%d %H:%M:%S UTC"
    boots = [*machine.earlier_boots, (machine.boot_id, machine.uptime_s, 0.0, [])]
    for index, (identity, begun, ended, _) in enumerate(boots):
        first, last = (datetime.fromtimestamp(machine.now - ago, tz=timezone.utc) for ago in (begun, ended))
        rows.append(f"{index - len(boots) + 1:3} {identity.replace('-', '')} {first:{shape}} {last:{shape}}\n")
    return "".join(rows)


def render_logs(machine: Machine) -> Nodes:
    """The files of the kernel log."""
    return {
        "dev/kmsg": kmsg(machine),
        "var/log/dmesg": dmesg(machine),
        "var/log/kern.log": syslog(machine),
        "var/log/syslog": syslog(machine),
    }
