"""How series say what they are about: labels of each kind of fact."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuclinic.watch.exporter.exposition import Labels, labels

if TYPE_CHECKING:
    from gpuclinic.model import Fact

_KEY = "@key"
_FIELDS: dict[str, tuple[tuple[str, str], ...]] = {
    "gpu_count": (("source", "tool"),),
    "pressure": (("resource", _KEY),),
    "fs": (("mount", _KEY), ("device", "device"), ("type", "type")),
    "cgroup": (("path", _KEY),),
    "cpu_quota": (("path", _KEY),),
    "kernel_table": (("table", _KEY),),
    "ib_port": (("device", "device"), ("port", "port")),
    "ib_counters": (("device", "device"), ("port", "port")),
    "net_interface": (("interface", _KEY),),
    "block_device": (("device", _KEY),),
    "sensor": (("sensor", _KEY), ("name", "name"), ("type", "type"), ("unit", "unit")),
    "time_sync": (("source", _KEY),),
    "numa_node": (("node", _KEY),),
}
"""Labels of facts that are no GPU's, by kind: label and field, or the key of the fact."""
ONE_OF_A_KIND = frozenset(("memory", "vm_counters", "cpu_times", "process_count", "power_reading", "cpu_throttling"))
OF_A_GPU = frozenset(("gpu", "mig_device", "nvlink", "nvlink_gpu"))
_KEYS = {"fs": "mount", "pressure": "resource", "cgroup": "path", "net_interface": "name", "block_device": "device"}
"""Which field of a fact says the same as its key."""


def label_of_field(kind: str, field: str) -> str | None:
    """The label that carries a field; None where it is no label."""
    if kind in OF_A_GPU:
        return "model" if field == "name" else None
    for label, source in _FIELDS.get(kind, ()):
        if source == field or (source == _KEY and _KEYS.get(kind) == field):
            return label
    return None


def labels_of(fact: Fact, gpus: Gpus) -> Labels:
    """The labels of all series of a fact."""
    if fact.kind in OF_A_GPU:
        return gpus.labels(fact)
    if fact.kind in ONE_OF_A_KIND:
        return labels()
    named = _FIELDS.get(fact.kind, ((fact.kind, _KEY),))
    return labels(*((label, fact.key if field == _KEY else fact.fields.get(field)) for label, field in named))


def label_of_key(kind: str) -> str | None:
    """The label that carries the key of facts that are no GPU's; None where there is one of the kind, or the label is made of fields."""
    return next((label for label, source in _FIELDS.get(kind, ()) if source == _KEY), None)


class Gpus:
    """The GPUs of a tick, to be found by address or index."""

    def __init__(self, facts: list[Fact]) -> None:
        self.facts = [fact for fact in facts if fact.kind == "gpu"]
        self._by_key: dict[str, Labels] = {}
        self._by_index: dict[int, Labels] = {}
        for fact in self.facts:
            made = gpu_labels(fact)
            self._by_key[fact.key] = made
            index = fact.fields.get("index")
            if isinstance(index, int):
                self._by_index.setdefault(index, made)

    def of_key(self, key: str) -> Labels:
        """Labels of the GPU at an address; the address alone where there is none."""
        return self._by_key.get(key) or labels(("pci_bus_id", key))

    def labels(self, fact: Fact) -> Labels:
        """Labels of a GPU, one of its links, or one of its MIG devices."""
        fields = fact.fields
        if fact.kind == "gpu":
            return self._by_key[fact.key]
        index = fields.get("gpu_index")
        whole = self._by_index.get(index) if isinstance(index, int) else None
        if whole is None:
            whole = labels(("gpu", index))
        if fact.kind == "nvlink":
            return whole.plus(("link", fields.get("link")))
        if fact.kind == "mig_device":
            return whole.plus(
                ("mig", fields.get("device")), ("mig_profile", fields.get("profile")), ("mig_uuid", fields.get("uuid")),
                ("gpu_instance", fields.get("gi")), ("compute_instance", fields.get("ci")),
            )  # fmt: skip
        return whole


def gpu_labels(fact: Fact) -> Labels:
    """index, UUID, address and model of a GPU."""
    fields = fact.fields
    address = fields.get("bus_id") or (fact.key if ":" in fact.key else None)
    return labels(
        ("gpu", fields.get("index")),
        ("uuid", fields.get("uuid")),
        ("pci_bus_id", address),
        ("model", fields.get("name")),
    )
