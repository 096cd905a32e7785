"""Faults of the driver's installation, containers and schedulers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .faults import fault
from .smi import INIT_MESSAGES

if TYPE_CHECKING:
    from .server import Server

NEXT_KERNEL = "6.8.0-90-generic"


def _unload(server: Server) -> None:
    machine = server.machine
    for name in [name for name in machine.modules if name.startswith("nvidia")]:
        del machine.modules[name]
    machine.log = [line for line in machine.log if "NVRM" not in line.text and "nvidia" not in line.text]
    machine.devices = {}
    machine.units["nvidia-persistenced"] |= {"ActiveState": "failed", "SubState": "failed", "Result": "exit-code"}
    machine.processes = {
        pid: one
        for pid, one in machine.processes.items()
        if "nvidia-persistenced" not in one.command and "fabricmanager" not in one.command
    }
    if "nvidia-fabricmanager" in machine.units:
        machine.units["nvidia-fabricmanager"] |= {"ActiveState": "failed", "SubState": "failed", "Result": "exit-code"}
    for function in machine.bus:
        if function.vendor == 0x10DE and function.driver in ("nvidia", "nvidia-nvswitch"):
            function.driver = None
    server.scenario["init"] = "9"


@fault()
def no_driver(server: Server) -> None:
    """The kernel module is not loaded (nor built); the GPUs are on the bus."""
    _unload(server)
    server.machine.module_files, server.machine.dkms = {}, {}


@fault()
def module_not_loaded(server: Server) -> None:
    """The module is built for this kernel but not loaded."""
    _unload(server)


@fault()
def module_missing_for_kernel(server: Server) -> None:
    """Somebody booted a new kernel for which nobody built the module."""
    _unload(server)
    server.machine.module_files = {"6.8.0-49-generic": server.machine.user_space}
    server.machine.dkms = {"6.8.0-49-generic": "installed"}


@fault()
def module_mismatch(server: Server, user_space: str = "580.126.09") -> None:
    """The packages were upgraded under the running module: NVML code 18."""
    machine = server.machine
    machine.user_space = user_space
    machine.module_files = {machine.kernel: user_space}
    server.scenario.put(init=18, nvml_version=f"13.{user_space}")
    machine.say(
        f"NVRM: API mismatch: the client has the version {user_space}, but NVRM: this kernel module has the version {machine.driver}. Please NVRM: make sure that this kernel module and all NVIDIA driver NVRM: components have the same version.",
        level=3,
    )
    machine.files["var/log/apt/history.log"] = (
        f"Start-Date: 2026-11-30  06:12:01\nCommandline: /usr/bin/unattended-upgrade\nUpgrade: libnvidia-compute-580:amd64 ({machine.driver}-0ubuntu1, {user_space}-0ubuntu1)\nEnd-Date: 2026-11-30  06:12:44\n"
    )
    machine.files["var/lib/dpkg/status"] = (
        f"Package: libnvidia-compute-580\nStatus: install ok installed\nVersion: {user_space}-0ubuntu1\n\n"
    )


@fault()
def nouveau(server: Server) -> None:
    """nouveau holds the GPUs."""
    _unload(server)
    server.machine.modules["nouveau"] = "3096576 1 -"
    server.machine.files["etc/modprobe.d/blacklist-nouveau.conf"] = None
    for function in server.machine.bus:
        if function.kind == "gpu":
            function.driver = "nouveau"
            server.machine.say(
                f"nouveau {function.address}: NVIDIA (000000a1)", ago=server.machine.uptime_s - 8, level=6
            )


@fault()
def nova(server: Server) -> None:
    """nova_core holds the GPUs."""
    _unload(server)
    server.machine.modules["nova_core"] = "196608 1 -"
    for function in server.machine.bus:
        if function.kind == "gpu":
            function.driver = "NovaCore"


@fault()
def no_permission(server: Server) -> None:
    """NVML may not open the devices: code 4."""
    server.scenario["init"] = "4"


@fault()
def no_library(server: Server) -> None:
    """There is no NVML on this server."""
    server.library = server.folder / "root/usr/lib/nowhere/libnvidia-ml.so.1"
    server.machine.answers["nvidia-smi", "*"] = (
        "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system. Please make sure that the NVIDIA Display Driver is properly installed and present in your system.\n",
        12,
    )


@fault()
def nvml_error(server: Server, code: int = 999) -> None:
    """nvmlInit fails with any code (999 as in a container that lost its devices)."""
    server.scenario["init"] = str(code)
    server.machine.answers["nvidia-smi", "*"] = (
        INIT_MESSAGES.get(code, f"Failed to initialize NVML: error {code}\n"),
        min(code, 255),
    )


@fault()
def dkms_missing_for_next_kernel(server: Server) -> None:
    """A new kernel is installed and will boot next; no module was built for it."""
    server.machine.next_kernel = NEXT_KERNEL


@fault()
def dkms_broken(server: Server) -> None:
    """DKMS failed to build the module for the next kernel."""
    server.machine.next_kernel = NEXT_KERNEL
    server.machine.dkms[NEXT_KERNEL] = "broken"


@fault()
def secure_boot_unsigned(server: Server) -> None:
    """Secure Boot is on and the module is not signed: it was not loaded."""
    _unload(server)
    server.machine.secure_boot, server.machine.module_signer = True, ""
    server.machine.files["sys/kernel/security/lockdown"] = "none [integrity] confidentiality\n"
    server.machine.say("Loading of unsigned module is rejected", ago=server.machine.uptime_s - 9, level=5)


@fault("open")
def wrong_flavour(server: Server) -> None:
    """The proprietary module is loaded (Blackwell and Grace need the open one: then it takes no GPU)."""
    machine = server.machine
    machine.open_module = False
    if server.sku.architecture >= 10 or server.sku.form == "superchip":
        server.scenario["all.hidden"] = "1"
        for gpu in range(server.gpus):
            server.function(gpu).driver = None  # its probe failed
            machine.say(
                f"NVRM: GPU {server.address(gpu)}: The NVIDIA GPU requires use of the NVIDIA open kernel modules.",
                ago=machine.uptime_s - 12,
                level=3,
            )


@fault()
def uvm_missing(server: Server) -> None:
    """nvidia_uvm is not loaded and its device nodes are missing: CUDA fails with 999."""
    server.machine.modules.pop("nvidia_uvm", None)
    server.machine.log = [line for line in server.machine.log if "uvm" not in line.text.lower()]
    for name in ("nvidia-uvm", "nvidia-uvm-tools"):
        server.machine.devices.pop(name, None)


@fault()
def device_node_missing(server: Server, gpu: int = 3) -> None:
    """/dev/nvidiaN of one GPU is missing."""
    server.machine.devices.pop(f"nvidia{gpu}", None)


@fault()
def device_rights(server: Server) -> None:
    """Only root may open the device nodes."""
    server.machine.device_mode = 0o600
    server.machine.params["DeviceFileMode"] = "384"
    server.machine.files["etc/modprobe.d/nvidia.conf"] = "options nvidia NVreg_DeviceFileMode=0600\n"


@fault("nic")
def peermem_missing(server: Server) -> None:
    """nvidia_peermem is not loaded on a server with InfiniBand."""
    server.machine.modules.pop("nvidia_peermem", None)


@fault("gsp")
def gsp_firmware_missing(server: Server) -> None:
    """The firmware files of the driver are gone."""
    for name in ("gsp_ga10x.bin", "gsp_tu10x.bin"):
        server.machine.files[f"lib/firmware/nvidia/{server.machine.user_space}/{name}"] = None
    server.machine.say(
        f"nvidia {server.address(0)}: Direct firmware load for nvidia/{server.machine.driver}/gsp_ga10x.bin failed with error -2",
        level=4,
    )


@fault()
def unattended_upgrades(server: Server) -> None:
    """Unattended upgrades are on and may replace the driver under running jobs."""
    server.machine.files["etc/apt/apt.conf.d/20auto-upgrades"] = (
        'APT::Periodic::Update-Package-Lists "1";\nAPT::Periodic::Unattended-Upgrade "1";\n'
    )
    server.machine.files["etc/apt/apt.conf.d/50unattended-upgrades"] = (
        'Unattended-Upgrade::Allowed-Origins {\n\t"${distro_id}:${distro_codename}";\n\t"${distro_id}:${distro_codename}-updates";\n};\n'
    )


@fault()
def registry_odd(server: Server, text: str = "NVreg_RegistryDwords=RMForcePcieGen=0x1") -> None:
    """Odd module options: in modprobe.d and in the driver's parameters."""
    server.machine.files["etc/modprobe.d/zz-tuning.conf"] = f"options nvidia {text}\n"
    server.machine.params["RegistryDwords"] = f'"{text.partition("=")[2]}"'


