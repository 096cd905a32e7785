"""The texts of the causes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from gpuclinic.knowledge import DATA, load
from gpuclinic.knowledge.causes import cause_ids, cause_info
from gpuclinic.model import ACTIONS
from gpuclinic.report._layout import columns

if TYPE_CHECKING:
    from gpuclinic.knowledge._records import CauseInfo, Step

ROWS = [line.split("\t") for line in (DATA / "cause_ids.tsv").read_text(encoding="utf-8").splitlines()[1:]]
CAUSES = load().causes
PLACES = {"gpu", "gpu_index", "pid", "host", "rank"}
DOMAINS = {"application", "environment", "node", "network", "storage", "scheduler", "security"}
OF_DEVICE_MEMORY = {
    "app.cuda_oom",
    "app.cuda_oom_shared",
    "app.cuda_oom_fragmentation",
    "app.vram_leak",
    "process.orphan_vram",
}


def texts(cause: CauseInfo, lang: str) -> list[str]:
    """All texts of a cause in a language."""
    steps: list[Step] = [*cause.steps, *cause.missing]
    return [getattr(cause, f"title_{lang}"), getattr(cause, f"text_{lang}"), *(getattr(s, lang) for s in steps)]


def test_every_id_has_texts_once() -> None:
    assert sorted(c.id for c in CAUSES) == sorted(row[0] for row in ROWS if row[0] != "unknown")
    assert set(cause_ids()) == {row[0] for row in ROWS}


@pytest.mark.parametrize("row", [r for r in ROWS if r[0] != "unknown"], ids=lambda r: r[0])
def test_layer_domain_and_action_are_the_tables(row: list[str]) -> None:
    info = cause_info(row[0])
    assert [info.layer, info.domain, info.action] == row[1:4]
    assert info.domain in DOMAINS
    assert info.action in ACTIONS


@pytest.mark.parametrize("cause", CAUSES, ids=lambda c: c.id)
def test_each_cause_is_sound(cause: CauseInfo) -> None:
    assert cause.severity in {"critical", "warning", "info"}
    assert cause.source
    assert cause.steps
    assert cause.missing
    assert "{" not in cause.title_en + cause.title_zh + cause.text_en + cause.text_zh
    assert len(cause.title_en) <= 90
    assert columns(cause.title_zh) <= 90
    assert 1 <= len(re.findall(r"[.!?](?:\s|$)", cause.text_en)) <= 4
    for step in (*cause.steps, *cause.missing):
        assert step.risk in {"none", "job", "gpu", "node"}
        assert set(re.findall(r"\{(\w+)\}", step.command)) <= PLACES
        assert step.command.count("{") == len(re.findall(r"\{(?:gpu|gpu_index|pid|host|rank)\}", step.command)) + (
            step.command.count("{limits") + step.command.count("{nvidia.com")
        )
        assert "\n" not in step.command


@pytest.mark.parametrize("cause", CAUSES, ids=lambda c: c.id)
def test_languages_are_kept_apart(cause: CauseInfo) -> None:
    for text in texts(cause, "en"):
        assert text
        assert text.isascii(), text
    for text in texts(cause, "zh"):
        assert re.search(r"[\u4e00-\u9fff]", text), text
        assert not re.search(r"[,;?!](?:\s|$)", text), f"half-width punctuation: {text}"
        assert not re.search(r"\b(?:the|and|or|is|are|with)\b", text), text


def test_device_memory_is_never_called_host_memory() -> None:
    for cause in CAUSES:
        for text in texts(cause, "zh"):
            for found in re.finditer("内存", text):
                before = text[max(0, found.start() - 12) : found.start()]
                assert not re.search(r"(?:GPU|CUDA|显卡)\s?$", before), (cause.id, text)
            if cause.id in OF_DEVICE_MEMORY:
                assert "内存" not in text.replace("主机内存", ""), (cause.id, text)
    for identity in ("host.oom_killer", "host.cgroup_oom", "host.memory_pressure"):
        assert "内存" in cause_info(identity).title_zh
        assert "显存" not in cause_info(identity).title_zh


def test_out_of_memory_remedies_come_in_order() -> None:
    steps = " | ".join(step.en.lower() for step in cause_info("app.cuda_oom").steps)
    order = ["batch size", "gradient checkpointing", "precision", "zero", "offload"]
    assert [steps.index(word) for word in order] == sorted(steps.index(word) for word in order)
