"""More GPUs by NVML than on the bus is a limited view of the bus; none by either is no GPU here."""

from __future__ import annotations

import pytest

from gpuclinic.clinic.bus_view import limit_view
from gpuclinic.clinic.looks import Seen
from gpuclinic.knowledge.gap_words import gap_words
from gpuclinic.model import Fact, Gap


def seen(on_bus: int, **gpus: bool) -> Seen:
    out = Seen(gaps=[Gap("gpu.none", "no NVIDIA GPU stands on the PCI bus", required=True)] if not on_bus else [])
    out.fact("view", "host", {"limited": False}, "/proc and /sys")
    out.fact("gpu_count", "pci", {"value": on_bus, "tool": "pci"}, "/sys/bus/pci/devices")
    for key, lost in gpus.items():
        out.facts.append(Fact("gpu", key, {"tool": "nvml", "unreachable": lost or None}, {}, "nvml"))
    return out


def limited(of: Seen) -> bool:
    return next(bool(f.fields["limited"]) for f in of.facts if f.kind == "view")


def test_a_sandbox_shows_no_devices() -> None:
    view = seen(0, a=False, b=False)
    limit_view(view)
    assert [(g.check, g.required) for g in view.gaps] == [("pci.bus", False)]
    assert limited(view)
    assert "NVML" in gap_words(view.gaps[0].why, "zh")
    assert "tells of" not in gap_words(view.gaps[0].why, "zh")


@pytest.mark.parametrize(("on_bus", "gpus"), [(0, {}), (0, {"a": True}), (2, {"a": False, "b": False})])
def test_otherwise_the_bus_is_believed(on_bus: int, gpus: dict[str, bool]) -> None:
    view = seen(on_bus, **gpus)
    before = list(view.gaps)
    limit_view(view)
    assert view.gaps == before
    assert not limited(view)
