"""Slurm: sacct, squeue, sinfo, scontrol show job/node, slurm.conf, gres.conf, batch scripts."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpuclinic.model import digits
from gpuclinic.recognise.parsers._host_util import (
    MAX_FACTS,
    Spans,
    clipped_lines,
    command_of,
    duration_s,
    fact,
    iso_stamp,
    number,
    size_mib,
    whole,
)

if TYPE_CHECKING:
    from gpuclinic.model import Document, Fact
    from gpuclinic.model._types import Scalar

STATES = (
    "BOOT_FAIL|CANCELLED|COMPLETED|COMPLETING|CONFIGURING|DEADLINE|FAILED|NODE_FAIL|OUT_OF_MEMORY|OUT_OF_ME|PENDING|"
    "PREEMPTED|RUNNING|"
    "REQUEUED|REQUEUE_HOLD|RESIZING|REVOKED|STOPPED|SUSPENDED|TIMEOUT|SPECIAL_EXIT|LAUNCH_FAILED"
)
_TOKEN = re.compile(r"CANCELLED by \d+|CANCELLED by|\S+")
_DURATION = re.compile(r"(?:\d+-)?\d+:\d\d(?::\d\d)?(?:\.\d+)?")
_LIMIT = re.compile(rf"{_DURATION.pattern}|UNLIMITED|Partition_L\S*")
_MEMORY = re.compile(r"[\d.]+[KMGT]?[cn]?|0")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT[\d:]+|Unknown|None|Assigned")
_ACCEPTS = {
    "jobid": re.compile(r"\d+\S*"),
    "jobidraw": re.compile(r"\d+\S*"),
    "elapsed": _DURATION,
    "timelimit": _LIMIT,
    "state": re.compile(rf"(?:{STATES})\+?(?: by \d*)?|CANCELLED\+|NODE_FAIL\+?|OUT_OF_ME\+"),
    "exitcode": re.compile(r"-?\d+:\d+"),
    "derivedexitcode": re.compile(r"-?\d+:\d+"),
    "maxrss": _MEMORY,
    "reqmem": _MEMORY,
    "averss": _MEMORY,
    "maxvmsize": _MEMORY,
    "start": _TIME,
    "end": _TIME,
    "submit": _TIME,
    "eligible": _TIME,
    "alloccpus": re.compile(r"\d+"),
    "ncpus": re.compile(r"\d+"),
    "nnodes": re.compile(r"\d+"),
    "ntasks": re.compile(r"\d+"),
    "totalcpu": _DURATION,
    "cputime": _DURATION,
    "reqcpus": re.compile(r"\d+"),
    "uid": re.compile(r"\d+"),
    "alloctres": re.compile(r"\S*=\S*"),
    "reqtres": re.compile(r"\S*=\S*"),
}
_SHORT = {
    "R": "RUNNING",
    "PD": "PENDING",
    "CG": "COMPLETING",
    "CD": "COMPLETED",
    "CA": "CANCELLED",
    "F": "FAILED",
    "TO": "TIMEOUT",
    "NF": "NODE_FAIL",
    "OOM": "OUT_OF_MEMORY",
    "PR": "PREEMPTED",
    "S": "SUSPENDED",
    "ST": "STOPPED",
    "CF": "CONFIGURING",
    "RH": "REQUEUE_HOLD",
    "RQ": "REQUEUED",
    "SE": "SPECIAL_EXIT",
    "DL": "DEADLINE",
    "BF": "BOOT_FAIL",
}
_PAIR = re.compile(r"(?:^|\s)(?P<name>[A-Z][\w/:]*(?:\.[a-z]+)?)=(?P<value>.*?)(?=\s+[A-Z][\w/:]*(?:\.[a-z]+)?=|\s*$)")


def _column(row: dict[str, str], *names: str) -> str | None:
    for name in names:
        value = row.get(name)
        if value and value not in ("(null)", "N/A", "None", "Unknown"):
            return value
    return None


def _gres_count(text: str | None) -> int | None:
    """GPUs in a GRES or TRES string: "gpu:a100:4(S:0-1)", "gres/gpu=8", "gres:gpu:2"; the plain total wins."""
    if not text:
        return None
    plain = re.search(r"gres/gpu=(\d{1,9})\b", text)
    if plain:
        return int(plain.group(1))
    if "gpu" not in text:
        return None
    found = re.findall(r"gpu(?::[A-Za-z][\w.-]*)?[:=](\d{1,9})\b", text)
    return sum(int(count) for count in found) if found else None


def _job_fields(row: dict[str, str]) -> dict[str, Scalar]:
    state_text = _column(row, "state", "st", "jobstate") or ""
    state = re.split(r"[\s+]", state_text)[0]
    state = _SHORT.get(state, "OUT_OF_MEMORY" if state.startswith("OUT_OF_ME") else state)
    by = re.search(r"by (\d+)", state_text)
    code = _column(row, "exitcode") or ""
    exit_code, _, signal = code.partition(":")
    derived = _column(row, "derivedexitcode", "derivedec")
    job = (_column(row, "jobid", "jobidraw", "job_id") or "").strip()
    memory = _column(row, "reqmem", "minmemorynode", "min_memory")
    limit = _column(row, "timelimit", "time_limit")
    return {
        "id": job,
        "base": re.split(r"[._+]", job)[0] or None,
        "step": job.partition(".")[2] or None,
        "name": _column(row, "jobname", "name"),
        "state": state or None,
        "exit_code": whole(exit_code),
        "signal": whole(signal),
        "derived": derived,
        "reason": _column(row, "reason", "nodelist(reason)"),
        "time_limit_s": duration_s(limit),
        "elapsed_s": duration_s(_column(row, "elapsed", "runtime", "time")),
        "node": _column(row, "nodelist", "node"),
        "user": _column(row, "user", "userid"),
        "partition": _column(row, "partition"),
        "max_rss_mib": size_mib(_column(row, "maxrss"), 1 / 1048576),
        "req_mem_mib": size_mib((memory or "").rstrip("cn") or None, 1.0),
        "cancelled_by": whole(by.group(1)) if by else None,
        "gres": _column(row, "allocgres", "reqgres", "gres", "tres_per_node", "tresper node", "tres"),
        "gpus": _gres_count(
            _column(row, "alloctres", "reqtres", "allocgres", "reqgres", "gres", "tres", "tres_per_node", "trespernode")
        ),
        "start": _column(row, "start", "starttime"),
        "end": _column(row, "end", "endtime"),
        "comment": _column(row, "comment", "admincomment"),
    }


def parse_sacct(document: Document) -> list[Fact]:
    """sacct as a table or with -p/-P, and squeue: "job" for each job and step."""
    facts: list[Fact] = []
    spans: Spans | None = None
    names: list[str] = []
    lines = clipped_lines(document)
    for index, line in enumerate(lines):
        if len(line) > 3000 or not line.strip():
            continue
        first = line.split()[0] if line.split() else ""
        if "|" in line and re.match(r"^\s*(?:JobID|JobIDRaw|JOBID)\|", line):
            names, spans = [name.strip().lower() for name in line.split("|")], None
            continue
        if (
            re.search(r"(?:^|\s)(?:JobID|JobIDRaw)(?:\s|$)", line)
            and "|" not in line
            and re.search(r"State|Elapsed|ExitCode|MaxRSS", line)
        ):
            rule = lines[index + 1] if index + 1 < len(lines) else ""
            spans, names = Spans(line, rule if set(rule.strip()) <= {"-", " "} else ""), []
            continue
        if first == "JOBID" and re.search(r"\b(?:ST|STATE)\b", line):
            names, spans = [], None
            facts.extend(_squeue(document, index, lines))
            continue
        row: dict[str, str] = {}
        if names and line.count("|") >= len(names) - 1:
            row = {name: value.strip() for name, value in zip(names, line.split("|"), strict=False)}
        elif spans is not None and re.match(r"^\s*\S", line) and not set(line.strip()) <= {"-", " "}:
            row = spans.split(line, _ACCEPTS, _TOKEN)
        state_ok = _ACCEPTS["state"].fullmatch(row.get("state", ""))
        if state_ok or (row.get("exitcode") and re.match(r"\d", row.get("jobid", ""))):
            fields = _job_fields(row)
            facts.append(
                fact(document, "job", str(fields["id"]), fields, index, line, time=iso_stamp(row.get("end", "")))
            )
        if len(facts) >= MAX_FACTS:
            break
    return facts


def _squeue(document: Document, start: int, lines: list[str]) -> list[Fact]:
    header = lines[start].split()
    names = [name.lower() for name in header]
    facts: list[Fact] = []
    for index in range(start + 1, min(len(lines), start + 3000)):
        cells = lines[index].split(None, len(names) - 1)
        if not cells or not re.match(r"^\d+[\w\[\]%,-]*$", cells[0]) or len(cells) < len(names) - 1:
            break
        if len(cells) == len(names) - 1:
            cells.append("")
        row = dict(zip(names, cells, strict=True))
        place = row.get("nodelist(reason)", "").strip()
        reason = re.fullmatch(r"\((?P<reason>.*)\)", place)
        row["nodelist"], row["nodelist(reason)"] = ("", reason["reason"]) if reason else (place, "")
        fields = _job_fields(row)
        facts.append(fact(document, "job", str(fields["id"]), fields, index, lines[index]))
    return facts


def parse_scontrol(document: Document) -> list[Fact]:
    """scontrol show job and show node (also with -o): "job" and "node"."""
    facts: list[Fact] = []
    record: dict[str, str] = {}
    start = (0, "")
    places: dict[str, tuple[int, str]] = {}

    def close() -> None:
        if "NodeName" in record and ("State" in record or "CPUTot" in record):
            facts.append(_node_fact(document, record, start, places))
        elif "JobId" in record and "JobState" in record:
            row = {name.lower(): value for name, value in record.items()}
            fields = _job_fields(row)
            facts.append(
                _placed(
                    document,
                    "job",
                    str(fields["id"]),
                    fields,
                    start,
                    places,
                    {"JobState": "state", "Reason": "reason", "ExitCode": "exit_code", "TimeLimit": "time_limit_s"},
                )
            )
        record.clear()
        places.clear()

    for index, line in enumerate(clipped_lines(document)):
        if len(line) > 8000:
            continue
        text = line.strip()
        if re.match(r"^(?:JobId|NodeName|PartitionName)=", text):
            close()
            start = (index, line)
        elif not record:
            continue
        for match in _PAIR.finditer(text):
            name = match["name"]
            record.setdefault(name, match["value"].strip())
            places.setdefault(name, (index, line))
    close()
    return facts[:MAX_FACTS]


def _placed(
    document: Document,
    kind: str,
    key: str,
    fields: dict[str, Scalar],
    start: tuple[int, str],
    places: dict[str, tuple[int, str]],
    named: dict[str, str],
) -> Fact:
    where = {field: document.at(*places[name]) for name, field in named.items() if name in places}
    telling = next((places[name] for name in ("Reason", "State", "JobState") if name in places), start)
    return fact(document, kind, key, fields, telling[0], telling[1], where)


def _node_fact(
    document: Document, record: dict[str, str], start: tuple[int, str], places: dict[str, tuple[int, str]]
) -> Fact:
    name = record["NodeName"].split()[0]
    fields = node_fields(name, record.get("State", ""), record.get("Reason"), record.get("Gres"))
    allocated = _gres_count(record.get("AllocTRES"))
    fields["configured_gpus"] = _gres_count(record.get("CfgTRES"))
    fields["allocated_gpus"] = allocated if allocated is not None else _gres_count(record.get("GresUsed"))
    fields["cpus"], fields["load"] = whole(record.get("CPUTot")), number(record.get("CPULoad"))
    fields["memory_mib"], fields["free_memory_mib"] = number(record.get("RealMemory")), number(record.get("FreeMem"))
    return _placed(
        document, "node", name, fields, start, places, {"State": "state", "Reason": "reason", "Gres": "gpus"}
    )


def node_fields(name: str, state: str, reason: str | None, gres: str | None) -> dict[str, Scalar]:
    """What a Slurm node's state says, taken apart."""
    lower = state.lower()
    reason_text = re.sub(r"\s*\[[^\]]*@[^\]]*\]\s*$", "", reason or "").strip()
    return {
        "system": "slurm",
        "name": name,
        "state": state,
        "reason": reason_text or None,
        "gpus": _gres_count(gres),
        "gres": gres,
        "drained": "drain" in lower or lower.startswith("drng"),
        "down": "down" in lower or "fail" in lower or ("power" in lower and "up" not in lower),
        "not_responding": "not_respond" in lower or lower.endswith("*"),
        "invalid": "inval" in lower,
        "usable": not re.search(r"drain|drng|down|fail|inval|maint|not_respond|\*$", lower),
    }


