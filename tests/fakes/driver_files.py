"""What the NVIDIA driver shows and installs: /proc/driver/nvidia, modules, device nodes, DKMS."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .nodes import Device, Folder, Link, Nodes

if TYPE_CHECKING:
    from .machine import Machine
    from .scenario import Scenario
    from .skus import Sku

# As the driver lists its parameters (NVIDIA/open-gpu-kernel-modules kernel-open/nvidia/nv-reg.h).
PARAMS = {
    "ResmanDebugLevel": "4294967295", "RmLogonRC": "1", "ModifyDeviceFiles": "1", "DeviceFileUID": "0", "DeviceFileGID": "0",
    "DeviceFileMode": "438", "InitializeSystemMemoryAllocations": "1", "UsePageAttributeTable": "4294967295", "EnableMSI": "1",
    "EnablePCIeGen3": "0", "MemoryPoolSize": "0", "KMallocHeapMaxSize": "0", "VMallocHeapMaxSize": "0", "IgnoreMMIOCheck": "0",
    "EnableStreamMemOPs": "0", "EnableUserNUMAManagement": "1", "NvLinkDisable": "0", "RmProfilingAdminOnly": "1",
    "PreserveVideoMemoryAllocations": "0", "DynamicPowerManagement": "3", "RegisterPCIDriver": "1",
    "EnablePCIERelaxedOrderingMode": "0", "EnableResizableBar": "0", "EnableGpuFirmware": "18", "EnableGpuFirmwareLogs": "2",
    "EnableDbgBreakpoint": "0", "OpenRmEnableUnsupportedGpus": "1", "DmaRemapPeerMmio": "1", "ImexChannelCount": "2048",
    "CreateImexChannel0": "0", "RegistryDwords": '""', "RegistryDwordsPerDevice": '""', "RmMsg": '""', "GpuBlacklist": '""',
    "TemporaryFilePath": '""', "ExcludedGpus": '""',
}  # fmt: skip


def version_line(machine: Machine) -> str:
    """The first line of /proc/driver/nvidia/version, as the kernel log has it too."""
    tail = f"{machine.driver}  Release Build  (dvs-builder@U22-I3-AE18-23-3)  Wed Oct 29 22:15:31 UTC 2025"
    if machine.open_module:
        return f"NVIDIA UNIX Open Kernel Module for {machine.arch}  {tail}"
    return f"NVIDIA UNIX {machine.arch} Kernel Module  {machine.driver}  Wed Oct 29 22:18:02 UTC 2025"


def render_driver(machine: Machine, sku: Sku, scenario: Scenario) -> Nodes:
    """Files of the loaded driver; nothing of them where the module is not loaded."""
    nodes: Nodes = {}
    if "nvidia" in machine.modules:
        nodes |= _proc(machine, sku, scenario)
        base = "sys/module/nvidia"
        nodes |= {f"{base}/version": f"{machine.driver}\n", f"{base}/srcversion": "6E4B2A0F0C2B5D1E7A9C3F4\n", f"{base}/refcnt": "0\n",
                  f"{base}/initstate": "live\n", f"{base}/taint": "OE\n", f"{base}/parameters/NVreg_EnableGpuFirmware": "18\n",
                  f"{base}/parameters/NVreg_OpenRmEnableUnsupportedGpus": "1\n"}  # fmt: skip
        for module in ("nvidia_uvm", "nvidia_modeset", "nvidia_drm", "nvidia_peermem"):
            if module in machine.modules:
                nodes |= {
                    f"sys/module/{module}/version": f"{machine.driver}\n",
                    f"sys/module/{module}/initstate": "live\n",
                }
        if "nvidia_drm" in machine.modules:
            nodes["sys/module/nvidia_drm/parameters/modeset"] = "N\n"
    for module in ("nouveau", "nova_core"):
        if module in machine.modules:
            nodes[f"sys/module/{module}/initstate"] = "live\n"
    nodes["proc/modules"] = "".join(f"{name} {rest.split()[0]} {rest.split()[1]} {rest.split()[2]} Live 0x0000000000000000"
                                    f"{' (OE)' if name.startswith('nvidia') else ''}\n" for name, rest in machine.modules.items())  # fmt: skip
    nodes |= {f"dev/{name}": Device(machine.device_mode) for name in machine.devices}
    nodes |= _installed(machine)
    return nodes


def _proc(machine: Machine, sku: Sku, scenario: Scenario) -> Nodes:
    base = "proc/driver/nvidia"
    nodes: Nodes = {
        f"{base}/version": f"NVRM version: {version_line(machine)}\nGCC version:  gcc version 13.3.0 (Ubuntu 13.3.0-6ubuntu2~24.04)\n",
        f"{base}/params": "".join(f"{key}: {value}\n" for key, value in {**PARAMS, **machine.params}.items()),
        f"{base}/registry": 'Binary: ""\n', f"{base}/suspend": "suspend hibernate resume\n", f"{base}/suspend_depth": "default modeset uvm\n",
        f"{base}/warnings/README": "The NVIDIA graphics driver tries to detect potential problems with the host system.\n",
        f"{base}/capabilities/fabric-imex-mgmt": "DeviceFileMinor: 3\nDeviceFileMode: 256\nDeviceFileModify: 1\n",
    }  # fmt: skip
    if sku.mig_max:
        nodes |= {f"{base}/capabilities/mig/config": "DeviceFileMinor: 1\nDeviceFileMode: 256\nDeviceFileModify: 1\n",
                  f"{base}/capabilities/mig/monitor": "DeviceFileMinor: 2\nDeviceFileMode: 256\nDeviceFileModify: 1\n"}  # fmt: skip
    gpus = [function for function in machine.bus if function.kind == "gpu"]
    by_address = {scenario.of(index, "pci.bus_id"): index for index in range(int(scenario["count"]))}
    for function in gpus:
        index = by_address.get(function.address)
        if function.driver != "nvidia" or index is None:
            continue
        lost = function.gone
        excluded = scenario.of(index, "excluded", "0") != "0"
        nodes[f"{base}/gpus/{function.address}/information"] = (
            f"Model: \t\t {sku.name}\nIRQ:   \t\t {18 + index}\nGPU UUID: \t {'GPU-????????-????-????-????-????????????' if lost else scenario.of(index, 'uuid')}\n"
            f"Video BIOS: \t {'??.??.??.??.??' if lost else scenario.of(index, 'vbios')}\nBus Type: \t PCIe\nDMA Size: \t 52 bits\nDMA Mask: \t 0xfffffffffffff\n"
            f"Bus Location: \t {function.address}\nDevice Minor: \t {scenario.of(index, 'minor')}\n"
            f"GPU Firmware: \t {scenario.of(index, 'gsp.version', 'N/A')}\nGPU Excluded:\t {'Yes' if excluded else 'No'}\n"
        )
        nodes[f"{base}/gpus/{function.address}/registry"] = 'Binary: ""\n'
        nodes[f"{base}/gpus/{function.address}/power"] = (
            "Runtime D3 status:          Disabled by default\nVideo Memory:               Active\n"
        )
    return nodes


def _installed(machine: Machine) -> Nodes:
    nodes: Nodes = {f"usr/lib/x86_64-linux-gnu/libnvidia-ml.so.{machine.user_space}": "",
                    "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1": Link(f"libnvidia-ml.so.{machine.user_space}"),
                    f"usr/lib/x86_64-linux-gnu/libcuda.so.{machine.user_space}": "",
                    "usr/lib/x86_64-linux-gnu/libcuda.so.1": Link(f"libcuda.so.{machine.user_space}"),
                    f"lib/firmware/nvidia/{machine.user_space}/gsp_ga10x.bin": "", f"lib/firmware/nvidia/{machine.user_space}/gsp_tu10x.bin": "",
                    "boot/grub/grub.cfg": f"menuentry 'Ubuntu' {{\n\tlinux /boot/vmlinuz-{machine.next_kernel} root=/dev/sda2 ro quiet\n}}\n"}  # fmt: skip
    for kernel in {machine.kernel, machine.next_kernel, *machine.module_files, *machine.dkms}:
        nodes[f"boot/vmlinuz-{kernel}"] = ""
        nodes[f"boot/initrd.img-{kernel}"] = ""
        nodes[f"lib/modules/{kernel}/modules.dep"] = (
            "kernel/drivers/net/ethernet/mellanox/mlx5/core/mlx5_core.ko:\n"
            + (
                "updates/dkms/nvidia.ko:\nupdates/dkms/nvidia-uvm.ko: updates/dkms/nvidia.ko\n"
                if kernel in machine.module_files
                else ""
            )
        )
        nodes[f"lib/modules/{kernel}/kernel/drivers/gpu/drm/nouveau/nouveau.ko.zst"] = ""
    nodes["boot/vmlinuz"] = Link(f"vmlinuz-{machine.next_kernel}")
    for kernel, version in machine.module_files.items():
        for module in ("nvidia", "nvidia-uvm", "nvidia-modeset", "nvidia-drm", "nvidia-peermem"):
            strings = f"version={version}\0license={'Dual MIT/GPL' if machine.open_module else 'NVIDIA'}\0vermagic={kernel} SMP preempt mod_unload modversions \0"
            nodes[f"lib/modules/{kernel}/updates/dkms/{module}.ko"] = b"\x7fELF\x02\x01\x01\0" + strings.encode()
    for kernel, state in machine.dkms.items():
        version = machine.module_files.get(kernel, machine.user_space)
        base = f"var/lib/dkms/nvidia/{version}"
        nodes[f"{base}/source"] = Link(f"/usr/src/nvidia-{version}")
        if state == "installed":
            nodes[f"var/lib/dkms/nvidia/kernel-{kernel}-{machine.arch}"] = Link(f"{version}/{kernel}/{machine.arch}")
            nodes[f"{base}/{kernel}/{machine.arch}/module/nvidia.ko"] = ""
            nodes[f"{base}/{kernel}/{machine.arch}/log/make.log"] = "DKMS make.log\nexit status: 0\n"
        elif state == "broken":
            nodes[f"{base}/build/make.log"] = (f"DKMS make.log for nvidia-{version} for kernel {kernel} ({machine.arch})\n"
                                               "error: implicit declaration of function 'follow_pfn'\nmake: *** [Makefile:82: modules] Error 2\n")  # fmt: skip
        else:
            nodes[f"{base}/build"] = Folder()
    return nodes


def dkms_status(machine: Machine) -> str:
    """What `dkms status` prints."""
    lines = []
    for kernel, state in machine.dkms.items():
        version = machine.module_files.get(kernel, machine.user_space)
        lines.append(
            f"nvidia/{version}, {kernel}, {machine.arch}: installed"
            if state == "installed"
            else f"nvidia/{version}: added"
        )
    return "".join(f"{line}\n" for line in dict.fromkeys(lines))


def modinfo(machine: Machine, kernel: str) -> tuple[str, int]:
    """What `modinfo nvidia` prints for a kernel, and its exit code."""
    if kernel not in machine.module_files:
        return "modinfo: ERROR: Module nvidia not found.\n", 1
    signer = f"sig_id:         PKCS#7\nsigner:         {machine.module_signer}\n" if machine.module_signer else ""
    return (
        (
            f"filename:       /lib/modules/{kernel}/updates/dkms/nvidia.ko\nimport_ns:      DMA_BUF\nalias:          char-major-195-*\n"
            f"version:        {machine.module_files[kernel]}\nsupported:      external\nlicense:        {'Dual MIT/GPL' if machine.open_module else 'NVIDIA'}\n"
            f"firmware:       nvidia/{machine.module_files[kernel]}/gsp_tu10x.bin\nsrcversion:     6E4B2A0F0C2B5D1E7A9C3F4\n"
            f"depends:        \nretpoline:      Y\nname:           nvidia\nvermagic:       {kernel} SMP preempt mod_unload modversions \n{signer}"
        ),
        0,
    )
