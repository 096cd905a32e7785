"""Who a log line is about: rank, pid, GPU, host, from its prefix, its groups and its file's name."""

from __future__ import annotations

import functools
import re
from typing import NamedTuple


class Identity(NamedTuple):
    """What a line's prefix tells; None where it does not."""

    rank: int | None = None
    pid: int | None = None
    host: str | None = None
    gpu_index: int | None = None


_RANK = (
    re.compile(r"\[rank[ =:]?(?P<rank>\d{1,6})\]", re.IGNORECASE),
    re.compile(r"\[PG (?:ID )?\d+[^\]]{0,80}? Rank (?P<rank>\d{1,6})\]"),
    re.compile(r"\[Rank (?P<rank>\d{1,6})\]"),
    re.compile(r"^\[(?:\d+|default),(?P<rank>\d{1,6})\]<std(?:err|out)>"),
    re.compile(r"\brank=(?P<rank>\d{1,6})\b"),
    re.compile(r"^(?P<rank>\d{1,6}): "),
    re.compile(r"^\[?(?:rank|RANK)[ _:=]?(?P<rank>\d{1,6})\]?[:|\s]"),
    re.compile(r"_TP(?P<rank>\d{1,4}) pid=\d+\)"),
)
_LOCAL_RANK = re.compile(r"^\[default(?P<rank>\d{1,3})\]:")
_NCCL = re.compile(r"(?P<host>[A-Za-z0-9][\w.-]{0,80}):(?P<pid>\d{1,8}):\d{1,8} \[(?P<gpu>-?\d{1,3})\] (?:[\w/.]{1,40}:\d{1,5} )?NCCL ")
_PID = re.compile(r"\((?:[\w:. -]{1,60} )?(?:[\w=]{1,20} )?pid=(?P<pid>\d{1,8})(?:, ip=(?P<host>[\w.:-]{1,60}))?\)")
_SYSLOG_HOST = re.compile(
    r"^(?:<\d+>(?:1 )?)?(?:[A-Z]?[a-zäéû]{2,4}\.? +\d{1,2} [\d:.,]{8,15}|20\d\d-\d\d-\d\dT[\d:.,]{8,18}(?:Z|[+-]\d\d:?\d\d)?) (?P<host>[A-Za-z0-9][\w.-]{0,62}) (?P<tag>[\w./@()-]{1,60})(?:\[\d+\])?(?::|\s-\s| -| \d+ )"
)
_FILE_RANK = re.compile(r"(?:^|[^a-z])rank[-_.]?(?P<rank>\d{1,6})(?:\D|$)", re.IGNORECASE)


def prefix_identity(line: str) -> Identity:
    """Identity from the first 200 characters of a line."""
    head = line[:200]
    rank = pid = gpu = None
    host = None
    if "NCCL" in head:
        found = _NCCL.search(head)
        if found:
            host, pid, gpu = found["host"], int(found["pid"]), int(found["gpu"])
    if "ank" in head or "RANK" in head or "<std" in head or "_TP" in head or (head[:1].isdigit() and ": " in head[:9]):
        for pattern in _RANK:
            found = pattern.search(head)
            if found:
                rank = int(found["rank"])
                break
    if "pid=" in head and pid is None:
        found = _PID.search(head)
        if found:
            pid, host = int(found["pid"]), found["host"] or host
    if host is None:
        found = _SYSLOG_HOST.match(head)
        if found:
            host = found["host"]
    return Identity(rank, pid, host, gpu if gpu is not None and gpu >= 0 else None)


@functools.lru_cache(maxsize=1024)
def file_rank(path: str) -> int | None:
    """The rank a file's name tells, or None."""
    found = _FILE_RANK.search(path.rsplit("/", 1)[-1]) or _FILE_RANK.search(path)
    return int(found["rank"]) if found else None


_ADDRESS = re.compile(r"(?:(?P<domain>[0-9a-fA-F]{4,8}):)?(?P<bus>[0-9a-fA-F]{2}):(?P<device>[0-9a-fA-F]{2})(?:\.(?P<function>[0-7]))?$")


def pci_address(text: str) -> str | None:
    """A PCI address in any tool's spelling as "0000:9a:00.0"; None where the text is none.

    >>> pci_address("00000000:9A:00.0"), pci_address("PCI:0000:9a:00"), pci_address("9a:00")
    ('0000:9a:00.0', '0000:9a:00.0', '0000:9a:00.0')
    """
    found = _ADDRESS.search(text.strip().removeprefix("PCI:").removeprefix("pci:").strip())
    if not found:
        return None
    domain = int(found["domain"] or "0", 16)
    return f"{domain:04x}:{found['bus'].lower()}:{found['device'].lower()}.{found['function'] or 0}"
