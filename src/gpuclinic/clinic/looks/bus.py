"""What stands on the PCI bus, from sysfs: the count that NVML's has to reach, links, errors, and the bridges above each GPU."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from gpuclinic.clinic.looks._look import Seen, Wanted, as_number, is_absent
from gpuclinic.model import Fact, Gap, Where
from gpuclinic.recognise.pci_tree import DEVICES, acs_redirect, chain, device_fact, join, kind_of

if TYPE_CHECKING:
    from gpuclinic.observe.asking import Asked

LOOK = "pci.bus"
_HANDED_OVER = ("vfio-pci", "pci-stub", "xen-pciback", "pciback")
"""Drivers that hold a GPU for a virtual machine: this system is not meant to use it."""
_SMALL_FILES = "[acdemnprv]*"
"""Begins the names of aer_*, class, current_*, device, enable, max_*, numa_node, power_state, resource, vendor, and few others."""
_WANTED_FILES = frozenset(
    ["aer_dev_correctable", "aer_dev_fatal", "aer_dev_nonfatal", "class", "current_link_speed", "current_link_width", "device",
     "enable", "max_link_speed", "max_link_width", "numa_node", "power_state", "resource", "vendor"]
)  # fmt: skip
_CONFIG_HEAD = 64
INVENTORY = "/etc/gpuclinic/inventory.toml"


def look_at_bus(host: Asked, wanted: Wanted) -> Seen:
    """Facts `gpu_count` (tool "pci"), `pci_device` of GPUs, NVSwitches and bridges above GPUs, `view`, `power_budget`."""
    seen = Seen()
    if wanted.sample == 0:
        _view(host, seen)
    vendors = host.files(f"{DEVICES}/*/vendor", 64)
    if not any(answer.ok for answer in vendors.values()):
        listing = host.listing(DEVICES)
        why = next((a.why for a in vendors.values()), None) or listing.why or "no PCI devices are shown"
        why = "not in the snapshot" if not host.live and is_absent(listing) else f"{DEVICES}: {why}"
        seen.gaps.append(Gap(LOOK, why, required=True))
        return seen
    nvidia = [path.rsplit("/", 2)[1] for path, a in vendors.items() if a.ok and a.line.lower() == "0x10de"]
    facts = _devices(host, nvidia) if nvidia else []
    uptime = host.file("/proc/uptime", 64)
    join(facts, as_number(uptime.line) if uptime.ok else None)
    seen.facts += facts
    gpus = [fact for fact in facts if fact.fields.get("is_gpu")]
    count = sum(fact.fields.get("driver") not in _HANDED_OVER for fact in gpus)
    switches = sum(bool(fact.fields.get("is_nvswitch")) for fact in facts)
    seen.fact("gpu_count", "pci", {"value": count, "tool": "pci", "handed_over": len(gpus) - count or None}, DEVICES)
    if switches:
        seen.fact("nvswitch_count", "pci", {"value": switches, "tool": "pci"}, DEVICES)
    _expected(host, wanted, seen, count)
    return seen


def _expected(host: Asked, wanted: Wanted, seen: Seen, count: int) -> None:
    """What should be there: --expect-gpus, and the inventory that the machine's owner wrote."""
    expected = wanted.expect_gpus
    if expected is not None:
        seen.fact("gpu_count", "expected", {"value": expected, "tool": "expected"}, "--expect-gpus")
    noted = _inventory(host)
    if noted is not None:
        seen.fact("gpu_count", "inventory", {"value": noted, "tool": "inventory"}, INVENTORY)
    if count == 0 and expected is None and noted is None:
        handed = any(fact.fields.get("is_gpu") for fact in seen.facts)
        why = "all NVIDIA GPUs are handed to virtual machines" if handed else "no NVIDIA GPU stands on the PCI bus"
        seen.gaps.append(Gap("gpu.none", f"{why}; where that is right, say --expect-gpus 0", required=True))


