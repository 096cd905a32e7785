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