_SINFO_R = re.compile(
    r"^(?P<reason>\S.*?)\s+(?P<user>\S+)\s+(?P<time>\d{4}-\d\d-\d\dT[\d:]+|Unknown|N/A)\s+(?P<nodes>[\w\[\],.-]+)\s*$"
)
_NODE_STATE = re.compile(
    r"(?:idle|alloc(?:ated)?|mix(?:ed)?|drain(?:ed|ing)?|drng|down|comp(?:leting)?|resv|reserved|maint|fail|unk|"
    r"inval|planned|plnd|boot|pow_?\w*|block)[*~#!%$@^+-]*",
    re.IGNORECASE,
)


def parse_sinfo(document: Document) -> list[Fact]:
    """sinfo in its forms (default, -N, -Nl, -R, -o with |): "node" for each list of nodes."""
    facts: list[Fact] = []
    mode, names = "", []
    for index, line in enumerate(clipped_lines(document)):
        if len(line) > 3000:
            continue
        words = line.split()
        if not words or command_of(line):
            mode = ""
            continue
        if words[0] == "REASON" and "NODELIST" in words:
            mode = "reason"
            continue
        if "|" in line and re.search(r"\bSTATE\b", line):
            mode, names = "pipe", [name.strip().upper() for name in line.split("|")]
            continue
        if {"NODELIST", "STATE"} <= set(words) or {"HOSTNAMES", "STATE"} <= set(words):
            mode, names = "table", words
            continue
        found = _sinfo_row(document, index, line, mode, names)
        if found:
            facts.append(found)
    return facts[:MAX_FACTS]


