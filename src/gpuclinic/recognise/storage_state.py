"""Mounts, disks and network file systems of a machine, out of the texts of /proc and /sys. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from gpuclinic.model import Document, Fact, Where
from gpuclinic.recognise.making import Making, number, whole
from gpuclinic.recognise.parsers.disk import parse_mounts

if TYPE_CHECKING:
    from collections.abc import Mapping

NETWORK_TYPES = (
    "nfs", "nfs4", "lustre", "ceph", "cifs", "smb3", "beegfs", "beegfs_nodev", "gpfs", "wekafs", "glusterfs", "9p", "afs", "pvfs2", "orangefs",
    "gfs2", "ocfs2",
)  # fmt: skip
LOCAL_TYPES = (
    "ext2",
    "ext3",
    "ext4",
    "xfs",
    "btrfs",
    "f2fs",
    "zfs",
    "bcachefs",
    "reiserfs",
    "jfs",
    "vfat",
    "tmpfs",
    "overlay",
)
_SYSTEM_MOUNTS = (
    "/",
    "/var",
    "/tmp",  # noqa: S108 - names, nothing is written there
    "/var/tmp",  # noqa: S108
    "/home",
    "/usr",
    "/var/log",
    "/var/lib",
    "/var/lib/docker",
    "/var/lib/containerd",
    "/run",
)
_MEMORY_MOUNTS = ("/dev/shm", "/tmp", "/run", "/var/tmp")  # noqa: S108
_FILE_MOUNTS = ("/etc/", "/usr/", "/lib", "/bin/", "/sbin/", "/dev/", "/proc/", "/sys/", "/run/", "/snap/")
_ESCAPE = re.compile(r"\\([0-7]{3})")


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda found: chr(int(found[1], 8) & 0xFF), text)


def is_network(kind: str, device: str) -> bool:
    """A file system that another machine serves; FUSE ones with a remote behind them too."""
    return (
        kind in NETWORK_TYPES
        or (kind.startswith("fuse.") and kind.split(".", 1)[1] not in _LOCAL_FUSE)
        or device.startswith("//")
    )


_LOCAL_FUSE = (
    "lxcfs",
    "gvfsd-fuse",
    "portal",
    "snapfuse",
    "squashfuse",
    "fuse-overlayfs",
    "ntfs-3g",
    "ntfs",
    "exfat",
    "mergerfs",
    "encfs",
    "gocryptfs",
)


def mounts(table: str, fstab: str = "") -> list[Fact]:
    """Facts `mount` of /proc/mounts, the last one where several lie over one another; fstab_read_only where fstab names the mount."""
    wanted: dict[str, bool] = {}
    for line in fstab.splitlines()[:1000]:
        words = line.split()
        if len(words) >= 4 and not words[0].startswith("#"):
            options = words[3].split(",")
            wanted[_unescaped(words[1])] = "ro" in options or "bind" in options or "noauto" in options
    out: dict[str, Fact] = {}
    for fact in parse_mounts(Document("/proc/mounts", table, name_hint="mounts")):
        place, device = _unescaped(str(fact.fields["mount"])), _unescaped(str(fact.fields["device"]))
        fields = {
            **fact.fields,
            "mount": place,
            "device": device,
            "network": is_network(str(fact.fields["type"]), device),
        }
        fields["server"] = server_of(device) if fields["network"] else None
        fields["system"] = place in _SYSTEM_MOUNTS
        if place in wanted:
            fields["fstab_read_only"] = wanted[place]
        fields = {name: value for name, value in fields.items() if value is not None}
        out.pop(place, None)
        out[place] = Fact("mount", place[:300], fields, dict(fact.lines), fact.source, fact.host)
    return list(out.values())


def of_files(found: list[Fact]) -> list[Fact]:
    """The mounts that hold files: none of the kernel's own views, no packed images, no layers and secrets of containers."""
    out: list[Fact] = []
    for fact in found:
        kind = fact.fields["type"]
        small = (kind == "overlay" and fact.key != "/") or (kind == "tmpfs" and fact.key not in _MEMORY_MOUNTS)
        if fact.fields.get("network") or (kind in LOCAL_TYPES and not small):
            out.append(fact)
    return out


