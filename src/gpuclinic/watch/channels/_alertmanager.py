"""Prometheus' Alertmanager, API v2: labels that stay the same, so that it knows an alert again; texts as annotations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from gpuclinic.watch.channels._http import post
from gpuclinic.watch.channels._message import iso

if TYPE_CHECKING:
    from gpuclinic.watch.channels._message import Message
    from gpuclinic.watch.config import Channel

RESEND_S = 60.0
"""What holds is told again so often: Alertmanager takes for over what it has not heard of for its resolve_timeout."""
_LIVES_S = 5 * RESEND_S


def send(channel: Channel, messages: list[Message], secret: str | None) -> None:
    """POST /api/v2/alerts. An end in the future says "over, unless told again"; that of a test comes after a minute."""
    headers = {"Authorization": f"Bearer {secret}"} if secret else {}
    base = channel.url.rstrip("/").removesuffix("/api/v2/alerts")
    post(f"{base}/api/v2/alerts", msgspec.json.encode([alert_of(m) for m in messages]), headers)


def alert_of(message: Message) -> dict[str, Any]:
    """One element of the list that the API takes (Alertmanager, api/v2/openapi.yaml, postableAlert)."""
    data = message.data
    labels = {
        "alertname": data["rule"], "severity": message.severity, "instance": data["host"], "subject": data["subject"],
        "component": data["component"], "alert_id": message.id,
    }  # fmt: skip
    for label, field in (("gpu", "gpu_index"), ("pci_bus_id", "gpu"), ("cause", "cause")):
        if data.get(field) is not None:
            labels[label] = str(data[field])
    evidence = "\n".join(f"{place['source']}: {place['text']}" for place in data["evidence"][:4])
    action = data["steps"][0]["text"] if data["steps"] else data["action"]
    notes = {"summary": data["title"], "description": message.body, "evidence": evidence, "action": action}
    lives = 60.0 if message.what == "test" else _LIVES_S
    return {
        "labels": {k: v for k, v in labels.items() if v},
        "annotations": {k: v for k, v in notes.items() if v},
        "startsAt": data["fired_at"],
        "endsAt": data["resolved_at"] or iso(message.at + lives),
    }
