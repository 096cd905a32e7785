"""Mounts, disks and network file systems: facts out of small texts of /proc and /sys."""

from __future__ import annotations

import pytest

from gpuclinic.recognise import storage_state as storage

MOUNTS = """/dev/nvme0n1p2 / ext4 ro,relatime,errors=remount-ro 0 0
/dev/nvme0n1p2 /etc/hosts ext4 rw 0 0
tmpfs /dev/shm tmpfs rw,nosuid,nodev 0 0
proc /proc proc rw 0 0
/dev/loop3 /snap/core20/1 squashfs ro,nodev 0 0
overlay /var/lib/docker/overlay2/abc/merged overlay rw,lowerdir=/a 0 0
nas:/export/home /home nfs4 rw,hard,vers=4.2,timeo=600 0 0
nas:/export/my\\040data /mnt/my\\040data nfs rw,soft 0 0
10.0.0.1@o2ib:/scratch /scratch lustre rw,flock 0 0
/dev/md0 /data xfs rw,noatime 0 0
/dev/md0 /data/bind xfs rw,noatime 0 0
tank/a /tank/a zfs rw 0 0
tank/b /tank/b zfs rw 0 0
s3fs /mnt/s3 fuse.s3fs rw 0 0
lxcfs /var/lib/lxcfs fuse.lxcfs rw 0 0
"""
FSTAB = "# comment\nUUID=1 / ext4 errors=remount-ro 0 1\n/dev/md0 /data xfs defaults 0 0\nnas:/export/home /home nfs4 ro,hard 0 0\n"


def test_mounts_against_fstab() -> None:
    found = {fact.key: fact.fields for fact in storage.mounts(MOUNTS, FSTAB)}
    assert found["/"]["fstab_read_only"] is False
    assert found["/"]["read_only"] is True
    assert found["/home"]["fstab_read_only"] is True
    assert "fstab_read_only" not in found["/scratch"]
    assert found["/mnt/my data"]["server"] == "nas"
    assert found["/mnt/my data"]["soft"] is True
    assert found["/scratch"]["server"] == "10.0.0.1@o2ib"
    assert [bool(found[p]["network"]) for p in ("/home", "/scratch", "/mnt/s3", "/data", "/var/lib/lxcfs")] == [
        True,
        True,
        True,
        False,
        False,
    ]


def test_each_device_and_pool_is_asked_once_and_no_image() -> None:
    asked = [fact.key for fact in storage.worth_asking(storage.mounts(MOUNTS))]
    assert sorted(asked) == sorted(
        ["/", "/dev/shm", "/home", "/mnt/my data", "/scratch", "/data", "/tank/a", "/mnt/s3"]
    )
    assert {fact.key for fact in storage.of_files(storage.mounts(MOUNTS))} >= {"/", "/home"}
    assert not {"/proc", "/snap/core20/1", "/var/lib/docker/overlay2/abc/merged"} & {
        fact.key for fact in storage.of_files(storage.mounts(MOUNTS))
    }


def test_space_as_an_ordinary_user_has_it() -> None:
    root = next(fact for fact in storage.mounts(MOUNTS) if fact.key == "/")
    gib = 1 << 30
    fields = storage.space(
        root, {"size": 100 * gib, "free": 5 * gib, "available": 0, "files": 1000, "files_free": 10}, 1024.0
    )[0].fields
    assert (fields["use_pct"], fields["available_mib"], fields["inode_use_pct"], fields["inodes_free"]) == (
        100,
        0,
        99,
        10,
    )
    assert storage.space(root, {"size": 0}, None) == []
    assert storage.space(root, {"size": "x"}, None) == []


def test_how_a_mount_answered() -> None:
    home = next(fact for fact in storage.mounts(MOUNTS) if fact.key == "/home")
    assert storage.with_answer(home, 2.0, "no answer within 1 s", None, True).fields["hung_s"] == 2.0
    assert storage.with_answer(home, 0.1, "Stale file handle", 116, False).fields["error"] == "stale"
    assert "error" not in storage.with_answer(home, 0.1, "Permission denied", 13, False).fields
    assert storage.with_answer(home, 0.0123, None, None, False).fields["answer_ms"] == 12.3


def test_nfs_counters() -> None:
    text = """device proc mounted on /proc with fstype proc
device nas:/export/home mounted on /home with fstype nfs4 statvers=1.1
\topts:\trw,vers=4.2,soft,timeo=600
\tage:\t86400
\txprt:\ttcp 0 0 3 0 12 1000 990 0 9 0 2 0 0
\tper-op statistics
\t        NULL: 1 1 0 44 24 0 0 0 0
\t        READ: 1000 1040 12 1 1 2 5000 9000 0
device nas:/b mounted on /b with fstype nfs statvers=1.1
\t        READ: 10 10 0 1 1 2 5 9 0
"""
    home, other = storage.nfs_mounts(text)
    assert home.fields == {
        "mount": "/home", "device": "nas:/export/home", "soft": True, "age_s": 86400, "reconnects": 2, "rpc_operations": 1001,
        "rpc_retransmissions": 40, "rpc_timeouts": 12, "rpc_ms": 8.991, "retransmitted_pct": 3.996,
    }  # fmt: skip
    assert other.fields["rpc_retransmissions"] == 0


