"""NVML's numbers in the words and units of the `gpu` facts (docs/facts.md), which are nvidia-smi's. Sources: nvml.h."""

from __future__ import annotations

from typing import Any

ERRORS = {
    1: "Uninitialized", 2: "Invalid Argument", 3: "Not Supported", 4: "Insufficient Permissions", 6: "Not Found",
    7: "Insufficient Size", 8: "Insufficient External Power", 9: "Driver Not Loaded", 10: "Timeout",
    11: "Interrupt Request Issue", 12: "NVML Shared Library Not Found", 13: "Function Not Found",
    14: "Corrupted infoROM", 15: "GPU is lost", 16: "GPU requires reset",
    17: "GPU access blocked by the operating system", 18: "Driver/library version mismatch", 19: "In use by another client",
    20: "Insufficient Memory", 21: "No data", 22: "vGPU ECC not supported", 23: "Insufficient Resources",
    24: "Frequency not supported", 25: "Argument version mismatch", 26: "Deprecated", 27: "System is not ready",
    28: "No GPUs were found", 29: "Resource not in correct state", 999: "Unknown Error",
}  # fmt: skip
"""NVML's return codes in nvidia-smi's words, so that no call into a broken library is needed for them."""

_RECOVERY = (
    "None", "Reset", "Reboot", "Drain P2P", "Drain and Reset", "Recover IMEX Domain", "Bus Reset", "System Reboot",
)  # fmt: skip
_ARCHITECTURES = {
    2: "Kepler", 3: "Maxwell", 4: "Pascal", 5: "Volta", 6: "Turing", 7: "Ampere", 8: "Ada Lovelace", 9: "Hopper",
    10: "Blackwell", 13: "Rubin",
}  # fmt: skip
_BRANDS = (
    "Unknown", "Quadro", "Tesla", "NVS", "GRID", "GeForce", "Titan", "NVIDIA Virtual Applications", "NVIDIA Virtual PC",
    "NVIDIA Virtual Compute Server", "NVIDIA RTX Virtual Workstation", "NVIDIA Cloud Gaming", "Quadro RTX", "NVIDIA RTX",
    "NVIDIA", "GeForce RTX", "Titan RTX",
)  # fmt: skip
_COMPUTE_MODES = ("Default", "Exclusive_Thread", "Prohibited", "Exclusive_Process")
_VIRTUALIZATION = ("None", "Pass-Through", "VGPU", "Host VGPU", "Host VSGA")
_ADDRESSING = ("None", "HMM", "ATS")
_FABRIC_STATES = (None, "Not Started", "In Progress", "Completed")
_FABRIC_SUMMARIES = (None, "Healthy", "Unhealthy", "Limited Capacity")
_FABRIC_CONFIGURATIONS = (
    None, "None", "Incorrect System GUID", "Incorrect Chassis Serial Number", "No Partition", "Insufficient NVLinks",
    "Incompatible GPU Firmware", "Invalid Location", "GPU State Invalid",
)  # fmt: skip
_LINK_STATES = ("inactive", "active", "sleep", "traffic disabled")
_LINK_VERSIONS = {1: "1.0", 2: "2.0", 3: "2.2", 4: "3.0", 5: "3.1", 6: "4.0", 7: "5.0", 8: "6.0"}
_NONE = 0xFFFFFFFF
_BLANK = (1 << 64) - 1


def _word(table: Any, number: Any) -> str | None:
    """The word for a number; one that nobody has listed is told as it is, never dropped."""
    number = int(number)
    try:
        return table[number] if number >= 0 else str(number)
    except (IndexError, KeyError):
        return f"unknown ({number})"


def error(code: int) -> str:
    """Words for a return code of NVML."""
    return ERRORS.get(code, f"error {code}")


