"""The looks at host, storage and network: what a server's files say, and that healthy servers come out clean."""

from __future__ import annotations

import errno
import json
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

from gpuclinic.clinic.looks import LOOKS, Seen, Wanted
from gpuclinic.clinic.looks import host as host_look
from gpuclinic.clinic.looks import network as network_look
from gpuclinic.clinic.looks import storage as storage_look
from gpuclinic.diagnose.judge import Sample, judge
from gpuclinic.knowledge import load_checks
from gpuclinic.model import Fact
from gpuclinic.observe.asking import Answer
from gpuclinic.observe.live import LiveHost
from gpuclinic.observe.snapshot import Snapshot

MINE = ("host.", "storage.", "network.")
FUNCTIONS = (
    host_look.look_at_memory, host_look.look_at_cpu, host_look.look_at_cgroups, host_look.look_at_limits, host_look.look_at_settings,
    host_look.look_at_time, storage_look.look_at_mounts, storage_look.look_at_devices, storage_look.look_at_network_file_systems,
    network_look.look_at_rdma, network_look.look_at_interfaces, network_look.look_at_names,
)  # fmt: skip
GIB = 1 << 30


class Server(Snapshot):
    """A snapshot whose mounts answer as told: sizes, an errno, or nothing at all."""

    def __init__(self, folder: Path, spaces: dict[str, Any]) -> None:
        super().__init__(folder)
        self.live = True
        self.spaces = spaces
        self.asked: list[str] = []

    def space(self, path: str) -> Answer:
        self.asked.append(path)
        told = self.spaces.get(
            path, {"size": 100 * GIB, "free": 60 * GIB, "available": 55 * GIB, "files": 1000000, "files_free": 900000}
        )
        if told == "hangs":
            return Answer(f"space {path}", why="no answer within 1 s", seconds=1.0)
        if isinstance(told, int):
            return Answer(f"space {path}", why=os.strerror(told), code=told, seconds=0.001)
        return Answer(f"space {path}", json.dumps(told).encode(), seconds=0.002)