def server_of(device: str) -> str:
    """The machine in "server:/export" or "//server/share"; the device itself where none stands there."""
    found = re.match(r"//([^/]{1,200})/|(\[[0-9a-f:]{1,60}\]|[^:/]{1,200}):", device)
    return (found[1] or found[2]) if found else device


def worth_asking(found: list[Fact], most: int = 96) -> list[Fact]:
    """Mounts whose space matters: one for each device, pool and server share, none of pseudo, packed or container file systems."""
    out: list[Fact] = []
    devices: set[str] = set()
    order = sorted(
        found, key=lambda f: (not f.fields.get("system"), bool(f.fields.get("read_only")), len(str(f.fields["mount"])))
    )
    for fact in order:
        kind, place, device = (str(fact.fields[name]) for name in ("type", "mount", "device"))
        if kind == "zfs":
            device = device.partition("/")[0]
        if kind == "tmpfs":
            wanted = place in _MEMORY_MOUNTS
        elif kind == "overlay":
            wanted = place == "/"
        else:  # single files that a container runtime lays over the image's are no file systems of their own
            wanted = (bool(fact.fields.get("network")) or kind in LOCAL_TYPES) and not place.startswith(_FILE_MOUNTS)
        if not wanted or (kind not in ("tmpfs", "overlay") and device in devices):
            continue
        devices.add(device)
        out.append(fact)
    return out[:most]


def space(mount: Fact, answer: Mapping[str, Any], total_memory_mib: float | None) -> list[Fact]:
    """Fact `fs` of what statvfs told about a mount."""
    given = {
        name: value
        for name, value in answer.items()
        if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e24
    }
    if not given.get("size"):
        return []
    place = str(mount.fields["mount"])
    source = f"statvfs {place}"
    making = Making("fs", place, source)
    for name in ("mount", "device", "type", "network", "system", "read_only"):
        making.put(name, mount.fields.get(name))
    limit = mount.fields.get("size_mib")
    if mount.fields.get("type") == "tmpfs" and isinstance(limit, float) and 0 < limit < given["size"] / 1048576:
        given = {**given, **dict.fromkeys(("size", "free", "available"), limit * 1048576)}
    size, available = given["size"] / 1048576, max(0.0, given.get("available", 0) / 1048576)
    used = max(0.0, size - given.get("free", 0) / 1048576)
    text = f"{place}: {size:.0f} MiB, {used:.0f} MiB used, {available:.0f} MiB available"
    making.put("size_mib", round(size), source, text)
    making.put("used_mib", round(used), source, text)
    making.put("available_mib", round(available), source, text)
    making.put("available_gib", round(available / 1024, 1), source, text)
    making.put("use_pct", round(100 * used / (used + available)) if used + available > 0 else None, source, text)
    files, files_free = given.get("files", 0), given.get("files_free", 0)
    if files > 0 and mount.fields.get("type") not in ("btrfs", "zfs", "vfat"):
        inodes = f"{place}: {files:.0f} inodes, {files_free:.0f} free"
        making.put("inodes_free", int(files_free), source, inodes)
        making.put("inode_use_pct", round(100 * (files - files_free) / files), source, inodes)
    if total_memory_mib:
        making.put("size_of_memory_pct", round(100 * size / total_memory_mib, 1), source, text)
        making.put("used_of_memory_pct", round(100 * used / total_memory_mib, 1), source, text)
    return [making.fact()]


