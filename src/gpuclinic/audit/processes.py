"""The processes of a scene: from /proc, and from what a probe found that listing /proc does not show."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from gpuclinic.audit.miner_words import is_miner_url
from gpuclinic.audit.scene import Process
from gpuclinic.knowledge.audit_words import words
from gpuclinic.model import digits
from gpuclinic.recognise.process_table import parse_stat, parse_status

if TYPE_CHECKING:
    from gpuclinic.audit.scene import Scene

_MOST_ARGUMENTS = 1 << 16
_MOST_MAPS = 1 << 18
_DELETED = " (deleted)"
PROBE = "/pid_probe.json"


def read_processes(scene: Scene) -> dict[int, Process]:
    """By pid. Those that only a probe reached come from it (`direct` in pid_probe.json, or opened by number on the running server)."""
    host = scene.host
    found: dict[int, Process] = {}
    for path, answer in host.files("/proc/[0-9]*/stat", 1024).items():
        pid = _pid(path)
        if pid is not None:
            task = parse_stat(answer.text) if answer.ok else None
            found[pid] = Process(pid, task if task is not None and task.pid == pid else None)
    for pid in (digits(name) for name in scene.names("/proc", "audit.processes")):
        if pid is not None:
            found.setdefault(pid, Process(pid))
    for path, answer in host.files("/proc/[0-9]*/status", 8192).items():
        if answer.ok and (one := found.get(_pid(path) or -1)) is not None:
            one.status = parse_status(answer.text)
    for path, answer in host.files("/proc/[0-9]*/cmdline", _MOST_ARGUMENTS).items():
        if answer.ok and (one := found.get(_pid(path) or -1)) is not None:
            one.argv = arguments(answer.data)
    _where_from(scene, found)
    for name, files in probed(scene).get("direct", {}).items():
        pid = digits(str(name))
        if pid is not None and pid not in found and isinstance(files, dict):
            found[pid] = _of_probe(pid, files)
    return found


def arguments(data: bytes) -> list[str]:
    """The argument vector of /proc/PID/cmdline."""
    return data.rstrip(b"\0").decode("utf-8", "surrogateescape").split("\0") if data.strip(b"\0") else []


def looked_as_root(scene: Scene) -> bool | None:
    """Whether what was read was read as root."""
    if scene.host.live:
        return os.geteuid() == 0
    told = probed(scene).get("as_root", getattr(scene.host, "about", {}).get("as_root"))
    return told if isinstance(told, bool) else None


def probed(scene: Scene) -> dict[str, Any]:
    """pid_probe.json of a snapshot (docs/contract.md); empty where there is none."""
    own = getattr(scene.host, "own_json", None)
    told = own("pid_probe.json") if own is not None else {}
    return told if isinstance(told, dict) else {}


def _pid(path: str) -> int | None:
    return digits(path.split("/")[2])


def _where_from(scene: Scene, found: dict[int, Process]) -> None:
    """Program, folder, cgroup, environment, descriptors and maps of each process."""
    host = scene.host
    people = {pid: one for pid, one in found.items() if one.argv or not one.kernel_thread}
    exes, folders = host.links("/proc/[0-9]*/exe"), host.links("/proc/[0-9]*/cwd")
    for pid, one in people.items():
        exe = exes.get(f"/proc/{pid}/exe") or (None if host.live else scene.link(f"/proc/{pid}/exe"))
        if exe is not None:
            one.exe, one.deleted = sys.intern(exe.removesuffix(_DELETED)), exe.endswith(_DELETED)
        one.cwd = folders.get(f"/proc/{pid}/cwd") or (None if host.live else scene.link(f"/proc/{pid}/cwd"))
    for path, answer in host.files("/proc/[0-9]*/maps", _MOST_MAPS).items():
        if answer.ok and (holder := people.get(_pid(path) or -1)) is not None:
            holder.mapped = mapped_files(answer.text.splitlines())
    for path, answer in host.files("/proc/[0-9]*/cgroup", 4096).items():
        if answer.ok and (holder := people.get(_pid(path) or -1)) is not None:
            holder.cgroup = sys.intern(answer.text.strip())
    for path, answer in host.files("/proc/[0-9]*/environ", 1 << 16).items():
        if answer.ok and (holder := people.get(_pid(path) or -1)) is not None:
            holder.variables = _variables(answer.data)
    for path, target in _descriptors(scene).items():
        holder, number = found.get(_pid(path) or -1), digits(path.rpartition("/")[2])
        if holder is not None and number is not None:
            holder.files = {**(holder.files or {}), number: target}


def _descriptors(scene: Scene) -> dict[str, str]:
    links = scene.host.links("/proc/[0-9]*/fd/[0-9]*")
    if links or scene.host.live:
        return links
    return {
        path: answer.text.rstrip("\n")
        for path, answer in scene.host.files("/proc/[0-9]*/fd/[0-9]*", 4096).items()
        if answer.ok
    }


def mapped_files(lines: list[str]) -> list[str]:
    """Paths in /proc/PID/maps, each once; [heap] and the like are none."""
    out: dict[str, None] = {}
    for line in lines:
        cells = line.split(None, 5)
        if len(cells) == 6 and cells[5].startswith("/"):
            out[sys.intern(cells[5].strip())] = None
    return list(out)


_KEPT = ("HOME", "LD_", "JUPYTER", "RAY_", "VLLM_", "KUBERNETES_SERVICE_HOST")


def _variables(data: bytes) -> dict[str, str]:
    """Of an environment what checks ask for; of a secret only that there is one."""
    out = {}
    for piece in data.decode("utf-8", "replace").split("\0"):
        name, equals, value = piece.partition("=")
        if equals and (name.startswith(_KEPT) or name in words().job_variables or is_miner_url(value)):
            secret = value and any(word in name for word in ("TOKEN", "KEY", "PASS", "SECRET"))
            out[sys.intern(name)] = "(hidden)" if secret else value
    return out


def _texts(value: object) -> list[str]:
    return [str(one) for one in value[:10_000]] if isinstance(value, list) else []


def _of_probe(pid: int, files: dict[str, Any]) -> Process:
    """A process that reading the folder /proc did not show, from its files opened by number."""
    exe = files.get("exe")
    descriptors = files.get("fd")
    variables = files.get("environ")
    return Process(
        pid,
        parse_stat(str(files.get("stat", ""))),
        parse_status(str(files.get("status", ""))),
        _texts(files.get("cmdline")),
        exe.removesuffix(_DELETED) if isinstance(exe, str) else None,
        isinstance(exe, str) and exe.endswith(_DELETED),
        cgroup=str(files["cgroup"]) if "cgroup" in files else None,
        variables=_variables("\0".join(f"{k}={v}" for k, v in variables.items()).encode("utf-8", "replace"))
        if isinstance(variables, dict)
        else None,
        files={n: str(v) for k, v in descriptors.items() if (n := digits(str(k))) is not None}
        if isinstance(descriptors, dict)
        else None,
        mapped=mapped_files(_texts(files.get("maps"))) if "maps" in files else None,
        listed=False,
        probed=True,
    )
