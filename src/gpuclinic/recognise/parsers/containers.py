"""Containers: docker inspect, ps, info, run lines, compose files, daemon.json, containerd's config, crictl."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpuclinic.model import Document, Fact, Where
from gpuclinic.recognise.parsers._host_util import MAX_FACTS, MIB, clipped_lines, fact, size_mib, whole
from gpuclinic.recognise.parsers._tree import leaves_of

if TYPE_CHECKING:
    from gpuclinic.model._types import Scalar

_PAIR = re.compile(
    r'"(?P<name>Id|Name|Status|OOMKilled|ExitCode|Error|ShmSize|Memory|MemorySwap|IpcMode|Runtime|NetworkMode|'
    r"Privileged|PidsLimit|"
    r'Driver|Count|FinishedAt|StartedAt|RestartCount|Dead|PidMode|Image|CgroupnsMode|reason|exitCode)"\s*:\s*'
    r'(?P<value>"(?:[^"\\]|\\.){0,2000}"|-?\d+(?:\.\d+)?|true|false|null)'
)
_LIST = re.compile(
    r'"(?P<name>DeviceRequests|Devices|DeviceCgroupRules|Ulimits|SecurityOpt|CapAdd)"\s*:\s*(?P<value>null|\[\s*\]?)'
)
_BOOL = {"true": True, "false": False}
_RUN = re.compile(r"\b(?:docker|podman|nerdctl|nvidia-docker)\s+(?:container\s+)?(?:run|create)\s+(?P<rest>\S.*)$")


def _value(text: str) -> Scalar:
    if text in _BOOL:
        return _BOOL[text]
    if text == "null":
        return None
    if text.startswith('"'):
        return text[1:-1]
    return whole(text)


class _Inspect:
    """One inspected container while its pairs come in."""

    def __init__(self) -> None:
        self.fields: dict[str, Scalar] = {}
        self.places: dict[str, Where] = {}

    def put(self, name: str, value: Scalar, where: Where) -> None:
        known = {
            "Id": "id",
            "Name": "name",
            "Status": "state",
            "OOMKilled": "oom_killed",
            "ExitCode": "exit_code",
            "Error": "error",
            "IpcMode": "ipc",
            "Runtime": "runtime",
            "NetworkMode": "network",
            "Privileged": "privileged",
            "RestartCount": "restarts",
            "FinishedAt": "finished",
            "StartedAt": "started",
            "PidMode": "pid_mode",
            "exitCode": "exit_code",
            "reason": "reason",
        }
        if name in ("ShmSize", "Memory"):
            amount = value / MIB / 1048576 if isinstance(value, int) else None
            field = "shm_mib" if name == "ShmSize" else "memory_limit_mib"
            if field in self.fields or amount is None:
                return
            self.fields[field], self.places[field] = (-1.0 if name == "Memory" and value == 0 else amount), where
        elif name in known and value not in (None, "") and known[name] not in self.fields:
            self.fields[known[name]], self.places[known[name]] = value, where
        self.places.setdefault("", where)
        if name == "OOMKilled" and value is True:
            self.places[""] = where


def parse_inspect(document: Document) -> list[Fact]:
    """docker/podman inspect, whole or in pieces, also cut or broken JSON: "container"."""
    facts: list[Fact] = []
    current = _Inspect()

    def close() -> None:
        nonlocal current
        told = {"oom_killed", "exit_code", "shm_mib", "memory_limit_mib", "runtime"} & set(current.fields)
        if told:
            name = str(current.fields.get("name") or current.fields.get("id") or "container").lstrip("/")
            facts.append(Fact("container", name, current.fields, current.places, document.source, document.host))
        current = _Inspect()

    for index, line in enumerate(document.lines()):
        for match in _PAIR.finditer(line[:500_000]):
            where = document.at(index, line[max(0, match.start() - 100) : match.end() + 100])
            if (
                match["name"] == "Id"
                and re.fullmatch(r'"[0-9a-f]{12,64}"', match["value"])
                and "oom_killed" in current.fields
            ):
                close()
            if match["name"] == "OOMKilled" and "oom_killed" in current.fields:
                close()
            current.put(match["name"], _value(match["value"]), where)
        for match in _LIST.finditer(line[:500_000]):
            field = {"DeviceRequests": "device_requests", "Devices": "devices"}.get(match["name"])
            if field:
                empty = match["value"] == "null" or match["value"].replace(" ", "") == "[]"
                current.fields.setdefault(field, not empty)
                current.places.setdefault(field, document.at(index, line[:300]))
        if len(facts) >= MAX_FACTS:
            break
    close()
    return facts


def _options(text: str) -> dict[str, list[str]]:
    """Options of a docker run line, up to the image: name to values."""
    words = re.findall(r"(?:[^\s\"']|\"[^\"]*\"|'[^']*')+", text[:4000])
    switches = {
        "-it",
        "-i",
        "-t",
        "-d",
        "-dit",
        "-itd",
        "--rm",
        "--privileged",
        "--init",
        "--detach",
        "--interactive",
        "--tty",
        "-id",
        "-ti",
        "-P",
    }
    found: dict[str, list[str]] = {}
    place = 0
    while place < len(words):
        word = words[place]
        place += 1
        if not word.startswith("-"):
            found.setdefault("image", [word])
            break
        name, equals, value = word.partition("=")
        if equals or word in switches:
            found.setdefault(name, []).append(value.strip("\"'"))
        elif place < len(words):
            found.setdefault(name, []).append(words[place].strip("\"'"))
            place += 1
    return found


def parse_run_lines(document: Document) -> list[Fact]:
    """docker run/create command lines: "container_request"."""
    facts: list[Fact] = []
    lines = clipped_lines(document)
    for index, line in enumerate(lines):
        text, last = line, index
        while text.rstrip().endswith("\\") and last + 1 < len(lines) and last - index < 60:
            last += 1
            text = text.rstrip()[:-1] + " " + lines[last].strip()
        match = _RUN.search(text)
        if not match:
            continue
        options = _options(match["rest"])

        def one(*names: str, options: dict[str, list[str]] = options) -> str | None:
            return next((options[name][-1] for name in names if name in options), None)

        shm = one("--shm-size")
        memory = one("-m", "--memory")
        devices = " ".join(options.get("--device", []))
        image = one("image")
        fields: dict[str, Scalar] = {
            "image": image,
            "gpus": one("--gpus"),
            "runtime": one("--runtime"),
            "ipc": one("--ipc"),
            "network": one("--network", "--net"),
            "shm_mib": size_mib(shm.upper().rstrip("B") if shm else None, 1 / 1048576),
            "memory_limit_mib": size_mib(memory.upper().rstrip("B") if memory else None, 1 / 1048576),
            "privileged": "--privileged" in options,
            "devices": devices or None,
            "ulimits": " ".join(options.get("--ulimit", [])) or None,
            "memlock": any("memlock" in value for value in options.get("--ulimit", [])),
            "infiniband": "infiniband" in devices or "--privileged" in options,
            "cap_ipc_lock": any("IPC_LOCK" in value for value in options.get("--cap-add", [])),
            "name": one("--name"),
            "user": one("-u", "--user"),
            "pid": one("--pid"),
        }
        ipc = one("--ipc") or ""
        fields["shm_default"] = shm is None and ipc != "host" and not ipc.startswith("container:")
        fields["wants_gpu"] = fields["gpus"] is not None or fields["runtime"] == "nvidia" or "nvidia" in devices
        facts.append(fact(document, "container_request", image or "container", fields, index, line))
    return facts[:500]


_PS_STATUS = re.compile(
    r"\b(?:(?P<up>Up) [^\s].*?|Exited \((?P<code>\d+)\)|Restarting \((?P<code2>\d+)\)|Created|Dead|Paused)(?:\s{2,}|"
    r"\s*$| (?:About|\d|Less).*?ago)"
)
_CRICTL = re.compile(
    r"^(?P<id>[0-9a-f]{13})\s+(?P<image>\S+)\s+.*?ago\s+(?P<state>Running|Exited|Created|Unknown)\s+(?P<name>\S+)\s+"
    r"(?P<attempt>\d+)"
)


def parse_container_list(document: Document) -> list[Fact]:
    """docker ps -a, podman ps -a, crictl ps -a: "container" with name, state, exit_code."""
    facts: list[Fact] = []
    for index, line in enumerate(clipped_lines(document)):
        if len(line) > 1000:
            continue
        match = _CRICTL.match(line)
        if match:
            fields: dict[str, Scalar] = {
                "id": match["id"],
                "name": match["name"],
                "state": match["state"].lower(),
                "restarts": whole(match["attempt"]),
            }
            facts.append(fact(document, "container", match["name"], fields, index, line))
            continue
        if not re.match(r"^[0-9a-f]{12}\s", line):
            continue
        match = _PS_STATUS.search(line)
        if not match:
            continue
        code = match["code"] or match["code2"]
        words = line.split()
        state = "running" if match["up"] else match.group().split()[0].lower()
        fields = {
            "id": words[0],
            "image": words[1],
            "name": words[-1],
            "state": state,
            "exit_code": whole(code),
            "healthy": None if "health" not in line else "(healthy)" in line,
        }
        facts.append(fact(document, "container", words[-1], fields, index, line))
    return facts[:MAX_FACTS]


_INFO = re.compile(
    r"^\s*(?P<name>Runtimes|Default Runtime|Cgroup Driver|Cgroup Version|Docker Root Dir|Server Version|Storage "
    r"Driver|CDI spec directories|Security Options)\s*:\s*(?P<value>.*)$"
)


def parse_docker_info(document: Document) -> list[Fact]:
    """docker info: "runtime_setting"."""
    facts: list[Fact] = []
    for index, line in enumerate(clipped_lines(document)):
        match = _INFO.match(line[:500])
        if match:
            name = match["name"].lower().replace(" ", "_")
            value = match["value"].strip()
            fields: dict[str, Scalar] = {
                "name": name,
                "value": value,
                "nvidia": "nvidia" in value,
                "where": "docker info",
            }
            facts.append(fact(document, "runtime_setting", name, fields, index, line))
    return facts[:200]


def parse_runtime_config(document: Document) -> list[Fact]:
    """daemon.json and containerd's config.toml: "runtime_setting" for default runtime, runtimes, cgroup driver."""
    facts: list[Fact] = []

    def add(name: str, value: str, index: int, line: str, where: str) -> None:
        fields: dict[str, Scalar] = {"name": name, "value": value, "nvidia": "nvidia" in value, "where": where}
        facts.append(fact(document, "runtime_setting", name, fields, index, line))

    for index, line in enumerate(clipped_lines(document)):
        text = line[:1000]
        match = re.match(r'^\s*default_runtime_name\s*=\s*"(?P<value>[^"]*)"', text)
        if match:
            (index, match["value"])
            add("default_runtime", match["value"], index, line, "containerd")
        match = re.match(r"^\s*\[.*\.runtimes\.(?P<value>[\w-]+)\]\s*$", text)
        if match:
            add("runtime", match["value"], index, line, "containerd")
        match = re.match(r"^\s*SystemdCgroup\s*=\s*(?P<value>true|false)", text)
        if match:
            add("systemd_cgroup", match["value"], index, line, "containerd")
        match = re.search(r'"default-runtime"\s*:\s*"(?P<value>[^"]*)"', text)
        if match:
            add("default_runtime", match["value"], index, line, "daemon.json")
        if re.search(r'"nvidia"\s*:\s*\{', text):
            add("runtime", "nvidia", index, line, "daemon.json")
        match = re.search(r"native\.cgroupdriver=(?P<value>\w+)", text)
        if match:
            add("cgroup_driver", match["value"], index, line, "daemon.json")
        match = re.search(r'"default-shm-size"\s*:\s*"(?P<value>[^"]*)"', text)
        if match:
            add("default_shm_size", match["value"], index, line, "daemon.json")
        match = re.search(r'"hosts"\s*:\s*\[(?P<value>[^\]]*tcp://[^\]]*)', text)
        if match:
            add("hosts", match["value"], index, line, "daemon.json")
        match = re.match(r"^\s*(?P<name>no-cgroups|mode|debug)\s*=\s*(?P<value>\S+)", text)
        if match:
            add(match["name"].replace("-", "_"), match["value"].strip('"'), index, line, "nvidia-container-runtime")
    return facts[:300]


