"""The JSON of docs/contract.md."""

from __future__ import annotations

import datetime
from typing import Any

import msgspec

from gpuclinic import __version__
from gpuclinic.clinic import Answer


def envelope(kind: str, lang: str, host: str | None = None, boot_id: str | None = None) -> dict[str, Any]:
    """The fields that every JSON object has."""
    now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    return {"schema": 1, "kind": kind, "version": __version__, "host": host, "boot_id": boot_id, "time": now, "lang": lang}


def why_json(answer: Answer) -> str:
    """An answer of `why`."""
    body = envelope("why", answer.lang, answer.host)
    body["outcome"] = answer.outcome
    body["causes"] = [_cause(c) for c in answer.causes]
    body["fingerprint"] = answer.fingerprint
    body["read"] = answer.read
    body["not_read"] = answer.not_read
    body["missing"] = answer.missing
    body["notes"] = answer.notes
    return msgspec.json.format(msgspec.json.encode(body), indent=1).decode()


def _cause(cause: Any) -> dict[str, Any]:
    out: dict[str, Any] = msgspec.to_builtins(cause)
    out.update(out.pop("extra") or {})
    return out
