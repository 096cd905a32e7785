"""Builds findings from judged rows, and settles which of all findings explain others."""

from __future__ import annotations

import fnmatch
import math
import re
from typing import TYPE_CHECKING, Any

import msgspec

from gpuclinic.clinic.answer import fill
from gpuclinic.clinic.software_judge import harmless_line
from gpuclinic.diagnose.evidence import fields_of
from gpuclinic.knowledge import load_checks
from gpuclinic.knowledge.causes import cause_info
from gpuclinic.knowledge.graph import edge_between
from gpuclinic.model import SEVERITIES, Finding, Where
from gpuclinic.recognise.decoding import printable

if TYPE_CHECKING:
    from gpuclinic.diagnose.judge import Judged
    from gpuclinic.knowledge import Check
    from gpuclinic.model import Fact

_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


def from_judged(one: Judged, lang: str, host: str | None = None) -> Finding:
    """A row that holds about a subject, as people and programs get it."""
    row, fact = one.row, one.fact
    suffix = "zh" if lang == "zh" else "en"
    names = {"host": host, **_places(fact)}
    cause = str(names.get(row.cause_field) or row.cause)
    info = cause_info(cause) if cause else None
    steps = [
        {"text": fill(getattr(step, suffix), names), "command": fill(step.command, _safe(names)), "risk": step.risk}
        for step in (row.steps or (info.steps if info else []))
    ]
    title = fill(getattr(row, f"title_{suffix}"), names) or re.sub(r"\{\w+\}", "?", getattr(row, f"title_{suffix}"))
    detail = fill(getattr(row, f"detail_{suffix}"), names) or (getattr(info, f"text_{suffix}") if info else "")
    return Finding(
        id=row.id, severity=one.severity or "info", component=row.component, subject=_subject(row, fact, names),
        title=printable(title)[:300], detail=printable(detail), cause=cause or None,
        action=row.action or (info.action if info else "none"), steps=[s for s in steps if s["text"]][:8],
        observed=_measured(row.observed, row.unit, names), expected=_expected(row, names), evidence=_evidence(row, fact),
        gpu=_gpu(names), gpu_index=_whole(names.get("gpu_index", names.get("index"))) if _gpu(names) or row.component == "gpu" else None,
        pid=_whole(names.get("pid")),
    )  # fmt: skip


def _places(fact: Fact | None) -> dict[str, Any]:
    """A fact's fields as texts have them: numbers short, the GPU's address and index under the names that steps use."""
    if fact is None:
        return {}
    names = {k: (f"{v:g}" if isinstance(v, float) else v) for k, v in fields_of(fact).items()}
    address = _gpu(names)
    if address is not None:
        names.setdefault("gpu", address)
    if isinstance(names.get("index"), int):
        names.setdefault("gpu_index", names["index"])
    return names


def _safe(names: dict[str, Any]) -> dict[str, Any]:
    safe = {k: v if re.fullmatch(r"[\w:.@/+,-]{1,200}", str(v), re.ASCII) else "" for k, v in names.items()}
    line = harmless_line(str(names.get("install") or ""))
    return safe | ({"install": line} if line else {})


def _gpu(names: dict[str, Any]) -> str | None:
    if names.get("is_gpu") is False:
        return None  # a bridge or an NVSwitch has an address, too
    for name in ("gpu", "bus_id", "gpu_key", "key"):
        value = str(names.get(name) or "")
        if _ADDRESS.fullmatch(value):
            return value
    return None


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _subject(row: Check, fact: Fact | None, names: dict[str, Any]) -> str:
    if fact is None:
        return "host"
    return str(names.get(row.subject) if row.subject else None or fact.key)


def _measured(field: str, unit: str, names: dict[str, Any]) -> dict[str, Any] | None:
    value = names.get(field) if field else None
    return None if value is None else {"value": _typed(value), "unit": unit or None}


def _typed(value: Any) -> Any:
    if isinstance(value, str):
        try:
            number = float(value)
        except ValueError:
            return value
        if not math.isfinite(number):
            return value  # "infinity", "nan": words
        return int(number) if number.is_integer() else number
    return value


def _expected(row: Check, names: dict[str, Any]) -> dict[str, Any] | None:
    if not row.expected:
        return None
    if row.expected in names:
        return _measured(row.expected, row.unit, names)
    if re.fullmatch(r"-?\d+(\.\d+)?", row.expected):
        return {"value": _typed(row.expected), "unit": row.unit or None}
    if row.expected.isidentifier():
        return None  # a field that this subject has not got
    return {"value": row.expected, "unit": row.unit or None}


def _evidence(row: Check, fact: Fact | None) -> list[Where]:
    if fact is None:
        return []
    fields = row.evidence or ([row.observed] if row.observed else []) or [""]
    out: list[Where] = []
    for field in fields:
        if field and field not in fact.fields:
            continue
        place = fact.where(field)
        place = msgspec.structs.replace(
            place, text=printable(place.text or f"{field} = {fact.fields.get(field)}")[:500]
        )
        if place not in out:
            out.append(place)
    return out[:8] or [fact.where()]