@fault()
def excluded(server: Server, gpu: int = 5) -> None:
    """A GPU is excluded by the administrator."""
    server.gpu(gpu, {"hidden": 1, "excluded": 1})
    server.machine.params["ExcludedGpus"] = f'"{server.scenario.of(gpu, "uuid")}"'


@fault()
def docker_device_trap(server: Server) -> None:
    """Containers lose their GPUs at a daemon-reload: systemd cgroups, no CDI, no device nodes."""
    server.machine.files["etc/docker/daemon.json"] = (
        '{\n  "exec-opts": ["native.cgroupdriver=systemd"],\n  "runtimes": {"nvidia": {"args": [], "path": "nvidia-container-runtime"}}\n}\n'
    )
    server.machine.files["etc/nvidia-container-runtime/config.toml"] = (
        'disable-require = false\n[nvidia-container-cli]\nno-cgroups = false\n[nvidia-container-runtime]\nmode = "legacy"\n'
    )
    server.machine.files["etc/cdi/nvidia.yaml"] = None
    server.machine.files["lib/udev/rules.d/71-nvidia-dev-char.rules"] = None


@fault()
def cdi_stale(server: Server, version: str = "570.172.08") -> None:
    """The CDI file names libraries of an older driver."""
    server.machine.files["etc/cdi/nvidia.yaml"] = (
        f"cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices:\n- name: all\n  containerEdits:\n    deviceNodes:\n    - path: /dev/nvidia0\ncontainerEdits:\n  mounts:\n"
        f"  - containerPath: /usr/lib/x86_64-linux-gnu/libcuda.so.{version}\n    hostPath: /usr/lib/x86_64-linux-gnu/libcuda.so.{version}\n")  # fmt: skip


