"""Schedulers on this node: the kubelet's device plugin, slurmd and its GRES, MPS; and the persistence daemon. Silent where none is."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpuclinic.clinic.looks._look import Seen, Wanted, first_line, is_absent
from gpuclinic.model import Gap
from gpuclinic.recognise.kubelet import kubelet_fields
from gpuclinic.recognise.slurm_node import constrains_devices, gres_files, node_config, slurm_fields

if TYPE_CHECKING:
    from gpuclinic.model import Scalar
    from gpuclinic.observe.asking import Asked

LOOK = "scheduler.node"
_SLURM = ("/etc/slurm", "/etc/slurm-llnl", "/run/slurm/conf", "/var/spool/slurmd/conf-cache", "/var/spool/slurm/conf-cache", "/usr/local/etc/slurm",
          "/usr/local/slurm/etc", "/opt/slurm/etc", "/cm/shared/apps/slurm/etc/slurm", "/etc/opt/slurm")  # fmt: skip
_PLUGINS = "/var/lib/kubelet/device-plugins"
_REGISTRY = "/var/lib/kubelet/plugins_registry"
_SCONTROL_DEADLINE = 1.0
_MPS_PIPE = "/tmp/nvidia-mps"  # noqa: S108 - MPS's own default place


def look_at_schedulers(host: Asked, wanted: Wanted) -> Seen:
    """Facts `slurm_node`, `device_plugin`, `mps`, `persistence_daemon`; `node` from scontrol."""
    seen = Seen()
    gpus = max(sum(f.fields.get("is_gpu") is True for f in wanted.of("pci_device")), len(wanted.of("gpu")))
    counted = any(f.fields.get("tool") == "pci" for f in wanted.of("gpu_count")) or any(
        f.fields.get("reason") == "ok" for f in wanted.of("nvml")
    )
    _slurm(host, wanted, seen, gpus if counted else None)
    if gpus:
        _kubelet(host, wanted, seen, gpus)
        _mps(host, wanted, seen)
        _persistence(host, wanted, seen)
    return seen


def _runs(wanted: Wanted, name: str) -> bool | None:
    """A daemon runs; None where /proc does not show the whole machine."""
    if any(f.fields.get("name") == name for f in wanted.of("daemon")):
        return True
    whole = any(f.fields.get("whole_view") for f in wanted.of("process_count"))
    return False if whole else None


# ---- Slurm


def _slurm(host: Asked, wanted: Wanted, seen: Seen, gpus: int | None) -> None:
    """gpus: how many are here; None where nothing counted them."""
    folder, conf = next(((f, a) for f in _SLURM if (a := host.file(f"{f}/slurm.conf", 8 << 20)).ok), (None, None))
    if folder is None or conf is None:
        return
    name = (first_line(host, "/proc/sys/kernel/hostname") or first_line(host, "/etc/hostname") or "").partition(".")[0]
    included = [
        host.file(path if path.startswith("/") else f"{folder}/{path}", 1 << 20) for path in _includes(conf.text)
    ]
    config = node_config("\n".join([conf.text, *(a.text for a in included if a.ok)]), name)
    running = _runs(wanted, "slurmd")
    if not config.known and not running:
        return  # a login or management node, or one that finds its configuration elsewhere
    gres = host.file(f"{folder}/gres.conf", 1 << 20)
    cgroup = host.file(f"{folder}/cgroup.conf", 1 << 18)
    for answer, path in ((gres, "gres.conf"), (cgroup, "cgroup.conf")):
        if not answer.ok and not is_absent(answer):
            seen.gaps.append(Gap(LOOK, f"{folder}/{path}: {answer.why}"))
    nodes = [f"/dev/{entry}" for entry in host.listing("/dev").lines() if re.fullmatch(r"nvidia\d+", entry)] or None
    constrained = (
        None if not cgroup.ok and not is_absent(cgroup) else constrains_devices(cgroup.text if cgroup.ok else None)
    )
    fields = slurm_fields(
        config, gres_files(gres.text, name) if gres.ok else None, nodes, gpus, constrained=constrained
    )
    shown = {
        **fields,
        "name": name,
        "known": config.known,
        "slurmd_running": running,
        "task_plugin": config.settings.get("taskplugin"),
    }
    seen.fact("slurm_node", name or "this node", shown, f"{folder}/slurm.conf")
    _scontrol(host, seen, name)


def _includes(text: str) -> list[str]:
    """Files that slurm.conf takes in; only plain names."""
    return [m[1] for m in re.finditer(r"(?im)^\s*include\s+([\w./-]{1,200})\s*$", text[: 1 << 20]) if ".." not in m[1]][
        :16
    ]


def _scontrol(host: Asked, seen: Seen, name: str) -> None:
    """The controller's word on this node: its text goes to the recogniser, which makes a `node` fact of it."""
    if not re.fullmatch(r"[\w-]{1,64}", name):
        return
    answer = host.command("scontrol", "-o", "show", "node", name, deadline=_SCONTROL_DEADLINE, most=1 << 18)
    seen.text(answer.named(f"scontrol -o show node {name}"), answer, LOOK)


