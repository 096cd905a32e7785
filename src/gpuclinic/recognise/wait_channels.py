"""What a task in uninterruptible sleep waits for, by its wait channel and kernel stack (table wait_channels.tsv)."""

from __future__ import annotations

import functools
import re
from typing import NamedTuple

from gpuclinic.recognise.parsers.gpu_tables import read_table

_FRAME = re.compile(
    r"^\s*(?:\[<[0-9a-fx]*>\])?\s*(?P<function>[\w.]+)\+0x[0-9a-f]+/0x[0-9a-f]+(?:\s+\[(?P<module>\w+)\])?"
)


class Waits(NamedTuple):
    """kind: gpu_driver, network_fs, rdma, disk, memory, paused, child, core_dump or other. function: the one that tells it."""

    kind: str
    en: str
    zh: str
    function: str


@functools.cache
def _rows() -> list[tuple[re.Pattern[str], re.Pattern[str] | None, str, str, str]]:
    return [
        (re.compile(row["pattern"]), re.compile(row["module"]) if row["module"] else None, row["waits_for"], row["en"], row["zh"])
        for row in read_table("wait_channels.tsv")
    ]  # fmt: skip


def frames(stack: str) -> list[tuple[str, str]]:
    """Functions of /proc/PID/stack and the module of each ("" for the kernel itself), innermost first."""
    found = (_FRAME.match(line[:400]) for line in stack.splitlines()[:100])
    return [(match["function"], match["module"] or "") for match in found if match]


def waits_for(wchan: str, stack: str = "") -> Waits:
    """The rows stand in order of how much they tell: a driver's own function outweighs the generic wait below it."""
    places = frames(stack) or ([(wchan, "")] if wchan not in ("", "0") else [])
    for pattern, module, kind, en, zh in _rows():
        for function, inside in places:
            plain = re.sub(r"\.(?:isra|constprop|part|cold|llvm)\b.*$", "", function)
            if pattern.match(plain) or (module is not None and inside and module.match(inside)):
                return Waits(kind, en, zh, function)
    return Waits("other", "something else in the kernel", "内核中的其他操作", places[0][0] if places else "")
