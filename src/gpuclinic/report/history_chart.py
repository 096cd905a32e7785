"""The history on a terminal: lines of dots, the band from lowest to highest behind them, times, units, and events as marks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuclinic.report._chart_axes import moment, number, pieces, scale, stamp, ticks
from gpuclinic.report._layout import columns, shorten
from gpuclinic.report._page import Page
from gpuclinic.report.masking import clean

if TYPE_CHECKING:
    from gpuclinic.model import Event
    from gpuclinic.watch.history_view import Line, Listed, Panel, Picture, Told

_BOLD, _DIM, _CYAN, _RED, _YELLOW = "1", "2", "36", "31", "33"
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
_BAND = "░"
_MARK = "▲"
_GRAVE = frozenset({"xid", "sxid", "gpu_hung", "gpu_lost", "oom_kill", "ecc"})
_MARKS_TOLD = 12
_WORDS = {
    "en": {
        "low": "low", "mean": "mean", "high": "high", "last": "last", "none": "no samples in this time",
        "events": "Events", "more": "and {n} more; gpuclinic history events lists them", "left": "{n} more lines are left out; --gpu chooses",
        "no_events": "No events in this time.", "nothing": "The history has no numbers yet.",
    },
    "zh": {
        "low": "最低", "mean": "平均", "high": "最高", "last": "最近", "none": "该时段没有样本",
        "events": "事件", "more": "另有 {n} 条；用 gpuclinic history events 列出", "left": "另有 {n} 条曲线未画出；可用 --gpu 选择",
        "no_events": "该时段没有事件。", "nothing": "历史中还没有数据。",
    },
}  # fmt: skip


def words_of(lang: str) -> dict[str, str]:
    """Words of the history's forms."""
    return _WORDS["zh" if lang == "zh" else "en"]


def chart_text(picture: Picture, lang: str, *, colour: bool = False, width: int = 100) -> str:
    """All panels, then the events."""
    page = Page(lang, width, colour=colour)
    for panel in picture.panels:
        page.blank()
        _panel(page, panel, picture)
    w = words_of(lang)
    if picture.left_out:
        page.put(w["left"].format(n=picture.left_out), "", "", _DIM)
    if picture.marks:
        page.section(w["events"])
        for event in picture.marks[-_MARKS_TOLD:]:
            _event(page, event)
        if len(picture.marks) > _MARKS_TOLD:
            page.put(w["more"].format(n=len(picture.marks) - _MARKS_TOLD), "  ", "  ", _DIM)
    return page.text()


def dots_across(width: int) -> int:
    """How many stretches a chart of that width can show."""
    return 2 * max(20, width - 10)


def _panel(page: Page, panel: Panel, picture: Picture) -> None:
    w = words_of(page.lang)
    unit = f" ({panel.unit})" if panel.unit else ""
    head = f"{panel.metric.title(page.lang)}{unit}"
    beside = f"  {panel.metric.field}"
    if columns(head) + columns(beside) <= page.width:
        page.raw(page.paint(head, _BOLD) + page.paint(beside, _DIM))
    else:
        page.put(head, "", "", _BOLD)
    page.put(f"{stamp(picture.since)} – {stamp(picture.until)}", "", "", _DIM)
    if not panel.lines:
        page.put(w["none"], "  ", "  ", _DIM)
        return
    low = min(bucket.low for line in panel.lines for bucket in line.buckets)
    high = max(bucket.high for line in panel.lines for bucket in line.buckets)
    ends = scale(low, high)
    rows = 11 if len(panel.lines) == 1 else 5 if len(panel.lines) <= 3 else 3
    gutter = max(6, max(columns(number(end)) for end in (*ends, (ends[0] + ends[1]) / 2)) + 1)
    for line in panel.lines:
        _strip(page, line, picture, ends, rows, gutter)
    _axis(page, picture, gutter)


