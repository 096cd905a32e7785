"""Containers: is the software that hands GPUs to them set up, does it fit the driver, do running ones still have theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuclinic.clinic.looks._look import Seen, Wanted, first_line, in_sight, is_absent
from gpuclinic.model import Gap
from gpuclinic.recognise.container_config import (
    cdi_fields,
    containerd_fields,
    devices_allowed,
    docker_container,
    docker_fields,
    gone_gpus,
    parse_cdi,
    toolkit_fields,
)

if TYPE_CHECKING:
    from gpuclinic.model import Scalar
    from gpuclinic.observe.asking import Asked
    from gpuclinic.recognise.container_config import DockerContainer

LOOK = "container.runtime"
_PROGRAMS = (
    "nvidia-container-runtime",
    "nvidia-container-runtime-hook",
    "nvidia-container-cli",
    "nvidia-ctk",
    "nvidia-cdi-hook",
)
_UDEV = ("/lib", "/usr/lib", "/etc")
_BINS = (
    "/usr/bin",
    "/usr/local/bin",
    "/usr/local/nvidia/toolkit",
    "/usr/sbin",
    "/opt/bin",
    "/run/current-system/sw/bin",
)
_FEWEST_PROGRAMS = 100
"""With fewer names than this in /usr/bin it is not a whole system that is looked at, and nothing is called absent."""
_CONFIGS = (
    "/etc/nvidia-container-runtime/config.toml",
    "/usr/local/nvidia/toolkit/.config/nvidia-container-runtime/config.toml",
)
_CONTAINERD = (
    "/etc/containerd/config.toml", "/etc/containerd/conf.d/*.toml", "/var/lib/rancher/k3s/agent/etc/containerd/config.toml",
    "/var/lib/rancher/rke2/agent/etc/containerd/config.toml",
)  # fmt: skip
_CRIO = ("/etc/crio/crio.conf", "/etc/crio/crio.conf.d/*")
_DOCKER = ("/usr/bin/dockerd", "/usr/local/bin/dockerd", "/snap/bin/docker", "/usr/sbin/dockerd")
_MOST_CONTAINERS = 500


def look_at_containers(host: Asked, wanted: Wanted) -> Seen:
    """Facts `container_toolkit`, `container_runtime`, `cdi_spec`, `container`; none where there are no GPUs or no such software."""
    seen = Seen()
    gpus = _gpus_here(wanted)
    if not gpus:
        return seen
    driver = first_line(host, "/sys/module/nvidia/version")
    nodes = _nodes(host)
    _cdi(host, seen, driver, nodes, gpus)
    runtimes = _runtimes(host, seen)
    _toolkit(host, seen, gpus, runtimes)
    if "docker" in runtimes:
        _docker_containers(host, wanted, seen)
    return seen


def _gpus_here(wanted: Wanted) -> int:
    """How many NVIDIA GPUs this machine has, by NVML and the bus: whichever tells more."""
    on_bus = sum(f.fields.get("is_gpu") is True for f in wanted.of("pci_device"))
    return max(on_bus, len(wanted.of("gpu")))


def _nodes(host: Asked) -> list[str] | None:
    """The NVIDIA device nodes under /dev; None where there are none at all (a snapshot has no device nodes)."""
    names = host.listing("/dev")
    found = [f"/dev/{name}" for name in names.lines() if name.startswith("nvidia")]
    caps = [f"/dev/nvidia-caps/{name}" for name in host.listing("/dev/nvidia-caps").lines()] if found else []
    return [*found, *caps] if any(name[11:].isdecimal() for name in found) else None


def _cdi(host: Asked, seen: Seen, driver: str | None, nodes: list[str] | None, gpus: int) -> None:
    for folder in ("/etc/cdi", "/var/run/cdi", "/run/cdi"):
        for path, answer in host.files(f"{folder}/*", 4 << 20).items():
            if not answer.ok:
                seen.gaps.append(Gap(LOOK, f"{path}: {answer.why}"))
                continue
            spec = parse_cdi(answer.text)
            name = path.rsplit("/", 1)[-1]
            twice = folder == "/run/cdi" and any(
                f.key == f"/var/run/cdi/{name}" for f in seen.facts
            )  # /var/run is /run
            if spec is None or twice:
                continue
            seen.fact("cdi_spec", path, cdi_fields(spec, path, driver, nodes, gpus), path)


def _runtimes(host: Asked, seen: Seen) -> set[str]:
    """Facts `container_runtime`; which runtimes are installed or run here."""
    found: set[str] = set()
    unified = host.file("/sys/fs/cgroup/cgroup.controllers", 4096)
    links = _links_made(host)
    common: dict[str, Scalar] = {
        "cgroup_v2": unified.ok if in_sight(host, "/sys/fs/cgroup") else None,
        "char_links": links
        or (False if in_sight(host, "/dev/char", *(f"{place}/udev/rules.d" for place in _UDEV)) else None),
    }
    daemon = host.file("/etc/docker/daemon.json", 1 << 18)
    if daemon.ok or any(host.stat(path).ok for path in _DOCKER):
        found.add("docker")
        fields, broken = docker_fields(daemon.text if daemon.ok else None)
        if not daemon.ok and not is_absent(daemon):
            seen.gaps.append(Gap(LOOK, f"/etc/docker/daemon.json: {daemon.why}"))
        running = (
            host.stat("/run/docker.sock").ok or host.stat("/var/run/docker.sock").ok or (False if host.live else None)
        )  # archives hold no sockets
        shown = {**common, "name": "docker", "running": running, "configured": daemon.ok, "problem": broken, **fields}
        seen.fact("container_runtime", "docker", shown, "/etc/docker/daemon.json")
    for name, patterns in (("containerd", _CONTAINERD), ("crio", _CRIO)):
        texts = [a for pattern in patterns for a in host.files(pattern, 1 << 18).values()]
        if any(a.ok for a in texts):
            found.add(name)
            fields = containerd_fields([a.text for a in texts if a.ok])
            seen.fact("container_runtime", name, {**common, "name": name, "configured": True, **fields}, patterns[0])
    return found


def _toolkit(host: Asked, seen: Seen, gpus: int, runtimes: set[str]) -> None:
    """Fact `container_toolkit`; present is left out where the programs of this machine are not in sight."""
    installed = [name for name in _PROGRAMS if any(host.stat(f"{folder}/{name}").ok for folder in _BINS)]
    config = next((a for path in _CONFIGS if (a := host.file(path, 1 << 18)).ok), None)
    if not installed and config is None and not runtimes:
        return
    fields = toolkit_fields(config.text if config else None, installed)
    if not installed and len(host.listing("/usr/bin").lines()) < _FEWEST_PROGRAMS:
        fields["present"] = None
    shown = {**fields, "gpus_here": gpus, "runtimes": ",".join(sorted(runtimes)) or None}
    seen.fact("container_toolkit", "nvidia-container-toolkit", shown, _CONFIGS[0])


def _links_made(host: Asked) -> bool:
    """Links from /dev/char to NVIDIA's devices are there, or a udev rule makes them at each boot."""
    if host.links("/dev/char/195:*"):
        return True
    rules = [a for folder in _UDEV for a in host.files(f"{folder}/udev/rules.d/*nvidia*", 65536).values()]
    return any("dev-char" in a.text or "/dev/char/" in a.text for a in rules if a.ok)


