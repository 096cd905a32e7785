"""The machine: uname, uptime, last -x, who -b, boots, lscpu, kernel command line, numactl, module options."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpuclinic.recognise.parsers._host_util import MAX_FACTS, clipped_lines, command_of, fact, number, stamp, whole

if TYPE_CHECKING:
    from gpuclinic.model import Document, Fact
    from gpuclinic.model._types import Scalar

_UNAME = re.compile(r"^Linux (?P<host>\S+) (?P<kernel>\d+\.\d+\.\S+) (?P<rest>#\S+.*)$")
_RELEASE = re.compile(r"^(?P<kernel>\d+\.\d+\.\d+[\w.+~-]*)\s*$")
_UPTIME = re.compile(
    r"\bup\s+(?P<up>.{1,40}?)(?:,\s+\d+ users?)?,?\s+(?:load averages?|平均负载|Lastdurchschnitt|"
    r"charge moyenne)\s*[:：]\s*"
    r"(?P<a>\d+[.,]\d+),?\s+(?P<b>\d+[.,]\d+),?\s+(?P<c>\d+[.,]\d+)"
)
_LOADAVG = re.compile(r"^(?P<a>\d+\.\d\d) (?P<b>\d+\.\d\d) (?P<c>\d+\.\d\d) \d+/\d+ \d+\s*$")
_LAST = re.compile(
    r"^(?P<who>\S+)\s+(?P<what>system boot|system down|~|\S+)\s+(?P<from>.*?)\s*"
    r"(?P<time>(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) [A-Z][a-z]{2}\s+\d+ \d\d:\d\d(?::\d\d)?(?: \d{4})?)\s*(?P<tail>.*)$"
)
_WHO = re.compile(
    r"^\s+(?:system boot|系统引导) {1,8}(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d|[A-Z][a-z]{2} {1,2}\d{1,2} \d\d:\d\d)(?!\S)"
)
_BOOTS = re.compile(
    r"^\s*(?P<offset>-?\d+)\s+(?P<id>[0-9a-f]{32})\s+(?P<start>\w{3} \d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?: \w+)?)(?:\s*"
    r"[—-]\s*|\s+)(?P<end>\w{3} \d{4}-\d\d-\d\d \d\d:\d\d:\d\d)?"
)
_LSCPU = re.compile(
    r"^\s*(?P<name>CPU\(s\)|Model name|Socket\(s\)|NUMA node\(s\)|Thread\(s\) per core|Core\(s\) per socket|CPU MHz|"
    r"CPU max MHz|型号名称|座|CPU|每个核的线程数|"
    r"Virtualization type|Hypervisor vendor|Architecture|On-line CPU\(s\) list)[:：]\s*(?P<value>.+?)\s*$"
)
_LSCPU_NAMES = {
    "CPU(s)": "cpus",
    "Model name": "model",
    "型号名称": "model",
    "Socket(s)": "sockets",
    "座": "sockets",
    "NUMA node(s)": "numa_nodes",
    "Thread(s) per core": "threads_per_core",
    "每个核的线程数": "threads_per_core",
    "Core(s) per socket": "cores_per_socket",
    "CPU MHz": "mhz",
    "CPU max MHz": "max_mhz",
    "CPU": "cpus",
    "Virtualization type": "virtualization",
    "Hypervisor vendor": "hypervisor",
    "Architecture": "architecture",
    "On-line CPU(s) list": "online",
}
_CMDLINE = re.compile(
    r"^(?:.*?(?:Command line|Kernel command line): ?)?(?P<line>(?:BOOT_IMAGE=|root=|\S*vmlinuz\S*\s).{10,})$"
)
_GRUB = re.compile(r'^\s*GRUB_CMDLINE_LINUX(?:_DEFAULT)?="?(?P<line>[^"]*)"?')
_MODULE = re.compile(
    r"^\s*(?P<word>blacklist|options|install|alias|remove|softdep)\s+(?P<module>[\w-]+)(?:[ \t]+(?P<rest>[^#\n]*)"
    r")?(?:#.*)?$"
)
_NODE = re.compile(r"^node (?P<node>\d{1,6}) (?P<what>cpus|size|free): ?(?P<value>.*)$")
_KERNEL_FLAGS = re.compile(
    r"(?:iommu|pci=|pcie|nouveau|nvidia|hugepage|numa|isolcpus|mitigations|idle|nomodeset|memmap|mem=|panic|acs|"
    r"watchdog)"
)


def parse_uname(document: Document) -> list[Fact]:
    """uname -a and uname -r: "kernel" with version and host."""
    facts: list[Fact] = []
    asked = False
    for index, line in enumerate(clipped_lines(document)):
        line = line[:500]
        match = _UNAME.match(line.strip())
        if match:
            fields: dict[str, Scalar] = {
                "version": match["kernel"],
                "host": match["host"],
                "machine": _machine(match["rest"]),
            }
            facts.append(fact(document, "kernel", match["kernel"], fields, index, line))
            continue
        command = command_of(line)
        if command:
            asked = bool(re.match(r"uname\s+-\w*r", command))
            continue
        match = _RELEASE.match(line.strip()) if asked or re.search("uname", document.name_hint) else None
        if match:
            facts.append(fact(document, "kernel", match["kernel"], {"version": match["kernel"]}, index, line))
        asked = False
    return facts[:50]


def _machine(rest: str) -> str | None:
    found = re.search(r"\b(x86_64|aarch64|ppc64le|i686|arm64)\b", rest)
    return found.group(1) if found else None


def _up_seconds(text: str) -> float | None:
    total, found = 0.0, False
    for value, unit in re.findall(r"(\d+)\s*(days?|天|hours?|mins?|min|分钟|Tage?|jours?)", text):
        factor = {"d": 86400, "天": 86400, "T": 86400, "j": 86400, "h": 3600, "m": 60, "分": 60}[unit[0]]
        total, found = total + int(value) * factor, True
    clock = re.search(r"(\d+):(\d\d)", text)
    if clock:
        total, found = total + int(clock.group(1)) * 3600 + int(clock.group(2)) * 60, True
    return total if found else None


_DATE = re.compile(
    r"^(?:Timestamp\s+: )?(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun),? (?P<a>[A-Z][a-z]{2}|\d{1,2}) +(?P<b>\d{1,2}|[A-Z][a-z]{2}) "
    r"(?P<early>\d{4} )?(?P<clock>\d\d?:\d\d:\d\d)(?P<half> [AP]M)?(?: [A-Z]{2,5})?(?P<year> \d{4})?\s*$"
)


def parse_date(document: Document) -> list[Fact]:
    """`date`, and the line with which nvidia-smi begins: "now", when somebody looked."""
    facts: list[Fact] = []
    for index, line in enumerate(clipped_lines(document)):
        match = _DATE.match(line) if len(line) < 80 else None
        year = (match["early"] or match["year"] or "").strip() if match else ""
        if not match or not year:
            continue
        day, month = sorted((match["a"], match["b"]))
        text = f"{day} {month} {year} {match['clock']}{match['half'] or ''}"
        time = stamp(text, "%d %b %Y %H:%M:%S", "%d %b %Y %I:%M:%S %p")
        if time is not None:
            facts.append(fact(document, "now", "date", {"seconds": time.seconds}, index, line, time=time))
    return facts[:50]


def parse_uptime(document: Document) -> list[Fact]:
    """uptime, the first line of top and w, /proc/loadavg: "uptime" with up_s, load1, load5, load15."""
    facts: list[Fact] = []
    for index, line in enumerate(clipped_lines(document)):
        line = line[:300]
        match = _UPTIME.search(line) or _LOADAVG.match(line.strip())
        if match:
            fields: dict[str, Scalar] = {
                "up_s": _up_seconds(match["up"]) if "up" in match.re.groupindex else None,
                "load1": number(match["a"]),
                "load5": number(match["b"]),
                "load15": number(match["c"]),
            }
            facts.append(fact(document, "uptime", "host", fields, index, line))
    return facts[:100]


def parse_last(document: Document) -> list[Fact]:
    """last, last -x: each boot with how the one before ended: "boot" with how = crash, reboot, or unknown."""
    rows: list[tuple[int, str, re.Match[str]]] = []
    for index, line in enumerate(clipped_lines(document)):
        match = _LAST.match(line) if len(line) < 300 else None
        if match:
            rows.append((index, line, match))
    knows_shutdowns = any(row["who"] == "shutdown" or row["what"] == "system down" for _, _, row in rows)
    facts: list[Fact] = []
    for place, (index, line, row) in enumerate(rows):
        if row["who"] != "reboot" or row["what"] not in ("system boot", "~"):
            continue
        how, proof = "unknown", (index, line)
        seen_older_boot = False
        for older_index, older_line, older in rows[place + 1 :]:
            if older["who"] == "shutdown" or (older["who"] == "runlevel" and "lvl 6" in older["from"]):
                how = "reboot"
                break
            if re.search(r"- (?:crash|gone)\b", older["tail"]) and older["who"] != "reboot":
                how, proof = "crash", (older_index, older_line)
                break
            if re.search(r"- down\b", older["tail"]):
                how = "reboot"
                break
            if re.search(r"- crash\b", older["tail"]):
                how, proof = "crash", (older_index, older_line)
                break
            if older["who"] == "reboot":
                seen_older_boot = True
                break
        if how == "unknown" and seen_older_boot and knows_shutdowns:
            how = "crash"
        fields: dict[str, Scalar] = {
            "how": how,
            "kernel": row["from"].strip(),
            "time": row["time"],
            "latest": not facts,
        }
        time = stamp(re.sub(r"\s+", " ", row["time"]), "%a %b %d %H:%M:%S %Y", "%a %b %d %H:%M %Y")
        places = {"how": document.at(*proof)}
        facts.append(fact(document, "boot", row["time"], fields, index, line, places, time))
    return facts[:200]


def parse_who(document: Document) -> list[Fact]:
    """who -b, who -a: "boot" with time (how unknown)."""
    facts: list[Fact] = []
    for index, line in enumerate(clipped_lines(document)):
        match = _WHO.match(line) if len(line) < 200 else None
        if match:
            when = match["time"]
            fields: dict[str, Scalar] = {"how": "unknown", "time": when, "latest": True}
            facts.append(fact(document, "boot", when, fields, index, line, time=stamp(when, "%Y-%m-%d %H:%M")))
    return facts[:20]


def parse_boots(document: Document) -> list[Fact]:
    """journalctl --list-boots: "boot" with offset, start, end (how unknown)."""
    facts: list[Fact] = []
    for index, line in enumerate(clipped_lines(document)):
        match = _BOOTS.match(line) if len(line) < 300 else None
        if match:
            fields: dict[str, Scalar] = {
                "how": "unknown",
                "offset": whole(match["offset"]),
                "time": match["start"],
                "end": match["end"],
            }
            facts.append(fact(document, "boot", match["id"], fields, index, line))
    return facts[:200]


def parse_lscpu(document: Document) -> list[Fact]:
    """lscpu: one "cpu_info"; nproc gives its cpus too."""
    fields: dict[str, Scalar] = {}
    start: tuple[int, str] | None = None
    asked = False
    for index, line in enumerate(clipped_lines(document)):
        line = line[:300]
        if asked and re.fullmatch(r"\s*\d+\s*", line):
            fields.setdefault("cpus", whole(line))
            start = start or (index, line)
        asked = command_of(line) == "nproc"
        match = _LSCPU.match(line)
        if not match:
            continue
        name = _LSCPU_NAMES[match["name"]]
        numeric = name in ("cpus", "sockets", "numa_nodes", "threads_per_core", "cores_per_socket")
        value: Scalar = whole(match["value"]) if numeric else match["value"]
        if name in ("mhz", "max_mhz"):
            value = number(match["value"])
        fields.setdefault(name, value)
        start = start or (index, line)
    return [fact(document, "cpu_info", "host", fields, *start)] if start and fields.get("cpus") else []


def parse_cmdline(document: Document) -> list[Fact]:
    """/proc/cmdline, the kernel's own note of it, GRUB_CMDLINE_LINUX: "kernel_option" for what matters to GPUs."""
    facts: list[Fact] = []
    for index, line in enumerate(clipped_lines(document)):
        match = _CMDLINE.match(line[:4000]) or _GRUB.match(line[:4000])
        if not match:
            continue
        for option in match["line"].split():
            if _KERNEL_FLAGS.search(option):
                name, _, value = option.partition("=")
                fields: dict[str, Scalar] = {"name": name, "value": value, "option": option}
                facts.append(fact(document, "kernel_option", name, fields, index, line))
    return facts[:200]


