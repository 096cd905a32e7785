"""A whole fake GPU server: the NVML, a root tree and commands, all telling the same story.

server = build_server(tmp_path, "h100-sxm", faults=["lost:3", "pcie_width:1:8"])
subprocess.run(["gpuclinic", "check", "--json"], env=server.env)
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from . import commands, driver_files, host_files, logs, pci
from .library import build_library
from .machine import KERNEL, LogLine, Machine, Port, Process, Sensor
from .nodes import Nodes, write_changes
from .scenario import Scenario, Value, healthy
from .skus import Sku, load_skus

if TYPE_CHECKING:
    from pathlib import Path


@dataclass
class Server:
    """One fake server. Change ``scenario`` and ``machine`` and call ``write``, or use ``set`` and ``inject``."""

    folder: Path
    sku: Sku
    gpus: int
    library: Path
    scenario: Scenario = field(repr=False)
    machine: Machine = field(repr=False)
    _healthy: Callable[[], tuple[Scenario, Machine]] = field(repr=False)
    _library_driver: int | None = None
    _written: Nodes = field(default_factory=dict, repr=False)

    @property
    def root(self) -> Path:
        """The examined machine's root folder."""
        return self.folder / "root"

    @property
    def bin(self) -> Path:
        """The folder of its commands."""
        return self.folder / "bin"

    @property
    def scenario_file(self) -> Path:
        """The file that the library reads."""
        return self.folder / "scenario"

    @property
    def env(self) -> dict[str, str]:
        """The environment for a program that shall see this server."""
        return {
            **os.environ, "GPUCLINIC_NVML": str(self.library), "GPUCLINIC_ROOT": str(self.root),
            "FAKE_NVML_SCENARIO": str(self.scenario_file), "PATH": f"{self.bin}:{os.environ.get('PATH', '/usr/bin:/bin')}",
            "LD_LIBRARY_PATH": f"{self.library.parent}:{os.environ.get('LD_LIBRARY_PATH', '')}".rstrip(":"),
        }  # fmt: skip

    def address(self, gpu: int) -> str:
        """PCI address of a GPU, as 0000:13:00.0."""
        return self.scenario.of(gpu, "pci.bus_id")

    def function(self, gpu: int) -> pci.Function:
        """The GPU's function on the bus."""
        return next(one for one in self.machine.bus if one.address == self.address(gpu))

    def gpu(self, gpu: int | str, values: Mapping[str, Value]) -> None:
        """Sets scenario keys of one GPU without writing yet."""
        self.scenario.gpu(gpu, values)

    def set(self, values: Mapping[str, Value] | None = None, **keywords: Value) -> None:
        """Changes scenario keys ("3.temp", "count"; as a keyword a dot is two underscores) and writes everything."""
        for key, value in (values or {}).items():
            self.scenario[key] = str(value)
        self.scenario.put(**keywords)
        self.write()

    def inject(self, *faults: str) -> None:
        """Breaks the server: faults by name and arguments ("lost:3", see faults.py), then writes everything."""
        from .faults import inject  # it needs this module

        for fault in faults:
            inject(self, fault)
        self.write()

    def reset(self) -> None:
        """Heals everything: as it was built, without faults. Far cheaper than building another server."""
        self.scenario, self.machine = self._healthy()
        self.library = build_library(self._library_driver)
        self.write()

    def add_process(
        self,
        process: Process,
        memory_mib: Mapping[int, int] | None = None,
        *,
        in_proc: bool = True,
        kind: str = "compute",
    ) -> None:
        """A process with so much memory on GPUs; ``in_proc`` False: NVML holds its pid, /proc does not."""
        for gpu, mib in (memory_mib or {}).items():
            entry = f"{process.pid}:{mib << 20}"
            held = self.scenario.of(gpu, f"proc.{kind}")
            self.gpu(
                gpu,
                {
                    f"proc.{kind}": f"{held},{entry}" if held else entry,
                    "memory.used": int(self.scenario.of(gpu, "memory.used", "0")) + mib,
                },
            )
        process.devices = process.devices or tuple(memory_mib or ())
        if in_proc:
            self.machine.processes[process.pid] = process
            self.scenario[f"process.{process.pid}.name"] = process.command.split()[0] if process.command else ""

    def render(self) -> Nodes:
        """All files, relative to the server's folder."""
        machine = self.machine
        root = {
            **pci.render(machine.bus),
            **host_files.render_host(machine, self.sku, self.scenario),
            **logs.render_logs(machine),
        }
        root |= driver_files.render_driver(machine, self.sku, self.scenario)
        for path, text in machine.files.items():
            if text is None:
                root = {name: node for name, node in root.items() if name != path and not name.startswith(f"{path}/")}
            else:
                root[path] = text
        return {
            **{f"root/{name}": node for name, node in root.items()},
            **commands.render_commands(machine, self.sku, self.scenario),
        }

    def write(self) -> None:
        """Brings the files to the state of scenario and machine."""
        after = self.render()
        write_changes(self.folder, self._written, after)
        self._written = after
        commands.make_executable(self.bin)
        self.scenario.write(self.scenario_file)


