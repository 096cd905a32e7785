"""What the facts of one machine say together: a GPU's fields beside those of its model, its links, the power it may draw.

Rows judge one fact at a time; here each fact gets the fields of its neighbours that its rows need. Nothing is read.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from gpuclinic.model import Fact, Where
from gpuclinic.recognise.parsers.gpu_tables import read_table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuclinic.model import Scalar

_TABLE = "gpu_skus.tsv"
_WHOLE = ("nvlinks", "pcie_gen", "pcie_width", "mig_max")
_KEPT = ("use", "form", "nvlinks", "nvlink_by", "pcie_gen", "pcie_width", "ecc", "row_remap", "mig_max")


@functools.cache
def _models() -> tuple[dict[str, dict[str, str]], dict[str, dict[str, str]]]:
    by_name: dict[str, dict[str, str]] = {}
    by_id: dict[str, dict[str, str]] = {}
    doubtful: set[str] = set()
    for row in read_table(_TABLE):
        by_name[_plain(row["nvml_name"])] = row
        for device in row["pci_device_ids"].lower().split():
            if device in by_id:
                doubtful.add(device)  # two boards share the id: only the name tells them apart
            by_id[device] = row
    for device in doubtful:
        del by_id[device]
    return by_name, by_id


def _plain(name: str) -> str:
    return " ".join(name.lower().removeprefix("nvidia ").split())


def model_of(name: str | None, pci_id: str | None) -> dict[str, str] | None:
    """The row of gpu_skus.tsv by the PCI id ("10de:2330"), else by the whole name: parts of names lie (GH200 holds H200)."""
    by_name, by_id = _models()
    device = (pci_id or "").lower().rpartition(":")[2].removeprefix("0x")
    return by_id.get(device) or by_name.get(_plain(name or ""))


def complete(facts: Iterable[Fact], now: float, psu_watts: float | None = None) -> None:
    """Adds to `gpu` the fields sku_... of its model, to links and bus functions those of their GPU; fills `power_budget`.

    now: Unix seconds of the examined machine, for the age of events in the board's log.
    """
    kinds: dict[str, list[Fact]] = {}
    for fact in facts:
        kinds.setdefault(fact.kind, []).append(fact)
    on_bus = {fact.key: fact for fact in kinds.get("pci_device", ())}
    by_index: dict[str, Fact] = {}
    for gpu in kinds.get("gpu", ()):
        _with_model(gpu, on_bus.get(gpu.key))
        by_index.setdefault(str(gpu.fields.get("index")), gpu)
        by_index.setdefault(gpu.key, gpu)
        if gpu.key in on_bus:
            _onto_bus(on_bus[gpu.key], gpu)
    for link in (*kinds.get("nvlink", ()), *kinds.get("nvlink_gpu", ())):
        owner = by_index.get(str(link.fields.get("bus_id") or link.fields.get("gpu_index")))
        if owner is not None:
            _with_owner(link, owner)
    for event in kinds.get("sel_event", ()):
        _with_age(event, now)
    for budget in kinds.get("power_budget", ()):
        _filled(budget, kinds, psu_watts)


def _put(fact: Fact, field: str, value: Scalar, where: Where) -> None:
    if value is not None and fact.fields.get(field) is None:
        fact.fields[field] = value
        fact.lines[field] = where


def _with_model(gpu: Fact, device: Fact | None) -> None:
    name = gpu.fields.get("name")
    pci_id = gpu.fields.get("pci_id") or (device.fields.get("id") if device is not None else None)
    row = model_of(str(name) if name else None, str(pci_id) if pci_id else None)
    if row is None:
        return
    for column in _KEPT:
        text = row[column]
        if text:
            value: Scalar = int(text) if column in _WHOLE and text.isdigit() else text
            _put(gpu, f"sku_{column}", value, Where(_TABLE, None, f"{row['nvml_name']}: {column} = {text}"))


def _onto_bus(device: Fact, gpu: Fact) -> None:
    for field in ("utilization_pct", "performance_state", "power_w", "power_limit_w", "index", "uuid"):
        _put(device, field, gpu.fields.get(field), gpu.where(field))
    _put(device, "gpu_name", gpu.fields.get("name"), gpu.where("name"))


def _with_owner(link: Fact, owner: Fact) -> None:
    for field in ("sku_nvlinks", "sku_nvlink_by", "sku_form", "mig_mode", "bus_id", "name"):
        _put(link, field, owner.fields.get(field), owner.where(field))
    if isinstance(owner.fields.get("index"), int):
        _put(link, "gpu_index", owner.fields["index"], owner.where())


GPU_FACTOR = 1.2
"""Short peaks of a GPU go above its limit: power supplies are laid out for 120 % of the limits."""
HOST_BASE_W = 150.0
HOST_PER_GPU_W = 50.0
CPU_W = 225.0
"""Where no RAPL limit tells what a processor may draw. Base: board, memory, disks. Per GPU: its share of fans and network."""


def _filled(budget: Fact, kinds: dict[str, list[Fact]], psu_watts: float | None) -> None:
    """need_w = 1.2 x the sum of the GPUs' limits + processors (RAPL limit, else 225 W each) + 150 W + 50 W a GPU."""
    limits = [_number(g.fields.get("power_limit_w")) for g in kinds.get("gpu", ())]
    known = [value for value in limits if value]
    where = Where("power limits of the GPUs", None, " + ".join(f"{w:g} W" for w in known))
    if known and len(known) == len(limits):
        gpu_w = sum(known)
        cpu_w = _number(budget.fields.get("cpu_w")) or CPU_W * (_number(budget.fields.get("sockets")) or 1.0)
        host_w = cpu_w + HOST_BASE_W + HOST_PER_GPU_W * len(known)
        _put(budget, "gpu_limits_w", gpu_w, where)
        _put(budget, "host_w", host_w, budget.where("cpu_w"))
        text = f"1.2 x {gpu_w:g} W (limits of {len(known)} GPUs) + {host_w:g} W (processors and the rest)"
        _put(budget, "need_w", GPU_FACTOR * gpu_w + host_w, Where("power budget", None, text))
    if psu_watts:
        _put(budget, "psu_w", psu_watts, Where("--psu-watts", None, f"{psu_watts:g} W"))
        _put(budget, "psu_source", "--psu-watts", Where("--psu-watts"))
        return
    supplies = _of_one_source([p for p in kinds.get("psu", ()) if p.fields.get("present")])
    if not all(_number(p.fields.get("capacity_w")) for p in supplies):
        return  # a supply of unknown size: no sum
    watts = [_number(p.fields.get("capacity_w")) or 0.0 for p in supplies]
    if watts and all(w >= 200 for w in watts):  # smaller ones are laptops' and placeholders of firmware
        _put(budget, "psu_w", sum(watts), supplies[0].where("capacity_w"))
        _put(budget, "psu_count", len(watts), supplies[0].where())
        _put(budget, "psu_without_one_w", sum(watts) - max(watts), supplies[0].where("capacity_w"))
        _put(budget, "psu_source", "DMI", supplies[0].where())


def _of_one_source(supplies: list[Fact]) -> list[Fact]:
    """The same supplies may be told by the firmware's table and by dmidecode's text: the source that tells of most of them."""
    sources: dict[str, list[Fact]] = {}
    for supply in supplies:
        source = "sysfs" if supply.source.startswith("/sys/") else supply.source
        sources.setdefault(source, []).append(supply)
    return max(sources.values(), key=len, default=[])


def _with_age(event: Fact, now: float) -> None:
    """How long ago an event of the board's log was; controllers keep their own clock, often local time, so to the day at best."""
    if event.time is not None and not event.time.uptime:
        _put(event, "age_s", max(0.0, now - event.time.seconds), event.where())


def _number(value: Scalar) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
