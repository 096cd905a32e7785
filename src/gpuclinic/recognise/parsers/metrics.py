"""Prometheus text of dcgm-exporter and nvidia_gpu_exporter."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpuclinic.recognise.parsers.gpu_text import Draft, pci_address
from gpuclinic.recognise.parsers.nvidia_smi_fields import finish, reasons_of_mask

if TYPE_CHECKING:
    from gpuclinic.model import Document, Fact

_SAMPLE = re.compile(
    r"^(?P<name>(?:DCGM_FI|nvidia_smi)_\w+)\{(?P<labels>[^}]{0,2000})\}\s+(?P<value>[-+.\deE]+|NaN|\+Inf)(?:\s+(?P"
    r"<time>\d{10,13}))?\s*$"
)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_DCGM = {
    "GPU_TEMP": "temperature_c", "MEMORY_TEMP": "memory_temperature_c", "POWER_USAGE": "power_w",
    "GPU_UTIL": "utilization_pct",
    "MEM_COPY_UTIL": "memory_utilization_pct", "SM_CLOCK": "sm_clock_mhz", "MEM_CLOCK": "memory_clock_mhz",
    "FB_USED": "memory_used_mib", "FB_FREE": "memory_free_mib", "FB_TOTAL": "memory_total_mib",
    "FB_RESERVED": "memory_reserved_mib", "XID_ERRORS": "last_xid", "ECC_SBE_VOL_TOTAL": "ecc_corrected_volatile",
    "ECC_DBE_VOL_TOTAL": "ecc_uncorrected_volatile", "ECC_SBE_AGG_TOTAL": "ecc_corrected_aggregate",
    "ECC_DBE_AGG_TOTAL": "ecc_uncorrected_aggregate", "RETIRED_SBE": "retired_pages_sbe",
    "RETIRED_DBE": "retired_pages_dbe",
    "RETIRED_PENDING": "retired_pages_pending", "CORRECTABLE_REMAPPED_ROWS": "remapped_correctable",
    "UNCORRECTABLE_REMAPPED_ROWS": "remapped_uncorrectable", "ROW_REMAP_PENDING": "remap_pending",
    "ROW_REMAP_FAILURE": "remap_failed", "PCIE_REPLAY_COUNTER": "pcie_replays", "PCIE_LINK_GEN": "pcie_gen",
    "PCIE_LINK_WIDTH": "pcie_width", "PCIE_MAX_LINK_GEN": "pcie_gen_max", "PCIE_MAX_LINK_WIDTH": "pcie_width_max",
    "SLOWDOWN_TEMP": "slowdown_temp_c", "SHUTDOWN_TEMP": "shutdown_temp_c", "POWER_MGMT_LIMIT": "power_limit_w",
    "ENFORCED_POWER_LIMIT": "power_limit_w", "POWER_MGMT_LIMIT_DEF": "default_power_limit_w",
    "NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": "nvlink_crc_flit_errors",
    "NVLINK_REPLAY_ERROR_COUNT_TOTAL": "nvlink_replay_errors",
    "NVLINK_RECOVERY_ERROR_COUNT_TOTAL": "nvlink_recovery_errors", "VGPU_LICENSE_STATUS": "vgpu_license_code",
    "POWER_VIOLATION": "power_violation_us", "THERMAL_VIOLATION": "thermal_violation_us",
    "FABRIC_MANAGER_STATUS": "fabric_code",
}  # fmt: skip
_SMI = {
    "temperature_gpu": "temperature_c", "power_draw_watts": "power_w", "utilization_gpu_ratio": "utilization_ratio",
    "ecc_errors_uncorrected_volatile_total": "ecc_uncorrected_volatile",
    "ecc_errors_corrected_volatile_total": "ecc_corrected_volatile",
    "remapped_rows_pending": "remap_pending", "remapped_rows_failure": "remap_failed",
    "remapped_rows_correctable": "remapped_correctable",
    "remapped_rows_uncorrectable": "remapped_uncorrectable", "pcie_link_gen_current": "pcie_gen",
    "pcie_link_gen_max": "pcie_gen_max",
    "pcie_link_width_current": "pcie_width", "pcie_link_width_max": "pcie_width_max",
    "enforced_power_limit_watts": "power_limit_w", "power_default_limit_watts": "default_power_limit_w",
}  # fmt: skip
_FLAGS = ("remap_pending", "remap_failed", "retired_pages_pending")
_FABRIC = {0: "Not Supported", 1: "Not Started", 2: "In Progress", 3: "Completed", 4: "Failure"}


def parse_metrics(document: Document) -> list[Fact]:
    """Facts gpu, one for each GPU the samples name."""
    gpus: dict[str, Draft] = {}
    for index, line in enumerate(document.lines()):
        if not line.startswith(("DCGM_FI", "nvidia_smi")) or len(line) > 4000:
            continue
        found = _SAMPLE.match(line)
        if not found or found["value"] in ("NaN", "+Inf"):
            continue
        labels = dict(_LABEL.findall(found["labels"]))
        name = found["name"]
        field = (
            _DCGM.get(name.removeprefix("DCGM_FI_DEV_"))
            if name.startswith("DCGM")
            else _SMI.get(name.removeprefix("nvidia_smi_"))
        )
        throttle = name in ("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", "DCGM_FI_DEV_CLOCKS_EVENT_REASONS")
        if field is None and not throttle:
            continue
        draft = _gpu(document, gpus, labels, index, line)
        try:
            value = float(found["value"])
        except ValueError:
            continue
        if abs(value) > 1e15:
            continue
        if throttle:
            draft.put("throttle_active", ", ".join(reasons_of_mask(int(value))) or None, index, line)
        elif field in _FLAGS:
            draft.put(str(field), value > 0, index, line)
        elif field == "fabric_code":
            draft.put("fabric_state", _FABRIC.get(int(value)), index, line)
        elif field == "utilization_ratio":
            draft.put("utilization_pct", round(value * 100), index, line)
        elif field:
            draft.put(field, value if field.endswith("_w") or not value.is_integer() else int(value), index, line)
    for draft in gpus.values():
        finish(draft)
    return [draft.fact() for draft in gpus.values()]


def _gpu(document: Document, gpus: dict[str, Draft], labels: dict[str, str], index: int, line: str) -> Draft:
    bus = pci_address(labels.get("pci_bus_id", ""))
    host = labels.get("Hostname", "")
    key = bus or labels.get("gpu") or labels.get("UUID") or labels.get("uuid") or "?"
    unique = f"{host}/{key}"
    draft = gpus.get(unique)
    if draft is None:
        draft = gpus[unique] = Draft(document, "gpu", key, index, line)
        draft.put("tool", "dcgm-exporter" if line.startswith("DCGM") else "nvidia_gpu_exporter")
        number = labels.get("gpu", labels.get("minor_number", ""))
        if number.isdecimal():
            draft.put("index", int(number[:6]))
        for field, value in (
            ("bus_id", bus),
            ("uuid", labels.get("UUID")),
            ("name", labels.get("modelName")),
            ("host", host or None),
        ):
            if value:
                draft.put(field, value, index, line)
    return draft
