"""GPU time as a table, and as JSON."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

from gpuclinic.report._chart_axes import stamp
from gpuclinic.report._layout import columns, ranges, shorten
from gpuclinic.report._page import Page
from gpuclinic.report.masking import clean

if TYPE_CHECKING:
    from gpuclinic.watch.usage import Share, Usage

_BOLD, _DIM, _YELLOW = "1", "2", "33"
_WORDS = {
    "en": {
        "user": "user", "job": "job", "gpu": "GPU", "held": "held", "busy": "used", "idle": "idle", "unknown": "not known",
        "gpus": "GPUs", "peak": "memory peak",
        "head": "GPU time from {since} to {until}: held {held} of the time watched, used {busy}.",
        "unit": "Hours of one GPU. A GPU that several processes held at once is divided among them.",
        "gap": "Not known: {h} h of GPU time, in which the agent did not run or the GPU did not answer.",
        "shared": "Not known: whether {h} h that were held were used: several held the GPU and the driver told no shares, or no utilisation.",
        "ownerless": "Not known: who used {h} h in which nobody was seen to hold the GPU.",
        "nameless": "Not known: whose {h} h were.", "none": "No GPU time in this span.", "noname": "(not known)",
        "nojob": "Without a job of a scheduler, container or unit, or not known", "free": "Free: {h} h, held by nobody.",
    },
    "zh": {
        "user": "用户", "job": "作业", "gpu": "GPU", "held": "占用", "busy": "使用", "idle": "闲置", "unknown": "未知",
        "gpus": "GPU", "peak": "显存峰值",
        "head": "{since} 至 {until} 的 GPU 时间：监测时间内占用 {held}，使用 {busy}。",
        "unit": "单位：单卡小时。多个进程同时占用一张卡时，时间在它们之间均分。",
        "gap": "未知：{h} 卡时，其间 agent 未运行或 GPU 无应答。",
        "shared": "未知：{h} 卡时被占用，但无法判断是否真正使用（多个进程共用而驱动未给出各自占比，或未给出利用率）。",
        "ownerless": "未知：{h} 卡时在使用，但未见任何进程占用该卡。",
        "nameless": "未知：{h} 卡时的归属。", "none": "该时段没有 GPU 时间记录。", "noname": "（未知）",
        "nojob": "不属于调度器、容器或服务单元的作业，或未知", "free": "空闲：{h} 卡时，无人占用。",
    },
}  # fmt: skip
_SLACK_S = 120.0


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:.1f}" if seconds < 360_000 else f"{seconds / 3600:.0f}"


def _share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.0f} %" if whole > 0 else "–"


def usage_text(usage: Usage, lang: str, *, colour: bool = False, width: int = 100) -> str:
    """Whoever held most first; then what is not known."""
    page = Page(lang, width, colour=colour)
    w: dict[str, Any] = _WORDS["zh" if lang == "zh" else "en"]
    if not usage.watched_s:
        page.put(w["none"])
        return page.text()
    held, busy = _share(usage.held_s, usage.watched_s), _share(usage.busy_s, usage.watched_s)
    page.put(w["head"].format(since=stamp(usage.since), until=stamp(usage.until), held=held, busy=busy), "", "", _BOLD)
    page.put(w["unit"], "", "", _DIM)
    page.blank()
    _table(page, usage, w)
    page.blank()
    page.put(w["free"].format(h=_hours(usage.free_s)))
    missing = usage.asked_s - usage.watched_s
    if missing > _SLACK_S:
        page.put(w["gap"].format(h=_hours(missing)), "", "", _YELLOW)
    if usage.unknown_s > _SLACK_S:
        page.put(w["shared"].format(h=_hours(usage.unknown_s)), "", "", _YELLOW)
    if usage.ownerless_s > _SLACK_S:
        page.put(w["ownerless"].format(h=_hours(usage.ownerless_s)), "", "", _YELLOW)
    if usage.nameless_s > _SLACK_S:
        page.put(w["nameless"].format(h=_hours(usage.nameless_s)), "", "", _YELLOW)
    return page.text()


def _table(page: Page, usage: Usage, w: dict[str, Any]) -> None:
    heads = [
        w[usage.by],
        w["held"],
        w["busy"],
        w["idle"],
        w["unknown"],
        w["peak"],
        *([] if usage.by == "gpu" else [w["gpus"]]),
    ]
    rows = [_row(share, usage, w) for share in usage.shares]
    wide = [max(columns(row[place]) for row in [heads, *rows]) for place in range(len(heads))]
    wide[0] = min(wide[0], max(12, page.width // 3))
    page.raw(page.paint(_line(heads, wide), _BOLD))
    for row in rows:
        page.raw(shorten(_line(row, wide), page.width))


def _row(share: Share, usage: Usage, w: dict[str, Any]) -> list[str]:
    missing = w["nojob"] if usage.by == "job" else w["noname"]
    peak = "–" if share.peak_mib is None else f"{share.peak_mib / 1024:.1f} GiB"
    busy = (
        f"{_hours(share.busy_s)} ({_share(share.busy_s, share.held_s)})" if usage.by != "gpu" else _hours(share.busy_s)
    )
    row = [
        clean(share.name) or missing,
        _hours(share.held_s),
        busy,
        _hours(share.idle_s),
        _hours(share.unknown_s),
        peak,
    ]
    return row if usage.by == "gpu" else [*row, _gpus(share.gpus)]


def _gpus(names: list[str]) -> str:
    numbers = [name.removeprefix("GPU ") for name in names]
    return ranges([int(one) for one in numbers]) if all(one.isdecimal() for one in numbers) else clean(", ".join(names))


def _line(cells: list[str], wide: list[int]) -> str:
    first = shorten(cells[0], wide[0])
    out = [first + " " * (wide[0] - columns(first))]
    for cell, room in zip(cells[1:6], wide[1:6], strict=True):
        out.append(" " * (room - columns(cell)) + cell)
    return "  ".join([*out, *cells[6:]]).rstrip()


def usage_body(usage: Usage) -> dict[str, Any]:
    """Fields of the JSON."""
    return {
        "by": usage.by,
        "since": dt.datetime.fromtimestamp(usage.since, dt.timezone.utc).isoformat(timespec="seconds"),
        "until": dt.datetime.fromtimestamp(usage.until, dt.timezone.utc).isoformat(timespec="seconds"),
        "watched_s": round(usage.watched_s, 1), "not_watched_s": round(max(0.0, usage.asked_s - usage.watched_s), 1),
        "held_s": round(usage.held_s, 1),
        "busy_s": round(usage.busy_s, 1), "free_s": round(usage.free_s, 1), "used_by_nobody_seen_s": round(usage.ownerless_s, 1),
        "unknown_s": round(usage.unknown_s, 1),
        "owner_unknown_s": round(usage.nameless_s, 1),
        "shares": [
            {
                "name": clean(share.name) or None, "held_s": round(share.held_s, 1), "busy_s": round(share.busy_s, 1),
                "idle_s": round(share.idle_s, 1),
                "unknown_s": round(share.unknown_s, 1), "gpus": [clean(name) for name in share.gpus], "memory_peak_mib": share.peak_mib,
            }
            for share in usage.shares
        ],
    }  # fmt: skip
