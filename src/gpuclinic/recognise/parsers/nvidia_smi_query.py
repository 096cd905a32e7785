"""`nvidia-smi -q` as text, whole or with -d, one card or many, indented, quoted or with its blanks lost."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpuclinic.recognise.parsers.gpu_text import Draft, bare, pci_address, snake, stamp, trouble, whole
from gpuclinic.recognise.parsers.nvidia_smi_fields import REASONS, add_reason, assign, finish

if TYPE_CHECKING:
    from gpuclinic.model import Document, Fact, Stamp

_GPU = re.compile(r"^(?P<lead>[\s>|]*)GPU\s+(?P<bus>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])\s*$")
_PAIR = re.compile(r"^(?P<lead>[\s>|]*)(?P<key>[A-Za-z][\w .,()/+-]{0,60}?)\s*:\s(?P<value>.*)$")
_SECTION = re.compile(r"^(?P<lead>[\s>|]*)(?P<key>[A-Za-z][\w .()/+-]{1,60}?)\s*$")
_PREAMBLE = {
    "driver version": "version",
    "kmd version": "version",
    "cuda version": "cuda_version",
    "cuda umd version": "cuda_version",
}
_LOG_HEAD = re.compile(r"NVSMI LOG|^\s*Attached GPUs\s*:")

FIELDS = {
    "product name": "name", "product architecture": "architecture", "persistence mode": "persistence",
    "accounting mode": "accounting", "gpu uuid": "uuid", "serial number": "serial", "minor number": "minor_number",
    "vbios version": "vbios_version", "addressing mode": "addressing_mode", "gpu recovery action": "recovery_action",
    "gsp firmware version": "gsp_firmware", "fan speed": "fan_pct", "performance state": "performance_state",
    "compute mode": "compute_mode", "display active": "display_active",
    "mig mode/current": "mig_mode", "mig mode/pending": "mig_pending",
    "gpu reset status/reset required": "reset_required",
    "gpu reset status/drain and reset recommended": "drain_recommended",
    "vgpu software licensed product/product name": "vgpu_product",
    "vgpu software licensed product/license status": "vgpu_license",
    "gpu virtualization mode/virtualization mode": "virtualization_mode",
    "pcie generation/max": "pcie_gen_max", "pcie generation/current": "pcie_gen",
    "pcie generation/device max": "pcie_gen_device_max", "pcie generation/host max": "pcie_gen_host_max",
    "link width/max": "pcie_width_max", "link width/current": "pcie_width",
    "replays since reset": "pcie_replays", "replay number rollovers": "pcie_replay_rollovers",
    "tx throughput": "pcie_tx_kbs", "rx throughput": "pcie_rx_kbs",
    "fb memory usage/total": "memory_total_mib", "fb memory usage/reserved": "memory_reserved_mib",
    "fb memory usage/used": "memory_used_mib", "fb memory usage/free": "memory_free_mib",
    "bar1 memory usage/total": "bar1_total_mib", "bar1 memory usage/used": "bar1_used_mib",
    "utilization/gpu": "utilization_pct", "utilization/memory": "memory_utilization_pct",
    "ecc mode/current": "ecc_mode", "ecc mode/pending": "ecc_mode_pending",
    "retired pages/single bit ecc": "retired_pages_sbe", "retired pages/double bit ecc": "retired_pages_dbe",
    "retired pages/pending page blacklist": "retired_pages_pending", "retired pages/pending": "retired_pages_pending",
    "ecc errors/channel repair pending": "channel_repair_pending",
    "ecc errors/tpc repair pending": "tpc_repair_pending",
    "channel repair pending": "channel_repair_pending", "tpc repair pending": "tpc_repair_pending",
    "unrepairable memory": "unrepairable_memory",
    "remapped rows/correctable error": "remapped_correctable",
    "remapped rows/uncorrectable error": "remapped_uncorrectable",
    "remapped rows/pending": "remap_pending", "remapped rows/remapping failure occurred": "remap_failed",
    "bank remap availability histogram/max": "remap_banks_max",
    "bank remap availability histogram/low": "remap_banks_low",
    "bank remap availability histogram/none": "remap_banks_none",
    "gpu current temp": "temperature_c", "gpu t.limit temp": "t_limit_c", "gpu current t.limit temp": "t_limit_c",
    "gpu shutdown temp": "shutdown_temp_c", "gpu slowdown temp": "slowdown_temp_c",
    "gpu max operating temp": "max_operating_temp_c", "gpu shutdown t.limit temp": "shutdown_t_limit_c",
    "gpu slowdown t.limit temp": "slowdown_t_limit_c", "gpu max operating t.limit temp": "max_operating_t_limit_c",
    "memory current temp": "memory_temperature_c", "memory max operating temp": "memory_max_operating_temp_c",
    "clocks/sm": "sm_clock_mhz", "clocks/graphics": "graphics_clock_mhz", "clocks/memory": "memory_clock_mhz",
    "applications clocks/graphics": "app_clock_mhz", "applications clocks/memory": "app_memory_clock_mhz",
    "default applications clocks/graphics": "default_app_clock_mhz",
    "max clocks/sm": "max_sm_clock_mhz", "max clocks/graphics": "max_graphics_clock_mhz",
    "max clocks/memory": "max_memory_clock_mhz", "max customer boost clocks/graphics": "max_boost_clock_mhz",
    "fabric/state": "fabric_state", "fabric/status": "fabric_status",
    "health/summary": "fabric_health", "health/bandwidth": "fabric_bandwidth",
    "health/route recovery in progress": "fabric_route_recovery", "health/route unhealthy": "fabric_route_unhealthy",
    "health/access timeout recovery": "fabric_access_timeout_recovery",
    "health/incorrect configuration": "fabric_incorrect_configuration",
}  # fmt: skip
_POWER = {
    "power draw": "power_w", "instantaneous power draw": "power_w", "average power draw": "power_average_w",
    "power limit": "power_limit_w", "enforced power limit": "power_limit_w", "current power limit": "power_limit_w",
    "requested power limit": "power_requested_limit_w", "default power limit": "default_power_limit_w",
    "min power limit": "min_power_limit_w", "max power limit": "max_power_limit_w",
}  # fmt: skip
_ECC = {
    "sram correctable": "sram_corrected", "sram uncorrectable": "sram_uncorrected",
    "sram uncorrectable parity": "sram_parity_uncorrected", "sram uncorrectable sec-ded": "sram_secded_uncorrected",
    "dram correctable": "dram_corrected", "dram uncorrectable": "dram_uncorrected",
}  # fmt: skip
_COUNTERS = {
    "sw power capping": "throttle_sw_power_us", "sw power cap": "throttle_sw_power_us",
    "sw thermal slowdown": "throttle_sw_thermal_us", "hw thermal slowdown": "throttle_hw_thermal_us",
    "hw power braking": "throttle_hw_power_brake_us",
}  # fmt: skip


class _Path:
    """The sections around a line, by indentation; where that is lost, the last section and what may hold it."""

    def __init__(self) -> None:
        self.stack: list[tuple[int, str]] = []

    def enter(self, depth: int, name: str) -> None:
        """A section begins."""
        keep = [item for item in self.stack if item[0] < depth]
        if not keep and name in ("single bit", "double bit"):
            keep = [item for item in self.stack if item[1] in ("volatile", "aggregate")][-1:]
        self.stack = [*keep, (depth, name)]

    def at(self, depth: int) -> list[str]:
        """The names of the sections that hold a line of this depth, the nearest last."""
        inner = [name for at, name in self.stack if at < depth]
        return inner or [name for _, name in self.stack[-2:]]


def parse_query(document: Document) -> list[Fact]:
    """Facts gpu, gpu_process, gpu_count, driver of every `nvidia-smi -q` text in the document."""
    reader = _Reader(document)
    for index, line in enumerate(document.lines()):
        if len(line) < 1000:
            reader.take(index, line)
    reader.close_gpu()
    reader.close_log()
    return reader.facts


class _Reader:
    """Walks through the lines."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.facts: list[Fact] = []
        self.gpu: Draft | None = None
        self.process: Draft | None = None
        self.driver: Draft | None = None
        self.time: Stamp | None = None
        self.path = _Path()
        self.number = 0
        self.listed: tuple[int, str] | None = None

    def take(self, index: int, line: str) -> None:
        """Reads one line."""
        gpu = _GPU.match(line)
        if gpu:
            self.close_gpu()
            bus = pci_address(gpu["bus"]) or gpu["bus"]
            self.gpu = Draft(self.document, "gpu", bus, index, line)
            self.gpu.put("tool", "nvidia-smi -q")
            self.gpu.put("bus_id", bus, index, line)
            self.gpu.put("index", self.number)
            self.gpu.time = self.time
            self.number += 1
            self.path = _Path()
            return
        if "NVSMI LOG" in line:
            self.close_gpu()
            self.close_log()
            return
        pair = _PAIR.match(line)
        if pair:
            key = re.sub(r"\s+", " ", pair["key"].strip().lower())
            if self.gpu is None or (key == "timestamp" and not pair["lead"]):
                self._preamble(key, pair["value"], index, line)
            else:
                self._pair(len(pair["lead"]), key, pair["value"], index, line)
            return
        section = _SECTION.match(line)
        if section and self.gpu is not None:
            if section["key"].strip() == "Processes":
                self.listed = (index, line)
            self.path.enter(len(section["lead"]), re.sub(r"\s+", " ", section["key"].strip().lower()))
        elif self.gpu is not None and line.lstrip().startswith(("$ ", "# ", "+--", "====")):
            self.close_gpu()

    def close_gpu(self) -> None:
        """Ends the card at hand."""
        self._close_process()
        if self.gpu is not None and len(self.gpu.fields) > 3:
            if self.listed:
                own = [f for f in self.facts if f.kind == "gpu_process" and f.fields.get("gpu_key") == self.gpu.key]
                sizes = [f.fields.get("memory_mib") for f in own if f.time == self.gpu.time]
                self.gpu.put("processes", len(sizes), *self.listed)
                self.gpu.put("process_memory_mib", sum(s for s in sizes if isinstance(s, int)), *self.listed)
                self.gpu.put("process_memory_known", all(isinstance(s, int) for s in sizes))
            finish(self.gpu)
            self.facts.append(self.gpu.fact())
        self.gpu = None
        self.listed = None

    def close_log(self) -> None:
        """Ends one output of the tool."""
        if self.driver is not None and self.driver.fields:
            self.driver.time = self.time
            self.driver.put("tool", "nvidia-smi -q")
            self.facts.append(self.driver.fact())
        self.driver = None
        self.time = None
        self.number = 0

    def _preamble(self, key: str, value: str, index: int, line: str) -> None:
        if key == "timestamp":
            self.time = stamp(value)
        elif key in _PREAMBLE and re.match(r"\s*\d", value):
            self.driver = self.driver or Draft(self.document, "driver", "nvidia-smi -q", index, line)
            self.driver.put(_PREAMBLE[key], value.split()[0], index, line)
        elif key == "attached gpus":
            count = whole(value)
            if count is not None:
                draft = Draft(self.document, "gpu_count", "nvidia-smi -q", index, line)
                draft.put("value", count, index, line)
                draft.put("tool", "nvidia-smi -q")
                draft.time = self.time
                self.facts.append(draft.fact())

    def _pair(self, depth: int, key: str, value: str, index: int, line: str) -> None:
        gpu = self.gpu
        if gpu is None:
            return
        path = self.path.at(depth)
        if key in ("process id", "gpu instance id", "compute instance id", "type", "name", "used gpu memory") and (
            "processes" in path or self.process is not None or key == "process id"
        ):
            self._process(key, value, index, line)
            return
        if key == "processes" and bare(value) == "None":
            self.listed = (index, line)
        if "mig device" in path and key not in ("accounting mode", "gpu uuid"):
            return
        field = _field(path, key)
        if field == "throttle":
            if bare(value).lower() == "active":
                add_reason(gpu, REASONS.get(snake(key), key), index, line)
            elif trouble(value):
                assign(gpu, "throttle_active", value, index, line)
        elif field:
            if field == "power_w" and isinstance(gpu.fields.get("power_w"), float):
                return
            assign(gpu, field, value, index, line)
            if value.strip() and key == "bus id":
                gpu.key = pci_address(value) or gpu.key
        elif trouble(value):
            assign(gpu, "other", value, index, line)

    def _process(self, key: str, value: str, index: int, line: str) -> None:
        if key == "process id" and self.gpu is not None:
            self._close_process()
            pid = whole(value)
            self.process = Draft(self.document, "gpu_process", f"{self.gpu.key}/{pid}", index, line)
            self.process.put("pid", pid, index, line)
            self.process.put("bus_id", self.gpu.fields.get("bus_id"))
            self.process.put("gpu_key", self.gpu.key)
            self.process.put("gpu_index", self.gpu.fields.get("index"))
            self.process.time = self.gpu.time
        elif self.process is not None:
            if key == "type":
                self.process.put("type", bare(value), index, line)
            elif key == "name":
                self.process.put("name", value.strip()[:300], index, line)
                self.process.put("name_missing", value.strip() in ("", "[Not Found]", "[Unknown]"))
            elif key == "used gpu memory":
                self.process.put("memory_mib", whole(value), index, line)

    def _close_process(self) -> None:
        if self.process is not None and self.process.fields.get("pid") is not None:
            self.facts.append(self.process.fact())
        self.process = None


