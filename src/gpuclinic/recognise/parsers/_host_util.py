"""What the parsers of host and cluster tools share: sizes, durations, tables, and a short way to make a fact."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from gpuclinic.model import Document, Fact, Stamp, Where

if TYPE_CHECKING:
    from gpuclinic.model._types import Scalar

KIB, MIB, GIB = 1 / 1024, 1.0, 1024.0
"""Factors to MiB."""

MAX_FACTS = 4000
"""No output of one tool gives more facts than this; the rest would be noise or hostile."""

LONGEST_LINE = 20_000
"""Longer lines are no table rows; they are cut before any expression sees them."""

_SIZE = re.compile(r"^([\d][\d.,]*)\s*([KMGTPE]?)(i?)(B|o|b)?(?:ytes?)?$", re.IGNORECASE)
_POWER = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}
_PROMPT = re.compile(r"^(?:\(\S+\)\s*)?(?:\[?[\w.+-]+@[\w.-]+[^#$%>]{0,80}[#$%>]|[$#>]|❯|➜)\s+(?P<command>\S.*)$")
_DURATION = re.compile(r"^(?:(\d{1,9})-)?(?:(\d{1,9}):)?(\d{1,9}):(\d{1,9})(?:\.\d+)?$")
_AGE = re.compile(r"(\d{1,15}(?:\.\d{1,15})?)(d|h|m|s|ms|y|w)")
_AGE_SECONDS = {"y": 31536000.0, "w": 604800.0, "d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_RUNTIME_STAMP = re.compile(
    r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)(?: std(?:out|err) [FP])?(?: |$)"
)
_MOST = 1e30
"""No program prints a larger number."""
_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")


def clipped_lines(document: Document) -> list[str]:
    """The lines of the document, none longer than LONGEST_LINE."""
    return [line[:LONGEST_LINE].rstrip("\r") for line in document.lines()]


def unstamped_lines(document: Document) -> list[str]:
    """The lines without the time stamp that a container runtime puts before each, their own indentation kept."""
    return [_RUNTIME_STAMP.sub("", line, count=1) for line in clipped_lines(document)]


def number(text: str | None) -> float | None:
    """The first number in the text; "1,234" counts as 1234, "98,5" as 98.5."""
    if not text:
        return None
    cleaned = text.strip()
    if re.fullmatch(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?", cleaned):
        cleaned = cleaned.replace(",", "")
    elif re.fullmatch(r"[-+]?\d+,\d+", cleaned):
        cleaned = cleaned.replace(",", ".")
    match = _NUMBER.search(cleaned)
    value = float(match.group()) if match else None
    return value if value is not None and abs(value) < _MOST else None


def whole(text: str | None) -> int | None:
    """A whole number, or None."""
    value = number(text)
    return int(value) if value is not None and abs(value) < 1e18 else None


def size_mib(text: str | None, plain_unit: float = KIB) -> float | None:
    """A size as MiB: "64M", "503Gi", "1.8T", "16GB", "128Mi", "0B"; a bare number counts in plain_unit (MiB each)."""
    if not text:
        return None
    match = _SIZE.match(text.strip())
    if not match:
        return None
    value = number(match.group(1).rstrip(".,"))
    if value is None:
        return None
    letter = match.group(2).upper()
    if not letter:
        return value / 1048576 if match.group(4) else value * plain_unit
    return round(value * 1024.0 ** (_POWER[letter] - 2), 6)


def k8s_quantity(text: str | None) -> float | None:
    """A Kubernetes quantity as a plain number: "4", "500m", "16Gi", "1e3", "64G"."""
    if not text:
        return None
    match = re.fullmatch(r"([\d.]+(?:e[-+]?\d+)?)(m|[kKMGTPE]i?)?", text.strip().strip("\"'"))
    if not match:
        return None
    value = number(match.group(1))
    unit = match.group(2) or ""
    if value is None:
        return None
    if unit == "m":
        return value / 1000
    base = 1024.0 if unit.endswith("i") else 1000.0
    return value * base ** _POWER.get(unit[:1].upper(), 0)


def k8s_mib(text: str | None) -> float | None:
    """A Kubernetes memory quantity as MiB."""
    value = k8s_quantity(text)
    return round(value / 1048576, 3) if value is not None else None


def duration_s(text: str | None) -> float | None:
    """Seconds of "1-02:03:04", "02:03:04", "03:04", "3d4h", "98s", or a bare number."""
    if not text:
        return None
    text = text.strip()
    match = _DURATION.match(text)
    if match:
        days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
        return float(days * 86400 + hours * 3600 + minutes * 60 + seconds)
    match = re.fullmatch(r"(\d{1,9})-(\d{1,9})(?::(\d{1,9}))?", text)
    if match:
        return float(int(match.group(1)) * 86400 + int(match.group(2)) * 3600 + int(match.group(3) or 0) * 60)
    if re.fullmatch(r"\d{1,15}(?:\.\d{1,15})?", text):
        return float(text)
    parts = _AGE.findall(text)
    if parts and _AGE.sub("", text).strip(" ,") == "":
        return sum(float(value) * _AGE_SECONDS[unit] for value, unit in parts)
    return None


def command_of(line: str) -> str:
    """The command that a line of a terminal paste shows after its prompt; empty where it is no prompt line."""
    if len(line) > 2000:
        return ""
    match = _PROMPT.match(line.strip())
    return match.group("command").strip() if match else ""


def stamp(text: str, *formats: str) -> Stamp | None:
    """A point in time by the first format that fits; a zone in it counts."""
    for form in formats:
        try:
            moment = datetime.strptime(text.strip(), form)
        except ValueError:
            continue
        zoned = moment.tzinfo is not None
        try:
            seconds = (moment if zoned else moment.replace(tzinfo=timezone.utc)).timestamp()
        except (ValueError, OverflowError):
            return None
        return Stamp(seconds, zoned=zoned)
    return None


def iso_stamp(text: str) -> Stamp | None:
    """A point in time written as ISO 8601, with or without a zone."""
    text = re.sub(r"(\.\d{1,6})\d*", r"\1", text.strip())
    return stamp(
        text.replace("Z", "+0000"),
        "%Y-%m-%dT%H:%M:%S.%f%z",
        "%Y-%m-%dT%H:%M:%S%z",
        "%Y-%m-%dT%H:%M:%S.%f",
        "%Y-%m-%dT%H:%M:%S",
        "%Y-%m-%d %H:%M:%S%z",
        "%Y-%m-%d %H:%M:%S",
        "%Y-%m-%d  %H:%M:%S",
        "%Y-%m-%d %H:%M",
    )


def fact(
    document: Document,
    kind: str,
    key: str,
    fields: dict[str, Scalar],
    index: int,
    line: str,
    places: dict[str, Where] | None = None,
    time: Stamp | None = None,
) -> Fact:
    """A fact whose line as a whole is the one with this index. Fields that are None are left out."""
    kept: dict[str, Scalar] = {name: value for name, value in fields.items() if value is not None}
    lines = {"": document.at(index, line)}
    lines.update(places or {})
    return Fact(kind, key[:300], kept, lines, document.source, document.host, time)


class Spans:
    """The columns of a text table: name and the range of characters that its header (or its rule) covers."""

    def __init__(self, header: str, rule: str = "") -> None:
        """Reads the names of the header; where the rule ("---- ----") is given, its runs are the ranges."""
        names = [(m.group(), m.start(), m.end()) for m in re.finditer(r"\S+", header)]
        runs = [(m.start(), m.end()) for m in re.finditer(r"-+", rule)]
        if runs and len(runs) == len(names):
            names = [(name, *run) for (name, _, _), run in zip(names, runs, strict=True)]
        self.names = [name for name, _, _ in names]
        self.ranges = [(start, end) for _, start, end in names]

    def split(
        self, row: str, accepts: dict[str, re.Pattern[str]], tokens: re.Pattern[str] | None = None
    ) -> dict[str, str]:
        """The row's words, each in the nearest later column that accepts it; empty cells stay out."""
        found: dict[str, str] = {}
        first = 0
        for token in (tokens or re.compile(r"\S+")).finditer(row):
            best, best_distance = -1, 0
            for column in range(first, len(self.names)):
                check = accepts.get(self.names[column].lower())
                if check is not None and not check.fullmatch(token.group()):
                    continue
                start, end = self.ranges[column]
                distance = max(start - token.end(), token.start() - end, 0) * 4 + min(
                    abs(start - token.start()), abs(end - token.end())
                )
                if best < 0 or distance < best_distance:
                    best, best_distance = column, distance
            if best >= 0:
                found[self.names[best].lower()] = token.group()
                first = best + 1
        return found


def cells(line: str) -> list[str]:
    """The columns of a table that puts two or more spaces (or a tab) between them."""
    return [cell for cell in re.split(r"\t+| {2,}", line.strip()) if cell]
