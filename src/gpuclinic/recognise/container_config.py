"""What container software is set up to do with GPUs: CDI specifications, the toolkit's and runtimes' configuration, Docker's own state. Pure."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpuclinic.model import Scalar

_LIBRARY = re.compile(
    r"lib(?:cuda|nvidia-ml|nvidia-ptxjitcompiler|nvidia-gpucomp|nvidia-cfg|nvcuvid|nvidia-opencl|nvidia-nvvm)\.so\."
    r"(?P<version>[1-9]\d{2}\.\d{1,3}(?:\.\d{1,3})?)(?![\d.])"
)
_NODE = re.compile(r"""["']?\bpath["']?\s*:\s*["']?(?P<path>/dev/[\w./-]{1,100})""")
_KIND = re.compile(r"""^\s*\{?\s*["']?kind["']?\s*:\s*["']?(?P<kind>[\w.-]+/[\w.-]+)""", re.MULTILINE)
_KIND_INLINE = re.compile(r""""kind"\s*:\s*"(?P<kind>[\w.-]+/[\w.-]+)\"""")
_DEVICE = re.compile(
    r"""["']?\bname["']?\s*:\s*["']?(?P<name>GPU-[0-9a-f-]{36}|MIG-[0-9a-f-]{36}|\d{1,3}(?::\d{1,3})?|all)["']?\s*(?:[,}\n]|$)"""
)


class CdiSpec(NamedTuple):
    """One specification of the Container Device Interface. version: of the driver whose libraries it mounts; names: of its devices."""

    kind: str
    version: str | None
    nodes: tuple[str, ...]
    names: tuple[str, ...]

    @property
    def gpu_nodes(self) -> list[str]:
        """The GPUs' own device nodes."""
        return [node for node in self.nodes if re.fullmatch(r"/dev/nvidia\d+", node)]


def parse_cdi(text: str) -> CdiSpec | None:
    """YAML or JSON of /etc/cdi, /var/run/cdi; None where it is no specification of NVIDIA devices."""
    text = text[: 4 << 20]
    found = _KIND.search(text) or _KIND_INLINE.search(text)
    if found is None or "nvidia" not in found["kind"]:
        return None
    versions = [match["version"] for match in _LIBRARY.finditer(text)]
    version = max(set(versions), key=versions.count) if versions else None
    nodes = tuple(dict.fromkeys(match["path"] for match in _NODE.finditer(text)))[:4096]
    names = tuple(dict.fromkeys(match["name"] for match in _DEVICE.finditer(text)))[:4096]
    return CdiSpec(found["kind"], version, nodes, names)


def cdi_fields(
    spec: CdiSpec, path: str, driver: str | None, present: Iterable[str] | None, gpu_count: int | None
) -> dict[str, Scalar]:
    """Fields of `cdi_spec`. driver: the loaded module's version; present: device nodes that exist, None where that is unknown."""
    here = set(present) if present is not None else None
    absent = [node for node in spec.nodes if here is not None and node.startswith("/dev/nvidia") and node not in here]
    gpus = spec.gpu_nodes
    uncovered = sorted(n for n in here or () if re.fullmatch(r"/dev/nvidia\d+", n) and n not in gpus) if gpus else []
    return {
        "path": path,
        "cdi_kind": spec.kind,
        "driver_version": spec.version,
        "loaded_version": driver,
        "stale": spec.version != driver if spec.version and driver else None,
        "gpu_nodes": len(gpus),
        "gpus_here": gpu_count,
        "absent_nodes": ",".join(absent[:8]) or None,
        "absent_gpus": sum(bool(re.fullmatch(r"/dev/nvidia\d+", n)) for n in absent),
        "uncovered_nodes": ",".join(uncovered[:16]) or None,
        "mig": any(":" in name or name.startswith("MIG-") for name in spec.names),
    }


def toml_value(text: str, name: str) -> str | None:
    """The value of a key in a TOML file of settings, outside of comments; the last that is set counts."""
    value: str | None = None
    for line in text.splitlines()[:5000]:
        match = re.match(rf"^\s*{re.escape(name)}\s*=\s*(?P<value>[^#]*)", line[:1000])
        if match:
            value = match["value"].strip().strip("\"'")
    return value


def toolkit_fields(config: str | None, programs: Iterable[str]) -> dict[str, Scalar]:
    """Fields of `container_toolkit`. config: nvidia-container-runtime/config.toml; programs: those that are installed."""
    installed = sorted(programs)
    out: dict[str, Scalar] = {
        "programs": ",".join(installed) or None,
        "present": bool(installed),
        "configured": config is not None,
    }
    if config is not None:
        out |= {
            "mode": toml_value(config, "mode") or "auto",
            "no_cgroups": toml_value(config, "no-cgroups") == "true",
            "load_kmods": toml_value(config, "load-kmods") != "false",
            "swarm_resource": toml_value(config, "swarm-resource"),
        }
    return out


