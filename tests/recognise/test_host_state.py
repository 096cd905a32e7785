"""Memory, processors, settings: facts out of small texts of /proc and /sys."""

from __future__ import annotations

import pytest

from gpuclinic.model import Fact  # noqa: TC001 - said in signatures
from gpuclinic.recognise import host_state
from gpuclinic.recognise.host_limits import process_limits
from gpuclinic.recognise.process_table import Task

MEMINFO = """MemTotal:       527988000 kB
MemFree:         8000000 kB
MemAvailable:   10000000 kB
Buffers:            1000 kB
Cached:          2000000 kB
SwapTotal:       8388604 kB
SwapFree:         838860 kB
Shmem:         200000000 kB
SUnreclaim:      5000000 kB
CommitLimit:    272382604 kB
Committed_AS:   90000000 kB
HugePages_Total:    1024
HugePages_Free:     1000
Hugepagesize:       2048 kB
"""


def one(facts: list[Fact], kind: str, key: str | None = None) -> dict[str, object]:
    return next(dict(fact.fields) for fact in facts if fact.kind == kind and key in (None, fact.key))


def test_memory_says_what_is_left_in_shares() -> None:
    fields = one(host_state.memory(MEMINFO), "memory")
    assert fields["usable_pct"] == 1.9
    assert fields["usable_gib"] == 9.5
    assert fields["total_gib"] == 503.5
    assert fields["swap_used_pct"] == 90.0
    assert fields["committed_pct"] == 33.0
    assert fields["shared_pct"] == 37.9
    assert fields["huge_free_mib"] == 2000.0


def test_the_cache_of_zfs_counts_as_usable() -> None:
    arc = "13 1 0x01 147 39984 0 0\nname type data\nsize                            4    214748364800\nc_min                           4    16106127360\n"
    fields = one(host_state.memory(MEMINFO, arc), "memory")
    assert fields["zfs_cache_mib"] == 189440
    assert fields["usable_pct"] == 38.6


def test_pages_of_64_kib_make_swap_counters_larger() -> None:
    vmstat = "nr_free_pages 125000\npswpin 16\npswpout 32\noom_kill 3\nallocstall_normal 4\nallocstall_movable 5\n"
    fields = one(host_state.vm_counters(vmstat, MEMINFO), "vm_counters")
    assert fields == {"page_kib": 64, "oom_kills": 3, "swap_in_mib": 1.0, "swap_out_mib": 2.0, "allocation_stalls": 9}
    assert (
        one(host_state.vm_counters("nr_free_pages 2000000\npswpin 256\n", MEMINFO), "vm_counters")["swap_in_mib"] == 1.0
    )


def test_pressure_has_all_three_averages() -> None:
    text = "some avg10=1.00 avg60=2.50 avg300=3.25 total=9\nfull avg10=0.10 avg60=0.20 avg300=0.30 total=4\n"
    facts = host_state.pressure({"/proc/pressure/memory": text, "/proc/pressure/irq": text})
    assert [fact.key for fact in facts] == ["memory"]
    assert facts[0].fields["full_avg300"] == 0.3
    assert facts[0].fields["some_avg300"] == 3.25
    assert facts[0].where("full_avg60").text.startswith("full avg10")


def test_processor_times() -> None:
    stat = "cpu  1000 0 500 8000 300 0 20 180 0 0\ncpu0 1 0 0 0 0 0 0 0 0 0\ncpu1 1 0 0 0 0 0 0 0 0 0\nprocs_running 3\nprocs_blocked 2\n"
    fields = one(host_state.cpu_times(stat, "6.99 4.92 2.88 6/118 25636\n"), "cpu_times")
    assert fields["total_s"] == 100.0
    assert fields["steal_s"] == 1.8
    assert fields["iowait_s"] == 3.0
    assert (fields["cpus"], fields["running"], fields["blocked"], fields["load5_per_cpu"]) == (2, 3, 2, 2.46)


def test_programs_that_take_processors_are_summed_by_name() -> None:
    def task(pid: int, comm: str, ticks: int) -> Task:
        return Task(pid, comm, "S", 1, 1, False, ticks, 1, 100)

    facts = host_state.busy_programs(
        [
            task(10, "ceph-osd", 500),
            task(11, "ceph-osd", 700),
            task(12, "python", 9999),
            task(13, "kswapd0", 10),
            task(14, "kswapd1", 30),
        ]
    )
    assert {fact.key: (fact.fields["processes"], fact.fields["cpu_s"], fact.fields["role"]) for fact in facts} == {
        "ceph-osd": (2, 12.0, "storage daemon"), "kswapd": (2, 0.4, "memory reclaim"),
    }  # fmt: skip


def test_cgroup_without_the_caches_it_could_give_back() -> None:
    place = "/sys/fs/cgroup/system.slice/docker-" + "a" * 64 + ".scope"
    files = {
        f"{place}/memory.max": "68719476736\n",
        f"{place}/memory.current": "68000000000\n",
        f"{place}/memory.stat": "anon 100\nfile 60000000000\nshmem 0\nslab_reclaimable 0\n",
        f"{place}/memory.events.local": "low 0\nhigh 0\nmax 55\noom 2\noom_kill 1\n",
        f"{place}/cpu.stat": "usage_usec 1\nnr_periods 1000\nnr_throttled 400\nthrottled_usec 1\n",
        f"{place}/cpu.max": "400000 100000\n",
    }
    facts = host_state.cgroups(files)
    fields = one(facts, "cgroup")
    assert fields["held_pct"] == 11.6
    assert (fields["oom_kill_count"], fields["oom_count"], fields["owner"]) == (1, 2, "docker aaaaaaaaaaaa")
    quota = one(facts, "cpu_quota")
    assert (quota["throttled_pct"], quota["cpus_allowed"]) == (40, 4.0)


