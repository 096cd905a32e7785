"""PCI functions as sysfs shows them: facts `pci_device` of GPUs, NVSwitches, and all bridges above GPUs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpuclinic.model import Fact, Where, digits

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuclinic.model import Scalar

DEVICES = "/sys/bus/pci/devices"
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_MOST_LANES = 32
"""A register that reads all ones shows 63 lanes; no link has more than 32."""
_UNSET = 0x20000000
_MEMORY = 0x200
"""Bits of the flags in `resource` (linux include/linux/ioport.h): IORESOURCE_UNSET, IORESOURCE_MEM."""


def chain(link: str) -> list[str]:
    """The functions on the way from the root down to a device, itself last, from where its link in /sys/bus/pci/devices leads."""
    return [part for part in link.split("/") if _ADDRESS.fullmatch(part)]


def kind_of(pci_class: str, vendor: str) -> str:
    """gpu, nvswitch, bridge or other."""
    code = pci_class.lower().removeprefix("0x")
    if vendor == "10de" and code.startswith("03"):
        return "gpu"
    if vendor == "10de" and code.startswith("0680"):
        return "nvswitch"
    return "bridge" if code.startswith("0604") else "other"


def device_fact(
    address: str, values: Mapping[str, str], config: bytes | None, driver: str | None, up: list[str]
) -> Fact:
    """The fact of one function. values: its small files by name ("current_link_speed"), what could not be read left out. up: chain above."""
    vendor = values.get("vendor", "").lower().removeprefix("0x")
    device = values.get("device", "").lower().removeprefix("0x")
    pci_class = values.get("class", "").lower().removeprefix("0x")
    kind = kind_of(pci_class, vendor)
    asleep = values.get("power_state", "").startswith("D3") or values.get("runtime_status") in (
        "suspended",
        "suspending",
    )
    fields: dict[str, Scalar] = {
        "address": address, "gpu": address if kind == "gpu" else None, "vendor": vendor or None,
        "id": f"{vendor}:{device}" if vendor and device else None, "pci_class": pci_class or None,
        "is_gpu": kind == "gpu", "is_nvswitch": kind == "nvswitch", "is_bridge": kind == "bridge", "driver": driver,
        "asleep": asleep, "numa": _whole(values.get("numa_node")), "power_state": values.get("power_state"),
        "parent": up[-1] if up else None, "above_gpu": kind == "bridge" or None, "port": _port(len(up)) if kind == "bridge" else None,
        "enabled": None if "enable" not in values else values["enable"] != "0",
        "rev_ff": None if asleep or config is None or len(config) < 16 else not config[:16].strip(b"\xff"),
    }  # fmt: skip
    fields |= _link(values)
    fields |= _errors(values)
    fields |= _windows(values.get("resource", ""))
    source = f"{DEVICES}/{address}"
    given: dict[str, Scalar] = {k: v for k, v in fields.items() if v is not None}
    places = {name: _place(source, name, values, value) for name, value in given.items()}
    return Fact(
        "pci_device", address, given, {"": Where(source, None, f"{address} {vendor}:{device}"), **places}, source
    )


def _port(depth: int) -> str:
    """A bridge's place by its depth: below a root port each switch has an upstream port, and downstream ports under it."""
    return "root" if depth == 0 else "upstream" if depth % 2 else "downstream"


_FILES = {
    "speed_gts": "current_link_speed", "speed_max_gts": "max_link_speed", "width": "current_link_width", "width_max": "max_link_width",
    "aer_corrected_total": "aer_dev_correctable", "aer_nonfatal_total": "aer_dev_nonfatal", "aer_fatal_total": "aer_dev_fatal",
    "rev_ff": "config", "bar_unassigned": "resource",
}  # fmt: skip


def _place(source: str, name: str, values: Mapping[str, str], value: Scalar) -> Where:
    file = _FILES.get(name, name)
    if name == "rev_ff":
        return Where(f"{source}/config", None, "the first 16 bytes read ff" if value else "config space answers")
    if name.startswith("aer_") and file in values:
        told = ", ".join(line for line in values[file].splitlines() if line.split()[-1:] not in (["0"], []))
        return Where(f"{source}/{file}", None, told or "all counters 0")
    text = values.get(file, str(value)).partition("\n")[0]
    return Where(f"{source}/{file}" if file in values else source, None, f"{name} = {text}")


def _whole(text: str | None) -> int | None:
    return digits(text)


def _speed(text: str | None) -> float | None:
    found = re.match(r"(\d+(?:\.\d+)?)\s*GT/s", text or "")
    return float(found[1]) if found else None


def _lanes(text: str | None) -> int | None:
    value = _whole(text)
    return value if value is not None and 0 <= value <= _MOST_LANES else None


def generation(speed: float | None) -> int | None:
    """The PCIe generation of a speed in GT/s."""
    return {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}.get(speed) if speed is not None else None


def _link(values: Mapping[str, str]) -> dict[str, Scalar]:
    speed, most = _speed(values.get("current_link_speed")), _speed(values.get("max_link_speed"))
    return {
        "speed_gts": speed, "speed_max_gts": most, "gen": generation(speed), "gen_max": generation(most),
        "width": _lanes(values.get("current_link_width")), "width_max": _lanes(values.get("max_link_width")) or None,
    }  # fmt: skip


