"""Facts that texts told (df, last -x, free, ibstat, lspci, lsmod) given the fields that the rows of `check` need. Pure.

On a running machine looks make these from /proc and /sys. A snapshot made by hand often holds only what programs printed.
"""

from __future__ import annotations

import calendar
import re
import time
from typing import TYPE_CHECKING

import msgspec

from gpuclinic.model import Fact, Where
from gpuclinic.recognise import host_state, network_state, pci_tree, storage_state

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gpuclinic.model import Scalar, Signal

_MERGED = frozenset(
    {"fs", "pci_device", "ib_port", "ib_counters", "service", "module", "mount", "memory", "net_interface"}
)
"""Kinds of which several programs tell parts: lspci -nn has the ids of what lspci -vvv tells the links of."""
_ROUNDED = re.compile(r"-\w*h", re.ASCII)
_NO_INODES = ("btrfs", "zfs", "vfat", "exfat", "ntfs")
_NOT_FILES = (
    "/sys",
    "/proc",
    "/snap",
    "/run/",
    "/dev/",
    "/boot/efi",
    "/var/lib/docker/",
    "/var/lib/containers/",
    "/var/lib/kubelet/",
)
_PSEUDO = {
    "tmpfs": "tmpfs",
    "udev": "devtmpfs",
    "devtmpfs": "devtmpfs",
    "overlay": "overlay",
    "efivarfs": "efivarfs",
    "none": "tmpfs",
}
_SAME_BOOT = 600.0
"""Seconds between what last and the journal take for the moment of one boot."""


def merged(facts: Sequence[Fact]) -> list[Fact]:
    """Facts of one thing from several texts as one: each field from the first that has it; what was rounded comes last."""
    out: dict[tuple[str, str, str | None], Fact] = {}
    order = sorted(range(len(facts)), key=lambda n: facts[n].kind == "fs" and bool(_ROUNDED.search(facts[n].source)))
    kept: list[tuple[int, Fact]] = [(n, f) for n, f in enumerate(facts) if f.kind not in _MERGED]
    first: dict[tuple[str, str, str | None], int] = {}
    for number in order:
        fact = facts[number]
        if fact.kind not in _MERGED:
            continue
        key = (fact.kind, fact.key, fact.host)
        held = out.get(key)
        first[key] = min(first.get(key, number), number)
        out[key] = fact if held is None else with_fields(held, fact)
    kept += [(first[key], fact) for key, fact in out.items()]
    return [fact for _, fact in sorted(kept, key=lambda pair: pair[0])]


def with_fields(fact: Fact, other: Fact, names: Iterable[str] | None = None) -> Fact:
    """A fact with those fields of another that it has not got, and where they stand."""
    wanted = other.fields if names is None else [name for name in names if name in other.fields]
    more = {name: other.fields[name] for name in wanted if fact.fields.get(name) is None}
    places = {name: other.where(name) for name in more}
    return msgspec.structs.replace(fact, fields={**fact.fields, **more}, lines={**fact.lines, **places})


# ---- storage


def mounts(told: Sequence[Fact], fstab: str) -> list[Fact]:
    """Facts `mount` of mount, findmnt or a saved table, as /proc/mounts gives them."""
    lines = [
        " ".join([*(_escaped(f.fields.get(n)) for n in ("device", "mount", "type", "options")), "0 0"]) for f in told
    ]
    by_place = {f.key: f for f in told}
    out = []
    for fact in storage_state.of_files(storage_state.mounts("\n".join(lines), fstab)):
        origin = by_place.get(fact.key)
        out.append(
            fact if origin is None else msgspec.structs.replace(fact, lines=dict(origin.lines), source=origin.source)
        )
    return out


def _escaped(value: Scalar) -> str:
    return re.sub(r"\s", lambda m: f"\\{ord(m[0]):03o}", str(value or "-"))