def _sinfo_row(document: Document, index: int, line: str, mode: str, names: list[str]) -> Fact | None:
    if mode == "reason":
        match = _SINFO_R.match(line.strip())
        if not match:
            return None
        fields = node_fields(match["nodes"], "drain", match["reason"], None)
        fields["since"], fields["user"] = match["time"], match["user"]
        return fact(document, "node", match["nodes"], fields, index, line)
    if mode == "pipe":
        row = dict(zip(names, [cell.strip() for cell in line.split("|")], strict=False))
    elif mode == "table":
        row = dict(zip(names, line.split(None, len(names) - 1), strict=False))
    else:
        return None
    state = row.get("STATE", "")
    if not _NODE_STATE.fullmatch(state):
        return None
    nodes = row.get("NODELIST") or row.get("HOSTNAMES") or ""
    reason = row.get("REASON")
    fields = node_fields(nodes, state, None if reason in ("none", "None", None) else reason, row.get("GRES"))
    fields["partition"] = (row.get("PARTITION") or "").strip("*") or None
    fields["nodes"] = whole(row.get("NODES"))
    return fact(document, "node", nodes, fields, index, line)


_GRES = re.compile(r"^\s*(?:NodeName=(?P<node>\S+)\s+)?(?P<rest>(?:AutoDetect=\S+\s+)?Name=gpu\b.*)$", re.IGNORECASE)
_CONF_NODE = re.compile(r"^\s*NodeName=(?P<node>\S+)\s+(?P<rest>.*)$", re.IGNORECASE)
_CONF_WANTED = re.compile(
    r"^\s*(?P<name>TaskPlugin|ProctrackType|SelectType|SelectTypeParameters|GresTypes|ConstrainDevices|"
    r"ConstrainRAMSpace|ConstrainSwapSpace|AutoDetect|"
    r"PreemptMode|PreemptType|KillWait|SlurmdTimeout|AccountingStorageTRES|PropagateResourceLimits\w*|"
    r"JobAcctGatherType|OverMemoryKill|"
    r"Prolog|Epilog|HealthCheckProgram|ReturnToService|AllowedRAMSpace|DefMemPerNode|MaxMemPerNode)\s*=\s*"
    r"(?P<value>\S.*?)\s*$",
    re.IGNORECASE,
)


