"""What kubectl prints for people: describe pod, describe node, get pods, get nodes, get events."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpuclinic.model import Document, Fact, Where
from gpuclinic.recognise.parsers._host_util import (
    MAX_FACTS,
    cells,
    clipped_lines,
    command_of,
    duration_s,
    fact,
    k8s_mib,
    k8s_quantity,
    whole,
)

if TYPE_CHECKING:
    from gpuclinic.model._types import Scalar

GPU_RESOURCE = re.compile(
    r"^(?:nvidia\.com/(?:gpu|mig-[\w.]+|pgpu|vgpu)\S*|amd\.com/gpu|aliyun\.com/gpu-mem|volcano\.sh/vgpu\S*|"
    r"tencent\.com/vcuda\S*|huawei\.com/Ascend\S*)$"
)
_FIELD = re.compile(r"^(?P<indent>\s*)(?P<name>[A-Za-z][\w ./()-]{0,60}?):(?:\s+(?P<value>\S.*))?\s*$")
_RESOURCE = re.compile(
    r"^\s+(?P<name>[\w.-]+/[\w.-]+|cpu|memory|pods|ephemeral-storage)(?::)?\s+(?P<value>\S+)(?:\s+\(\d+%\))?(?:\s+"
    r"(?P<limit>\S+))?"
)
_EVENT = re.compile(
    r"^\s*(?P<type>Normal|Warning)\s+(?P<reason>[A-Z]\w+)\s+(?P<age>.*?\S)\s{2,}(?P<from>[\w.,/-]+(?: [\w.-]+)?)"
    r"\s{2,}(?P<message>\S.*)$"
)
_EVENT_LOOSE = re.compile(
    r"^\s*(?P<type>Normal|Warning)\s+(?P<reason>[A-Z]\w+)\s+(?P<age>(?:\d+[dhms])+(?: \(x\d+ over [\dhdms]+\))?|"
    r"<unknown>|<invalid>)\s+(?P<from>\S+)\s+(?P<message>\S.*)$"
)
_GET_EVENT = re.compile(
    r"^(?:(?P<ns>[a-z0-9-]+)\s+)?(?P<age>(?:\d+[dhms])+(?: \(x\d+ over \S+\))?|<unknown>)\s+(?P<type>Normal|Warning)"
    r"\s+(?P<reason>[A-Z]\w+)\s+(?P<object>\S+)\s+(?P<message>\S.*)$"
)
_TIMES = re.compile(r"\(x(\d{1,12})\b")
_PHASE = {"CrashLoopBackOff", "Error", "OOMKilled", "ImagePullBackOff", "ErrImagePull"}


class _Describe:
    """One described object while its lines come in."""

    def __init__(self, document: Document, index: int, line: str, name: str) -> None:
        self.document = document
        self.name = name
        self.fields: dict[str, Scalar] = {}
        self.places: dict[str, Where] = {"": document.at(index, line)}
        self.node = False
        self.pod = False
        self.section = ""
        self.part = ""
        self.container: dict[str, Scalar] = {}
        self.containers: list[tuple[dict[str, Scalar], dict[str, Where]]] = []
        self.events: list[Fact] = []

    def put(self, name: str, value: Scalar, index: int, line: str) -> None:
        if value is not None:
            self.fields[name] = value
            self.places[name] = self.document.at(index, line)

    def put_container(self, name: str, value: Scalar, index: int, line: str) -> None:
        if self.containers and value is not None:
            self.containers[-1][0][name] = value
            self.containers[-1][1][name] = self.document.at(index, line)

    def facts(self) -> list[Fact]:
        document = self.document
        if self.node:
            kept = {"system": "k8s", "name": self.name, **self.fields}
            return [Fact("node", self.name, kept, self.places, document.source, document.host), *self.events]
        if not self.pod and not self.containers:
            return self.events
        made: list[Fact] = []
        for fields, places in self.containers:
            whole_fields = {"pod": self.name, **fields}
            made.append(
                Fact(
                    "pod_container",
                    f"{self.name}/{fields.get('name')}",
                    whole_fields,
                    places,
                    document.source,
                    document.host,
                )
            )
            for name, value in fields.items():
                if name in (
                    "gpu_request",
                    "gpu_limit",
                    "memory_limit_mib",
                    "exit_code",
                    "oom_killed",
                    "restarts",
                    "state_reason",
                    "last_reason",
                ) and (name not in self.fields or (name in ("oom_killed", "restarts") and value)):
                    self.fields[name] = value
                    self.places[name] = places.get(name, self.places[""])
        self.fields.setdefault("oom_killed", False)
        kept = {"name": self.name, **self.fields}
        return [Fact("pod", self.name, kept, self.places, document.source, document.host), *made, *self.events]


def parse_describe(document: Document) -> list[Fact]:
    """kubectl describe pod and describe node: "pod", "pod_container", "node", "event"."""
    facts: list[Fact] = []
    current: _Describe | None = None
    for index, line in enumerate(clipped_lines(document)):
        if len(line) > 4000:
            continue
        if command_of(line):
            continue
        match = re.match(r"^Name:\s+(?P<name>\S+)\s*$", line)
        if match:
            if current:
                facts.extend(current.facts())
            current = _Describe(document, index, line, match["name"])
            continue
        if current is None:
            if re.match(r"^(?:Containers|Capacity|Conditions|Events|Allocated resources):\s*$", line):
                current = _Describe(document, index, line, "")
            else:
                event = _event(document, index, line, "")
                if event:
                    facts.append(event)
                continue
        _describe_line(current, index, line)
        if len(facts) >= MAX_FACTS:
            break
    if current:
        facts.extend(current.facts())
    return facts


def _event(document: Document, index: int, line: str, thing: str) -> Fact | None:
    match = _EVENT_LOOSE.match(line) or _EVENT.match(line)
    if not match:
        return None
    times = _TIMES.search(match["age"])
    fields: dict[str, Scalar] = {
        "reason": match["reason"],
        "message": match["message"].strip()[:1500],
        "type": match["type"],
        "object": thing,
        "count": int(times.group(1)) if times else 1,
        "age": match["age"],
        "from": match["from"],
    }
    return fact(document, "event", match["reason"], fields, index, line)


def _describe_line(current: _Describe, index: int, line: str) -> None:
    event = _event(current.document, index, line, current.name)
    if event:
        current.events.append(event)
        return
    match = _FIELD.match(line)
    if match and not match["indent"]:
        current.section, current.part = match["name"], ""
        _top_level(current, match["name"], (match["value"] or "").strip(), index, line)
        return
    if current.section in ("Containers", "Init Containers"):
        _container_line(current, index, line, match)
    elif current.section in ("Capacity", "Allocatable", "Allocated resources"):
        _capacity_line(current, index, line)
    elif current.section == "Conditions":
        _condition_line(current, index, line)
    elif current.section in ("Taints", "Labels"):
        _more(current, current.section, line.strip(), index, line)


def _top_level(current: _Describe, name: str, value: str, index: int, line: str) -> None:
    if name in ("Capacity", "Allocatable", "Allocated resources", "Unschedulable", "System Info", "Roles"):
        current.node = True
    if name in ("Containers", "QoS Class", "Service Account", "Start Time", "IP") or name == "Status":
        current.pod = True
    if name == "Status":
        current.put("phase", value.split()[0] if value else None, index, line)
    elif name in ("Reason", "Message"):
        current.put(name.lower(), value or None, index, line)
        current.places[""] = current.document.at(index, line)
    elif name == "Node":
        current.put("node", None if value in ("<none>", "") else value.split("/")[0], index, line)
    elif name == "Namespace":
        current.put("namespace", value, index, line)
    elif name == "Unschedulable":
        current.put("cordoned", value == "true", index, line)
    elif name in ("Taints", "Labels"):
        _more(current, name, value, index, line)


def _more(current: _Describe, section: str, text: str, index: int, line: str) -> None:
    if section == "Taints":
        if text and text != "<none>":
            old = current.fields.get("taints")
            current.put("taints", f"{old}, {text}" if old else text, index, line)
            if "unschedulable" in text:
                current.put("cordoned", True, index, line)
        return
    match = re.match(
        r"^(?:nvidia\.com/gpu\.(?P<what>count|product|memory|present|family)|"
        r"nvidia\.com/mig\.(?P<mig>config(?:\.state)?|strategy))=(?P<value>\S+)",
        text,
    )
    if match:
        name = f"label_{match['what'] or 'mig_' + match['mig'].replace('.', '_')}"
        value: Scalar = whole(match["value"]) if match["what"] in ("count", "memory") else match["value"]
        current.put(name, value, index, line)
    elif re.match(r"^feature\.node\.kubernetes\.io/pci-10de\.present=true|^nvidia\.com/gpu\.deploy\.", text):
        current.put("label_present", "true", index, line)


def _container_line(current: _Describe, index: int, line: str, match: re.Match[str] | None) -> None:
    if match and len(match["indent"]) == 2 and not match["value"]:
        current.containers.append(
            (
                {"name": match["name"], "init": current.section.startswith("Init")},
                {"": current.document.at(index, line)},
            )
        )
        current.part = ""
        return
    if match and len(match["indent"]) <= 4:
        current.part = match["name"]
        value = (match["value"] or "").strip()
        if match["name"] == "State":
            current.put_container("state", value, index, line)
        elif match["name"] == "Last State":
            current.put_container("last_state", value, index, line)
        elif match["name"] == "Restart Count":
            current.put_container("restarts", whole(value), index, line)
        elif match["name"] == "Image":
            current.put_container("image", value, index, line)
        return
    if current.part in ("State", "Last State") and match:
        _state_line(current, index, line, match)
        return
    resource = _RESOURCE.match(line)
    if resource and current.part in ("Limits", "Requests"):
        which = "limit" if current.part == "Limits" else "request"
        if GPU_RESOURCE.match(resource["name"]):
            current.put_container(f"gpu_{which}", k8s_quantity(resource["value"]), index, line)
            current.put_container("gpu_resource", resource["name"], index, line)
        elif resource["name"] == "memory":
            current.put_container(f"memory_{which}_mib", k8s_mib(resource["value"]), index, line)


def _state_line(current: _Describe, index: int, line: str, match: re.Match[str]) -> None:
    prefix = "last_" if current.part == "Last State" else "state_"
    value = (match["value"] or "").strip()
    if match["name"] == "Reason":
        current.put_container(f"{prefix}reason", value, index, line)
        if value == "OOMKilled":
            current.put_container("oom_killed", True, index, line)
    elif match["name"] == "Exit Code":
        current.put_container("exit_code", whole(value), index, line)
    elif match["name"] == "Signal":
        current.put_container("signal", whole(value), index, line)
    elif match["name"] == "Message":
        current.put_container("message", value[:1000], index, line)


def _capacity_line(current: _Describe, index: int, line: str) -> None:
    match = _RESOURCE.match(line)
    if not match:
        return
    name = {"Capacity": "capacity", "Allocatable": "allocatable", "Allocated resources": "allocated"}[current.section]
    if GPU_RESOURCE.match(match["name"]):
        old = current.fields.get(f"{name}_gpus")
        value = k8s_quantity(match["value"])
        total = (float(old) if isinstance(old, (int, float)) else 0.0) + (value or 0.0)
        current.put(f"{name}_gpus", total, index, line)
        current.put("resource", match["name"], index, line)
    elif match["name"] == "memory":
        current.put(f"{name}_memory_mib", k8s_mib(match["value"]), index, line)


def _condition_line(current: _Describe, index: int, line: str) -> None:
    match = re.match(r"^\s+(?P<type>[A-Z]\w+)\s+(?P<status>True|False|Unknown)\s+(?P<rest>.*)$", line)
    if not match:
        return
    if match["type"] == "Ready":
        current.put("ready", match["status"] == "True", index, line)
        return
    if match["type"] == "PodScheduled":
        current.pod = True
    bad = match["status"] == "True" and re.search(
        r"Pressure|Unavailable|Problem|Unhealthy|Deadlock|ReadonlyFilesystem|Xid|GPU|Gpu|Frequent", match["type"]
    )
    if bad:
        old = current.fields.get("conditions")
        current.put("conditions", f"{old}, {match['type']}" if old else match["type"], index, line)
        current.put("condition_message", " ".join(cells(match["rest"])[-1:])[:400], index, line)


_POD_STATUS = re.compile(r"^(?:[A-Z]\w+(?::\w+)?|Init:\S+|ContainerStatusUnknown)$")


def parse_get(document: Document) -> list[Fact]:
    """kubectl get pods (-A, -o wide), get nodes, get events, custom columns with GPU counts."""
    facts: list[Fact] = []
    header: list[str] = []
    for index, line in enumerate(clipped_lines(document)):
        if len(line) > 3000:
            continue
        words = line.split()
        if not words or command_of(line):
            header = [] if words else header
            continue
        event = _GET_EVENT.match(line)
        if event:
            facts.append(_get_event(document, index, line, event))
            continue
        if "NAME" in words and ({"STATUS", "READY"} & set(words) or any("GPU" in word.upper() for word in words)):
            header = words
            continue
        if not header or len(words) < 2:
            continue
        found = _get_row(document, index, line, header)
        if found:
            facts.append(found)
        if len(facts) >= MAX_FACTS:
            break
    return facts


def _get_event(document: Document, index: int, line: str, match: re.Match[str]) -> Fact:
    times = _TIMES.search(match["age"])
    fields: dict[str, Scalar] = {
        "reason": match["reason"],
        "message": match["message"].strip()[:1500],
        "type": match["type"],
        "object": match["object"],
        "count": int(times.group(1)) if times else 1,
        "age": match["age"],
    }
    return fact(document, "event", match["reason"], fields, index, line)


def _get_row(document: Document, index: int, line: str, header: list[str]) -> Fact | None:
    text = re.sub(r"(\d+) \((\S+) ago\)", r"\1", line)
    row = dict(zip(header, text.split(), strict=False))
    name, status = row.get("NAME", ""), row.get("STATUS", "")
    if "RESTARTS" in header or "READY" in header:
        if not re.fullmatch(r"\d+/\d+", row.get("READY", "")) or not _POD_STATUS.match(status):
            return None
        ready, _, containers = row["READY"].partition("/")
        fields: dict[str, Scalar] = {
            "name": name,
            "namespace": row.get("NAMESPACE"),
            "phase": status,
            "restarts": whole(row.get("RESTARTS")),
            "reason": status
            if status in _PHASE or status not in ("Running", "Pending", "Completed", "Succeeded")
            else None,
            "ready": ready == containers,
            "node": None if row.get("NODE") == "<none>" else row.get("NODE"),
            "oom_killed": status == "OOMKilled",
            "age_s": duration_s(row.get("AGE")),
        }
        return fact(document, "pod", name, fields, index, line)
    gpu_columns = [
        column
        for column in header
        if "GPU" in column.upper() or "ALLOC" in column.upper() or "CAPACITY" in column.upper()
    ]
    if re.fullmatch(r"(?:Not)?Ready(?:,\w+)*|Unknown(?:,\w+)*", status) or gpu_columns:
        fields = {
            "system": "k8s",
            "name": name,
            "state": status or None,
            "ready": status.split(",")[0] == "Ready" if status else None,
            "cordoned": "SchedulingDisabled" in status if status else None,
        }
        for column in gpu_columns:
            which = "allocatable" if "ALLOC" in column.upper() else "capacity"
            value = row.get(column)
            fields[f"{which}_gpus"] = 0 if value == "<none>" else k8s_quantity(value)
        return fact(document, "node", name, fields, index, line)
    return None