# ---- Docker's containers, from what the daemon keeps on disk: no program is started for them


def _docker_containers(host: Asked, wanted: Wanted, seen: Seen) -> None:
    root = "/var/lib/docker/containers"
    names = host.listing(root)
    if not names.ok:
        if not is_absent(names):
            seen.gaps.append(
                Gap(LOOK, f"{root}: {names.why}; as root, or from `docker inspect`, the GPUs of containers can be told")
            )
        return
    settings = {path.split("/")[5]: a for path, a in host.files(f"{root}/*/hostconfig.json", 1 << 18).items() if a.ok}
    count = len(wanted.of("gpu")) or None
    uuids = [str(f.fields.get("uuid")) for f in wanted.of("gpu")]
    for identity, answer in list(settings.items())[:_MOST_CONTAINERS]:
        told = answer.json()
        if not (told.get("DeviceRequests") or told.get("Runtime") == "nvidia" or "nvidia" in str(told.get("Devices"))):
            continue
        one = docker_container(host.file(f"{root}/{identity}/config.v2.json", 1 << 20).json(), told)
        if one is not None and one.running and (one.gpus or one.devices):
            _container_fact(host, seen, one, count, uuids)


def _container_fact(host: Asked, seen: Seen, one: DockerContainer, count: int | None, uuids: list[str]) -> None:
    gone = gone_gpus(one.gpus, count, uuids) if count is not None else []
    rules = host.file(f"/sys/fs/cgroup/devices/docker/{one.id}/devices.list", 65536)
    if not rules.ok:
        rules = host.file(f"/sys/fs/cgroup/devices/system.slice/docker-{one.id}.scope/devices.list", 65536)
    fields: dict[str, Scalar] = {
        "name": one.name, "id": one.id[:12], "state": "running", "runtime": one.runtime, "pid": one.pid, "privileged": one.privileged,
        "gpus_asked": ",".join(one.gpus)[:300] or None, "gpus_gone": ",".join(gone) or None, "cdi": one.cdi,
        "devices_given": bool(one.devices), "devices_allowed": devices_allowed(rules.text) if rules.ok else None,
    }  # fmt: skip
    seen.fact("container", one.name, fields, f"/var/lib/docker/containers/{one.id[:12]}")