def with_answer(mount: Fact, seconds: float, why: str | None, code: int | None, hung: bool) -> Fact:
    """A `mount` with how it answered: answer_ms, or hung_s, or error (stale, disconnected, ...)."""
    fields, places = dict(mount.fields), dict(mount.lines)
    source = f"statvfs {mount.fields['mount']}"

    def put(name: str, value: str | float | bool, text: str) -> None:
        fields[name] = value
        places[name] = Where(source, None, text)

    if hung:
        put("hung_s", round(seconds, 1), f"no answer within {seconds:.1f} s")
    elif why is not None:
        name = {
            116: "stale",
            107: "disconnected",
            112: "host down",
            5: "I/O error",
            110: "timed out",
            108: "shut down",
            121: "remote I/O error",
        }
        if code in name:
            put("error", name[code], why)
    else:
        put("answer_ms", round(seconds * 1000, 1), f"answered after {seconds * 1000:.1f} ms")
    return Fact(mount.kind, mount.key, fields, places, mount.source, mount.host)


_DEVICE = re.compile(r"^device (?P<device>\S{1,500}) mounted on (?P<mount>\S{1,500}) with fstype (?P<type>nfs4?)\b")
_OPERATION = re.compile(r"^\s*[A-Z_]{2,40}: (?P<values>\d{1,19}(?: \d{1,19}){7,9})\s*$")


def nfs_mounts(mountstats: str) -> list[Fact]:
    """Facts `nfs_io` of /proc/self/mountstats: rpc_operations, rpc_retransmissions, rpc_timeouts, reconnects, rpc_ms, age_s, all since mounting."""
    out: list[Fact] = []
    sums = [0, 0, 0, 0]
    making: Making | None = None

    def close() -> None:
        if making is not None:
            for name, value in zip(("rpc_operations", "rpc_retransmissions", "rpc_timeouts"), sums, strict=False):
                making.put(name, value)
            if sums[0]:
                making.put("rpc_ms", round(sums[3] / sums[0], 3))
                making.put("retransmitted_pct", round(100 * sums[1] / sums[0], 3))
            out.append(making.fact())

    for line in mountstats.splitlines()[:200_000]:
        head = _DEVICE.match(line)
        if line.startswith("device "):
            close()
            making, sums = None, [0, 0, 0, 0]
        if head:
            place = _unescaped(head["mount"])
            making = Making("nfs_io", place, "/proc/self/mountstats")
            making.put("mount", place)
            making.put("device", head["device"])
        elif making is not None:
            _nfs_line(line, making, sums)
    close()
    return out[:500]


def _nfs_line(line: str, making: Making, sums: list[int]) -> None:
    words = line.split()
    operation = _OPERATION.match(line)
    if operation:
        values = [int(word) for word in operation["values"].split()]
        sums[0] += values[0]
        sums[1] += max(0, values[1] - values[0])
        sums[2] += values[2]
        sums[3] += values[7]
    elif line.lstrip().startswith("age:") and len(words) > 1:
        making.put("age_s", whole(words[1]), text=line.strip())
    elif line.lstrip().startswith("xprt:") and len(words) > 5 and words[1] in ("tcp", "rdma"):
        making.put("reconnects", max(0, (whole(words[4]) or 1) - 1), text=line.strip())
    elif line.lstrip().startswith("opts:"):
        making.put("soft", "soft" in line.split(",") or "softerr" in line.split(","), text=line.strip())


_BLOCK_FIELDS = (
    "reads", "", "read_sectors", "read_ms", "writes", "", "written_sectors", "write_ms", "in_flight", "busy_ms",
)  # fmt: skip
_WHOLE_DISK = re.compile(
    r"^(?:sd[a-z]{1,3}|hd[a-z]|vd[a-z]{1,2}|xvd[a-z]{1,2}|nvme\d{1,4}n\d{1,4}|mmcblk\d{1,3}|dm-\d{1,4}|md\d{1,4})$"
)


