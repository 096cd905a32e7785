"""What a machine has left: memory, swap, processors, limits, and the settings that decide about them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuclinic.clinic.looks._look import Seen, Wanted, tells_time
from gpuclinic.clinic.looks._texts import Texts
from gpuclinic.model import digits
from gpuclinic.recognise import host_state
from gpuclinic.recognise.process_table import parse_stat

if TYPE_CHECKING:
    from gpuclinic.observe.asking import Asked

_SYSCTLS = (
    "/proc/sys/vm/overcommit_memory", "/proc/sys/vm/overcommit_ratio", "/proc/sys/vm/swappiness", "/proc/sys/vm/zone_reclaim_mode",
    "/proc/sys/vm/min_free_kbytes", "/proc/sys/vm/max_map_count", "/proc/sys/kernel/numa_balancing", "/proc/sys/kernel/hung_task_panic",
    "/proc/sys/kernel/threads-max", "/proc/sys/kernel/pid_max",
)  # fmt: skip
_CGROUP = "/sys/fs/cgroup"
_CGROUP_FILES = (
    "memory.max", "memory.current", "memory.high", "memory.swap.max", "memory.stat", "memory.events", "memory.events.local", "cpu.stat",
    "cpu.max", "pids.max", "pids.current",
)  # fmt: skip
_CGROUP_1_FILES = (
    "memory.limit_in_bytes",
    "memory.usage_in_bytes",
    "memory.failcnt",
    "memory.oom_control",
    "memory.stat",
)
_FREQUENCY_FILES = ("scaling_governor", "scaling_driver", "scaling_max_freq", "cpuinfo_max_freq")
_CONFIGURED = (
    "/etc/security/limits.conf",
    "/etc/security/limits.d/*.conf",
    "/etc/systemd/system.conf",
    "/etc/systemd/system.conf.d/*.conf",
)
_CLOCK = "/sys/devices/system/clocksource/clocksource0"
_MOST_PROCESSES = 32


def look_at_memory(host: Asked, wanted: Wanted) -> Seen:  # noqa: ARG001 - all looks are called alike
    """Facts `memory`, `vm_counters` and `pressure`."""
    seen = Seen()
    texts = Texts(host, seen, "host.memory")
    meminfo = texts.one("/proc/meminfo") or ""
    seen.facts += host_state.memory(meminfo, texts.one("/proc/spl/kstat/zfs/arcstats"))
    seen.facts += host_state.vm_counters(texts.one("/proc/vmstat") or "", meminfo)
    seen.facts += host_state.pressure(texts.many("/proc/pressure/*"))
    return seen


def look_at_cpu(host: Asked, wanted: Wanted) -> Seen:
    """Facts `cpu_times` and, where nothing of it changes, once `cpu_frequency`, `numa_node`."""
    seen = Seen()
    texts = Texts(host, seen, "host.cpu")
    seen.facts += host_state.cpu_times(texts.one("/proc/stat") or "", texts.one("/proc/loadavg") or "")
    if wanted.deep:
        counts = texts.many("/sys/devices/system/cpu/cpu[0-9]*/thermal_throttle/package_throttle_count")
        seen.facts += host_state.cpu_throttling(counts)
    return seen


def look_at_neighbours(host: Asked, wanted: Wanted) -> Seen:  # noqa: ARG001
    """Facts `program_cpu` of storage daemons, monitors, scanners and the kernel's own threads."""
    seen = Seen()
    stats = host.files("/proc/[0-9]*/stat", 1024).values()
    tasks = [task for answer in stats if answer.ok and (task := parse_stat(answer.text)) is not None]
    seen.facts += host_state.busy_programs(tasks)
    return seen


def look_at_cgroups(host: Asked, wanted: Wanted) -> Seen:
    """Facts `cgroup` and `cpu_quota`: of our own cgroup, of services, containers and jobs, and of the processes on GPUs."""
    seen = Seen()
    texts = Texts(host, seen, "host.cgroup")
    own = _folders(texts.one("/proc/self/cgroup") or "")
    pids = sorted({int(p) for f in wanted.of("gpu_process") if isinstance(p := f.fields.get("pid"), int)})[
        :_MOST_PROCESSES
    ]
    others = {folder for pid in pids for folder in _folders(texts.one(f"/proc/{pid}/cgroup", 4096) or "")}
    files: dict[str, str] = {}
    for folder in [_CGROUP, *sorted({*own, *others} - {_CGROUP})]:
        files |= texts.many(*(f"{folder}/{name}" for name in _CGROUP_FILES))
        files |= texts.many(*(f"{folder}/{name}" for name in _CGROUP_1_FILES)) if "/memory/" in folder + "/" else {}
    for deep in ("*", "*/*", "*/*/*", "*/*/*/*"):
        files |= _with_limits(texts, f"{_CGROUP}/{deep}")
    for deep in (
        "docker/*",
        "kubepods/*/*/*",
        "kubepods.slice/*/*/*",
        "slurm/uid_*/job_*",
        "system.slice/*.service",
        "user.slice/*",
    ):
        files |= texts.many(f"{_CGROUP}/memory/{deep}/memory.oom_control")
    seen.facts += host_state.cgroups(files, frozenset(own or {_CGROUP}))
    return seen


