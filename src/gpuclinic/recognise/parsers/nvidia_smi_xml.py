"""`nvidia-smi -q -x`: read by elements, not by a schema, so that cut or damaged documents still tell what they can."""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import TYPE_CHECKING

from gpuclinic.recognise.parsers.gpu_text import Draft, bare, pci_address, stamp, trouble, whole
from gpuclinic.recognise.parsers.nvidia_smi_fields import REASONS, add_reason, assign, finish

if TYPE_CHECKING:
    from gpuclinic.model import Document, Fact

_TOKEN = re.compile(
    r"<(?P<end>/?)(?P<name>[A-Za-z_][\w.-]{0,80})(?P<rest>[^<>]{0,300}?)(?P<empty>/?)>(?P<text>[^<]{0,2000})"
)
_ID = re.compile(r"""id\s*=\s*["']?([0-9A-Fa-f:.]{7,})""")
_MAX_DEPTH = 40

FIELDS = {
    "product_name": "name", "product_architecture": "architecture", "persistence_mode": "persistence",
    "accounting_mode": "accounting", "uuid": "uuid", "serial": "serial", "minor_number": "minor_number",
    "vbios_version": "vbios_version", "addressing_mode": "addressing_mode", "gpu_recovery_action": "recovery_action",
    "gsp_firmware_version": "gsp_firmware", "fan_speed": "fan_pct", "performance_state": "performance_state",
    "compute_mode": "compute_mode", "display_active": "display_active",
    "mig_mode/current_mig": "mig_mode", "mig_mode/pending_mig": "mig_pending",
    "gpu_reset_status/reset_required": "reset_required",
    "gpu_reset_status/drain_and_reset_recommended": "drain_recommended",
    "vgpu_software_licensed_product/licensed_product_name": "vgpu_product",
    "vgpu_software_licensed_product/license_status": "vgpu_license",
    "vgpu_license_info/license_status": "vgpu_license",
    "gpu_virtualization_mode/virtualization_mode": "virtualization_mode",
    "max_link_gen": "pcie_gen_max", "current_link_gen": "pcie_gen", "max_device_link_gen": "pcie_gen_device_max",
    "max_host_link_gen": "pcie_gen_host_max", "max_link_width": "pcie_width_max", "current_link_width": "pcie_width",
    "replay_counter": "pcie_replays", "replay_rollover_counter": "pcie_replay_rollovers",
    "pci/tx_util": "pcie_tx_kbs", "pci/rx_util": "pcie_rx_kbs",
    "fb_memory_usage/total": "memory_total_mib", "fb_memory_usage/reserved": "memory_reserved_mib",
    "fb_memory_usage/used": "memory_used_mib", "fb_memory_usage/free": "memory_free_mib",
    "bar1_memory_usage/total": "bar1_total_mib", "bar1_memory_usage/used": "bar1_used_mib",
    "utilization/gpu_util": "utilization_pct", "utilization/memory_util": "memory_utilization_pct",
    "ecc_mode/current_ecc": "ecc_mode", "ecc_mode/pending_ecc": "ecc_mode_pending",
    "channel_repair_pending": "channel_repair_pending", "tpc_repair_pending": "tpc_repair_pending",
    "unrepairable_memory": "unrepairable_memory", "sram_threshold_exceeded": "sram_threshold_exceeded",
    "multiple_single_bit_retirement/retired_count": "retired_pages_sbe",
    "double_bit_retirement/retired_count": "retired_pages_dbe",
    "pending_retirement": "retired_pages_pending", "pending_blacklist": "retired_pages_pending",
    "remapped_row_corr": "remapped_correctable", "remapped_row_unc": "remapped_uncorrectable",
    "remapped_row_pending": "remap_pending", "remapped_row_failure": "remap_failed",
    "row_remapper_histogram_max": "remap_banks_max", "row_remapper_histogram_low": "remap_banks_low",
    "row_remapper_histogram_none": "remap_banks_none",
    "gpu_temp": "temperature_c", "gpu_temp_tlimit": "t_limit_c", "gpu_temp_max_threshold": "shutdown_temp_c",
    "gpu_temp_slow_threshold": "slowdown_temp_c", "gpu_temp_max_gpu_threshold": "max_operating_temp_c",
    "gpu_temp_max_tlimit_threshold": "shutdown_t_limit_c", "gpu_temp_slow_tlimit_threshold": "slowdown_t_limit_c",
    "gpu_temp_max_gpu_tlimit_threshold": "max_operating_t_limit_c", "memory_temp": "memory_temperature_c",
    "gpu_temp_max_mem_threshold": "memory_max_operating_temp_c",
    "clocks/sm_clock": "sm_clock_mhz", "clocks/graphics_clock": "graphics_clock_mhz",
    "clocks/mem_clock": "memory_clock_mhz",
    "applications_clocks/graphics_clock": "app_clock_mhz", "applications_clocks/mem_clock": "app_memory_clock_mhz",
    "default_applications_clocks/graphics_clock": "default_app_clock_mhz",
    "max_clocks/sm_clock": "max_sm_clock_mhz", "max_clocks/graphics_clock": "max_graphics_clock_mhz",
    "max_clocks/mem_clock": "max_memory_clock_mhz", "max_customer_boost_clocks/graphics_clock": "max_boost_clock_mhz",
    "fabric/state": "fabric_state", "fabric/status": "fabric_status", "health/summary": "fabric_health",
    "health/bandwidth": "fabric_bandwidth", "health/route_recovery_in_progress": "fabric_route_recovery",
    "health/route_unhealthy": "fabric_route_unhealthy",
    "health/access_timeout_recovery": "fabric_access_timeout_recovery",
    "health/incorrect_configuration": "fabric_incorrect_configuration",
}  # fmt: skip
_POWER = {
    "instant_power_draw": "power_w", "power_draw": "power_w", "average_power_draw": "power_average_w",
    "power_limit": "power_limit_w", "enforced_power_limit": "power_limit_w", "current_power_limit": "power_limit_w",
    "requested_power_limit": "power_requested_limit_w", "default_power_limit": "default_power_limit_w",
    "min_power_limit": "min_power_limit_w", "max_power_limit": "max_power_limit_w",
}  # fmt: skip
_ECC = {
    "sram_correctable": "sram_corrected", "sram_uncorrectable": "sram_uncorrected",
    "sram_uncorrectable_parity": "sram_parity_uncorrected", "sram_uncorrectable_secded": "sram_secded_uncorrected",
    "dram_correctable": "dram_corrected", "dram_uncorrectable": "dram_uncorrected",
}  # fmt: skip
_COUNTERS = {
    "sw_power_cap": "throttle_sw_power_us", "sw_therm_slowdown": "throttle_sw_thermal_us",
    "hw_therm_slowdown": "throttle_hw_thermal_us", "hw_power_brake": "throttle_hw_power_brake_us",
}  # fmt: skip