def file_systems(told: Sequence[Fact], mounted: Mapping[str, Fact], memory_mib: float | None) -> list[Fact]:
    """Facts `fs` of df, with the fields that statvfs gives. mounted: facts `mount` by their place; empty where they are unknown."""
    out: list[Fact] = []
    for fact in told:
        place, device = str(fact.fields.get("mount") or fact.key), str(fact.fields.get("device") or "")
        mount = mounted.get(place) or _guessed(place, device, fact)
        if mount is None or (mounted and place not in mounted):
            continue
        fields: dict[str, Scalar] = dict(fact.fields)
        kind = str(mount.fields.get("type") or fact.fields.get("type") or "")
        fields |= {
            "mount": place, "type": kind or None, "network": bool(mount.fields.get("network") or fact.fields.get("network")),
            "system": mount.fields.get("system"), "read_only": mount.fields.get("read_only"),
        }  # fmt: skip
        if kind in _NO_INODES or fields.get("inode_use_pct") is None:
            fields.pop("inode_use_pct", None)
            fields.pop("inodes_free", None)
        size, used, available = (fields.get(f"{n}_mib") for n in ("size", "used", "available"))
        if isinstance(available, (int, float)):
            fields["available_gib"] = round(available / 1024, 1)
        if memory_mib and isinstance(size, (int, float)):
            fields["size_of_memory_pct"] = round(100 * size / memory_mib, 1)
            fields["used_of_memory_pct"] = round(100 * used / memory_mib, 1) if isinstance(used, (int, float)) else None
        given = {name: value for name, value in fields.items() if value is not None}
        out.append(msgspec.structs.replace(fact, key=place[:300], fields=given))
    return out


def _guessed(place: str, device: str, fact: Fact) -> Fact | None:
    """The mount under a line of df where no table of mounts is there; None of what holds nobody's files."""
    kind = str(fact.fields.get("type") or _PSEUDO.get(device, "squashfs" if device.startswith("/dev/loop") else "ext4"))
    if fact.fields.get("network"):
        kind = kind if kind in ("nfs", "nfs4", "cifs", "lustre", "ceph") else "nfs4"
    if place != "/dev/shm" and place.startswith(_NOT_FILES):  # noqa: S108 - a name, nothing is written there
        return None
    line = f"{_escaped(device)} {_escaped(place)} {kind} rw 0 0"
    found = storage_state.of_files(storage_state.mounts(line))
    if not found:
        return None
    fields = {name: value for name, value in found[0].fields.items() if name not in ("read_only", "options")}
    if "type" not in fact.fields and device not in _PSEUDO:
        fields.pop("type")
    return msgspec.structs.replace(found[0], fields=fields)


# ---- boots


def restarts(told: Sequence[Fact], now: float, up_s: float | None, zone_s: float) -> list[Fact]:
    """Facts `restart` of last -x, who -b and journalctl --list-boots; last knows how the boot before ended, the others only when."""
    found: list[tuple[float, Fact]] = []
    for fact in told:
        at = _boot_time(fact, now, zone_s)
        if at is None or at > now + 86400.0:
            continue
        near = next((n for n, (other, _) in enumerate(found) if abs(other - at) < _SAME_BOOT), None)
        if near is None:
            found.append((at, fact))
        elif found[near][1].fields.get("how") == "unknown":
            found[near] = (at, fact)
    found.sort(key=lambda pair: pair[0])
    out: list[Fact] = []
    for number, (at, fact) in enumerate(found):
        latest = number == len(found) - 1
        if latest and up_s is not None and abs(now - up_s - at) > 3 * 3600.0:
            latest = False  # the list is older than this boot
        how = {"crash": "unclean", "reboot": "planned"}.get(str(fact.fields.get("how")), "unknown")
        shown = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(max(0.0, min(at, 4e9))))
        fields: dict[str, Scalar] = {"at": at, "time": shown, "how": how, "latest": latest, "age_s": max(0.0, now - at)}
        if fact.fields.get("kernel"):
            fields["kernel"] = fact.fields["kernel"]
        if number:
            fields["ran_s"] = at - found[number - 1][0]
        places = {"": fact.where(), "how": fact.where("how"), "ran_s": fact.where()}
        out.append(Fact("restart", shown, fields, places, fact.source, fact.host))
    return out


def _boot_time(fact: Fact, now: float, zone_s: float) -> float | None:
    """Unix time of a boot; last leaves out the year, so the last that fits its weekday, if there is one, is taken."""
    text = re.sub(r"\s+", " ", str(fact.fields.get("time") or ""))
    found = re.match(r"\w{3} (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?: (UTC|GMT))?", text)
    if found:
        seconds = _epoch(found[1], "%Y-%m-%d %H:%M:%S")
        return None if seconds is None else seconds - (0.0 if found[2] else zone_s)
    if fact.time is not None and not fact.time.uptime and not fact.time.yearless:
        return fact.time.seconds - (0.0 if fact.time.zoned else zone_s)
    year = time.gmtime(now).tm_year
    for choice in (year, year - 1):
        dated = f"{choice} {text}"
        seconds = _epoch(dated, "%Y %a %b %d %H:%M") or _epoch(dated, "%Y %a %b %d %H:%M:%S")
        if seconds is not None and time.strftime("%a", time.gmtime(seconds)) != text[:3]:
            continue
        seconds = seconds or _epoch(dated, "%Y %b %d %H:%M")
        if seconds is not None and seconds <= now + 86400.0:
            return seconds - zone_s
    return None


