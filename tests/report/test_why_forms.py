"""The written forms of an answer."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from gpuclinic.clinic import Answer
from gpuclinic.model import ACTIONS, Cause, NotRead, ReadItem, Where
from gpuclinic.report import _words
from gpuclinic.report._layout import columns
from gpuclinic.report.as_json import why_json
from gpuclinic.report.markdown import why_markdown
from gpuclinic.report.oneline import why_oneline
from gpuclinic.report.terminal import why_text

if TYPE_CHECKING:
    from collections.abc import Callable

EVIL = "\x1b[31mNVRM\x1b[0m: Xid 79 password=hunter2 \x9b2J `ls` <b> ```\r\n"


def cause(key: str = "c1", role: str = "root", lang: str = "en", **changed: object) -> Cause:
    """A cause with everything in it."""
    zh = lang == "zh"
    fields: dict[str, object] = {
        "key": key,
        "role": role,
        "id": "hw.gpu.fallen_off_bus",
        "confidence": 0.97,
        "domain": "node",
        "title": "GPU 掉卡：PCIe 上已无响应" if zh else "A GPU stopped answering on PCIe",
        "explanation": "驱动已无法访问该卡。" if zh else "The driver can no longer reach it.",
        "action": "reseat_or_power",
        "steps": [
            {
                "text": "隔离节点。" if zh else "Drain the node.",
                "command": "scontrol update state=drain",
                "risk": "job",
            },
            {"text": "冷启动。" if zh else "Cold start it.", "command": "ipmitool chassis power cycle", "risk": "node"},
        ],
        "evidence": [Where("logs/dmesg.txt", 118, EVIL), Where("logs/dmesg.txt", None, "x " * 240)],
        "explains": [],
        "gpu": "0000:9a:00.0",
        "gpu_index": 5,
        "gpus": ["0000:9a:00.0"],
        "pid": 41822,
        "rank": 3,
        "host": "node17",
        "time": "2026-03-02T04:11:09.120000+00:00",
    }
    return Cause(**{**fields, **changed})  # type: ignore[arg-type]


def answer(outcome: str = "cause", lang: str = "en", causes: list[Cause] | None = None) -> Answer:
    """An answer of an outcome."""
    if causes is None:
        causes = [cause(lang=lang)] if outcome in {"cause", "hint"} else []
    return Answer(
        outcome=outcome,
        causes=causes,
        read=[] if outcome == "nothing_read" else [ReadItem("logs/dmesg.txt", "kernel log", 18231, 204)],
        not_read=[NotRead("core.4711", "a core dump")],
        missing=[{"what": "内核日志" if lang == "zh" else "kernel log", "why": "", "command": "journalctl -k"}]
        if causes
        else [],
        lang=lang,
    )


FORMS: list[Callable[[Answer], str]] = [
    lambda a: why_text(a, colour=False, width=80, verbose=False),
    lambda a: why_text(a, colour=False, width=120, verbose=True),
    why_markdown,
    why_oneline,
    why_json,
]
OUTCOMES = ["cause", "hint", "nothing_wrong", "not_enough_evidence", "nothing_read"]


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("outcome", OUTCOMES)
@pytest.mark.parametrize("form", FORMS)
def test_no_form_shows_controls_or_secrets(form: Callable[[Answer], str], outcome: str, lang: str) -> None:
    text = form(answer(outcome, lang))
    assert text.strip()
    assert "hunter2" not in text
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u00a0\u202e]", text)


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("width", [40, 80, 120])
@pytest.mark.parametrize("outcome", OUTCOMES)
def test_width(outcome: str, width: int, lang: str) -> None:
    text = why_text(answer(outcome, lang), colour=False, width=width, verbose=True)
    for line in text.split("\n"):
        assert columns(line) <= width or line.lstrip().startswith("$ "), line


def test_order_of_an_english_report() -> None:
    late = cause("c2", "consequence", id="net.collective_timeout", title="A collective timed out", rank=1)
    later = cause("c3", "consequence", id="net.collective_timeout", title="A collective timed out", rank=2)
    other = cause("c4", "alternative", id="hw.power.insufficient", title="Power", confidence=0.05)
    text = why_text(answer(causes=[cause(), late, later, other]), colour=False, width=100, verbose=False)
    parts = [
        "CAUSE  A GPU",
        "97 % sure",
        "GPU 0000:9a:00.0 (index 5)",
        "DO NOW  Drain",
        "Evidence",
        "logs/dmesg.txt:118",
        "It led to",
    ]
    parts += [
        "ranks 1,2",
        "If that is not enough",
        "Less likely",
        "5 %  Power",
        "To be surer",
        "1 file, 204 lines read",
    ]
    assert [text.index(part) for part in parts] == sorted(text.index(part) for part in parts)
    assert text.startswith("CAUSE")


def test_chinese_report_has_its_headings() -> None:
    follower = cause("c2", "consequence", "zh", title="集合通信超时")
    text = why_text(answer("cause", "zh", [cause(lang="zh"), follower]), colour=False, width=80, verbose=False)
    for word in ("结论", "根因与可信度", "定界", "立即处理", "证据", "影响", "处理建议", "还需要"):
        assert word in text
    assert "证据不足，还需要" in why_text(answer("not_enough_evidence", "zh"), colour=False, width=80, verbose=False)


@pytest.mark.parametrize("verbose", [False, True])
@pytest.mark.parametrize("outcome", OUTCOMES)
def test_no_english_in_chinese_reports(outcome: str, verbose: bool) -> None:
    found = answer(outcome, "zh")
    found.causes = [cause(lang="zh", evidence=[Where("a.txt", 3, "证据")])] if found.causes else []
    text = why_text(found, colour=False, width=100, verbose=verbose) + why_markdown(found) + why_oneline(found)
    lines = [line for line in text.split("\n") if not line.lstrip().startswith(("$", "scontrol", "ipmitool", "`"))]
    prose = re.sub(r"`[^`]*`", "", "\n".join(lines))
    assert not re.search(r"\b(?:the|and|or|is|are|of|read|sure|collect|line|lines|files?)\b", prose, re.IGNORECASE), (
        prose
    )


def test_a_hint_is_no_verdict() -> None:
    found = answer("hint", causes=[cause(confidence=0.36)])
    text = why_text(found, colour=False, width=100, verbose=False)
    assert text.startswith("HINT")
    assert "not a verdict" in text
    assert "DO NOW" not in text
    assert text.index("To be surer") < text.index("Drain the node")
    assert why_oneline(found).startswith("Hint only")


def test_nothing_read_names_what_and_why() -> None:
    text = why_text(answer("nothing_read"), colour=False, width=80, verbose=False)
    assert "core.4711" in text
    assert "a core dump" in text
    assert "core dump 文件" in why_text(answer("nothing_read", "zh"), colour=False, width=80, verbose=False)


def test_what_to_collect_follows_what_was_read() -> None:
    text = why_text(answer("not_enough_evidence"), colour=False, width=80, verbose=False)
    assert "journalctl" not in text
    assert "nvidia-smi -q" in text
    assert "logs of all ranks" in text


def test_colours_only_where_asked() -> None:
    assert "\x1b[" in why_text(answer(), colour=True, width=80, verbose=False)
    plain = re.sub(r"\x1b\[[\d;]*m", "", why_text(answer(), colour=True, width=80, verbose=False))
    assert plain == why_text(answer(), colour=False, width=80, verbose=False)


def test_one_line_is_one_line() -> None:
    for lang in ("en", "zh"):
        line = why_oneline(answer(lang=lang))
        assert "\n" not in line
        assert "0000:9a:00.0" in line
        assert "logs/dmesg.txt:118" in line


def test_markdown_cannot_be_broken_by_evidence() -> None:
    text = why_markdown(answer())
    assert "  ````text" in text
    assert "## CAUSE: A GPU stopped answering on PCIe" in text


def test_json_keeps_the_contract() -> None:
    body = json.loads(why_json(answer()))
    assert (body["schema"], body["kind"], body["outcome"]) == (1, "why", "cause")
    assert {
        "version",
        "host",
        "boot_id",
        "time",
        "lang",
        "causes",
        "fingerprint",
        "read",
        "not_read",
        "missing",
    } <= set(body)
    assert body["causes"][0]["evidence"][0]["line"] == 118
    assert json.loads(why_json(answer("not_enough_evidence")))["missing"]


def test_timeline_is_in_time_order() -> None:
    early = Where("b.log", 9, "2026-03-02 04:00:00 first")
    late = Where("a.log", 1, "2026-03-02 05:00:00 second")
    undated = Where("c.log", 2, "third")
    found = answer(causes=[cause(evidence=[late, undated]), cause("c2", "consequence", evidence=[early])])
    text = why_text(found, colour=False, width=100, verbose=True).split("Timeline of the evidence")[1]
    assert text.index("first") < text.index("second") < text.index("third")


def test_both_languages_have_all_words() -> None:
    assert set(_words.EN) == set(_words.ZH)
    assert set(_words.ACTIONS_EN) == set(_words.ACTIONS_ZH) == set(ACTIONS)
    for key, text in _words.EN.items():
        assert text.isascii(), key
        assert set(re.findall(r"\{(\w+)\}", text)) <= {
            *re.findall(r"\{(\w+)\}", _words.ZH[key]),
            "sure",
            "percent",
            "word",
        }, key
