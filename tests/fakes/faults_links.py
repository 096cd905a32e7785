"""Faults of PCIe, NVLink, the fabric and the network."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .faults import fault, work, xid_line
from .nodes import Link

if TYPE_CHECKING:
    from .pci import Function
    from .server import Server


def _bridge_above(server: Server, gpu: int) -> Function:
    parent = server.function(gpu).parents[-1]
    return next(one for one in server.machine.bus if one.address == parent)


@fault()
def pcie_width(server: Server, gpu: int = 1, width: int = 8) -> None:
    """The link is narrower than card and slot can."""
    function = server.function(gpu)
    function.width = _bridge_above(server, gpu).width = width
    server.gpu(gpu, {"pcie.width": width})


@fault()
def pcie_gen(server: Server, gpu: int = 1, gen: int = 1) -> None:
    """The link stays slow under load."""
    work(server, gpu)
    function = server.function(gpu)
    function.gen = _bridge_above(server, gpu).gen = gen
    server.gpu(gpu, {"pcie.gen": gen})


@fault()
def pcie_slot(server: Server, gpu: int = 1, gen: int = 3) -> None:
    """The bridge above the GPU can do less than the card."""
    work(server, gpu)
    bridge, function = _bridge_above(server, gpu), server.function(gpu)
    bridge.gen = bridge.gen_max = function.gen = gen
    server.gpu(gpu, {"pcie.gen": gen, "pcie.gen.max": gen})


@fault()
def pcie_replays(server: Server, gpu: int = 5, count: int = 20_000, per_second: int = 40) -> None:
    """Replays that grow."""
    server.gpu(gpu, {"pcie.replays": f"{count}+{per_second}/s"})


@fault()
def aer_corrected(server: Server, gpu: int = 5, count: int = 30_000, name: str = "BadTLP") -> None:
    """Corrected AER errors on the GPU and in the log."""
    server.function(gpu).aer[name] = count
    address, port = server.address(gpu), server.function(gpu).parents[0]
    for ago in range(60, 3600, 120):
        server.machine.say(f"pcieport {port}: AER: Corrected error message received from {address}", ago=ago)
        server.machine.say(
            f"nvidia {address}: PCIe Bus Error: severity=Corrected, type=Data Link Layer, (Receiver ID)", ago=ago
        )
        server.machine.say(f"nvidia {address}:    [ 6] {name}", ago=ago)


@fault()
def aer_fatal(server: Server, gpu: int = 5, name: str = "DLP") -> None:
    """An uncorrectable (fatal) AER error."""
    server.function(gpu).aer[f"fatal:{name}"] = 1
    server.machine.say(
        f"nvidia {server.address(gpu)}: PCIe Bus Error: severity=Uncorrectable (Fatal), type=Data Link Layer, (Receiver ID)",
        level=3,
    )


@fault()
def acs_on(server: Server) -> None:
    """ACS redirects peer traffic through the host on bare metal."""
    for function in server.machine.bus:
        function.acs_redirect = function.kind in ("root_port", "downstream")


@fault()
def iommu_on(server: Server) -> None:
    """The IOMMU translates on bare metal."""
    server.machine.kernel_options.append("intel_iommu=on")
    for number, function in enumerate(server.machine.bus):
        server.machine.files[f"sys/kernel/iommu_groups/{number}/type"] = "DMA\n"
        server.machine.files[f"sys/kernel/iommu_groups/{number}/devices/{function.address}"] = ""
        up = "../" * function.folder.removeprefix("sys/").count("/")
        server.machine.files[f"{function.folder}/iommu_group"] = Link(f"{up}../kernel/iommu_groups/{number}")


@fault()
def bar_unassigned(server: Server, gpu: int = 6) -> None:
    """The firmware gave the GPU no room: BAR1 unassigned, the driver does not take it."""
    function = server.function(gpu)
    function.bar_unassigned, function.driver = True, None
    server.gpu(gpu, {"hidden": 1})
    server.machine.say(
        f"NVRM: This PCI I/O region assigned to your NVIDIA device is invalid:\nNVRM: BAR1 is 0M @ 0x0 (PCI:{server.address(gpu)})".replace(
            "\n", " "
        ),
        ago=server.machine.uptime_s - 14,
        level=3,
    )


@fault("nvlink")
def nvlink_down(server: Server, gpu: int = 4, link: int = 1) -> None:
    """One NVLink is inactive; Xid 74."""
    server.gpu(gpu, {f"nvlink.{link}.state": 0, f"nvlink.{link}.speed": 0})
    xid_line(server, gpu, 74, f"NVLink: fatal error detected on link {link}(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)")


@fault("nvlink")
def nvlink_errors(
    server: Server, gpu: int = 4, link: int = 1, kind: str = "crc_flit", count: int = 5000, per_second: int = 30
) -> None:
    """Errors on one NVLink that grow: replay, recovery, crc_flit, crc_data, ecc_data."""
    server.gpu(gpu, {f"nvlink.{link}.{kind}": f"{count}+{per_second}/s"})


@fault("nvlink5")
def nvlink_ber(server: Server, gpu: int = 4, link: int = 1, symbol_errors: int = 900) -> None:
    """NVLink 5: symbol errors and a high bit error rate (mantissa and exponent as NVML packs them)."""
    server.gpu(
        gpu,
        {
            f"nvlink.{link}.symbol_errors": symbol_errors,
            f"nvlink.{link}.effective_errors": symbol_errors,
            f"nvlink.{link}.effective_ber": 15 << 8 | 7,
        },
    )


@fault("nvlink")
def nvlink_fewer(server: Server, gpu: int = 4, left: int = 2) -> None:
    """Only so many links of the GPU are up, without an Xid of this boot."""
    for link in range(left, server.sku.nvlink["count"] if server.sku.nvlink else 0):
        server.gpu(gpu, {f"nvlink.{link}.state": 0, f"nvlink.{link}.speed": 0})


@fault("fabric")
def fabric_failed(server: Server, gpu: str = "all") -> None:
    """The fabric came to an end with an error: CUDA fails with 802."""
    for index in range(server.gpus) if gpu == "all" else [int(gpu)]:
        server.gpu(index, {"fabric.state": 3, "fabric.status": 999})
    if "nvidia-fabricmanager" in server.machine.units:
        fabricmanager_down(server)


@fault("fabric")
def fabric_in_progress(server: Server) -> None:
    """The fabric is not initialised yet."""
    for gpu in range(server.gpus):
        server.gpu(gpu, {"fabric.state": 2, "fabric.status": 0})


@fault("fabric_health")
def fabric_degraded(server: Server, gpu: int = 2) -> None:
    """One GPU's fabric runs with degraded bandwidth and an unhealthy route."""
    server.gpu(gpu, {"fabric.health": 0x1 | 0x8 | 0x10 | 0x80 | 0x100, "fabric.summary": 2})


