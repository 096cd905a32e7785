"""Memory, processors and settings of a machine, out of the texts of /proc and /sys. Pure."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from gpuclinic.knowledge.busy_programs import role_of
from gpuclinic.model import Document, digits
from gpuclinic.recognise.cgroup_paths import owner_of
from gpuclinic.recognise.making import Making, number, pairs, whole
from gpuclinic.recognise.parsers.memory import parse_meminfo
from gpuclinic.recognise.parsers.pressure import parse_pressure
from gpuclinic.recognise.process_table import TICKS_PER_SECOND, Task

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpuclinic.model import Fact

_TICKS = 100.0
"""USER_HZ, in which /proc/stat counts on every architecture that has GPUs."""


def memory(meminfo: str, arc: str | None = None) -> list[Fact]:
    """Fact `memory` of /proc/meminfo. arc: text of /proc/spl/kstat/zfs/arcstats, a cache that MemAvailable leaves out."""
    facts = parse_meminfo(Document("/proc/meminfo", meminfo, name_hint="meminfo"))
    for fact in facts:
        fields = fact.fields
        total, available = number(str(fields.get("total_mib"))), number(str(fields.get("available_mib")))
        found = re.search(r"^size\s+\d+\s+(\d{1,19})$", arc or "", re.MULTILINE)
        floor = re.search(r"^c_min\s+\d+\s+(\d{1,19})$", arc or "", re.MULTILINE)
        cache = max(0.0, (int(found[1]) - int(floor[1] if floor else 0)) / 1048576) if found else 0.0
        if found:
            fields["zfs_cache_mib"] = round(cache)
        if total and available is not None:
            usable = min(total, available + cache)
            fields["usable_mib"] = round(usable)
            fields["usable_gib"] = round(usable / 1024, 1)
            fields["usable_pct"] = round(100 * usable / total, 1)
            fields["total_gib"] = round(total / 1024, 1)
            for name in ("usable_mib", "usable_gib", "usable_pct"):
                fact.lines[name] = fact.where("available_mib")
        _shares(fields, total)
    return facts


def _shares(fields: dict[str, str | int | float | bool | None], total: float | None) -> None:
    swap, used = fields.get("swap_total_mib"), fields.get("swap_used_mib")
    if isinstance(swap, (int, float)) and swap > 0 and isinstance(used, (int, float)):
        fields["swap_used_pct"] = round(100 * used / swap, 1)
    limit, committed = fields.get("commit_limit_mib"), fields.get("committed_mib")
    if isinstance(limit, (int, float)) and limit > 0 and isinstance(committed, (int, float)):
        fields["committed_pct"] = round(100 * committed / limit, 1)
    for name in ("slab_unreclaimable", "shared", "huge_free"):
        value = fields.get(f"{name}_mib")
        if total and isinstance(value, (int, float)):
            fields[f"{name}_pct"] = round(100 * value / total, 1)


def vm_counters(vmstat: str, meminfo: str = "") -> list[Fact]:
    """Fact `vm_counters`: since boot, processes ended by the OOM killer, MiB moved from and to swap, allocations that had to wait."""
    found = pairs(vmstat)
    if not found:
        return []
    making = Making("vm_counters", "host", "/proc/vmstat")
    page = _page_kib(found, meminfo)
    making.put("page_kib", page)
    if "oom_kill" in found:
        making.put("oom_kills", found["oom_kill"], text=f"oom_kill {found['oom_kill']}")
    for name, field in (("pswpin", "swap_in_mib"), ("pswpout", "swap_out_mib")):
        if name in found:
            making.put(field, round(found[name] * page / 1024, 2), text=f"{name} {found[name]}")
    stalls = [value for name, value in found.items() if name.startswith("allocstall")]
    making.put("allocation_stalls", sum(stalls) if stalls else None)
    making.put("compaction_stalls", found.get("compact_stall"))
    making.put("numa_pages_migrated", found.get("numa_pages_migrated"))
    return [making.fact()]


def _page_kib(vmstat: Mapping[str, int], meminfo: str) -> int:
    """The size of a page in KiB, by the free memory that both files tell (arm64 has pages of 4, 16 or 64 KiB)."""
    free = re.search(r"^MemFree:\s+(\d{1,15}) kB", meminfo, re.MULTILINE)
    pages = vmstat.get("nr_free_pages", 0)
    if not free or not pages or not int(free[1]):
        return 4
    return next((size for size in (16, 64) if abs(math.log(int(free[1]) / pages / size)) < 0.3), 4)


def pressure(texts: Mapping[str, str]) -> list[Fact]:
    """Facts `pressure` of /proc/pressure/*, by path."""
    out: list[Fact] = []
    for path, text in texts.items():
        resource = path.rsplit("/", 1)[-1]
        if resource in ("cpu", "io", "memory"):
            out += parse_pressure(Document(path, text, name_hint=f"pressure/{resource}"))[:1]
    return out


def cpu_times(stat: str, loadavg: str = "") -> list[Fact]:
    """Fact `cpu_times`: seconds of all processors since boot by what they did, tasks that run or wait for I/O, the load."""
    first = stat.partition("\n")[0].split()
    if len(first) < 5 or first[0] != "cpu" or not all(word.isdecimal() and len(word) < 25 for word in first[1:]):
        return []
    making = Making("cpu_times", "all", "/proc/stat")
    ticks = [int(word) / _TICKS for word in first[1:11]]
    names = ("user_s", "nice_s", "system_s", "idle_s", "iowait_s", "irq_s", "softirq_s", "steal_s")
    for name, value in zip(names, ticks, strict=False):
        making.put(name, round(value, 2), text=" ".join(first))
    making.put("total_s", round(sum(ticks[:8]), 2))
    making.put("cpus", len(re.findall(r"^cpu\d+ ", stat, re.MULTILINE)) or None)
    for name, field in (("procs_running", "running"), ("procs_blocked", "blocked")):
        found = re.search(rf"^{name} (\d{{1,9}})$", stat, re.MULTILINE)
        making.put(field, int(found[1]) if found else None, text=f"{name} {found[1]}" if found else "")
    words = loadavg.split()
    for field, word in zip(("load1", "load5", "load15"), words, strict=False):
        making.put(field, number(word), "/proc/loadavg", loadavg.strip())
    cpus = making.fields.get("cpus")
    if isinstance(cpus, int) and isinstance(making.fields.get("load5"), float):
        making.put(
            "load5_per_cpu", round(float(making.fields["load5"] or 0) / cpus, 2), "/proc/loadavg", loadavg.strip()
        )
    return [making.fact()]


def busy_programs(tasks: Iterable[Task], up_s: float | None = None) -> list[Fact]:
    """Facts `program_cpu`: processor seconds of programs that are known to take them from jobs, all processes of a name together.

    up_s: seconds since boot; with it, cores_average tells how many processors they have taken since they started.
    """
    found: dict[str, list[Task]] = {}
    for task in tasks:
        if role_of(task.comm) is not None:
            found.setdefault(re.sub(r"[/\d_-]*\d$", "", task.comm) or task.comm, []).append(task)
    out: list[Fact] = []
    for program, mine in found.items():
        making = Making("program_cpu", program, "/proc/*/stat")
        making.put("program", program)
        making.put("role", role_of(mine[0].comm))
        making.put("processes", len(mine))
        making.put("pid_sum", sum(task.pid for task in mine))
        seconds = round(sum(task.cpu_ticks for task in mine) / TICKS_PER_SECOND, 2)
        pids = ", ".join(str(task.pid) for task in mine[:8])
        making.put("cpu_s", seconds, text=f"{program}: {seconds} s of processor time (pid {pids})")
        ages = [(task.cpu_ticks / TICKS_PER_SECOND, task.age_s(up_s)) for task in mine]
        if up_s is not None:
            shares = [used / age for used, age in ages if age is not None and age > 60]
            making.put(
                "cores_average", round(sum(shares), 2), text=f"{program}: {seconds} s of processor time (pid {pids})"
            )
        out.append(making.fact())
    return out