def _epoch(text: str, form: str) -> float | None:
    try:
        return float(calendar.timegm(time.strptime(text, form)))
    except (ValueError, OverflowError):
        return None


# ---- memory, ports, bus


def memory(fact: Fact) -> Fact | None:
    """Fact `memory` of free or top, with the shares that /proc/meminfo gives; None where it does not tell the whole."""
    names = (("MemTotal", "total_mib"), ("MemFree", "free_mib"), ("MemAvailable", "available_mib"))
    kib = {name: value * 1024 for name, field in names if isinstance(value := fact.fields.get(field), (int, float))}
    total, used = fact.fields.get("swap_total_mib"), fact.fields.get("swap_used_mib")
    if isinstance(total, (int, float)) and isinstance(used, (int, float)):
        kib |= {"SwapTotal": total * 1024, "SwapFree": max(0.0, total - used) * 1024}
    if "MemTotal" not in kib or "MemAvailable" not in kib:
        return None
    made = host_state.memory("".join(f"{name}: {value:.0f} kB\n" for name, value in kib.items()))
    if not made:
        return None
    place = fact.where("available_mib")
    return Fact("memory", "host", made[0].fields, {"": place}, fact.source, fact.host)


def ports(told: Sequence[Fact], counters: Sequence[Fact]) -> list[Fact]:
    """Facts `ib_port` of ibstat, ibv_devinfo or rdma link beside their like."""
    downed = {fact.key: fact.fields.get("link_downed") for fact in counters}
    out: list[Fact] = []
    for fact in told:
        fields = dict(fact.fields)
        layer = fields.get("link_layer", "-")
        fields.setdefault("virtual", False)
        fields.setdefault("group", f"{fields.get('ca_type', '-')} {layer} {fields.get('port', 1)}")
        if isinstance(downed.get(fact.key), int):
            fields["link_downed"] = downed[fact.key]
        out.append(msgspec.structs.replace(fact, fields=fields))
    network_state.beside_peers(out)
    return out


def bus(told: Sequence[Fact], uptime_s: float | None) -> list[Fact]:
    """Facts `pci_device` of lspci -vvv with the ports above them, as sysfs gives them."""
    owners: dict[str, str] = {}
    for fact in told:
        secondary = fact.fields.get("secondary")
        if isinstance(secondary, str) and secondary not in ("", "00"):
            owners[f"{fact.key[:-7]}{secondary}"] = fact.key
    out: list[Fact] = []
    for fact in told:
        fields = {name: value for name, value in fact.fields.items() if name not in ("gen", "gen_max")}
        for speed, gen in (("speed_gts", "gen"), ("speed_max_gts", "gen_max")):
            value = fields.get(speed)
            number = pci_tree.generation(float(value)) if isinstance(value, (int, float)) else None
            if number is not None:
                fields[gen] = number
        parent = owners.get(fact.key[:-5])
        if parent is not None and parent != fact.key:
            fields["parent"] = parent
        fields.setdefault("is_bridge", "secondary" in fields)
        fields.setdefault("asleep", False)
        out.append(msgspec.structs.replace(fact, fields=fields, lines=dict(fact.lines)))
    pci_tree.join(out, uptime_s)
    return out


# ---- tasks that hang


def hung_pids(signals: Iterable[Signal]) -> dict[int, tuple[float, Where]]:
    """Tasks that the kernel says were blocked, with the seconds it names, by pid."""
    out: dict[int, tuple[float, Where]] = {}
    for signal in signals:
        pid, seconds = signal.groups.get("pid", ""), signal.groups.get("seconds", "")
        if "blocked for more than" in signal.where.text and re.fullmatch(
            r"\d{1,9} \d{1,9}", f"{pid} {seconds}", re.ASCII
        ):
            out[int(pid)] = (float(seconds), signal.where)
    return out


def confirmed(task: Fact, hung: Mapping[int, tuple[float, Where]]) -> Fact:
    """A task in uninterruptible sleep that the kernel's log calls blocked, too, is stuck: one look at it is enough."""
    told = hung.get(int(pid)) if isinstance(pid := task.fields.get("pid"), int) else None
    if told is None or task.fields.get("confirmed"):
        return task
    seconds, place = told
    fields = {**task.fields, "confirmed": True, "watched_s": 0.0, "stuck_s": seconds}
    return msgspec.structs.replace(task, fields=fields, lines={**task.lines, "stuck_s": place, "confirmed": place})