def test_disks() -> None:
    stats = "   8       0 sda 100 1 2000 300 50 1 1000 700 2 900 1000 0 0 0 0\n   8       1 sda1 9 9 9 9 9 9 9 9 9 9 9\n   7       0 loop0 9 9 9 9 9 9 9 9 9 9 9\n"
    sda = storage.block_devices(
        stats, {"/sys/block/sda/device/ioerr_cnt": "0x1f\n", "/sys/block/sda/device/state": "offline\n"}
    )
    assert [fact.key for fact in sda] == ["sda"]
    assert {n: sda[0].fields[n] for n in ("ios", "io_ms", "in_flight", "busy_ms", "ioerr_cnt", "state")} == {
        "ios": 150, "io_ms": 1000, "in_flight": 2, "busy_ms": 900, "ioerr_cnt": 31, "state": "offline",
    }  # fmt: skip
    raid = storage.raid_arrays(
        {
            "/sys/block/md0/md/level": "raid1\n",
            "/sys/block/md0/md/degraded": "1\n",
            "/sys/block/md0/md/sync_action": "recover\n",
        }
    )
    assert raid[0].fields == {"device": "md0", "level": "raid1", "degraded": 1, "sync_action": "recover"}
    assert storage.nvme_controllers({"/sys/class/nvme/nvme3/state": "dead\n"})[0].fields["state"] == "dead"
    health = storage.nvme_health(
        "nvme0", {"critical_warning": 4, "avail_spare": 100, "spare_thresh": 10, "percent_used": 3, "media_errors": 2}
    )
    assert health[0].fields["critical_warning"] == 4
    assert storage.nvme_health("nvme0", {}) == []


def test_errors_that_file_systems_remember() -> None:
    files = {
        "/sys/fs/ext4/sda2/errors_count": "3\n",
        "/sys/fs/ext4/sda2/last_error_time": "1000000\n",
        "/sys/fs/ext4/features/casefold": "supported",
    }
    assert [(fact.key, fact.fields["last_error_days"]) for fact in storage.ext4_errors(files, 1086400.0)] == [
        ("sda2", 1.0)
    ]
    stats = "write_errs 0\nread_errs 2\nflush_errs 0\ncorruption_errs 5\ngeneration_errs 0\n"
    assert (
        storage.btrfs_errors({"/sys/fs/btrfs/11111111-2222-3333-4444-555555555555/devinfo/1/error_stats": stats})[
            0
        ].fields["errors"]
        == 7
    )


def test_lustre_and_ceph() -> None:
    files = {
        "/sys/fs/lustre/mdc/scratch-MDT0000-mdc-ffff9/mds_server_uuid": "scratch-MDT0000_UUID\tDISCONN\n",
        "/proc/fs/lustre/osc/scratch-OST0001-osc-ffff9/import": "import:\n    name: x\n    state: EVICTED\n",
        "/sys/fs/lustre/osc/scratch-OST0002-osc-ffff9/ost_server_uuid": "scratch-OST0002_UUID\tFULL\tDEACTIVATED\n",
    }
    assert [(f.fields["role"], f.fields["state"], f.fields["deactivated"]) for f in storage.lustre_targets(files)] == [
        ("mdc", "DISCONN", False), ("osc", "EVICTED", False), ("osc", "FULL", True),
    ]  # fmt: skip
    assert storage.lustre_health({"/sys/fs/lustre/health_check": "healthy\n"})[0].fields["healthy"] is True
    debug = "/sys/kernel/debug/ceph/11-22.client4567"
    ceph = storage.ceph_clients(
        {
            f"{debug}/status": "instance: client.4567 (3)1.2.3.4:0/9\nblocklisted: true\n",
            f"{debug}/osdc": "REQUESTS 3 homeless 0\n",
            f"{debug}/mdsc": "12\tmds0\tgetattr\t#1\n",
        }
    )
    assert ceph[0].fields == {"blocklisted": True, "data_requests": 3, "metadata_requests": 1}


@pytest.mark.parametrize(
    "text",
    ["", "\x00" * 100, "9 " * 5000, "device " + "a" * 9000 + " mounted on / with fstype nfs\n", "READ: " + "9" * 4000],
)
def test_hostile_texts_cost_nothing(text: str) -> None:
    storage.mounts(text, text)
    storage.nfs_mounts("device a:/b mounted on /b with fstype nfs\n" + text)
    storage.block_devices(text, {"/sys/block/sda/device/ioerr_cnt": text})
    storage.ext4_errors({"/sys/fs/ext4/sda2/errors_count": text, "/sys/fs/ext4/sda2/last_error_time": text}, 1.0)
    storage.lustre_targets({"/sys/fs/lustre/mdc/a/mds_server_uuid": text})
    storage.raid_arrays({"/sys/block/md0/md/degraded": text, "/sys/block/md0/md/level": text})
