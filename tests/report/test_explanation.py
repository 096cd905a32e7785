"""How explanations look."""

from __future__ import annotations

import json
import re

import pytest

from gpuclinic.clinic.explain import explain
from gpuclinic.knowledge.causes import cause_ids
from gpuclinic.report._layout import columns
from gpuclinic.report.explanation import explain_json, explain_text

TOPICS = [
    "xid 79",
    "exit 137",
    "ENOSPC",
    "cuda 802",
    "k8s OOMKilled",
    "slurm NF",
    "app.cuda_oom",
    "xid 9999",
    "79",
    "no such thing",
]


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("topic", TOPICS)
def test_json_has_the_contracts_fields(topic: str, lang: str) -> None:
    body = json.loads(explain_json(explain(topic, lang), lang))
    fields = {"topic", "code", "name", "fault", "severity", "action", "escalation", "cause", "text", "source"}
    assert fields <= set(body)
    assert (body["kind"], body["schema"], body["lang"]) == ("explain", 1, lang)


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("topic", [*TOPICS, *(c for c in cause_ids() if c != "unknown")])
def test_text_keeps_the_width(topic: str, lang: str) -> None:
    text = explain_text(explain(topic, lang), lang, colour=False, width=80)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", text)
    body = text.split("\n")[1:]
    assert all(columns(line) <= 80 or re.match(r" {5,}\S", line) for line in body), text


def test_pasted_secrets_are_masked() -> None:
    text = explain_json(explain("HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz failed"), "en")
    assert "abcdefghij" not in text
