"""The GPUs of a scene and who is on them: from gpu_processes.json of a snapshot, else from NVML."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from gpuclinic.audit.scene import Gpu, GpuProcess

if TYPE_CHECKING:
    from gpuclinic.audit.scene import Scene

_NUMBERS = (
    "t",
    "gpu_util",
    "mem_util",
    "mem_used_mib",
    "power_w",
    "sm_clock_mhz",
    "temp_c",
    "pcie_rx_kbs",
    "pcie_tx_kbs",
)
_MOST_SAMPLES = 10_000


def told(scene: Scene) -> dict[str, Any]:
    """gpu_processes.json as docs/contract.md describes it; empty where there is none."""
    own = getattr(scene.host, "own_json", None)
    found = own("gpu_processes.json") if own is not None else {}
    return found if isinstance(found, dict) else {}


def read_gpus(scene: Scene) -> list[Gpu]:
    """GPUs, with samples where somebody took some."""
    out = []
    for row in _rows(told(scene).get("gpus")):
        samples = [
            {name: float(s[name]) for name in _NUMBERS if isinstance(s.get(name), int | float)}
            for s in _rows(row.get("samples"))[:_MOST_SAMPLES]
        ]
        if (gpu := _struct(row, samples)) is not None:
            out.append(gpu)
    return out


def read_gpu_processes(scene: Scene) -> list[GpuProcess]:
    """Processes by GPU."""
    out = []
    for row in _rows(told(scene).get("processes")):
        pid, gpu = row.get("pid"), row.get("gpu")
        used = row.get("used_mib")
        if isinstance(pid, int) and isinstance(gpu, int):
            out.append(
                GpuProcess(
                    gpu, pid, str(row.get("type", "")), used if isinstance(used, int | float) else None, str(row.get("nvml_name") or "")
                )
            )  # fmt: skip
    return out


def _rows(value: object) -> list[dict[str, Any]]:
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []


def _struct(row: dict[str, Any], samples: list[dict[str, float]]) -> Gpu | None:
    named = {name: row[name] for name in Gpu.__struct_fields__ if name in row and name != "samples"}
    try:
        return msgspec.convert({**named, "samples": samples}, Gpu)
    except msgspec.ValidationError:
        return None