def text(value: Any) -> str:
    """A text that some bindings give as bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def mib(count: Any) -> int | None:
    """MiB from bytes, rounded down as nvidia-smi does; None for "not available"."""
    return None if count is None or int(count) == _BLANK else int(count) >> 20


def watts(milliwatts: Any) -> float:
    """Watts from milliwatts."""
    return round(int(milliwatts) / 1000, 3)


def joules(millijoules: Any) -> float:
    """Joules since the driver was loaded, from millijoules."""
    return round(int(millijoules) / 1000, 3)


def micro(nanoseconds: Any) -> int:
    """Microseconds from nanoseconds."""
    return int(nanoseconds) // 1000


def enabled(value: Any) -> str:
    """Enabled or Disabled."""
    return "Enabled" if int(value) else "Disabled"


def address(info: Any) -> str:
    """A PCI address as "0000:9a:00.0"; the domain has more digits only where needed."""
    return f"{int(info.domain):04x}:{int(info.bus) & 0xFF:02x}:{int(info.device) & 0x1F:02x}.0"


def remote(info: Any) -> str | None:
    """The address at the other end of a link; None for a switch that is no PCI device of this machine."""
    return None if int(info.domain) == _NONE else address(info)


def _pair(number: int) -> str:
    """A vendor and device number as lspci writes them."""
    return f"{number & 0xFFFF:04x}:{number >> 16 & 0xFFFF:04x}"


def pci(info: Any) -> dict[str, Any]:
    """Address, device and subsystem of nvmlPciInfo_t."""
    return {
        "bus_id": address(info),
        "pci_id": _pair(int(info.pciDeviceId)),
        "pci_subsystem_id": _pair(int(info.pciSubSystemId)),
    }


def memory(info: Any) -> dict[str, Any]:
    """Memory of version 1 or 2 of nvmlMemory_t; only 2 tells the reserved part."""
    fields = {f"memory_{name}_mib": mib(getattr(info, name)) for name in ("total", "used", "free")}
    if hasattr(info, "reserved"):
        fields["memory_reserved_mib"] = mib(info.reserved)
    return fields


def bar1(info: Any) -> dict[str, Any]:
    """The window through which the host maps the card's memory."""
    return {"bar1_total_mib": mib(info.bar1Total), "bar1_used_mib": mib(info.bar1Used)}


def performance_state(value: Any) -> str | None:
    """P0 to P15; 32 is "unknown"."""
    return f"P{int(value)}" if int(value) < 32 else None


def utilization(rates: Any) -> dict[str, Any]:
    """Shares of the last sampling period in which kernels ran and memory was accessed."""
    return {"utilization_pct": int(rates.gpu), "memory_utilization_pct": int(rates.memory)}


def share(pair: Any) -> int:
    """Percent of a video engine's last sampling period; the period itself, in microseconds, comes second."""
    return int(pair[0])


def ecc_mode(pair: Any) -> dict[str, Any]:
    """ECC now and after the next reset."""
    return {"ecc_mode": enabled(pair[0]), "ecc_mode_pending": enabled(pair[1])}


def mig_mode(pair: Any) -> dict[str, Any]:
    """MIG now and after the next reset."""
    return {"mig_mode": enabled(pair[0]), "mig_pending": enabled(pair[1])}


def remapped(counts: Any) -> dict[str, Any]:
    """Remapped rows: for correctable errors, for uncorrectable, one pending, one failed."""
    return {
        "remapped_correctable": int(counts[0]),
        "remapped_uncorrectable": int(counts[1]),
        "remap_pending": bool(counts[2]),
        "remap_failed": bool(counts[3]),
    }


def histogram(values: Any) -> dict[str, Any]:
    """How many banks have how many spare rows left."""
    return {f"remap_banks_{name}": int(getattr(values, name)) for name in ("max", "high", "partial", "low", "none")}


def repairs(pair: Any) -> dict[str, Any]:
    """Repairs of memory channels and compute units that wait for a reset."""
    return {"channel_repair_pending": bool(pair[0]), "tpc_repair_pending": bool(pair[1])}


def power_range(pair: Any) -> dict[str, Any]:
    """The limits that may be set."""
    return {"min_power_limit_w": watts(pair[0]), "max_power_limit_w": watts(pair[1])}


def violation(times: Any) -> int:
    """How long a policy has held the clocks down, microseconds."""
    return micro(times.violationTime)


def recovery_action(value: Any) -> str | None:
    """What the driver itself asks for."""
    return _word(_RECOVERY, value)


def compute_mode(value: Any) -> str | None:
    """Who may use the card."""
    return _word(_COMPUTE_MODES, value)


def virtualization(value: Any) -> str | None:
    """How the card is given to a virtual machine."""
    return _word(_VIRTUALIZATION, value)


def addressing(value: Any) -> str | None:
    """How the card sees the host's memory."""
    return _word(_ADDRESSING, value)


def architecture(value: Any) -> str | None:
    """The family of chips."""
    return None if int(value) == _NONE else _word(_ARCHITECTURES, value)


def brand(value: Any) -> str | None:
    """The line of products."""
    return _word(_BRANDS, value)


def capability(pair: Any) -> str:
    """CUDA compute capability as "9.0"."""
    return f"{int(pair[0])}.{int(pair[1])}"


