"""Faults of the host: kernel, memory, power, sensors, storage, settings."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from .faults import fault
from .machine import Process, Sensor

if TYPE_CHECKING:
    from .server import Server


@fault()
def kernel_log(server: Server, text: str = "NVRM: something new") -> None:
    """Any kernel message of ten minutes ago."""
    server.machine.say(text)


@fault()
def soft_lockup(server: Server) -> None:
    """A CPU hung in the driver's spin lock."""
    server.machine.say("watchdog: BUG: soft lockup - CPU#17 stuck for 26s! [python3:41003]", level=0)
    server.machine.say("RIP: 0010:native_queued_spin_lock_slowpath+0x2a1/0x2e0", level=4)


@fault()
def hard_lockup(server: Server) -> None:
    """A CPU without interrupts."""
    server.machine.say("NMI watchdog: Watchdog detected hard LOCKUP on cpu 17", level=0)


@fault()
def rcu_stall(server: Server) -> None:
    """RCU does not get on."""
    server.machine.say("rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:", level=3)
    server.machine.say(
        "rcu: \t17-....: (21003 ticks this GP) idle=2b3c/1/0x4000000000000000 softirq=900/900 fqs=5200", level=3
    )


@fault()
def hung_task(server: Server, pid: int = 41_003) -> None:
    """A task in state D for minutes, still there."""
    server.machine.say(f"INFO: task python3:{pid} blocked for more than 241 seconds.", level=3)
    server.machine.processes[pid] = Process(pid, "/usr/bin/python3 train.py", state="D", wchan="nfs_wait_bit_killable")


@fault()
def slow_nmi(server: Server) -> None:
    """perf complains of slow NMI handlers."""
    server.machine.say("INFO: NMI handler (perf_event_nmi_handler) took too long to run: 12.345 msecs", level=6)


@fault()
def mce(server: Server) -> None:
    """An uncorrected machine check."""
    server.machine.say("mce: [Hardware Error]: Machine check events logged", level=0)
    server.machine.say("mce: [Hardware Error]: CPU 3: Machine Check: 0 Bank 7: be00000000800400", level=0)


@fault()
def edac(server: Server, corrected: int = 4000, uncorrected: int = 0) -> None:
    """Errors of the host's memory."""
    server.machine.files["sys/devices/system/edac/mc/mc0/ce_count"] = f"{corrected}\n"
    server.machine.files["sys/devices/system/edac/mc/mc0/ue_count"] = f"{uncorrected}\n"
    kind = "UE" if uncorrected else "CE"
    server.machine.say(
        f"EDAC MC0: {uncorrected or corrected} {kind} memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0 (channel:1 slot:0 page:0x1234 offset:0x0 grain:32 syndrome:0x0)",
        level=3,
    )


@fault()
def oom_kill(server: Server, pid: int = 41_003) -> None:
    """The kernel killed a process for lack of memory."""
    server.machine.say(
        f"oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0-1,global_oom,task_memcg=/user.slice,task=python3,pid={pid},uid=1001",
        level=6,
    )
    server.machine.say(
        f"Out of memory: Killed process {pid} (python3) total-vm:901234567kB, anon-rss:812345678kB, file-rss:1234kB, shmem-rss:0kB, UID:1001 pgtables:1612345kB oom_score_adj:0",
        level=3,
    )
    server.machine.files["proc/vmstat"] = "nr_free_pages 520000000\npgmajfault 12000\npswpin 0\npswpout 0\noom_kill 1\n"


@fault()
def cgroup_oom(server: Server, pid: int = 41_003) -> None:
    """A cgroup at its limit killed a process."""
    group = "system.slice/slurmstepd.scope/job_777"
    server.machine.processes[pid + 1] = Process(pid + 1, "/usr/bin/python3 train.py", cgroup=f"/{group}")
    base = f"sys/fs/cgroup/{group}"
    server.machine.files |= {f"{base}/memory.max": "68719476736\n", f"{base}/memory.current": "68700000000\n", f"{base}/memory.peak": "68719476736\n",
                             f"{base}/memory.events": "low 0\nhigh 0\nmax 900\noom 3\noom_kill 3\noom_group_kill 0\n"}  # fmt: skip
    server.machine.say(
        f"Memory cgroup out of memory: Killed process {pid} (python3) total-vm:90123456kB, anon-rss:66234567kB, file-rss:1234kB, shmem-rss:0kB, UID:1001 pgtables:161234kB oom_score_adj:0",
        level=3,
    )


@fault()
def memory_low(server: Server, available_mib: int = 900) -> None:
    """The host has almost no memory left, with pressure."""
    server.machine.memory_available_mib = available_mib
    server.machine.pressure["memory"] = 45.0


@fault()
def pressure(server: Server, what: str = "io", share: float = 60.0) -> None:
    """Tasks wait for cpu, memory or io so many per cent of the time."""
    server.machine.pressure[what] = share


@fault()
def load_high(server: Server, load: float = 900.0) -> None:
    """A load far above the number of CPUs."""
    server.machine.load = (load, load, load)


@fault()
def read_only(server: Server, mount: str = "/raid") -> None:
    """A file system was remounted read-only after errors."""
    server.machine.mounts = [
        (device, at, kind, options.replace("rw", "ro", 1) if at == mount else options)
        for device, at, kind, options in server.machine.mounts
    ]
    server.machine.say("EXT4-fs (nvme1n1): Remounting filesystem read-only", level=2)


@fault()
def block_errors(server: Server) -> None:
    """A disk with I/O errors."""
    server.machine.say(
        "blk_update_request: critical medium error, dev nvme1n1, sector 123456 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 0",
        level=3,
    )
    server.machine.say("nvme nvme1: I/O 12 QID 3 timeout, aborting", level=4)


