"""What the cgroups of a process or job say: memory limits, and how often they killed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpuclinic.clinic.gathering._gathered import Gathered
    from gpuclinic.model import Scalar
    from gpuclinic.observe.asking import Asked

_ROOTS = ("/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/memory")
_FILES = (
    "memory.max", "memory.high", "memory.current", "memory.peak", "memory.swap.max", "memory.events.local", "memory.events",
    "memory.limit_in_bytes", "memory.usage_in_bytes", "memory.max_usage_in_bytes", "memory.failcnt", "memory.oom_control",
)  # fmt: skip
_NO_LIMIT = 1 << 62
_SHARED, _FULL, _MIB = "/dev/shm", 0.98, 1 << 20  # noqa: S108 - looked at, never written
_MOST = 12


def gather_memory(host: Asked, gathered: Gathered) -> None:
    """One text for each cgroup of the subject and for its parents that have a limit, as `head` on their files would print it.

    Of what is dead also whether shared memory is full.
    """
    if not gathered.subject.alive:
        _shared_memory(host, gathered)
    for path in sorted(_with_parents(gathered.subject.cgroups), key=lambda p: -p.count("/"))[:_MOST]:
        for root in _ROOTS:
            text = _text(host, f"{root}{path}", own=path in gathered.subject.cgroups)
            if text:
                gathered.texts.append((f"{root}{path}/memory.*", text.encode()))
                break


def _shared_memory(host: Asked, gathered: Gathered) -> None:
    """A full /dev/shm as a fact `fs`: who writes into it dies of SIGBUS."""
    space = host.space(_SHARED).json()
    size, free = space.get("size"), space.get("available")
    if not isinstance(size, int) or not isinstance(free, int) or size <= 0 or free > size * (1 - _FULL):
        return
    used_pct = round(100 * (1 - free / size), 1)
    fields: dict[str, Scalar] = {"mount": _SHARED, "type": "tmpfs", "size_mib": size / _MIB, "use_pct": used_pct}
    text = f"{_SHARED}: {size / _MIB:.0f} MiB, {used_pct:g} % used"
    gathered.fact("fs", _SHARED, fields, f"statvfs {_SHARED}", {"": text})


def _with_parents(paths: set[str]) -> set[str]:
    out: set[str] = set()
    for path in paths:
        parts = path.strip("/").split("/")
        if ".." in parts or not path.startswith("/"):
            continue
        out |= {"/" + "/".join(parts[:depth]) for depth in range(1, len(parts) + 1) if parts[0]}
    return out


def _limits(text: str) -> bool:
    """A number of bytes that memory can reach; no word ("max"), and nothing longer than the kernel prints."""
    return text.isdecimal() and len(text) < 25 and int(text) < _NO_LIMIT


def _text(host: Asked, folder: str, *, own: bool) -> str:
    """The files of a cgroup; of a parent only where it has a limit, since another child's death is not this one's."""
    found = {name: answer.text.strip() for name in _FILES if (answer := host.file(f"{folder}/{name}", 4096)).ok}
    if not found:
        return ""
    limit = found.get("memory.max", found.get("memory.limit_in_bytes", "max"))
    if not own:
        if not _limits(limit):
            return ""
        for name in ("memory.events", "memory.oom_control"):
            found.pop(name, None)
    if "memory.events.local" in found:
        found["memory.events"] = found.pop("memory.events.local")
    if "memory.limit_in_bytes" in found and not _limits(found["memory.limit_in_bytes"]):
        found.pop("memory.limit_in_bytes")
    lines: list[str] = []
    for name, text in found.items():
        lines.append(f"==> {folder}/{name} <==")
        lines.append(re.sub(r"(?m)^(?:oom_group_kill|low|high) .*\n?", "", text))
    return "\n".join(lines) + "\n"