def _units(sku: Sku) -> dict[str, dict[str, str]]:
    names = ["nvidia-persistenced", "slurmd", "docker", "containerd", "sshd", "chrony", "systemd-timesyncd", "cron"]
    if sku.fabric_manager:
        names.append("nvidia-fabricmanager")
    good = {
        "LoadState": "loaded",
        "ActiveState": "active",
        "SubState": "running",
        "Result": "success",
        "ExecMainStatus": "0",
        "NRestarts": "0",
        "UnitFileState": "enabled",
    }
    return {name: dict(good) for name in names}


def _devices(sku: Sku, gpus: int) -> dict[str, tuple[int, int]]:
    devices = {f"nvidia{index}": (195, index) for index in range(gpus)}
    devices |= {
        "nvidiactl": (195, 255),
        "nvidia-modeset": (195, 254),
        "nvidia-uvm": (509, 0),
        "nvidia-uvm-tools": (509, 1),
    }
    if sku.fabric_manager:
        devices |= {
            "nvidia-nvswitchctl": (510, 255),
            **{
                f"nvidia-nvswitch{index}": (510, index)
                for index in range(sku.nvlink["nvswitches"] if sku.nvlink else 0)
            },
        }
    return devices


def _modules(sku: Sku, machine: Machine) -> dict[str, str]:
    nvidia = {
        "nvidia_uvm": "2076672 0 -",
        "nvidia_drm": "139264 0 -",
        "nvidia_modeset": "1568768 1 nvidia_drm,",
        "nvidia": "11481088 6 nvidia_uvm,nvidia_modeset,",
    }
    if machine.ports:
        nvidia = {"nvidia_peermem": "16384 0 -", **nvidia, "mlx5_ib": "507904 0 -", "mlx5_core": "2469888 1 mlx5_ib,"}
    return {**nvidia, "ipmi_si": "77824 0 -", "nvme": "61440 2 -", "overlay": "212992 0 -"}


def _sensors(sku: Sku) -> list[Sensor]:
    supplies = 6 if sku.form == "sxm" else 4
    rows = [
        Sensor("Inlet Temp", "23 degrees C"),
        Sensor("CPU1 Temp", "41 degrees C"),
        Sensor("CPU2 Temp", "42 degrees C"),
    ]
    rows += [Sensor(f"FAN{index + 1}", "8400 RPM") for index in range(8)] + [
        Sensor("12V", "12.19 Volts"),
        Sensor("5VCC", "5.03 Volts"),
        Sensor("VBAT", "3.02 Volts"),
    ]
    rows += [Sensor(f"PS{index + 1} Status", "0x01") for index in range(supplies)] + [
        Sensor(f"PS{index + 1} Input", "240 Watts") for index in range(supplies)
    ]
    return [*rows, Sensor("PS Redundancy", "0x01")]


MOUNTS = [
    ("/dev/nvme0n1p2", "/", "ext4", "rw,relatime"), ("proc", "/proc", "proc", "rw,nosuid,nodev,noexec,relatime"), ("sysfs", "/sys", "sysfs", "rw,nosuid,nodev,noexec,relatime"),
    ("tmpfs", "/dev/shm", "tmpfs", "rw,nosuid,nodev,inode64"), ("tmpfs", "/run", "tmpfs", "rw,nosuid,nodev,size=211258368k,mode=755"), ("cgroup2", "/sys/fs/cgroup", "cgroup2", "rw,nosuid,nodev,noexec,relatime"),
    ("/dev/nvme1n1", "/raid", "xfs", "rw,relatime"), ("10.0.0.5:/home", "/home", "nfs4", "rw,relatime,vers=4.2,hard,timeo=600,retrans=2"),
]  # fmt: skip