def block_devices(diskstats: str, files: Mapping[str, str]) -> list[Fact]:
    """Facts `block_device` of /proc/diskstats and /sys/block/*/device/{state,ioerr_cnt,iotmo_cnt,model}: counters since boot."""
    found: dict[str, Making] = {}
    for line in diskstats.splitlines()[:5000]:
        words = line.split()
        if (
            len(words) < 14
            or not _WHOLE_DISK.match(words[2])
            or not all(re.fullmatch(r"\d{1,20}", word) for word in words[3:14])
        ):
            continue
        making = found[words[2]] = Making("block_device", words[2], "/proc/diskstats")
        making.put("device", words[2], text=line.strip())
        for name, word in zip(_BLOCK_FIELDS, words[3:13], strict=False):
            if name:
                making.put(name, int(word), text=line.strip())
        making.put("ios", int(words[3]) + int(words[7]), text=line.strip())
        making.put("io_ms", int(words[6]) + int(words[10]), text=line.strip())
    for path, text in files.items():
        place = re.match(r"/sys/block/([\w!.-]{1,60})/(?:device/)?(\w{1,40})$", path)
        if not place:
            continue
        name = place[1]
        making = found.get(name) or found.setdefault(name, Making("block_device", name, f"/sys/block/{name}"))
        making.put("device", name)
        if place[2] in ("ioerr_cnt", "iotmo_cnt"):
            making.put(place[2], whole(text, 16), path, text.strip())
        elif place[2] in ("state", "model"):
            making.put(place[2], text.strip()[:80], path, text.strip())
    return [making.fact() for making in found.values()]


def nvme_controllers(files: Mapping[str, str]) -> list[Fact]:
    """Facts `nvme` of /sys/class/nvme/nvme*/{state,model}."""
    found: dict[str, Making] = {}
    for path, text in files.items():
        place = re.match(r"/sys/class/nvme/(nvme\d{1,4})/(state|model|firmware_rev)$", path)
        if place:
            making = found.setdefault(place[1], Making("nvme", place[1], f"/sys/class/nvme/{place[1]}"))
            making.put("device", place[1])
            making.put(place[2], text.strip()[:80], path, text.strip())
    return [making.fact() for making in found.values()]


def nvme_health(device: str, smart: Mapping[str, Any]) -> list[Fact]:
    """Fact `nvme_health` of `nvme smart-log -o json`: critical_warning (bits), spare_pct, used_pct, media_errors."""
    making = Making("nvme_health", device, f"nvme smart-log -o json /dev/{device}")
    making.put("device", device)
    critical = smart.get("critical_warning")
    if isinstance(critical, dict):
        critical = critical.get("value")
    names = {
        "avail_spare": "spare_pct",
        "spare_thresh": "spare_threshold_pct",
        "percent_used": "used_pct",
        "percentage_used": "used_pct",
    }
    making.put("critical_warning", critical if isinstance(critical, int) else None)
    for name in ("avail_spare", "spare_thresh", "percent_used", "percentage_used", "media_errors", "unsafe_shutdowns"):
        value = whole(str(smart.get(name)))
        making.put(names.get(name, name), value, text=f"{name} : {value}")
    return [making.fact()] if len(making.fields) > 1 else []


def raid_arrays(files: Mapping[str, str]) -> list[Fact]:
    """Facts `raid` of /sys/block/md*/md/{level,degraded,raid_disks,sync_action,array_state,mismatch_cnt}."""
    found: dict[str, Making] = {}
    for path, text in files.items():
        place = re.match(r"/sys/block/(md[\w.-]{1,40})/md/(\w{1,40})$", path)
        if not place:
            continue
        making = found.setdefault(place[1], Making("raid", place[1], f"/sys/block/{place[1]}/md"))
        making.put("device", place[1])
        value = whole(text) if place[2] in ("degraded", "raid_disks", "mismatch_cnt") else text.strip()[:80]
        making.put(place[2], value, path, text.strip())
    return [making.fact() for making in found.values() if "level" in making.fields]


