"""How an explanation looks: JSON and text."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from gpuclinic.knowledge.causes import cause_info
from gpuclinic.report._page import Page
from gpuclinic.report._words import action_words, words
from gpuclinic.report.as_json import as_text, envelope
from gpuclinic.report.masking import clean

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuclinic.clinic.explain import Explanation

_COLOURS = {"critical": "31", "warning": "33", "info": "32"}


def explain_json(found: Explanation, lang: str) -> str:
    """The object of docs/contract.md."""
    body: dict[str, Any] = envelope("explain", lang)
    for field in ("topic", "code", "name", "severity", "action", "cause", "text", "source"):
        body[field] = getattr(found, field)
    body["fault"] = list(found.fault)
    body["escalation"] = list(found.escalation)
    body["also"] = list(found.also)
    body["suggestions"] = list(found.suggestions)
    if found.condition:
        body["condition"] = found.condition
    if found.steps:
        body["steps"] = list(found.steps)
    if found.decoded:
        body["decoded"] = found.decoded
    return as_text(body)


def explain_text(found: Explanation, lang: str, *, colour: bool, width: int) -> str:
    """The explanation for a person."""
    page, w = Page(lang, width, colour=colour), words(lang)
    label = w.get(f"topic.{found.topic}", found.topic)
    heading = _heading(found, label)
    page.raw(
        page.paint(heading, "1") + "  " + page.paint(f"[{w['severity.' + found.severity]}]", _COLOURS[found.severity])
    )
    if found.also:
        page.put(w["also"] + w["colon"] + ", ".join(map(clean, found.also)), "  ")
    page.put(_sentence(clean(found.text)), "  ")
    if found.decoded:
        page.put(w["decoded"] + w["colon"] + _decoded(found.decoded), "  ")
    if found.suggestions:
        return page.text()
    page.blank()
    if found.fault:
        page.put(w["side"] + w["colon"] + _either([w.get(f"fault.{f}", f) for f in found.fault], lang), "  ")
    steps = [action_words(action, lang) for action in (found.action, *found.escalation)]
    page.put(w["action"] + w["colon"] + w["then.arrow"].join(dict.fromkeys(steps)), "  ")
    if found.cause:
        _cause(page, found, lang)
    _steps(page, found.steps)
    if found.condition:
        page.blank()
        page.put(("判定条件" if lang == "zh" else "Condition") + w["colon"] + clean(found.condition), "", "", "2")
    if found.source:
        page.blank()
        page.put(w["source"] + w["colon"] + clean(found.source), "", "", "2")
    return page.text()


def _either(names: list[str], lang: str) -> str:
    """Names as alternatives."""
    if lang == "zh":
        return "、".join(names[:-1]) + ("或" if names[1:] else "") + names[-1]
    return ", ".join(names[:-1]) + (" or " if names[1:] else "") + names[-1]


def _sentence(text: str) -> str:
    """The text with a capital at its start, where that is a plain word."""
    word = text.split(" ", 1)[0]
    return text[0].upper() + text[1:] if word.isascii() and word.isalpha() and word.islower() else text


def _heading(found: Explanation, label: str) -> str:
    if found.topic in ("xid", "sxid"):
        parts = [f"{label} {found.code}", found.name or ""]
    elif found.topic in ("cause", "finding", "line"):
        parts = [label, str(found.code or "")]
    elif isinstance(found.code, int):
        parts = [f"{label} {found.code}", (found.name or "").removeprefix(f"{found.code} ")]
    else:
        parts = [label, found.name or str(found.code or "")]
    return clean("  ".join(part for part in parts if part))


def _decoded(decoded: dict[str, Any]) -> str:
    shown = {key: value for key, value in decoded.items() if value not in (None, "", [])}
    return clean(
        ", ".join(f"{key} {' '.join(value) if isinstance(value, list) else value}" for key, value in shown.items())
    )


def _cause(page: Page, found: Explanation, lang: str) -> None:
    info, w = cause_info(found.cause or ""), page.words
    if found.topic not in ("cause", "line", "finding"):
        title = info.title_zh if lang == "zh" else info.title_en
        page.put(f"{w['points_at']}{w['colon']}{title}{w['open']}{info.id}{w['close']}", "  ")
    elif found.topic != "cause":
        page.put(f"{w['points_at']}{w['colon']}{info.id}", "  ")
    if not found.steps:
        _steps(page, [{"text": step.zh if lang == "zh" else step.en, "command": step.command} for step in info.steps])


def _steps(page: Page, steps: Iterable[dict[str, str]]) -> None:
    for number, step in enumerate(steps, 1):
        if number == 1:
            page.section(page.words["steps"])
        page.put(_generic(step["text"]), f"  {number}. ")
        if step["command"]:
            page.command(_generic(step["command"]), "     ")


def _generic(command: str) -> str:
    """A command or a text with its places as names that a person fills in."""
    for name, shown in (("gpu_index", "INDEX"), ("gpu", "GPU"), ("pid", "PID"), ("host", "NODE"), ("rank", "RANK")):
        command = command.replace("{" + name + "}", shown)
    return re.sub(r"\{(\w+)\}", lambda place: place[1].upper(), command)