def inforom(_answer: Any) -> bool:
    """nvmlDeviceValidateInforom answers nothing where all is well; its error 14 is told as False."""
    return True


def gsp_mode(pair: Any) -> dict[str, Any]:
    """Whether the GPU System Processor runs the driver's lower half, and whether it would by default."""
    return {"gsp_enabled": bool(pair[0]), "gsp_default": bool(pair[1])}


def licence(features: Any) -> dict[str, Any]:
    """The licence of a virtual GPU: of the feature that is enabled (nvml.h: featureState is not zero where it is licensed)."""
    count = min(int(features.licensableFeaturesCount), len(features.gridLicensableFeatures))
    rows = [features.gridLicensableFeatures[i] for i in range(count)]
    row = next((r for r in rows if r.featureEnabled), None)
    if not features.isGridLicenseSupported or row is None:
        return {}
    return {"vgpu_product": text(row.productName), "vgpu_license": "Licensed" if row.featureState else "Unlicensed"}


def link_state(value: Any) -> str | None:
    """active, inactive, sleep (saving power) or traffic disabled."""
    return _word(_LINK_STATES, value)


def link_speed(megabytes: Any) -> float:
    """GB/s from MB/s."""
    return round(int(megabytes) / 1000, 3)


def link_version(value: Any) -> str | None:
    """NVLink's version by its number in nvml.h."""
    return _LINK_VERSIONS.get(int(value))


def bit_error_rate(value: Any) -> float:
    """Mantissa (bits 8-11) times ten to the minus exponent (bits 0-7)."""
    return float((int(value) >> 8) & 0xF) * 10.0 ** -(int(value) & 0xFF)


def fabric(info: Any) -> dict[str, Any]:
    """nvmlGpuFabricInfo of version 1, 2 or 3; nothing where the card has no fabric."""
    state = _word(_FABRIC_STATES, info.state)
    if state is None:
        return {}
    status = int(info.status)
    raw = bytes(int(byte) & 0xFF for byte in info.clusterUuid).hex()
    told: dict[str, Any] = {
        "fabric_state": state,
        "fabric_status": "Success" if status == 0 else error(status),
        "fabric_clique": int(info.cliqueId),
        "fabric_cluster": f"{raw[:8]}-{raw[8:12]}-{raw[12:16]}-{raw[16:20]}-{raw[20:]}",
    }
    if hasattr(info, "healthMask"):
        told |= _fabric_health(int(info.healthMask))
    if hasattr(info, "healthSummary"):
        told["fabric_health"] = _word(_FABRIC_SUMMARIES, info.healthSummary)
    return {key: value for key, value in told.items() if value is not None}


def _fabric_health(mask: int) -> dict[str, Any]:
    """The mask's parts: two bits each, 0 not supported, 1 true, 2 false; four bits for a wrong configuration."""

    def said(shift: int) -> bool | None:
        return {1: True, 2: False}.get(mask >> shift & 0x3)

    return {
        "fabric_health_mask": mask,
        "fabric_bandwidth": {True: "Degraded", False: "Full", None: None}[said(0)],
        "fabric_route_recovery": said(2),
        "fabric_route_unhealthy": said(4),
        "fabric_access_timeout_recovery": said(6),
        "fabric_incorrect_configuration": _word(_FABRIC_CONFIGURATIONS, mask >> 8 & 0xF),
        "fabric_partition_assigned": said(12),
        "fabric_manager_connected": said(14),
    }


def sram(status: Any) -> dict[str, Any]:
    """nvmlEccSramErrorStatus_t: uncorrectable errors of SRAM by how they were caught and where, and the threshold."""
    told: dict[str, Any] = {}
    for when in ("volatile", "aggregate"):
        told[f"ecc_sram_corrected_{when}"] = int(getattr(status, f"{when}Cor"))
        told[f"ecc_sram_parity_uncorrected_{when}"] = int(getattr(status, f"{when}UncParity"))
        told[f"ecc_sram_secded_uncorrected_{when}"] = int(getattr(status, f"{when}UncSecDed"))
    for place in ("L2", "Sm", "Pcie", "Mcu", "Other"):
        told[f"ecc_sram_{place.lower()}_uncorrected_aggregate"] = int(getattr(status, f"aggregateUncBucket{place}"))
    told["sram_threshold_exceeded"] = bool(status.bThresholdExceeded)
    return told


def instance(number: Any) -> int | None:
    """The number of a MIG instance; None where there is none."""
    return None if int(number) == _NONE else int(number)