def parse_xml(document: Document) -> list[Fact]:
    """Facts gpu, gpu_process, mig_device, gpu_count and driver of every nvidia_smi_log in the text."""
    reader = _Reader(document)
    for token in _TOKEN.finditer(document.text):
        reader.take(token)
    reader.close_gpu()
    reader.close_log()
    return reader.facts


class _Reader:
    """Walks through the elements."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.rows = document.lines()
        self.starts = [0]
        for row in self.rows:
            self.starts.append(self.starts[-1] + len(row) + 1)
        self.facts: list[Fact] = []
        self.path: list[str] = []
        self.gpu: Draft | None = None
        self.driver: Draft | None = None
        self.process: Draft | None = None
        self.mig: Draft | None = None
        self.stamp_text = ""
        self.number = 0

    def take(self, token: re.Match[str]) -> None:
        """Reads one tag and the text after it."""
        name = token["name"]
        if token["end"]:
            if name in self.path:
                while self.path.pop() != name:
                    pass
            self._ended(name)
            return
        index = bisect_right(self.starts, token.start()) - 1
        line = self.rows[index] if index < len(self.rows) else ""
        if name == "nvidia_smi_log":
            self.close_gpu()
            self.close_log()
            self.path = []
        elif name == "gpu" and _ID.search(token["rest"]):
            self._open_gpu(token["rest"], index, line)
        text = token["text"].strip()
        if text:
            self._leaf(name, text, index, line)
        if not token["empty"] and len(self.path) < _MAX_DEPTH:
            self.path.append(name)
        if name == "mig_device" and self.gpu is not None:
            self.mig = Draft(self.document, "mig_device", "", index, line)
        elif name == "process_info" and self.gpu is not None:
            self.process = Draft(self.document, "gpu_process", "", index, line)

    def _open_gpu(self, rest: str, index: int, line: str) -> None:
        self.close_gpu()
        found = _ID.search(rest)
        bus = (pci_address(found.group(1)) if found else None) or str(self.number)
        self.gpu = Draft(self.document, "gpu", bus, index, line)
        self.gpu.put("tool", "nvidia-smi -q -x")
        self.gpu.put("bus_id", bus, index, line)
        self.gpu.put("index", self.number)
        self.gpu.time = stamp(self.stamp_text)
        self.number += 1
        self.path = ["nvidia_smi_log"]

    def _ended(self, name: str) -> None:
        if name == "gpu" and "gpu" not in self.path:
            self.close_gpu()
        elif name == "process_info" and self.process is not None and self.gpu is not None:
            if self.process.fields.get("pid") is not None:
                self.process.key = f"{self.gpu.key}/{self.process.fields['pid']}"
                self.process.put("bus_id", self.gpu.fields.get("bus_id"))
                self.process.put("gpu_key", self.gpu.key)
                self.process.put("gpu_index", self.gpu.fields.get("index"))
                self.process.time = self.gpu.time
                self.facts.append(self.process.fact())
            self.process = None
        elif name == "mig_device" and self.mig is not None and self.gpu is not None:
            self.mig.key = f"{self.gpu.fields.get('index')}/{self.mig.fields.get('device')}"
            self.mig.put("gpu_index", self.gpu.fields.get("index"))
            self.mig.put("bus_id", self.gpu.fields.get("bus_id"))
            self.facts.append(self.mig.fact())
            self.mig = None

    def close_gpu(self) -> None:
        """Ends the card at hand."""
        if self.gpu is not None:
            finish(self.gpu)
            self.facts.append(self.gpu.fact())
        self.gpu = self.process = self.mig = None

    def close_log(self) -> None:
        """Ends one output of the tool."""
        if self.driver is not None:
            self.driver.put("tool", "nvidia-smi -q -x")
            self.driver.time = stamp(self.stamp_text)
            self.facts.append(self.driver.fact())
        self.driver = None
        self.number = 0
        self.stamp_text = ""

    def _leaf(self, name: str, text: str, index: int, line: str) -> None:
        if self.gpu is None:
            self._preamble(name, text, index, line)
        elif self.process is not None and "process_info" in self.path:
            self._process(name, text, index, line)
        elif self.mig is not None and "mig_device" in self.path:
            self._mig(name, text, index, line)
        else:
            self._gpu(self.gpu, name, text, index, line)

    def _preamble(self, name: str, text: str, index: int, line: str) -> None:
        if name == "timestamp":
            self.stamp_text = text
        elif name in ("driver_version", "kmd_version", "cuda_version", "cuda_umd_version") and text[0].isdecimal():
            self.driver = self.driver or Draft(self.document, "driver", "nvidia-smi -q -x", index, line)
            self.driver.put("cuda_version" if "cuda" in name else "version", text.split()[0], index, line)
        elif name == "attached_gpus" and whole(text) is not None:
            draft = Draft(self.document, "gpu_count", "nvidia-smi -q -x", index, line)
            draft.put("value", whole(text), index, line)
            draft.put("tool", "nvidia-smi -q -x")
            draft.time = stamp(self.stamp_text)
            self.facts.append(draft.fact())

    def _process(self, name: str, text: str, index: int, line: str) -> None:
        if self.process is None:
            return
        if name == "pid":
            self.process.put("pid", whole(text), index, line)
        elif name == "type":
            self.process.put("type", bare(text))
        elif name == "process_name":
            self.process.put("name", text[:300], index, line)
            self.process.put("name_missing", text in ("", "[Not Found]", "[Unknown]"))
        elif name == "used_memory":
            self.process.put("memory_mib", whole(text), index, line)

    def _mig(self, name: str, text: str, index: int, line: str) -> None:
        near = self.path[-1] if self.path else ""
        field = {
            "index": "device",
            "gpu_instance_id": "gi",
            "compute_instance_id": "ci",
            "multiprocessor_count": "sm_count",
            "sram_uncorrectable": "ecc_uncorrected_volatile",
        }.get(name)
        if near == "fb_memory_usage" and name in ("total", "used"):
            field = f"memory_{name}_mib"
        if field and self.mig is not None and whole(text) is not None:
            self.mig.put(field, whole(text), index, line)

    def _gpu(self, gpu: Draft, name: str, text: str, index: int, line: str) -> None:
        near = self.path[-1] if self.path else ""
        reason = re.match(r"clocks_(?:event|throttle)_reasons?_(\w+)", name)
        if reason and name.startswith(("clocks_event_reasons_counters_", "clocks_throttle_reasons_counters_")):
            field = _COUNTERS.get(name.split("_counters_")[1])
            if field:
                assign(gpu, field, text, index, line)
        elif reason:
            if text.lower() == "active":
                add_reason(gpu, REASONS.get(reason.group(1), reason.group(1)), index, line)
        else:
            field = self._field(near, name)
            if field == "power_w" and name == "power_draw" and isinstance(gpu.fields.get("power_w"), float):
                return
            if field:
                assign(gpu, field, text, index, line)
            elif trouble(text):
                assign(gpu, "other", text, index, line)

    def _field(self, near: str, name: str) -> str | None:
        if name in _POWER:
            if "gpu_memory_power_readings" in self.path:
                return "memory_power_w" if name == "average_power_draw" else None
            if "module_power_readings" in self.path:
                return {"power_w": "module_power_w", "power_limit_w": "module_power_limit_w"}.get(_POWER[name])
            return _POWER[name]
        when = next((part for part in self.path if part in ("volatile", "aggregate")), None)
        if when:
            if name in _ECC:
                return f"ecc_{_ECC[name]}_{when}"
            how = {"single_bit": "corrected", "double_bit": "uncorrected"}.get(near)
            if how and name == "total":
                return f"ecc_{how}_{when}"
            if how and name == "device_memory":
                return f"ecc_dram_{how}_{when}"
        return FIELDS.get(f"{near}/{name}") or FIELDS.get(name)
