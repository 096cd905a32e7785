"""Limits of processes, out of /proc/PID/limits. Pure."""

from __future__ import annotations

import msgspec

from gpuclinic.model import Document, Fact
from gpuclinic.recognise.parsers.limits import parse_limits


def process_limits(text: str, who: str, path: str, pid: int | None = None, *, gpu: bool = False) -> list[Fact]:
    """Facts `limit` of one process. who: "self" (whoever runs this), a service that starts jobs, or a process; gpu: it holds a GPU."""
    out: list[Fact] = []
    for fact in parse_limits(Document(path, text, name_hint="limits")):
        fields = {**fact.fields, "who": who, "gpu_process": gpu, "pid": pid}
        soft = fields.get("soft")
        if fields.get("name") == "max_locked_memory_kib" and isinstance(soft, int):
            fields["soft_mib"] = round(soft / 1024, 2) if soft >= 0 else -1
        kept = {name: value for name, value in fields.items() if value is not None}
        out.append(msgspec.structs.replace(fact, key=f"{fields['name']} of {who}", fields=kept))
    return out


def configured_limits(text: str, path: str) -> list[Fact]:
    """Facts `limit` of limits.conf(5) lines for everybody ("*") and of systemd's DefaultLimit lines; who: the file."""
    found: dict[str, Fact] = {}
    for fact in parse_limits(Document(path, text, name_hint="limits")):
        if fact.fields.get("scope") not in ("configured", "unit") or fact.fields.get("who") not in (None, "*"):
            continue
        name = str(fact.fields.get("name"))
        held = found.get(name)
        fields = {**(held.fields if held else {}), **{n: v for n, v in fact.fields.items() if v is not None}}
        fields |= {"who": path, "gpu_process": False}
        if fact.fields.get("scope") == "unit":
            fields.setdefault("hard", fields.get("soft"))
        soft = fields.get("soft", fields.get("hard"))
        if name == "max_locked_memory_kib" and isinstance(soft, int):
            fields |= {"soft": soft, "soft_mib": round(soft / 1024, 2) if soft >= 0 else -1}
        found[name] = msgspec.structs.replace(fact, key=f"{name} of {path}", fields=fields)
    return list(found.values())
