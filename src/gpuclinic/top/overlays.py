"""What lies over the screen when it is asked for: help, a finding, a process, questions."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

from gpuclinic.report._layout import ranges, wrap
from gpuclinic.top.choices import SORTS, shown_alerts
from gpuclinic.top.painting import Line, fit
from gpuclinic.top.view import text_of
from gpuclinic.top.words import HELP, WORDS, age_text, size_text, whole

if TYPE_CHECKING:
    from gpuclinic.top.choices import Choices
    from gpuclinic.top.view import Holder, View

SIGNALS = {"1": signal.SIGHUP, "2": signal.SIGINT, "3": signal.SIGQUIT, "9": signal.SIGKILL, "0": signal.SIGTERM}


def overlay_lines(view: View, choices: Choices, width: int) -> list[Line]:
    """The lines inside the box."""
    room = min(width - 6, 110)
    if choices.overlay == "help":
        return _help(choices.lang, room)
    if choices.overlay == "alert":
        return _alert(view, choices, room)
    if choices.overlay == "sort":
        return _sorts(choices)
    if choices.overlay == "beside":
        return _beside(view, choices.lang, room)
    holder = next((holder for holder in view.holders if holder.pid == choices.pid and choices.pid), None)
    if choices.overlay in ("kill", "nice"):
        return _question(holder, choices, room)
    return _process(holder, choices.lang, room)


def _help(lang: str, room: int) -> list[Line]:
    wide = 28 if lang == "en" else 30
    lines: list[Line] = []
    for keys, text in HELP[lang]:
        for number, part in enumerate(wrap(text, room - wide - 1)):
            lines.append([(fit(keys if not number else "", wide), "key"), (" " + part, "")])
    return lines


def _alert(view: View, choices: Choices, room: int) -> list[Line]:
    """Cause, evidence, steps of the finding."""
    words, lang = WORDS[choices.lang], choices.lang
    alert = next((alert for alert in shown_alerts(view) if alert.id == choices.subject), None)
    if alert is None:
        return [[(words["no_data"], "")]]
    finding = alert.text(lang)
    role = {"critical": "bad", "warning": "warn", "info": "note"}[alert.severity]
    lines: list[Line] = [[(part, role)] for part in wrap(f"{words[alert.severity]}: {text_of(finding.title)}", room)]
    lines += [[(part, "")] for part in wrap(text_of(finding.detail), room)] if finding.detail else []
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(alert.since))
    lines += [[], [(f"{words['since']} {since}   ", "dim"), (alert.rule, "dim")]]
    if finding.cause:
        lines.append([(f"{words['cause']}: ", "key"), (finding.cause, "")])
    for place in finding.evidence:
        lines += _hanging(f"{words['evidence']}: ", text_of(f"{place.source}: {place.text}"), room)
    for step in finding.steps:
        lines += _hanging(f"{words['do']}: ", text_of(step["text"]), room)
        if step.get("command"):
            lines += _hanging("  $ ", text_of(step["command"]), room)
    if alert.explains:
        lines += _hanging(f"{words['explains']}: ", ", ".join(alert.explains), room)
    return lines


def _beside(view: View, lang: str, room: int) -> list[Line]:
    """What has happened since the start, newest first, and what could not be looked at."""
    words = WORDS[lang]
    lines: list[Line] = [[(words["events"], "head")]]
    lines += [line for event in reversed(view.events) for line in _hanging("  ", event, room)] or [[("  -", "dim")]]
    lines += [[], [(words["gap"], "head")]]
    return lines + (
        [line for gap in view.gaps for line in _hanging("  ", text_of(f"{gap.check}: {gap.why}"), room)]
        or [[("  -", "dim")]]
    )


def _hanging(label: str, text: str, room: int) -> list[Line]:
    from gpuclinic.report._layout import columns

    wide = columns(label)
    return [
        [(label if not number else " " * wide, "key"), (part, "")]
        for number, part in enumerate(wrap(text, room - wide))
    ]


def _sorts(choices: Choices) -> list[Line]:
    words = WORDS[choices.lang]
    names = {"gpu": "gpus"}
    out: list[Line] = [[(words["sort_ask"], "head")]]
    for number, sort in enumerate(SORTS, 1):
        role = "sorted" if sort == choices.sort else ""
        out.append([(f" {number} ", "key"), (fit(words[names.get(sort, sort)], 24), role)])
    return out


def _question(holder: Holder | None, choices: Choices, room: int) -> list[Line]:
    words = WORDS[choices.lang]
    if holder is None:
        return [[(words["no_data"], "")]]
    values = {
        "signal": signal.Signals(choices.signal).name,
        "pid": holder.pid,
        "user": holder.user or "?",
        "nice": choices.nice,
    }
    lines: list[Line] = [[(words[f"{choices.overlay}_ask"].format(**values), "warn")], []]
    lines += [[(part, "")] for part in wrap(holder.command, room)[:4]]
    facts = [
        f"GPU {ranges(holder.gpus)}" if holder.gpus else "",
        size_text(holder.mib),
        age_text(holder.age_s),
        holder.where,
    ]
    lines.append([("  ".join(fact for fact in facts if fact and fact != "-"), "dim")])
    return [*lines, [], [(words[f"{choices.overlay}_keys"], "key")]]


def _process(holder: Holder | None, lang: str, room: int) -> list[Line]:
    words = WORDS[lang]
    if holder is None:
        return [[(words["no_data"], "")]]
    told = [
        ("pid", str(holder.pid) if holder.pid else "-"), ("user", holder.user), ("gpus", ranges(holder.gpus)), ("vram", size_text(holder.mib)),
        ("gpu_pct", whole(holder.gpu_pct)), ("cpu_pct", whole(holder.cpu_pct)), ("rss", size_text(holder.rss_mib)), ("age", age_text(holder.age_s)),
        ("where", holder.where), ("visible", "CUDA_VISIBLE_DEVICES=" + holder.visible if holder.visible is not None else ""),
        ("command", holder.command),
    ]  # fmt: skip
    lines: list[Line] = []
    for name, value in told:
        if value:
            lines += _hanging(fit(words[name], 15), value, room)
    for mark in holder.marks:
        lines.append([(words[{"waiting": "waiting_d"}.get(mark, mark)], "warn")])
    return lines
