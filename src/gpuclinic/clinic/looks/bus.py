"""What stands on the PCI bus, from sysfs: the count that NVML's has to reach."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuclinic.clinic.looks._look import Seen, Wanted
from gpuclinic.model import Gap

if TYPE_CHECKING:
    from gpuclinic.observe.asking import Asked

LOOK = "pci.bus"
NVIDIA = "0x10de"
_DEVICES = "/sys/bus/pci/devices"


def look_at_bus(host: Asked, wanted: Wanted) -> Seen:
    """Facts `gpu_count` (tool "pci") and `pci_device` of each NVIDIA function that computes or switches."""
    seen = Seen()
    vendors = host.files(f"{_DEVICES}/*/vendor", 64)
    if not any(answer.ok for answer in vendors.values()):
        why = next((a.why for a in vendors.values()), None) or host.listing(_DEVICES).why or "no PCI devices are shown"
        seen.gaps.append(Gap(LOOK, f"{_DEVICES}: {why}", required=True))
        return seen
    mine = [path.rsplit("/", 2)[1] for path, answer in vendors.items() if answer.ok and answer.line.lower() == NVIDIA]
    count = 0
    drivers = host.links(f"{_DEVICES}/*/driver")
    for address in mine:
        pci_class = host.file(f"{_DEVICES}/{address}/class", 64).line.lower()
        is_gpu = pci_class.startswith("0x03")
        count += is_gpu
        device = host.file(f"{_DEVICES}/{address}/device", 64).line.lower().removeprefix("0x")
        driver = drivers.get(f"{_DEVICES}/{address}/driver", "").rsplit("/", 1)[-1] or None
        seen.fact(
            "pci_device", address,
            {"address": address, "gpu": address if is_gpu else None, "vendor": "10de", "id": f"10de:{device}" if device else None,
             "pci_class": pci_class.removeprefix("0x"), "is_gpu": is_gpu, "is_nvswitch": pci_class.startswith("0x0680"), "driver": driver},
            f"{_DEVICES}/{address}",
        )  # fmt: skip
    seen.fact("gpu_count", "pci", {"value": count, "tool": "pci"}, _DEVICES)
    if wanted.expect_gpus is not None:
        seen.fact("gpu_count", "expected", {"value": wanted.expect_gpus, "tool": "expected"}, "--expect-gpus")
    elif count == 0:
        seen.gaps.append(Gap("gpu.none", "no NVIDIA GPU stands on the PCI bus, and none was expected", required=True))
    return seen
