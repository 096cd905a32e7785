"""Processes: ps in its forms, top -b, pstree, lsof and fuser of GPU devices, kernel stacks."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpuclinic.recognise.parsers._host_util import (
    KIB,
    MAX_FACTS,
    clipped_lines,
    command_of,
    duration_s,
    fact,
    number,
    size_mib,
    whole,
)

if TYPE_CHECKING:
    from gpuclinic.model import Document, Fact
    from gpuclinic.model._types import Scalar

_COLUMNS = {
    "USER": "user",
    "UID": "user",
    "EUSER": "user",
    "RUSER": "user",
    "PID": "pid",
    "PPID": "ppid",
    "%CPU": "cpu_pct",
    "C": "cpu_pct",
    "%MEM": "mem_pct",
    "RSS": "rss",
    "RSZ": "rss",
    "RES": "rss",
    "STAT": "state",
    "S": "state",
    "WCHAN": "wchan",
    "ELAPSED": "etime",
    "ETIME": "etime",
    "COMMAND": "command",
    "CMD": "command",
    "ARGS": "command",
    "COMM": "command",
    "START": "start",
    "STIME": "start",
    "STARTED": "start",
    "LSTART": "start",
    "TIME": "cpu_time",
    "TIME+": "cpu_time",
    "TTY": "tty",
    "TT": "tty",
    "NLWP": "threads",
    "THCNT": "threads",
    "PSR": "cpu",
    "NI": "nice",
    "UNIT": "unit",
    "CGROUP": "cgroup",
    "PGID": "pgid",
    "SID": "sid",
    "VSZ": "vsz",
    "VIRT": "vsz",
    "LWP": "thread",
    "SPID": "thread",
    "PRI": "priority",
    "PR": "priority",
    "用户": "user",
    "进程号": "pid",
    "命令": "command",
    "状态": "state",
}
_STATE = r"[DRSTtZIXWPL][<NLsl+]*"
_AUX = re.compile(
    rf"^(?P<user>[\w.+$-]+)\s+(?P<pid>\d+)\s+(?P<cpu>\d+(?:\.\d+)?)\s+(?P<mem>\d+(?:\.\d+)?)\s+\d+\s+(?P<rss>\d+)\s+"
    rf"\S+\s+"
    rf"(?P<state>{_STATE})\s+(?P<start>\S+)\s+(?P<time>[\d:.-]+)\s+(?P<command>\S.*)$"
)
_EF = re.compile(
    r"^(?P<user>[\w.+$-]+)\s+(?P<pid>\d+)\s+(?P<ppid>\d+)\s+(?P<cpu>\d+)\s+(?P<start>\d\d:\d\d(?::\d\d)?|"
    r"[A-Z][a-z]{2}\d\d|\d+月\d\d|\d{4})\s+"
    r"(?P<tty>\?|pts/\d+|tty\S*|console)\s+(?P<time>(?:\d+-)?\d+:\d\d:\d\d)\s+(?P<command>\S.*)$"
)
_WEEKDAY = re.compile(r"^(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun|一|二|三|四|五|六|日)$")
_TREE = re.compile(r"(?P<name>[^\s()|`─├└┬-][^()|`─├└┬]{0,40})\((?P<pid>\d+)(?:,[^)]*)?\)")
_LSOF = re.compile(
    r"^(?P<command>\S{1,40}(?: \S{1,20})?)\s+(?P<pid>\d+)\s+(?:\d+\s+\S+\s+)?(?P<user>[a-zA-Z_]\S*)\s+"
    r"(?P<fd>\d+[rwu]?\w?|mem|txt|cwd|DEL)\s+(?:CHR|REG|DIR|unknown)\s.*?(?P<file>/dev/(?:nvidia|dri|kfd|shm)\S*)"
)
_FUSER = re.compile(r"^(?P<file>/dev/(?:nvidia|dri|kfd)[^\s:]*):?\s*(?P<rest>.*)$")
_FUSER_ROW = re.compile(r"^\s*(?P<user>[\w.+-]+)\s+(?P<pid>\d+)\s+(?P<access>[F.frcem]{2,6})\s+(?P<command>\S+)\s*$")
_FUSER_PIDS = re.compile(r"\b(\d+)[mcefr]*\b")
_STACK = re.compile(r"^\s*(?:#\d+\s+)?\[<[0-9a-fx]+>\]\s+(?P<function>[\w.]+)\+0x")
_STACK_OF = re.compile(r"/proc/(?P<pid>\d+)/(?:task/\d+/)?(?:stack|wchan)")
_MINERS = re.compile(
    r"\b(?:xmrig|xmr-stak|minerd|cpuminer|ccminer|ethminer|cgminer|bfgminer|sgminer|nbminer|t-?rex|gminer|lolminer|"
    r"phoenixminer|"
    r"teamredminer|nanominer|bminer|wildrig|srbminer|rigel|bzminer|onezerominer|miniz|claymore|kdevtmpfsi|kinsing)\b",
    re.IGNORECASE,
)
_POOL = re.compile(
    r"(?:stratum[12]?\+?(?:tcp|ssl|tls|udp|wss?)?://|(?:nicehash\+\w+|ethproxy|ethstratum)://|--(?:nicehash|"
    r"donate-level)\b|"
    r"(?:^|\s)(?:-a|--algo(?:rithm)?)[ =](?:kawpow|firopow|progpow\w*|ethash|etchash|autolykos2?|octopus|kheavyhash|"
    r"karlsenhash|pyrinhash|"
    r"rx/\w+|randomx|cn/\w+|beamhash\w*|equihash\S*|verushash|cuckoo\w*|ghostrider|nexapow)\b|"
    r"--coin[= ](?:monero|xmr|rvn|ravencoin|eth|etc|kas|kaspa|erg|ergo|flux|zec|clore)\b|"
    r"(?<=[\s/@=.])(?:nanopool|2miners|ethermine|supportxmr|minexmr|hashvault|moneroocean|c3pool|herominers|unmineable|"
    r"woolypooly|xmrpool|f2pool|antpool|kryptex|zergpool|miningpoolhub|hiveon|flexpool)\.\w{2,7}:\d{2,5}\b)",
    re.IGNORECASE,
)
_ONLY_MENTIONS = re.compile(
    r"^(?:\S*/)?(?:grep|rg|egrep|vim?|nano|less|more|cat|tail|ptxas|cicc|nvcc|man|find|awk|sed)\b"
)
_KERNEL = re.compile(r"^\[[^\]]+\]$")


def _is_header(line: str) -> list[str]:
    words = line.split()
    known = [word for word in words if word.upper() in _COLUMNS or word in _COLUMNS]
    if len(words) >= 2 and ("PID" in words or "进程号" in words) and len(known) >= max(2, len(words) * 0.4):
        return words
    return []


def _row(words: list[str], line: str) -> dict[str, str] | None:
    """One row by its header: the last column takes the rest of the line if it is the command."""
    cells = line.split()
    found: dict[str, str] = {}
    position = 0
    for place, word in enumerate(words):
        if position >= len(cells):
            break
        name = _COLUMNS.get(word.upper()) or _COLUMNS.get(word)
        last = place == len(words) - 1
        value = cells[position]
        if name == "start" and _WEEKDAY.match(value) and position + 4 < len(cells):
            value = " ".join(cells[position : position + 5])
            position += 5
        elif name == "command" and last:
            value = " ".join(cells[position:])
            position = len(cells)
        elif name == "command":  # a command in the middle: it may hold spaces, the columns after it may not
            end = max(position + 1, len(cells) - (len(words) - place - 1))
            value = " ".join(cells[position:end])
            position = end
        else:
            position += 1
        if name:
            found.setdefault(name, value)
    return found if re.fullmatch(r"\d+", found.get("pid", "")) else None


def _fields(row: dict[str, str]) -> dict[str, Scalar]:
    command = re.sub(r"^[\s|`\\_─├└│-]+(?=\S)", "", row.get("command", ""))
    state = row.get("state", "")
    rss = row.get("rss")
    return {
        "pid": whole(row.get("pid")),
        "ppid": whole(row.get("ppid")),
        "user": row.get("user"),
        "state": state or None,
        "command": command[:1000] or None,
        "program": program_of(command),
        "cpu_pct": number(row.get("cpu_pct")),
        "mem_pct": number(row.get("mem_pct")),
        "rss_mib": size_mib(rss.upper() if rss else None, KIB),
        "wchan": row.get("wchan"),
        "etime_s": duration_s(row.get("etime")),
        "start": row.get("start"),
        "cpu_s": duration_s(row.get("cpu_time")),
        "threads": whole(row.get("threads")),
        "cgroup": row.get("cgroup"),
        "tty": row.get("tty"),
        "zombie": state.startswith("Z") or "<defunct>" in command,
        "uninterruptible": state.startswith("D"),
        "stopped": state[:1] in ("T", "t"),
        "kernel_thread": bool(_KERNEL.match(command)),
        "python": bool(
            re.search(r"python|torchrun|deepspeed|ray::|vllm|sglang|accelerate|pt_main_thread", command, re.IGNORECASE)
        ),
        "miner": miner_points(command),
    }


def program_of(command: str) -> str | None:
    """The name of the program in a command line, without its folder."""
    words = command.split()
    return words[0].rsplit("/", 1)[-1].strip("[]:") if words else None


def miner_points(command: str) -> int:
    """How much a command line looks like a miner: a known name 2, a pool address or mining algorithm 3 each kind."""
    if not command or _ONLY_MENTIONS.match(command):
        return 0
    name = command.split()[0].rsplit("/", 1)[-1]
    points = 2 if _MINERS.search(name) else 0
    points += 3 * len({match.group().lower()[:8] for match in _POOL.finditer(command[:4000])})
    if re.search(r"(?:-o|--url|--pool|-pool|--server)[ =]\S+[:.]\S+\d{2,5}\b", command) and re.search(
        r"(?:-u|--user|-wal|--wallet)[ =]\S{20,}", command
    ):
        points += 3
    if re.match(r"^(?:/tmp|/var/tmp|/dev/shm)/\.", command):
        points += 1
    return points


def parse_ps(document: Document) -> list[Fact]:
    """ps aux, -ef, -elf, -eo ..., forest, top -b, with or without their header: "process"."""
    facts: list[Fact] = []
    header: list[str] = []
    for index, line in enumerate(clipped_lines(document)):
        if not line.strip() or command_of(line):
            header = []
            continue
        words = _is_header(line) if "PID" in line or "进程号" in line else []
        if words:
            header = words
            continue
        row = _row(header, line) if header and len(line.split()) >= min(3, len(header)) else None
        row = row or _headerless(line)
        if row is None:
            continue
        facts.append(fact(document, "process", row["pid"], _fields(row), index, line))
        if len(facts) >= MAX_FACTS:
            break
    return facts + parse_top_summary(document)


_COLUMN_OPTION = re.compile(r"\s-\w*o[ =]?(?P<columns>[\w%=,:]+)(?=\s+(?:-|\||$|[|;&])|\s*$|\s*\|)")
_KEYWORDS = {
    "user": "user", "euser": "user", "ruser": "user", "uid": "user", "pid": "pid", "ppid": "ppid",
    "pcpu": "cpu_pct", "%cpu": "cpu_pct", "pmem": "mem_pct", "%mem": "mem_pct", "rss": "rss", "rsz": "rss",
    "stat": "state", "s": "state", "state": "state", "wchan": "wchan", "etime": "etime", "lstart": "start",
    "start": "start", "time": "cpu_time", "tty": "tty", "tt": "tty", "comm": "command", "cmd": "command",
    "args": "command", "command": "command",
}  # fmt: skip


def rows_by_columns(document: Document, command: str, output: list[tuple[int, str]]) -> list[Fact]:
    """Rows of `ps -eo pid,ppid,... | grep x`, whose header the grep took away: the columns are those of the command."""
    option = _COLUMN_OPTION.search(f"{command} ")
    words = re.split(r"[, ]+", option["columns"]) if option else []
    names = [_KEYWORDS.get(re.split(r"[=:]", word)[0].lower(), "") for word in words]
    if "pid" not in names or any("PID" in text for _, text in output):
        return []
    titles = {name: title for title, name in _COLUMNS.items()} | {"start": "LSTART", "command": "CMD", "pid": "PID"}
    header = [titles.get(name, "?") for name in names]
    facts: list[Fact] = []
    for index, line in output[:MAX_FACTS]:
        row = _row(header, line)
        if row is not None and not _ONLY_MENTIONS.match(row.get("command", "")):
            facts.append(fact(document, "process", row["pid"], _fields(row), index, line))
    return facts


def _headerless(line: str) -> dict[str, str] | None:
    if len(line) > 4000:
        line = line[:4000]
    match = _AUX.match(line)
    if match:
        return {
            "user": match["user"],
            "pid": match["pid"],
            "cpu_pct": match["cpu"],
            "mem_pct": match["mem"],
            "rss": match["rss"],
            "state": match["state"],
            "start": match["start"],
            "command": match["command"],
            "cpu_time": match["time"],
        }
    match = _EF.match(line)
    if match:
        return {
            "user": match["user"],
            "pid": match["pid"],
            "ppid": match["ppid"],
            "cpu_pct": match["cpu"],
            "start": match["start"],
            "command": match["command"],
            "cpu_time": match["time"],
            "tty": match["tty"],
        }
    return None


_CPU_LINE = re.compile(r"^%?Cpu\(?s?\)?\s*[:：]")
_CPU_VALUE = re.compile(r"(\d+[.,]\d+)\s*%?\s*(us|sy|ni|id|wa|hi|si|st)\b")
_TOP_AVAILABLE = re.compile(r"([\d.,]+) +avail Mem\b")
_TOP_MEM = re.compile(r"^(?P<unit>[KMGT]?iB)\s+(?P<what>Mem|Swap)\s*:\s*(?P<rest>.*)$")
_CPU_NAMES = {
    "us": "user_pct",
    "sy": "system_pct",
    "id": "idle_pct",
    "wa": "iowait_pct",
    "st": "steal_pct",
    "si": "softirq_pct",
}


def parse_top_summary(document: Document) -> list[Fact]:
    """The head of top: "cpu" and "memory"."""
    facts: list[Fact] = []
    lines = list(clipped_lines(document))
    for index, line in enumerate(lines):
        if len(line) > 400:
            continue
        if _CPU_LINE.match(line):
            found = {unit: number(value) for value, unit in _CPU_VALUE.findall(line)}
            fields: dict[str, Scalar] = {name: found.get(unit) for unit, name in _CPU_NAMES.items()}
            facts.append(fact(document, "cpu", "all", fields, index, line))
        match = _TOP_MEM.match(line)
        if match and match["what"] == "Mem":
            factor = size_mib("1" + match["unit"][0], 1) or 1.0
            values = {
                name: number(value) for value, name in re.findall(r"([\d.,]+)\s*\+?\s*(total|free|used)", match["rest"])
            }
            fields = {f"{name}_mib": value * factor if value is not None else None for name, value in values.items()}
            if fields.get("total_mib") and fields.get("used_mib"):
                fields["available_mib"] = float(fields["total_mib"] or 0) - float(fields["used_mib"] or 0)
            following = _TOP_AVAILABLE.search(lines[index + 1]) if index + 1 < len(lines) else None
            if following:
                fields["available_mib"] = (number(following[1]) or 0.0) * factor
            facts.append(fact(document, "memory", "host", fields, index, line))
    return facts


def parse_pstree(document: Document) -> list[Fact]:
    """pstree -p: "process" with pid, command and, along one line, ppid."""
    facts: list[Fact] = []
    stack: list[tuple[int, str]] = []
    for index, line in enumerate(clipped_lines(document)):
        for match in _TREE.finditer(line[:2000]):
            while stack and stack[-1][0] >= match.start():
                stack.pop()
            parent = stack[-1][1] if stack else None
            stack.append((match.start(), match["pid"]))
            name = match["name"].strip("{} ")
            fields: dict[str, Scalar] = {
                "pid": whole(match["pid"]),
                "ppid": whole(parent),
                "command": name,
                "program": name,
            }
            if not match["name"].startswith("{"):
                facts.append(fact(document, "process", match["pid"], fields, index, line))
        if len(facts) >= MAX_FACTS:
            break
    return facts


def parse_device_users(document: Document) -> list[Fact]:
    """lsof and fuser -v on /dev/nvidia*: "device_user" with device, pid, user, command."""
    facts: list[Fact] = []
    device = ""
    for index, line in enumerate(clipped_lines(document)):
        line = line[:2000]
        match = _LSOF.match(line)
        if match:
            facts.append(_holder(document, index, line, match["file"], match["pid"], match["user"], match["command"]))
            continue
        match = _FUSER.match(line)
        rest = line
        if match:
            device, rest = match["file"], match["rest"]
        if not device:
            continue
        row = _FUSER_ROW.match(rest)
        if row:
            facts.append(_holder(document, index, line, device, row["pid"], row["user"], row["command"]))
        elif match and re.fullmatch(r"[\d\smcefr]*", rest):
            for pid in _FUSER_PIDS.findall(rest):
                facts.append(_holder(document, index, line, device, pid, None, None))
        elif not rest.strip():
            device = "" if not match else device
        if len(facts) >= MAX_FACTS:
            break
    return facts


def _holder(
    document: Document, index: int, line: str, device: str, pid: str, user: str | None, command: str | None
) -> Fact:
    digit = re.fullmatch(r"/dev/nvidia(\d{1,6})", device)
    fields: dict[str, Scalar] = {
        "device": device,
        "pid": whole(pid),
        "user": user,
        "command": command,
        "gpu_minor": int(digit.group(1)) if digit else None,
    }
    return fact(document, "device_user", f"{device} {pid}", fields, index, line)


def parse_stack(document: Document) -> list[Fact]:
    """/proc/PID/stack: "kernel_stack" with pid, the innermost function and all functions."""
    facts: list[Fact] = []
    pid: str | None = None
    functions: list[str] = []
    start = (0, "")
    lines = clipped_lines(document)
    for index, line in enumerate([*lines, ""]):
        match = _STACK.match(line[:500])
        if match:
            if not functions:
                start = (index, line)
            functions.append(match["function"])
            continue
        if functions:
            fields: dict[str, Scalar] = {"pid": whole(pid), "top": functions[0], "functions": " ".join(functions[:40])}
            facts.append(fact(document, "kernel_stack", pid or functions[0], fields, start[0], start[1]))
            functions = []
        named = _STACK_OF.search(line[:500])
        pid = named["pid"] if named else pid
    return facts[:MAX_FACTS]
