"""What goes out: an alert as text in one language, and as data."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from gpuclinic.watch.alerts import Alert

_WORDS = {
    "en": {
        "critical": "CRITICAL", "warning": "WARNING", "info": "INFO", "fired": "", "resolved": "over: ", "worsened": "worse: ",
        "eased": "better: ", "repeated": "still: ", "test": "", "cause": "Cause", "evidence": "Evidence", "do": "Do now", "explains": "Explains",
        "since": "Since", "until": "Until", "times": "Times", "host": "Host",
    },
    "zh": {
        "critical": "严重", "warning": "警告", "info": "提示", "fired": "", "resolved": "已恢复：", "worsened": "加重：", "eased": "减轻：",
        "repeated": "仍存在：", "test": "", "cause": "原因", "evidence": "证据", "do": "立即处理", "explains": "同时解释", "since": "开始",
        "until": "结束", "times": "次数", "host": "主机",
    },
}  # fmt: skip


class ChannelError(Exception):
    """A message did not go out; one line, without the secrets of the channel. last: trying again will not help."""

    def __init__(self, text: str, *, last: bool = False) -> None:
        super().__init__(text)
        self.last = last


class Message(msgspec.Struct):
    """What is sent. what: fired, worsened, eased, resolved, repeated, test. title, body: text in the channel's language. data: for programs."""

    id: str
    what: str
    severity: str
    title: str
    body: str
    data: dict[str, Any]
    at: float


def message_of(alert: Alert, what: str, lang: str, host: str, at: float) -> Message:
    """An alert as a message in a language."""
    words = _WORDS["zh" if lang == "zh" else "en"]
    finding = alert.text(lang)
    title = f"[{words[alert.severity]}] {host}: {words[what]}{finding.title}"
    lines = [finding.title]
    if finding.detail:
        lines.append(finding.detail)
    lines.append("")
    if finding.cause:
        lines.append(f"{words['cause']}: {finding.cause}")
    for place in finding.evidence[:4]:
        lines.append(
            f"{words['evidence']}: {place.source}: {place.text}"
            if place.text
            else f"{words['evidence']}: {place.source}"
        )
    for step in finding.steps[:3]:
        command = f"  ({step['command']})" if step.get("command") else ""
        lines.append(f"{words['do']}: {step['text']}{command}")
    if alert.explains:
        lines.append(f"{words['explains']}: {', '.join(alert.explains)}")
    if alert.times > 1:
        lines.append(f"{words['times']}: {alert.times}")
    lines.append(f"{words['since']}: {iso(alert.since)}")
    if alert.resolved_at is not None:
        lines.append(f"{words['until']}: {iso(alert.resolved_at)}")
    lines.append(f"{words['host']}: {host}   [{alert.rule} {alert.id}]")
    return Message(alert.id, what, alert.severity, title[:250], "\n".join(lines), _data(alert, what, lang, host), at)


def _data(alert: Alert, what: str, lang: str, host: str) -> dict[str, Any]:
    finding = alert.text(lang)
    return {
        "version": 1, "what": what, "id": alert.id, "host": host, "rule": alert.rule, "severity": alert.severity, "subject": alert.subject,
        "gpu": finding.gpu, "gpu_index": finding.gpu_index, "serial": alert.serial, "since": iso(alert.since), "fired_at": iso(alert.fired_at),
        "resolved_at": iso(alert.resolved_at) if alert.resolved_at is not None else None, "why_ended": alert.why_ended or None,
        "times": alert.times, "title": finding.title, "detail": finding.detail, "cause": finding.cause, "action": finding.action,
        "component": finding.component, "steps": finding.steps, "evidence": msgspec.to_builtins(finding.evidence), "explains": alert.explains,
    }  # fmt: skip


def iso(seconds: float) -> str:
    """RFC 3339 in UTC, to the millisecond."""
    try:
        moment = dt.datetime.fromtimestamp(max(0.0, seconds), dt.timezone.utc)
    except (OverflowError, ValueError, OSError):
        moment = dt.datetime.fromtimestamp(0, dt.timezone.utc)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