@fault("fabric")
def clique_mismatch(server: Server, gpu: int = 2) -> None:
    """One GPU belongs to another clique than the rest."""
    server.gpu(gpu, {"fabric.clique": 7})


@fault("fabric_manager")
def fabricmanager_down(server: Server) -> None:
    """The Fabric Manager service has failed."""
    server.machine.units["nvidia-fabricmanager"] |= {
        "ActiveState": "failed",
        "SubState": "failed",
        "Result": "exit-code",
        "ExecMainStatus": "1",
    }
    server.machine.processes = {
        pid: one for pid, one in server.machine.processes.items() if "fabricmanager" not in one.command
    }
    if server.sku.fabric:
        for gpu in range(server.gpus):
            if server.scenario.of(gpu, "fabric.status") == "0":
                server.gpu(gpu, {"fabric.state": 2})


@fault("fabric_manager")
def fabricmanager_version(server: Server, version: str = "580.95.05") -> None:
    """Fabric Manager of another version than the driver: it stops at once."""
    fabricmanager_down(server)
    server.machine.files["var/log/fabricmanager.log"] = (
        f"[Nov 30 2026 08:00:01] [ERROR] [tid 2100] Fabric Manager version {version} don't match with driver version {server.machine.driver}. Please update with matching NVIDIA driver package.\n"
    )
    server.machine.answers["dpkg", "*-l*"] = (
        f"ii  nvidia-fabricmanager-580  {version}-1  amd64  Fabric Manager\nii  nvidia-driver-580-open  {server.machine.driver}-0ubuntu1  amd64  driver\n",
        0,
    )


@fault("fabric_manager")
def nvswitch_lost(server: Server, switch: int = 0) -> None:
    """An NVSwitch is gone from the bus; SXid 20034 before it, its links are down."""
    switches = [one for one in server.machine.bus if one.kind == "nvswitch"]
    gone = switches[switch % len(switches)]
    gone.gone = True
    server.machine.say(
        f"nvidia-nvswitch{switch}: SXid (PCI:{gone.address}): 20034, Fatal, Link 30 LTSSM Fault Up", level=3
    )
    for gpu in range(server.gpus):
        for link in range(
            switch % len(switches), server.sku.nvlink["count"] if server.sku.nvlink else 0, len(switches)
        ):
            server.gpu(gpu, {f"nvlink.{link}.state": 0, f"nvlink.{link}.speed": 0})


@fault()
def p2p_broken(server: Server, first: int = 0, second: int = 1) -> None:
    """Peer access between two GPUs is refused by the chipset."""
    server.gpu(first, {f"p2p.{second}": 3})
    server.gpu(second, {f"p2p.{first}": 3})


@fault("nic")
def ib_down(server: Server, port: int = 1) -> None:
    """An InfiniBand port is down, the cable polls."""
    one = server.machine.ports[port]
    one.state, one.physical = "1: DOWN", "2: Polling"
    server.machine.say(f"mlx5_core: {one.device}: Link down", level=4)


@fault("nic")
def ib_errors(server: Server, port: int = 1, counter: str = "symbol_error", count: int = 90_000) -> None:
    """An InfiniBand port with errors."""
    server.machine.ports[port].counters[counter] = count


@fault("nic")
def ib_flapping(server: Server, port: int = 1, times: int = 12) -> None:
    """An InfiniBand port that went down again and again."""
    server.machine.ports[port].counters |= {"link_downed": times, "link_error_recovery": times}


@fault("nic")
def ib_slow(server: Server, port: int = 1) -> None:
    """An InfiniBand port at a lower rate than its neighbours."""
    server.machine.ports[port].rate = "100 Gb/sec (4X EDR)"


@fault("nic")
def nic_missing(server: Server, port: int = 3) -> None:
    """A NIC is gone from the bus."""
    nics = [one for one in server.machine.bus if one.kind == "nic"]
    server.machine.bus.remove(nics[port])
    del server.machine.ports[port]
