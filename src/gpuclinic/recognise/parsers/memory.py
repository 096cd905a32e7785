"""Memory of the host: free, /proc/meminfo, cgroup files, swap."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpuclinic.model import Document, Fact, Where
from gpuclinic.recognise.parsers._host_util import (
    GIB,
    KIB,
    MIB,
    clipped_lines,
    command_of,
    fact,
    number,
    size_mib,
    whole,
)

if TYPE_CHECKING:
    from gpuclinic.model._types import Scalar

_VALUE = r"\d[\d.,]*(?:\s?(?:[KMGTPE]i?B?|B))?"  # a blank only before a unit: else it and the blanks between values divide in 2^n ways
_FREE_ROW = re.compile(
    rf"^\s*(?P<name>Mem|Mém|内存|記憶體|メモリ|"
    rf"Speicher|Speich|Minne|Swap|交换|置換|スワップ|Échange|Växlingsutrymme|[-]/\+ "
    rf"[^:]{{3,40}})\s*[:：.]\s*(?P<values>{_VALUE}(?:\s+{_VALUE})*)\s*$"
)
_MEMINFO = re.compile(r"^\s*(?P<name>[A-Z]\w+(?:\([a-z_]+\))?):\s+(?P<value>\d{1,18})(?: kB)?\s*$")
_WANTED = {
    "MemTotal": "total_mib",
    "MemFree": "free_mib",
    "MemAvailable": "available_mib",
    "SwapTotal": "swap_total_mib",
    "SwapFree": "swap_free_mib",
    "Shmem": "shared_mib",
    "Mlocked": "locked_mib",
    "Committed_AS": "committed_mib",
    "CommitLimit": "commit_limit_mib",
    "AnonPages": "anonymous_mib",
    "Buffers": "buffers_mib",
    "Cached": "cached_mib",
    "HugePages_Total": "huge_pages",
    "HugePages_Free": "huge_pages_free",
    "Hugepagesize": "huge_page_mib",
    "SUnreclaim": "slab_unreclaimable_mib",
    "Unevictable": "unevictable_mib",
}
_CGROUP_NAME = (
    r"memory\.(?:max|current|high|peak|swap\.max|swap\.current|events(?:\.local)?|limit_in_bytes|usage_in_bytes|"
    r"max_usage_in_bytes|failcnt|oom_control|memsw\.limit_in_bytes)"
)
_CGROUP_PATH = re.compile(
    rf"(?P<path>[\w@:./\\-]*/)?(?P<file>{_CGROUP_NAME})\s*(?:[:=]\s*|\s+)?(?P<value>max|\d{{1,20}})?\s*$"
)
_CGROUP_EVENT = re.compile(
    r"^\s*(?P<name>low|high|max|oom|oom_kill|oom_group_kill|under_oom|oom_kill_disable)\s+(?P<value>\d{1,18})\s*$"
)
_CGROUP_FIELD = {
    "memory.max": "limit_mib",
    "memory.limit_in_bytes": "limit_mib",
    "memory.current": "current_mib",
    "memory.usage_in_bytes": "current_mib",
    "memory.peak": "peak_mib",
    "memory.max_usage_in_bytes": "peak_mib",
    "memory.high": "high_mib",
    "memory.swap.max": "swap_limit_mib",
}


def _free_unit(document: Document, command: str, total: str) -> float:
    """MiB for one unit of bare numbers in free's output: by the command, by the file's name, by plausibility."""
    told = re.search(r"\bfree\s+(?:-\w+\s+)*--?(\w+)", command) or re.search(
        r"free[-_ ]+-?([bkmgh])\b", document.name_hint
    )
    source = told or re.search(r"free[-_ ]+-?([bkmgh])(?:[-_.]|$)", document.source.rsplit("/", 1)[-1])
    if source:
        letter = re.sub(r"[^bkmg]", "", source.group(1).lower().replace("tera", "").replace("si", ""))[:1]
        if letter in ("b", "k", "m", "g"):
            return {"b": 1 / 1048576, "k": KIB, "m": MIB, "g": GIB}[letter]
    value = number(total) or 0
    if value <= 8192:
        return GIB
    if value < 8_388_608:
        return MIB
    return KIB if value < 5e10 else 1 / 1048576


def parse_free(document: Document) -> list[Fact]:
    """free with any option, old and new layout, localised: one "memory" for each Mem row."""
    facts: list[Fact] = []
    command, header = "", ""
    current: dict[str, Scalar] = {}
    places: dict[str, Where] = {}
    start = (0, "")
    unit = KIB

    def close() -> None:
        if "total_mib" in current:
            facts.append(fact(document, "memory", "host", dict(current), start[0], start[1], dict(places)))
        current.clear()
        places.clear()

    for index, line in enumerate(clipped_lines(document)):
        match = _FREE_ROW.match(line) if len(line) < 400 else None
        if not match:
            command = command_of(line) or command
            header = line if line.strip() else header
            continue
        values = re.findall(_VALUE, match.group("values"))
        name = match.group("name")
        if name.startswith(("Mem", "Mém", "内存", "記憶體", "メモリ", "Speich", "Minne")):
            close()
            unit = _free_unit(document, command, values[0])
            start = (index, line)
            _mem_row(values, unit, len(header.split()), current, old="-/+" not in header and _is_old(header))
        elif name.startswith("-/+"):
            if len(values) > 1:
                current["used_mib"], current["available_mib"] = size_mib(values[0], unit), size_mib(values[1], unit)
        elif len(values) >= 2 and current:
            current["swap_total_mib"], current["swap_used_mib"] = size_mib(values[0], unit), size_mib(values[1], unit)
            places["swap_used_mib"] = document.at(index, line)
    close()
    return facts[:200]


def _is_old(header: str) -> bool:
    return "cached" in header and "buff/cache" not in header


def _mem_row(values: list[str], unit: float, columns: int, current: dict[str, Scalar], *, old: bool) -> None:
    names = ["total_mib", "used_mib", "free_mib", "shared_mib", "cache_mib", "available_mib"]
    if old:
        names = ["total_mib", "used_mib", "free_mib", "shared_mib", "buffers_mib", "cache_mib"]
    elif columns == 7 and len(values) == 7:
        names = ["total_mib", "used_mib", "free_mib", "shared_mib", "buffers_mib", "cache_mib", "available_mib"]
    for name, value in zip(names, values, strict=False):
        current[name] = size_mib(value, unit)
    if "available_mib" not in current:
        parts = [current.get(name) for name in ("free_mib", "buffers_mib", "cache_mib")]
        current["available_mib"] = sum(part for part in parts if isinstance(part, (int, float)))


def parse_meminfo(document: Document) -> list[Fact]:
    """/proc/meminfo: one "memory"."""
    fields: dict[str, Scalar] = {}
    places: dict[str, Where] = {}
    first: tuple[int, str] | None = None
    for index, line in enumerate(clipped_lines(document)):
        match = _MEMINFO.match(line) if len(line) < 200 else None
        name = _WANTED.get(match.group("name")) if match else None
        if not match or not name or name in fields:
            continue
        value = float(match.group("value"))
        fields[name] = value if name in ("huge_pages", "huge_pages_free") else round(value / 1024, 3)
        places[name] = document.at(index, line)
        first = first or (index, line)
    if first is None or "total_mib" not in fields:
        return []
    if "swap_total_mib" in fields and "swap_free_mib" in fields:
        fields["swap_used_mib"] = float(fields["swap_total_mib"] or 0) - float(fields["swap_free_mib"] or 0)
    if "available_mib" in fields:
        fields["used_mib"] = float(fields["total_mib"] or 0) - float(fields["available_mib"] or 0)
    if fields.get("huge_pages_free"):
        fields["huge_free_mib"] = float(fields["huge_pages_free"] or 0) * float(fields.get("huge_page_mib") or 2)
    return [fact(document, "memory", "host", fields, first[0], first[1], places)]


class _Cgroups:
    """Collects the files of each cgroup directory that a paste shows."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.found: dict[str, tuple[dict[str, Scalar], dict[str, Where]]] = {}

    def put(self, path: str, field: str, value: Scalar, index: int, line: str) -> None:
        fields, places = self.found.setdefault(path, ({}, {}))
        fields[field] = value
        places[field] = self.document.at(index, line)
        places.setdefault("", self.document.at(index, line))

    def value(self, path: str, file: str, text: str, index: int, line: str) -> None:
        if file in _CGROUP_FIELD:
            amount = -1.0 if text == "max" or float(text) > 9e18 else float(text) / 1048576
            self.put(path, _CGROUP_FIELD[file], amount, index, line)
        elif file == "memory.failcnt":
            self.put(path, "fail_count", whole(text), index, line)


