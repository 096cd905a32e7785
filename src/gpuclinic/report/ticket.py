"""A ticket as Markdown, to be pasted into a vendor's form."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuclinic.recognise.decoding import printable
from gpuclinic.watch.ticket import meaning

if TYPE_CHECKING:
    from gpuclinic.watch.ticket import Ticket

_WORDS = {
    "en": {
        "title": "GPU fault report for {name}", "host": "Host", "what": "What was found",
        "nothing": "`gpuclinic check` finds no fault at this moment.",
        "asked": "What {name} asks for", "missing": "Still missing", "get": "get it with", "xids": "Xid lines of the kernel log",
        "none": "None in the time asked for.", "unread": "The kernel log could not be read: {why}", "know": "Good to know", "source": "source",
        "action": "advised", "made": "Made by gpuclinic",
    },
    "zh": {
        "title": "GPU 故障报告（{name}）", "host": "主机", "what": "发现的问题", "nothing": "`gpuclinic check` 目前没有发现故障。",
        "asked": "{name} 要求的信息", "missing": "尚缺", "get": "获取方法", "xids": "内核日志中的 Xid", "none": "所选时间段内没有。",
        "unread": "无法读取内核日志：{why}", "know": "须知", "source": "来源", "action": "建议", "made": "由 gpuclinic 生成",
    },
}  # fmt: skip


def ticket_markdown(ticket: Ticket, lang: str) -> str:
    """The whole report."""
    words = _WORDS[lang]
    name = ticket.vendor.name
    out = [f"# {words['title'].format(name=name)}", "", f"{words['host']}: {printable(ticket.host)}", ""]
    out += [f"## {words['what']}", ""]
    for finding in ticket.findings:
        out.append(
            f"- **{finding.severity}** {_plain(finding.title)} (`{finding.id}`; {words['action']}: {finding.action})"
        )
        out += [f"  - `{_code(p.text)}` ({_plain(p.source)})" for p in finding.evidence[:3] if p.text]
    if not ticket.findings:
        out.append(words["nothing"])
    out += ["", f"## {words['asked'].format(name=name)}", ""]
    for given in ticket.given:
        label = given.piece.zh if lang == "zh" else given.piece.en
        told = "; ".join(f"{of}: {value}" if of else value for of, value in given.values)
        out.append(f"- {label}: {_plain(told)}")
    if ticket.missing:
        out += ["", f"## {words['missing']}", ""]
        for piece in ticket.missing:
            out.append(
                f"- [ ] {piece.zh if lang == 'zh' else piece.en}; {words['get']}: `{piece.command}` ({words['source']}: {piece.source})"
            )
    out += ["", f"## {words['xids']}", ""]
    out += _xids(ticket, words, lang)
    advice = ticket.vendor.advice_zh if lang == "zh" else ticket.vendor.advice_en
    out += ["", f"## {words['know']}", "", advice, "", f"{words['source']}: {ticket.vendor.source}", "", words["made"]]
    return "\n".join(out) + "\n"


def _xids(ticket: Ticket, words: dict[str, str], lang: str) -> list[str]:
    if ticket.unread is not None and not ticket.lines:
        return [words["unread"].format(why=ticket.unread)]
    if not ticket.lines:
        return [words["none"]]
    codes = dict.fromkeys((line.kind, line.code) for line in ticket.lines)
    first = {pair: next(one for one in ticket.lines if (one.kind, one.code) == pair) for pair in codes}
    return [
        "```", *(line.text.replace("```", "'''") for line in ticket.lines), "```", "",
        *(f"- {kind.capitalize()} {code}: {meaning(first[kind, code], lang)}" for kind, code in codes),
    ]  # fmt: skip


def _plain(text: str) -> str:
    """No Markdown comes in with what was read: lines end, and marks are kept from meaning anything."""
    return (
        printable(text)
        .replace("\n", " ")
        .replace("<", "&lt;")
        .replace("`", "'")
        .replace("*", "\\*")
        .replace("[", "\\[")
    )


def _code(text: str) -> str:
    return printable(text).replace("\n", " ").replace("`", "'")