def _errors(values: Mapping[str, str]) -> dict[str, Scalar]:
    """Totals of the counters that the kernel keeps for each function since it was found (sysfs-bus-pci-devices-aer_stats)."""
    out: dict[str, Scalar] = {}
    for name, file in (
        ("corrected", "aer_dev_correctable"),
        ("nonfatal", "aer_dev_nonfatal"),
        ("fatal", "aer_dev_fatal"),
    ):
        text = values.get(file)
        if text is None:
            continue
        counts = {
            row[0]: int(row[1])
            for line in text.splitlines()
            if len(row := line.split()) == 2 and re.fullmatch(r"\d{1,20}", row[1])
        }
        total = counts.pop(f"TOTAL_ERR_{'COR' if name == 'corrected' else name.upper()}", None)
        out[f"aer_{name}_total"] = total if total is not None else sum(counts.values())
        if name == "nonfatal" and counts:
            # probing a function that is not there is answered with UnsupReq at every boot of healthy machines
            out["aer_nonfatal_serious"] = sum(n for kind, n in counts.items() if kind != "UnsupReq")
        worst = max(counts, key=lambda kind: counts[kind], default=None)
        if worst is not None and counts[worst]:
            out[f"aer_{name}_worst"] = worst
    return out


def _windows(text: str) -> dict[str, Scalar]:
    """Memory windows that firmware did not give, and the largest of those given, from `resource` (start, end, flags a line)."""
    largest = 0
    unset = False
    for line in text.splitlines()[:6]:
        numbers = re.findall(r"0x([0-9a-fA-F]{1,16})", line)
        if len(numbers) != 3:
            continue
        start, end, flags = (int(n, 16) for n in numbers)
        if flags & _MEMORY:
            unset = unset or bool(flags & _UNSET) or start == 0
            largest = max(largest, end - start + 1 if end > start else 0)
    out: dict[str, Scalar] = {}
    if text.strip():
        out["bar_unassigned"] = unset
        out["largest_bar_mib"] = largest / 1048576 if largest else None
    return out


def join(facts: list[Fact], uptime_s: float | None) -> None:
    """Tells each function what the port above it can do and which link on the way narrows it, and how often errors come."""
    known = {fact.key: fact for fact in facts}
    for fact in facts:
        port = known.get(str(fact.fields.get("parent")))
        if port is not None and fact.fields.get("port") != "downstream":  # those hang on the inside of their switch
            _with_port(fact, port)
        corrected = fact.fields.get("aer_corrected_total")
        if uptime_s and uptime_s > 0 and isinstance(corrected, int):
            _add(
                fact,
                "aer_corrected_per_day",
                round(corrected * 86400.0 / max(uptime_s, 3600.0), 1),
                fact.where("aer_corrected_total"),
            )
    gpus = [fact for fact in facts if fact.fields.get("is_gpu")]
    below: dict[str, int] = {}
    for gpu in gpus:
        above = _above(gpu, known)
        _narrowest(gpu, above)
        for bridge in above:
            below[bridge.key] = below.get(bridge.key, 0) + 1
    for address, count in below.items():
        _add(known[address], "gpus_below", count, known[address].where())


def _add(fact: Fact, field: str, value: Scalar, where: Where) -> None:
    if value is not None:
        fact.fields[field] = value
        fact.lines[field] = where


def _least(one: Scalar, other: Scalar) -> float | None:
    numbers = [float(n) for n in (one, other) if isinstance(n, (int, float)) and n > 0]
    return min(numbers) if len(numbers) == 2 else None


def _with_port(fact: Fact, port: Fact) -> None:
    place = Where(
        port.source,
        None,
        f"{port.key}: at most x{port.fields.get('width_max')}, {port.fields.get('speed_max_gts')} GT/s",
    )
    _add(fact, "slot_width_max", port.fields.get("width_max"), place)
    _add(fact, "slot_gen_max", port.fields.get("gen_max"), place)
    width = _least(fact.fields.get("width_max"), port.fields.get("width_max"))
    gen = _least(fact.fields.get("gen_max"), port.fields.get("gen_max"))
    _add(fact, "width_possible", int(width) if width else None, place)
    _add(fact, "gen_possible", int(gen) if gen else None, place)


def _above(fact: Fact, known: Mapping[str, Fact]) -> list[Fact]:
    out: list[Fact] = []
    at = fact
    while len(out) < 32:
        port = known.get(str(at.fields.get("parent")))
        if port is None:
            break
        out.append(port)
        at = port
    return out


def _narrowest(gpu: Fact, above: list[Fact]) -> None:
    """A link between bridges on the way up that carries less than the GPU's own link could."""
    for bridge in above:
        if bridge.fields.get("slot_width_max") is None:
            continue  # a root or downstream port: its link is the one already counted from below
        width, speed = bridge.fields.get("width"), bridge.fields.get("speed_gts")
        own_width, own_speed = gpu.fields.get("width_possible"), gpu.fields.get("speed_gts")
        if not all(isinstance(n, (int, float)) and n for n in (width, speed, own_width, own_speed)):
            continue
        if float(width or 0) * float(speed or 0) < float(own_width or 0) * float(own_speed or 0):
            _add(gpu, "limited_by", bridge.key, bridge.where("width"))
            return


_ACS_CAPABILITY = 0x000D
_REDIRECTS = 0x0C
"""PCI Express base specification, ACS control register: bit 2 P2P request redirect, bit 3 P2P completion redirect."""


def acs_redirect(config: bytes) -> bool | None:
    """Whether a bridge sends peer traffic up to the root (ACS); None where it has no ACS, or only 64 bytes could be read (no root)."""
    if len(config) < 0x104:
        return None
    at = 0x100
    for _ in range(96):
        if at + 8 > len(config) or at < 0x100:
            return None
        head = int.from_bytes(config[at : at + 4], "little")
        if head in (0, 0xFFFFFFFF):
            return None
        if head & 0xFFFF == _ACS_CAPABILITY:
            return bool(int.from_bytes(config[at + 6 : at + 8], "little") & _REDIRECTS)
        at = head >> 20
        if at == 0:
            return None
    return None
