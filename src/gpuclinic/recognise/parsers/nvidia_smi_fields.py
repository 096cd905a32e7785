"""What nvidia-smi's values mean as fields of a `gpu` fact, whichever of its formats printed them."""

from __future__ import annotations

from gpuclinic.recognise.parsers.gpu_tables import compute_capability
from gpuclinic.recognise.parsers.gpu_text import Draft, Scalar, bare, is_missing, number, trouble, whole, yes
from gpuclinic.recognise.possible import drop_impossible

TEXTS = frozenset(
    [
        "name",
        "uuid",
        "serial",
        "driver_version",
        "cuda_version",
        "kmd_version",
        "vbios_version",
        "performance_state",
        "mig_mode",
        "mig_pending",
        "compute_mode",
        "ecc_mode",
        "ecc_mode_pending",
        "fabric_state",
        "fabric_status",
        "fabric_health",
        "fabric_bandwidth",
        "fabric_incorrect_configuration",
        "vgpu_license",
        "vgpu_product",
        "recovery_action",
        "virtualization_mode",
        "addressing_mode",
        "architecture",
        "gsp_firmware",
        "throttle_mask",
        "compute_capability",
        "platform_peer_type",
        "retired_pages_pending_text",
        "hostname",
    ]
)
FLAGS = frozenset(
    [
        "persistence",
        "accounting",
        "reset_required",
        "drain_recommended",
        "remap_pending",
        "remap_failed",
        "retired_pages_pending",
        "sram_threshold_exceeded",
        "channel_repair_pending",
        "tpc_repair_pending",
        "unrepairable_memory",
        "display_active",
        "fabric_route_unhealthy",
        "fabric_route_recovery",
        "fabric_access_timeout_recovery",
    ]
)
FLOATS = frozenset(
    [
        "power_w",
        "power_average_w",
        "power_limit_w",
        "power_requested_limit_w",
        "default_power_limit_w",
        "min_power_limit_w",
        "max_power_limit_w",
        "memory_power_w",
        "module_power_w",
        "module_power_limit_w",
    ]
)

REASONS = {
    "idle": "Idle",
    "gpu_idle": "Idle",
    "applications_clocks_setting": "Applications Clocks Setting",
    "user_defined_clocks": "Applications Clocks Setting",
    "sw_power_cap": "SW Power Cap",
    "hw_slowdown": "HW Slowdown",
    "hw_thermal_slowdown": "HW Thermal Slowdown",
    "hw_power_brake_slowdown": "HW Power Brake Slowdown",
    "hw_power_brake": "HW Power Brake Slowdown",
    "sync_boost": "Sync Boost",
    "sw_thermal_slowdown": "SW Thermal Slowdown",
    "display_clock_setting": "Display Clock Setting",
    "display_clocks_setting": "Display Clock Setting",
    "unknown": "Unknown",
}
"""The reasons nvidia-smi gives for lowered clocks, as its XML and its text name them."""

_BITS = (
    (0x1, "Idle"),
    (0x2, "Applications Clocks Setting"),
    (0x4, "SW Power Cap"),
    (0x8, "HW Slowdown"),
    (0x10, "Sync Boost"),
    (0x20, "SW Thermal Slowdown"),
    (0x40, "HW Thermal Slowdown"),
    (0x80, "HW Power Brake Slowdown"),
    (0x100, "Display Clock Setting"),
)


def reasons_of_mask(mask: int) -> list[str]:
    """The reasons of NVML's bit mask, in nvidia-smi's words."""
    return [name for bit, name in _BITS if mask & bit]


def add_reason(draft: Draft, name: str, index: int, line: str) -> None:
    """Notes one active reason for lowered clocks."""
    known = str(draft.fields.get("throttle_active") or "")
    if name in known.split(", "):
        return
    draft.put("throttle_active", f"{known}, {name}" if known else name, index, line)
    draft.lines[f"throttle:{name}"] = draft.document.at(index, line)


def _value(field: str, text: str) -> Scalar:
    if field in TEXTS:
        return bare(text)[:200]
    if field in FLAGS:
        return yes(text)
    if field in FLOATS:
        value = number(text)
        return None if value is None else float(value)
    return whole(text)


def assign(draft: Draft, field: str, text: str, index: int, line: str) -> None:
    """Sets a field from the words the tool printed; an error in place of a value becomes the fact's `error`."""
    wrong = trouble(text)
    if wrong:
        cells = draft.fields.get("error_cells")
        draft.put("error_cells", (cells if isinstance(cells, int) else 0) + 1)
        if draft.fields.get("error") not in ("GPU is lost", "GPU requires reset"):
            draft.put("error", wrong, index, line)
        if field == "fan_pct":
            draft.put("fan_error", True, index, line)
        return
    if is_missing(text):
        if field == "recovery_action" and bare(text).lower() == "none":
            draft.put(field, "None", index, line)
        elif field == "fan_pct":
            draft.put(field, None, index, line)
        return
    value = _value(field, text)
    if value is not None:
        draft.put(field, value, index, line)


def finish(draft: Draft) -> None:
    """Adds what follows from the fields: totals of ECC errors, compute capability by name, margins. What no machine can have is taken out."""
    fields = draft.fields
    drop_impossible(fields, draft.lines)
    if fields.get("power_w") is None and fields.get("power_average_w") is not None:
        fields["power_w"] = fields["power_average_w"]
        if "power_average_w" in draft.lines:
            draft.lines["power_w"] = draft.lines["power_average_w"]
    for when in ("volatile", "aggregate"):
        for how in ("corrected", "uncorrected"):
            parts = [
                fields.get(f"ecc_{where}_{how}_{when}") for where in ("sram", "sram_parity", "sram_secded", "dram")
            ]
            known = [part for part in parts if isinstance(part, int)]
            if known and f"ecc_{how}_{when}" not in fields:
                fields[f"ecc_{how}_{when}"] = sum(known)
                worst = max(
                    ("sram", "sram_parity", "sram_secded", "dram"), key=lambda w: _count(draft, f"ecc_{w}_{how}_{when}")
                )
                place = draft.lines.get(f"ecc_{worst}_{how}_{when}")
                if place:
                    draft.lines[f"ecc_{how}_{when}"] = place
    name = fields.get("name")
    if "compute_capability" not in fields and isinstance(name, str):
        found = compute_capability(name)
        if found:
            fields["compute_capability"] = found
    capability = fields.get("compute_capability")
    if isinstance(capability, str) and "." in capability:
        fields["compute_family"] = f"sm_{capability.split('.')[0]}x"


def _count(draft: Draft, field: str) -> int:
    value = draft.fields.get(field)
    return value if isinstance(value, int) else -1
