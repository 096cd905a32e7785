"""Pastes of a terminal: what a command printed right after its prompt, where the meaning lies in the two together.

Facts: "pid_probe" (a process that listings hide although it answers), "cloud_notice" (a metadata service's answer),
"process" rows of a ps whose header a grep took away, "unit_memory" (limits and peaks of systemctl show).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from gpuclinic.recognise.parsers._host_util import clipped_lines, command_of, fact, iso_stamp, whole
from gpuclinic.recognise.parsers.processes import rows_by_columns

if TYPE_CHECKING:
    from gpuclinic.model import Document, Fact, Where
    from gpuclinic.model._types import Scalar

_MOST_OUTPUT = 400
_LISTING = re.compile(
    r"\b(?:ps|htop|top|pgrep|pstree|lsof)\b[^|]*-p[ =]?(?P<p>\d{2,8})\b|\bps (?:-\w+ )?(?P<bare>\d{2,8})\s*$|"
    r"(?:\bps\b|\bls\b[^|]*\s/proc/?\s*|\btop -b)[^;&]*\|\s*(?:\S*e?grep)\b[^|;&]*?[\s'\"^]+(?P<g>\d{2,8})\b"
)
_DIRECT = re.compile(
    r"\bkill -(?:0|s 0)\s+(?P<k>\d{2,8})\b|"
    r"\b(?:ls|cat|stat|readlink|file|strings|head|xxd|tr)\b[^|;&]*\s/proc/(?P<d>\d{2,8})(?:/\w*)?"
)
_CLEAN_TOOL = re.compile(r"busybox|\bunhide\b|\bstatic\b|/mnt/|sysdig|bpftool", re.IGNORECASE)
_REFUSED = re.compile(
    r"No such (?:file|process)|没有那个(?:文件|进程)|cannot access|not found|Aucun|"
    r"Kein (?:Prozess|passender)|Datei oder Verzeichnis nicht",
    re.IGNORECASE,
)
_METADATA = re.compile(
    r"(?:169\.254\.169\.254|100\.100\.100\.200|100\.96\.0\.96|metadata\.(?:google\.internal|tencentyun\.com))\S*?"
    r"(?P<what>spot/(?:termination-time|instance-action)|preempted|maintenance-event|scheduledevents|events/maintenance\S*|"
    r"spot/(?:instance-termination|termination)\S*)"
)
_ISO = re.compile(r"\b20\d\d-\d\d-\d\dT\d\d:\d\d(?::\d\d)?")
_UNIT_MEMORY = re.compile(r"^(?P<name>Memory(?:Max|Peak|High|Current)|MemoryLimit)=(?P<value>\d{4,19})\s*$")


class _Run(NamedTuple):
    at: int
    line: str
    command: str
    output: list[tuple[int, str]]


def _session(document: Document) -> list[_Run]:
    """Every command of the paste with the lines it printed."""
    runs: list[_Run] = []
    for index, line in enumerate(clipped_lines(document)):
        command = command_of(line)
        if command:
            runs.append(_Run(index, line, command, []))
        elif runs and len(runs[-1].output) < _MOST_OUTPUT and line.strip():
            runs[-1].output.append((index, line))
    return runs


def parse_terminal(document: Document) -> list[Fact]:
    """All facts that need the command and what it printed."""
    runs = _session(document)
    facts = _pid_probes(document, runs)
    for run in runs:
        notice = _METADATA.search(run.command)
        if notice:
            facts.extend(_notice(document, run, notice["what"]))
        if re.search(r"\bps\b", run.command) and "|" in run.command:
            facts.extend(rows_by_columns(document, run.command, run.output))
    return facts


def _pid_probes(document: Document, runs: list[_Run]) -> list[Fact]:
    listed: dict[int, list[tuple[bool, _Run]]] = {}
    opens: dict[int, list[tuple[bool, _Run]]] = {}
    for place, run in enumerate(runs):
        listing = _LISTING.search(run.command)
        if listing and not _CLEAN_TOOL.search(run.command):
            pid = int(next(g for g in listing.groups() if g))
            listed.setdefault(pid, []).append((_shows(run, pid), run))
        direct = _DIRECT.search(run.command)
        if direct:
            pid = int(next(g for g in direct.groups() if g))
            opens.setdefault(pid, []).append((_answers(run, runs[place + 1 : place + 2]), run))
    facts: list[Fact] = []
    for pid, tries in opens.items():
        good = next((run for answered, run in tries if answered), None)
        seen = listed.get(pid, [])
        unseen = next((run for shown, run in seen if not shown), None)
        fields: dict[str, Scalar] = {
            "pid": pid,
            "opens": good is not None,
            "listed": any(shown for shown, _ in seen) if seen else None,
        }
        shown_run = good or tries[0][1]
        places: dict[str, Where] = {}
        if good is not None and good.output:
            places["opens"] = document.at(*good.output[0])
        if unseen is not None:
            places["listed"] = document.at(unseen.at, unseen.line)
        facts.append(fact(document, "pid_probe", str(pid), fields, shown_run.at, shown_run.line, places))
    return facts


def _shows(run: _Run, pid: int) -> bool:
    """Whether a listing command printed the process."""
    if re.search(r"grep\s+(?:-\w+ )*-\w*c|wc -l", run.command):
        count = next((whole(text) for _, text in run.output), None)
        return bool(count)
    return any(re.search(rf"\b{pid}\b", text) and "grep" not in text for _, text in run.output)


def _answers(run: _Run, following: list[_Run]) -> bool:
    """Whether kill -0 or a direct open of /proc/PID went well."""
    if any(_REFUSED.search(text) for _, text in run.output):
        return False
    if "kill" not in run.command:
        return bool(run.output)
    if "&&" in run.command:
        return bool(run.output)
    result = (
        run.output if "$?" in run.command else following[0].output if following and "$?" in following[0].command else []
    )
    return any(re.search(r"(?:^|\D)0\s*$", text) for _, text in result)


def _notice(document: Document, run: _Run, what: str) -> list[Fact]:
    """What the cloud's metadata service answered: a time of termination, TRUE, an action; nothing for 404 and NONE."""
    for index, text in run.output[:6]:
        value = text.strip().strip('"')
        if re.search(r"404|Not Found|^NONE$|^FALSE$|\"Events\": ?\[\]", value, re.IGNORECASE):
            return []
        coming = bool(_ISO.search(value)) or bool(
            re.search(r"^TRUE\b|terminate|stop|hibernate|MIGRATE_|TERMINATE_|Preempt", value, re.IGNORECASE)
        )
        if coming:
            kind = "maintenance" if re.search(r"maintenance", what) or "MAINTENANCE" in value else "reclaim"
            places = {"value": document.at(index, text)}
            return [
                fact(
                    document,
                    "cloud_notice",
                    what,
                    {"what": what, "value": value[:200], "about": kind},
                    run.at,
                    run.line,
                    places,
                )
            ]
    return []


