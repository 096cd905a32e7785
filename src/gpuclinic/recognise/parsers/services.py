"""Services: systemctl status, show, is-active, list-units; supervisorctl; snap services."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpuclinic.model import Document, Fact, Where
from gpuclinic.recognise.parsers._host_util import MAX_FACTS, clipped_lines, command_of, fact, whole

if TYPE_CHECKING:
    from gpuclinic.model._types import Scalar

_HEAD = re.compile(
    r"^\s*[●○×*↻]\s+(?P<name>[\w@.:\\-]+\.(?:service|socket|timer|mount|scope|slice|target|path))(?:\s+-\s+.*)?$"
)
_ACTIVE = re.compile(r"^\s*Active:\s+(?P<active>\w+)\s*(?:\((?P<sub>[^):]+)(?::\s*(?P<result>[\w-]+))?\))?")
_MAIN = re.compile(
    r"(?:Main PID|Process):\s+(?P<pid>\d+).*?\(code=(?P<code>\w+), (?:status|signal)=(?P<status>[\w/]+)\)"
)
_MISSING = re.compile(
    r"Unit (?P<name>\S+?)(?:\.service)? (?:could not be found|not found)|Failed to \w+ (?P<name2>\S+?)"
    r"(?:\.service)?: Unit .* not (?:found|loaded)"
)
_LIST = re.compile(
    r"^\s*(?:[●*○×]\s*)?(?P<name>[\w@.:\\-]+\.(?:service|socket|timer|mount))\s+(?P<load>loaded|not-found|masked|error|"
    r"bad-setting)\s+"
    r"(?P<active>active|inactive|failed|activating|deactivating)\s+(?P<sub>[\w-]+)"
)
_SHOW = re.compile(
    r"^(?P<name>Id|ActiveState|SubState|Result|ExecMainStatus|ExecMainCode|NRestarts|LoadState|UnitFileState|"
    r"MemoryMax|MemoryLimit|MemoryCurrent|LimitNOFILE|LimitMEMLOCK|MainPID)=(?P<value>.*)$"
)
_IS_ACTIVE = re.compile(r"systemctl\s+(?:is-active|is-failed)\s+(?P<names>[\w@. -]+)")
_SUPERVISOR = re.compile(
    r"^(?P<name>[\w:.-]+)\s+(?P<state>RUNNING|FATAL|BACKOFF|STOPPED|EXITED|STARTING)\s+(?P<rest>.*)$"
)
_SNAP = re.compile(r"^(?P<name>[\w.-]+\.[\w.-]+)\s+(?P<startup>enabled|disabled)\s+(?P<current>active|inactive)\b")


def _name(text: str) -> str:
    return re.sub(r"\.service$", "", text)


class _Units:
    """Units as their lines come in; the last one named takes the details."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.found: list[tuple[str, dict[str, Scalar], dict[str, Where]]] = []

    def start(self, name: str, index: int, line: str, **fields: Scalar) -> None:
        self.found.append((_name(name), dict(fields), {"": self.document.at(index, line)}))

    def put(self, index: int, line: str, **fields: Scalar) -> None:
        if self.found:
            _, known, places = self.found[-1]
            for field, value in fields.items():
                if value is not None:
                    known[field] = value
                    places[field] = self.document.at(index, line)
            if "active" in fields:
                places[""] = self.document.at(index, line)

    def facts(self) -> list[Fact]:
        kept = [row for row in self.found if row[1]]
        return [
            Fact(
                "service",
                name,
                {"name": name, **{k: v for k, v in fields.items() if v is not None}},
                places,
                self.document.source,
                self.document.host,
            )
            for name, fields, places in kept[:MAX_FACTS]
        ]


