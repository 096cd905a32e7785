"""The answer in one sentence, to paste into a chat or a ticket's title."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuclinic.clinic.collect import still_missing
from gpuclinic.report._layout import shorten
from gpuclinic.report._view import domain, percent, place, sure, where
from gpuclinic.report._words import words
from gpuclinic.report.masking import clean

if TYPE_CHECKING:
    from gpuclinic.clinic import Answer

_EVIDENCE_COLUMNS = 160


def why_oneline(answer: Answer) -> str:
    """One line, without a line feed."""
    w = words(answer.lang)
    missing = w["semicolon"].join(clean(item["what"]) for item in still_missing(answer)[:3])
    missing = missing + w["stop"] if missing else ""
    if not answer.causes:
        return w["oneline.collect"].format(text=w[f"{answer.outcome}.text"], missing=missing).strip()
    root = answer.causes[0]
    found = where(root, answer.lang).replace("\u00a0", " ")
    first = root.evidence[0] if root.evidence else None
    evidence = f"{place(first)} {shorten(clean(first.text), _EVIDENCE_COLUMNS)}".strip() if first else ""
    if answer.outcome == "hint":
        values = {"title": clean(root.title), "percent": percent(root.confidence), "missing": missing}
        return w["oneline.hint"].format(
            where=w["comma"] + found if found else "", evidence=_ended(evidence, w["stop"]), **values
        )
    step = clean(root.steps[0]["text"]) if root.steps else ""
    return w["oneline.cause"].format(
        title=clean(root.title).rstrip(".。"),
        sure=sure(root.confidence, answer.lang),
        whose=w["whose"].format(domain=domain(root, answer.lang)),
        where=w["semicolon"] + found if found else "",
        step=_ended(step, w["stop"]),
        evidence=evidence,
    )


def _ended(text: str, stop: str) -> str:
    return text if not text or text.endswith((".", "。", "…", "!", "?", "！", "？")) else text + stop
