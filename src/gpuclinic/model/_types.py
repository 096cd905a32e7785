"""The record types. Small on purpose: whatever needs logic lives in a room of its own."""

from __future__ import annotations

from typing import Any

import msgspec

Scalar = str | int | float | bool | None

ACTIONS = frozenset(
    [
        "restart_app",
        "fix_app",
        "reset_gpu",
        "reboot",
        "rma",
        "reseat_or_power",
        "cool",
        "reinstall_driver",
        "change_version",
        "fix_config",
        "free_memory",
        "add_memory",
        "kill_process",
        "network_fix",
        "storage_fix",
        "drain_node",
        "isolate_host",
        "contact_vendor",
        "collect_evidence",
        "none",
    ]
)
"""The remedies another program may meet in `action`; see docs/contract.md."""

LEVEL_CONFIDENCE = {"decisive": 0.96, "strong": 0.86, "likely": 0.66, "hint": 0.36, "context": 0.0}
"""What one signature of a level is worth alone, as a probability, before corroboration and rivals are weighed."""


class UserError(Exception):
    """A mistake of the person at the keyboard; printed as one line, without a traceback."""


class CouldNotError(UserError):
    """Nothing is wrong with the command line, but what it names is damaged, or takes no more: the answer is "unknown"."""


class Stamp(msgspec.Struct, frozen=True):
    """A point in time as a log tells it.

    seconds: Unix seconds (UTC where zoned, else as if the wall clock were UTC), or seconds since boot where uptime is true.
    zoned: the log gave a time zone. yearless: the year is a guess. uptime: counts from boot.
    earliest: taken from an earlier line, so the moment is this or later.
    """

    seconds: float
    zoned: bool = False
    yearless: bool = False
    uptime: bool = False
    earliest: bool = False


class Where(msgspec.Struct, frozen=True):
    """A place in what was read. line counts from 1 by line feed, None where there is none."""

    source: str
    line: int | None = None
    text: str = ""


Evidence = Where


class Document(msgspec.Struct, frozen=True):
    """A text small enough to hold, or one section of it, as parsers get it.

    source: path as shown to people. text: decoded, escapes stripped, line feeds only. first_line: number of its first line in source.
    name_hint: file name or command title ("nvidia-smi -q"), never trusted alone. host: the machine it is about, if known.
    """

    source: str
    text: str
    first_line: int = 1
    name_hint: str = ""
    host: str | None = None

    def lines(self) -> list[str]:
        """The lines without their line feeds."""
        return self.text.split("\n")

    def at(self, index: int, text: str | None = None) -> Where:
        """The place of the line with this index (from 0), its indentation kept; text defaults to nothing."""
        return Where(self.source, self.first_line + index, (text or "").rstrip()[:500])


class Fact(msgspec.Struct, frozen=True):
    """One thing a tool's output says: kind ("gpu", "fs", "process" ...), key (what it is about), fields with units in their names.

    lines: for a field (or "" for the whole) the place that shows it.
    """

    kind: str
    key: str
    fields: dict[str, Scalar]
    lines: dict[str, Where]
    source: str
    host: str | None = None
    time: Stamp | None = None

    def where(self, field: str = "") -> Where:
        """The place that shows the field, or the fact as a whole."""
        return self.lines.get(field) or self.lines.get("") or Where(self.source)


class Signal(msgspec.Struct, frozen=True):
    """What one log line said, recognised by a signature.

    gpu: PCI address "0000:9a:00.0". groups: the named groups of the signature's pattern. order: place in reading order.
    """

    signature: str
    where: Where
    order: int
    groups: dict[str, str]
    time: Stamp | None = None
    host: str | None = None
    rank: int | None = None
    pid: int | None = None
    gpu: str | None = None
    gpu_index: int | None = None
    gpu_uuid: str | None = None
    count: int = 1
    boot: int = 0


class ReadItem(msgspec.Struct, frozen=True):
    """Something that was read."""

    path: str
    kind: str
    bytes: int
    lines: int | None


class NotRead(msgspec.Struct, frozen=True):
    """Something that was not read, and why."""

    path: str
    why: str


class Cause(msgspec.Struct, frozen=True):
    """A ranked answer; see docs/contract.md for each field."""

    key: str
    role: str
    id: str
    confidence: float
    domain: str
    title: str
    explanation: str
    action: str
    steps: list[dict[str, str]]
    evidence: list[Where]
    explains: list[str]
    gpu: str | None = None
    gpu_index: int | None = None
    gpu_uuid: str | None = None
    gpus: list[str] = []
    pid: int | None = None
    rank: int | None = None
    host: str | None = None
    time: str | None = None
    extra: dict[str, Any] = {}


SEVERITIES = ("info", "warning", "critical")
"""Of findings, mildest first. info is never a fault."""


class Finding(msgspec.Struct, frozen=True):
    """What a check found; the fields are those of docs/contract.md.

    implies: ids of further findings that this one explains. time: ISO, of findings in logs.
    """

    id: str
    severity: str
    component: str
    subject: str
    title: str
    detail: str
    cause: str | None
    action: str
    steps: list[dict[str, str]]
    observed: dict[str, Any] | None
    expected: dict[str, Any] | None
    evidence: list[Where]
    gpu: str | None = None
    gpu_index: int | None = None
    pid: int | None = None
    host: str | None = None
    time: str | None = None
    implies: list[str] = []


class Gap(msgspec.Struct, frozen=True):
    """Something that a check could not look at. fix: what would make it possible."""

    check: str
    why: str
    required: bool = False
    fix: str | None = None