def _inventory(host: Asked) -> int | None:
    """`gpus = N` of the inventory, or of its table [hosts."name"]; None where there is none."""
    answer = host.file(INVENTORY, 1 << 18)
    if not answer.ok:
        return None
    name = host.file("/proc/sys/kernel/hostname", 256)
    table = ""
    found: dict[str, int] = {}
    for line in answer.lines():
        head = re.match(r"\s*\[\s*(?:hosts\.)?[\"']?([\w.-]{1,253})[\"']?\s*\]", line)
        value = re.match(r"\s*gpus\s*=\s*(\d{1,4})\s*(?:#.*)?$", line)
        if head:
            table = head[1]
        elif value:
            found[table] = int(value[1])
    return found.get(name.line, found.get("")) if name.ok else found.get("")


def _devices(host: Asked, nvidia: list[str]) -> list[Fact]:
    ways = {path.rsplit("/", 1)[1]: chain(link) for path, link in host.links(f"{DEVICES}/*").items()}
    values = {address: _small_files(host, address) for address in nvidia}
    kinds = {address: kind_of(found.get("class", ""), "10de") for address, found in values.items()}
    mine = [address for address in nvidia if kinds[address] in ("gpu", "nvswitch")]
    above = {step for address in mine if kinds[address] == "gpu" for step in ways.get(address, [])[:-1]}
    drivers = host.links(f"{DEVICES}/*/driver")
    facts: list[Fact] = []
    for address in sorted({*mine, *above}):
        found = values.get(address) or _small_files(host, address)
        config = None
        if address in mine:
            runtime = host.file(f"{DEVICES}/{address}/power/runtime_status", 64)
            if runtime.ok:
                found["runtime_status"] = runtime.line
            if runtime.line not in ("suspended", "suspending") and not found.get("power_state", "").startswith("D3"):
                head = host.file(f"{DEVICES}/{address}/config", _CONFIG_HEAD)  # of a sleeping one it would wake it
                config = head.data if head.ok else None
        driver = drivers.get(f"{DEVICES}/{address}/driver", "").rsplit("/", 1)[-1] or None
        facts.append(device_fact(address, found, config, driver, ways.get(address, [])[:-1]))
    return facts


def _small_files(host: Asked, address: str) -> dict[str, str]:
    answers = host.files(f"{DEVICES}/{address}/{_SMALL_FILES}", 4096)
    named = {path.rsplit("/", 1)[1]: answer for path, answer in answers.items()}
    return {name: answer.text.strip() for name, answer in named.items() if name in _WANTED_FILES and answer.ok}


_VIRTUAL = re.compile(
    r"qemu|kvm|vmware|virtualbox|xen\b|hvm domu|virtual machine|bochs|openstack|google compute|openshift|parallels|cloud hypervisor|firecracker",
    re.IGNORECASE,
)


def _view(host: Asked, seen: Seen) -> None:
    """From where we look: a container or a job sees only the GPUs it was given, a virtual machine only what was passed to it."""
    fields: dict[str, Any] = {"container": _container(host)}
    fields["limited"] = fields["container"] is not None
    names = {
        path.rsplit("/", 1)[1]: a.line
        for path, a in host.files("/sys/class/dmi/id/[bps]*_[cvnt]*", 256).items()
        if a.ok
    }
    product = f"{names.get('sys_vendor', '')} {names.get('product_name', '')}".strip()
    flags = host.file("/proc/cpuinfo", 16384)
    known = bool(product) or "flags" in flags.text
    if known:
        virtual = (
            bool(_VIRTUAL.search(product))
            or re.search(r"^flags\b.*\bhypervisor\b", flags.text, re.MULTILINE) is not None
        )
        fields["virtual"] = virtual
        fields["bare_metal"] = not virtual and fields["container"] is None
    fields["product"] = product or None
    chassis = names.get("chassis_type")
    fields["laptop"] = chassis in ("8", "9", "10", "11", "14", "30", "31", "32") if chassis else None
    seen.fact("view", "host", fields, "/proc and /sys")
    _budget(host, seen)


