"""The state of a fake server beside its NVML: what the files and commands are rendered from."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .nodes import Link
    from .pci import Function

KERNEL = "6.8.0-51-generic"
HOST = "gpu01"
MODULES_OF_NVIDIA = ("nvidia", "nvidia_uvm", "nvidia_modeset", "nvidia_drm")


@dataclass
class LogLine:
    """One kernel message; ``at`` is seconds since boot, ``level`` the syslog severity."""

    at: float
    text: str
    level: int = 6


@dataclass
class Process:
    """A process with its /proc entry; ``memory_mib`` of GPU memory by GPU index."""

    pid: int
    command: str
    user: int = 1001
    state: str = "S"
    ppid: int = 1
    cgroup: str = "/user.slice/user-1001.slice/session-4.scope"
    environment: dict[str, str] = field(default_factory=dict)
    devices: tuple[int, ...] = ()
    rss_mib: int = 900
    age_s: int = 7200
    wchan: str = "0"
    cpu_s: float = 60.0
    nofile: int = 1048576
    memlock: str = "unlimited"

    @property
    def name(self) -> str:
        """The kernel's short name of it."""
        return self.command.split()[0].rsplit("/", 1)[-1][:15] if self.command else "?"


@dataclass
class Sensor:
    """One row of `ipmitool sdr`."""

    name: str
    value: str
    status: str = "ok"


@dataclass
class Port:
    """One InfiniBand or RoCE port."""

    device: str
    rate: str = "400 Gb/sec (4X NDR)"
    state: str = "4: ACTIVE"
    physical: str = "5: LinkUp"
    layer: str = "InfiniBand"
    counters: dict[str, int] = field(default_factory=dict)


@dataclass
class Machine:
    """Everything that is no GPU. ``files`` lays text over the rendered tree; None takes a path away."""

    driver: str  # the loaded kernel module
    user_space: str  # library and nvidia-smi
    open_module: bool
    hostname: str = HOST
    kernel: str = KERNEL
    next_kernel: str = KERNEL
    arch: str = "x86_64"
    uptime_s: float = 864_000.0
    now: float = field(default_factory=time.time)
    boot_id: str = "7c1f3f6e-0a52-4d4e-9a0f-3c1b2a4d5e6f"
    cpus: int = 112
    numa_nodes: int = 2
    memory_mib: int = 2_097_152
    memory_available_mib: int = 2_050_000
    swap_mib: int = 0
    load: tuple[float, float, float] = (0.35, 0.42, 0.40)
    pressure: dict[str, float] = field(default_factory=lambda: {"cpu": 0.0, "memory": 0.0, "io": 0.0})
    bus: list[Function] = field(default_factory=list)
    log: list[LogLine] = field(default_factory=list)
    earlier_boots: list[tuple[str, float, float, list[LogLine]]] = field(
        default_factory=list
    )  # id, from, to (ago, s), end
    modules: dict[str, str] = field(default_factory=dict)  # name to "size uses used_by"
    module_files: dict[str, str] = field(default_factory=dict)  # kernel to version of the built nvidia module
    dkms: dict[str, str] = field(default_factory=dict)  # kernel to state
    units: dict[str, dict[str, str]] = field(default_factory=dict)
    processes: dict[int, Process] = field(default_factory=dict)
    sensors: list[Sensor] = field(default_factory=list)
    sel: list[str] = field(default_factory=list)
    chassis: tuple[str, str] = ("unknown", "")  # restart cause, last power event
    power_w: int = 1400
    ports: list[Port] = field(default_factory=list)
    sysctl: dict[str, str] = field(default_factory=dict)  # under proc/sys
    kernel_options: list[str] = field(default_factory=lambda: ["ro", "quiet"])
    mounts: list[tuple[str, str, str, str]] = field(default_factory=list)
    secure_boot: bool = False
    module_signer: str = "DKMS module signing key"
    params: dict[str, str] = field(default_factory=dict)  # of proc/driver/nvidia/params
    devices: dict[str, tuple[int, int]] = field(default_factory=dict)  # name under /dev to major, minor
    device_mode: int = 0o666
    files: dict[str, str | Link | None] = field(default_factory=dict)
    answers: dict[tuple[str, str], tuple[str, int]] = field(
        default_factory=dict
    )  # command, arguments to text, exit code
    hangs: dict[str, float] = field(default_factory=dict)  # command to seconds

    def say(self, text: str, *, ago: float = 600.0, level: int = 4) -> None:
        """Adds a kernel message of ``ago`` seconds ago."""
        self.log.append(LogLine(max(self.uptime_s - ago, 1.0), text, level))
        self.log.sort(key=lambda line: line.at)

    @property
    def flavour(self) -> str:
        """The word NVIDIA's version line has for the kind of module."""
        return "Open " if self.open_module else ""