@fault()
def nfs_not_responding(server: Server) -> None:
    """The NFS server does not answer."""
    server.machine.say("nfs: server 10.0.0.5 not responding, still trying", level=5, ago=90)


@fault()
def shm_small(server: Server, size: str = "64M") -> None:
    """/dev/shm is small."""
    server.machine.mounts = [
        (device, at, kind, f"{options},size={size.lower().replace('m', '')}m" if at == "/dev/shm" else options)
        for device, at, kind, options in server.machine.mounts
    ]


@fault()
def limits_low(server: Server) -> None:
    """Few open files and little locked memory, configured and in running processes."""
    server.machine.files["etc/security/limits.conf"] = (
        "* soft nofile 1024\n* hard nofile 4096\n* soft memlock 64\n* hard memlock 64\n"
    )
    server.machine.processes[41_050] = Process(41_050, "/usr/bin/python3 train.py", nofile=1024, memlock="65536")
    for process in server.machine.processes.values():
        if process.name == "slurmd":
            process.nofile, process.memlock = 1024, "65536"


@fault()
def numa_balancing(server: Server) -> None:
    """Automatic NUMA balancing is on."""
    server.machine.sysctl["kernel/numa_balancing"] = "1"


@fault()
def thp_always(server: Server) -> None:
    """Transparent huge pages always."""
    server.machine.files["sys/kernel/mm/transparent_hugepage/enabled"] = "[always] madvise never\n"


@fault()
def governor(server: Server, name: str = "powersave") -> None:
    """The CPUs' frequency governor is not performance."""
    for cpu in range(server.machine.cpus):
        server.machine.files[f"sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor"] = f"{name}\n"
        if cpu % 10 == 0:
            server.machine.files[f"sys/devices/system/cpu/cpufreq/policy{cpu}/scaling_governor"] = f"{name}\n"


@fault()
def overcommit_strict(server: Server) -> None:
    """Strict overcommit."""
    server.machine.sysctl |= {"vm/overcommit_memory": "2", "vm/overcommit_ratio": "50"}


@fault()
def min_free_low(server: Server) -> None:
    """vm.min_free_kbytes far too small for the server."""
    server.machine.sysctl["vm/min_free_kbytes"] = "67584"


@fault()
def clock_unsynchronised(server: Server) -> None:
    """Nothing keeps the clock."""
    server.machine.answers["timedatectl", "*"] = (
        "Timezone=Etc/UTC\nLocalRTC=no\nCanNTP=yes\nNTP=no\nNTPSynchronized=no\n",
        0,
    )
    for unit in ("chrony", "systemd-timesyncd"):
        server.machine.units[unit] |= {"ActiveState": "inactive", "SubState": "dead", "UnitFileState": "disabled"}


@fault()
def own_name_missing(server: Server) -> None:
    """/etc/hosts does not know the server's own name."""
    server.machine.files["etc/hosts"] = "127.0.0.1 localhost\n"


@fault()
def mtu_mixed(server: Server, mtu: int = 9000) -> None:
    """One interface with another MTU."""
    server.machine.files["sys/class/net/eno1/mtu"] = f"{mtu}\n"


@fault()
def storage_hog(server: Server) -> None:
    """A storage daemon takes the CPUs."""
    server.machine.processes[2200] = Process(
        2200,
        "/usr/bin/ceph-osd -f --cluster ceph --id 3",
        0,
        state="R",
        cpu_s=800_000.0,
        age_s=90_000,
        cgroup="/system.slice/ceph-osd@3.service",
    )


def _replace(server: Server, name: str, value: str, status: str) -> None:
    server.machine.sensors = [
        Sensor(name, value, status) if sensor.name == name else sensor for sensor in server.machine.sensors
    ]


def _just_now(server: Server) -> str:
    """A stamp of the BMC's log, ten minutes ago: an old entry says nothing of today."""
    return time.strftime("%m/%d/%Y | %H:%M:%S", time.gmtime(server.machine.now - 600))


@fault()
def psu_failed(server: Server, number: int = 2) -> None:
    """A power supply has failed: sensors, SEL, no redundancy."""
    _replace(server, f"PS{number} Status", "0x0b", "cr")
    _replace(server, f"PS{number} Input", "0 Watts", "cr")
    _replace(server, "PS Redundancy", "0x02", "nc")
    server.machine.sel.append(f"{_just_now(server)} | Power Supply #0x{number:02x} | Failure detected | Asserted")


@fault()
def fan_sensor(server: Server, number: int = 3) -> None:
    """A fan of the server stands still."""
    _replace(server, f"FAN{number}", "0 RPM", "cr")
    server.machine.sel.append(f"{_just_now(server)} | Fan #0x{number:02x} | Lower Critical going low  | Asserted")


@fault()
def inlet_hot(server: Server, degrees: int = 44) -> None:
    """Warm air in front of the server."""
    _replace(server, "Inlet Temp", f"{degrees} degrees C", "cr")
    server.machine.sel.append(f"{_just_now(server)} | Temperature #0x01 | Upper Critical going high | Asserted")


@fault()
def voltage_low(server: Server) -> None:
    """The 12 V rail is low."""
    _replace(server, "12V", "10.80 Volts", "cr")


@fault()
def ipmi_hangs(server: Server, seconds: float = 30.0) -> None:
    """The BMC does not answer."""
    server.machine.hangs["ipmitool"] = seconds


@fault()
def smi_hangs(server: Server, seconds: float = 30.0) -> None:
    """Only nvidia-smi hangs."""
    server.machine.hangs["nvidia-smi"] = seconds


@fault()
def nvidia_smi_missing(server: Server) -> None:
    """There is no nvidia-smi (as in slim containers)."""
    server.machine.answers["nvidia-smi", "*"] = "sh: nvidia-smi: not found\n", 127