def parse_services(document: Document) -> list[Fact]:
    """All the forms in which systemd tells of units: "service" with name, active, sub, result, exit, signal."""
    units = _Units(document)
    asked: list[str] = []
    for index, line in enumerate(clipped_lines(document)):
        line = line[:1000]
        command = command_of(line)
        if command:
            match = _IS_ACTIVE.search(command)
            asked = match["names"].split() if match else []
            continue
        text = line.strip()
        if asked and re.fullmatch(r"active|inactive|failed|activating|unknown|deactivating|not-found", text):
            units.start(asked.pop(0), index, line, active=text)
            continue
        _status_line(units, index, line, text)
    return units.facts()


def _status_line(units: _Units, index: int, line: str, text: str) -> None:
    match = _LIST.match(line)
    if match:
        active = "not-found" if match["load"] == "not-found" and match["active"] == "inactive" else match["active"]
        units.start(match["name"], index, line, active=active, sub=match["sub"], load=match["load"])
        return
    match = _HEAD.match(line)
    if match:
        units.start(match["name"], index, line)
        return
    match = _MISSING.search(text)
    if match:
        units.start(match["name"] or match["name2"], index, line, active="not-found")
        return
    match = _ACTIVE.match(line)
    if match:
        units.put(index, line, active=match["active"], sub=match["sub"], result=match["result"])
        return
    match = _MAIN.search(text)
    if match:
        signal = match["status"] if match["code"] in ("killed", "dumped") else None
        units.put(index, line, exit=None if signal else whole(match["status"]), signal=signal, pid=whole(match["pid"]))
        return
    match = re.match(r"Loaded: (?P<load>[\w-]+)(?: \((?P<path>[^;)]*)(?:; (?P<enabled>[\w-]+))?)?", text)
    if match:
        units.put(index, line, load=match["load"], enabled=match["enabled"])
        return
    match = _SHOW.match(text)
    if match:
        _show_line(units, index, line, match["name"], match["value"])
        return
    match = _SNAP.match(text)
    if match:
        units.start(match["name"], index, line, active=match["current"], enabled=match["startup"], sub="snap")
        return
    match = _SUPERVISOR.match(text)
    if match:
        active = {"RUNNING": "active", "STARTING": "activating", "STOPPED": "inactive"}.get(match["state"], "failed")
        units.start(match["name"], index, line, active=active, sub=match["state"].lower(), detail=match["rest"][:200])


def _show_line(units: _Units, index: int, line: str, name: str, value: str) -> None:
    if name == "Id" or not units.found:
        units.start(value if name == "Id" else "unit", index, line)
        if name == "Id":
            return
    fields = {
        "ActiveState": "active",
        "SubState": "sub",
        "Result": "result",
        "LoadState": "load",
        "UnitFileState": "enabled",
    }
    if name in fields:
        units.put(index, line, **{fields[name]: value})
    elif name == "ExecMainStatus":
        units.put(index, line, exit=whole(value))
    elif name == "NRestarts":
        units.put(index, line, restarts=whole(value))
    elif name in ("MemoryMax", "MemoryLimit"):
        amount = whole(value)
        units.put(
            index,
            line,
            memory_limit_mib=-1.0 if value == "infinity" or not amount or amount > 9e17 else amount / 1048576,
        )


def parse_unit_file(document: Document) -> list[Fact]:
    """Unit files: "unit_setting" for the few settings that explain deaths (limits, ExecStart, KillMode, Restart)."""
    facts: list[Fact] = []
    wanted = re.compile(
        r"^(?P<name>ExecStart\w*|Memory(?:Max|High|Limit)|Restart(?:Sec)?|KillMode|TimeoutStopSec|RuntimeMaxSec|"
        r"TasksMax|Device(?:Allow|Policy)|PrivateDevices|User|Environment)=(?P<value>.*)$"
    )
    for index, line in enumerate(clipped_lines(document)):
        match = wanted.match(line.strip()[:1000])
        if match:
            fields: dict[str, Scalar] = {"name": match["name"], "value": match["value"].strip()}
            facts.append(fact(document, "unit_setting", match["name"], fields, index, line))
    return facts[:500]
