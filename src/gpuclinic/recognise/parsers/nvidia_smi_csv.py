"""`nvidia-smi --query-gpu`, `--query-compute-apps` and their kin as csv, one sample or a long series."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpuclinic.recognise.parsers.gpu_series import thin
from gpuclinic.recognise.parsers.gpu_text import Draft, Scalar, bare, is_missing, pci_address, stamp, trouble, whole
from gpuclinic.recognise.parsers.nvidia_smi_fields import REASONS, add_reason, assign, finish, reasons_of_mask

if TYPE_CHECKING:
    from gpuclinic.model import Document, Fact

COLUMNS = {
    "name": "name", "gpu_name": "name", "uuid": "uuid", "gpu_uuid": "uuid", "serial": "serial", "gpu_serial": "serial",
    "index": "index", "driver_version": "driver_version", "vbios_version": "vbios_version",
    "pstate": "performance_state",
    "persistence_mode": "persistence", "accounting.mode": "accounting", "compute_mode": "compute_mode",
    "compute_cap": "compute_capability", "fan.speed": "fan_pct", "display_active": "display_active",
    "pcie.link.gen.current": "pcie_gen", "pcie.link.gen.gpucurrent": "pcie_gen", "pcie.link.gen.max": "pcie_gen_max",
    "pcie.link.gen.gpumax": "pcie_gen_device_max", "pcie.link.gen.hostmax": "pcie_gen_host_max",
    "pcie.link.width.current": "pcie_width", "pcie.link.width.max": "pcie_width_max",
    "memory.total": "memory_total_mib", "memory.used": "memory_used_mib", "memory.free": "memory_free_mib",
    "memory.reserved": "memory_reserved_mib",
    "utilization.gpu": "utilization_pct", "utilization.memory": "memory_utilization_pct",
    "temperature.gpu": "temperature_c", "temperature.memory": "memory_temperature_c",
    "temperature.gpu.tlimit": "t_limit_c",
    "power.draw": "power_w", "power.draw.instant": "power_w", "power.draw.average": "power_average_w",
    "power.limit": "power_limit_w", "enforced.power.limit": "power_limit_w",
    "power.default_limit": "default_power_limit_w",
    "power.min_limit": "min_power_limit_w", "power.max_limit": "max_power_limit_w",
    "module.power.draw.instant": "module_power_w", "module.power.limit": "module_power_limit_w",
    "clocks.sm": "sm_clock_mhz", "clocks.current.sm": "sm_clock_mhz", "clocks.gr": "graphics_clock_mhz",
    "clocks.current.graphics": "graphics_clock_mhz", "clocks.mem": "memory_clock_mhz",
    "clocks.current.memory": "memory_clock_mhz", "clocks.max.sm": "max_sm_clock_mhz",
    "clocks.max.graphics": "max_graphics_clock_mhz", "clocks.max.memory": "max_memory_clock_mhz",
    "clocks.applications.graphics": "app_clock_mhz", "clocks.applications.memory": "app_memory_clock_mhz",
    "clocks.default_applications.graphics": "default_app_clock_mhz",
    "mig.mode.current": "mig_mode", "mig.mode.pending": "mig_pending",
    "ecc.mode.current": "ecc_mode", "ecc.mode.pending": "ecc_mode_pending",
    "ecc.errors.corrected.volatile.total": "ecc_corrected_volatile",
    "ecc.errors.uncorrected.volatile.total": "ecc_uncorrected_volatile",
    "ecc.errors.corrected.aggregate.total": "ecc_corrected_aggregate",
    "ecc.errors.uncorrected.aggregate.total": "ecc_uncorrected_aggregate",
    "ecc.errors.corrected.volatile.device_memory": "ecc_dram_corrected_volatile",
    "ecc.errors.uncorrected.volatile.device_memory": "ecc_dram_uncorrected_volatile",
    "ecc.errors.corrected.volatile.dram": "ecc_dram_corrected_volatile",
    "ecc.errors.uncorrected.volatile.dram": "ecc_dram_uncorrected_volatile",
    "ecc.errors.corrected.volatile.sram": "ecc_sram_corrected_volatile",
    "ecc.errors.uncorrected.volatile.sram": "ecc_sram_uncorrected_volatile",
    "ecc.errors.corrected.aggregate.dram": "ecc_dram_corrected_aggregate",
    "ecc.errors.uncorrected.aggregate.dram": "ecc_dram_uncorrected_aggregate",
    "ecc.errors.corrected.aggregate.sram": "ecc_sram_corrected_aggregate",
    "ecc.errors.uncorrected.aggregate.sram": "ecc_sram_uncorrected_aggregate",
    "ecc.errors.uncorrected.aggregate.sram.thresholdexceeded": "sram_threshold_exceeded",
    "retired_pages.sbe": "retired_pages_sbe", "retired_pages.single_bit_ecc.count": "retired_pages_sbe",
    "retired_pages.dbe": "retired_pages_dbe", "retired_pages.double_bit.count": "retired_pages_dbe",
    "retired_pages.pending": "retired_pages_pending",
    "remapped_rows.correctable": "remapped_correctable", "remapped_rows.uncorrectable": "remapped_uncorrectable",
    "remapped_rows.pending": "remap_pending", "remapped_rows.failure": "remap_failed",
    "fabric.state": "fabric_state", "fabric.status": "fabric_status",
    "reset_status.reset_required": "reset_required", "reset_status.drain_and_reset_recommended": "drain_recommended",
    "gpu_recovery_action": "recovery_action", "vgpu_license.status": "vgpu_license",
}  # fmt: skip
_OTHERS = frozenset(
    [
        "timestamp",
        "pci.bus_id",
        "gpu_bus_id",
        "count",
        "pid",
        "process_name",
        "used_gpu_memory",
        "used_memory",
        "gpu_util",
        "mem_util",
        "time",
        "type",
    ]
)
_CELL = re.compile(r"^([a-z][\w.]*)(?: \[[^\]]*\])?$")
_COMMAND = re.compile(r"--query-(?:gpu|compute-apps|remapped-rows|retired-pages)[= ]\"?'?(?P<columns>[\w.,]+)")
_PID = re.compile(r"\d{1,9}")
_HELD = re.compile(r"\d+(?: [KMG]i?B)?|\[?[A-Za-z][\w /]*\]?|-", re.IGNORECASE)
_FLAG_TEXT = {"0": "No", "1": "Yes"}


def _columns(line: str) -> list[str] | None:
    """The column names of a csv header, without their units; None where the line is none."""
    cells = [cell.strip() for cell in line.split(",")]
    if len(cells) < 2 or len(cells) > 500:
        return None
    names = []
    for cell in cells:
        found = _CELL.match(cell)
        if not found:
            return None
        names.append(found.group(1).replace("clocks_throttle_reasons", "clocks_event_reasons"))
    known = sum(n in COLUMNS or n in _OTHERS or n.startswith("clocks_event_reasons.") for n in names)
    return names if known >= 2 and (known >= 8 or known * 2 >= len(names)) else None


def parse_csv(document: Document) -> list[Fact]:
    """Facts gpu (one for each sample kept), gpu_series and gpu_process of every csv that nvidia-smi wrote."""
    columns: list[str] | None = None
    header = 0
    gpus: list[Draft] = []
    processes: list[Draft] = []
    for index, line in enumerate(document.lines()):
        if len(line) > 20000 or "," not in line:
            continue
        found = _columns(line)
        if found:
            columns, header = found, index
            continue
        command = _COMMAND.search(line)
        if command and "noheader" in line:
            columns, header = (
                [c.replace("clocks_throttle_reasons", "clocks_event_reasons") for c in command["columns"].split(",")],
                index,
            )
            continue
        if columns is None:
            continue
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) > len(columns) and "process_name" in columns:
            at = columns.index("process_name")
            extra = len(cells) - len(columns)
            cells[at : at + extra + 1] = [",".join(cells[at : at + extra + 1])]
        if len(cells) != len(columns):
            if index - header > 1:
                columns = None
            continue
        row = dict(zip(columns, cells, strict=True))
        draft = _process(document, row, index, line) if "pid" in row else _gpu(document, row, index, line)
        if draft:
            (processes if draft.kind == "gpu_process" else gpus).append(draft)
    return [*thin(document, gpus), *(p.fact() for p in processes)]


def _key(row: dict[str, str]) -> str | None:
    bus = row.get("pci.bus_id") or row.get("gpu_bus_id") or ""
    index = row.get("index", "")
    return pci_address(bus) or (index if index.isdecimal() else None) or row.get("uuid") or row.get("gpu_uuid")


def _gpu(document: Document, row: dict[str, str], index: int, line: str) -> Draft | None:
    key = _key(row)
    if key is None and not (row.get("name") or row.get("gpu_name")):
        return None
    draft = Draft(document, "gpu", key or "?", index, line)
    draft.put("tool", "nvidia-smi --query-gpu")
    bus = pci_address(row.get("pci.bus_id") or row.get("gpu_bus_id") or "")
    if bus:
        draft.put("bus_id", bus, index, line)
    draft.time = stamp(row.get("timestamp", ""))
    for column, cell in row.items():
        if column == "clocks_event_reasons.active":
            _mask(draft, cell, index, line)
        elif column.startswith("clocks_event_reasons.") and not column.endswith(("supported", "active")):
            _reason(draft, column, cell, index, line)
        elif column in COLUMNS:
            field = COLUMNS[column]
            if field == "pcie_gen" and field in draft.fields:
                continue
            if field in ("remap_pending", "remap_failed"):
                cell = _FLAG_TEXT.get(cell, cell)
            assign(draft, field, cell, index, line)
    finish(draft)
    return draft


def _mask(draft: Draft, cell: str, index: int, line: str) -> None:
    try:
        mask = int(cell, 16)
    except ValueError:
        if trouble(cell):
            assign(draft, "throttle_mask", cell, index, line)
        return
    draft.put("throttle_mask", cell)
    for name in reasons_of_mask(mask):
        add_reason(draft, name, index, line)


def _reason(draft: Draft, column: str, cell: str, index: int, line: str) -> None:
    name = column.split(".", 1)[1]
    if name.startswith("counters."):
        if whole(cell) is not None:
            draft.put(f"throttle_{name[9:].replace('.', '_')}_us", whole(cell), index, line)
    elif bare(cell).lower() == "active":
        add_reason(draft, REASONS.get(name, name), index, line)


def _process(document: Document, row: dict[str, str], index: int, line: str) -> Draft | None:
    pid = whole(row.get("pid", ""))
    held = row.get("used_gpu_memory", row.get("used_memory"))
    if pid is None or not _PID.fullmatch(row["pid"]) or (held is not None and not _HELD.fullmatch(held)):
        return None  # text of another command that has as many commas
    key = _key(row) or "?"
    draft = Draft(document, "gpu_process", f"{key}/{pid}", index, line)
    draft.time = stamp(row.get("timestamp", ""))
    name = row.get("process_name", row.get("name"))
    memory = row.get("used_gpu_memory", row.get("used_memory", ""))
    fields: dict[str, Scalar] = {
        "pid": pid,
        "gpu_key": key,
        "bus_id": pci_address(row.get("gpu_bus_id") or row.get("pci.bus_id") or ""),
        "uuid": row.get("gpu_uuid"),
        "name": None if name is None else bare(name)[:300],
        "name_missing": None if name is None else is_missing(name) or name in ("", "[Not Found]", "[Unknown]"),
        "memory_mib": whole(memory),
        "type": "C",
    }
    draft.fields.update({k: v for k, v in fields.items() if v is not None})
    return draft
