"""The answer for a person at a terminal: the verdict and the one thing to do first, then why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuclinic.clinic.collect import still_missing
from gpuclinic.report._layout import columns, shorten, wrap
from gpuclinic.report._page import Page
from gpuclinic.report._view import diagnosis, followers, lines_read, percent, place, timeline, where
from gpuclinic.report._words import kind_words, not_read_words
from gpuclinic.report.masking import clean

if TYPE_CHECKING:
    from gpuclinic.clinic import Answer
    from gpuclinic.model import Cause, Where

_BOLD, _DIM, _RED, _YELLOW, _GREEN, _CYAN = "1", "2", "31", "33", "32", "36"
_EVIDENCE_LINES = 3
_EVIDENCE_SHOWN = 4
_MOST_LISTED = 200


def why_text(answer: Answer, *, colour: bool, width: int, verbose: bool) -> str:
    """An answer of `why` as text of this width."""
    page = Page(answer.lang, width, colour=colour)
    if answer.causes:
        _verdict(page, answer)
        _evidence(page, answer.causes[0], verbose=verbose)
        _followers(page, answer)
        if answer.outcome == "hint":
            _missing(page, answer)
        _further_steps(page, answer)
        _alternatives(page, answer)
    else:
        _no_verdict(page, answer)
        _notes(page, answer)  # all that could be found out stands in them
    if answer.outcome != "hint":
        _missing(page, answer)
    if answer.causes:
        _notes(page, answer)
    if verbose:
        _timeline(page, answer)
        _lists(page, answer)
    else:
        _foot(page, answer)
    return page.text()


def _notes(page: Page, answer: Answer) -> None:
    if answer.notes:
        page.section(page.words["notes"])
    for note in answer.notes:
        page.item(clean(note))


def _headed(page: Page, head: str, code: str, body: str, *codes: str) -> str:
    """A labelled paragraph; returns the indent of what belongs under it."""
    label = head + "  "
    lines = wrap(body, page.width - columns(label))
    page.raw(page.paint(head, _BOLD, code) + "  " + page.paint(lines[0], *codes))
    indent = " " * columns(label)
    for line in lines[1:]:
        page.raw(indent + page.paint(line, *codes))
    return indent


def _verdict(page: Page, answer: Answer) -> None:
    root, w = answer.causes[0], page.words
    hint = answer.outcome == "hint"
    indent = _headed(page, w["hint" if hint else "cause"], _YELLOW if hint else _RED, clean(root.title), _BOLD)
    for line in diagnosis(root, page.lang):
        page.put(line, indent)
    found = where(root, page.lang)
    if found:
        page.put(found, indent)
    if hint:
        page.put(w["hint.text"], indent)
    if root.explanation and root.explanation != root.title:
        page.blank()
        page.put(clean(root.explanation), indent, None, _DIM)
    if root.steps and not hint:
        page.blank()
        step = root.steps[0]
        indent = _headed(page, w["now"], _GREEN, _with_risk(page, step), _BOLD)
        page.command(step.get("command", ""), indent)


def _with_risk(page: Page, step: dict[str, str]) -> str:
    risk = page.words.get(f"risk.{step.get('risk', 'none')}", "")
    text = clean(step["text"])
    return f"{text} [{risk}]" if risk and page.lang == "en" else f"{text}【{risk}】" if risk else text


def _show_evidence(page: Page, evidence: Where, *, all_of_it: bool, head: str = "") -> None:
    page.put((f"{head}  " if head else "") + place(evidence), "  ", "  ", _CYAN)
    text = clean(evidence.text)
    if text:
        lines = wrap(text, page.width - 6)
        if len(lines) > _EVIDENCE_LINES and not all_of_it:
            lines = [*lines[: _EVIDENCE_LINES - 1], shorten(" ".join(lines[_EVIDENCE_LINES - 1 :]), page.width - 6)]
        for line in lines:
            page.raw("    | " + line)


def _evidence(page: Page, root: Cause, *, verbose: bool) -> None:
    if root.evidence:
        page.section(page.words["evidence"])
        shown = root.evidence if verbose else root.evidence[:_EVIDENCE_SHOWN]
        for evidence in shown:
            _show_evidence(page, evidence, all_of_it=verbose)
        if len(shown) < len(root.evidence):
            page.put(page.words["more.evidence"].format(count=len(root.evidence) - len(shown)), "  ", None, _DIM)


def _followers(page: Page, answer: Answer) -> None:
    found = followers(answer, "consequence")
    if found:
        page.section(page.words["explains"])
    for follower in found:
        page.item(_follower_text(page, follower.title, follower.where, follower.times, follower.evidence))


def _follower_text(page: Page, title: str, found: str, count: int, evidence: Where | None) -> str:
    w = page.words
    inside = [found] if found else []
    if count > 1 and not found:
        inside.append(w["times"].format(count=count))
    if evidence is not None:
        inside.append(place(evidence))
    return title + (w["open"] + w["semicolon"].join(inside) + w["close"] if inside else "")


def _further_steps(page: Page, answer: Answer) -> None:
    """The escalation behind the first step; for a hint all steps, since none of them is due yet."""
    hint = answer.outcome == "hint"
    steps = answer.causes[0].steps
    first = 0 if hint else 1
    if len(steps) <= first:
        return
    page.section(page.words["if_so" if hint else "then"])
    for number, step in enumerate(steps[first:], first + 1):
        page.put(_with_risk(page, step), f"  {number}. ")
        page.command(step.get("command", ""), "     ")


def _alternatives(page: Page, answer: Answer) -> None:
    others = [c for c in answer.causes if c.role == "alternative"]
    if others:
        page.section(page.words["alternatives"])
    for other in others:
        head = clean(other.title)
        likely = page.words["percent"].format(percent=percent(other.confidence))
        found = where(other, page.lang, with_time=False, unlike=answer.causes[0])
        page.item(_follower_text(page, f"{likely}  {head}", found, 1, next(iter(other.evidence), None)))


def _no_verdict(page: Page, answer: Answer) -> None:
    w = page.words
    code = _GREEN if answer.outcome == "nothing_wrong" else _YELLOW
    indent = _headed(page, w[answer.outcome], code, w[f"{answer.outcome}.text"])
    if answer.outcome == "nothing_read":
        for item in answer.not_read[:20]:
            page.put(f"{clean(item.path)}{w['colon']}{clean(not_read_words(item.why, page.lang))}", indent)


def _missing(page: Page, answer: Answer) -> None:
    wanted = still_missing(answer)
    if not wanted:
        return
    key = "collect" if not answer.causes and answer.outcome != "nothing_wrong" else "missing"
    page.section(page.words[key])
    for item in wanted:
        text = clean(item["what"])
        page.item(text + (page.words["colon"] + clean(item["why"]) if item.get("why") else ""))
        page.command(item.get("command", ""), "      ")


def _foot(page: Page, answer: Answer) -> None:
    w = page.words
    page.blank()
    text = lines_read(answer.read, page.lang)
    if answer.not_read:
        text += (
            w["comma"]
            + w["not_read.count"].format(count=len(answer.not_read))
            + w["open"]
            + w["more.read"]
            + w["close"]
        )
    page.put(text + w["stop"], "", "", _DIM)


def _timeline(page: Page, answer: Answer) -> None:
    rows = timeline(answer)
    if not rows:
        return
    page.section(page.words["timeline"])
    for moment, evidence in rows:
        _show_evidence(page, evidence, all_of_it=False, head=moment or page.words["undated"])


def _lists(page: Page, answer: Answer) -> None:
    w = page.words
    page.section(lines_read(answer.read, page.lang))
    for item in answer.read[:_MOST_LISTED]:
        kind = kind_words(clean(item.kind), page.lang)
        page.item(f"{clean(item.path)}{w['open']}{kind}{w['comma']}{_size(item.bytes)}{w['close']}")
    _rest(page, len(answer.read))
    if answer.not_read:
        page.section(w["not_read"])
    for gap in answer.not_read[:_MOST_LISTED]:
        page.item(f"{clean(gap.path)}{w['colon']}{clean(not_read_words(gap.why, page.lang))}")
    _rest(page, len(answer.not_read))


def _rest(page: Page, count: int) -> None:
    if count > _MOST_LISTED:
        page.item(page.words["more"].format(count=count - _MOST_LISTED), mark=" ")


def _size(count: int) -> str:
    size = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{count} B"
