"""Services that whoever reaches them can use: Ray, Docker, the kubelet, NFS, dashboards."""

from __future__ import annotations

import ipaddress
import json
import re
from typing import TYPE_CHECKING

from gpuclinic.audit.hits import Hit
from gpuclinic.audit.sockets import LISTEN, is_own
from gpuclinic.audit.units import exec_lines

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuclinic.audit.scene import Scene
    from gpuclinic.audit.sockets import Socket
    from gpuclinic.model import Where

_UNITS = (
    "/etc/systemd/system/*.service",
    "/etc/systemd/system/*.service.d/*.conf",
    "/usr/lib/systemd/system/*.service",
    "/lib/systemd/system/*.service",
)
_KUBELET = (
    "/var/lib/kubelet/config.yaml",
    "/etc/kubernetes/kubelet/config.yaml",
    "/etc/kubernetes/kubelet-config.yaml",
    "/etc/kubernetes/kubelet/kubelet-config.json",
    "/etc/kubernetes/kubelet.yaml",
    "/var/lib/kubelet/kubeconfig.yaml",
    "/var/lib/kubelet/config.json",
)
_MENTIONS = re.compile(r"^(?:\S*/)?(?:grep|rg|vim?|nano|less|cat|tail|journalctl|kubectl|curl|watch|tmux|screen)\b")
"""Programs that name a service and are none."""


def _listens(scene: Scene, port: int) -> Socket | None:
    return next((s for s in scene.sockets if s.state == LISTEN and s.local[1] == port and not is_own(s.local[0])), None)


def _only_own(scene: Scene, port: int) -> bool:
    """The sockets are told, and this port is bound to the machine itself alone, or to nothing."""
    listening = [s for s in scene.sockets if s.state == LISTEN]
    return bool(listening) and not any(s.local[1] == port and not is_own(s.local[0]) for s in listening)


def _lines(scene: Scene, word: str) -> list[tuple[str, str, Where]]:
    """(name, command line, place) of processes, else of units, that have the word in them."""
    out = [
        (f"pid {p.pid}", " ".join(p.argv), p.at("cmdline", p.shown()))
        for p in scene.processes.values()
        if p.argv and word in " ".join(p.argv)
    ]
    if out:
        return out
    for pattern in _UNITS:
        for text in scene.texts(pattern, "audit.units"):
            out += [
                (text.path.rpartition("/")[2], value, text.at(i))
                for i, key, value in exec_lines(text)
                if key == "ExecStart" and word in value
            ]
    return out


def ray(scene: Scene) -> list[Hit]:
    """ray_dashboard_open: whoever reaches the dashboard runs code (CVE-2023-48022); a token since 2.52 is off by default."""
    for name, line, where in _lines(scene, "dashboard"):
        if not re.search(r"(?:^|[\s/._-])ray(?:[\s/._:-]|$)", line.lower()) or _MENTIONS.match(line):
            continue
        pid = int(name[4:]) if name.startswith("pid ") else None
        process = scene.processes.get(pid or -1)
        if process is not None and (process.variables or {}).get("RAY_AUTH_MODE", "").lower() == "token":
            continue
        host = re.search(r"(?:--dashboard-host|--host)[= ]+([\w.:\[\]*]+)", line)
        if host is None or is_own(host[1]):
            continue
        port = re.search(r"(?:--dashboard-port|--port)[= ]+(\d+)", line)
        number = int(port[1]) if port else 8265
        socket = _listens(scene, number)
        if socket is None and _only_own(scene, number) and process is not None:
            continue
        return [
            Hit(
                id="ray_dashboard_open",
                subject=f"Ray ({name})",
                pid=pid,
                evidence=[where, *([socket.where] if socket else [])],
                values={"port": number},
            )
        ]
    socket = None if _asks_for_token(scene) else _listens(scene, 8265)
    if socket is not None and (
        socket.pid is None or re.search(r"ray|dashboard", f"{socket.name} {_comm(scene, socket.pid)}", re.IGNORECASE)
    ):
        known = socket.pid is not None or any("ray" in " ".join(p.argv[:3]) for p in scene.processes.values())
        if known:
            return [
                Hit(
                    id="ray_dashboard_open",
                    subject="Ray",
                    pid=socket.pid,
                    evidence=[socket.where],
                    values={"port": 8265},
                )
            ]
    return []


