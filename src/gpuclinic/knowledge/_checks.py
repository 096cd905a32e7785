"""Check rows and the table of findings, as data. One row says when a finding holds; `diagnose.judge` is what reads it."""

from __future__ import annotations

import functools
from typing import Any

import msgspec

from gpuclinic.knowledge._load import DATA, packed
from gpuclinic.knowledge._records import Step

COMPONENTS = frozenset(
    ["gpu", "pcie", "nvlink", "thermal", "power", "process",
     "driver", "kernel", "host", "storage", "network", "container", "scheduler", "software", "security"]
)  # fmt: skip


class Check(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One row: what is looked at, when it is a finding, and what is said then.

    id: of the finding (docs/findings.md). look: the look that brings its facts. over: a fact kind; the row is judged for each fact
    of it by itself. Empty: judged once for the machine.
    where: which of these facts the row is about at all (the feature exists on that SKU). needs: fields that must be there, else
    "not looked at". critical, warning, info: conditions in the language of diagnose.expression, the worst that holds counts;
    besides its functions they may use grown("field"), per_minute("field") and span() over the window of samples.
    for_s: seconds for which the condition must have held in every sample. rate: the condition compares samples, so two are needed.
    loaded: holds only while the subject is at work (nothing is said of an idle link).
    implied_by: findings that, on the same subject or on the machine, explain this one; it is then shown under them.
    deep: judged only with --deep.
    observed, expected: fields (or for expected a number, a text or an expression) shown; unit: of both.
    cause: an id of the causes; action and steps default to the cause's. subject: a field that names what it is about (default: the key).
    evidence: fields whose places are shown (default: observed).
    holds and holds_not: windows as [{kind = [fields...]}, ...] samples that the tests judge; "severity" in the first sample says which.
    """

    id: str
    component: str
    look: str
    source: str
    title_en: str
    title_zh: str
    over: str = ""
    where: str = ""
    needs: list[str] = []
    critical: str = ""
    warning: str = ""
    info: str = ""
    for_s: float = 0.0
    rate: bool = False
    deep: bool = False
    implied_by: list[str] = []
    cause: str = ""
    action: str = ""
    subject: str = ""
    observed: str = ""
    expected: str = ""
    unit: str = ""
    evidence: list[str] = []
    detail_en: str = ""
    detail_zh: str = ""
    steps: list[Step] = []
    holds: list[list[dict[str, list[Any]]]] = []
    holds_not: list[list[dict[str, list[Any]]]] = []


class LogFinding(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a cause becomes that the logs of this machine show; the first row that fits counts.

    cause: a glob. signs: globs of signatures (or "xid.79"), one of which must support the cause; such a row counts even where healthy
    machines print the line, too. least: how strong the cause must be, 0-1. per_day: how many lines a day one of the reasons must have.
    severity: while it is fresh; older than fresh_s seconds it is one step milder, older than ten times that it is info.
    ends: what is over makes it one step milder at once: "boot", the machine was booted after the last line; "driver", or the driver was
    loaded anew; "answers", or the GPU answers NVML now. title_en, title_zh: where the cause's own says too much. implied_by: as of a check.
    """

    cause: str
    id: str
    component: str
    severity: str = "warning"
    signs: list[str] = []
    fresh_s: float = 86400.0
    ends: str = ""
    implied_by: list[str] = []
    least: float = 0.5
    per_day: float = 0.0
    title_en: str = ""
    title_zh: str = ""


class UnknownCode(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The finding for Xids and SXids in the log that no catalogue lists."""

    id: str
    severity: str
    component: str
    action: str
    title_en: str
    title_zh: str
    steps: list[Step] = []


class CheckTables(msgspec.Struct, frozen=True):
    """All check rows and which findings the causes in logs become."""

    checks: list[Check]
    log_findings: list[LogFinding]
    unknown_code: UnknownCode


@functools.cache
def load_checks() -> CheckTables:
    """The shipped rows, in the order of the files."""
    return packed("checks", sorted((DATA / "checks").glob("*.toml")), _parse, CheckTables)


def _parse(raw: dict[str, list[Any]]) -> CheckTables:
    return CheckTables(
        msgspec.convert(raw.get("check", []), list[Check]),
        msgspec.convert(raw.get("log_finding", []), list[LogFinding]),
        msgspec.convert(raw["unknown_code"][0], UnknownCode),
    )
