"""The JSON of docs/contract.md."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import msgspec

from gpuclinic import __version__
from gpuclinic.model import SEVERITIES
from gpuclinic.report._check_words import plain_title
from gpuclinic.report.holders import holders
from gpuclinic.report.machine import machine
from gpuclinic.report.masking import cleaned

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuclinic.clinic import Answer
    from gpuclinic.clinic.checking import CheckAnswer
    from gpuclinic.clinic.looks import Look
    from gpuclinic.knowledge import CheckTables
    from gpuclinic.model import Cause


def envelope(kind: str, lang: str, host: str | None = None, boot_id: str | None = None) -> dict[str, Any]:
    """The fields that every JSON object has."""
    now = dt.datetime.now(dt.timezone.utc).isoformat(timespec="seconds")
    return {
        "schema": 1,
        "kind": kind,
        "version": __version__,
        "host": host,
        "boot_id": boot_id,
        "time": now,
        "lang": lang,
    }


def why_json(answer: Answer) -> str:
    """An answer of `why`."""
    from gpuclinic.clinic.collect import (
        still_missing,  # brings the whole clinic, which other commands' JSON does without
    )

    body = envelope("why", answer.lang, answer.host, answer.boot_id)
    body["outcome"] = answer.outcome
    body["causes"] = [_cause(c) for c in answer.causes]
    body["fingerprint"] = answer.fingerprint
    body["read"] = msgspec.to_builtins(answer.read)
    body["not_read"] = msgspec.to_builtins(answer.not_read)
    body["missing"] = still_missing(answer)
    body["notes"] = answer.notes
    if answer.asked:
        body["asked"] = answer.asked
    return as_text(body)


def check_json(answer: CheckAnswer) -> str:
    """An answer of `check`."""
    body = envelope("check", answer.lang, answer.host, answer.boot_id)
    body["verdict"] = answer.verdict
    body["coverage"] = answer.coverage
    body["findings"] = [msgspec.to_builtins(finding) for finding in answer.findings]
    body["looked_at"] = answer.looked_at
    body["not_looked_at"] = [msgspec.to_builtins(gap) for gap in answer.not_looked_at]
    body["holders"] = holders(answer.facts)
    body["machine"] = machine(answer.facts)
    body["seconds"] = round(answer.seconds, 3)
    return as_text(body)


def list_json(looks: Iterable[Look], tables: CheckTables, lang: str) -> str:
    """All looks and findings of `check`."""
    body = envelope("check", lang)
    suffix = "zh" if lang == "zh" else "en"
    body["looks"] = [{"id": look.id, "deep": look.deep, "required": look.required} for look in looks]
    body["checks"] = [
        {"id": row.id, "component": row.component, "look": row.look, "title": plain_title(getattr(row, f"title_{suffix}")),
         "severities": [s for s in reversed(SEVERITIES) if getattr(row, s)], "cause": row.cause or None, "deep": row.deep}
        for row in tables.checks
    ]  # fmt: skip
    body["log_findings"] = sorted({row.id for row in tables.log_findings if row.severity != "none"})
    return as_text(body)


def as_text(body: dict[str, Any]) -> str:
    """The object as text: secrets masked, control characters replaced."""
    return msgspec.json.format(msgspec.json.encode(cleaned(body)), indent=1).decode()


def _cause(cause: Cause) -> dict[str, Any]:
    out: dict[str, Any] = msgspec.to_builtins(cause)
    out.update(out.pop("extra") or {})
    return out
