"""Lines made of spans: a text and the role that its colours follow."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gpuclinic.report._layout import columns, shorten

if TYPE_CHECKING:
    from collections.abc import Sequence

Span = tuple[str, str]
Line = list[Span]

_EIGHTHS = " ▏▎▍▌▋▊▉█"
_BRAILLE = 0x2800
_FILLED = ((0x40, 0x04, 0x02, 0x01), (0x80, 0x20, 0x10, 0x08))
"""Dots of the left and the right column of a braille character, from below."""

ROLES = (
    "", "dim", "good", "warn", "bad", "title", "head", "head_bad", "head_warn", "head_note", "sorted", "bar", "track", "graph", "chosen",
    "chosen_idle", "key", "note", "edge",
)  # fmt: skip


def fit(text: str, width: int, *, right: bool = False) -> str:
    """The text in exactly so many columns."""
    if width <= 0:
        return ""
    text = shorten(text, width)
    space = " " * (width - columns(text))
    return space + text if right else text + space


def width_of(line: Sequence[Span]) -> int:
    """Columns of a line."""
    return sum(columns(text) for text, _ in line)


def clip(line: Line, width: int, role: str = "") -> Line:
    """The line in exactly so many columns; what is missing gets the role."""
    out: Line = []
    left = width
    for text, own in line:
        size = columns(text)
        if size > left:
            if left > 0:
                out.append((fit(text.rstrip() if columns(text.rstrip()) <= left else text, left), own))
            left = 0
            break
        out.append((text, own))
        left -= size
    if left > 0:
        out.append((" " * left, role))
    return out


def plain(line: Sequence[Span]) -> str:
    """The line without its colours."""
    return "".join(text for text, _ in line).rstrip()


def bar(share: float | None, width: int, role: str) -> Line:
    """A bar of so many columns for a share between 0 and 1."""
    if share is None:
        return [("·" * width, "track")]
    eighths = round(max(0.0, min(1.0, share)) * width * 8)
    full, part = divmod(eighths, 8)
    text = "█" * full + (_EIGHTHS[part] if part else "")
    return [(text, role), ("·" * (width - len(text)), "track")]


def heat_role(share: float | None) -> str:
    """The role of a number that is the worse the nearer it is to 1."""
    return "" if share is None else "bad" if share >= 0.97 else "warn" if share >= 0.9 else ""


def graph(values: Sequence[float | None], width: int, height: int, top: float) -> list[str]:
    """Filled braille columns, two values a character, the newest at the right. top: the value at the upper edge."""
    given: list[float | None] = [None] * max(0, 2 * width - len(values))
    given += values[-2 * width :]
    rows = [[0] * width for _ in range(height)]
    for place, value in enumerate(given):
        if value is None:
            continue
        dots = max(1, round(max(0.0, min(1.0, value / top if top else 0.0)) * height * 4))
        for dot in range(dots):
            rows[height - 1 - dot // 4][place // 2] |= _FILLED[place % 2][dot % 4]
    return ["".join(chr(_BRAILLE + cell) if cell else " " for cell in row) for row in rows]


class Column(NamedTuple):
    """A column of a table. width: in columns. right: numbers. from_width: only on screens at least so wide."""

    id: str
    width: int
    right: bool = False
    from_width: int = 0
