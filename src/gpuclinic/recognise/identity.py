"""Who a log line is about: rank, pid, GPU, host, from its prefix, its groups and its file's name."""

from __future__ import annotations

import functools
import re
from typing import NamedTuple


class Identity(NamedTuple):
    """What a line's prefix or a file's name tells; None where it does not.

    on_node: the host is named by the machine's own log (syslog, journal), not by a job, which may sit in a container.
    """

    rank: int | None = None
    pid: int | None = None
    host: str | None = None
    gpu_index: int | None = None
    on_node: bool = False


_RANK = (
    re.compile(r"\[(?:rank|process)(?: ?[:=] ?| ?)(?P<rank>\d{1,6})\]", re.IGNORECASE),
    re.compile(r"\[PG (?:ID )?\d+[^\]]{0,80}? Rank (?P<rank>\d{1,6})\]"),
    re.compile(r"^\[(?:\d+|default|[\w.@-]{1,60}@\d+),(?P<rank>\d{1,6})\](?:<std(?:err|out|diag)>)?:?"),
    re.compile(r"\brank ?= ?(?P<rank>\d{1,6})\b"),
    re.compile(r"^ {0,5}(?P<rank>\d{1,6}): (?!\S+: <| *\d+%\|)"),
    re.compile(r"^\[?(?:rank|RANK|Rank)[ _:=]?(?P<rank>\d{1,6})\]?[:|\s]"),
    re.compile(r"\((?:\w+)?Worker(?:_DP\d+)?_TP(?P<rank>\d{1,4})(?:_EP\d+)? pid=\d+\)"),
    re.compile(r"^\[?\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?: DP\d+)? TP(?P<rank>\d{1,4})(?: EP\d+)?\]"),
    re.compile(r"^\[default(?P<rank>\d{1,3})\]:"),
)
_RANK_HINTS = ("ank", "RANK", "rocess", "<std", "TP", "[default", "@", "[0,", "[1,")
_NCCL = re.compile(
    r"(?P<host>[A-Za-z0-9][\w.-]{0,80}):(?P<pid>\d{1,8}):\d{1,8} \[(?P<gpu>-?\d{1,3})\] (?:[\w/.]{1,40}:\d{1,5} )?NCCL "
)
_PID = re.compile(
    r"\((?:[\w:. =()-]{1,60} )?pid=(?P<pid>\d{1,8})(?:, ip=(?P<host>[\w.:-]{1,60}))?[,)]|\[pid[ =](?P<pid2>\d{1,8})\]"
)
_ACTOR = re.compile(r"\([\w:. =()-]{1,60} pid=\d+(?:, ip=[\w.:-]{1,60})?\) ?\[rank\d")
_UCX = re.compile(r"^\[\d{9,10}\.\d{3,6}\] \[(?P<host>[A-Za-z0-9][\w.-]{0,62}):(?P<pid>\d{1,8}) *:\d+\]")
_MPI = re.compile(r"^\[(?P<host>[A-Za-z][\w.-]{0,62}):(?P<pid>\d{2,8})(?::\d+:\d+)?\]")
_POD = re.compile(
    r"^\[pod/(?P<host>[a-z0-9][a-z0-9.-]{0,80})/[a-z0-9-]{1,63}\]|^(?P<host2>[a-z][\w-]{0,60}-\d{1,4}) +\| "
)
_PDSH = re.compile(
    r"^(?P<host>(?:(?:node|host|gpu|cn|gn|dgx|hgx|compute|worker|server)[\w.-]*\d|[a-z]\w*(?:-\w+)+-?\d+)[\w.]*): +\S"
)
_MONTHLY = r"(?:[^\W\d]{2,9}\.?|\d{1,2}[月월]) +\d{1,2} [\d:.,]{8,15}"
_ISO = r"20\d\d-\d\d-\d\d[T ][\d:.,]{8,18}(?: ?(?:Z|[A-Z]{3,4}|[+-]\d\d:?\d\d))?"
_HOST = r"(?P<host>[A-Za-z0-9][\w.-]{0,62})"
_SYSLOG_HOST = (
    re.compile(rf"^(?:<\d+>)?{_MONTHLY} {_HOST} [\w./@()-]{{1,60}}(?:\[\d+\])?(?::|\s-\s| -| \d+ )"),
    re.compile(rf"^(?:[A-Z][a-z]{{2}} )?{_ISO} {_HOST} (?:[\w./@()-]{{1,60}}\[\d+\]|kernel|sudo|systemd|CRON|su):"),
    re.compile(rf"^<\d+>1 {_ISO} {_HOST} \S+ (?:\d+|-) "),
)
_NOT_HOSTS = re.compile(
    r"^(?:INFO|WARN(?:ING)?|ERROR|DEBUG|FATAL|CRITICAL|TRACE|NOTICE|root|main|kernel|stdout|stderr|F|P|\d+)$",
    re.IGNORECASE,
)