def parse_cgroup(document: Document) -> list[Fact]:
    """memory.max, memory.current, memory.events and their v1 names, printed by cat, grep or head: "cgroup"."""
    cgroups = _Cgroups(document)
    path, file = "", ""
    for index, line in enumerate(clipped_lines(document)):
        text = line.strip().strip("=<> ").strip()
        if not text or len(text) > 500:
            continue
        event = _CGROUP_EVENT.match(re.sub(rf"^\S*{_CGROUP_NAME}:", "", text))
        named = re.match(rf"^(?P<path>\S*?)(?P<file>{_CGROUP_NAME}):", text)
        if event:
            path = named.group("path") if named else path
            if event.group("name") == "oom_kill":
                cgroups.put(path, "oom_kill_count", int(event.group("value")), index, line)
            elif event.group("name") in ("max", "oom"):
                cgroups.put(path, f"{event.group('name')}_count", int(event.group("value")), index, line)
            continue
        match = _CGROUP_PATH.search(text)
        if match:
            path, file = match.group("path") or path, match.group("file")
            if match.group("value"):
                cgroups.value(path, file, match.group("value"), index, line)
                file = ""
        elif file and re.fullmatch(r"max|\d+", text):
            cgroups.value(path, file, text, index, line)
            file = ""
    return [
        Fact("cgroup", where, {"path": where, **fields}, places, document.source, document.host)
        for where, (fields, places) in cgroups.found.items()
    ]