HEALTHY = {
    "proc/meminfo": "MemTotal: 2113000000 kB\nMemFree: 1900000000 kB\nMemAvailable: 2000000000 kB\nShmem: 9000000 kB\nSwapTotal: 8388604 kB\nSwapFree: 7000000 kB\nSUnreclaim: 9000000 kB\nCommitLimit: 1064888604 kB\nCommitted_AS: 30000000 kB\nHugePages_Total: 0\nHugePages_Free: 0\nHugepagesize: 2048 kB\n",
    "proc/vmstat": "nr_free_pages 475000000\npswpin 900\npswpout 348000\noom_kill 0\n",
    "proc/pressure/memory": "some avg10=0.00 avg60=0.00 avg300=0.00 total=1\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=1\n",
    "proc/pressure/cpu": "some avg10=1.00 avg60=0.50 avg300=0.20 total=1\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=1\n",
    "proc/pressure/io": "some avg10=0.10 avg60=0.10 avg300=0.00 total=1\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=1\n",
    "proc/stat": "cpu 1000 0 500 8000000 300 0 20 0 0 0\n" + "".join(f"cpu{n} 1 0 0 0 0 0 0 0 0 0\n" for n in range(224)) + "procs_running 1\nprocs_blocked 0\n",
    "proc/loadavg": "1.20 0.90 0.70 1/4000 99999\n",
    "proc/self/limits": "Max open files            1024                 1048576              files\nMax locked memory         unlimited            unlimited            bytes\nMax processes             8253000              8253000              processes\n",
    "proc/self/cgroup": "0::/user.slice/user-1000.slice/session-3.scope\n",
    "proc/sys/fs/file-nr": "9000\t0\t9223372036854775807\n",
    "proc/sys/kernel/pid_max": "4194304\n",
    "proc/sys/kernel/threads-max": "16500000\n",
    "proc/sys/kernel/hostname": "node17\n",
    "proc/sys/vm/overcommit_memory": "0\n",
    "proc/sys/vm/min_free_kbytes": "90112\n",
    "proc/sys/vm/zone_reclaim_mode": "0\n",
    "proc/sys/kernel/numa_balancing": "0\n",
    "sys/kernel/mm/transparent_hugepage/enabled": "[always] madvise never\n",
    "sys/kernel/mm/transparent_hugepage/defrag": "always defer defer+madvise [madvise] never\n",
    "sys/devices/system/cpu/cpufreq/policy0/scaling_governor": "performance\n",
    "sys/devices/system/cpu/cpufreq/policy0/scaling_driver": "intel_pstate\n",
    "sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq": "3800000\n",
    "sys/devices/system/cpu/cpufreq/policy0/cpuinfo_max_freq": "3800000\n",
    "sys/devices/system/node/node0/meminfo": "Node 0 MemTotal: 1056000000 kB\nNode 0 MemFree: 900000000 kB\n",
    "sys/devices/system/node/node0/cpulist": "0-55,112-167\n",
    "sys/devices/system/node/node1/meminfo": "Node 1 MemTotal: 1056900000 kB\nNode 1 MemFree: 900000000 kB\n",
    "sys/devices/system/node/node1/cpulist": "56-111,168-223\n",
    "sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc\n",
    "sys/devices/system/clocksource/clocksource0/available_clocksource": "tsc hpet acpi_pm\n",
    "proc/mounts": "/dev/md0 / ext4 rw,relatime,errors=remount-ro 0 0\n/dev/md1 /raid xfs rw,noatime 0 0\ntmpfs /dev/shm tmpfs rw 0 0\n/dev/loop0 /snap/core20/1 squashfs ro 0 0\nnas:/home /home nfs4 rw,hard 0 0\n/dev/nvme0n1p1 /boot/efi vfat rw 0 0\n",
    "etc/fstab": "UUID=1 / ext4 errors=remount-ro 0 1\nUUID=2 /raid xfs defaults 0 0\nUUID=3 /boot/efi vfat umask=0077 0 1\nnas:/home /home nfs4 hard 0 0\n",
    "proc/self/mountstats": "device nas:/home mounted on /home with fstype nfs4 statvers=1.1\n\tage:\t86400\n\txprt:\ttcp 0 0 1 0 12 1000 990 0 9 0 2 0 0\n\t        READ: 100000 100000 0 1 1 2 5000 90000 0\n",
    "proc/diskstats": " 259       0 nvme0n1 100 1 2000 300 50 1 1000 700 0 900 1000 0 0 0 0\n",
    "sys/class/nvme/nvme0/state": "live\n",
    "sys/block/md0/md/level": "raid1\n", "sys/block/md0/md/degraded": "0\n", "sys/block/md0/md/array_state": "active\n", "sys/block/md0/md/sync_action": "idle\n",
    "sys/block/md1/md/level": "raid0\n", "sys/block/md1/md/array_state": "clean\n",
    "sys/fs/ext4/md0/errors_count": "0\n",
    "etc/hosts": "127.0.0.1 localhost\n10.0.0.17 node17\n", "etc/resolv.conf": "nameserver 127.0.0.53\n", "etc/nsswitch.conf": "hosts: files dns\n",
    "proc/net/fib_trie": "Main:\n     |-- 10.0.0.17\n        /32 host LOCAL\n",
    "proc/net/snmp": "Tcp: OutSegs RetransSegs InErrs\nTcp: 900000 300 0\n",
    "proc/sys/net/netfilter/nf_conntrack_count": "300\n", "proc/sys/net/netfilter/nf_conntrack_max": "262144\n",
}  # fmt: skip
for number in range(8):
    port = f"sys/class/infiniband/mlx5_{number}/ports/1"
    HEALTHY |= {
        f"{port}/state": "4: ACTIVE\n", f"{port}/phys_state": "5: LinkUp\n", f"{port}/link_layer": "InfiniBand\n", f"{port}/rate": "400 Gb/sec (4X NDR)\n",
        f"{port}/counters/link_downed": "1\n", f"{port}/counters/symbol_error": "0\n", f"sys/class/infiniband/mlx5_{number}/board_id": "MT_0000000838\n",
    }  # fmt: skip


def server(folder: Path, changed: dict[str, str] | None = None, spaces: dict[str, Any] | None = None) -> Server:
    for name, text in (HEALTHY | (changed or {})).items():
        place = folder / "root" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    return Server(
        folder,
        {
            "/dev/shm": {"size": 1000 * GIB, "free": 1000 * GIB, "available": 1000 * GIB, "files": 9, "files_free": 8},
            **(spaces or {}),
        },
    )