def _expanded(files: str) -> int:
    """How many devices a File= pattern names: "/dev/nvidia[0-3,5]" is 5."""
    total = 0
    for piece in re.split(r",(?![^\[]*\])", files):
        inside = re.search(r"\[([\d,-]+)\]", piece)
        if not inside:
            total += 1
            continue
        for part in inside.group(1).split(","):
            low, _, high = part.partition("-")
            first, last = digits(low), digits(high or low)
            if first is not None and last is not None:
                total += min(max(last - first + 1, 0), 4096)
    return total


def parse_slurm_conf(document: Document) -> list[Fact]:
    """slurm.conf, gres.conf, cgroup.conf: "gres" (count, files, node) and "slurm_setting"."""
    facts: list[Fact] = []
    for index, line in enumerate(clipped_lines(document)):
        text = line.split("#", 1)[0]
        if len(text) > 2000 or not text.strip():
            continue
        match = _GRES.match(text)
        if match:
            pairs = {name.lower(): value for name, value in re.findall(r"(\w+)=(\S+)", match["rest"])}
            files = _expanded(pairs["file"]) if "file" in pairs else None
            count = whole(pairs.get("count")) if "count" in pairs else files
            fields: dict[str, Scalar] = {
                "node": match["node"],
                "type": pairs.get("type"),
                "count": count,
                "files": files,
                "file": pairs.get("file"),
                "where": "gres.conf",
                "autodetect": pairs.get("autodetect"),
                "mig": "nvidia-caps" in pairs.get("file", "") or pairs.get("multiplefiles") is not None,
            }
            facts.append(fact(document, "gres", match["node"] or "gpu", fields, index, line))
            continue
        match = _CONF_NODE.match(text)
        gres = re.search(r"\bGres=(\S+)", text, re.IGNORECASE) if match and "State=IDLE" not in text else None
        if match and gres and not re.search(r"CPUAlloc=|Arch=", text):
            fields = {
                "node": match["node"],
                "count": _gres_count(gres.group(1)),
                "type": gres.group(1),
                "where": "slurm.conf",
            }
            facts.append(fact(document, "gres", match["node"], fields, index, line))
            continue
        match = _CONF_WANTED.match(text)
        if match:
            fields = {"name": match["name"], "value": match["value"]}
            facts.append(fact(document, "slurm_setting", match["name"], fields, index, line))
    return facts[:MAX_FACTS]