def _with_limits(texts: Texts, place: str) -> dict[str, str]:
    """Events and limits of all cgroups so deep, and what fills those whose limit is near."""
    files = texts.many(f"{place}/memory.events.local") or texts.many(f"{place}/memory.events")
    limits = {path: text for path, text in texts.many(f"{place}/memory.max").items() if text.strip() != "max"}
    for path, text in limits.items():
        folder = path.rpartition("/")[0]
        current = texts.one(f"{folder}/memory.current", 64)
        files[path] = text
        if current is None:
            continue
        files[f"{folder}/memory.current"] = current
        used, most = digits(current), digits(text)
        if used is not None and most is not None and used > 0.85 * most:
            files |= texts.many(f"{folder}/memory.stat")
    return files


def _folders(cgroup: str) -> set[str]:
    """Folders of the memory and unified hierarchies that the lines of /proc/PID/cgroup name."""
    out: set[str] = set()
    for line in cgroup.splitlines()[:40]:
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if not path.startswith("/") or ".." in path or len(path) > 1000 or any(sign in path for sign in "*?["):
            continue
        if number == "0" and not controllers:
            out.add(_CGROUP + path.rstrip("/"))
        elif "memory" in controllers.split(","):
            out.add(f"{_CGROUP}/memory{path.rstrip('/')}")
    return out


def look_at_limits(host: Asked, wanted: Wanted) -> Seen:
    """Facts `limit` (ours, of services that start jobs, of processes on GPUs) and `kernel_table`."""
    from gpuclinic.recognise.host_limits import configured_limits, process_limits

    seen = Seen()
    texts = Texts(host, seen, "host.ulimits")
    seen.facts += host_state.kernel_tables(
        texts.many("/proc/sys/fs/file-nr", "/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max", "/proc/loadavg")
    )
    seen.facts += process_limits(texts.one("/proc/self/limits") or "", "self", "/proc/self/limits")
    for service, path in (
        ("slurmd", "/run/slurmd.pid"), ("slurmd", "/run/slurm/slurmd.pid"), ("slurmd", "/var/run/slurmd.pid"),
        ("dockerd", "/run/docker.pid"),
    ):  # fmt: skip
        pid = (texts.one(path, 64) or "").strip()
        if pid.isdecimal() and len(pid) < 10:
            seen.facts += process_limits(
                texts.one(f"/proc/{pid}/limits") or "", service, f"/proc/{pid}/limits", int(pid)
            )
    for path, text in texts.many(*_CONFIGURED, most=1 << 16).items():
        seen.facts += configured_limits(text, path)
    for fact in wanted.of("gpu_process")[:_MOST_PROCESSES]:
        pid_ = fact.fields.get("pid")
        if isinstance(pid_, int):
            place = f"/proc/{pid_}/limits"
            name = f"{fact.fields.get('name') or 'process'} {pid_}"
            answer = host.file(place, 1 << 14)  # a process that ended meanwhile, or one of somebody else, is no gap
            seen.facts += process_limits(answer.text, name, place, pid_, gpu=True) if answer.ok else []
    return seen


def look_at_settings(host: Asked, wanted: Wanted) -> Seen:
    """Facts `sysctl`, `huge_pages`, `cpu_frequency`, `numa_node`, `clock_source`."""
    seen = Seen()
    texts = Texts(host, seen, "host.settings")
    seen.facts += host_state.sysctls(texts.many(*_SYSCTLS))
    if not wanted.of("memory"):
        seen.facts += host_state.memory(texts.one("/proc/meminfo") or "")
    seen.facts += host_state.huge_page_setting(
        texts.many(*(f"/sys/kernel/mm/transparent_hugepage/{n}" for n in ("enabled", "defrag")))
    )
    # one policy in ten: a server has one for each of hundreds of processors, all set alike
    for place in ("/sys/devices/system/cpu/cpufreq/policy*0", "/sys/devices/system/cpu/cpu*0/cpufreq"):
        frequency = host_state.cpu_frequency(texts.many(*(f"{place}/{name}" for name in _FREQUENCY_FILES), most=256))
        if frequency:
            seen.facts += frequency
            break
    seen.facts += host_state.numa_nodes(
        texts.many("/sys/devices/system/node/node*/meminfo", "/sys/devices/system/node/node*/cpulist")
    )
    seen.facts += host_state.clock_source(texts.many(*(f"{_CLOCK}/{n}_clocksource" for n in ("current", "available"))))
    return seen


def look_at_time(host: Asked, wanted: Wanted) -> Seen:  # noqa: ARG001
    """Fact `time_sync`, by what keeps the clock here."""
    from gpuclinic.recognise.making import Making

    seen = Seen()
    if host.stat("/run/chrony").ok or not host.live:
        answer = host.command("chronyc", "-n", "tracking", deadline=1.0)
        seen.facts += host_state.chrony_tracking(answer.text) if answer.ok else []
    if seen.facts:
        return seen
    stamp = host.stat("/run/systemd/timesync/synchronized")
    when = stamp.json().get("mtime") if stamp.ok else None
    if isinstance(when, (int, float)):
        making = Making("time_sync", "timesyncd", "/run/systemd/timesync/synchronized")
        making.put("tool", "systemd-timesyncd")
        making.put("synchronised", True)
        if tells_time(host):
            making.put("last_h", round((host.clock() - when) / 3600, 1))
        seen.facts.append(making.fact())
    else:
        answer = host.command("timedatectl", "show", deadline=1.0)
        seen.facts += host_state.timedatectl(answer.text) if answer.ok else []
    return seen
