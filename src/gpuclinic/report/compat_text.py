"""How an answer of `compat` looks: JSON and text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpuclinic.report._page import Page
from gpuclinic.report.as_json import as_text, envelope
from gpuclinic.report.masking import clean

if TYPE_CHECKING:
    from gpuclinic.compat import Answer

_COLOURS = {"works": "32", "fails": "31", "unknown": "33"}
_VERDICTS = {
    "en": {"works": "WORKS", "fails": "FAILS", "unknown": "UNKNOWN"},
    "zh": {"works": "可以运行", "fails": "无法运行", "unknown": "无法判断"},
}
_WORDS = {
    "en": {
        "fix": "fix",
        "source": "source",
        "install": "works",
        "unknown": "not known",
        "note": "note",
        "none": "no line that works was found",
        "gpu": "GPU",
        "driver": "driver",
        "not_given": " ({v} not given, so not judged)",
        "and": " and ",
    },
    "zh": {
        "fix": "处理",
        "source": "来源",
        "install": "可用命令",
        "unknown": "未知",
        "note": "注意",
        "none": "没有找到可用的命令",
        "gpu": "GPU",
        "driver": "驱动",
        "not_given": "（未给出{v}，因此未按其判断）",
        "and": "和",
    },
}


def answer_fields(answer: Answer) -> dict[str, Any]:
    """The fields of docs/contract.md."""
    return {
        "verdict": answer.verdict,
        "problems": [
            {"id": p.id, "title": p.title, "why": p.why, "source": p.source, "fix": p.fix, "subject": p.subject} for p in answer.problems
        ],
        "install": answer.install,
        "unknown": answer.unknown,
        "read": answer.read,
        "notes": answer.notes,
        "not_given": answer.not_given,
    }  # fmt: skip


def compat_json(answer: Answer, lang: str) -> str:
    """One question's answer."""
    return as_text({**envelope("compat", lang), **answer_fields(answer)})


def compat_text(answer: Answer, lang: str, *, colour: bool, width: int, verbose: bool) -> str:
    """One question's answer for a person: the verdict, why, what to install instead."""
    page, w = Page(lang, width, colour=colour), _WORDS[lang]
    colon = "：" if lang == "zh" else ": "
    left_out = w["not_given"].format(v=w["and"].join(w[name] for name in answer.not_given)) if answer.not_given else ""
    subject = ", ".join(clean(text) for text in answer.read[:6])
    page.raw(
        page.paint(_VERDICTS[lang][answer.verdict], f"1;{_COLOURS[answer.verdict]}")
        + left_out
        + (f"  {subject}" if subject else "")
    )
    for problem in answer.problems:
        page.blank()
        page.raw(f"  {page.paint(clean(problem.title), '1')}  [{problem.id}]")
        page.put(clean(problem.why), "  ")
        page.put(w["fix"] + colon + clean(problem.fix), "  ")
        if verbose:
            page.put(w["source"] + colon + clean(problem.source), "  ", "", "2")
    if answer.unknown and (verbose or answer.verdict == "unknown"):
        page.blank()
        for text in answer.unknown:
            page.put(w["unknown"] + colon + clean(text), "  ")
    for text in answer.notes:
        page.put(w["note"] + colon + clean(text), "  ")
    if answer.install is not None:
        page.blank()
        page.raw(f"  {w['install']}{colon}{clean(answer.install)}")
    elif answer.verdict == "fails":
        page.blank()
        page.put(w["none"], "  ", "", "2")
    return page.text()


def knowledge_text(rows: list[tuple[str, int, str, list[str]]], lang: str, *, verbose: bool) -> str:
    """The tables: how many rows, how old, from where."""
    heading = {"en": ("table", "rows", "brought up to date"), "zh": ("表", "行数", "更新日期")}[lang]
    lines = [f"{heading[0]:<24} {heading[1]:>6}  {heading[2]}"]
    for name, count, date, sources in rows:
        lines.append(f"{name:<24} {count:>6}  {date}")
        if verbose:
            lines += [f"    {clean(source)}" for source in sources]
    return "\n".join(lines) + "\n"