def cpu_throttling(counts: Mapping[str, str]) -> list[Fact]:
    """Fact `cpu_throttling`: how often the processors' packages got too hot, by cpu*/thermal_throttle/package_throttle_count."""
    values = {path: value for path, text in counts.items() if (value := whole(text)) is not None}
    if not values:
        return []
    worst = max(values, key=lambda path: values[path])
    making = Making("cpu_throttling", "host", "/sys/devices/system/cpu")
    making.put("package_throttles", values[worst], worst, str(values[worst]))
    return [making.fact()]


def cgroups(files: Mapping[str, str], own: frozenset[str] = frozenset()) -> list[Fact]:
    """Facts `cgroup` and `cpu_quota`, one for each folder among the paths of cgroup files (v1 and v2).

    own: folders that the asking process is in (the container's, where it runs in one).
    """
    folders: dict[str, dict[str, str]] = {}
    for path, text in files.items():
        folder, _, name = path.rpartition("/")
        folders.setdefault(folder, {})[name] = text
    out: list[Fact] = []
    for folder, held in folders.items():
        key = re.sub(r"^/sys/fs/cgroup(?:/(?:unified|memory|cpu,cpuacct|cpu|pids))?", "", folder) or "/"
        fact = _cgroup(folder, key, held, folder in own)
        if fact is not None:
            out.append(fact)
        quota = _quota(folder, key, held, folder in own)
        if quota is not None:
            out.append(quota)
    return out


