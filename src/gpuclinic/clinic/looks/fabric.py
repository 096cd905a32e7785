"""What joins GPUs beyond their own links: Fabric Manager, the NVLink subnet manager, NVSwitches, IMEX."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpuclinic.clinic.looks._look import Seen, Wanted, is_absent
from gpuclinic.model import Gap
from gpuclinic.recognise.expectations import model_of

if TYPE_CHECKING:
    from gpuclinic.observe.asking import Asked

LOOK = "fabric.services"
_UNITS = ("nvidia-fabricmanager", "nvlsm", "nvidia-imex")
_SHOW = (
    "systemctl", "show", "-p", "Id,LoadState,ActiveState,SubState,Result,ExecMainStatus,UnitFileState,NRestarts", *_UNITS,
)  # fmt: skip
_VERSION = ("nv-fabricmanager", "--version")
_LOG = "/var/log/fabricmanager.log"
_SWITCHES = "/proc/driver/nvidia-nvswitch/devices"
_IMEX_NODES = "/etc/nvidia-imex/nodes_config.cfg"


def look_at_fabric(host: Asked, wanted: Wanted) -> Seen:
    """Facts `service`, `driver_component` (fabric manager), `nvswitch_count` (tool "driver"), `fabric_need`; only where a fabric may be."""
    seen = Seen()
    need, switches = _need(host, wanted)
    if not need:
        return seen
    seen.fact("fabric_need", "host", {"why": need, "nvswitches": switches or None}, "PCI bus and GPU models")
    shown = host.command(*_SHOW, deadline=1.5, most=1 << 16)
    if shown.ok:
        seen.texts.append((shown.named("systemctl show " + " ".join(_UNITS)), shown.data))
    elif not is_absent(shown):
        seen.gaps.append(Gap(LOOK, f"systemctl: {shown.why}"))
    version = host.command(*_VERSION, deadline=1.5, most=4096)
    source, text = " ".join(_VERSION), version.text if version.ok else ""
    if not text:
        log = host.file(_LOG, 1 << 16, end=True)
        source, text = _LOG, log.text if log.ok else ""
    found = re.findall(r"(?i)fabric ?manager version(?: is)?\s*:?\s*(\d{3}(?:\.\d+){1,2})", text)
    if found:
        seen.fact("driver_component", "fabric manager", {"component": "fabric manager", "version": found[-1]}, source)
    listed = host.listing(_SWITCHES)
    if listed.ok:
        count = len([name for name in listed.lines() if ":" in name])
        seen.fact("nvswitch_count", "driver", {"value": count, "tool": "driver"}, _SWITCHES)
    nodes = host.file(_IMEX_NODES, 1 << 16)
    if nodes.ok:
        count = sum(not line.lstrip().startswith("#") for line in nodes.lines())
        seen.fact("imex_nodes", "host", {"value": count}, _IMEX_NODES)
    return seen


def _need(host: Asked, wanted: Wanted) -> tuple[str, int]:
    """Why this machine has a fabric to look at ("" where it has none), and how many NVSwitches stand on the bus."""
    devices = wanted.of("pci_device")
    switches = sum(bool(fact.fields.get("is_nvswitch")) for fact in devices)
    if switches:
        return f"{switches} NVSwitches on the PCI bus", switches
    for fact in (*wanted.of("gpu"), *devices):
        row = model_of(str(fact.fields.get("name") or ""), str(fact.fields.get("id") or ""))
        if row is not None and row["nvlink_by"] == "switch" and float(row["compute_capability"]) >= 9.0:
            return f"{row['nvml_name']} is made for an NVLink fabric", 0
    return ("nvidia-nvswitch is loaded", 0) if host.listing(_SWITCHES).ok else ("", 0)