@fault()
def toolkit_missing(server: Server) -> None:
    """Docker without the NVIDIA runtime."""
    server.machine.files["etc/docker/daemon.json"] = "{}\n"
    server.machine.files["etc/nvidia-container-runtime/config.toml"] = None


@fault()
def slurm_gres(server: Server, configured: int = 0) -> None:
    """Slurm counts other GPUs than there are."""
    count = configured or server.gpus + 1
    server.machine.files["etc/slurm/gres.conf"] = (
        f"NodeName={server.machine.hostname} Name=gpu File=/dev/nvidia[0-{count - 1}]\n"
    )
    server.machine.files["etc/slurm/slurm.conf"] = (
        f"GresTypes=gpu\nNodeName={server.machine.hostname} Gres=gpu:{count} CPUs={server.machine.cpus}\n"
    )


@fault()
def service_down(server: Server, unit: str = "slurmd") -> None:
    """A service has failed."""
    server.machine.units[unit] = {**server.machine.units.get(unit, {"LoadState": "loaded", "UnitFileState": "enabled"}),
                                  "ActiveState": "failed", "SubState": "failed", "Result": "exit-code", "ExecMainStatus": "1", "NRestarts": "5"}  # fmt: skip
    server.machine.processes = {pid: one for pid, one in server.machine.processes.items() if one.name != unit}