def _container(host: Asked) -> str | None:
    if host.file("/.dockerenv", 16).ok:
        return "a Docker container"
    for path in ("/run/.containerenv", "/run/systemd/container"):
        if host.file(path, 256).ok:
            return "a container"
    groups = host.file("/proc/self/cgroup", 4096).text if host.live else ""
    for words, name in (
        ("kubepods", "a pod"),
        ("/docker", "a Docker container"),
        ("libpod", "a container"),
        ("/lxc", "a container"),
    ):
        if words in groups:
            return name
    if re.search(r"slurm.*/job_\d+", groups):
        return "a Slurm job"
    mounts = host.file("/proc/mounts", 4096)
    if re.match(r"overlay / overlay ", mounts.text):
        return "a container"
    return None


def _budget(host: Asked, seen: Seen) -> None:
    """Fact `power_budget`: what the processors may draw; power supplies and GPUs are added when all facts are there."""
    limits = [
        value / 1e6
        for path, answer in host.files("/sys/class/powercap/intel-rapl:*/constraint_0_power_limit_uw", 64).items()
        if answer.ok and path.count(":") == 1 and (value := as_number(answer.line) or 0) > 0
    ]
    packages = {
        a.line for a in host.files("/sys/devices/system/cpu/cpu*/topology/physical_package_id", 64).values() if a.ok
    }
    place = (
        Where("/sys/class/powercap", None, " + ".join(f"{w:g} W" for w in limits))
        if limits
        else Where("/sys/devices/system/cpu")
    )
    sane = [w for w in limits if 5 <= w <= 1000]
    fields: dict[str, Any] = {
        "sockets": len(packages) or None,
        "cpu_w": sum(sane) if sane and len(sane) == len(limits) else None,
    }
    given = {k: v for k, v in fields.items() if v is not None}
    seen.facts.append(Fact("power_budget", "host", given, {"": place, "cpu_w": place}, place.source))


def look_at_acs(host: Asked, wanted: Wanted) -> Seen:
    """Facts `pci_acs` of the bridges above GPUs (root may read their extended configuration space), and `iommu`."""
    seen = Seen()
    devices = {fact.key: fact for fact in wanted.of("pci_device")}
    gpus = [fact for fact in devices.values() if fact.fields.get("is_gpu")]
    if len(gpus) < 2:
        return seen  # there is no peer
    refused = 0
    for fact in devices.values():
        if not fact.fields.get("is_bridge"):
            continue
        path = f"{DEVICES}/{fact.key}/config"
        answer = host.file(path, 4096)
        redirect = acs_redirect(answer.data) if answer.ok else None
        if redirect is not None:
            above = devices.get(str(fact.fields.get("parent")))
            fields: dict[str, Any] = {
                "is_gpu": False, "acs_redirect": redirect, "switch_port": fact.fields.get("port") == "downstream",
                "gpus_below": fact.fields.get("gpus_below"),
                "gpus_in_switch": above.fields.get("gpus_below") if above is not None else fact.fields.get("gpus_below"),
            }  # fmt: skip
            told = f"ACS control of {fact.key}: peer traffic {'is' if redirect else 'is not'} sent to the root"
            seen.fact("pci_acs", fact.key, fields, path, acs_redirect=told)
        refused += not answer.ok or len(answer.data) <= _CONFIG_HEAD
    if refused and host.live:
        why = f"ACS of {refused} bridges: only root may read their extended configuration space"
        seen.gaps.append(Gap("pcie.acs", why))
    _iommu(host, seen, gpus)
    return seen


def _iommu(host: Asked, seen: Seen, gpus: list[Fact]) -> None:
    groups = host.links(f"{DEVICES}/*/iommu_group")
    modes = host.files("/sys/kernel/iommu_groups/*/type", 64)
    kinds: list[str] = []
    for gpu in gpus:
        group = groups.get(f"{DEVICES}/{gpu.key}/iommu_group", "").rsplit("/", 1)[-1]
        kind = modes.get(f"/sys/kernel/iommu_groups/{group}/type")
        if group and kind is not None and kind.ok:
            kinds.append(kind.line)
    translated = [kind for kind in kinds if kind.startswith("DMA")]
    if kinds:
        fields: dict[str, Any] = {"type": (translated or kinds)[0], "translated_gpus": len(translated)}
        seen.fact("iommu", "host", fields, "/sys/kernel/iommu_groups")