def ext4_errors(files: Mapping[str, str], now: float) -> list[Fact]:
    """Facts `fs_errors` of /sys/fs/ext4/*/{errors_count,last_error_time,last_error_func}: what the superblock remembers."""
    found: dict[str, Making] = {}
    for path, text in files.items():
        place = re.match(r"/sys/fs/ext4/([\w!.-]{1,80})/(\w{1,40})$", path)
        if not place or place[1] == "features":
            continue
        making = found.setdefault(place[1], Making("fs_errors", place[1], f"/sys/fs/ext4/{place[1]}"))
        making.put("device", place[1])
        making.put("type", "ext4")
        if place[2] == "errors_count":
            making.put("errors", whole(text), path, text.strip())
        elif place[2] == "last_error_time" and (when := number(text)):
            making.put("last_error_days", round((now - when) / 86400, 1), path, text.strip())
        elif place[2] == "last_error_func":
            making.put("function", text.strip()[:80] or None, path, text.strip())
    return [making.fact() for making in found.values() if "errors" in making.fields]


def btrfs_errors(files: Mapping[str, str]) -> list[Fact]:
    """Facts `fs_errors` of /sys/fs/btrfs/UUID/devinfo/N/error_stats: their sum, since they were last reset."""
    out: list[Fact] = []
    for path, text in files.items():
        place = re.match(r"/sys/fs/btrfs/([0-9a-f-]{8,40})/devinfo/(\d{1,4})/error_stats$", path)
        counts = [int(word) for word in re.findall(r"^\w+_errs (\d{1,18})$", text, re.MULTILINE)]
        if place and counts:
            making = Making("fs_errors", f"{place[1]}/{place[2]}", path)
            making.put("device", f"{place[1]}/{place[2]}")
            making.put("type", "btrfs")
            making.put("errors", sum(counts), path, " ".join(text.split()))
            out.append(making.fact())
    return out


_LUSTRE = re.compile(
    r"/(?P<kind>mdc|osc|mgc|osp|lwp)/(?P<target>[\w.@-]{1,120})/(?:mds_server_uuid|ost_server_uuid|mgs_server_uuid|import)$"
)


def lustre_targets(files: Mapping[str, str]) -> list[Fact]:
    """Facts `lustre_target`: target, role (mdc: metadata, osc: data), state (FULL, IDLE, DISCONN, EVICTED ...), deactivated."""
    out: list[Fact] = []
    for path, text in files.items():
        place = _LUSTRE.search(path)
        if not place:
            continue
        told = re.search(r"^\s*state: (\w{2,20})", text, re.MULTILINE) or re.search(r"_UUID\s+(\w{2,20})", text)
        if not told:
            continue
        making = Making("lustre_target", place["target"], path)
        making.put("target", place["target"])
        making.put("role", place["kind"])
        making.put("state", told[1], path, told[0].strip())
        making.put("deactivated", "DEACTIVATED" in text or "INACTIVE" in text)
        out.append(making.fact())
    return out


def lustre_health(texts: Mapping[str, str]) -> list[Fact]:
    """Fact `lustre` of health_check."""
    for path, text in texts.items():
        making = Making("lustre", "health", path)
        making.put("healthy", text.strip() == "healthy", path, text.strip()[:200])
        return [making.fact()]
    return []


def ceph_clients(files: Mapping[str, str]) -> list[Fact]:
    """Facts `ceph_client` of /sys/kernel/debug/ceph/*/{status,mdsc,osdc}: blocklisted, requests that wait for servers."""
    found: dict[str, Making] = {}
    for path, text in files.items():
        place = re.match(r"/sys/kernel/debug/ceph/([\w.-]{1,120})/(status|mdsc|osdc)$", path)
        if not place:
            continue
        making = found.setdefault(place[1], Making("ceph_client", place[1], f"/sys/kernel/debug/ceph/{place[1]}"))
        if place[2] == "status":
            told = re.search(r"block(?:listed|listed): (true|false)", text)
            making.put("blocklisted", told[1] == "true" if told else None, path, told[0] if told else "")
        elif place[2] == "mdsc":
            making.put("metadata_requests", len([line for line in text.splitlines() if re.match(r"\d+\s", line)]), path)
        else:
            told = re.search(r"^REQUESTS (\d{1,9})", text, re.MULTILINE)
            making.put("data_requests", int(told[1]) if told else None, path, told[0] if told else "")
    return [making.fact() for making in found.values() if making.fields]
