"""The machine in a line: its GPUs by model, its driver, and which NVML library answered."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuclinic.model import Fact


def machine(facts: Iterable[Fact]) -> dict[str, Any]:
    """gpus: how many of each model; driver: the loaded module's version, else the library's; nvml: the file that was mapped, None where none was."""
    models: Counter[str] = Counter()
    driver = library = None
    for fact in facts:
        if fact.kind == "gpu":
            models[str(fact.fields.get("name") or "GPU (?)")] += 1
        elif fact.kind == "driver" and fact.fields.get("version"):
            driver = driver or str(fact.fields["version"])
        elif fact.kind == "nvml":
            library = fact.fields.get("library")
    return {"gpus": dict(models), "driver": driver, "nvml": library}


def machine_line(facts: Iterable[Fact], driver_word: str) -> str:
    """ "8 x NVIDIA H100 80GB HBM3, driver 580.95.05, NVML /usr/lib/.../libnvidia-ml.so.1"; empty where there is no GPU."""
    found = machine(facts)
    parts = [f"{count} \u00d7 {name}" for name, count in found["gpus"].items()]
    parts += [f"{driver_word} {found['driver']}"] if found["driver"] else []
    parts += [f"NVML {found['nvml']}"] if found["nvml"] else []
    return ", ".join(parts)
