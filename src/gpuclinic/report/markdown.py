"""The answer as Markdown, for tickets."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpuclinic.clinic.collect import still_missing
from gpuclinic.report._view import domain, followers, lines_read, percent, place, sure, where
from gpuclinic.report._words import action_words, not_read_words, words
from gpuclinic.report.masking import clean

if TYPE_CHECKING:
    from gpuclinic.clinic import Answer
    from gpuclinic.model import Cause

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~!])")


def why_markdown(answer: Answer) -> str:
    """An answer of `why`."""
    w = words(answer.lang)
    out: list[str] = []
    if answer.causes:
        _verdict(out, answer)
        _evidence(out, answer)
        _followers(out, answer)
        _steps(out, answer)
        others = [c for c in answer.causes if c.role == "alternative"]
        if others:
            out += ["", f"### {w['alternatives']}", ""]
            out += [
                f"- {_text(c.title)}{w['open']}{w['percent'].format(percent=percent(c.confidence))}{w['close']}"
                for c in others
            ]
    else:
        out += [f"## {w[answer.outcome]}", "", w[f"{answer.outcome}.text"]]
        if answer.outcome == "nothing_read":
            out += [
                "",
                *(
                    f"- {_code(item.path)}{w['colon']}{_text(not_read_words(item.why, answer.lang))}"
                    for item in answer.not_read[:20]
                ),
            ]
    _missing(out, answer)
    if answer.notes:
        out += ["", f"### {w['notes']}", "", *(f"- {_text(note)}" for note in answer.notes)]
    unread = f"{w['comma']}{w['not_read.count'].format(count=len(answer.not_read))}" if answer.not_read else ""
    out += ["", f"*{lines_read(answer.read, answer.lang)}{unread}{w['stop']}*"]
    return "\n".join(out) + "\n"


def _text(text: str) -> str:
    """Text that Markdown leaves as it is."""
    return _SPECIAL.sub(r"\\\1", clean(text))


def _code(text: str) -> str:
    """Text as inline code, whatever back ticks it holds."""
    text = clean(text)
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if longest else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def _block(lines: list[str], indent: str = "", language: str = "") -> list[str]:
    """Lines as a fenced block that nothing inside can end."""
    longest = max((len(run) for line in lines for run in re.findall(r"`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return [indent + fence + language, *(indent + line for line in lines), indent + fence]


def _verdict(out: list[str], answer: Answer) -> None:
    w, root = words(answer.lang), answer.causes[0]
    head = w["hint"] if answer.outcome == "hint" else w["cause"]
    out += [f"## {head}{w['colon']}{_text(root.title)}", ""]
    out.append(f"- **{w['confidence']}**{w['colon']}{sure(root.confidence, answer.lang)} ({_code(root.id)})")
    out.append(f"- **{w['side']}**{w['colon']}{domain(root, answer.lang)}")
    out.append(f"- **{w['action']}**{w['colon']}{action_words(root.action, answer.lang)}")
    found = where(root, answer.lang).replace("\u00a0", " ")
    if found:
        out.append(f"- **{w['where']}**{w['colon']}{_text(found)}")
    if answer.outcome == "hint":
        out += ["", w["hint.text"]]
    if root.explanation and root.explanation != root.title:
        out += ["", _text(root.explanation)]
    if root.steps and answer.outcome != "hint":
        out += ["", f"**{w['now']}**{w['colon']}{_step(root.steps[0], answer.lang)}"]
        if root.steps[0].get("command"):
            out += ["", *_block([clean(root.steps[0]["command"])], language="sh")]


def _step(step: dict[str, str], lang: str) -> str:
    w = words(lang)
    risk = w.get(f"risk.{step.get('risk', 'none')}", "")
    return _text(step["text"]) + (f"{w['open']}**{risk}**{w['close']}" if risk else "")


def _evidence(out: list[str], answer: Answer) -> None:
    root = answer.causes[0]
    if not root.evidence:
        return
    out += ["", f"### {words(answer.lang)['evidence']}", ""]
    for evidence in root.evidence:
        out.append(f"- {_code(place(evidence))}")
        if evidence.text:
            out += ["", *_block([clean(evidence.text)], "  ", "text"), ""]
    if out[-1] == "":
        out.pop()


def _followers(out: list[str], answer: Answer) -> None:
    w = words(answer.lang)
    found = followers(answer, "consequence")
    if found:
        out += ["", f"### {w['explains']}", ""]
    for follower in found:
        inside = [_text(follower.where.replace("\u00a0", " "))] if follower.where else []
        if follower.evidence is not None:
            inside.append(_code(place(follower.evidence)))
        out.append(
            f"- {_text(follower.title)}" + (w["open"] + w["semicolon"].join(inside) + w["close"] if inside else "")
        )


def _steps(out: list[str], answer: Answer) -> None:
    root: Cause = answer.causes[0]
    hint = answer.outcome == "hint"
    first = 0 if hint else 1
    if len(root.steps) <= first:
        return
    out += ["", f"### {words(answer.lang)['if_so' if hint else 'then']}", ""]
    for number, step in enumerate(root.steps[first:], first + 1):
        out.append(f"{number}. {_step(step, answer.lang)}")
        if step.get("command"):
            out += ["", *_block([clean(step["command"])], "   ", "sh"), ""]
    if out[-1] == "":
        out.pop()


def _missing(out: list[str], answer: Answer) -> None:
    w = words(answer.lang)
    wanted = still_missing(answer)
    if not wanted:
        return
    out += ["", f"### {w['collect'] if not answer.causes and answer.outcome != 'nothing_wrong' else w['missing']}", ""]
    for item in wanted:
        why = w["colon"] + _text(item["why"]) if item.get("why") else ""
        command = f"{w['semicolon']}{_code(item['command'])}" if item.get("command") else ""
        out.append(f"- {_text(item['what'])}{why}{command}")