def _cgroup(folder: str, key: str, held: Mapping[str, str], own: bool) -> Fact | None:
    making = Making("cgroup", key, folder)
    making.put("path", key)
    making.put("own", own)
    making.put("owner", cgroup_owner(key) or (f"cgroup {key}" if key != "/" else "this container"))
    for name, field in (
        ("memory.max", "limit_mib"), ("memory.limit_in_bytes", "limit_mib"), ("memory.current", "current_mib"),
        ("memory.usage_in_bytes", "current_mib"), ("memory.high", "high_mib"), ("memory.swap.max", "swap_limit_mib"),
    ):  # fmt: skip
        if name in held:
            making.put(field, _mib(held[name]), f"{folder}/{name}", held[name].strip())
    for name in (
        "memory.events",
        "memory.events.local",
        "memory.oom_control",
    ):  # the local ones count only its own processes
        for event, field in (("oom_kill", "oom_kill_count"), ("max", "max_count"), ("oom", "oom_count")):
            value = pairs(held.get(name, "")).get(event)
            making.put(field, value, f"{folder}/{name}", f"{event} {value}")
    making.put("fail_count", whole(held.get("memory.failcnt")), f"{folder}/memory.failcnt")
    stat = pairs(held.get("memory.stat", ""))
    cache = (
        stat.get("file", stat.get("total_cache", 0))
        - stat.get("shmem", stat.get("total_shmem", 0))
        + stat.get("slab_reclaimable", 0)
    )
    current, limit = making.fields.get("current_mib"), making.fields.get("limit_mib")
    if isinstance(current, float) and isinstance(limit, float) and limit > 0:
        making.put("limit_gib", round(limit / 1024, 1))
        if stat:
            held_mib = max(0.0, current - max(0, cache) / 1048576)
            making.put("held_mib", round(held_mib), f"{folder}/memory.stat")
            making.put(
                "held_pct", round(100 * held_mib / limit, 1), f"{folder}/memory.current", held.get("memory.current", "")
            )
    limit_pids, pids = whole(held.get("pids.max")), whole(held.get("pids.current"))
    if limit_pids and pids is not None:
        making.put("pids_limit", limit_pids, f"{folder}/pids.max")
        making.put("pids_pct", round(100 * pids / limit_pids, 1), f"{folder}/pids.current", f"{pids} of {limit_pids}")
    return making.fact() if len(making.fields) > 3 else None


def _mib(text: str) -> float | None:
    value = number(text)
    if value is None:
        return -1.0 if text.strip() == "max" else None
    return -1.0 if value > 9e18 else round(value / 1048576, 1)


def _quota(folder: str, key: str, held: Mapping[str, str], own: bool) -> Fact | None:
    stat = pairs(held.get("cpu.stat", ""))
    periods, throttled = stat.get("nr_periods", 0), stat.get("nr_throttled", 0)
    if not periods:
        return None
    making = Making("cpu_quota", key, f"{folder}/cpu.stat")
    making.put("path", key)
    making.put("own", own)
    making.put("periods", periods, text=f"nr_periods {periods}")
    making.put("throttled", throttled, text=f"nr_throttled {throttled}")
    making.put("throttled_share", round(throttled / periods, 4))
    making.put("throttled_pct", round(100 * throttled / periods), text=f"nr_periods {periods} nr_throttled {throttled}")
    words = held.get("cpu.max", "").split()
    quota, period = (digits(words[0]), digits(words[1])) if len(words) == 2 else (None, None)
    if quota is not None and period:
        making.put("cpus_allowed", round(quota / period, 2), f"{folder}/cpu.max", held["cpu.max"].strip())
    return making.fact()


