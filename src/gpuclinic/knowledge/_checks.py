"""Check rows and the table of findings, as data. One row says when a finding holds; `diagnose.judge` is what reads it."""

from __future__ import annotations

import fnmatch
import functools
from typing import TYPE_CHECKING, Any

import msgspec

from gpuclinic.knowledge._load import DATA, packed
from gpuclinic.knowledge._records import Step

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

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
    besides its functions they may use grown("field"), per_minute("field"), slope_per_hour("field"), trend("field"),
    hours_until("field", limit) and span() over the window of samples, and of the past usual("field"), usual_low and usual_high.
    for_s: seconds for which the condition must have held in every sample. rate: the condition compares samples, so two are needed.
    window_s: over so many seconds a stream of samples compares them (0: a minute).
    loaded: holds only while the subject is at work (nothing is said of an idle link).
    implied_by: findings that, on the same subject or on the machine, explain this one; it is then shown under them.
    deep: judged only with --deep.
    observed, expected: fields (or for expected a number, a text or an expression) shown; unit: of both.
    cause: an id of the causes; action and steps default to the cause's. cause_field: a field that names the cause where the fact has it.
    subject: a field that names what it is about (default: the key).
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
    window_s: float = 0.0
    implied_by: list[str] = []
    cause: str = ""
    cause_field: str = ""
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


class Watched(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How rows are judged that are meant for one look, where the machine is watched without a break.

    rows: globs of ids; the first entry that fits counts. for_s: seconds for which they must hold before they are told: a look meets a
    moment by chance, a watcher meets every moment, also the second in which a job starts. off: not judged there, why says the reason.
    """

    rows: list[str]
    why: str
    for_s: float = 0.0
    off: bool = False


class CheckTables(msgspec.Struct, frozen=True):
    """All check rows, how they are watched, and which findings the causes in logs become."""

    checks: list[Check]
    log_findings: list[LogFinding]
    unknown_code: UnknownCode
    watched: list[Watched] = []


@functools.cache
def load_checks() -> CheckTables:
    """The shipped rows, in the order of the files."""
    return packed("checks", sorted((DATA / "checks").glob("*.toml")), _parse, CheckTables)


def _parse(raw: dict[str, list[Any]]) -> CheckTables:
    return CheckTables(
        msgspec.convert(raw.get("check", []), list[Check]),
        msgspec.convert(raw.get("log_finding", []), list[LogFinding]),
        msgspec.convert(raw["unknown_code"][0], UnknownCode),
        msgspec.convert(raw.get("watched", []), list[Watched]),
    )


def watched_rows(
    rows: Iterable[Check], for_s: Mapping[str, float] | None = None, off: Iterable[str] = ()
) -> list[Check]:
    """The rows as a watcher judges them: with the durations of the table, or those given by id; without those switched off.

    off: ids or beginnings of ids up to a dot.
    """
    table = load_checks().watched
    given = dict(for_s or {})
    names = list(off)
    out: list[Check] = []
    for row in rows:
        entry = next((w for w in table if any(fnmatch.fnmatchcase(row.id, g) for g in w.rows)), None)
        if (entry is not None and entry.off) or any(
            row.id == n or row.id.startswith(n.rstrip(".") + ".") for n in names
        ):
            continue
        seconds = given.get(row.id, max(row.for_s, entry.for_s) if entry is not None else row.for_s)
        out.append(row if seconds == row.for_s else msgspec.structs.replace(row, for_s=seconds))
    return out