def prefix_identity(line: str, upto: int = 0) -> Identity:
    """Identity from the first 200 characters of a line, or behind the last rank's mark in front of `upto` in it."""
    head = line[:200]
    if upto > 8 and line.count("[rank", 1, upto) > 0 and not _ACTOR.match(head):  # two ranks wrote onto one line
        head = line[line.rfind("[rank", 0, upto) :][:200]
    rank = _rank_of(head)
    pid = gpu = None
    host = None
    on_node = False
    if "NCCL" in head and (found := _NCCL.search(head)):
        host, pid, gpu = found["host"], int(found["pid"]), int(found["gpu"])
    if pid is None and ("pid=" in head or "[pid" in head) and (found := _PID.search(head)):
        pid, host = int(found["pid"] or found["pid2"]), found["host"] or host
    if host is None:
        host = _syslog_host(head)
        on_node = host is not None
    if host is None and head[:1] == "[" and (found := _MPI.match(head)):
        host, pid = found["host"], int(found["pid"]) if pid is None else pid
    if host is None and head[:1] == "[" and (found := _UCX.match(head)):
        host, pid = found["host"], int(found["pid"]) if pid is None else pid
    if host is None and (found := _POD.match(head)):
        host = found["host"] or found["host2"]
    if host is None and (found := _PDSH.match(head)):
        host = found["host"]
    return Identity(rank, pid, host, gpu if gpu is not None and gpu >= 0 else None, on_node)


def _syslog_host(head: str) -> str | None:
    for pattern in _SYSLOG_HOST:
        found = pattern.match(head)
        if found:
            return None if _NOT_HOSTS.match(found["host"]) else found["host"]
    return None


def _rank_of(head: str) -> int | None:
    if not (any(hint in head for hint in _RANK_HINTS) or (head[:6].strip()[:1].isdecimal() and ": " in head[:12])):
        return None
    for pattern in _RANK:
        found = pattern.search(head)
        if found:
            return int(found["rank"])
    return None


_FILE_RANK = re.compile(r"(?:^|[^a-z])(?:global[-_]?)?rank[-_.]?(?P<rank>\d{1,6})(?:\D|$)", re.IGNORECASE)
_ELASTIC = re.compile(r"(?:^|/)attempt_\d+/(?P<rank>\d{1,6})/(?:stderr|stdout|error\.json)")
_NCCL_FILE = re.compile(r"nccl[\w-]*[._-](?P<host>[A-Za-z][\w-]*)[._](?P<pid>\d{2,8})(?:\.|$)", re.IGNORECASE)
_RAY_FILE = re.compile(
    r"(?:^|/)(?:python-core-)?worker-[0-9a-f]{20,}(?:-[0-9a-f]{8})?[-_](?P<pid>\d{2,8})\.(?:out|err|log)$"
)
_HOST_PART = re.compile(
    r"(?:^|[-_.])(?P<host>(?:node|host|gpu|cn|gn|ng|dgx|hgx|compute|worker|server|srv|ip|n|c|g)[a-z0-9]*?(?:[-_][a-z0-9]+?)*?(?<=\d))"
    r"(?=$|[-_.](?:log|txt|out|err|dmesg|kern|journal|syslog|messages|nvidia|rank|stdout|stderr|tar|json|gz)|\.[a-z]{2,4}$)",
    re.IGNORECASE,
)


@functools.lru_cache(maxsize=1024)
def file_identity(path: str) -> Identity:
    """What a file's name and its folders tell: rank, pid, host. The host is a guess, to be used with care."""
    name = path.rsplit("/", 1)[-1]
    found = _FILE_RANK.search(name) or _FILE_RANK.search(path) or _ELASTIC.search(path)
    rank = int(found["rank"]) if found else None
    named = _NCCL_FILE.search(name)
    if named:
        return Identity(rank, int(named["pid"]), named["host"])
    worker = _RAY_FILE.search(path)
    host = next((found["host"] for part in reversed(path.split("/")) if (found := _HOST_PART.search(part))), None)
    return Identity(rank, int(worker["pid"]) if worker else None, host)


_ADDRESS = re.compile(
    r"(?:(?P<domain>[0-9a-fA-F]{4,8}):)?(?P<bus>[0-9a-fA-F]{2}):(?P<device>[0-9a-fA-F]{2})(?:\.(?P<function>[0-7]))?$"
)


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