def look_at(host: Any, wanted: Wanted | None = None) -> Seen:
    wanted = wanted or Wanted()
    out = Seen()
    wanted.facts = [Fact("gpu_count", "pci", {"value": 8, "tool": "pci"}, {}, "test")]
    for function in FUNCTIONS:
        got = function(host, wanted)
        out.facts += got.facts
        out.gaps += got.gaps
        wanted.facts = wanted.facts + got.facts
    out.facts = wanted.facts
    return out


def found(*samples: list[Fact]) -> dict[str, str]:
    window = [Sample(10.0 * number, facts) for number, facts in enumerate(samples)]
    rows = [row for row in load_checks().checks if row.look.startswith(MINE)]
    held: dict[str, str] = {}
    for one in judge(rows, window):
        if one.state == "holds" and one.severity:
            held[one.row.id] = one.severity
    return held


def test_a_healthy_server_gives_nothing(tmp_path: Path) -> None:
    seen = look_at(server(tmp_path))
    assert found(seen.facts) == {}
    assert seen.gaps == []
    assert found(seen.facts, seen.facts) == {}


def test_this_machine_gives_nothing_critical() -> None:
    host = LiveHost()
    try:
        seen = look_at(host)
    finally:
        host.close()
    assert {kind for fact in seen.facts if (kind := fact.kind)} >= {"memory", "cpu_times", "vm_counters"}
    assert "critical" not in {
        severity for name, severity in found(seen.facts).items() if not name.startswith("storage.space")
    }


SICK: list[tuple[dict[str, str], dict[str, Any], dict[str, str]]] = [
    ({"proc/meminfo": "MemTotal: 527988000 kB\nMemFree: 800000 kB\nMemAvailable: 2000000 kB\n"}, {}, {"host.memory.low": "critical"}),
    ({"proc/pressure/memory": "some avg10=90.00 avg60=80.00 avg300=60.00 total=1\nfull avg10=60.00 avg60=50.00 avg300=30.00 total=1\n"}, {}, {"host.memory.pressure": "critical"}),
    ({"proc/sys/vm/overcommit_memory": "2\n"}, {}, {"host.memory.commit_limit": "warning"}),
    ({"proc/sys/fs/file-nr": "99000\t0\t100000\n"}, {}, {"host.limits.table_full": "critical"}),
    ({"run/slurmd.pid": "900\n", "proc/900/limits": "Max locked memory         8388608              8388608              bytes\n"}, {}, {"host.limits.locked_memory": "warning"}),
    ({"sys/fs/cgroup/system.slice/a.service/memory.events.local": "max 9\noom 2\noom_kill 2\n"}, {}, {"host.cgroup.oom_kills": "info"}),
    ({"proc/vmstat": "nr_free_pages 475000000\noom_kill 2\n"}, {}, {"host.oom.since_boot": "info"}),
    ({}, {"/": {"size": 100 * GIB, "free": GIB, "available": 0, "files": 100, "files_free": 50}}, {"storage.space.system": "critical"}),
    ({}, {"/": {"size": 100 * GIB, "free": 50 * GIB, "available": 50 * GIB, "files": 1000, "files_free": 0}}, {"storage.inodes": "critical"}),
    ({}, {"/raid": {"size": 9000 * GIB, "free": 0, "available": 0}}, {"storage.space.data": "warning"}),
    ({}, {"/dev/shm": {"size": 64 << 20, "free": 64 << 20, "available": 64 << 20}}, {"host.shm.small": "info"}),
    ({}, {"/home": "hangs"}, {"storage.mount.hung": "critical"}),
    ({}, {"/home": errno.ESTALE}, {"storage.mount.error": "critical"}),
    ({"proc/mounts": HEALTHY["proc/mounts"].replace("/ ext4 rw", "/ ext4 ro")}, {}, {"storage.read_only": "critical"}),
    ({"proc/mounts": HEALTHY["proc/mounts"].replace("/raid xfs rw", "/raid xfs ro")}, {}, {"storage.read_only": "warning"}),
    ({"sys/block/md0/md/degraded": "1\n"}, {}, {"storage.raid.degraded": "warning"}),
    ({"sys/class/nvme/nvme3/state": "dead\n"}, {}, {"storage.nvme.state": "critical"}),
    ({"sys/block/sdb/device/state": "offline\n"}, {}, {"storage.block.offline": "warning"}),
    ({"sys/class/infiniband/mlx5_3/ports/1/state": "1: DOWN\n", "sys/class/infiniband/mlx5_3/ports/1/phys_state": "2: Polling\n"}, {}, {"network.rdma.port_down": "critical"}),
    ({"sys/class/infiniband/mlx5_3/ports/1/state": "2: INIT\n"}, {}, {"network.rdma.not_configured": "warning"}),
    ({"sys/class/infiniband/mlx5_3/ports/1/rate": "100 Gb/sec (1X NDR)\n"}, {}, {"network.rdma.slow_link": "warning"}),
    ({"sys/class/infiniband/mlx5_3/ports/1/counters/link_downed": "255\n"}, {}, {"network.rdma.errors_before": "info"}),
    ({"etc/hosts": "127.0.0.1 localhost\n10.0.0.71 node17\n"}, {}, {"network.name.elsewhere": "warning"}),
    ({"etc/hosts": "10.0.0.1 localhost\n10.0.0.17 node17\n"}, {}, {"network.name.localhost": "warning"}),
    ({"etc/hosts": "127.0.0.1 localhost\n127.0.1.1 node17\n"}, {}, {"network.name.loopback": "info"}),
    ({"proc/sys/net/netfilter/nf_conntrack_count": "262143\n"}, {}, {"network.connections.full": "critical"}),
    ({"proc/net/bonding/bond0": "Bonding Mode: active-backup\nMII Status: up\n\nSlave Interface: a\nMII Status: up\n\nSlave Interface: b\nMII Status: down\n"}, {}, {"network.bond.degraded": "warning"}),
]  # fmt: skip