def settled(findings: list[Finding]) -> list[Finding]:
    """Each thing once, worst first; what another explains goes under it."""
    unique: dict[tuple[str, str, int | None], Finding] = {}
    for one in findings:
        key = (one.id, one.gpu or one.subject, one.pid)
        held = unique.get(key)
        if held is None or SEVERITIES.index(one.severity) > SEVERITIES.index(held.severity):
            unique[key] = one
    every = list(unique.values())
    kept: dict[int, Finding] = {}
    implied: dict[int, list[Finding]] = {}
    for one, top in zip(every, tops(every), strict=True):
        kept.setdefault(id(top), top)
        if top is not one:
            implied.setdefault(id(top), []).append(one)
    out = [_with_implied(top, implied.get(place, [])) for place, top in kept.items()]
    return sorted(out, key=lambda f: -SEVERITIES.index(f.severity))


def tops(findings: list[Finding]) -> list[Finding]:
    """For each finding the one that explains it in the end; itself where nothing does."""
    rows = {row.id: row for row in load_checks().checks}
    above = {id(one): by for one in findings if (by := _implying(one, findings, rows)) is not None}
    return [_topmost(one, above) for one in findings]


def _topmost(one: Finding, above: dict[int, Finding]) -> Finding:
    """What explains a finding in the end; of findings that explain one another in a ring, the first that was met."""
    path = [one]
    while id(path[-1]) in above:
        step = above[id(path[-1])]
        if any(step is known for known in path):
            ring = path[next(n for n, known in enumerate(path) if known is step) :]
            return min(ring, key=lambda f: (-SEVERITIES.index(f.severity), f.id, f.subject))
        path.append(step)
    return path[-1]


def _implying(one: Finding, others: list[Finding], rows: dict[str, Check]) -> Finding | None:
    """The finding that explains this one: named by its row, or of the same cause on the same GPU and told by a row.

    What explains is never milder than what it explains, else the verdict would get better by it.
    """
    row = rows.get(one.id)
    names = row.implied_by if row is not None else _of_log(one.id)
    for other in others:
        if other is one or SEVERITIES.index(other.severity) < SEVERITIES.index(one.severity):
            continue
        same = other.gpu == one.gpu or other.gpu is None or one.gpu is None
        if _alike(row, rows.get(other.id)) and other.subject != one.subject:
            continue  # two disks, two ports, two cgroups
        if same and any(fnmatch.fnmatchcase(other.id, name) for name in names):
            return other
        if row is None and other.id in rows and other.cause == one.cause and _may_be_same(one, other):
            return other  # the log tells of what the device itself shows, too
        if (one.id in rows) != (other.id in rows) and _leads_to(other, one):
            return other
    return None


def _may_be_same(logged: Finding, seen: Finding) -> bool:
    """A log's finding is about the device that a row is about; logs do not always name it."""
    if logged.gpu is not None:
        return logged.gpu in (seen.gpu, seen.subject)
    return not _ADDRESS.fullmatch(logged.subject) or logged.subject == seen.subject  # an NVSwitch's


def _of_log(identity: str) -> list[str]:
    """What explains a finding that a log told."""
    return [name for row in load_checks().log_findings if row.id == identity for name in row.implied_by]


_OF_THE_NODE = ("hw.", "driver.", "kernel.")


def _leads_to(cause: Finding, other: Finding) -> bool:
    """One is told by a log, the other by what is seen now: the cause graph, or the same cause told more gravely or exactly, joins them."""
    if not (
        cause.cause and other.cause and cause.cause.startswith(_OF_THE_NODE) and other.cause.startswith(_OF_THE_NODE)
    ):
        return False
    if cause.cause == other.cause:
        if cause.gpu is None:
            return False
        if other.gpu is None and not _ADDRESS.fullmatch(other.subject):
            return other.component == cause.component  # the log names the card that the tool could not name
        return SEVERITIES.index(cause.severity) > SEVERITIES.index(other.severity) and cause.gpu == other.gpu
    return edge_between(cause.cause, other.cause) is not None and (
        cause.gpu == other.gpu or None in (cause.gpu, other.gpu)
    )


def _alike(row: Check | None, other: Check | None) -> bool:
    """Both rows are about things of one sort, so that only the same thing can explain itself."""
    return (
        row is not None
        and other is not None
        and bool((row.over and row.over == other.over) or (row.subject and row.subject == other.subject))
    )


def _with_implied(one: Finding, implied: list[Finding]) -> Finding:
    if not implied:
        return one
    evidence = list(one.evidence)
    for other in implied:
        evidence += [place for place in other.evidence[:2] if place not in evidence]
    usual = cause_info(one.cause).action if one.cause else ""
    exact = next((f for f in implied if f.id.startswith("log.") and f.cause == one.cause and f.action != usual), None)
    if exact is not None and one.action == usual:  # the log says what is wrong with it, the row only that it is
        one = msgspec.structs.replace(one, action=exact.action, steps=exact.steps)
    devices = {f.gpu for f in implied if f.gpu}
    if (
        one.gpu is None and one.component == "gpu" and len(devices) == 1
    ):  # the driver could not say which; the bus could
        one = msgspec.structs.replace(one, gpu=devices.pop())
    return msgspec.structs.replace(one, implies=sorted({*one.implies, *(f.id for f in implied)}), evidence=evidence[:8])
