"""What changed on the machine since it last worked: packages, driver, kernel, firmware."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuclinic.clinic.gathering._gathered import absent

if TYPE_CHECKING:
    from gpuclinic.clinic.gathering._gathered import Gathered
    from gpuclinic.observe.asking import Asked

_HISTORIES = (
    "/var/log/apt/history.log", "/var/log/dpkg.log", "/var/log/dnf.rpm.log", "/var/log/yum.log", "/var/log/zypp/history",
    "/var/log/pacman.log", "/var/log/nvidia-installer.log", "/var/log/cuda-installer.log",
)  # fmt: skip
_END = 512 << 10
_RECENT = 21 * 86400.0


def gather_changes(host: Asked, gathered: Gathered) -> None:
    """The ends of the package managers' histories that were written to in the last weeks, and the driver that is loaded."""
    for path in _HISTORIES:
        changed = host.stat(path).json().get("mtime")
        if not isinstance(changed, (int, float)) or (host.live and changed < host.clock() - _RECENT):
            continue
        answer = host.file(path, _END, end=True)
        if answer.ok and answer.data:
            gathered.texts.append((path, answer.data))
        elif not absent(answer):
            gathered.refused(path, answer.why or "no answer")
    driver = host.file("/proc/driver/nvidia/version", 4096)
    if driver.ok and driver.data:
        gathered.texts.append(("/proc/driver/nvidia/version", driver.data))
