"""The PCI bus of a fake server: root ports, switches, GPUs, NVSwitches, NICs, as sysfs shows them."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .nodes import Link, Nodes

if TYPE_CHECKING:
    from .skus import Sku

GTS = {1: "2.5", 2: "5.0", 3: "8.0", 4: "16.0", 5: "32.0", 6: "64.0"}
CORRECTABLE = ("RxErr", "BadTLP", "BadDLLP", "Rollover", "Timeout", "NonFatalErr", "CorrIntErr", "HeaderOF")
UNCORRECTABLE = (
    "Undefined", "DLP", "SDES", "TLP", "FCP", "CmpltTO", "CmpltAbrt", "UnxCmplt", "RxOF", "MalfTLP", "ECRC", "UnsupReq",
    "ACSViol", "UncorrIntErr", "BlockedTLP", "AtomicOpBlocked", "TLPBlockedErr", "PoisonTLPBlocked",
)  # fmt: skip


@dataclass
class Function:
    """One PCI function; ``parents`` are the addresses of the bridges above it, the root port first."""

    address: str
    kind: str  # gpu, root_port, upstream, downstream, nvswitch, nic
    vendor: int
    device: int
    pci_class: int
    parents: tuple[str, ...]
    name: str
    driver: str | None = None
    gen: int = 5
    gen_max: int = 5
    width: int = 16
    width_max: int = 16
    numa: int = 0
    subsystem: tuple[int, int] = (0x10DE, 0)
    secondary: int = 0
    subordinate: int = 0
    gone: bool = False  # on the bus, but answers all ones
    acs_redirect: bool = False
    aer: dict[str, int] = field(default_factory=dict)  # names of CORRECTABLE, or fatal:NAME, nonfatal:NAME
    power_state: str = "D0"
    bar_unassigned: bool = False
    bus_master: bool = True

    @property
    def root_bus(self) -> str:
        """domain:bus of the host bridge it hangs on."""
        first = self.parents[0] if self.parents else self.address
        return first.rsplit(":", 1)[0]

    @property
    def folder(self) -> str:
        """Its folder under sys/devices."""
        return "/".join((f"sys/devices/pci{self.root_bus}", *self.parents, self.address))

    @property
    def is_bridge(self) -> bool:
        """A port: it has a bus below."""
        return self.pci_class >> 8 == 0x0604


def _bridge(address: str, kind: str, parents: tuple[str, ...], sku: Sku, numa: int, secondary: int) -> Function:
    vendor, device, name = {
        "root_port": (0x8086, 0x352A, "Intel Corporation Sapphire Rapids PCIe Root Port"),
        "upstream": (0x1000, 0xC030, "Broadcom / LSI PEX890xx PCIe Gen 5 Switch"),
        "downstream": (0x1000, 0xC030, "Broadcom / LSI PEX890xx PCIe Gen 5 Switch"),
    }[kind]
    gen = max(sku.pcie["gen"], 3)
    return Function(address, kind, vendor, device, 0x060400, parents, name, "pcieport", gen, gen, 16, 16, numa,
                    (vendor, 0), secondary)  # fmt: skip


def _gpu(sku: Sku, address: str, parents: tuple[str, ...], numa: int) -> Function:
    return Function(address, "gpu", 0x10DE, sku.device, 0x030000 if sku.is_display else 0x030200, parents,
                    f"NVIDIA Corporation {sku.name}", "nvidia", sku.pcie["idle_gen"], sku.pcie["gen"], sku.pcie["width"],
                    sku.pcie["width"], numa, (0x10DE, sku.subsystem >> 16))  # fmt: skip


def _superchip(sku: Sku, gpus: int) -> list[Function]:
    functions = []
    for index in range(gpus):
        domain = (index // 2) * 0x10 + 8 + index % 2
        port = f"{domain:04x}:00:00.0"
        functions.append(_bridge(port, "root_port", (), sku, index // 2, 1))
        functions[-1].vendor, functions[-1].device, functions[-1].name = (
            0x10DE,
            0x22B1,
            "NVIDIA Corporation PCIe Root Port",
        )
        functions.append(_gpu(sku, f"{domain:04x}:01:00.0", (port,), index // 2))
    return functions


def _with_switches(sku: Sku, gpus: int, nics: bool) -> list[Function]:
    """Two GPUs and a NIC under each PCIe switch, half of the switches at each socket."""
    functions: list[Function] = []
    switches = (gpus + 1) // 2
    for at in range(switches):
        bus = 0x10 + at * (0x20 if switches <= 7 else 0x1C)
        numa = at * 2 // max(switches, 2)
        root, up = f"0000:{bus:02x}:01.0", f"0000:{bus + 1:02x}:00.0"
        functions.append(_bridge(root, "root_port", (), sku, numa, bus + 1))
        functions.append(_bridge(up, "upstream", (root,), sku, numa, bus + 2))
        for slot in range(3 if nics else 2):
            down = f"0000:{bus + 2:02x}:{slot:02x}.0"
            end = f"0000:{bus + 3 + slot:02x}:00.0"
            above = (root, up, down)
            if slot == 2:
                nic = Function(end, "nic", 0x15B3, 0x1021, 0x020700, above, "Mellanox Technologies MT2910 Family [ConnectX-7]",
                               "mlx5_core", min(sku.pcie["gen"], 5), min(sku.pcie["gen"], 5), 16, 16, numa, (0x15B3, 0x23))  # fmt: skip
                functions += [_bridge(down, "downstream", (root, up), sku, numa, bus + 3 + slot), nic]
            elif at * 2 + slot < gpus:
                functions += [
                    _bridge(down, "downstream", (root, up), sku, numa, bus + 3 + slot),
                    _gpu(sku, end, above, numa),
                ]
    return functions


def lay_out(sku: Sku, gpus: int) -> list[Function]:
    """The functions of a server with so many GPUs of this SKU."""
    functions = _functions(sku, gpus)
    for bridge in functions:
        buses = [int(one.address.split(":")[1], 16) for one in functions if bridge.address in one.parents]
        bridge.subordinate = max(buses, default=0)
    return functions


def _functions(sku: Sku, gpus: int) -> list[Function]:
    if sku.form == "superchip":
        return _superchip(sku, gpus)
    if sku.is_display:
        functions = []
        for index in range(gpus):
            bus = 0x01 + index * 0x10
            port = f"0000:{bus - 1:02x}:01.0"
            functions += [_bridge(port, "root_port", (), sku, 0, bus), _gpu(sku, f"0000:{bus:02x}:00.0", (port,), 0)]
        return functions
    functions = _with_switches(sku, gpus, nics=sku.form in ("sxm", "nvl"))
    for index in range(sku.nvlink["nvswitches"] if sku.nvlink else 0):
        port = f"0000:00:{index + 1:02x}.0"
        functions.append(_bridge(port, "root_port", (), sku, 0, 4 + index))
        device = 0x1AF1 if sku.architecture == 7 else 0x22A3 if sku.architecture == 9 else 0x2900
        functions.append(Function(f"0000:{4 + index:02x}:00.0", "nvswitch", 0x10DE, device, 0x068000, (port,),
                                  "NVIDIA Corporation NVSwitch", "nvidia-nvswitch", 4, 4, 2, 2, 0, (0x10DE, 0x1643)))  # fmt: skip
    return functions


def _config(function: Function) -> bytes:
    """Config space: header, a PCI Express capability at 0x60, and for bridges ACS at 0x100."""
    if function.gone:
        return b"\xff" * 4096
    space = bytearray(4096)
    command = 0x0003 | (0x4 if function.bus_master else 0) | 0x0400
    struct.pack_into("<HHHHBBBBBBBB", space, 0, function.vendor, function.device, command, 0x0010, 0xA1, 0,
                     function.pci_class >> 8 & 0xFF, function.pci_class >> 16, 0x10, 0, int(function.is_bridge), 0)  # fmt: skip
    if function.is_bridge:
        primary = int(function.address.split(":")[1], 16)
        struct.pack_into("<BBB", space, 0x18, primary, function.secondary, function.subordinate)
    else:
        struct.pack_into("<HH", space, 0x2C, *function.subsystem)
        if not function.bar_unassigned:
            struct.pack_into("<IQ", space, 0x10, 0xA0000000, 0x2000_0000_000C)
    space[0x34] = 0x60
    port_type = {"root_port": 4, "upstream": 5, "downstream": 6}.get(function.kind, 0)
    struct.pack_into("<BBH", space, 0x60, 0x10, 0, 2 | port_type << 4)
    struct.pack_into("<I", space, 0x6C, function.gen_max | function.width_max << 4)
    struct.pack_into("<H", space, 0x72, function.gen | function.width << 4)
    if function.kind in ("root_port", "downstream"):
        struct.pack_into("<IHH", space, 0x100, 0x0001000D, 0x1D, 0x1D if function.acs_redirect else 0)
    return bytes(space)


def _aer(function: Function, names: tuple[str, ...], prefix: str, total: str) -> str:
    counts = {name: function.aer.get(prefix + name, 0) for name in names}
    return "".join(f"{name} {count}\n" for name, count in counts.items()) + f"{total} {sum(counts.values())}\n"


def render(functions: list[Function]) -> Nodes:
    """The files under sys/devices and sys/bus/pci."""
    nodes: Nodes = {}
    for function in functions:
        base = function.folder
        gone = function.gone
        put = {
            "vendor": f"0x{function.vendor:04x}\n", "device": f"0x{function.device:04x}\n", "class": f"0x{function.pci_class:06x}\n",
            "subsystem_vendor": f"0x{function.subsystem[0]:04x}\n", "subsystem_device": f"0x{function.subsystem[1]:04x}\n",
            "revision": "0xff\n" if gone else "0xa1\n", "irq": "18\n",
            "current_link_speed": "Unknown\n" if gone else f"{GTS[function.gen]} GT/s PCIe\n",
            "current_link_width": "63\n" if gone else f"{function.width}\n",
            "max_link_speed": f"{GTS[function.gen_max]} GT/s PCIe\n", "max_link_width": f"{function.width_max}\n",
            "aer_dev_correctable": _aer(function, CORRECTABLE, "", "TOTAL_ERR_COR"),
            "aer_dev_fatal": _aer(function, UNCORRECTABLE, "fatal:", "TOTAL_ERR_FATAL"),
            "aer_dev_nonfatal": _aer(function, UNCORRECTABLE, "nonfatal:", "TOTAL_ERR_NONFATAL"),
            "numa_node": f"{function.numa}\n", "local_cpulist": f"{function.numa * 56}-{function.numa * 56 + 55}\n",
            "power_state": f"{function.power_state}\n", "enable": "1\n", "reset_method": "flr bus\n" if not function.is_bridge else "\n",
            "uevent": (f"DRIVER={function.driver}\n" if function.driver else "") + f"PCI_CLASS={function.pci_class:X}\n"
            f"PCI_ID={function.vendor:04X}:{function.device:04X}\nPCI_SLOT_NAME={function.address}\n",
            "resource": "0x0000000000000000 0x0000000000000000 0x0000000000040200\n" if function.bar_unassigned else
            "0x00000000a0000000 0x00000000a0ffffff 0x0000000000040200\n",
        }  # fmt: skip
        nodes |= {f"{base}/{name}": text for name, text in put.items()}
        nodes[f"{base}/config"] = _config(function)
        nodes[f"{base}/remove"] = ""
        up = "../" * (base.count("/") - 1)  # from the folder to sys/
        nodes[f"{base}/subsystem"] = Link(f"{up}bus/pci")
        if function.driver:
            nodes[f"{base}/driver"] = Link(f"{up}bus/pci/drivers/{function.driver}")
            nodes[f"sys/bus/pci/drivers/{function.driver}/{function.address}"] = Link(
                f"../../../../{base.removeprefix('sys/')}"
            )
            nodes[f"sys/bus/pci/drivers/{function.driver}/new_id"] = ""
        nodes[f"sys/bus/pci/devices/{function.address}"] = Link(f"../../../{base.removeprefix('sys/')}")
    return nodes


def lspci(functions: list[Function]) -> str:
    """What `lspci -D -vvv` prints as root."""
    blocks = []
    for function in sorted(functions, key=lambda one: one.address):
        blocks.append("\n".join(_lspci_block(function)) + "\n")
    return "\n".join(blocks)


CLASS_NAMES = {0x0604: "PCI bridge", 0x0300: "VGA compatible controller", 0x0302: "3D controller", 0x0680: "Bridge",
               0x0207: "Infiniband controller"}  # fmt: skip


def _lspci_block(function: Function) -> list[str]:
    head = f"{function.address} {CLASS_NAMES[function.pci_class >> 8]}: {function.name}"
    if function.gone:
        return [f"{head} (rev ff) (prog-if ff)", "\t!!! Unknown header type 7f",
                *([f"\tKernel driver in use: {function.driver}"] if function.driver else [])]  # fmt: skip
    slow = " (downgraded)" if function.gen < function.gen_max else ""
    narrow = " (downgraded)" if function.width < function.width_max else ""
    speed, fastest = GTS[function.gen].removesuffix(".0"), GTS[function.gen_max].removesuffix(".0")
    lines = [f"{head} (rev a1)" + (" (prog-if 00 [Normal decode])" if function.is_bridge else "")]
    lines.append(
        f"\tControl: I/O+ Mem+ BusMaster{'+' if function.bus_master else '-'} SpecCycle- MemWINV- VGASnoop- ParErr- Stepping- SERR- FastB2B- DisINTx+"
    )
    lines.append(f"\tNUMA node: {function.numa}")
    if function.is_bridge:
        lines.append(
            f"\tBus: primary={function.address.split(':')[1]}, secondary={function.secondary:02x}, subordinate={function.subordinate:02x}, sec-latency=0"
        )
    elif function.bar_unassigned:
        lines.append("\tRegion 0: Memory at <unassigned> (64-bit, prefetchable) [disabled]")
    elif function.kind == "gpu":
        lines.append("\tRegion 0: Memory at a0000000 (32-bit, non-prefetchable) [size=16M]")
        lines.append("\tRegion 1: Memory at 200000000000 (64-bit, prefetchable) [size=128G]")
    kind = {"root_port": "Root Port (Slot+)", "upstream": "Upstream Port", "downstream": "Downstream Port (Slot+)"}.get(
        function.kind, "Endpoint"
    )
    corrected = "+" if any(":" not in name for name in function.aer) else "-"
    lines += [f"\tCapabilities: [60] Express (v2) {kind}, MSI 00",
              f"\t\tDevSta:\tCorrErr{corrected} NonFatalErr- FatalErr- UnsupReq- AuxPwr- TransPend-",
              f"\t\tLnkCap:\tPort #0, Speed {fastest}GT/s, Width x{function.width_max}, ASPM not supported",
              f"\t\tLnkSta:\tSpeed {speed}GT/s{slow}, Width x{function.width}{narrow}"]  # fmt: skip
    if function.kind in ("root_port", "downstream"):
        bits = (
            "SrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+"
            if function.acs_redirect
            else "SrcValid- TransBlk- ReqRedir- CmpltRedir- UpstreamFwd-"
        )
        lines += ["\tCapabilities: [100 v1] Access Control Services",
                  "\t\tACSCap:\tSrcValid+ TransBlk+ ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans+",
                  f"\t\tACSCtl:\t{bits} EgressCtrl- DirectTrans-"]  # fmt: skip
    if function.driver:
        lines.append(f"\tKernel driver in use: {function.driver}")
    if function.kind == "gpu":
        lines.append("\tKernel modules: nvidiafb, nouveau, nvidia_drm, nvidia")
    return lines
