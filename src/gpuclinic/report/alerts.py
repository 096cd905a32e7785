"""Alerts as a person reads them in a terminal."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from gpuclinic.recognise.decoding import printable
from gpuclinic.report._layout import shorten

if TYPE_CHECKING:
    from gpuclinic.watch.alerts import Alert, Silence

_WORDS = {
    "en": {
        "critical": "critical", "warning": "warning", "info": "info", "none": "No alert holds.", "under": "under", "over": "over",
        "silent": "silenced until", "since": "since", "ended": "holds no longer", "gone": "its subject is gone", "reboot": "ended by a reboot",
        "driver": "ended by a reload of the driver", "quiet": "came no more", "off": "switched off", "cause": "cause", "evidence": "evidence",
        "do": "do", "explains": "explains", "times": "times", "old": "The agent wrote this {ago} ago; it may not run any more.",
    },
    "zh": {
        "critical": "严重", "warning": "警告", "info": "提示", "none": "当前没有告警。", "under": "归于", "over": "已结束", "silent": "静默至",
        "since": "开始于",
        "ended": "已不再成立", "gone": "对象已不存在", "reboot": "因重启结束", "driver": "因驱动重新加载结束", "quiet": "未再出现",
        "off": "已关闭", "cause": "原因",
        "evidence": "证据", "do": "处理", "explains": "同时解释", "times": "次数", "old": "agent 在 {ago} 前写入此内容，可能已停止运行。",
    },
}  # fmt: skip


def alert_list(alerts: list[Alert], silences: list[Silence], lang: str, width: int, written_s_ago: float | None) -> str:
    """One line each, worst first; what another explains stands under it."""
    words = _WORDS[lang]
    out = []
    if written_s_ago is not None and written_s_ago > 300:
        out.append(words["old"].format(ago=_ago(written_s_ago)))
    if not alerts:
        out.append(words["none"])
    tops = [a for a in alerts if a.explained_by is None or a.resolved_at is not None]
    for top in tops:
        out.append(_line(top, silences, words, lang, width))
        out += [
            _line(a, silences, words, lang, width, "  └ ") for a in alerts if a.explained_by == top.id and a is not top
        ]
    return "\n".join(out) + "\n"


def _line(alert: Alert, silences: list[Silence], words: dict[str, str], lang: str, width: int, before: str = "") -> str:
    notes = [f"{words['since']} {_clock(alert.since)}"]
    if alert.resolved_at is not None:
        notes = [f"{words['over']} {_clock(alert.resolved_at)}: {words.get(alert.why_ended, alert.why_ended)}"]
    silence = next((s for s in silences if s.covers(alert)), None)
    if silence is not None:
        notes.append(f"{words['silent']} {_clock(silence.until)}")
    text = f"{before}{alert.id}  {words[alert.severity]:<8}  {'; '.join(notes)}  {printable(alert.text(lang).title)}"
    return shorten(text, width)


def alert_page(alert: Alert, lang: str) -> str:
    """All of one alert."""
    words = _WORDS[lang]
    finding = alert.text(lang)
    out = [f"{words[alert.severity]}: {printable(finding.title)}", ""]
    if finding.detail:
        out += [printable(finding.detail), ""]
    if finding.cause:
        out.append(f"{words['cause']}: {finding.cause}")
    out += [f"{words['evidence']}: {printable(f'{p.source}: {p.text}')}" for p in finding.evidence]
    for step in finding.steps:
        out.append(f"{words['do']}: {step['text']}" + (f"\n    $ {step['command']}" if step.get("command") else ""))
    if alert.explains:
        out.append(f"{words['explains']}: {', '.join(alert.explains)}")
    if alert.times > 1:
        out.append(f"{words['times']}: {alert.times}")
    out.append(f"{words['since']} {_clock(alert.since)}   [{alert.rule} {alert.id}]")
    if alert.resolved_at is not None:
        out.append(f"{words['over']} {_clock(alert.resolved_at)}: {words.get(alert.why_ended, alert.why_ended)}")
    return "\n".join(out) + "\n"


def _clock(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def _ago(seconds: float) -> str:
    return f"{seconds / 3600:.1f} h" if seconds >= 3600 else f"{seconds / 60:.0f} min"