def _asks_for_token(scene: Scene) -> bool:
    """A process of Ray runs in the token mode; all of a cluster's have to agree."""
    return any((p.variables or {}).get("RAY_AUTH_MODE", "").lower() == "token" for p in scene.processes.values())


def _comm(scene: Scene, pid: int | None) -> str:
    process = scene.processes.get(pid or -1)
    return f"{process.comm} {' '.join(process.argv[:3])}" if process else ""


def docker(scene: Scene) -> list[Hit]:
    """docker_api_open, docker_socket_world_writable."""
    out = []
    for name, line, where in _lines(scene, "dockerd"):
        address = next(
            (a for a in re.findall(r"(?:-H|--host)[= ]*(tcp://[^\s\"']+)", line) if not _own_address(a)), None
        )
        if address and not _MENTIONS.match(line) and "--tlsverify" not in line.replace("--tlsverify=false", ""):
            out.append(
                Hit(id="docker_api_open", subject=f"Docker ({name})", evidence=[where], values={"address": address})
            )
    text = scene.text("/etc/docker/daemon.json", "audit.docker")
    if text is not None:
        try:
            told = json.loads(text.text)
        except (ValueError, RecursionError):
            told = {}
        hosts = told.get("hosts", []) if isinstance(told, dict) else []
        address = (
            next((str(h) for h in hosts if isinstance(h, str) and h.startswith("tcp://") and not _own_address(h)), None)
            if isinstance(hosts, list)
            else None
        )
        if address and not told.get("tlsverify"):
            index = next((n for n, line in enumerate(text.lines()) if "tcp://" in line), 0)
            out.append(
                Hit(
                    id="docker_api_open",
                    subject="Docker (daemon.json)",
                    evidence=[text.at(index)],
                    values={"address": address},
                )
            )
    socket = _listens(scene, 2375)
    if (
        socket is not None
        and not out
        and re.search(r"docker", f"{socket.name} {_comm(scene, socket.pid)}" if socket.pid else "docker")
    ):
        out.append(
            Hit(
                id="docker_api_open",
                subject="Docker",
                pid=socket.pid,
                evidence=[socket.where],
                values={"address": f"{socket.local[0]}:2375"},
            )
        )
    if out:
        out = [out[0]]
        if socket is not None and socket.where not in out[0].evidence:
            out[0].evidence.append(socket.where)
    for path in ("/var/run/docker.sock", "/run/docker.sock"):
        state = scene.state(path)
        if state is not None and state.mode is not None and state.mode & 0o002:
            out.append(
                Hit(
                    id="docker_socket_world_writable",
                    subject=path,
                    evidence=[scene.where(path, f"mode {state.mode:04o}")],
                    values={"path": path},
                )
            )
            break
    return out


def _own_address(text: str) -> bool:
    host = re.match(r"tcp://(\[[^\]]*\]|[^:/\s]*)", text)
    return bool(host and host[1] and is_own(host[1].strip("[]")))


def kubelet(scene: Scene) -> list[Hit]:
    """kubelet_anonymous, kubelet_readonly_port."""
    told: dict[str, tuple[str, Where]] = {}
    for path in _KUBELET:
        text = scene.text(path, "audit.kubelet")
        if text is not None:
            told |= {key: (value, text.at(index)) for key, (value, index) in flat_yaml(text.text).items()}
    for _, line, where in _lines(scene, "kubelet"):
        for option, key in (
            ("--anonymous-auth", "authentication.anonymous.enabled"),
            ("--authorization-mode", "authorization.mode"),
            ("--read-only-port", "readOnlyPort"),
        ):
            found = re.search(rf"(?:^|\s|kubelet-arg=){option}(?:[= ]+(\S+))?", line)
            if found:
                told[key] = (found[1] or "true", where)
    out = []
    anonymous = told.get("authentication.anonymous.enabled")
    mode = told.get("authorization.mode")
    if anonymous and anonymous[0].lower() == "true":
        free = mode is not None and mode[0] == "AlwaysAllow"
        out.append(
            Hit(id="kubelet_anonymous", subject="kubelet", evidence=[anonymous[1], *([mode[1]] if mode else [])], values={"mode": mode[0] if mode else "not told"},
                severity="critical" if free else None)
        )  # fmt: skip
    elif mode and mode[0] == "AlwaysAllow":
        out.append(Hit(id="kubelet_always_allow", subject="kubelet", evidence=[mode[1]], values={"mode": mode[0]}))
    port = told.get("readOnlyPort")
    if port and port[0].strip("\"'") not in ("0", ""):
        out.append(Hit(id="kubelet_readonly_port", subject="kubelet", evidence=[port[1]], values={"port": port[0]}))
    elif (socket := _listens(scene, 10255)) is not None and (
        socket.pid is None or "kubelet" in f"{socket.name} {_comm(scene, socket.pid)}"
    ):
        out.append(
            Hit(id="kubelet_readonly_port", subject="kubelet", evidence=[socket.where], values={"port": "10255"})
        )
    return out