def parse_unit_memory(document: Document) -> list[Fact]:
    """`systemctl show -p MemoryMax -p MemoryPeak`: "unit_memory" with max_mib and peak_mib."""
    found: dict[str, tuple[float, int, str]] = {}
    for index, line in enumerate(clipped_lines(document)):
        match = _UNIT_MEMORY.match(line.strip())
        if match and int(match["value"]) < 1 << 60:
            found.setdefault(match["name"], (int(match["value"]) / 1048576, index, line))
    limit = found.get("MemoryMax") or found.get("MemoryLimit") or found.get("MemoryHigh")
    peak = found.get("MemoryPeak") or found.get("MemoryCurrent")
    if limit is None:
        return []
    fields: dict[str, Scalar] = {"max_mib": limit[0], "peak_mib": peak[0] if peak else None}
    places = {"peak_mib": document.at(peak[1], peak[2])} if peak else {}
    return [fact(document, "unit_memory", "unit", fields, limit[1], limit[2], places)]


_STAT_FILE = re.compile(r"^\s*(?:File|文件|Datei|Fichier)\s*[:：]\s*['\"‘]?(?P<path>/\S+?)['\"’]?\s*$")
_STAT_TIME = re.compile(
    r"^\s*(?:Modify|最近更改|修改时间|Modifié|Modifiziert)\s*[:：]\s*(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)"
)


def parse_stat(document: Document) -> list[Fact]:
    """`stat FILE`: "file" with path and the time of its last change."""
    facts: list[Fact] = []
    path: str | None = None
    for index, line in enumerate(clipped_lines(document)):
        head = _STAT_FILE.match(line)
        if head:
            path = head["path"]
            continue
        changed = _STAT_TIME.match(line) if path else None
        if changed and path:
            facts.append(
                fact(
                    document,
                    "file",
                    path,
                    {"path": path, "name": path.rsplit("/", 1)[-1], "time": changed["time"]},
                    index,
                    line,
                    time=iso_stamp(changed["time"]),
                )
            )
            path = None
    return facts[:200]


_REDIS = re.compile(r"^\s*(?P<name>bind|protected-mode|requirepass|aclfile|masterauth)\s+(?P<value>\S.*?)\s*$")


def parse_redis(document: Document) -> list[Fact]:
    """redis.conf: "redis" with name and value; secrets are left out."""
    facts: list[Fact] = []
    for index, line in enumerate(clipped_lines(document)):
        match = _REDIS.match(line[:300])
        if match:
            secret = match["name"] in ("requirepass", "masterauth")
            fields: dict[str, Scalar] = {"name": match["name"], "value": "***" if secret else match["value"]}
            facts.append(
                fact(document, "redis", match["name"], fields, index, f"{match['name']} ***" if secret else line)
            )
    return facts[:100]
