"""What the kubelet keeps on disk of its device plugins. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpuclinic.model import Scalar

_RESOURCE = re.compile(r"^(?:nvidia\.com/(?:gpu|mig-)|[\w.-]+/(?:gpu|vgpu)$)")


def base_id(identity: str) -> str:
    """The GPU or MIG device behind an id of the plugin: a time slice or replica is GPU-...::3."""
    return identity.partition("::")[0]


def kubelet_fields(
    checkpoint: Mapping[str, Any], sockets: Iterable[str], uuids: Iterable[str], gpus: int
) -> dict[str, Scalar] | None:
    """Fields of `device_plugin` from kubelet_internal_checkpoint; None where the file holds something else.

    RegisteredDevices are the healthy ones; the kubelet leaves out what a plugin calls unhealthy.
    """
    data = checkpoint.get("Data")
    if not isinstance(data, dict):
        return None
    registered = data.get("RegisteredDevices")
    registered = registered if isinstance(registered, dict) else {}
    rows = {name: ids for name, ids in registered.items() if _RESOURCE.match(str(name)) and isinstance(ids, list)}
    healthy = {base_id(str(identity)) for ids in rows.values() for identity in ids[:4096]}
    healthy -= {""}
    known = {u for u in uuids if u}
    whole = {u for u in healthy if u.startswith("GPU-")}
    foreign = sorted(whole - known) if known else []
    unregistered = sorted(u for u in known if u.startswith("GPU-") and u not in healthy) if whole else []
    return {
        "resources": ",".join(sorted(map(str, rows))[:16]) or None,
        "registered": len(healthy),
        "slices": sum(len(ids) for ids in rows.values()),
        "replicated": any("::" in str(identity) for ids in rows.values() for identity in ids[:64]),
        "mig": any(str(name).startswith("nvidia.com/mig-") for name in rows)
        or any(u.startswith("MIG-") for u in healthy),
        "gpus_here": gpus,
        "foreign": ",".join(foreign[:8]) or None,
        "unregistered": ",".join(unregistered[:16]) or None,
        "allocated": _allocated(data.get("PodDeviceEntries"), set(rows)),
        "sockets": ",".join(sorted(sockets)[:16]) or None,
    }


def _allocated(entries: object, resources: set[Any]) -> int:
    """Devices that pods hold."""
    held: set[str] = set()
    for entry in entries if isinstance(entries, list) else []:
        if isinstance(entry, dict) and entry.get("ResourceName") in resources:
            groups = entry.get("DeviceIDs")
            groups = groups.values() if isinstance(groups, dict) else [groups]
            held |= {str(identity) for group in groups if isinstance(group, list) for identity in group[:1024]}
    return len(held)
