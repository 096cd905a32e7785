"""Turns a signature's pattern into one that Hyperscan compiles and that cannot cross a line."""

from __future__ import annotations

import re
from typing import Any

_TOKEN = re.compile(r"\\.|\(\?P<\w+>|\[\^?|\]|[^\\\[\]()]+|.", re.DOTALL)
_ONE_LINE_CLASSES = {r"\s": r"[ \t\r\f\x0b]", r"\D": r"[^0-9\n]", r"\W": r"[^0-9A-Za-z_\n]", r"\S": r"[^ \t\r\n\f\x0b]"}
_LOOSE_END = re.compile(r"(?:(?<!\\)\.\*\??|(?<!\\)\.\{0,\d+\}\??|\((?:\?:)?\.\*\)\??)+$")
"""What a match may end in without being decided by it; left off, since Hyperscan would report every end in the line."""
_IN_CLASS = {r"\s": r" \t\r\f\x0b"}


def for_hyperscan(pattern: str) -> str:
    """The same expression with groups unnamed and classes that never match a line feed."""
    out: list[str] = []
    inside = False
    for token in _TOKEN.findall(pattern):
        if token.startswith("(?P<"):
            out.append("(?:")
        elif token.startswith("[") and not inside:
            inside = True
            out.append(token + (r"\n" if token == "[^" else ""))
        elif token == "]" and inside and out[-1] not in ("[", "[^", r"[^\n"):
            inside = False
            out.append(token)
        elif token.startswith("\\"):
            out.append((_IN_CLASS if inside else _ONE_LINE_CLASSES).get(token, token))
        else:
            out.append(token)
    return _LOOSE_END.sub("", "".join(out))


def longest_literal(pattern: str) -> str:
    """The longest text that every match of the expression holds, or "" where there is none."""
    try:
        parsed = _parse(pattern)
    except re.error:
        return ""
    runs = [""]
    _collect(parsed, runs)
    return max(runs, key=len)


def _parse(pattern: str) -> Any:
    import sys

    if sys.version_info >= (3, 11):
        from re import _parser as parser  # the public module for this was renamed without a successor
    else:
        import sre_parse as parser
    return parser.parse(pattern)


def _collect(items: Any, runs: list[str]) -> None:
    for operation, argument in items:
        name = str(operation)
        if name == "LITERAL":
            runs[-1] += chr(argument)
        elif name == "SUBPATTERN":
            _collect(argument[3], runs)
        elif name == "MAX_REPEAT" and argument[0] >= 1:
            runs.append("")
            _collect(argument[2], runs)
            runs.append("")
        else:
            runs.append("")