@pytest.mark.parametrize(("changed", "spaces", "wanted"), SICK, ids=[next(iter(w)) for _, _, w in SICK])
def test_one_fault_gives_one_finding(
    tmp_path: Path, changed: dict[str, str], spaces: dict[str, Any], wanted: dict[str, str]
) -> None:
    assert found(look_at(server(tmp_path, changed, spaces)).facts) == wanted


GROWING = [
    ("proc/vmstat", "nr_free_pages 475000000\npswpin 900900\npswpout 1348000\noom_kill 0\n", {"host.swap.thrashing": "warning"}),
    ("proc/vmstat", "nr_free_pages 475000000\npswpin 900\npswpout 348000\noom_kill 2\n", {"host.oom.now": "warning", "host.oom.since_boot": "info"}),
    ("proc/stat", "cpu 2000 0 500 8000000 300 0 20 9000 0 0\n", {"host.cpu.steal": "warning"}),
    ("proc/self/mountstats", HEALTHY["proc/self/mountstats"].replace("READ: 100000 100000 0", "READ: 100100 100140 30"), {"storage.nfs.resends": "warning"}),
    ("sys/class/infiniband/mlx5_2/ports/1/counters/link_downed", "3\n", {"network.rdma.flapping": "warning"}),
    ("sys/class/infiniband/mlx5_2/ports/1/counters/symbol_error", "900\n", {"network.rdma.errors": "warning"}),
    ("proc/net/snmp", "Tcp: OutSegs RetransSegs InErrs\nTcp: 909000 3300 0\n", {"network.tcp.resends": "warning"}),
    ("proc/diskstats", " 259       0 nvme0n1 100 1 2000 300 50 1 1000 700 4 10900 1000 0 0 0 0\n", {"storage.block.stuck": "critical"}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "later", "wanted"), GROWING, ids=[f"{next(iter(w))}" for _, _, w in GROWING])
def test_what_grows_between_two_samples(tmp_path: Path, name: str, later: str, wanted: dict[str, str]) -> None:
    first = look_at(server(tmp_path)).facts
    second = look_at(server(tmp_path, {name: later})).facts
    assert found(first, second) == wanted


def test_a_dead_server_costs_two_questions_and_not_the_rest(tmp_path: Path) -> None:
    mounts = (
        HEALTHY["proc/mounts"]
        + "".join(f"dead:/export/{n} /mnt/{n} nfs4 rw 0 0\n" for n in range(9))
        + "other:/x /mnt/x nfs4 rw 0 0\n"
    )
    host = server(tmp_path, {"proc/mounts": mounts}, {f"/mnt/{n}": "hangs" for n in range(9)})
    seen = look_at(host)
    assert sum(place.startswith("/mnt/") and place != "/mnt/x" for place in host.asked) == 2
    assert "/mnt/x" in host.asked
    assert [fact.key for fact in seen.facts if fact.kind == "mount" and fact.fields.get("hung_s") == 2.0] == ["/mnt/0"]
    assert sum("was not asked" in gap.why for gap in seen.gaps) == 8
    assert found(seen.facts) == {"storage.mount.hung": "critical"}