def _strip(page: Page, line: Line, picture: Picture, ends: tuple[float, float], rows: int, gutter: int) -> None:
    w = words_of(page.lang)
    n = sum(bucket.n for bucket in line.buckets)
    parts = [
        f"{w['last']} {number(line.buckets[-1].last)}",
        f"{w['high']} {number(max(b.high for b in line.buckets))}",
        f"{w['low']} {number(min(b.low for b in line.buckets))}",
        f"{w['mean']} {number(sum(b.mean * b.n for b in line.buckets) / n)}",
    ]
    head = f"{clean(line.label)}  " if line.label else ""
    room = page.width - gutter
    while len(parts) > 1 and columns("  ".join(parts)) + min(columns(head), 12) > room:
        parts.pop()
    figures = shorten("  ".join(parts), room)
    page.raw(
        " " * gutter + page.paint(shorten(head, max(0, room - columns(figures))), _BOLD) + page.paint(figures, _DIM)
    )
    across = page.width - gutter - 1
    names = {0: number(ends[1]), rows - 1: number(ends[0])}
    if rows % 2 and rows > 3:
        names[rows // 2] = number((ends[0] + ends[1]) / 2)
    for place, row in enumerate(_drawn(line, picture, ends, rows, across)):
        page.raw(names.get(place, "").rjust(gutter) + "┤" + _painted(page, row))


def _painted(page: Page, row: list[str]) -> str:
    """The line in one colour, the band dimmed; runs of the same together."""
    out, run, kind = [], "", ""
    for sign in [*row, ""]:
        now = "" if sign in (" ", "") else _DIM if sign == _BAND else _CYAN
        if now != kind or not sign:
            out.append(page.paint(run, kind) if kind else run)
            run, kind = "", now
        run += sign
    return "".join(out).rstrip()


def _drawn(line: Line, picture: Picture, ends: tuple[float, float], rows: int, across: int) -> list[list[str]]:
    span = max(picture.until - picture.since, 1e-9)
    tall = rows * 4

    def x_of(at: float) -> int:
        return min(max(int((at - picture.since) / span * across * 2), 0), across * 2 - 1)

    def y_of(value: float) -> int:
        return min(max(round((value - ends[0]) / (ends[1] - ends[0]) * (tall - 1)), 0), tall - 1)

    dots = [[0] * across for _ in range(rows)]
    band = [[False] * across for _ in range(rows)]
    for piece in pieces(line.buckets):
        before: tuple[int, int] | None = None
        for bucket in piece:
            x, y = x_of(bucket.at), y_of(bucket.mean)
            for level in range(y_of(bucket.low) // 4, y_of(bucket.high) // 4 + 1):
                band[rows - 1 - level][x // 2] = True
            for between, height in _between(before, (x, y)):
                dots[rows - 1 - height // 4][between // 2] |= _DOTS[3 - height % 4][between % 2]
            before = (x, y)
    return [
        [chr(0x2800 + cell) if cell else _BAND if shaded else " " for cell, shaded in zip(cells, shades, strict=True)]
        for cells, shades in zip(dots, band, strict=True)
    ]


def _between(before: tuple[int, int] | None, now: tuple[int, int]) -> list[tuple[int, int]]:
    """Dots from one place to the next."""
    if before is None:
        return [now]
    steps = max(abs(now[0] - before[0]), abs(now[1] - before[1]), 1)
    return [
        (before[0] + round((now[0] - before[0]) * i / steps), before[1] + round((now[1] - before[1]) * i / steps))
        for i in range(1, steps + 1)
    ]


def _axis(page: Page, picture: Picture, gutter: int) -> None:
    across = page.width - gutter - 1
    span = max(picture.until - picture.since, 1e-9)
    line, labels = ["─"] * across, [" "] * across
    wide = len(moment(picture.since, span))
    free = 0
    for at in ticks(picture.since, picture.until, max(1, across // (wide + 4))):
        place = min(int((at - picture.since) / span * across), across - 1)
        line[place] = "┬"
        start = min(max(place - wide // 2, 0), across - wide)
        if start >= free:
            labels[start : start + wide] = list(moment(at, span))
            free = start + wide + 1
    page.raw(" " * gutter + "└" + "".join(line))
    page.raw(" " * (gutter + 1) + "".join(labels).rstrip())
    if picture.marks:
        signs = [" "] * across
        grave = [False] * across
        for event in picture.marks:
            place = min(max(int((event.at - picture.since) / span * across), 0), across - 1)
            signs[place] = _MARK
            grave[place] = grave[place] or event.kind in _GRAVE
        text = "".join(
            page.paint(sign, _RED if bad else _YELLOW) if sign != " " else sign
            for sign, bad in zip(signs, grave, strict=True)
        )
        page.raw(" " * (gutter + 1) + text.rstrip())


def _event(page: Page, event: Event, repeats: str = "") -> None:
    colour = _RED if event.kind in _GRAVE else _YELLOW
    subject = f"{event.subject} " if event.subject and event.subject not in event.text else ""
    text = clean(f"{event.kind}: {subject}{event.text}")
    mark = page.paint(_MARK, colour)
    page.put(text, f"  {mark} {stamp(event.at)}  ", " " * 25)
    if repeats:
        page.put(clean(repeats[:1].upper() + repeats[1:]), " " * 25, " " * 25, _BOLD)


def events_text(told: list[Told], lang: str, *, colour: bool = False, width: int = 100) -> str:
    """Events as a list, oldest first."""
    page = Page(lang, width, colour=colour)
    if not told:
        page.put(words_of(lang)["no_events"])
    for one in told:
        _event(page, one.event, one.repeats)
    return page.text()


def list_text(listed: list[Listed], lang: str, *, colour: bool = False, width: int = 100) -> str:
    """The metrics that there are."""
    page = Page(lang, width, colour=colour)
    w = words_of(lang)
    if not listed:
        page.put(w["nothing"])
        return page.text()
    names = [f"{one.metric.kind}.{one.metric.field}" for one in listed]
    wide = min(max(map(len, names)), width // 2)
    for one, name in zip(listed, names, strict=True):
        unit = f" ({one.metric.unit})" if one.metric.unit else ""
        page.put(f"{one.metric.title(lang)}{unit}", f"{shorten(name, wide):{wide}}  {one.things:>4}  ")
    return page.text()
