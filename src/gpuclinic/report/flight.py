"""What `gpuclinic run` says at a job's end: one paragraph."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuclinic.recognise.one_process import signal_name
from gpuclinic.report._layout import shorten
from gpuclinic.report._view import place, sure
from gpuclinic.report.masking import clean

if TYPE_CHECKING:
    from gpuclinic.watch.flight.ending import Told

_WORDS = {
    "en": {
        "who": "{command} (pid {pid}{rank})", "rank": ", rank {rank}", "signal": "{who} was ended by {signal} after {lasted}.",
        "code": "{who} ended with exit code {code} after {lasted}.", "well": "{who} ended well after {lasted}.",
        "lost": "{who} has ended after {lasted}; how could not be learned.",
        "by_hand": "{who} was interrupted ({signal}) after {lasted}.", "hung": "It had stood still; stacks were taken.",
        "why": "Why: {title} ({sure}).", "perhaps": "Perhaps: {title} ({sure}).", "evidence": "Evidence: {place} {text}", "do": "Do: {step}",
        "unknown": "Why it ended could not be told from what was recorded.",
        "first": "Rank {rank} on {host} failed first{title} ({seen} have told their end).",
        "of": "{seen} of {world} ranks", "some": "{seen} ranks", "bundle": "Record: {path} (gpuclinic why {path})",
        "not_packed": "The record could not be kept: {why}.",
        "problem": "Not recorded: {why}.",
    },
    "zh": {
        "who": "{command}（pid {pid}{rank}）", "rank": "，rank {rank}", "signal": "{who} 运行 {lasted} 后被 {signal} 结束。",
        "code": "{who} 运行 {lasted} 后以退出码 {code} 结束。", "well": "{who} 运行 {lasted} 后正常结束。",
        "lost": "{who} 运行 {lasted} 后已结束，结束方式未知。",
        "by_hand": "{who} 运行 {lasted} 后被中断（{signal}）。", "hung": "此前已停滞，已抓取调用栈。",
        "why": "原因：{title}（{sure}）。", "perhaps": "可能原因：{title}（{sure}）。", "evidence": "证据：{place} {text}", "do": "处理：{step}",
        "unknown": "从已有记录无法判断其结束原因。",
        "first": "最先失败的是 {host} 上的 rank {rank}{title}（{seen}已记录其结束）。",
        "of": "{world} 个 rank 中的 {seen} 个", "some": "{seen} 个 rank ", "bundle": "记录：{path}（gpuclinic why {path}）",
        "not_packed": "记录未能保存：{why}。",
        "problem": "未能记录：{why}。",
    },
}  # fmt: skip
_EVIDENCE, _COMMAND = 200, 120
_INTERRUPT = 2


def run_text(told: Told) -> str:
    """The paragraph, on one line but for the record's place."""
    w = _WORDS["zh" if told.lang == "zh" else "en"]
    rank = w["rank"].format(rank=told.rank) if told.rank is not None else ""
    values = {
        "who": w["who"].format(command=shorten(clean(told.command), _COMMAND), pid=told.pid, rank=rank),
        "lasted": lasted(told.lasted_s, told.lang), "code": told.exit_code, "signal": signal_name(told.signal) if told.signal else "",
    }  # fmt: skip
    by_hand = told.signal == _INTERRUPT and told.answer is None
    how = (
        "by_hand"
        if by_hand
        else "signal"
        if told.signal
        else "lost"
        if told.exit_code is None
        else "code"
        if told.exit_code
        else "well"
    )
    parts = [w[how].format(**values)]
    if told.hung:
        parts.append(w["hung"])
    parts += _first(told, w)
    parts += _cause(told, w)
    lines = [("" if told.lang == "zh" else " ").join(part for part in parts if part)]
    if told.bundle:
        lines.append(w["bundle"].format(path=clean(told.bundle)))
    if told.not_packed:
        lines.append(w["not_packed"].format(why=clean(told.not_packed)))
    lines += [w["problem"].format(why=shorten(clean(problem), _EVIDENCE)) for problem in told.problems[:2]]
    return "".join(f"gpuclinic: {line}\n" for line in lines)


def _cause(told: Told, w: dict[str, str]) -> list[str]:
    """Cause, evidence and what to do; nothing where nobody was asked or it ended well."""
    answer = told.answer
    if answer is None or (told.signal is None and told.exit_code == 0):
        return []
    if not answer.causes:
        return [w["unknown"]]
    root = answer.causes[0]
    key = "why" if answer.outcome == "cause" else "perhaps"
    parts = [w[key].format(title=clean(root.title).rstrip(".。"), sure=sure(root.confidence, told.lang))]
    if root.evidence:
        text = shorten(clean(root.evidence[0].text.strip()), _EVIDENCE)
        parts.append(_ended(w["evidence"].format(place=place(root.evidence[0]), text=text), told.lang))
    if root.steps:
        parts.append(_ended(w["do"].format(step=clean(root.steps[0]["text"])), told.lang))
    return parts


def _first(told: Told, w: dict[str, str]) -> list[str]:
    first = told.first
    if first is None:
        return []
    seen = w["of" if told.world else "some"].format(seen=told.seen, world=told.world)
    text = w["first"].format(
        rank=first.rank, host=clean(first.host), title=": " + clean(first.title) if first.title else "", seen=seen
    )
    return [text]


def _ended(text: str, lang: str) -> str:
    return text if text.endswith((".", "。", "…", "!", "?", "！", "？")) else text + ("。" if lang == "zh" else ".")


def lasted(seconds: float, lang: str) -> str:
    """A span as people say it.

    >>> lasted(7384.0, "en"), lasted(42.3, "en"), lasted(90061, "zh")
    ('2 h 03 min', '42 s', '1 天 1 小时')
    """
    days, hours, minutes = int(seconds // 86400), int(seconds // 3600), int(seconds // 60)
    if lang == "zh":
        if days:
            return f"{days} 天 {hours % 24} 小时"
        if hours:
            return f"{hours} 小时 {minutes % 60} 分"
        return f"{minutes} 分 {int(seconds % 60)} 秒" if minutes else f"{seconds:.0f} 秒"
    if days:
        return f"{days} d {hours % 24} h"
    if hours:
        return f"{hours} h {minutes % 60:02d} min"
    return f"{minutes} min {int(seconds % 60):02d} s" if minutes else f"{seconds:.0f} s"
