"""The GPUs as the driver tells them: NVML, else nvidia-smi, else /proc/driver/nvidia."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuclinic.clinic.looks._look import Seen, Wanted
from gpuclinic.model import Document, Gap

if TYPE_CHECKING:
    from gpuclinic.observe.asking import Asked

LOOK = "gpu.nvml"
_SMI = ("nvidia-smi", "-q", "-x")


def look_at_gpus(host: Asked, wanted: Wanted) -> Seen:
    """Facts of `gpu`, `gpu_process`, `nvlink`, `driver`, `nvml` ... (docs/facts.md)."""
    from gpuclinic.recognise.parsers.nvml import parse_nvml

    seen = Seen()
    answer = host.nvml(deep=wanted.deep, sample=wanted.sample)
    if answer.ok:
        seen.facts.extend(parse_nvml(Document("nvml", answer.text, name_hint="nvml.json")))
    if any(fact.kind == "gpu" for fact in seen.facts):
        return seen
    reason = answer.why or next(
        (str(f.fields.get("error") or f.fields.get("reason")) for f in seen.facts if f.kind == "nvml"), "no answer"
    )
    if wanted.sample == 0:
        _fall_back(host, seen)
    on_bus = next((f.fields.get("value") for f in wanted.of("gpu_count") if f.key == "pci"), None)
    if on_bus != 0 and not any(fact.kind == "gpu" for fact in seen.facts):
        seen.gaps.append(Gap(LOOK, f"NVML: {reason}", required=True))
    return seen


def _fall_back(host: Asked, seen: Seen) -> None:
    """nvidia-smi -q -x, and what the kernel module itself tells."""
    answer = host.command(*_SMI, deadline=2.5, most=8 << 20)
    if answer.ok and answer.data:
        seen.texts.append(("nvidia-smi -q -x", answer.data))
    for path, found in host.files("/proc/driver/nvidia/gpus/*/information").items():
        if found.ok:
            seen.texts.append((path, found.data))