_SBATCH = re.compile(
    r"^\s*#SBATCH\s+(?:--(?P<long>[\w-]+)(?:[= ]\s*(?P<value>[^#\n]*?))?|-(?P<short>\w)\s*(?P<value2>[^#\n]*?))\s*"
    r"(?:#.*)?$"
)
_SRUN = re.compile(r"^\s*(?:[$#]\s+)?(?P<tool>srun|sbatch|salloc)\s+(?P<rest>-.*)$")
_OPTIONS = {
    "t": "time",
    "N": "nodes",
    "n": "ntasks",
    "c": "cpus-per-task",
    "p": "partition",
    "J": "job-name",
    "G": "gpus",
    "w": "nodelist",
    "x": "exclude",
    "q": "qos",
}


def parse_sbatch(document: Document) -> list[Fact]:
    """#SBATCH lines and srun's options: "job_request" with name, value, and amounts taken apart."""
    facts: list[Fact] = []
    for index, line in enumerate(clipped_lines(document)):
        if len(line) > 2000:
            continue
        match = _SBATCH.match(line)
        pairs: list[tuple[str, str]] = []
        if match:
            name = match["long"] or _OPTIONS.get(match["short"], match["short"])
            pairs.append((name, (match["value"] if match["long"] else match["value2"]) or ""))
        else:
            match = _SRUN.match(line)
            pairs = [(name, value) for name, value in re.findall(r"--([\w-]+)=(\S+)", match["rest"])] if match else []
        for name, value in pairs:
            value = value.strip().strip("\"'")
            fields: dict[str, Scalar] = {"name": name, "value": value}
            if name in ("mem", "mem-per-gpu", "mem-per-cpu"):
                fields["size_mib"] = size_mib(value, 1.0)
            elif name == "time":
                fields["seconds"] = duration_s(value) if ":" in value or "-" in value else (number(value) or 0) * 60
            elif name.startswith(("gres", "gpus")):
                fields["gpus"] = _gres_count(value) or whole(value.rsplit(":", 1)[-1])
            facts.append(fact(document, "job_request", name, fields, index, line))
    return facts[:500]
