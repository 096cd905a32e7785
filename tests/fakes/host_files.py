"""The host's /proc, /sys and /etc."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .nodes import Folder, Link, Nodes

if TYPE_CHECKING:
    from .machine import Machine, Port, Process
    from .scenario import Scenario
    from .skus import Sku

IB_COUNTERS = ("symbol_error", "link_error_recovery", "link_downed", "port_rcv_errors", "port_rcv_remote_physical_errors",
               "port_rcv_switch_relay_errors", "port_xmit_discards", "port_xmit_constraint_errors", "port_rcv_constraint_errors",
               "local_link_integrity_errors", "excessive_buffer_overrun_errors", "VL15_dropped", "port_xmit_data", "port_rcv_data",
               "port_xmit_wait")  # fmt: skip
IB_HW_COUNTERS = ("out_of_sequence", "packet_seq_err", "local_ack_timeout_err", "rnr_nak_retry_err", "duplicate_request",
                  "roce_adp_retrans", "out_of_buffer", "np_cnp_sent", "rp_cnp_handled", "req_cqe_error", "resp_cqe_error")  # fmt: skip


def _memory(machine: Machine) -> Nodes:
    total, available, swap = (
        value * 1024 for value in (machine.memory_mib, machine.memory_available_mib, machine.swap_mib)
    )
    meminfo = {"MemTotal": total, "MemFree": available - available // 20, "MemAvailable": available, "Buffers": 400_000,
               "Cached": min(available // 30, 40_000_000), "SwapCached": 0, "Active": 9_000_000, "Inactive": 20_000_000,
               "Mlocked": 30_000, "SwapTotal": swap, "SwapFree": swap, "Dirty": 900, "Writeback": 0, "AnonPages": total - available,
               "Mapped": 900_000, "Shmem": 60_000, "Slab": 5_000_000, "SReclaimable": 3_000_000, "SUnreclaim": 2_000_000,
               "KernelStack": 60_000, "PageTables": 90_000, "CommitLimit": total // 2 + swap, "Committed_AS": 20_000_000,
               "AnonHugePages": 0, "HugePages_Total": 0, "HugePages_Free": 0, "Hugepagesize": 2048}  # fmt: skip
    text = "".join(
        f"{key}:{value:>15}{'' if key.startswith('HugePages_') else ' kB'}\n" for key, value in meminfo.items()
    )
    nodes: Nodes = {
        "proc/meminfo": text, "proc/vmstat": "nr_free_pages 520000000\npgmajfault 12000\npswpin 0\npswpout 0\noom_kill 0\nnuma_pages_migrated 0\ncompact_stall 0\n",
        "proc/swaps": "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n",
    }  # fmt: skip
    for node in range(machine.numa_nodes):
        share = total // machine.numa_nodes
        nodes[f"sys/devices/system/node/node{node}/meminfo"] = (
            f"Node {node} MemTotal: {share} kB\nNode {node} MemFree: {available // machine.numa_nodes} kB\n"
        )
        per = machine.cpus // machine.numa_nodes
        nodes[f"sys/devices/system/node/node{node}/cpulist"] = f"{node * per}-{node * per + per - 1}\n"
    nodes["sys/devices/system/node/online"] = f"0-{machine.numa_nodes - 1}\n"
    for name, value in machine.pressure.items():
        some = f"some avg10={value:.2f} avg60={value:.2f} avg300={value:.2f} total={int(value * 1e6)}\n"
        full = some.replace("some", "full") if name != "cpu" else "full avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
        nodes[f"proc/pressure/{name}"] = some + full
    return nodes


SYSCTL = {
    "kernel/osrelease": "", "kernel/hostname": "", "kernel/ostype": "Linux", "kernel/version": "#52-Ubuntu SMP PREEMPT_DYNAMIC Thu Dec  5 13:09:44 UTC 2024",
    "kernel/random/boot_id": "", "kernel/core_pattern": "|/usr/lib/systemd/systemd-coredump %P %u %g %s %t 9223372036854775808 %h %d",
    "kernel/pid_max": "4194304", "kernel/threads-max": "16511340", "kernel/panic": "0", "kernel/hung_task_timeout_secs": "120",
    "kernel/hung_task_panic": "0", "kernel/nmi_watchdog": "1", "kernel/watchdog_thresh": "10", "kernel/numa_balancing": "0", "kernel/tainted": "12288",
    "kernel/softlockup_panic": "0", "kernel/dmesg_restrict": "0", "kernel/perf_event_paranoid": "4", "kernel/yama/ptrace_scope": "1",
    "kernel/sched_autogroup_enabled": "1", "kernel/shmmax": "18446744073692774399", "kernel/sysrq": "176",
    "vm/overcommit_memory": "0", "vm/overcommit_ratio": "50", "vm/swappiness": "60", "vm/min_free_kbytes": "4194304", "vm/zone_reclaim_mode": "0",
    "vm/max_map_count": "1048576", "vm/dirty_ratio": "20", "vm/panic_on_oom": "0", "vm/oom_kill_allocating_task": "0", "vm/nr_hugepages": "0",
    "vm/watermark_scale_factor": "10", "vm/vfs_cache_pressure": "100", "vm/compaction_proactiveness": "20",
    "fs/file-nr": "9000\t0\t9223372036854775807", "fs/file-max": "9223372036854775807", "fs/nr_open": "1048576", "fs/inotify/max_user_instances": "8192",
    "fs/inotify/max_user_watches": "1048576", "net/core/somaxconn": "4096",
}  # fmt: skip


def _char_devices(machine: Machine) -> str:
    rows = ["  1 mem", "  5 /dev/tty"]
    if "nvidia" in machine.modules:
        rows += ["195 nvidia", "195 nvidia-modeset", "195 nvidiactl", "507 nvidia-caps", "511 nvidia-nvlink"]
    if "nvidia_uvm" in machine.modules:
        rows.append("509 nvidia-uvm")
    return "Character devices:\n" + "\n".join(rows) + "\n\nBlock devices:\n259 blkext\n"


def _proc(machine: Machine) -> Nodes:
    known = {
        "kernel/osrelease": machine.kernel,
        "kernel/hostname": machine.hostname,
        "kernel/random/boot_id": machine.boot_id,
    }
    nodes: Nodes = {f"proc/sys/{key}": f"{value}\n" for key, value in {**SYSCTL, **known, **machine.sysctl}.items()}
    one, five, fifteen = machine.load
    ticks = int(machine.uptime_s * 100)
    nodes |= {
        "proc/version": f"Linux version {machine.kernel} (buildd@lcy02-amd64-080) (x86_64-linux-gnu-gcc-13 (Ubuntu 13.3.0-6ubuntu2~24.04) 13.3.0) #52-Ubuntu SMP PREEMPT_DYNAMIC Thu Dec  5 13:09:44 UTC 2024\n",
        "proc/cmdline": f"BOOT_IMAGE=/boot/vmlinuz-{machine.kernel} root=UUID=2f0f8d5e-3a1b-4f52-9c8e-0d6a7b1c2e3f {' '.join(machine.kernel_options)}\n",
        "proc/uptime": f"{machine.uptime_s:.2f} {machine.uptime_s * machine.cpus * 0.98:.2f}\n",
        "proc/loadavg": f"{one:.2f} {five:.2f} {fifteen:.2f} 1/{2100 + len(machine.processes)} 41999\n",
        "proc/stat": f"cpu  {ticks} 0 {ticks // 2} {ticks * machine.cpus} 2000 0 900 0 0 0\n"
        + "".join(f"cpu{cpu} {ticks // machine.cpus} 0 {ticks // machine.cpus // 2} {ticks} 20 0 9 0 0 0\n" for cpu in range(machine.cpus))
        + f"intr 900000\nctxt 90000000\nbtime {int(machine.now - machine.uptime_s)}\nprocesses 900000\nprocs_running 1\nprocs_blocked 0\n",
        "proc/mounts": "".join(f"{device} {mount} {kind} {options} 0 0\n" for device, mount, kind, options in machine.mounts),
        "proc/filesystems": "nodev\tsysfs\nnodev\ttmpfs\nnodev\tproc\nnodev\tcgroup2\n\text4\n\txfs\nnodev\tnfs4\n",
        "proc/devices": _char_devices(machine),
        "proc/cpuinfo": "".join(f"processor\t: {cpu}\nmodel name\t: Intel(R) Xeon(R) Platinum 8480C\nphysical id\t: {cpu * machine.numa_nodes // machine.cpus}\ncpu MHz\t\t: 2000.000\nflags\t\t: fpu vme de pse avx512f\n\n" for cpu in range(machine.cpus)),
        "proc/diskstats": " 259       0 nvme0n1 90000 10 9000000 30000 80000 20 8000000 40000 0 60000 70000 0 0 0 0 0 0\n",
        "proc/net/dev": "Inter-|   Receive                                                |  Transmit\n face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n"
        "    lo: 1000 10 0 0 0 0 0 0 1000 10 0 0 0 0 0 0\n  eno1: 90000000 90000 0 0 0 0 0 0 80000000 80000 0 0 0 0 0 0\n",
        "proc/net/rpc/nfs": "net 0 0 0 0\nrpc 12000 0 12000\n", "proc/self": Link("4242") if 4242 in machine.processes else Link("1"),
        "proc/iomem": "00000000-00000fff : Reserved\n", "proc/interrupts": "            CPU0\n  18:          0   PCI-MSI  nvidia\n",
    }  # fmt: skip
    del nodes["proc/self"]  # it would be the reader's own process, which is not of this server
    for process in machine.processes.values():
        nodes |= _process(machine, process)
        if process.name == "slurmd":
            nodes["run/slurmd.pid"] = f"{process.pid}\n"
    return nodes


STATES = {
    "S": "S (sleeping)",
    "R": "R (running)",
    "D": "D (disk sleep)",
    "Z": "Z (zombie)",
    "T": "T (stopped)",
    "I": "I (idle)",
}


def _process(machine: Machine, process: Process) -> Nodes:
    base, pid = f"proc/{process.pid}", process.pid
    start = int(max(machine.uptime_s - process.age_s, 0) * 100)
    zombie = process.state == "Z"
    rss = 0 if zombie else process.rss_mib
    fields = [pid, f"({process.name})", process.state, process.ppid, pid, pid, 0, -1, 4194304, 900, 0, 0, 0, int(process.cpu_s * 80),
              int(process.cpu_s * 20), 0, 0, 20, 0, 1, 0, start, rss * 3 << 20, rss * 256, "18446744073709551615", *([0] * 26)]  # fmt: skip
    nodes: Nodes = {
        f"{base}/stat": " ".join(map(str, fields)) + "\n", f"{base}/comm": f"{process.name}\n",
        f"{base}/status": f"Name:\t{process.name}\nUmask:\t0022\nState:\t{STATES[process.state]}\nTgid:\t{pid}\nPid:\t{pid}\nPPid:\t{process.ppid}\nTracerPid:\t0\n"
        f"Uid:\t{process.user}\t{process.user}\t{process.user}\t{process.user}\nGid:\t{process.user}\t{process.user}\t{process.user}\t{process.user}\n"
        f"VmPeak:\t{rss * 3072} kB\nVmSize:\t{rss * 3072} kB\nVmLck:\t0 kB\nVmRSS:\t{rss * 1024} kB\nVmSwap:\t0 kB\nThreads:\t1\nSigBlk:\t0000000000000000\nSigIgn:\t0000000001001000\n"
        f"Cpus_allowed_list:\t0-{machine.cpus - 1}\nvoluntary_ctxt_switches:\t900\nnonvoluntary_ctxt_switches:\t9\n",
        f"{base}/cmdline": "" if zombie else process.command.replace(" ", "\0") + "\0", f"{base}/cgroup": f"0::{process.cgroup}\n", f"{base}/wchan": process.wchan,
        f"{base}/oom_score": "666\n", f"{base}/oom_score_adj": "0\n", f"{base}/loginuid": f"{process.user}\n",
    }  # fmt: skip
    if process.wchan != "0":
        nodes[f"{base}/stack"] = f"[<0>] {process.wchan}+0x1a/0x40\n[<0>] entry_SYSCALL_64_after_hwframe+0x78/0x80\n"
    if zombie:
        return nodes
    nodes |= {
        f"{base}/environ": "".join(f"{key}={value}\0" for key, value in {"PATH": "/usr/bin", "HOME": "/home/user", **process.environment}.items()),
        f"{base}/io": "rchar: 9000000\nwchar: 900000\nsyscr: 900\nsyscw: 90\nread_bytes: 9000000\nwrite_bytes: 900000\ncancelled_write_bytes: 0\n",
        f"{base}/limits": "Limit                     Soft Limit           Hard Limit           Units     \n"
        f"Max locked memory         {process.memlock:<20} {process.memlock:<20} bytes     \nMax open files            {process.nofile:<20} {process.nofile:<20} files     \n"
        "Max processes             2062000              2062000              processes \nMax core file size        0                    unlimited            bytes     \n"
        "Max stack size            8388608              unlimited            bytes     \n",
        f"{base}/maps": "7f0000000000-7f0000001000 r-xp 00000000 103:02 1234 /usr/lib/x86_64-linux-gnu/libc.so.6\n", f"{base}/exe": Link("/usr/bin/python3.12"),
        f"{base}/cwd": Link("/home/user"), f"{base}/root": Link("/"), f"{base}/fd/0": Link("/dev/null"), f"{base}/fd/1": Link("pipe:[90001]"), f"{base}/fd/2": Link("pipe:[90002]"),
        f"{base}/mountinfo": "25 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw\n",
    }  # fmt: skip
    if process.devices:
        for at, name in enumerate(["nvidiactl", "nvidia-uvm", *(f"nvidia{gpu}" for gpu in process.devices)]):
            nodes[f"{base}/fd/{at + 10}"] = Link(f"/dev/{name}")
    return nodes


def _cgroups(machine: Machine) -> Nodes:
    base = "sys/fs/cgroup"
    nodes: Nodes = {
        f"{base}/cgroup.controllers": "cpuset cpu io memory hugetlb pids rdma misc\n",
        f"{base}/memory.pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
    }
    paths = {process.cgroup.strip("/") for process in machine.processes.values()} | {"system.slice", "user.slice"}
    for path in sorted(path for path in paths if path):
        members = "".join(
            f"{process.pid}\n" for process in machine.processes.values() if process.cgroup.strip("/") == path
        )
        nodes |= {f"{base}/{path}/memory.max": "max\n", f"{base}/{path}/memory.high": "max\n", f"{base}/{path}/memory.current": "1073741824\n",
                  f"{base}/{path}/memory.peak": "2147483648\n", f"{base}/{path}/memory.swap.max": "max\n", f"{base}/{path}/cgroup.procs": members,
                  f"{base}/{path}/memory.events": "low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\noom_group_kill 0\n", f"{base}/{path}/pids.current": "9\n",
                  f"{base}/{path}/pids.max": "max\n", f"{base}/{path}/cpu.max": "max 100000\n", f"{base}/{path}/cpu.stat": "usage_usec 900\nnr_throttled 0\nthrottled_usec 0\n"}  # fmt: skip
    return nodes


def _port(machine: Machine, port: Port, index: int) -> Nodes:
    base = f"sys/class/infiniband/{port.device}"
    nodes: Nodes = {
        f"{base}/fw_ver": "28.39.1002\n", f"{base}/board_id": "MT_0000000838\n", f"{base}/hca_type": "MT4129\n", f"{base}/node_type": "1: CA\n",
        f"{base}/node_guid": f"a088:c203:00ab:{index:04x}\n", f"{base}/ports/1/state": f"{port.state}\n", f"{base}/ports/1/phys_state": f"{port.physical}\n",
        f"{base}/ports/1/rate": f"{port.rate}\n", f"{base}/ports/1/link_layer": f"{port.layer}\n", f"{base}/ports/1/lid": f"0x{index + 1:x}\n",
        f"{base}/ports/1/sm_lid": "0x1\n", f"{base}/ports/1/cap_mask": "0xa751e848\n",
    }  # fmt: skip
    for name in IB_COUNTERS:
        default = 900_000_000 if name.endswith("_data") else 0
        nodes[f"{base}/ports/1/counters/{name}"] = f"{port.counters.get(name, default)}\n"
    for name in IB_HW_COUNTERS:
        nodes[f"{base}/ports/1/hw_counters/{name}"] = f"{port.counters.get(name, 0)}\n"
    nics = [function for function in machine.bus if function.kind == "nic"]
    if index < len(nics):
        nodes[f"{base}/device"] = Link(f"../../../{nics[index].folder.removeprefix('sys/')}")
    return nodes


def _sys(machine: Machine, sku: Sku) -> Nodes:
    nodes: Nodes = {
        "sys/fs/pstore": Folder(), "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n", "sys/kernel/mm/transparent_hugepage/defrag": "always defer defer+madvise [madvise] never\n",
        "sys/kernel/security/lockdown": "[none] integrity confidentiality\n", "sys/class/dmi/id/sys_vendor": "NVIDIA\n" if sku.form == "sxm" else "Supermicro\n",
        "sys/class/dmi/id/product_name": f"{'DGX' if sku.form == 'sxm' else 'SYS-421GE'}\n", "sys/class/dmi/id/bios_version": "1.5.3\n", "sys/class/dmi/id/bios_date": "06/01/2025\n",
        "sys/class/dmi/id/board_name": "baseboard\n", "sys/class/dmi/id/chassis_type": "23\n", "sys/devices/system/cpu/online": f"0-{machine.cpus - 1}\n", "sys/devices/system/cpu/possible": f"0-{machine.cpus - 1}\n",
        "sys/devices/system/cpu/smt/control": "on\n", "sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc\n",
        "sys/devices/system/edac/mc/mc0/ce_count": "0\n", "sys/devices/system/edac/mc/mc0/ue_count": "0\n",
        "sys/class/hwmon/hwmon0/name": "coretemp\n", "sys/class/hwmon/hwmon0/temp1_input": "41000\n", "sys/class/hwmon/hwmon0/temp1_max": "100000\n", "sys/class/hwmon/hwmon0/temp1_crit": "105000\n",
        "sys/class/hwmon/hwmon0/temp1_label": "Package id 0\n", "sys/kernel/iommu_groups": Folder(), "sys/firmware/efi/fw_platform_size": "64\n",
        "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c": b"\x06\0\0\0" + bytes([machine.secure_boot]),
        "sys/block/nvme0n1/device/state": "live\n", "sys/block/nvme0n1/queue/rotational": "0\n", "sys/block/nvme0n1/inflight": "       0        0\n", "sys/block/nvme0n1/size": "7501476528\n",
    }  # fmt: skip
    for cpu in range(machine.cpus):
        nodes[f"sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor"] = "performance\n"
        if cpu % 10 == 0:  # as many as anybody reads
            policy = {
                "scaling_governor": "performance",
                "scaling_driver": "acpi-cpufreq",
                "cpuinfo_max_freq": "2000000",
                "scaling_max_freq": "2000000",
            }
            nodes |= {
                f"sys/devices/system/cpu/cpufreq/policy{cpu}/{name}": f"{text}\n" for name, text in policy.items()
            }
    for name, speed in (("eno1", 25000), ("lo", 0)):
        nodes |= {f"sys/class/net/{name}/operstate": "up\n" if speed else "unknown\n", f"sys/class/net/{name}/mtu": "1500\n" if speed else "65536\n",
                  f"sys/class/net/{name}/carrier": "1\n", f"sys/class/net/{name}/address": "02:00:00:00:00:01\n", f"sys/class/net/{name}/type": "1\n"}  # fmt: skip
        if speed:
            nodes |= {f"sys/class/net/{name}/speed": f"{speed}\n", f"sys/class/net/{name}/duplex": "full\n"}
        for counter in ("rx_errors", "tx_errors", "rx_dropped", "tx_dropped", "rx_crc_errors", "rx_bytes", "tx_bytes"):
            nodes[f"sys/class/net/{name}/statistics/{counter}"] = "900000\n" if counter.endswith("bytes") else "0\n"
    for index, port in enumerate(machine.ports):
        nodes |= _port(machine, port, index)
    return nodes


def _etc(machine: Machine, scenario: Scenario) -> Nodes:
    gpus = int(scenario["count"])
    devices = "".join(
        f'- containerEdits:\n    deviceNodes:\n    - path: /dev/nvidia{index}\n  name: "{index}"\n'
        for index in range(gpus)
    )
    return {
        "etc/os-release": 'PRETTY_NAME="Ubuntu 24.04.1 LTS"\nNAME="Ubuntu"\nVERSION_ID="24.04"\nVERSION="24.04.1 LTS (Noble Numbat)"\nVERSION_CODENAME=noble\nID=ubuntu\nID_LIKE=debian\n',
        "etc/hosts": f"127.0.0.1 localhost\n10.0.0.11 {machine.hostname}.example {machine.hostname}\n::1 localhost ip6-localhost ip6-loopback\n", "etc/hostname": f"{machine.hostname}\n",
        "etc/resolv.conf": "nameserver 10.0.0.2\nsearch example\n", "etc/nsswitch.conf": "hosts: files dns\n", "etc/timezone": "Etc/UTC\n",
        "etc/fstab": "UUID=2f0f8d5e-3a1b-4f52-9c8e-0d6a7b1c2e3f / ext4 defaults 0 1\n", "etc/modprobe.d/blacklist-nouveau.conf": "blacklist nouveau\noptions nouveau modeset=0\n",
        "etc/modprobe.d/nvidia.conf": "options nvidia NVreg_DeviceFileMode=0666\n", "etc/modules-load.d/nvidia.conf": "nvidia\nnvidia_uvm\n",
        "etc/nvidia-container-runtime/config.toml": 'disable-require = false\n[nvidia-container-cli]\nload-kmods = true\nldconfig = "@/sbin/ldconfig.real"\n[nvidia-container-runtime]\nlog-level = "info"\nmode = "auto"\nruntimes = ["runc", "crun"]\n',
        "etc/docker/daemon.json": '{\n  "default-runtime": "nvidia",\n  "exec-opts": ["native.cgroupdriver=systemd"],\n  "features": {"cdi": true},\n  "runtimes": {"nvidia": {"args": [], "path": "nvidia-container-runtime"}}\n}\n',
        "etc/cdi/nvidia.yaml": f"cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices:\n{devices}containerEdits:\n  deviceNodes:\n  - path: /dev/nvidiactl\n  - path: /dev/nvidia-uvm\n"
        f"  mounts:\n  - containerPath: /usr/lib/x86_64-linux-gnu/libcuda.so.{machine.user_space}\n    hostPath: /usr/lib/x86_64-linux-gnu/libcuda.so.{machine.user_space}\n",
        "etc/slurm/gres.conf": f"NodeName={machine.hostname} Name=gpu File=/dev/nvidia[0-{max(gpus - 1, 0)}]\n" if gpus > 1 else f"NodeName={machine.hostname} Name=gpu File=/dev/nvidia0\n",
        "etc/slurm/slurm.conf": f"ClusterName=c1\nSlurmctldHost=head\nGresTypes=gpu\nNodeName={machine.hostname} Gres=gpu:{gpus} CPUs={machine.cpus} RealMemory={machine.memory_mib - 20000} State=UNKNOWN\nPartitionName=gpu Nodes={machine.hostname} Default=YES State=UP\n",
        "etc/slurm/cgroup.conf": "ConstrainDevices=yes\nConstrainRAMSpace=yes\n", "etc/security/limits.conf": "* soft memlock unlimited\n* hard memlock unlimited\n* soft nofile 1048576\n* hard nofile 1048576\n",
        "etc/passwd": "root:x:0:0:root:/root:/bin/bash\nuser:x:1001:1001::/home/user:/bin/bash\n", "etc/group": "root:x:0:\nuser:x:1001:\nvideo:x:44:\nrender:x:993:\n",
        "etc/apt/apt.conf.d/20auto-upgrades": 'APT::Periodic::Update-Package-Lists "1";\nAPT::Periodic::Unattended-Upgrade "0";\n', "etc/default/grub": 'GRUB_DEFAULT=0\nGRUB_CMDLINE_LINUX_DEFAULT="quiet"\n',
        "var/lib/dpkg/status": "".join(f"Package: {name}\nStatus: install ok installed\nVersion: {machine.user_space}-0ubuntu1\n\n" for name in ("nvidia-driver-580-open", "nvidia-fabricmanager-580", "libnvidia-compute-580")),
        "dev/shm": Folder(), "dev/null": "", "tmp": Folder(),
    }  # fmt: skip


def render_host(machine: Machine, sku: Sku, scenario: Scenario) -> Nodes:
    """All files that are neither PCI, driver nor log."""
    return {**_memory(machine), **_proc(machine), **_cgroups(machine), **_sys(machine, sku), **_etc(machine, scenario)}
