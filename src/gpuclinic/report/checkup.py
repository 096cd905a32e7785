"""How the answer of `check` looks on a terminal: verdict first, then each finding with evidence and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuclinic.knowledge.gap_words import gap_words
from gpuclinic.report._check_words import check_words, plain_title, unit_words
from gpuclinic.report._layout import columns, shorten
from gpuclinic.report._page import Page
from gpuclinic.report._view import place
from gpuclinic.report.holders import put_holders
from gpuclinic.report.machine import machine_line
from gpuclinic.report.masking import clean

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuclinic.clinic.checking import CheckAnswer
    from gpuclinic.clinic.looks import Look
    from gpuclinic.knowledge import CheckTables
    from gpuclinic.model import Finding

_BOLD, _DIM, _RED, _GREEN, _YELLOW, _CYAN = "1", "2", "31", "32", "33", "36"
_COLOUR = {"ok": _GREEN, "warning": _YELLOW, "critical": _RED, "unknown": _YELLOW, "info": _CYAN}
_EVIDENCE_SHOWN = 3
_INFO_SHOWN = 5
_ALIKE = 2
"""So many findings of one kind are shown in full; of more, the first, and the others by name."""


def check_text(answer: CheckAnswer, *, colour: bool = False, width: int = 100, verbose: bool = False) -> str:
    """The whole answer."""
    page = Page(answer.lang, width, colour=colour)
    w = check_words(answer.lang)
    _headed(page, w[f"verdict.{answer.verdict}"], _COLOUR[answer.verdict], _verdict_text(answer, w))
    shown = [f for f in answer.findings if f.severity != "info"]
    notes = [f for f in answer.findings if f.severity == "info"]
    for group in _grouped(shown):
        alike = group[1:] if len(group) > _ALIKE else []
        for finding in group[: len(group) - len(alike)]:
            _finding(page, finding, w, verbose=verbose)
        if alike:
            page.put(w["alike"].format(count=len(alike), subjects=", ".join(map(_named, alike))), "  ", "  ")
    for finding in notes if verbose else notes[:_INFO_SHOWN]:
        _note(page, finding, w)
    if not verbose and len(notes) > _INFO_SHOWN:
        page.put(w["more.info"].format(count=len(notes) - _INFO_SHOWN), "", "", _DIM)
    _gaps(page, answer, w)
    if verbose:
        put_holders(page, answer.facts, w)
    if verbose and answer.looked_at:
        page.section(w["looked"].format(count=len(answer.looked_at)))
        page.put(", ".join(answer.looked_at).replace("-", "\u2011"), "  ")
    page.blank()
    foot = w["foot" if shown else "foot.clean"].format(
        host=clean(answer.host or "?"),
        count=len(answer.looked_at),
        seconds=answer.seconds,
        id=shown[0].id if shown else "",
    )
    about = machine_line(answer.facts, w["driver"])
    if about:
        page.put(clean(about), "", "", _DIM)
    page.put(foot, "", "", _DIM)
    return page.text()


def _grouped(findings: list[Finding]) -> list[list[Finding]]:
    """Findings that say the same of several things, together, in the order of the first of each."""
    groups: dict[tuple[str, str], list[Finding]] = {}
    for finding in findings:
        groups.setdefault((finding.id, finding.severity), []).append(finding)
    return list(groups.values())


def _named(finding: Finding) -> str:
    """The thing a finding is about, with what was measured where that is a number."""
    value = finding.observed.get("value") if finding.observed else None
    shown = f" ({value})" if isinstance(value, (int, float)) and not isinstance(value, bool) else ""
    return clean(f"{finding.gpu or finding.subject}{shown}")


def _verdict_text(answer: CheckAnswer, w: dict[str, str]) -> str:
    if answer.verdict == "ok" and answer.not_looked_at:
        return w["text.ok.limited"].format(count=len(answer.not_looked_at))
    if answer.verdict == "unknown" and any(gap.check == "gpu.none" for gap in answer.not_looked_at):
        return w["text.no_gpu"]
    return w[f"text.{answer.verdict}"]


def _headed(page: Page, head: str, code: str, text: str) -> str:
    label = head + "  "
    page.put(text, page.paint(head, _BOLD, code) + "  ", " " * columns(label), _BOLD)
    return " " * columns(label)


def _finding(page: Page, finding: Finding, w: dict[str, str], *, verbose: bool) -> None:
    page.blank()
    indent = "  "
    head = w[finding.severity]
    page.put(
        clean(finding.title),
        page.paint(head, _BOLD, _COLOUR[finding.severity]) + "  ",
        " " * (columns(head) + 2),
        _BOLD,
    )
    about = [f"[{finding.id}]"]
    measured = _measured(finding, w, page.lang)
    if measured:
        about.insert(0, measured)
    if finding.gpu and finding.gpu not in finding.title:
        about.insert(
            0, f"GPU {finding.gpu}" + (f" (index {finding.gpu_index})" if finding.gpu_index is not None else "")
        )
    if finding.time or finding.id.startswith("log."):
        about.insert(0, finding.time.replace("T", " ")[:19] if finding.time else w["time_unknown"])
    page.put(clean(" · ".join(about)), indent, indent)
    if finding.detail:
        page.put(clean(finding.detail), indent, indent, _DIM)
    evidence = finding.evidence if verbose else finding.evidence[:_EVIDENCE_SHOWN]
    for one in evidence:
        page.put(f"{place(one)} | {clean(one.text)}", indent + "| ", indent + "| ", _CYAN)
    if len(evidence) < len(finding.evidence):
        page.put(w["more"].format(count=len(finding.evidence) - len(evidence)), indent, indent, _DIM)
    if finding.implies:
        page.put(w["implies"].format(ids=", ".join(finding.implies)), indent, indent, _DIM)
    if finding.steps:
        step = finding.steps[0]
        page.put(
            clean(step["text"]),
            indent + page.paint(w["now"], _BOLD, _GREEN) + "  ",
            indent + " " * (columns(w["now"]) + 2),
        )
        page.command(step.get("command", ""), indent + " " * (columns(w["now"]) + 2))
    if verbose and len(finding.steps) > 1:
        page.put(w["then"], indent, indent)
        for number, step in enumerate(finding.steps[1:], 2):
            page.put(clean(step["text"]), f"{indent}{number}. ")
            page.command(step.get("command", ""), indent + "   ")


def _measured(finding: Finding, w: dict[str, str], lang: str) -> str:
    """What was measured and what is right; nothing where the title has said it already."""
    value = finding.observed.get("value") if finding.observed else None
    if finding.observed is None or value is None or isinstance(value, bool):
        return ""
    if isinstance(value, str) and value in finding.title:
        return ""
    unit = unit_words(str(finding.observed.get("unit") or ""), lang)
    observed = f"{value} {unit}".strip()
    wanted = finding.expected.get("value") if finding.expected else None
    return (
        w["observed"].format(observed=observed)
        if wanted is None
        else w["expected"].format(observed=observed, expected=wanted)
    )


def _note(page: Page, finding: Finding, w: dict[str, str]) -> None:
    page.blank()
    page.put(
        clean(f"{finding.title}  [{finding.id}]"), page.paint(w["info"], _CYAN) + "  ", " " * (columns(w["info"]) + 2)
    )
    for one in finding.evidence[:1]:
        page.put(f"{place(one)} | {clean(one.text)}", "  | ", "  | ", _CYAN)


def _gaps(page: Page, answer: CheckAnswer, w: dict[str, str]) -> None:
    if not answer.not_looked_at:
        return
    page.section(w["not_looked"])
    for gap in sorted(answer.not_looked_at, key=lambda g: not g.required):
        mark = f" ({w['required']})" if gap.required else ""
        page.item(clean(f"{gap.check}{mark}{w['colon']}{gap_words(gap.why, page.lang)}"))


def list_text(looks: Iterable[Look], tables: CheckTables, lang: str, width: int = 100) -> str:
    """All looks and findings, one a line."""
    w = check_words(lang)
    out = [w["list.looks"]]
    out += [f"  {look.id}" + (f"  ({w['list.deep']})" if look.deep else "") for look in looks]
    out += ["", w["list.checks"]]
    suffix = "zh" if lang == "zh" else "en"
    for row in tables.checks:
        title = shorten(plain_title(getattr(row, f"title_{suffix}")), max(30, width - 4))
        out += [f"  {row.id}" + (f"  ({w['list.deep']})" if row.deep else ""), f"      {title}"]
    out += [
        f"  {identity}" for identity in dict.fromkeys(row.id for row in tables.log_findings if row.severity != "none")
    ]
    return "\n".join(out) + "\n"
