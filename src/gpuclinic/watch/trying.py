"""A message that shows whether a channel works."""

from __future__ import annotations

import platform
import time

from gpuclinic.model import Finding, Where
from gpuclinic.watch.alerts import Alert
from gpuclinic.watch.channels import Message, message_of


def test_message(lang: str) -> Message:
    """An alert that says it is none. It ends by itself after a minute where the other side keeps alerts."""
    now = time.time()
    alert = Alert(
        "test", "alert.test", "", "host", "info", now, now,
        _finding("Test of an alert channel: nothing is wrong", "Sent by `gpuclinic alert test`.", "Nothing to do."),
        _finding("告警通道测试：没有故障", "由 gpuclinic alert test 发出。", "无需处理。"),
    )  # fmt: skip
    return message_of(alert, "test", lang, platform.node() or "?", now)


def _finding(title: str, detail: str, step: str) -> Finding:
    return Finding(
        id="alert.test", severity="info", component="host", subject="host", title=title, detail=detail, cause=None, action="none",
        steps=[{"text": step, "command": "", "risk": "none"}], observed=None, expected=None, evidence=[Where("gpuclinic alert test")],
    )  # fmt: skip
