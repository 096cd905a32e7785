"""Storage, passively: which mounts answer, what space is left, what disks and network file systems tell of themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuclinic.clinic.looks._look import Seen, Wanted, is_absent
from gpuclinic.clinic.looks._texts import Texts
from gpuclinic.model import Gap
from gpuclinic.recognise import storage_state

if TYPE_CHECKING:
    from gpuclinic.model import Fact
    from gpuclinic.observe.asking import Answer, Asked

_MOUNTS = "storage.mounts"
_PATIENCE = 2.5
"""Seconds that all mounts together may take in the quick path; after that the rest is not asked."""


def look_at_mounts(host: Asked, wanted: Wanted) -> Seen:
    """Facts `mount` (with how each answered) and `fs` (space and inodes)."""
    seen = Seen()
    texts = Texts(host, seen, _MOUNTS)
    table = texts.one("/proc/mounts", 4 << 20) or ""
    found = storage_state.of_files(storage_state.mounts(table, texts.one("/etc/fstab") or ""))
    memory = next((f.fields.get("total_mib") for f in wanted.of("memory")), None)
    total = float(memory) if isinstance(memory, (int, float)) else None
    answered: dict[str, Fact] = {}
    dead: dict[str, str] = {}
    spent = 0.0
    asked = storage_state.worth_asking(found)
    for mount in sorted(asked, key=lambda fact: bool(fact.fields.get("network"))):
        place, server = str(mount.fields["mount"]), str(mount.fields.get("server") or mount.fields["device"])
        if server in dead:
            seen.gaps.append(
                Gap(_MOUNTS, f"{place} was not asked, since {dead[server]} of the same server does not answer")
            )
            continue
        if spent > _PATIENCE and not wanted.deep:
            seen.gaps.append(Gap(_MOUNTS, f"{place} was not asked, since other mounts took too long; --deep asks it"))
            continue
        answer = host.space(place)
        spent += answer.seconds
        waited, hung = answer.seconds, _hung(answer)
        if hung and not dead:  # once more, so that one slow moment is not taken for a dead server
            answer = host.space(place)
            spent += answer.seconds
            hung = _hung(answer)
            waited = waited + answer.seconds if hung else answer.seconds
        if hung:
            dead[server] = place
        if answer.ok:
            seen.facts += storage_state.space(mount, answer.json(), total)
        if host.live or not is_absent(answer):
            answered[mount.key] = storage_state.with_answer(mount, waited, answer.why, answer.code, hung)
    seen.facts += [answered.get(fact.key, fact) for fact in found]
    return seen


def _hung(answer: Answer) -> bool:
    return not answer.ok and answer.code is None and str(answer.why).startswith("no answer within")


def look_at_devices(host: Asked, wanted: Wanted) -> Seen:  # noqa: ARG001 - all looks are called alike
    """Facts `block_device`, `nvme`, `raid`, `fs_errors`."""
    seen = Seen()
    texts = Texts(host, seen, "storage.devices")
    scsi = texts.many(
        *(f"/sys/block/sd*/device/{name}" for name in ("state", "ioerr_cnt", "iotmo_cnt", "model")), most=256
    )
    seen.facts += storage_state.block_devices(texts.one("/proc/diskstats") or "", scsi)
    seen.facts += storage_state.nvme_controllers(
        texts.many("/sys/class/nvme/nvme*/state", "/sys/class/nvme/nvme*/model", most=256)
    )
    names = ("level", "degraded", "raid_disks", "sync_action", "array_state", "mismatch_cnt")
    seen.facts += storage_state.raid_arrays(texts.many(*(f"/sys/block/md*/md/{name}" for name in names), most=256))
    kept = ("errors_count", "last_error_time", "last_error_func")
    seen.facts += storage_state.ext4_errors(
        texts.many(*(f"/sys/fs/ext4/*/{name}" for name in kept), most=256), host.clock()
    )
    seen.facts += storage_state.btrfs_errors(texts.many("/sys/fs/btrfs/*/devinfo/*/error_stats", most=4096))
    return seen


def look_at_network_file_systems(host: Asked, wanted: Wanted) -> Seen:
    """Facts `nfs_io`, `lustre_target`, `lustre`, `ceph_client`; nothing where no such file system is mounted."""
    seen = Seen()
    texts = Texts(host, seen, "storage.remote")
    types = {str(fact.fields.get("type")) for fact in wanted.of("mount")}
    if types & {"nfs", "nfs4"}:
        seen.facts += storage_state.nfs_mounts(texts.one("/proc/self/mountstats", 4 << 20) or "")
    if "lustre" in types:
        places = ("/sys/fs/lustre", "/proc/fs/lustre")
        names = (
            "mdc/*/mds_server_uuid",
            "osc/*/ost_server_uuid",
            "mgc/*/mgs_server_uuid",
            "mdc/*/import",
            "osc/*/import",
        )
        seen.facts += storage_state.lustre_targets(
            texts.many(*(f"{place}/{name}" for place in places for name in names))
        )
        seen.facts += storage_state.lustre_health(texts.many(*(f"{place}/health_check" for place in places), most=4096))
    if "ceph" in types:
        ceph = Texts(host, seen, "storage.remote")
        listing = host.listing("/sys/kernel/debug/ceph")
        if not listing.ok and not is_absent(listing):
            seen.gaps.append(Gap("storage.remote", f"/sys/kernel/debug/ceph: {listing.why}", fix="run it as root"))
        seen.facts += storage_state.ceph_clients(
            ceph.many(*(f"/sys/kernel/debug/ceph/*/{name}" for name in ("status", "mdsc", "osdc")))
        )
    return seen


def look_at_disk_health(host: Asked, wanted: Wanted) -> Seen:
    """Facts `nvme_health`, by nvme-cli."""
    seen = Seen()
    for fact in wanted.of("nvme")[:64]:
        device = str(fact.fields.get("device"))
        answer = host.command("nvme", "smart-log", "-o", "json", f"/dev/{device}", deadline=2.0)
        if answer.ok:
            seen.facts += storage_state.nvme_health(device, answer.json())
        elif is_absent(answer):
            why = "nvme-cli is not installed, so the health that NVMe disks keep is not known"
            seen.gaps.append(Gap("storage.disk_health", why, fix="apt install nvme-cli, or dnf install nvme-cli"))
            break
        else:
            seen.gaps.append(Gap("storage.disk_health", f"nvme smart-log /dev/{device}: {answer.why}"))
    return seen
