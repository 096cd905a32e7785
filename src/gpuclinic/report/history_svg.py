"""The history as an SVG picture that reads on white and on black."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from gpuclinic.report._chart_axes import moment, number, pieces, scale, stamp, ticks
from gpuclinic.report.masking import clean

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuclinic.store.history import Bucket
    from gpuclinic.watch.history_view import Panel, Picture

_WIDTH, _LEFT, _RIGHT, _TOP, _TALL, _BELOW = 960, 70, 24, 46, 220, 40
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7a5195", "#8c6d31")
"""Okabe and Ito's, told apart by people who see colours differently, and two more."""
_STYLE = """\
:root { color-scheme: light dark; }
.page { fill: #ffffff; } .ink { fill: #1a1a1a; } .faint { fill: #5f5f5f; } .grid { stroke: #d9d9d9; } .axis { stroke: #8a8a8a; }
.mark { stroke: #c62828; } .marktext { fill: #c62828; }
@media (prefers-color-scheme: dark) {
  .page { fill: #14171a; } .ink { fill: #f0f0f0; } .faint { fill: #a8adb3; } .grid { stroke: #33383d; } .axis { stroke: #6b7178; }
  .mark { stroke: #ff7a70; } .marktext { fill: #ff7a70; }
}
text { font-family: system-ui, "Noto Sans", "Noto Sans CJK SC", "Microsoft YaHei", sans-serif; font-size: 12px; }
.title { font-size: 14px; font-weight: 600; }
.line { fill: none; stroke-width: 1.6; stroke-linejoin: round; } .band { stroke: none; }
"""
_MARKS = 60


def svg(picture: Picture, lang: str) -> str:
    """One panel under another, times below each, events as upright lines."""
    legend = max((-(-len(panel.lines) // 6) for panel in picture.panels), default=0)
    each = _TOP + legend * 18 + _TALL + _BELOW
    height = max(each * len(picture.panels), 60)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" role="img">',
        f"<style>{_STYLE}</style>",
        f'<rect class="page" width="{_WIDTH}" height="{height}"/>',
    ]
    for place, panel in enumerate(picture.panels):
        out += _panel(panel, picture, lang, place * each, legend * 18)
    out.append("</svg>")
    return "\n".join(out) + "\n"


def _text(x: float, y: float, text: str, kind: str, anchor: str = "start") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(clean(text))}</text>'


def _panel(panel: Panel, picture: Picture, lang: str, above: float, legend: float) -> list[str]:
    unit = f" ({panel.unit})" if panel.unit else ""
    out = [
        _text(_LEFT, above + 20, f"{panel.metric.title(lang)}{unit}", "ink title"),
        _text(_WIDTH - _RIGHT, above + 20, f"{stamp(picture.since)} – {stamp(picture.until)}", "faint", "end"),
    ]
    top = above + _TOP + legend
    bottom, right = top + _TALL, _WIDTH - _RIGHT
    low = min((bucket.low for line in panel.lines for bucket in line.buckets), default=0.0)
    high = max((bucket.high for line in panel.lines for bucket in line.buckets), default=1.0)
    low, high = scale(low, high)
    span = max(picture.until - picture.since, 1e-9)

    def x(at: float) -> float:
        return _LEFT + min(max((at - picture.since) / span, 0.0), 1.0) * (right - _LEFT)

    def y(value: float) -> float:
        return bottom - (value - low) / (high - low) * _TALL

    for step in range(5):
        value = low + (high - low) * step / 4
        out.append(f'<line class="grid" x1="{_LEFT}" x2="{right}" y1="{y(value):.1f}" y2="{y(value):.1f}"/>')
        out.append(_text(_LEFT - 8, y(value) + 4, number(value), "faint", "end"))
    for at in ticks(picture.since, picture.until, 8):
        out.append(f'<line class="axis" x1="{x(at):.1f}" x2="{x(at):.1f}" y1="{bottom:.1f}" y2="{bottom + 5:.1f}"/>')
        out.append(_text(x(at), bottom + 19, moment(at, span), "faint", "middle"))
    out.append(f'<line class="axis" x1="{_LEFT}" x2="{right}" y1="{bottom:.1f}" y2="{bottom:.1f}"/>')
    shade = 0.2 if len(panel.lines) < 3 else 0.07  # bands of many cards lie on one another
    for place, line in enumerate(panel.lines):
        colour = _COLOURS[place % len(_COLOURS)]
        for piece in pieces(line.buckets):
            edge = [(x(b.at), y(b.high)) for b in piece] + [(x(b.at), y(b.low)) for b in reversed(piece)]
            out.append(f'<polygon class="band" fill="{colour}" fill-opacity="{shade}" points="{_points(edge)}"/>')
            out.append(_line(piece, colour, [(x(b.at), y(b.mean)) for b in piece]))
        if line.label:
            left = _LEFT + (place % 6) * 145
            height = above + 42 + place // 6 * 18
            out.append(f'<rect x="{left}" y="{height - 9:.1f}" width="12" height="9" rx="2" fill="{colour}"/>')
            out.append(_text(left + 17, height, line.label[:20], "ink"))
    for event in picture.marks[-_MARKS:]:
        where = x(event.at)
        out.append(
            f'<line class="mark" stroke-dasharray="3 3" x1="{where:.1f}" x2="{where:.1f}" y1="{top:.1f}" y2="{bottom:.1f}">'
            f"<title>{escape(clean(f'{stamp(event.at)} {event.kind}: {event.text}'))}</title></line>"
        )
    out += _mark_names(picture, x, top)
    return out


def _mark_names(picture: Picture, x: Callable[[float], float], top: float) -> list[str]:
    """Names of the marks, where they do not stand in one another's way."""
    out, free = [], 0.0
    for event in picture.marks[-_MARKS:]:
        where = x(event.at)
        code = event.fields.get("code")
        kind = {"xid": "Xid", "sxid": "SXid"}.get(event.kind, event.kind)
        name = f"{kind} {code}" if isinstance(code, int) else kind
        anchor = "end" if where > _WIDTH - 120 else "start"
        if where >= free:
            out.append(
                _text(where + (4 if anchor == "start" else -4), top + 11, name.replace("_", " "), "marktext", anchor)
            )
            free = where + 8 + 7 * len(name)
    return out


def _points(places: list[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in places)


def _line(piece: list[Bucket], colour: str, places: list[tuple[float, float]]) -> str:
    if len(piece) == 1:
        return f'<circle cx="{places[0][0]:.1f}" cy="{places[0][1]:.1f}" r="2" fill="{colour}"/>'
    return f'<polyline class="line" stroke="{colour}" points="{_points(places)}"/>'