def docker_fields(daemon: str | None) -> tuple[dict[str, Scalar], str | None]:
    """Fields of `container_runtime` from daemon.json, and why it cannot be read as JSON, if so."""
    if daemon is None:
        return {}, None
    try:
        value = json.loads(daemon or "{}")
    except (ValueError, RecursionError) as problem:
        return {"broken": True}, str(problem)[:100]
    if not isinstance(value, dict):
        return {"broken": True}, "no object"
    runtimes = value.get("runtimes")
    options = " ".join(map(str, value["exec-opts"])) if isinstance(value.get("exec-opts"), list) else ""
    driver = re.search(r"native\.cgroupdriver=(\w+)", options)
    features = value.get("features")
    nvidia = runtimes.get("nvidia") if isinstance(runtimes, dict) else None
    return {
        "nvidia_runtime": nvidia is not None,
        "runtime_path": str(nvidia.get("path"))[:200] if isinstance(nvidia, dict) and nvidia.get("path") else None,
        "default_runtime": str(value["default-runtime"])[:60] if value.get("default-runtime") else None,
        "cgroup_driver": driver[1] if driver else None,
        "cdi": bool(features.get("cdi")) if isinstance(features, dict) else None,
    }, None


def containerd_fields(texts: Iterable[str]) -> dict[str, Scalar]:
    """Fields of `container_runtime` from containerd's config.toml and the files it imports."""
    text = "\n".join(texts)[: 2 << 20]
    bare = re.sub(r"(?m)^\s*#.*$", "", text)
    return {
        "nvidia_runtime": bool(
            re.search(r"\[.*\.runtimes\.[\"']?nvidia(?:-\w+)?[\"']?\]", bare) or "nvidia-container-runtime" in bare
        ),
        "runtime_path": toml_value(bare, "BinaryName"),
        "default_runtime": toml_value(bare, "default_runtime_name"),
        "systemd_cgroup": (toml_value(bare, "SystemdCgroup") == "true") if "SystemdCgroup" in bare else None,
        "cdi": (toml_value(bare, "enable_cdi") == "true") if "enable_cdi" in bare else None,
    }


class DockerContainer(NamedTuple):
    """A container as Docker keeps it on disk. gpus: ids asked for ("all", "2", "GPU-..."), empty: none."""

    id: str
    name: str
    running: bool
    pid: int | None
    gpus: tuple[str, ...]
    runtime: str | None
    privileged: bool
    cdi: bool
    devices: tuple[str, ...]


def docker_container(config: Mapping[str, Any], host_config: Mapping[str, Any]) -> DockerContainer | None:
    """From config.v2.json and hostconfig.json of /var/lib/docker/containers/ID. Of the environment only NVIDIA_VISIBLE_DEVICES is looked at."""
    identity = config.get("ID")
    if not isinstance(identity, str) or not re.fullmatch(r"[0-9a-f]{12,64}", identity):
        return None
    state, inner = _object(config.get("State")), _object(config.get("Config"))
    gpus: list[str] = []
    cdi = False
    requests = host_config.get("DeviceRequests")
    for request in requests if isinstance(requests, list) else []:
        wanted = _object(request)
        flat = json.dumps(wanted.get("Capabilities") or [])
        ids = [str(i)[:120] for i in wanted["DeviceIDs"]][:64] if isinstance(wanted.get("DeviceIDs"), list) else []
        if wanted.get("Driver") == "cdi":
            nvidia = [i.partition("=")[2] for i in ids if i.startswith("nvidia.com/")]
            gpus, cdi = gpus + nvidia, cdi or bool(nvidia)
        elif "gpu" in flat or wanted.get("Driver") == "nvidia":
            count = wanted.get("Count")
            gpus += ids or (["all"] if count == -1 else [f"count={count}"])
    runtime = host_config.get("Runtime") if isinstance(host_config.get("Runtime"), str) else None
    variables = inner.get("Env")
    asked = (
        [str(v).partition("=")[2] for v in variables if str(v).startswith("NVIDIA_VISIBLE_DEVICES=")]
        if isinstance(variables, list)
        else []
    )
    if not gpus and asked and runtime == "nvidia" and asked[-1] not in ("", "void", "none"):
        gpus = [entry.strip()[:120] for entry in asked[-1].split(",")][:64]
    devices = host_config.get("Devices")
    paths = [str(_object(d).get("PathOnHost"))[:100] for d in devices] if isinstance(devices, list) else []
    pid = state.get("Pid")
    return DockerContainer(
        identity,
        str(config.get("Name") or identity[:12]).lstrip("/")[:100],
        state.get("Running") is True,
        pid if isinstance(pid, int) and pid > 0 else None,
        tuple(gpus),
        runtime,
        host_config.get("Privileged") is True,
        cdi,
        tuple(p for p in paths if "nvidia" in p),
    )


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def gone_gpus(asked: Iterable[str], count: int | None, uuids: Iterable[str]) -> list[str]:
    """Of the GPUs that a container was given by number or UUID those that are not here."""
    known = [u for u in uuids if u.startswith("GPU-")]
    out = []
    for name in asked:
        number = name.isdecimal() and count is not None and (len(name) > 9 or int(name) >= count)
        identity = name.startswith("GPU-") and bool(known) and not any(u.startswith(name) for u in known)
        if number or identity:
            out.append(name)
    return out


def devices_allowed(devices_list: str) -> bool | None:
    """Whether cgroup v1's devices.list of a container lets it open NVIDIA's devices (major 195); None where it says nothing."""
    rows = [line.split() for line in devices_list.splitlines()[:500]]
    rows = [row for row in rows if len(row) == 3]
    if not rows:
        return None
    return any(
        row[0] == "a" or (row[0] == "c" and row[1].split(":")[0] in ("195", "*") and "r" in row[2] and row[1] != "*:*")
        for row in rows
    )