def test_cgroup_of_version_1() -> None:
    place = "/sys/fs/cgroup/memory/slurm/uid_1000/job_4711"
    files = {
        f"{place}/memory.limit_in_bytes": "9223372036854771712\n", f"{place}/memory.usage_in_bytes": "1048576\n",
        f"{place}/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 4\n",
    }  # fmt: skip
    fields = one(host_state.cgroups(files, frozenset([place])), "cgroup")
    assert (fields["path"], fields["own"], fields["limit_mib"], fields["oom_kill_count"]) == (
        "/slurm/uid_1000/job_4711",
        True,
        -1.0,
        4,
    )
    assert fields["owner"] == "Slurm job 4711"


@pytest.mark.parametrize(
    ("driver", "governor", "low"),
    [("intel_pstate", "powersave", False), ("acpi-cpufreq", "powersave", True), ("acpi-cpufreq", "performance", False), ("amd-pstate-epp", "powersave", False)],
)  # fmt: skip
def test_powersave_is_a_low_clock_only_without_a_driver_that_chooses(driver: str, governor: str, low: bool) -> None:
    place = "/sys/devices/system/cpu/cpufreq/policy0"
    files = {
        f"{place}/scaling_driver": driver,
        f"{place}/scaling_governor": governor,
        f"{place}/scaling_max_freq": "1500000",
        f"{place}/cpuinfo_max_freq": "3700000",
    }
    fields = one(host_state.cpu_frequency(files), "cpu_frequency")
    assert fields["fixed_low"] is low
    assert fields["capped"] == 1


def test_tables_and_nodes_and_clock() -> None:
    files = {
        "/proc/sys/fs/file-nr": "9000\t0\t10000\n",
        "/proc/sys/kernel/pid_max": "32768\n",
        "/proc/sys/kernel/threads-max": "4000000\n",
        "/proc/loadavg": "1 1 1 2/32000 9\n",
    }
    facts = host_state.kernel_tables(files)
    assert one(facts, "kernel_table", "open files")["use_pct"] == 90.0
    assert one(facts, "kernel_table", "processes and threads")["use_pct"] == 97.7
    assert host_state.kernel_tables({"/proc/sys/fs/file-nr": "9000 0 9223372036854775807"}) == []
    node = "/sys/devices/system/node/node1"
    fields = one(
        host_state.numa_nodes(
            {f"{node}/meminfo": "Node 1 MemTotal:       2048 kB\nNode 1 MemFree: 1024 kB\n", f"{node}/cpulist": "\n"}
        ),
        "numa_node",
    )
    assert fields == {"size_mib": 2, "free_mib": 1, "has_cpus": False}


def test_chrony_tells_offset_and_sign() -> None:
    text = "Reference ID    : C0A80101 (192.168.1.1)\nStratum         : 3\nSystem time     : 42.500000000 seconds slow of NTP time\nLeap status     : Normal\n"
    fields = one(host_state.chrony_tracking(text), "time_sync")
    assert (fields["synchronised"], fields["offset_s"], fields["stratum"]) == (True, -42.5, 3)
    assert host_state.chrony_tracking("506 Cannot talk to daemon\n") == []
    assert one(host_state.timedatectl("NTP=yes\nNTPSynchronized=no\n"), "time_sync")["synchronised"] is False


def test_limits_say_whose_they_are() -> None:
    text = "Limit                     Soft Limit           Hard Limit           Units\nMax open files            1024                 4096                 files\nMax locked memory         65536                65536                bytes\n"
    facts = process_limits(text, "slurmd", "/proc/900/limits", 900)
    assert {fact.key for fact in facts} == {"open_files of slurmd", "max_locked_memory_kib of slurmd"}
    assert one(facts, "limit", "max_locked_memory_kib of slurmd")["soft_mib"] == 0.06


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\x00" * 100,
        "9" * 5000,
        "MemTotal: " + "9" * 400 + " kB\nMemAvailable: 1 kB\n",
        "cpu " + "9 " * 11,
        "some avg10=1.2.3 avg60=.. avg300=9",
    ],
)
def test_hostile_texts_cost_nothing(text: str) -> None:
    host_state.memory(text, text)
    host_state.vm_counters(text, text)
    host_state.pressure({"/proc/pressure/memory": text})
    host_state.cpu_times(text, text)
    host_state.cgroups(
        {
            "/sys/fs/cgroup/a/memory.max": text,
            "/sys/fs/cgroup/a/memory.current": text,
            "/sys/fs/cgroup/a/memory.stat": text,
            "/sys/fs/cgroup/a/cpu.max": text,
        }
    )
    host_state.sysctls({"/proc/sys/vm/swappiness": text})
    host_state.kernel_tables({"/proc/sys/fs/file-nr": text, "/proc/loadavg": text, "/proc/sys/kernel/pid_max": text})
    host_state.chrony_tracking(text)
    process_limits(text, "self", "/proc/self/limits")
