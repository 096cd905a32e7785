"""More GPUs by NVML than on the PCI bus: a limited view of the bus (WSL 2, gVisor, sandboxed containers), not a machine without GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from gpuclinic.clinic.looks._look import as_number
from gpuclinic.model import Gap

if TYPE_CHECKING:
    from gpuclinic.clinic.looks import Seen


def limit_view(seen: Seen) -> None:
    """Marks the view as limited, and says so in place of "no GPU here", where a driver answers for GPUs that the bus does not show."""
    told = sum(
        fact.kind == "gpu"
        and fact.fields.get("tool") == "nvml"
        and not any(fact.fields.get(name) for name in ("unreachable", "hung", "not_asked"))
        for fact in seen.facts
    )
    count = next((f for f in seen.facts if f.kind == "gpu_count" and f.key == "pci"), None)
    on_bus = int(as_number(count.fields.get("value")) or 0) if count is not None else 0
    if count is None or told <= on_bus:
        return
    why = f"NVML tells of {told} GPUs, and the PCI bus shows {on_bus} of them: from here it is seen in part only"
    seen.gaps = [gap for gap in seen.gaps if gap.check != "gpu.none"]
    seen.gaps.append(Gap("pci.bus", why))
    seen.facts = [
        msgspec.structs.replace(fact, fields={**fact.fields, "limited": True}) if fact.kind == "view" else fact
        for fact in seen.facts
    ]