def parse_modprobe(document: Document) -> list[Fact]:
    """Files of /etc/modprobe.d: "module_option" with what (blacklist, options, install), module, value."""
    facts: list[Fact] = []
    for index, line in enumerate(clipped_lines(document)):
        match = _MODULE.match(line) if len(line) < 500 else None
        if match:
            value = (match["rest"] or "").strip()
            fields: dict[str, Scalar] = {
                "what": match["word"],
                "module": match["module"].replace("-", "_"),
                "value": value,
            }
            facts.append(fact(document, "module_option", match["module"], fields, index, line))
    return facts[:500]


def parse_numactl(document: Document) -> list[Fact]:
    """numactl -H: "numa_node" with size_mib, free_mib and cpus."""
    found: dict[str, dict[str, Scalar]] = {}
    start: dict[str, tuple[int, str]] = {}
    for index, line in enumerate(clipped_lines(document)):
        match = _NODE.match(line[:4000])
        if not match:
            continue
        fields = found.setdefault(match["node"], {"node": int(match["node"])})
        start.setdefault(match["node"], (index, line))
        if match["what"] == "cpus":
            fields["cpus"] = len(match["value"].split())
        else:
            fields[f"{match['what']}_mib"] = number(match["value"])
    return [fact(document, "numa_node", node, fields, *start[node]) for node, fields in found.items()][:MAX_FACTS]


_SYSCTL = re.compile(r"^(?P<name>(?:vm|kernel|fs|net)\.[a-z0-9_.-]{2,80})\s*=\s*(?P<value>\S{1,100})\s*$")
_SYSCTLS = frozenset(
    ["vm.overcommit_memory", "vm.overcommit_ratio", "vm.swappiness", "vm.zone_reclaim_mode", "vm.min_free_kbytes", "vm.max_map_count",
     "kernel.numa_balancing", "kernel.hung_task_panic", "kernel.threads-max", "kernel.pid_max"]
)  # fmt: skip


def parse_sysctl(document: Document) -> list[Fact]:
    """sysctl -a, or names given to it: "sysctl" of the settings that matter here, as /proc/sys gives them."""
    facts: list[Fact] = []
    for index, line in enumerate(clipped_lines(document)):
        match = _SYSCTL.match(line) if len(line) < 200 else None
        if match and match["name"] in _SYSCTLS:
            value: Scalar = int(match["value"]) if re.fullmatch(r"-?\d{1,18}", match["value"]) else match["value"]
            facts.append(fact(document, "sysctl", match["name"], {"name": match["name"], "value": value}, index, line))
    return facts
