"""Kubernetes objects as YAML or JSON: pods, nodes, events, workloads that ask for GPUs, quotas."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpuclinic.model import Document, Fact, Where
from gpuclinic.recognise.parsers._host_util import MAX_FACTS, k8s_mib, k8s_quantity, whole
from gpuclinic.recognise.parsers._tree import Leaf, leaves_of
from gpuclinic.recognise.parsers.kubernetes_text import GPU_RESOURCE

if TYPE_CHECKING:
    from gpuclinic.model._types import Scalar

_WORKLOADS = frozenset(
    [
        "Pod",
        "Deployment",
        "DaemonSet",
        "StatefulSet",
        "Job",
        "CronJob",
        "ReplicaSet",
        "PyTorchJob",
        "MPIJob",
        "TFJob",
        "RayJob",
        "RayCluster",
        "ReplicationController",
        "LeaderWorkerSet",
    ]
)


def _objects(leaves: list[Leaf]) -> list[tuple[list[Leaf], int]]:
    """The leaves of each object and the length of the path to it: documents of a file, items of a List."""
    groups: dict[tuple[str | int, ...], list[Leaf]] = {}
    for leaf in leaves:
        root: tuple[str | int, ...] = leaf.path[:1]
        if len(leaf.path) > 3 and leaf.path[1] == "items" and isinstance(leaf.path[2], int):
            root = leaf.path[:3]
        elif len(leaf.path) > 2 and isinstance(leaf.path[1], int):
            root = leaf.path[:2]
        groups.setdefault(root, []).append(leaf)
    return [(group, len(root)) for root, group in groups.items()]


class _Object:
    """One object: look-ups by path below its root."""

    def __init__(self, document: Document, leaves: list[Leaf], root: int, lines: list[str]) -> None:
        self.document = document
        self.lines = lines
        self.leaves = [(leaf.path[root:], leaf.value, leaf.line) for leaf in leaves]
        self.by_path = {path: (value, index) for path, value, index in self.leaves}

    def text(self, *path: str | int) -> str | None:
        found = self.by_path.get(path)
        return found[0] if found and found[0] != "" else None

    def at(self, index: int) -> Where:
        return self.document.at(index, self.lines[index] if index < len(self.lines) else "")

    def place(self, *path: str | int) -> Where | None:
        found = self.by_path.get(path)
        return self.at(found[1]) if found else None

    def first(self) -> Where:
        return self.at(self.leaves[0][2] if self.leaves else 0)


def parse_objects(document: Document) -> list[Fact]:
    """Objects of kubectl get -o yaml|json and manifests: "pod", "pod_container", "node", "event", "quota"."""
    lines = [line[:4000] for line in document.lines()]
    facts: list[Fact] = []
    for leaves, root in _objects(leaves_of(document.text)):
        thing = _Object(document, leaves, root, lines)
        kind = thing.text("kind") or ""
        if kind == "Node":
            facts.append(_node(thing))
        elif kind == "Event":
            facts.append(_event(thing))
        elif kind == "ResourceQuota":
            facts.extend(_quota(thing))
        elif kind in _WORKLOADS:
            facts.extend(_workload(thing, kind))
        if len(facts) >= MAX_FACTS:
            break
    return facts


def _made(thing: _Object, kind: str, key: str, fields: dict[str, Scalar], places: dict[str, Where | None]) -> Fact:
    kept: dict[str, Scalar] = {name: value for name, value in fields.items() if value is not None}
    lines = {name: place for name, place in places.items() if place is not None}
    lines.setdefault("", thing.first())
    return Fact(kind, key, kept, lines, thing.document.source, thing.document.host)


def _node(thing: _Object) -> Fact:
    name = thing.text("metadata", "name") or ""
    fields: dict[str, Scalar] = {
        "system": "k8s",
        "name": name,
        "cordoned": thing.text("spec", "unschedulable") == "true",
        "label_count": whole(thing.text("metadata", "labels", "nvidia.com/gpu.count")),
        "label_product": thing.text("metadata", "labels", "nvidia.com/gpu.product"),
        "label_present": thing.text("metadata", "labels", "nvidia.com/gpu.present"),
    }
    places: dict[str, Where | None] = {"cordoned": thing.place("spec", "unschedulable")}
    taints: list[str] = []
    for path, value, index in thing.leaves:
        if (
            len(path) == 3
            and path[:2] in (("status", "capacity"), ("status", "allocatable"))
            and GPU_RESOURCE.match(str(path[2]))
        ):
            field = f"{path[1]}_gpus"
            fields[field] = float(fields.get(field) or 0) + (k8s_quantity(value) or 0)
            places[field] = thing.at(index)
        elif path[:2] == ("spec", "taints") and path[-1] == "key":
            taints.append(value)
        elif path[:2] == ("status", "conditions") and path[-1] == "type":
            status = thing.text(*path[:-1], "status")
            if value == "Ready":
                fields["ready"] = status == "True"
                places["ready"] = thing.place(*path[:-1], "status")
            elif status == "True" and re.search(r"Pressure|Unavailable|Problem|Unhealthy|Deadlock|Xid|GPU|Gpu", value):
                fields["conditions"] = value
                places["conditions"] = thing.at(index)
    fields["taints"] = ", ".join(taints) or None
    return _made(thing, "node", name, fields, places)


def _event(thing: _Object) -> Fact:
    kind, name = thing.text("involvedObject", "kind"), thing.text("involvedObject", "name")
    fields: dict[str, Scalar] = {
        "reason": thing.text("reason"),
        "message": (thing.text("message") or thing.text("note") or "")[:1500],
        "type": thing.text("type"),
        "object": f"{kind}/{name}".lower() if name else None,
        "count": whole(thing.text("count")) or 1,
        "time": thing.text("lastTimestamp") or thing.text("eventTime"),
    }
    return _made(thing, "event", str(fields["reason"]), fields, {"": thing.place("message") or thing.place("reason")})


def _quota(thing: _Object) -> list[Fact]:
    facts: list[Fact] = []
    name = thing.text("metadata", "name") or ""
    for path, value, index in thing.leaves:
        if len(path) == 3 and path[:2] in (("spec", "hard"), ("status", "hard")) and "gpu" in str(path[2]):
            used = thing.text("status", "used", path[2])
            fields: dict[str, Scalar] = {
                "name": name,
                "resource": str(path[2]),
                "hard": k8s_quantity(value),
                "used": k8s_quantity(used),
            }
            facts.append(_made(thing, "quota", name, fields, {"": thing.at(index)}))
    return facts


def _containers(thing: _Object) -> list[tuple[str | int, ...]]:
    """Paths of the containers, wherever the pod template lies."""
    found: dict[tuple[str | int, ...], None] = {}
    for path, _, _ in thing.leaves:
        for place in range(len(path) - 1):
            if path[place] in ("containers", "initContainers") and isinstance(path[place + 1], int):
                found.setdefault(path[: place + 2])
                break
    return list(found)


def _workload(thing: _Object, kind: str) -> list[Fact]:
    name = thing.text("metadata", "name") or thing.text("metadata", "generateName") or ""
    fields: dict[str, Scalar] = {
        "name": name,
        "namespace": thing.text("metadata", "namespace"),
        "object": kind,
        "phase": thing.text("status", "phase"),
        "reason": thing.text("status", "reason"),
        "message": thing.text("status", "message"),
        "node": thing.text("spec", "nodeName"),
        "host_ipc": thing.text("spec", "hostIPC") == "true",
    }
    places: dict[str, Where | None] = {
        "phase": thing.place("status", "phase"),
        "reason": thing.place("status", "reason"),
    }
    containers = [_container(thing, path, name) for path in _containers(thing) if path[0] == "spec"]
    for container in containers:
        for field in ("gpu_request", "gpu_limit", "memory_limit_mib"):
            value = container.fields.get(field)
            if isinstance(value, (int, float)):
                fields[field] = float(fields.get(field) or 0) + value
                places[field] = container.lines.get(field)
    _statuses(thing, fields, places)
    _shm(thing, fields, places)
    telling = places.get("oom_killed") or places.get("reason") or places.get("gpu_limit") or places.get("gpu_request")
    return [_made(thing, "pod", name, fields, {**places, "": telling}), *containers]


def _container(thing: _Object, path: tuple[str | int, ...], pod: str) -> Fact:
    fields: dict[str, Scalar] = {
        "pod": pod,
        "name": thing.text(*path, "name"),
        "image": thing.text(*path, "image"),
        "init": "initContainers" in path,
    }
    places: dict[str, Where | None] = {}
    for which in ("limits", "requests"):
        for leaf_path, value, index in thing.leaves:
            if leaf_path[: len(path) + 2] != (*path, "resources", which) or len(leaf_path) != len(path) + 3:
                continue
            field = which[:-1]
            resource = str(leaf_path[-1])
            if GPU_RESOURCE.match(resource):
                fields[f"gpu_{field}"] = k8s_quantity(value)
                fields[f"gpu_{field}_text"], fields["gpu_resource"] = value, resource
                places[f"gpu_{field}"] = thing.at(index)
            elif resource == "memory":
                fields[f"memory_{field}_mib"] = k8s_mib(value)
                places[f"memory_{field}_mib"] = thing.at(index)
    privileged = thing.text(*path, "securityContext", "privileged")
    fields["privileged"] = privileged == "true"
    places[""] = places.get("gpu_limit") or places.get("gpu_request") or thing.place(*path, "name")
    return _made(thing, "pod_container", f"{pod}/{fields['name']}", fields, places)


def _statuses(thing: _Object, fields: dict[str, Scalar], places: dict[str, Where | None]) -> None:
    restarts = 0
    for path, value, index in thing.leaves:
        if path[:2] != ("status", "containerStatuses") and path[:2] != ("status", "initContainerStatuses"):
            continue
        if path[-1] == "restartCount":
            restarts += whole(value) or 0
        elif path[-1] == "reason" and "lastState" not in path[:4]:
            fields["state_reason"] = value
        elif path[-1] == "exitCode":
            fields["exit_code"] = whole(value)
            places["exit_code"] = thing.at(index)
        if path[-1] == "reason" and value == "OOMKilled":
            fields["oom_killed"] = True
            places["oom_killed"] = thing.at(index)
    fields["restarts"] = restarts
    fields.setdefault("oom_killed", False)


def _shm(thing: _Object, fields: dict[str, Scalar], places: dict[str, Where | None]) -> None:
    """Whether something is mounted at /dev/shm, and how large that is allowed to grow."""
    mounts = [path for path, value, _ in thing.leaves if path[-1] == "mountPath" and value == "/dev/shm"]
    fields["shm_mounted"] = bool(mounts)
    for path in mounts:
        volume = thing.text(*path[:-1], "name")
        for leaf_path, value, index in thing.leaves:
            if leaf_path[-1] == "name" and value == volume and "volumes" in leaf_path:
                size = thing.text(*leaf_path[:-1], "emptyDir", "sizeLimit")
                fields["shm_mib"] = k8s_mib(size) if size else None
                places["shm_mib"] = thing.at(index)
