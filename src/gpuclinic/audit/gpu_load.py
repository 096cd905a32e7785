"""What the GPUs' own figures say: a load as flat as mining's, and figures that contradict one another."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from gpuclinic.audit.gpus import told
from gpuclinic.audit.hits import Hit
from gpuclinic.audit.mining import refs_of, subject_of
from gpuclinic.knowledge.audit_words import words
from gpuclinic.model import Where

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuclinic.audit.scene import Gpu, Process, Scene

_SOURCE = "gpu_processes.json"
_LEAST_SAMPLES = 12
_NO_JOBS = (
    "nvidia-persiste",
    "nv-hostengine",
    "dcgm-exporter",
    "nvidia-powerd",
    "Xorg",
    "gnome-shell",
    "Xwayland",
    "nvidia-smi",
    "nvtop",
    "nvitop",
    "nvidia-cuda-mps",
    "nv-fabricmanage",
    "nvidia-device-p",
    "gpuclinic",
    "dcgmi",
    "gpustat",
    "kwin_x11",
    "sddm",
    "gdm-x-session",
    "nvidia-settings",
    "netdata",
    "telegraf",
    "all-smi",
    "containerd-shim",
)


def _column(gpu: Gpu, name: str) -> list[float]:
    return [s[name] for s in gpu.samples if name in s]


def is_flat(gpu: Gpu) -> bool:
    """Load, power, memory and traffic as even as mining's over at least a minute of samples (section 1.5 of the study of rule sets).

    True of honest Monte-Carlo runs, too: a weak sign for ever.
    """
    load, power, memory = _column(gpu, "gpu_util"), _column(gpu, "power_w"), _column(gpu, "mem_used_mib")
    traffic = [s.get("pcie_rx_kbs", 0.0) + s.get("pcie_tx_kbs", 0.0) for s in gpu.samples if "pcie_rx_kbs" in s]
    if min(len(load), len(power), len(memory)) < _LEAST_SAMPLES or not traffic:
        return False
    mean = statistics.fmean(power)
    return (
        statistics.fmean(load) >= 97
        and statistics.pstdev(load) <= 2
        and mean > 0
        and statistics.pstdev(power) / mean < 0.02
        and max(memory) - min(memory) <= 64
        and statistics.fmean(traffic) < 500
    )


def steady(scene: Scene) -> list[Hit]:
    """gpu_steady_load, joined to the process where it maps no framework and no scheduler started it."""
    out = []
    for gpu in scene.gpus:
        if not is_flat(gpu):
            continue
        load, power = _column(gpu, "gpu_util"), _column(gpu, "power_w")
        text = f"GPU {gpu.index}: utilisation {statistics.fmean(load):.0f} %, power {statistics.fmean(power):.0f} W over {len(load)} samples"
        holders = [
            scene.processes[p.pid] for p in scene.gpu_processes if p.gpu == gpu.index and p.pid in scene.processes
        ]
        bare = [h for h in holders if not any(f in path for path in h.mapped or [] for f in words().frameworks)]
        holders_or_none: list[Process | None] = [*bare] or [None]
        for holder in holders_or_none:
            out.append(
                Hit(id="gpu_steady_load", subject=f"GPU {gpu.index}", refs=refs_of(holder) if holder else frozenset(), gpu_index=gpu.index,
                    pid=holder.pid if holder else None, evidence=[Where(_SOURCE, None, text)],
                    values={"index": gpu.index, "watts": round(statistics.fmean(power)), "who": subject_of(holder) if holder else "-"})
            )  # fmt: skip
    return out


def contradiction(scene: Scene) -> list[Hit]:
    """gpu_telemetry_contradiction: idle by NVML's utilisation, and yet more than 60 % of the power limit at high clocks."""
    out = []
    for gpu in scene.gpus:
        limit = gpu.power_limit_w or gpu.default_power_limit_w
        pairs = [(s["gpu_util"], s["power_w"]) for s in gpu.samples if "gpu_util" in s and "power_w" in s]
        if not limit or len(pairs) < _LEAST_SAMPLES:
            continue
        load, power = statistics.fmean(u for u, _ in pairs), statistics.fmean(w for _, w in pairs)
        if load <= 5 and power > 0.6 * limit:
            unlisted = [h for h in holders_unlisted(scene) if h.gpu_index in (None, gpu.index)]
            text = f"GPU {gpu.index}: utilisation {load:.0f} %, power {power:.0f} W of {limit:.0f} W over {len(pairs)} samples"
            refs = frozenset(ref for hit in unlisted for ref in hit.refs)
            out.append(
                Hit(id="gpu_telemetry_contradiction", subject=f"GPU {gpu.index}", refs=refs | {"telemetry"}, gpu_index=gpu.index, evidence=[Where(_SOURCE, None, text)],
                    grade="conclusive" if unlisted else None, values={"index": gpu.index, "load": round(load), "watts": round(power), "limit": round(limit)})
            )  # fmt: skip
    return out


def holders_unlisted(scene: Scene) -> list[Hit]:
    """gpu_device_holder_unlisted: a CUDA context (/dev/nvidia-uvm open) of a process that NVML does not list though it lists others, or none."""
    told_of = told(scene)
    if not isinstance(told_of.get("processes"), list) or told_of.get("nvml_pid_namespace", "host") != "host":
        return []  # NVML was not asked who is there, or answered with another namespace's numbers
    listed = {one.pid for one in scene.gpu_processes}
    out = []
    for process in scene.processes.values():
        opened = [t for t in (process.files or {}).values() if t.startswith("/dev/nvidia")]
        mapped = [t for t in process.mapped or [] if t.startswith("/dev/nvidia")]
        uvm = any(t == "/dev/nvidia-uvm" for t in [*opened, *mapped])
        device = any(t.removeprefix("/dev/nvidia").isdigit() for t in [*opened, *mapped])
        if not (uvm and device) or process.pid in listed or process.comm[:15] in _NO_JOBS:
            continue
        parents = {scene.processes[p].task.ppid for p in listed if p in scene.processes and scene.processes[p].task}  # type: ignore[union-attr]
        if process.pid in parents or (process.task and process.task.ppid in listed):
            continue  # a launcher that inherited descriptors, or a worker of a listed process
        out.append(
            Hit(id="gpu_device_holder_unlisted", subject=subject_of(process), refs=refs_of(process), pid=process.pid,
                evidence=[process.at("fd", f"{process.comm}: {', '.join(sorted({*opened, *mapped})[:4])}")], values={"pid": process.pid})
        )  # fmt: skip
    return out


CHECKS: tuple[tuple[str, Callable[[Scene], list[Hit]]], ...] = (
    ("audit.gpu_load", steady),
    ("audit.gpu_load", contradiction),
    ("audit.gpu_holders", holders_unlisted),
)
