"""How the answer of `audit` looks: the verdict in plain words, each finding with what shows it and what it was told apart from, how much could be seen."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from gpuclinic.knowledge.audit import load_audit
from gpuclinic.knowledge.gap_words import gap_words
from gpuclinic.report._check_words import check_words
from gpuclinic.report._layout import columns
from gpuclinic.report._page import Page
from gpuclinic.report._view import place
from gpuclinic.report.as_json import as_text, envelope
from gpuclinic.report.masking import clean

if TYPE_CHECKING:
    from gpuclinic.audit.examine import AuditAnswer
    from gpuclinic.model import Finding

_BOLD, _DIM, _RED, _GREEN, _YELLOW, _CYAN = "1", "2", "31", "32", "33", "36"
_COLOUR = {"ok": _GREEN, "warning": _YELLOW, "critical": _RED, "unknown": _YELLOW, "info": _CYAN}
_SHOWN = 3
_INFO_SHOWN = 5
_HEADS = {
    "infected": ("INFECTED", "已被入侵"), "suspicious": ("SUSPICIOUS", "可疑"), "weak": ("WEAK", "存在弱点"), "clean": ("CLEAN", "未见异常"), "unknown": ("UNKNOWN", "无法判断"),
}  # fmt: skip
_TEXTS = {
    "infected": ("Somebody has broken into this server or mines on it; the signs below belong together.", "该服务器已被入侵或被用于挖矿；以下迹象相互印证。"),
    "suspicious": ("Something here needs an explanation; one sign alone proves nothing yet.", "有需要解释之处；单个迹象尚不足以证明。"),
    "weak": ("No sign of a break-in; settings that invite one.", "没有入侵迹象；但存在易被利用的设置。"),
    "clean": ("No sign of a break-in and no weak setting in what was looked at.", "在所查看的范围内，没有入侵迹象，也没有弱设置。"),
    "limited": ("Nothing found in a limited view; that is not a clean bill of health.", "在受限视野内未发现问题；这不等于安全。"),
    "unknown": ("Too little could be looked at to say anything.", "能查看的内容太少，无法判断。"),
}  # fmt: skip
_WORDS = {
    "now": ("Now", "现在"), "then": ("After that:", "之后："), "alike": ("Told apart from", "已排除"), "not_looked": ("Not looked at", "未查看"), "required": ("needed", "必需"), "fix": ("To see it: ", "如需查看："),
    "rests": ("This rests on", "判断依据"), "more": ("{count} more informations (-v shows them)", "另有 {count} 条提示（-v 显示）"), "looked": ("Looked at", "已查看"),
    "foot": ("{host}: {count} checks in {seconds:.1f} s; nothing was changed, nothing was connected to.", "{host}：{count} 项检查，用时 {seconds:.1f} 秒；未改动任何内容，未连接任何地址。"),
    "deceive": ("A server that was broken into can deceive every look from inside: examine its disk from another system, too (gpuclinic audit --host /mnt).", "被入侵的服务器可以欺骗一切内部检查：请同时从另一系统检查其磁盘（gpuclinic audit --host /mnt）。"),
}  # fmt: skip


def summary(answer: AuditAnswer) -> str:
    """The verdict as one word: infected, suspicious, weak, clean, unknown."""
    if answer.compromise in ("infected", "suspicious"):
        return answer.compromise
    if answer.posture == "weak":
        return "weak"
    return "unknown" if answer.verdict == "unknown" and answer.compromise == "unknown" else "clean"


def audit_text(answer: AuditAnswer, *, colour: bool = False, width: int = 100, verbose: bool = False) -> str:
    """The whole answer."""
    page = Page(answer.lang, width, colour=colour)
    zh = answer.lang == "zh"
    kind = summary(answer)
    head = _HEADS[kind][zh]
    text = _TEXTS["limited" if kind == "clean" and answer.coverage == "limited" else kind][zh]
    page.put(text, page.paint(head, _BOLD, _COLOUR[answer.verdict]) + "  ", " " * (columns(head) + 2), _BOLD)
    shown = [f for f in answer.findings if f.severity != "info"]
    notes = [f for f in answer.findings if f.severity == "info"]
    told: set[str] = set()
    for finding in shown:
        _finding(page, finding, answer, again=finding.id in told, verbose=verbose)
        told.add(finding.id)
    for finding in notes if verbose else notes[:_INFO_SHOWN]:
        page.blank()
        word = check_words(answer.lang)["info"]
        page.put(clean(f"{finding.title}  [{finding.id}]"), page.paint(word, _CYAN) + "  ", " " * (columns(word) + 2))
        for one in finding.evidence[:1]:
            page.put(f"{place(one)} | {clean(one.text)}", "  | ", "  | ", _CYAN)
    if not verbose and len(notes) > _INFO_SHOWN:
        page.put(_WORDS["more"][zh].format(count=len(notes) - _INFO_SHOWN), "", "", _DIM)
    _seen(page, answer, zh, verbose=verbose)
    return page.text()


def _finding(page: Page, finding: Finding, answer: AuditAnswer, *, again: bool, verbose: bool) -> None:
    zh = answer.lang == "zh"
    page.blank()
    word = check_words(answer.lang)[finding.severity]
    page.put(
        clean(finding.title),
        page.paint(word, _BOLD, _COLOUR[finding.severity]) + "  ",
        " " * (columns(word) + 2),
        _BOLD,
    )
    page.put(clean(f"{finding.subject} · [{finding.id}]"), "  ", "  ")
    if not again:
        page.put(clean(finding.detail), "  ", "  ", _DIM)
    for one in finding.evidence if verbose else finding.evidence[:_SHOWN]:
        page.put(f"{place(one)} | {clean(one.text)}", "  | ", "  | ", _CYAN)
    alike = answer.alike.get(finding.id)
    if alike and not again:
        page.put(clean(alike), "  " + page.paint(_WORDS["alike"][zh], _BOLD) + ": ", "  ", _DIM)
    if finding.steps and not again:
        label = _WORDS["now"][zh]
        pad = "  " + " " * (columns(label) + 2)
        page.put(clean(finding.steps[0]["text"]), "  " + page.paint(label, _BOLD, _GREEN) + "  ", pad)
        page.command(finding.steps[0].get("command", ""), pad)
        for step in finding.steps[1:] if verbose else []:
            page.put(clean(step["text"]), "  - ")
            page.command(step.get("command", ""), "    ")


def _seen(page: Page, answer: AuditAnswer, zh: bool, *, verbose: bool) -> None:
    if answer.not_looked_at:
        page.section(_WORDS["not_looked"][zh])
        for gap in sorted(answer.not_looked_at, key=lambda g: not g.required)[: None if verbose else 8]:
            mark = f" ({_WORDS['required'][zh]})" if gap.required else ""
            page.item(clean(f"{gap.check}{mark}: {gap_words(gap.why, page.lang)}"))
            if gap.fix:
                page.put(clean(_WORDS["fix"][zh] + gap_words(gap.fix, page.lang)), "    ", "    ", _DIM)
    page.blank()
    sign, between = ("：", "；") if zh else (": ", "; ")
    rests = between.join(f"{name} {value}" for name, value in answer.confidence)
    page.put(f"{_WORDS['rests'][zh]}{sign}{rests}", "", "", _DIM)
    if verbose:
        page.put(f"{_WORDS['looked'][zh]}{sign}{', '.join(answer.looked_at)}", "", "", _DIM)
    if answer.compromise in ("infected", "suspicious"):
        page.put(_WORDS["deceive"][zh], "", "", _DIM)
    page.put(
        _WORDS["foot"][zh].format(host=clean(answer.host or "?"), count=len(answer.looked_at), seconds=answer.seconds),
        "",
        "",
        _DIM,
    )


def audit_json(answer: AuditAnswer) -> str:
    """The answer as docs/contract.md says."""
    body = envelope("audit", answer.lang, answer.host, answer.boot_id)
    body["verdict"] = answer.verdict
    body["compromise"] = answer.compromise
    body["posture"] = answer.posture
    body["coverage"] = answer.coverage
    body["findings"] = [
        {**msgspec.to_builtins(f), **({"alike": answer.alike[f.id]} if f.id in answer.alike else {})}
        for f in answer.findings
    ]
    body["looked_at"] = answer.looked_at
    body["not_looked_at"] = [msgspec.to_builtins(gap) for gap in answer.not_looked_at]
    body["rests_on"] = dict(answer.confidence)
    body["seconds"] = round(answer.seconds, 3)
    return as_text(body)


def audit_list(lang: str, *, as_json: bool) -> str:
    """All ids there can be, with what they mean."""
    rows = load_audit().values()
    zh = lang == "zh"
    if as_json:
        body = envelope("audit", lang)
        body["checks"] = [
            {
                "id": r.id,
                "of": r.of,
                "grade": r.grade,
                "severity": r.severity,
                "title": r.title_zh if zh else r.title_en,
            }
            for r in rows
        ]
        return as_text(body) + "\n"
    return "".join(
        f"{row.id}  ({row.grade or row.severity})\n    {row.title_zh if zh else row.title_en}\n" for row in rows
    )