def cgroup_owner(path: str) -> str | None:
    """What a cgroup belongs to, in short: "docker 4f5c0a1b2c3d", "Slurm job 4711", "unit sshd.service"; None where the path does not say."""
    owner = owner_of(f"0::{path}")
    if owner.container:
        return f"{owner.runtime} {owner.container[:12]}"
    if owner.pod_uid:
        return f"pod {owner.pod_uid}"
    if owner.slurm_job:
        return f"Slurm job {owner.slurm_job}"
    if owner.unit:
        return f"unit {owner.unit}"
    return f"user {owner.login_uid}" if owner.login_uid is not None else None


def sysctls(texts: Mapping[str, str]) -> list[Fact]:
    """Facts `sysctl` of files under /proc/sys: name as sysctl(8) writes it, value (a number where it is one)."""
    out: list[Fact] = []
    for path, text in texts.items():
        name = path.removeprefix("/proc/sys/").replace("/", ".")
        words = text.split()
        if len(words) != 1:
            continue
        making = Making("sysctl", name, path)
        making.put("name", name)
        making.put(
            "value",
            int(words[0]) if re.fullmatch(r"-?\d{1,18}", words[0]) else words[0][:100],
            path,
            f"{name} = {words[0]}",
        )
        out.append(making.fact())
    return out


def huge_page_setting(texts: Mapping[str, str]) -> list[Fact]:
    """Fact `huge_pages` of /sys/kernel/mm/transparent_hugepage/{enabled,defrag}: the chosen words."""
    making = Making("huge_pages", "transparent", "/sys/kernel/mm/transparent_hugepage")
    for path, text in texts.items():
        chosen = re.search(r"\[([\w+-]{1,40})\]", text)
        if chosen:
            making.put(path.rsplit("/", 1)[-1], chosen[1], path, text.strip())
    return [making.fact()] if making.fields else []


def cpu_frequency(policies: Mapping[str, str]) -> list[Fact]:
    """Fact `cpu_frequency` of /sys/devices/system/cpu/cpufreq/policy*/*: governor (the most frequent), driver, how many are held low."""
    values: dict[str, dict[str, str]] = {}
    for path, text in policies.items():
        policy, _, name = path.rpartition("/")
        values.setdefault(policy, {})[name] = text.strip()
    governors = [held["scaling_governor"] for held in values.values() if held.get("scaling_governor")]
    if not governors:
        return []
    making = Making("cpu_frequency", "host", "/sys/devices/system/cpu/cpufreq")
    governor = max(sorted(set(governors)), key=governors.count)
    shown = next(policy for policy, held in values.items() if held.get("scaling_governor") == governor)
    making.put("governor", governor, f"{shown}/scaling_governor", governor)
    driver = next((held["scaling_driver"] for held in values.values() if held.get("scaling_driver")), None)
    making.put("driver", driver, f"{shown}/scaling_driver", driver or "")
    making.put("driver", making.fields.get("driver", "unknown"))
    making.put("policies", len(governors))
    # these drivers let the processor choose; their "powersave" is no fixed low clock
    making.put(
        "fixed_low",
        governor == "powersave"
        and driver is not None
        and driver not in ("intel_pstate", "amd-pstate-epp", "amd_pstate_epp"),
    )
    capped = [
        policy for policy, held in values.items()
        if (low := number(held.get("scaling_max_freq"))) and (high := number(held.get("cpuinfo_max_freq"))) and low < 0.7 * high
    ]  # fmt: skip
    making.put("capped", len(capped))
    if capped:
        held = values[capped[0]]
        text = f"scaling_max_freq {held['scaling_max_freq']} of cpuinfo_max_freq {held['cpuinfo_max_freq']} kHz"
        making.put("capped", len(capped), f"{capped[0]}/scaling_max_freq", text)
    return [making.fact()]


