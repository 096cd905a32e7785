"""The driver on a machine: a healthy one gives nothing, each fault its own finding and no other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpuclinic.clinic.findings import from_judged, settled
from gpuclinic.clinic.looks import Wanted
from gpuclinic.clinic.looks._look import Seen
from gpuclinic.clinic.looks.boots import look_at_boots
from gpuclinic.clinic.looks.bus import look_at_bus
from gpuclinic.clinic.looks.driver import in_container, look_at_driver
from gpuclinic.clinic.looks.kernel_state import look_at_kernel_state
from gpuclinic.clinic.looks.next_boot import look_at_next_boot
from gpuclinic.clinic.looks.upgrades import look_at_upgrades
from gpuclinic.diagnose.judge import Sample, judge
from gpuclinic.knowledge import load_checks
from gpuclinic.model import Fact
from made_snapshots import Made, driver_server

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LOOKS = (look_at_bus, look_at_boots, look_at_kernel_state, look_at_driver, look_at_next_boot, look_at_upgrades)
MINE = ("driver", "kernel.")


def looked(made: Made) -> Seen:
    host = made.host()
    seen, wanted = Seen(), Wanted()
    for look in LOOKS:
        wanted.facts = seen.facts
        got = look(host, wanted)
        seen.facts += got.facts
        seen.gaps += got.gaps
        seen.texts += got.texts
    return seen


def findings(made: Made, *more: Fact) -> dict[str, str]:
    rows = [row for row in load_checks().checks if row.look.startswith(MINE)]
    judged = judge(rows, [Sample(0.0, [*looked(made).facts, *more])])
    return {f.id: f.severity for f in settled([from_judged(one, "en") for one in judged if one.state == "holds"])}


def fact(made: Made, kind: str) -> dict[str, object]:
    return dict(next((f.fields for f in looked(made).facts if f.kind == kind), {}))


def nvml(reason: str) -> Fact:
    return Fact("nvml", "nvml", {"reason": reason}, {}, "nvml")


NEXT = "6.8.0-50-generic"


def test_a_server_in_order_gives_nothing(tmp_path: Path) -> None:
    made = driver_server(tmp_path / "s")
    assert findings(made, nvml("ok")) == {}
    assert looked(made).gaps == []


def unload(made: Made) -> Made:
    made.put("/proc/modules", "ext4 1000000 1 - Live 0x0000000000000000\n").remove("/proc/driver/nvidia/version")
    for address in ("0000:3b:00.0", "0000:86:00.0"):
        (made.folder / f"root/sys/bus/pci/devices/{address}/driver").unlink()
    return made


def bind(made: Made, driver: str) -> Made:
    for address in ("0000:3b:00.0", "0000:86:00.0"):
        made.link(f"/sys/bus/pci/devices/{address}/driver", f"../../../bus/pci/drivers/{driver}")
    return made


def secure(made: Made) -> Made:
    return made.put("/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c", b"\x06\0\0\0\x01")


def other_ids(made: Made, device: str) -> Made:
    for address in ("0000:3b:00.0", "0000:86:00.0"):
        made.put(f"/sys/bus/pci/devices/{address}/device", f"{device}\n")
    return made


def proprietary(made: Made) -> Made:
    return made.put(
        "/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  Release Build\n"
    )


FAULTS: list[tuple[str, Callable[[Made], object], dict[str, str]]] = [
    ("not loaded", unload, {"driver.module.not_loaded": "critical"}),
    ("nouveau", lambda m: bind(unload(m), "nouveau"), {"driver.nouveau.bound": "critical"}),
    ("nova", lambda m: bind(unload(m), "NovaCore"), {"driver.nouveau.bound": "critical"}),
    ("passed through", lambda m: bind(unload(m), "vfio-pci"), {"driver.gpu.passed_through": "info"}),
    (
        "blacklisted", lambda m: unload(m).put("/etc/modprobe.d/old.conf", "blacklist nvidia\n"),
        {"driver.module.blacklisted": "critical"},
    ),
    (
        "blacklisted on the command line", lambda m: unload(m).put("/proc/cmdline", "root=/dev/sda1 ro modprobe.blacklist=nvidia\n"),
        {"driver.module.blacklisted": "critical"},
    ),
    ("unsigned", lambda m: secure(unload(m)), {"driver.secure_boot.unsigned": "critical"}),
    ("another kernel runs", lambda m: unload(m).put("/proc/sys/kernel/osrelease", "6.8.0-44-generic\n").put("/lib/modules/6.8.0-44-generic/modules.dep"), {"driver.module.other_kernel": "critical"}),
    ("next kernel", lambda m: m.put(f"/boot/vmlinuz-{NEXT}").put(f"/lib/modules/{NEXT}/modules.dep"), {"driver.module.next_kernel": "warning"}),
    (
        "library upgraded", lambda m: m.link("/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1", "libnvidia-ml.so.580.126.09"),
        {"driver.library.mismatch": "warning"},
    ),
    ("branch over", lambda m: m.put("/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.256.02  x\n").link("/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1", "libnvidia-ml.so.470.256.02").command("modinfo-nvidia.txt", ""), {"driver.branch.ended": "info"}),
    ("Blackwell, proprietary", lambda m: (other_ids(proprietary(m), "0x2901"), [(m.folder / f"root/sys/bus/pci/devices/{a}/driver").unlink() for a in ("0000:3b:00.0", "0000:86:00.0")]), {"driver.gpu.wrong_flavour": "critical"}),
    ("no firmware", lambda m: m.remove("/lib/firmware/nvidia/580.95.05/gsp_ga10x.bin"), {"driver.gsp.firmware_missing": "warning"}),
    ("uvm", lambda m: m.put("/proc/modules", "nvidia 56807424 0 - Live 0x0 (OE)\n").mode("/usr/bin/nvidia-modprobe", kind="file", mode="0755"), {"driver.uvm.cannot_load": "warning"}),
    ("stale node", lambda m: m.mode("/dev/nvidia-uvm", major=511, minor=0), {"driver.nodes.stale": "warning"}),
    ("restricted node", lambda m: m.mode("/dev/nvidia1", major=195, minor=1, mode="0660", gid=44), {"driver.nodes.restricted": "info"}),
    ("registry", lambda m: m.put("/proc/driver/nvidia/params", 'EnableMSI: 1\nRegistryDwords: "RMForcePcieGen=2"\n'), {"driver.parameter.registry": "info"}),
    ("no aer", lambda m: m.put("/proc/cmdline", "BOOT_IMAGE=/vmlinuz root=/dev/sda1 ro pci=noaer,realloc\n"), {"kernel.option.noaer": "info"}),
    ("oops", lambda m: m.put("/proc/sys/kernel/tainted", f"{12288 + 128}\n"), {"kernel.taint.died": "info"}),
    (
        "automatic upgrades",
        lambda m: m.put("/etc/apt/apt.conf.d/20auto-upgrades", 'APT::Periodic::Unattended-Upgrade "1";\n').put(
            "/var/lib/dpkg/status", "Package: libnvidia-compute-580\nStatus: install ok installed\nVersion: 580\n"
        ),
        {"driver.upgrade.automatic": "info"},
    ),
    ("reboot asked for", lambda m: m.put("/run/reboot-required").put("/run/reboot-required.pkgs", "linux-image-6.8.0-45-generic\n"), {"driver.reboot_pending": "info"}),
]  # fmt: skip


@pytest.mark.parametrize(("fault", "expected"), [f[1:] for f in FAULTS], ids=[f[0] for f in FAULTS])
def test_a_fault_gives_its_finding_and_nothing_else(
    tmp_path: Path, fault: Callable[[Made], object], expected: dict[str, str]
) -> None:
    made = driver_server(tmp_path / "s")
    fault(made)
    assert findings(made) == expected


def test_packages_that_are_held_are_not_upgraded(tmp_path: Path) -> None:
    made = driver_server(tmp_path / "s").put(
        "/etc/apt/apt.conf.d/20auto-upgrades", 'APT::Periodic::Unattended-Upgrade "1";\n'
    )
    made.put("/var/lib/dpkg/status", "Package: libnvidia-compute-580\nStatus: hold ok installed\nVersion: 580\n")
    assert findings(made) == {}


def test_nvml_that_works_outranks_libraries_of_another_folder(tmp_path: Path) -> None:
    made = driver_server(tmp_path / "s").link(
        "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1", "libnvidia-ml.so.580.126.09"
    )
    assert "driver.library.mismatch" not in findings(made, nvml("ok"))
    assert findings(made, nvml("mismatch"))["driver.library.mismatch"] == "critical"


# ---- which kernel boots next


def saved(made: Made) -> None:
    made.put("/etc/default/grub", "GRUB_DEFAULT=saved\n")
    made.put(
        "/boot/grub/grubenv",
        "# GRUB Environment Block\nsaved_entry=gnulinux-advanced-ab12>gnulinux-6.8.0-45-generic-advanced-ab12\n",
    )


def fedora(made: Made) -> None:
    made.remove("/boot/grub/grubenv").remove("/etc/default/grub")
    made.put("/boot/grub2/grubenv", f"# GRUB Environment Block\nsaved_entry=0123abcd-{NEXT}\n")
    for kernel in ("6.8.0-45-generic", NEXT):
        made.put(
            f"/boot/loader/entries/0123abcd-{kernel}.conf",
            f"title X ({kernel})\nversion {kernel}\nlinux /vmlinuz-{kernel}\n",
        )


def systemd_boot(made: Made) -> None:
    made.remove("/boot/grub/grubenv").remove("/etc/default/grub")
    made.put("/boot/loader/loader.conf", "timeout 3\ndefault arch-lts.conf\n")
    made.put("/boot/loader/entries/arch-lts.conf", "title Arch\nversion 6.8.0-45-generic\nlinux /vmlinuz-linux-lts\n")


def debian_link(made: Made) -> None:
    made.remove("/boot/grub/grubenv").remove("/etc/default/grub")
    (made.folder / "root/boot/grub").rmdir()
    made.link("/vmlinuz", "boot/vmlinuz-6.8.0-45-generic")


def named(made: Made) -> None:
    made.put("/etc/default/grub", 'GRUB_DEFAULT="Advanced options for Ubuntu>Ubuntu, with Linux 6.8.0-45-generic"\n')


def once(made: Made) -> None:
    made.put("/boot/grub/grubenv", "next_entry=gnulinux-6.8.0-45-generic-advanced-x\n")


@pytest.mark.parametrize(
    ("boot", "kernel"),
    [
        (lambda m: None, NEXT), (saved, "6.8.0-45-generic"), (fedora, NEXT), (systemd_boot, "6.8.0-45-generic"),
        (debian_link, "6.8.0-45-generic"), (named, "6.8.0-45-generic"), (once, "6.8.0-45-generic"),
    ],
)  # fmt: skip
def test_the_kernel_that_boots_next(tmp_path: Path, boot: Callable[[Made], object], kernel: str) -> None:
    made = driver_server(tmp_path / "s").put(f"/boot/vmlinuz-{NEXT}").put("/boot/vmlinuz-6.9.0-rescue")
    boot(made)
    assert fact(made, "next_kernel")["version"] == kernel


def test_a_default_that_nobody_can_place_is_not_guessed(tmp_path: Path) -> None:
    made = driver_server(tmp_path / "s").put(f"/boot/vmlinuz-{NEXT}").put("/etc/default/grub", "GRUB_DEFAULT=2\n")
    assert fact(made, "next_kernel") == {}


def test_why_the_build_failed_is_shown(tmp_path: Path) -> None:
    made = driver_server(tmp_path / "s", "550.163.01").put("/boot/vmlinuz-6.17.0-5-generic")
    log = "/var/lib/dkms/nvidia/550.163.01/build/make.log"
    made.put(
        log,
        "DKMS make.log for nvidia-550.163.01 for kernel 6.17.0-5-generic (x86_64)\nmake\nnv.c:9: error: too few arguments\n",
    )
    found = next(f for f in looked(made).facts if f.kind == "next_kernel")
    assert found.fields["dkms_failed"] == "nv.c:9: error: too few arguments"
    assert found.where("dkms_failed").source == log
    assert found.fields["known_fix"] == "580"


def test_the_next_kernels_module_is_of_another_release(tmp_path: Path) -> None:
    made = driver_server(tmp_path / "s").put(f"/boot/vmlinuz-{NEXT}").put(f"/lib/modules/{NEXT}/updates/dkms/nvidia.ko")
    made.command(
        f"modinfo-k-{NEXT}-nvidia.txt",
        f"filename: /lib/modules/{NEXT}/updates/dkms/nvidia.ko\nversion:        580.126.09\n",
    )
    assert findings(made) == {"driver.module.next_version": "warning"}


def test_without_modinfo_the_file_itself_tells(tmp_path: Path) -> None:
    from made_snapshots import kernel_module

    made = driver_server(tmp_path / "s").put(f"/boot/vmlinuz-{NEXT}")
    made.put(f"/lib/modules/{NEXT}/updates/dkms/nvidia.ko", kernel_module(version="580.126.09", license="NVIDIA"))
    assert findings(made) == {"driver.module.next_version": "warning"}
    assert fact(made, "next_kernel")["module_signed"] is False


# ---- where little can be seen


def test_a_container_is_not_judged_by_its_own_files(tmp_path: Path) -> None:
    made = driver_server(tmp_path / "s").put("/run/.containerenv").remove("/boot/grub/grubenv")
    (made.folder / "root/boot/grub").rmdir()
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
        made.remove(f"/dev/{name}")
    assert in_container(made.host())
    assert findings(made) == {"driver.nodes.none_in_container": "info"}


@pytest.mark.parametrize("files", [{}, {"/proc/modules": ""}, {"/proc/sys/kernel/osrelease": "6.1.0\n"}])
def test_an_empty_machine_gives_nothing(tmp_path: Path, files: dict[str, str]) -> None:
    made = Made(tmp_path / "s")
    for path, text in files.items():
        made.put(path, text)
    assert findings(made) == {}


def test_hostile_files_do_no_harm(tmp_path: Path) -> None:
    made = driver_server(tmp_path / "s")
    for path in ("/proc/modules", "/proc/devices", "/etc/default/grub", "/boot/grub/grubenv", "/proc/driver/nvidia/params", "/var/log/wtmp",
                 "/proc/driver/nvidia/version", "/etc/modprobe.d/x.conf", "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"):  # fmt: skip
        made.put(path, b"\xff\0\x1b[31m" * 5000 + b"\nnvidia" + b" " * 1000 + b"{{version}}\n")
    made.put(f"/lib/modules/{NEXT}/updates/dkms/nvidia.ko", b"\x7fELF\x02\x01" + b"\xff" * 500).put(
        f"/boot/vmlinuz-{NEXT}"
    )
    made.link("/boot/vmlinuz", "../../../../../../etc/passwd")
    assert isinstance(findings(made), dict)
