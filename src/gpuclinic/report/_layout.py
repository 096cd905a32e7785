"""Widths and line breaks, East Asian characters included."""

from __future__ import annotations

import unicodedata

_NOT_FIRST = set("，。、；：！？）】」』》”’％%,.;:!?)]}…·")
_NOT_LAST = set("（【「『《“‘([{$")


def columns_of(character: str) -> int:
    """Columns that one character takes on a terminal."""
    if character < "\u0300":
        return 1
    if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1


def columns(text: str) -> int:
    """Columns that a text takes on a terminal."""
    return len(text) if text.isascii() else sum(map(columns_of, text))


def shorten(text: str, width: int) -> str:
    """The text cut to the width, with an ellipsis where something was cut."""
    if columns(text) <= width:
        return text
    used, out = 0, []
    for character in text:
        used += columns_of(character)
        if used > width - 1:
            break
        out.append(character)
    return "".join(out).rstrip() + "…"


def _pieces(text: str) -> list[str]:
    """Unbreakable pieces: words with the blanks before them, and single wide characters."""
    pieces: list[str] = []
    word = ""
    for character in text:
        if character == " ":
            if word.strip():
                pieces.append(word)
                word = ""
            word += character
        elif columns_of(character) == 2:
            if character in _NOT_FIRST:
                word += character
                continue
            if word and (word.strip() == "" or word[-1] in _NOT_LAST):
                word += character
            else:
                if word:
                    pieces.append(word)
                word = character
        else:
            if word and columns_of(word[-1]) == 2 and character not in _NOT_FIRST and word[-1] not in _NOT_LAST:
                pieces.append(word)
                word = ""
            word += character
    if word:
        pieces.append(word)
    return pieces


def wrap(text: str, width: int) -> list[str]:
    """Lines of at most this many columns; words are broken only where they are longer than a line."""
    width = max(width, 8)
    lines: list[str] = []
    line = ""
    for piece in _pieces(text):
        if columns(line) + columns(piece) <= width:
            line += piece
            continue
        if line.strip():
            lines.append(line.rstrip())
        line = piece.lstrip()
        while columns(line) > width:
            head = _head(line, width)
            lines.append(head)
            line = line[len(head) :]
    if line.strip():
        lines.append(line.rstrip())
    return lines or [""]


def _head(text: str, width: int) -> str:
    used = 0
    for index, character in enumerate(text):
        used += columns_of(character)
        if used > width:
            return text[:index]
    return text


def ranges(numbers: list[int]) -> str:
    """Numbers as a person writes them: 0-3,7."""
    out: list[str] = []
    ordered = sorted(set(numbers))
    start = 0
    for index, number in enumerate(ordered):
        if index + 1 == len(ordered) or ordered[index + 1] != number + 1:
            first = ordered[start]
            out.append(
                str(first) if first == number else f"{first}-{number}" if number > first + 1 else f"{first},{number}"
            )
            start = index + 1
    return ",".join(out)
