"""Snapshots made by hand for tests: files under root/, commands, rights of files, the time they were taken."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any

from gpuclinic.observe.snapshot import Snapshot

if TYPE_CHECKING:
    from pathlib import Path

TAKEN = 1_796_040_000.0
"""30 November 2026, 12:00 UTC."""


class Made:
    """A snapshot that grows: put, link, command, mode; then host()."""

    def __init__(self, folder: Path, at: float = TAKEN) -> None:
        self.folder = folder
        self._stat: dict[str, dict[str, Any]] = {}
        (folder / "root").mkdir(parents=True)
        (folder / "commands").mkdir()
        (folder / "snapshot.json").write_text(json.dumps({"time": at}))

    def put(self, path: str, data: str | bytes = "") -> Made:
        place = self.folder / "root" / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data if isinstance(data, bytes) else data.encode())
        return self

    def link(self, path: str, target: str) -> Made:
        place = self.folder / "root" / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.unlink(missing_ok=True)
        place.symlink_to(target)
        return self

    def remove(self, path: str) -> Made:
        (self.folder / "root" / path.lstrip("/")).unlink()
        return self

    def command(self, name: str, text: str) -> Made:
        (self.folder / "commands" / name).write_text(text)
        return self

    def mode(self, path: str, **fields: Any) -> Made:
        self._stat[path] = {"kind": "character", "mode": "0666", "uid": 0, "gid": 0, "size": 0, "mtime": 0, **fields}
        return self

    def host(self) -> Snapshot:
        (self.folder / "stat.json").write_text(json.dumps(self._stat))
        return Snapshot(self.folder)


def driver_server(folder: Path, version: str = "580.95.05", kernel: str = "6.8.0-45-generic") -> Made:
    """Two H100 under the open driver of Ubuntu, all in order."""
    made = Made(folder)
    for minor, address in enumerate(("0000:3b:00.0", "0000:86:00.0")):
        device = f"/sys/bus/pci/devices/{address}"
        made.put(f"{device}/vendor", "0x10de\n").put(f"{device}/class", "0x030200\n").put(
            f"{device}/device", "0x2330\n"
        )
        made.link(f"{device}/driver", "../../../bus/pci/drivers/nvidia")
        made.put(
            f"/proc/driver/nvidia/gpus/{address}/information", f"Model: \t\t NVIDIA H100\nDevice Minor: \t {minor}\n"
        )
        made.mode(f"/dev/nvidia{minor}", major=195, minor=minor).put(f"/dev/nvidia{minor}")
    made.mode("/dev/nvidiactl", major=195, minor=255).put("/dev/nvidiactl")
    made.mode("/dev/nvidia-uvm", major=508, minor=0).put("/dev/nvidia-uvm").put("/dev/null")
    made.mode("/usr/bin/nvidia-modprobe", kind="file", mode="4755")
    made.put("/proc/devices", "Character devices:\n195 nvidia\n508 nvidia-uvm\n\nBlock devices:\n259 blkext\n")
    made.put("/proc/sys/kernel/osrelease", f"{kernel}\n").put("/proc/uptime", "900000.0 1.0\n")
    made.put(
        "/proc/modules",
        "nvidia_uvm 4931584 0 - Live 0x0000000000000000 (OE)\nnvidia 56807424 2 nvidia_uvm, Live 0x0000000000000000 (OE)\n",
    )
    made.put(
        "/proc/driver/nvidia/version",
        f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {version}  Release Build\n",
    )
    made.put("/proc/driver/nvidia/params", 'EnableMSI: 1\nEnableGpuFirmware: 18\nRegistryDwords: ""\n')
    made.put("/proc/cmdline", f"BOOT_IMAGE=/boot/vmlinuz-{kernel} root=UUID=1 ro\n").put(
        "/proc/sys/kernel/tainted", "12288\n"
    )
    made.put(f"/boot/vmlinuz-{kernel}").put("/boot/grub/grubenv", "# GRUB Environment Block\n")
    made.put("/etc/default/grub", "GRUB_DEFAULT=0\n")
    made.put(f"/lib/modules/{kernel}/updates/dkms/nvidia.ko.zst")
    made.put(f"/lib/firmware/nvidia/{version}/gsp_ga10x.bin", "x")
    made.link("/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1", f"libnvidia-ml.so.{version}")
    made.command(
        "modinfo-nvidia.txt",
        f"filename:       /lib/modules/{kernel}/updates/dkms/nvidia.ko.zst\nversion:        {version}\nlicense:        Dual MIT/GPL\n"
        f"vermagic:       {kernel} SMP preempt mod_unload modversions\n",
    )
    made.put("/etc/modprobe.d/nvidia-graphics-drivers.conf", "blacklist nouveau\nblacklist nvidiafb\n")
    return made


WTMP_SHAPES = {"x86-64": ("<h2xi32s4s32s256s2hi2i", 384), "arm64": ("<h2xi32s4s32s256s2hqqq", 400)}


def record(shape: str, kind: int, user: str, line: str, host: str, at: int) -> bytes:
    """A record of wtmp."""
    form, size = WTMP_SHAPES[shape]
    return struct.pack(form, kind, 0, line.encode(), b"~~", user.encode(), host.encode(), 0, 0, 0, at, 0).ljust(
        size, b"\0"
    )


def boot(at: int, shape: str = "x86-64") -> bytes:
    """A boot on record."""
    return record(shape, 2, "reboot", "~", "6.8.0-45-generic", at)


def shutdown(at: int, shape: str = "x86-64") -> bytes:
    """A shutdown on record."""
    return record(shape, 1, "shutdown", "~", "6.8.0-45-generic", at)


def kernel_module(**fields: str) -> bytes:
    """A 64-bit ELF object with a .modinfo section and nothing else."""
    info = b"".join(f"{name}={value}".encode() + b"\0" for name, value in fields.items())
    names = b"\0.modinfo\0.shstrtab\0"
    body = info + names
    start = 64 + len(body)
    sections = struct.pack("<IIQQQQIIQQ", 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
    sections += struct.pack("<IIQQQQIIQQ", 1, 1, 2, 0, 64, len(info), 0, 0, 1, 0)
    sections += struct.pack("<IIQQQQIIQQ", 10, 3, 0, 0, 64 + len(info), len(names), 0, 0, 1, 0)
    head = (
        b"\x7fELF\x02\x01\x01" + b"\0" * 9 + struct.pack("<HHIQQQIHHHHHH", 1, 62, 1, 0, 0, start, 0, 64, 0, 0, 64, 3, 2)
    )
    return head + body + sections