def flat_yaml(text: str) -> dict[str, tuple[str, int]]:
    """Scalars of mappings as "a.b.c": (value, index of the line). JSON is read the same way. Lists are left out.

    >>> flat_yaml("a:\\n  b:\\n    c: true # x\\nd: 0")
    {'a.b.c': ('true', 2), 'd': ('0', 3)}
    """
    out: dict[str, tuple[str, int]] = {}
    if text.lstrip().startswith("{"):
        try:
            _flat_json(json.loads(text), "", out, text.split("\n"))
        except (ValueError, RecursionError):
            return out
        return out
    stack: list[tuple[int, str]] = []
    for index, line in enumerate(text.split("\n")[:5000]):
        found = re.match(r"^( *)([\w./-]{1,100}):(?:\s+(.*))?$", line)
        if not found:
            continue
        depth = len(found[1])
        while stack and stack[-1][0] >= depth:
            stack.pop()
        value = re.sub(r"\s+#.*$", "", found[3] or "").strip().strip("\"'")
        key = ".".join([*(name for _, name in stack), found[2]])
        inline = re.match(r"^\{(.*)\}$", value)
        for pair in inline[1].split(",") if inline else ():
            name, _, told = pair.partition(":")
            out[f"{key}.{name.strip()}"] = (told.strip().strip("\"'"), index)
        if value and not value.startswith("#") and not inline:
            out[key] = (value, index)
        else:
            stack.append((depth, found[2]))
    return out


def _flat_json(told: object, key: str, out: dict[str, tuple[str, int]], lines: list[str]) -> None:
    if isinstance(told, dict):
        for name, value in told.items():
            _flat_json(value, f"{key}.{name}".lstrip("."), out, lines)
    elif isinstance(told, str | int | float | bool):
        name = key.rpartition(".")[2]
        out[key] = (
            str(told).lower() if isinstance(told, bool) else str(told),
            next((n for n, line in enumerate(lines) if f'"{name}"' in line), 0),
        )


def nfs(scene: Scene) -> list[Hit]:
    """nfs_no_root_squash, nfs_world_export."""
    out = []
    texts = [t for t in [scene.text("/etc/exports", "audit.nfs")] if t is not None] + scene.texts(
        "/etc/exports.d/*.exports", "audit.nfs"
    )
    for text in texts:
        held, start = "", 0
        for index, raw in enumerate(text.lines()[:5000]):
            start = index if not held else start
            line = held + raw.split("#")[0].rstrip()
            held = f"{line[:-1]} " if line.endswith("\\") else ""
            if held or not line.strip():
                continue
            found = re.match(r'^\s*(?:"([^"]+)"|(\S+))\s*(.*)$', line)
            for who, options in re.findall(r"([^\s()]*)(?:\(([^)]*)\))?(?:\s|$)", found[3] if found else ""):
                if not who and not options:
                    continue
                names = {o.strip() for o in options.split(",")}
                world, broad = _world(who), _broad(who)
                path = (found[1] or found[2]) if found else "?"
                values = {"path": path, "who": who or "*"}
                if "no_root_squash" in names and "all_squash" not in names:
                    out.append(
                        Hit(
                            id="nfs_no_root_squash",
                            subject=f"{path} ({who or '*'})",
                            evidence=[text.at(start)],
                            values=values,
                            severity=None if world or broad else "info",
                        )
                    )
                if world and not who.startswith(("sec=", "-")):
                    out.append(
                        Hit(
                            id="nfs_world_export",
                            subject=f"{path} ({who or '*'})",
                            evidence=[text.at(start)],
                            values=values,
                            severity=None if "rw" in names else "info",
                        )
                    )
    return out