def healthy_machine(sku: Sku, gpus: int, driver: str) -> Machine:
    """The machine around idle, healthy GPUs."""
    machine = Machine(driver, driver, sku.open_module)
    machine.arch = "aarch64" if sku.form == "superchip" else "x86_64"
    machine.bus = pci.lay_out(sku, gpus)
    nics = [function for function in machine.bus if function.kind == "nic"]
    machine.ports = [
        Port(f"mlx5_{index}", *(() if sku.pcie["gen"] >= 5 else ("200 Gb/sec (4X HDR)",))) for index in range(len(nics))
    ]
    machine.modules, machine.units, machine.devices, machine.sensors = (
        _modules(sku, machine),
        _units(sku),
        _devices(sku, gpus),
        _sensors(sku),
    )
    machine.files["dev/ipmi0"] = ""
    machine.module_files, machine.dkms, machine.mounts = {KERNEL: driver}, {KERNEL: "installed"}, list(MOUNTS)
    if sku.form in ("ws", "geforce"):
        machine.cpus, machine.numa_nodes, machine.memory_mib, machine.memory_available_mib = 32, 1, 262_144, 250_000
    services = [
        "/sbin/init",
        "/usr/bin/nvidia-persistenced --user nvidia-persistenced",
        "/usr/sbin/sshd -D",
        "/usr/sbin/slurmd -D",
        "/usr/bin/dockerd -H fd://",
        "/usr/bin/containerd",
    ]
    if sku.fabric_manager:
        services.append("/usr/bin/nv-fabricmanager -c /usr/share/nvidia/nvswitch/fabricmanager.cfg")
    for at, command in enumerate(services):
        process = Process(
            1 if not at else 1200 + at,
            command,
            0,
            ppid=0 if not at else 1,
            rss_mib=20,
            age_s=int(machine.uptime_s) - 20,
        )
        process.cgroup = "/init.scope" if not at else f"/system.slice/{process.name}.service"
        machine.processes[process.pid] = process
    machine.processes[2] = Process(
        2, "kthreadd", 0, ppid=0, cgroup="/init.scope", rss_mib=0, age_s=int(machine.uptime_s) - 20
    )
    machine.processes[1201].devices = tuple(range(gpus))  # the persistence daemon keeps the GPUs open
    machine.log = logs.boot_lines(machine, sku)
    machine.earlier_boots = [("1d0a9c52-7b0e-4f7e-8a55-2f5f1c3f9e01", machine.uptime_s + 900_000, machine.uptime_s + 240, [
        LogLine(0.0, f"Linux version {KERNEL}"), LogLine(899_700.0, "systemd-shutdown[1]: Syncing filesystems and block devices."),
        LogLine(899_701.0, "reboot: Restarting system")])]  # fmt: skip
    return machine


def build_server(
    folder: Path, sku: str, gpus: int = 8, faults: Iterable[str] | Mapping[str, str] = (), *,
    driver: str = "580.105.08", library_driver: int | None = None, **options: Value,
) -> Server:  # fmt: skip
    """Builds the server under ``folder``.

    ``faults``: "name:argument:..." each, or a mapping of name to arguments ({"lost": "3"}); names are those of faults.py.
    ``library_driver``: hides what a driver of that branch does not export. ``options``: scenario keys of the machine
    ("cost=1"). Raises NoCompilerError where the library cannot be built, KeyError for an unknown SKU or fault.
    """
    found = load_skus()[sku]
    folder.mkdir(parents=True, exist_ok=True)
    now = time.time()

    def make() -> tuple[Scenario, Machine]:
        machine = healthy_machine(found, gpus, driver)
        machine.now = now
        addresses = [function.address for function in machine.bus if function.kind == "gpu"]
        switches = [function.address for function in machine.bus if function.kind == "nvswitch"]
        scenario = healthy(found, gpus, addresses, driver)
        scenario.put(**options)
        _connect(scenario, found, gpus, addresses, switches)
        return scenario, machine

    server = Server(folder, found, gpus, build_library(library_driver), *make(), make, library_driver)
    server.write()
    names = (
        [f"{name}:{text}" if text else name for name, text in faults.items()]
        if isinstance(faults, Mapping)
        else list(faults)
    )
    if names:
        server.inject(*names)
    return server


def _connect(scenario: Scenario, sku: Sku, gpus: int, addresses: list[str], switches: list[str]) -> None:
    """Where each NVLink leads: to the NVSwitches in turn, else to the neighbour of a bridge or a direct link."""
    if not sku.nvlink or not sku.nvlink["active"]:
        return
    for gpu in range(gpus):
        for link in range(sku.nvlink["count"]):
            if switches:
                scenario[f"{gpu}.nvlink.{link}.remote"] = switches[link % len(switches)]
            elif sku.form == "superchip":
                scenario[f"{gpu}.nvlink.{link}.remote"] = "FFFFFFFF:FF:FF.0"
            elif gpus > 1:
                others = (
                    [other for other in range(gpus) if other != gpu]
                    if sku.form == "sxm"
                    else [gpu ^ 1 if (gpu ^ 1) < gpus else gpu - 1]
                )
                scenario[f"{gpu}.nvlink.{link}.remote"] = addresses[others[link % len(others)]]
