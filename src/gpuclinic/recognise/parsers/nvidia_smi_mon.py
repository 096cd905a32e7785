"""`nvidia-smi dmon` and `pmon`: columns under a "# gpu" head."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpuclinic.recognise.parsers.gpu_series import thin
from gpuclinic.recognise.parsers.gpu_text import Draft, number, stamp, whole
from gpuclinic.recognise.parsers.nvidia_smi_fields import finish

if TYPE_CHECKING:
    from gpuclinic.model import Document, Fact

_HEAD = re.compile(r"^[\s>]*#\s*(?:Date\s+Time\s+|Time\s+)?gpu\b", re.IGNORECASE)
_DMON = {
    "pwr": "power_w", "gtemp": "temperature_c", "temp": "temperature_c", "mtemp": "memory_temperature_c",
    "sm": "utilization_pct", "mem": "memory_utilization_pct", "mclk": "memory_clock_mhz", "pclk": "sm_clock_mhz",
    "pviol": "power_violation_pct", "tviol": "thermal_violation", "fb": "memory_used_mib", "bar1": "bar1_used_mib",
    "sbecc": "ecc_corrected_volatile", "dbecc": "ecc_uncorrected_volatile", "pci": "pcie_replays",
    "rxpci": "pcie_rx_mbs", "txpci": "pcie_tx_mbs",
}  # fmt: skip


def parse_monitor(document: Document) -> list[Fact]:
    """Facts gpu and gpu_series from dmon, gpu_process from pmon."""
    columns: list[str] | None = None
    gpus: list[Draft] = []
    processes: dict[tuple[str, str], Draft] = {}
    for index, line in enumerate(document.lines()):
        if len(line) > 400:
            continue
        if _HEAD.match(line):
            columns = line.replace("#", " ").lower().split()
            continue
        if line.lstrip().startswith("#"):
            continue
        cells = line.split()
        if columns is None or not cells:
            continue
        if len(cells) < len(columns) or not (cells[columns.index("gpu")].isdecimal()):
            columns = None if len(cells) > 3 else columns
            continue
        row = dict(zip(columns, cells, strict=False))
        if "pid" in row:
            _process(document, row, " ".join(cells[len(columns) - 1 :]), processes, index, line)
        else:
            gpus.append(_gpu(document, row, index, line))
    return [*thin(document, gpus), *(p.fact() for p in processes.values())]


def _gpu(document: Document, row: dict[str, str], index: int, line: str) -> Draft:
    draft = Draft(document, "gpu", row["gpu"], index, line)
    draft.put("tool", "nvidia-smi dmon")
    draft.put("index", int(row["gpu"][:6]))
    if "date" in row and "time" in row:
        date = row["date"]
        draft.time = stamp(
            f"{date[:4]}-{date[4:6]}-{date[6:8]} {row['time']}" if len(date) == 8 else f"{date} {row['time']}"
        )
    for column, field in _DMON.items():
        value = number(row[column]) if column in row else None
        if value is not None:
            draft.put(field, float(value) if field == "power_w" else value, index, line)
    finish(draft)
    return draft


def _process(
    document: Document, row: dict[str, str], name: str, seen: dict[tuple[str, str], Draft], index: int, line: str
) -> None:
    pid = whole(row["pid"]) if row["pid"].isdecimal() else None
    if pid is None or (row["gpu"], row["pid"]) in seen:
        return
    draft = Draft(document, "gpu_process", f"{row['gpu']}/{pid}", index, line)
    draft.fields.update(gpu_index=int(row["gpu"][:6]), gpu_key=row["gpu"], pid=pid, type=row.get("type"), name=name)
    for column, field in (("sm", "sm_pct"), ("fb", "memory_mib")):
        value = whole(row[column]) if column in row else None
        if value is not None:
            draft.put(field, value)
    seen[(row["gpu"], row["pid"])] = draft