def _world(who: str) -> bool:
    return who in ("", "*", "0.0.0.0/0", "::/0", "0.0.0.0/0.0.0.0", "*.*")


def _broad(who: str) -> bool:
    """A whole network or all names of a domain, not one machine."""
    if who.startswith("@") or "*" in who or "?" in who:
        return True
    try:
        network = ipaddress.ip_network(who, strict=False)
    except ValueError:
        return False
    return network.prefixlen < network.max_prefixlen


_DASHBOARDS = (
    ("TensorBoard", re.compile(r"(?:^|[\s/])tensorboard\b(?!_)")),
    ("MLflow", re.compile(r"(?:^|[\s/])mlflow\s[^|]*\b(?:server|ui)\b")),
    ("code-server", re.compile(r"(?:^|[\s/])code-server\b[^|]*--auth[= ]none\b")),
    ("Dask", re.compile(r"(?:^|[\s/])dask[- ]scheduler\b|distributed\.cli\.dask_scheduler")),
    ("vLLM", re.compile(r"(?:^|[\s/])vllm\s+serve\b|\bvllm\.entrypoints\b")),
    ("Triton", re.compile(r"(?:^|/)tritonserver\b")),
    ("Gradio", re.compile(r"(?:^|[\s/])gradio\s")),
    ("Ollama", re.compile(r"(?:^|/)ollama\s+serve\b")),
    ("Redis", re.compile(r"(?:^|/)redis-server\b")),
    ("Spark", re.compile(r"org\.apache\.spark\.deploy\.master\.Master\b")),
    ("node_exporter", re.compile(r"(?:^|/)(?:prometheus-)?node[_-]exporter\b")),
    ("DCGM exporter", re.compile(r"(?:^|/)dcgm-exporter\b")),
)
"""Services that ask nobody who they are unless told to, by their own documentation."""
_ASKS = {
    "vLLM": ("--api-key", "VLLM_API_KEY"),
    "MLflow": ("--app-name=basic-auth", "basic-auth"),
    "Gradio": ("--auth", ""),
}
_REDIS = ("/etc/redis/redis.conf", "/etc/redis.conf", "/etc/redis/default.conf.d/*.conf")


def dashboards(scene: Scene) -> list[Hit]:
    """service_open: services that ask nobody who they are, bound to more than the machine; an information."""
    out = []
    away: dict[int, Socket] = {}
    for one in scene.sockets:
        if one.state == LISTEN and one.pid is not None and not is_own(one.local[0]):
            away.setdefault(one.pid, one)
    for pid, socket in away.items():
        process = scene.processes.get(pid)
        line = " ".join(process.argv)[:2000] if process else ""
        if process is None or not line or _MENTIONS.match(line):
            continue
        name = next((name for name, pattern in _DASHBOARDS if pattern.search(line)), None)
        if name is None or any(
            word and (word in line or word in (process.variables or {})) for word in _ASKS.get(name, ())
        ):
            continue
        if name == "Redis" and _redis_asks(scene, line):
            continue
        out.append(
            Hit(id="service_open", subject=f"{name} (pid {pid})", pid=pid, evidence=[process.at("cmdline", process.shown()), socket.where], values={"name": name})
        )  # fmt: skip
    for path in ("/var/run/reboot-required", "/run/reboot-required"):
        text = scene.text(path, "audit.updates", 4096)
        if text is not None:
            out.append(Hit(id="reboot_required", subject="updates", evidence=[text.at(0)], values={}))
            break
    return out


def _redis_asks(scene: Scene, line: str) -> bool:
    """A password is set, or a configuration that could not be read may set one."""
    texts = [text for path in _REDIS for text in scene.texts(path, "audit.services")]
    lines = [words for text in texts for row in text.lines() if (words := row.split()) and len(words) > 1]
    return "--requirepass" in line or any(
        words[0].lower() in ("requirepass", "aclfile") or words[:2] == ["user", "default"] for words in lines
    )


CHECKS: tuple[tuple[str, Callable[[Scene], list[Hit]]], ...] = (
    ("audit.ray", ray),
    ("audit.docker", docker),
    ("audit.kubelet", kubelet),
    ("audit.nfs", nfs),
    ("audit.services", dashboards),
)