# ---- Kubernetes


def _kubelet(host: Asked, wanted: Wanted, seen: Seen, gpus: int) -> None:
    listed = host.listing(_PLUGINS)
    if not listed.ok:
        if not is_absent(listed):
            seen.gaps.append(Gap(LOOK, f"{_PLUGINS}: {listed.why}; as root the device plugin can be seen"))
        return
    sockets = [
        name for name in listed.lines() if name.endswith(".sock") and name not in ("kubelet.sock", "DEPRECATION")
    ]
    dra = [name for name in host.listing(_REGISTRY).lines() if "nvidia" in name or "gpu" in name]
    checkpoint = host.file(f"{_PLUGINS}/kubelet_internal_checkpoint", 8 << 20)
    if not checkpoint.ok and not is_absent(checkpoint):
        seen.gaps.append(Gap(LOOK, f"{_PLUGINS}/kubelet_internal_checkpoint: {checkpoint.why}"))
    uuids = [str(f.fields.get("uuid") or "") for f in wanted.of("gpu")]
    fields = kubelet_fields(checkpoint.json() if checkpoint.ok else {"Data": {}}, sockets, uuids, gpus)
    if fields is None:
        seen.gaps.append(Gap(LOOK, f"{_PLUGINS}/kubelet_internal_checkpoint: not of the known form"))
        return
    plugin = [name for name in sockets if re.search(r"nvidia|gpu", name)]
    shown = {**fields, "plugin_socket": bool(plugin), "dra": bool(dra), "kubelet_running": _runs(wanted, "kubelet")}
    seen.fact("device_plugin", "kubelet", shown, f"{_PLUGINS}/kubelet_internal_checkpoint")


# ---- MPS and the persistence daemon


def _mps(host: Asked, wanted: Wanted, seen: Seen) -> None:
    """Fact `mps`, where its daemon, its server or its pipe directory is there."""
    daemons = wanted.of("daemon")
    control = [f for f in daemons if f.fields.get("name") == "nvidia-cuda-mps-control"]
    servers = [f for f in daemons if f.fields.get("name") == "nvidia-cuda-mps-server"]
    named = (str(f.fields["mps_pipe"]) for f in wanted.of("gpu_holder") if f.fields.get("mps_pipe"))
    folder = next(named, _MPS_PIPE)
    pipe = host.stat(f"{folder}/control") if re.fullmatch(r"/[\w./-]{1,200}", folder) and ".." not in folder else None
    if not control and not servers and not (pipe and pipe.ok):
        return
    uids = {f.fields.get("uid") for f in servers}
    clients = sum("M" in str(f.fields.get("types") or "") for f in wanted.of("gpu_holder"))
    whole = any(f.fields.get("whole_view") for f in wanted.of("process_count"))
    modes = {str(f.fields.get("compute_mode")) for f in wanted.of("gpu")}
    seen.fact(
        "mps", "mps",
        {"control_running": bool(control), "servers": len(servers), "server_pid": servers[0].fields.get("pid") if servers else None,
         "server_state": servers[0].fields.get("state") if servers else None, "server_uids": ",".join(sorted(map(str, uids))) or None,
         "pipe_directory": folder if pipe and pipe.ok else None, "clients": clients, "whole_view": whole,
         "exclusive": bool(modes) and all("xclusive" in mode for mode in modes)},
        "/proc and the pipe directory",
    )  # fmt: skip


def _persistence(host: Asked, wanted: Wanted, seen: Seen) -> None:
    """Fact `persistence_daemon`: enabled as a unit, running, and whether every GPU has the mode."""
    wants = host.files("/etc/systemd/system/*.wants/nvidia-persistenced.service", 4096)
    links = host.links("/etc/systemd/system/*.wants/nvidia-persistenced.service")
    running = _runs(wanted, "nvidia-persistenced")
    modes = [f.fields.get("persistence") for f in wanted.of("gpu") if f.fields.get("persistence") is not None]
    if not (wants or links or running):
        return
    fields: dict[str, Scalar] = {
        "enabled": bool(wants or links),
        "running": running,
        "all_on": all(modes) if modes else None,
        "gpus_off": sum(m is False for m in modes),
    }
    seen.fact("persistence_daemon", "nvidia-persistenced", fields, "/etc/systemd/system and /proc")