def _field(path: list[str], key: str) -> str | None:
    """The field that a key under these sections means; "throttle" for a reason of lowered clocks."""
    near = path[-1] if path else ""
    if any("event reasons counters" in name or "throttle reasons counters" in name for name in path):
        return _COUNTERS.get(key)
    if any("event reasons" in name or "throttle reasons" in name for name in path):
        return "throttle"
    power = _power(path, key)
    if power:
        return power
    when = next((name for name in reversed(path) if name in ("volatile", "aggregate")), None)
    if when:
        return _ecc(path, key, when)
    if f"{near}/{key}" in FIELDS:
        return FIELDS[f"{near}/{key}"]
    return FIELDS.get(key)


def _power(path: list[str], key: str) -> str | None:
    if key not in _POWER:
        return None
    for name in path:
        if name.startswith("gpu memory power"):
            return "memory_power_w" if "draw" in key else None
        if name.startswith("module power"):
            return {"power_w": "module_power_w", "power_limit_w": "module_power_limit_w"}.get(_POWER[key])
        if "base power" in name:
            return None
        if name in ("power samples", "gpu power smoothing"):
            return None
    return _POWER[key]


def _ecc(path: list[str], key: str, when: str) -> str | None:
    if key in _ECC:
        return f"ecc_{_ECC[key]}_{when}"
    if key == "sram threshold exceeded":
        return "sram_threshold_exceeded"
    how = {"single bit": "corrected", "double bit": "uncorrected"}.get(path[-1] if path else "")
    if how and key == "total":
        return f"ecc_{how}_{when}"
    if how and key == "device memory":
        return f"ecc_dram_{how}_{when}"
    return FIELDS.get(key)
