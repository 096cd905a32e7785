"""Small readers of the words that GPU tools print: addresses, numbers with units, yes and no, errors, dates."""

from __future__ import annotations

import re
from datetime import datetime, timezone

from gpuclinic.model import Document, Fact, Stamp, Where

Scalar = str | int | float | bool | None
"""What a field of a fact may be."""

_ADDRESS = re.compile(
    r"(?<![0-9A-Fa-f])(?<![0-9A-Fa-f]:)(?:([0-9A-Fa-f]{4,8}):)?([0-9A-Fa-f]{2}):([0-9A-Fa-f]{2})(?:\.([0-7]))?(?!["
    r"0-9A-Fa-f:])"
)
_MOST = 1e30
_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
_MISSING = frozenset(
    ["n/a", "not available", "not supported", "requested functionality has been deprecated", "unknown", "none", "-", ""]
)
_TROUBLE = (
    ("gpu is lost", "GPU is lost"),
    ("gpu requires reset", "GPU requires reset"),
    ("unknown error", "Unknown Error"),
    ("err!", "ERR!"),
    ("gpu access blocked", "GPU access blocked by the operating system"),
)
_YES = frozenset(("yes", "true", "enabled", "active", "on", "enabled*", "supported", "y", "1"))
_NO = frozenset(("no", "false", "disabled", "not active", "off", "disabled*", "not supported", "n", "0"))
_DATES = (
    "%a %b %d %H:%M:%S %Y",
    "%Y/%m/%d %H:%M:%S.%f",
    "%Y/%m/%d %H:%M:%S",
    "%Y-%m-%d %H:%M:%S",
    "%Y-%m-%dT%H:%M:%S",
)
_DATE_START = re.compile(
    r"[A-Z][a-z]{2} [A-Z][a-z]{2} +\d{1,2} \d\d:\d\d:\d\d \d{4}|\d{4}[-/]\d\d[-/]\d\d[ T]\d\d:\d\d:\d\d(?:\.\d{1,6})?"
)


def pci_address(text: str) -> str | None:
    """The first PCI address in the text as "0000:9a:00.0"; None where there is none."""
    found = _ADDRESS.search(text)
    if not found or (found[1] is None and found[4] is None):
        return None
    domain, bus, device, function = found.groups()
    short = (domain or "0").lower().lstrip("0").rjust(4, "0")
    return f"{short}:{bus.lower()}:{device.lower()}.{function or '0'}"


def bare(text: str) -> str:
    """The text without surrounding blanks and the square brackets of csv cells."""
    text = text.strip()
    if text.startswith("[") and text.endswith("]"):
        text = text[1:-1].strip()
    return text


def is_missing(text: str) -> bool:
    """The tool has no value here (N/A and its kin)."""
    return bare(text).lower() in _MISSING


def trouble(text: str) -> str | None:
    """The error a tool prints in place of a value ("ERR!", "GPU is lost" ...), None where the text is no error."""
    low = text.lower()
    for mark, name in _TROUBLE:
        if mark in low:
            return name
    return None


def number(text: str) -> int | float | None:
    """The first number of "568.00 W", "16x", "97 %"; None where there is none."""
    if is_missing(text):
        return None
    found = _NUMBER.search(text)
    if not found or len(found.group()) > 40:
        return None
    value = found.group()
    told = float(value) if any(c in value for c in ".eE") else int(value)
    return told if abs(told) < _MOST else None


def whole(text: str) -> int | None:
    """The first number of the text, as an integer."""
    value = number(text)
    return None if value is None or abs(value) > 1e18 else int(value)


def yes(text: str) -> bool | None:
    """True for Yes, Enabled, Active, On; False for their opposites; None for anything else."""
    low = bare(text).lower()
    return True if low in _YES else False if low in _NO else None


def stamp(text: str) -> Stamp | None:
    """The first date in the text, as nvidia-smi and its csv write it (wall clock without a zone)."""
    found = _DATE_START.search(text)
    if not found:
        return None
    written = re.sub(r"\s+", " ", found.group())
    for form in _DATES:
        try:
            moment = datetime.strptime(written, form)
        except ValueError:
            continue
        return Stamp(moment.replace(tzinfo=timezone.utc).timestamp())
    return None


def snake(text: str) -> str:
    """A name as a field is spelled: "Replay Errors" becomes "replay_errors"."""
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")


class Draft:
    """A fact in the making: fields, and for each the line that shows it."""

    __slots__ = ("document", "fields", "key", "kind", "lines", "time")

    def __init__(self, document: Document, kind: str, key: str, index: int | None = None, line: str = "") -> None:
        self.document = document
        self.kind = kind
        self.key = key
        self.fields: dict[str, Scalar] = {}
        self.lines: dict[str, Where] = {}
        self.time: Stamp | None = None
        if index is not None:
            self.lines[""] = document.at(index, line)

    def put(self, field: str, value: Scalar, index: int | None = None, line: str = "") -> None:
        """Sets a field, and where it is shown."""
        self.fields[field] = value
        if index is not None:
            self.lines[field] = self.document.at(index, line)

    def fact(self) -> Fact:
        """The finished fact."""
        return Fact(
            kind=self.kind,
            key=self.key,
            fields=self.fields,
            lines=self.lines,
            source=self.document.source,
            host=self.document.host,
            time=self.time,
        )


def make(
    document: Document, kind: str, key: str, fields: dict[str, Scalar], index: int | None = None, line: str = ""
) -> Fact:
    """A fact whose fields all stand on one line."""
    draft = Draft(document, kind, key, index, line)
    draft.fields.update(fields)
    return draft.fact()