def numa_nodes(texts: Mapping[str, str]) -> list[Fact]:
    """Facts `numa_node` of /sys/devices/system/node/node*/{meminfo,cpulist}: size_mib, free_mib, has_cpus."""
    found: dict[str, Making] = {}
    for path, text in texts.items():
        node = re.search(r"/node(\d{1,4})/(meminfo|cpulist)$", path)
        if not node:
            continue
        making = found.setdefault(node[1], Making("numa_node", node[1], path.rpartition("/")[0]))
        if node[2] == "cpulist":
            making.put("has_cpus", bool(text.strip()), path, text.strip())
            continue
        for name, field in (("MemTotal", "size_mib"), ("MemFree", "free_mib")):
            value = re.search(rf"{name}:\s+(\d{{1,15}}) kB", text)
            making.put(field, round(int(value[1]) / 1024) if value else None, path, value[0] if value else "")
    return [making.fact() for making in found.values()]


def kernel_tables(texts: Mapping[str, str]) -> list[Fact]:
    """Facts `kernel_table`: how full are the tables of open files and of tasks; name, used, limit, use_pct."""
    out: list[Fact] = []
    words = texts.get("/proc/sys/fs/file-nr", "").split()
    if len(words) == 3:
        out += table("open files", whole(words[0]), whole(words[2]), "/proc/sys/fs/file-nr", " ".join(words))
    tasks = re.search(r" \d+/(\d{1,9}) ", texts.get("/proc/loadavg", ""))
    limits = [
        n for path in ("/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max") if (n := whole(texts.get(path)))
    ]
    if tasks and limits:
        out += table(
            "processes and threads", int(tasks[1]), min(limits), "/proc/loadavg", texts["/proc/loadavg"].strip()
        )
    return out


def table(
    name: str, used: int | None, limit: int | None, path: str, text: str, kind: str = "kernel_table"
) -> list[Fact]:
    """One such table; none where a number is missing or the limit is none."""
    if used is None or not limit or limit >= 1 << 60:
        return []
    making = Making(kind, name, path)
    making.put("name", name)
    making.put("used", used, path, text)
    making.put("limit", limit, path, text)
    making.put("use_pct", round(100 * used / limit, 1), path, text)
    return [making.fact()]


def clock_source(texts: Mapping[str, str]) -> list[Fact]:
    """Fact `clock_source`: current and available sources of the kernel's clock."""
    making = Making("clock_source", "host", "/sys/devices/system/clocksource/clocksource0")
    for path, text in texts.items():
        name = path.rsplit("/", 1)[-1].removesuffix("_clocksource")
        if name in ("current", "available"):
            making.put(name, text.strip()[:200], path, text.strip())
    return [making.fact()] if "current" in making.fields else []


_CHRONY = re.compile(r"^(?P<name>[A-Z][\w ]+?)\s*:\s*(?P<value>.+?)\s*$", re.MULTILINE)


def chrony_tracking(text: str) -> list[Fact]:
    """Fact `time_sync` of `chronyc -n tracking`: tool, synchronised, offset_s (system clock against NTP, ahead is positive), stratum."""
    found = {match["name"]: match["value"] for match in _CHRONY.finditer(text[:4000])}
    if "Leap status" not in found:
        return []
    making = Making("time_sync", "chrony", "chronyc -n tracking")
    making.put("tool", "chrony")
    status = found["Leap status"]
    making.put("synchronised", status != "Not synchronised", text=f"Leap status : {status}")
    making.put("stratum", whole(found.get("Stratum")))
    offset = re.match(r"([\d.]{1,30}) seconds (fast|slow)", found.get("System time", ""))
    if offset and (value := number(offset[1])) is not None:
        making.put("offset_s", value if offset[2] == "fast" else -value, text=f"System time : {found['System time']}")
    return [making.fact()]


def timedatectl(text: str) -> list[Fact]:
    """Fact `time_sync` of `timedatectl show`."""
    found = dict(line.split("=", 1) for line in text.splitlines()[:100] if "=" in line)
    if "NTPSynchronized" not in found:
        return []
    making = Making("time_sync", "timedatectl", "timedatectl show")
    making.put("tool", "timedatectl")
    making.put("synchronised", found["NTPSynchronized"] == "yes", text=f"NTPSynchronized={found['NTPSynchronized']}")
    making.put("enabled", found.get("NTP") == "yes" if "NTP" in found else None)
    return [making.fact()]
