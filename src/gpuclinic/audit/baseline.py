"""What a server has that lets somebody in or runs by itself, to be compared with later: keys by fingerprint, accounts, schedules, units, modules,
listening ports, set-uid files. No secret is in it: a key's fingerprint, a line's hash."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from gpuclinic.audit.hits import Hit
from gpuclinic.audit.schedules import cron_jobs
from gpuclinic.audit.shells import start_files
from gpuclinic.audit.sockets import LISTEN, is_own
from gpuclinic.audit.ssh_keys import keys
from gpuclinic.audit.units import exec_lines, unit_texts
from gpuclinic.model import CouldNotError, Where

if TYPE_CHECKING:
    from gpuclinic.audit.scene import Scene

FORMAT = 1
_MOST_BYTES = 16 << 20
_SET_UID_FOLDERS = (
    "/usr/bin",
    "/usr/sbin",
    "/bin",
    "/sbin",
    "/usr/local/bin",
    "/usr/local/sbin",
    "/usr/lib/openssh",
    "/usr/libexec",
    "/opt",
    "/tmp",
    "/var/tmp",
    "/dev/shm",
)
_MOST_PROGRAMS = 6000
KINDS = {
    "account": ("account", "账户"), "key": ("SSH key", "SSH 密钥"), "cron": ("scheduled job", "计划任务"), "unit": ("unit", "单元"), "module": ("kernel module", "内核模块"),
    "port": ("listening port", "监听端口"), "setuid": ("set-uid program", "set-uid 程序"), "start_file": ("shell start file", "shell 启动文件"), "preload": ("preloaded library", "预加载库"),
}  # fmt: skip
"""Names of the kinds in both languages."""
_GRAVE = frozenset(["account", "key", "cron", "unit", "setuid", "preload"])


def taken(scene: Scene) -> dict[str, dict[str, str]]:
    """By kind, what is there: a name and what stands for its content."""
    passwd = [(f"{a.name} (uid {a.uid})", a.shell) for a in scene.accounts]
    preload = scene.text("/etc/ld.so.preload", "audit.libraries")
    return {
        "account": dict(passwd),
        "key": {f"{k.account.name} {k.fingerprint}": k.kind for k in keys(scene)},
        "cron": {f"{j.user}: {_short(j.command)}": _hash(j.command) for j in cron_jobs(scene)},
        "unit": {text.path: _hash("\n".join(f"{key}={value}" for _, key, value in exec_lines(text))) for text, _ in unit_texts(scene)},
        "module": {line.split()[0]: "" for line in _lines(scene, "/proc/modules")},
        "port": {f"{s.local[0]}:{s.local[1]}": s.name for s in scene.sockets if s.state == LISTEN and not is_own(s.local[0])},
        "setuid": _set_uid(scene),
        "start_file": {text.path: _hash(text.text) for text, _ in start_files(scene)},
        "preload": {line.strip(): "" for line in (preload.lines() if preload else ()) if line.strip()},
    }  # fmt: skip


def _lines(scene: Scene, path: str) -> list[str]:
    text = scene.text(path)
    return [line for line in text.lines() if line.strip()] if text else []


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:24]


def _short(text: str) -> str:
    from gpuclinic.recognise.secrets import mask

    return mask(text)[:160]


def _set_uid(scene: Scene) -> dict[str, str]:
    """Programs that run with another's rights, in the folders where programs are, and where they should not be."""
    out: dict[str, str] = {}
    seen = 0
    for folder in _SET_UID_FOLDERS:
        for name in scene.names(folder, "audit.setuid"):
            seen += 1
            if seen > _MOST_PROGRAMS:
                scene.gap("audit.setuid", f"more than {_MOST_PROGRAMS} programs: the rest was not looked at")
                return out
            state = scene.state(f"{folder}/{name}")
            if state is not None and state.kind == "file" and state.mode is not None and state.mode & 0o6000:
                out[f"{folder}/{name}"] = f"{state.mode:04o} uid {state.uid}"
    return out


def saved(scene: Scene) -> bytes:
    """The baseline as a file's content."""
    body = {"gpuclinic_audit_baseline": FORMAT, "at": scene.now, "has": taken(scene)}
    return json.dumps(body, indent=1, sort_keys=True, ensure_ascii=True).encode() + b"\n"


def read_baseline(data: bytes, name: str) -> dict[str, Any]:
    """A baseline that was saved. Raises CouldNotError where it is none."""
    try:
        told = json.loads(data[:_MOST_BYTES])
    except (ValueError, RecursionError):
        told = None
    if (
        not isinstance(told, dict)
        or told.get("gpuclinic_audit_baseline") != FORMAT
        or not isinstance(told.get("has"), dict)
    ):
        raise CouldNotError(f"--compare {name}: not a baseline that gpuclinic audit --save wrote")
    return told


def compared(scene: Scene, before: dict[str, Any], name: str) -> list[Hit]:
    """new_since, changed_since, gone_since: against a baseline. What is new and lets somebody in, or runs by itself, is a weak setting until somebody says why."""
    out = []
    for kind, now in taken(scene).items():
        old = before["has"].get(kind)
        if not isinstance(old, dict):
            continue
        for what, about in now.items():
            if what not in old:
                out.append(_hit("new_since", kind, what, name))
            elif old[what] != about and about:
                out.append(_hit("changed_since", kind, what, name))
        out += [_hit("gone_since", kind, str(what), name) for what in old if what not in now]
    return out


def _hit(identity: str, kind: str, what: str, name: str) -> Hit:
    severity = None if kind in _GRAVE and identity != "gone_since" else "info"
    evidence = [Where(name, None, f"{kind}: {what}"[:300])]
    return Hit(
        id=identity, subject=what[:200], evidence=evidence, values={"kind": kind, "name": what[:200]}, severity=severity
    )