def parse_compose(document: Document) -> list[Fact]:
    """docker-compose files: "container_request" for each service."""
    lines = clipped_lines(document)
    services: dict[str, tuple[dict[str, Scalar], dict[str, Where]]] = {}
    for leaf in leaves_of(document.text):
        if len(leaf.path) < 4 or leaf.path[1] != "services":
            continue
        name, rest = str(leaf.path[2]), leaf.path[3:]
        fields, places = services.setdefault(name, ({"name": name, "shm_default": True, "wants_gpu": False}, {}))
        line = lines[leaf.line] if leaf.line < len(lines) else ""
        where = document.at(leaf.line, line)
        field = _compose_field(rest, leaf.value, fields)
        if field:
            places[field] = where
        places.setdefault("", where)
    return [
        Fact(
            "container_request",
            name,
            {k: v for k, v in fields.items() if v is not None},
            places,
            document.source,
            document.host,
        )
        for name, (fields, places) in list(services.items())[:500]
    ]


def _compose_field(rest: tuple[str | int, ...], value: str, fields: dict[str, Scalar]) -> str | None:
    first = rest[0]
    if first in ("image", "runtime", "ipc", "network_mode", "pid"):
        name = {"network_mode": "network"}.get(str(first), str(first))
        fields[name] = value
        fields["wants_gpu"] = bool(fields["wants_gpu"]) or (first == "runtime" and value == "nvidia")
        if first == "ipc" and value == "host":
            fields["shm_default"] = False
        return name
    if first == "shm_size":
        fields["shm_mib"], fields["shm_default"] = size_mib(value.upper().rstrip("B"), 1 / 1048576), False
        return "shm_mib"
    if first == "mem_limit" or rest[:4] == ("deploy", "resources", "limits", "memory"):
        fields["memory_limit_mib"] = size_mib(value.upper().rstrip("B"), 1 / 1048576)
        return "memory_limit_mib"
    if first == "privileged":
        fields["privileged"] = value == "true"
        return "privileged"
    if "devices" in rest and (value in ("nvidia", "gpu") or "nvidia.com/gpu" in value):
        fields["wants_gpu"] = True
        return "wants_gpu"
    if "devices" in rest and rest[-1] == "count":
        fields["gpus"] = value
        return "gpus"
    return None
