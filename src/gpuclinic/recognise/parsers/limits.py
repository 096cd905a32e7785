"""Limits of a shell or process: ulimit -a in its forms, /proc/PID/limits, limits.conf, systemd Limit lines."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpuclinic.recognise.parsers._host_util import clipped_lines, command_of, fact, whole

if TYPE_CHECKING:
    from gpuclinic.model import Document, Fact
    from gpuclinic.model._types import Scalar

_LETTERS = {
    "n": "open_files",
    "l": "max_locked_memory_kib",
    "u": "max_user_processes",
    "c": "core",
    "s": "stack_kib",
    "v": "virtual_memory_kib",
    "m": "max_memory_kib",
    "i": "pending_signals",
    "t": "cpu_time_s",
    "f": "file_size",
    "d": "data_kib",
    "q": "message_queue_bytes",
}
_ULIMIT = re.compile(
    r"^\s*(?:-(?P<dash>[nlucsvmitfdq]):\s*(?P<label>.*?)|(?P<what>\S.{1,60}?)\s*\((?:[^()]{0,30}[,，]\s*"
    r")?-(?P<letter>[nlucsvmitfdq])\))"
    r"\s+(?P<value>\d+|unlimited|无限制|不限|unbegrenzt|illimité)\s*$"
)
_TCSH = re.compile(
    r"^(?P<name>descriptors|openfiles|memorylocked|maxproc|coredumpsize|vmemoryuse|stacksize)\s+(?P<value>\d+|"
    r"unlimited)"
)
_TCSH_NAMES = {
    "descriptors": "open_files",
    "openfiles": "open_files",
    "memorylocked": "max_locked_memory_kib",
    "maxproc": "max_user_processes",
    "coredumpsize": "core",
    "vmemoryuse": "virtual_memory_kib",
    "stacksize": "stack_kib",
}
_PROC = re.compile(
    r"^Max (?P<name>open files|locked memory|processes|core file size|stack size|address space)\s+"
    r"(?P<soft>\d+|unlimited)\s+(?P<hard>\d+|unlimited)"
)
_PROC_NAMES = {
    "open files": ("open_files", 1),
    "locked memory": ("max_locked_memory_kib", 1024),
    "processes": ("max_user_processes", 1),
    "core file size": ("core", 1),
    "stack size": ("stack_kib", 1024),
    "address space": ("virtual_memory_kib", 1024),
}
_CONF = re.compile(
    r"^\s*(?P<who>[*\w@%:-]+)\s+(?P<type>soft|hard|-)\s+(?P<item>nofile|memlock|nproc|core|stack|as)\s+"
    r"(?P<value>-?\d+|unlimited|infinity)\s*(?:#.*)?$"
)
_CONF_NAMES = {
    "nofile": "open_files",
    "memlock": "max_locked_memory_kib",
    "nproc": "max_user_processes",
    "core": "core",
    "stack": "stack_kib",
    "as": "virtual_memory_kib",
}
_UNIT = re.compile(
    r"^\s*(?:Default)?Limit(?P<item>NOFILE|MEMLOCK|NPROC|CORE)(?P<soft>Soft)?=(?P<value>\d+[KMGT]?|infinity)"
    r"(?::(?P<hard>\d+|infinity))?\s*$"
)
_SINGLE = re.compile(r"(?:^|[\s;'\"])ulimit\s+-(?P<kind>[SH]*)(?P<letter>[nluc])['\"]?\s*$")
_SET = re.compile(r"^\s*(?:\S+\s+)?ulimit\s+-(?P<kind>[SH]*)(?P<letter>[nluc])\s+(?P<value>\d+|unlimited)\b")
_UNLIMITED = ("unlimited", "infinity", "无限制", "不限", "unbegrenzt", "illimité", "-1", "18446744073709551615")


def _amount(text: str, divisor: int = 1) -> int | None:
    if text in _UNLIMITED:
        return -1
    factor = {"K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4}.get(text[-1:], 1)
    value = whole(text.rstrip("KMGT"))
    return None if value is None else value * factor // divisor


def _limit(
    document: Document,
    name: str,
    soft: int | None,
    hard: int | None,
    index: int,
    line: str,
    scope: str,
    who: str | None = None,
) -> Fact:
    fields: dict[str, Scalar] = {"name": name, "soft": soft, "hard": hard, "scope": scope, "who": who}
    return fact(document, "limit", name, fields, index, line)


def parse_limits(document: Document) -> list[Fact]:
    """All the ways in which limits are shown: "limit" with name, soft, hard (-1 is unlimited), scope, who."""
    facts: list[Fact] = []
    asked: re.Match[str] | None = None
    process: str | None = None
    for index, line in enumerate(clipped_lines(document)):
        text = line.strip()
        if not text or len(text) > 300:
            continue
        command = command_of(line)
        if command:
            asked = _SINGLE.search(command)
            named = re.search(r"/proc/(\d+)/limits", command)
            process = named.group(1) if named else None
            continue
        if asked and re.fullmatch(r"\d+|unlimited|无限制", text):
            value = _amount(text)
            hard = value if "H" in asked["kind"] else None
            facts.append(_limit(document, _LETTERS[asked["letter"]], value, hard, index, line, "shell"))
            asked = None
            continue
        found = _one(document, index, line, text, process)
        if found:
            facts.append(found)
    return facts[:500]


def _one(document: Document, index: int, line: str, text: str, process: str | None) -> Fact | None:
    match = _ULIMIT.match(text)
    if match:
        name = _LETTERS[match["dash"] or match["letter"]]
        return _limit(document, name, _amount(match["value"]), None, index, line, "shell")
    match = _PROC.match(text)
    if match:
        name, divisor = _PROC_NAMES[match["name"]]
        soft, hard = _amount(match["soft"], divisor), _amount(match["hard"], divisor)
        return _limit(document, name, soft, hard, index, line, "process", process)
    match = _CONF.match(text)
    if match:
        value = _amount(match["value"])
        soft, hard = (
            (value if match["type"] in ("soft", "-") else None),
            (value if match["type"] in ("hard", "-") else None),
        )
        return _limit(document, _CONF_NAMES[match["item"]], soft, hard, index, line, "configured", match["who"])
    match = _UNIT.match(text)
    if match:
        name = {
            "NOFILE": "open_files",
            "MEMLOCK": "max_locked_memory_kib",
            "NPROC": "max_user_processes",
            "CORE": "core",
        }[match["item"]]
        divisor = 1024 if match["item"] == "MEMLOCK" else 1
        hard = _amount(match["hard"], divisor) if match["hard"] else None
        return _limit(document, name, _amount(match["value"], divisor), hard, index, line, "unit")
    match = _TCSH.match(text)
    if match:
        return _limit(document, _TCSH_NAMES[match["name"]], _amount(match["value"]), None, index, line, "shell")
    match = _SET.match(text)
    return (
        _limit(document, _LETTERS[match["letter"]], _amount(match["value"]), None, index, line, "set")
        if match
        else None
    )


def parse_descriptor_count(document: Document) -> list[Fact]:
    """`ls /proc/PID/fd | wc -l` or `lsof -p PID | wc -l` with the number below it: "open_descriptors"."""
    facts: list[Fact] = []
    lines = clipped_lines(document)
    for index, line in enumerate(lines[:-1]):
        match = re.search(r"/proc/(\d+)/fd/?\S*\s*\|\s*wc -l|lsof\s.*-p\s*(\d+)[^|]*\|\s*wc -l", line[:500])
        if match and re.fullmatch(r"\s*\d+\s*", lines[index + 1]):
            fields: dict[str, Scalar] = {
                "pid": whole(match.group(1) or match.group(2)),
                "count": whole(lines[index + 1]),
            }
            facts.append(fact(document, "open_descriptors", str(fields["pid"]), fields, index + 1, lines[index + 1]))
    return facts[:200]