def test_one_slow_moment_is_no_dead_server(tmp_path: Path) -> None:
    class Once(Server):
        def space(self, path: str) -> Answer:
            first = path not in self.asked
            answer = super().space(path)
            return (
                Answer(answer.question, why="no answer within 1 s", seconds=1.0)
                if path == "/home" and first
                else answer
            )

    server(tmp_path)
    assert (
        found(
            look_at(
                Once(tmp_path, {"/dev/shm": {"size": 1000 * GIB, "free": 1000 * GIB, "available": 1000 * GIB}})
            ).facts
        )
        == {}
    )


def test_a_refused_file_is_a_gap(tmp_path: Path) -> None:
    class Refusing(Server):
        def file(self, path: str, most: int = 1 << 20, *, end: bool = False) -> Answer:
            if path == "/proc/net/snmp":
                return Answer(f"file {path}", why="Permission denied", code=errno.EACCES)
            return super().file(path, most, end=end)

    server(tmp_path)
    seen = network_look.look_at_interfaces(Refusing(tmp_path, {}), Wanted())
    assert [gap.why for gap in seen.gaps] == ["/proc/net/snmp: Permission denied"]


def test_an_empty_machine_gives_no_finding_and_no_gap(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    seen = look_at(Snapshot(tmp_path))
    assert found(seen.facts) == {}
    assert seen.gaps == []


def test_names_are_asked_of_dns_only_with_deep_and_only_our_own(tmp_path: Path) -> None:
    class Resolver(Server):
        label = "node17"
        refusal = Answer("getent", why="status 2", code=2)

        def command(self, *argv: str, deadline: float = 2.0, most: int = 1 << 20) -> Answer:
            return self.refusal

    server(tmp_path)
    facts = look_at(Server(tmp_path, {})).facts
    host = Resolver(tmp_path, {})
    host.label = "node17"
    assert network_look.look_at_resolution(host, Wanted(facts=facts)).facts == []
    asked = network_look.look_at_resolution(host, Wanted(deep=True, facts=facts)).facts
    assert [fact.fields["resolved"] for fact in asked] == [False]
    host.refusal = Answer("x", why="no answer within 0.25 s")
    late = network_look.look_at_resolution(host, Wanted(deep=True, facts=facts))
    assert late.facts == []
    assert late.gaps[0].why == "getent ahostsv4 node17: did not answer in time: no answer within 0.25 s"
    host.refusal = Answer("x", why="not in the snapshot", code=2)
    host.live = False
    assert network_look.look_at_resolution(host, Wanted(deep=True, facts=facts)).facts == []
    host.live = True
    host.label = "elsewhere"
    assert network_look.look_at_resolution(host, Wanted(deep=True, facts=facts)).facts == []


def test_limits_that_files_set_for_all(tmp_path: Path) -> None:
    changed = {
        "etc/security/limits.conf": "* soft nofile 1024\n* hard nofile 4096\nroot hard nofile 99\n",
        "etc/systemd/system.conf": "[Manager]\nDefaultLimitMEMLOCK=64K\n",
    }
    assert found(look_at(server(tmp_path, changed)).facts) == {
        "host.limits.open_files": "info",
        "host.limits.locked_memory": "info",
    }


def test_ports_of_a_healthy_h100_server(tmp_path: Path) -> None:
    archive = Path(os.environ.get("GPUCLINIC_SHARED", "../shared")) / "data/gpud/sys-class-infiniband-h100.tar.gz"
    if not archive.is_file():
        pytest.skip(f"no {archive}")
    place = tmp_path / "root/sys/class/infiniband"
    place.mkdir(parents=True)
    with tarfile.open(archive) as packed:
        for member in packed:
            if member.isfile() and ".." not in member.name:
                target = place / member.name.partition("/")[2]
                target.parent.mkdir(parents=True, exist_ok=True)
                stream = packed.extractfile(member)
                assert stream is not None
                target.write_bytes(stream.read())
    facts = network_look.look_at_rdma(Snapshot(tmp_path), Wanted()).facts
    assert len([fact for fact in facts if fact.kind == "ib_port"]) == 9
    assert set(found(facts, facts).values()) <= {"info"}


def test_looks_are_listed() -> None:
    assert {look.id for look in LOOKS} >= {row.look for row in load_checks().checks if row.look.startswith(MINE)}
