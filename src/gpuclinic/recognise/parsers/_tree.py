"""YAML and JSON as a flat list of leaves with their lines: enough to read manifests and damaged pastes, no more."""

from __future__ import annotations

import json
import re
from typing import NamedTuple

MAX_LEAVES = 20_000
"""More leaves than this are not looked at."""

_KEY = re.compile(
    r"^(?P<indent>[ \t]*)(?P<dashes>(?:- +)*)(?P<key>\"[^\"]*\"|'[^']*'|[^\s#:\"'{\[][^:#]*?|[\w./-]+(?::[\w./-]+)*)"
    r"\s*:(?:\s+(?P<value>.*))?$"
)
_ITEM = re.compile(r"^(?P<indent>[ \t]*)(?P<dashes>(?:- +)*-)(?:\s+(?P<value>.*))?$")


class Leaf(NamedTuple):
    """A scalar: the keys that lead to it (list places are numbers), its text, and the index of its line (from 0)."""

    path: tuple[str | int, ...]
    value: str
    line: int


def _scalar(text: str) -> str:
    text = text.strip()
    if text[:1] in "\"'":
        end = text.find(text[0], 1)
        return text[1:end] if end > 0 else text[1:]
    return re.sub(r"\s+#.*$", "", text).strip()


def _flow(text: str) -> object:
    """A flow value: JSON, or YAML's unquoted form of it; the text itself where neither works."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    quoted = re.sub(
        r"(?<=[{\[,:])\s*([^\s\"'{}\[\],:][^{}\[\],:]*?(?::[^{}\[\],:\s]+)?)\s*(?=[}\],:])",
        r'"\1"',
        text.replace("'", '"'),
    )
    try:
        return json.loads(quoted)
    except (ValueError, RecursionError):
        return text


def _walk(value: object, path: tuple[str | int, ...], index: int, leaves: list[Leaf], depth: int = 0) -> None:
    if len(leaves) >= MAX_LEAVES or depth > 60:
        return
    if isinstance(value, dict):
        for key, inner in value.items():
            _walk(inner, (*path, str(key)), index, leaves, depth + 1)
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            _walk(inner, (*path, place), index, leaves, depth + 1)
    else:
        text = (
            {True: "true", False: "false", None: ""}.get(value)
            if value is None or isinstance(value, bool)
            else str(value)
        )
        leaves.append(Leaf(path, text or "", index))


def yaml_leaves(lines: list[str]) -> list[Leaf]:
    """Leaves of YAML text. Several documents get their number as the first element of the path."""
    leaves: list[Leaf] = []
    stack: list[tuple[int, str | int]] = []
    counters: dict[int, int] = {}
    number, block = 0, -1
    for index, line in enumerate(lines):
        if len(leaves) >= MAX_LEAVES:
            break
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        indent = len(line) - len(line.lstrip(" \t"))
        if block >= 0 and indent > block:
            continue
        block = -1
        if line.startswith("---"):
            number += 1
            stack.clear()
            counters.clear()
            continue
        match = _KEY.match(line) if len(line) < 4000 else None
        item = None if match else (_ITEM.match(line) if len(line) < 4000 else None)
        found = match or item
        if found is None:
            continue
        block = _line(found, index, indent, number, stack, counters, leaves, key=match["key"] if match else None)
    return leaves


def _line(
    found: re.Match[str],
    index: int,
    indent: int,
    number: int,
    stack: list[tuple[int, str | int]],
    counters: dict[int, int],
    leaves: list[Leaf],
    *,
    key: str | None,
) -> int:
    """Puts one line into the tree; returns the indent of a block scalar that starts here, else -1."""
    column = indent
    for dash in re.finditer(r"-\s*", found["dashes"] or ""):
        while (stack and stack[-1][0] > column) or (stack and stack[-1][0] == column and isinstance(stack[-1][1], int)):
            stack.pop()
        for old in [depth for depth in counters if depth > column]:
            del counters[old]
        counters[column] = counters.get(column, -1) + 1
        stack.append((column, counters[column]))
        column += len(dash.group())
    value = (found["value"] or "").strip()
    path: tuple[str | int, ...]
    if key is None:
        path = (number, *(name for _, name in stack))
    else:
        while stack and stack[-1][0] >= column and not (isinstance(stack[-1][1], int) and stack[-1][0] < column):
            stack.pop()
        for old in [depth for depth in counters if depth > column or (depth == column and not found["dashes"])]:
            del counters[old]
        name = key.strip().strip("\"'")
        path = (number, *(part for _, part in stack), name)
        stack.append((column, name))
    if re.match(r"^[|>][+-]?\d*$", value):
        return column
    if value[:1] in "{[":
        _walk(_flow(re.sub(r"\s+#.*$", "", value)), path, index, leaves)
    elif value:
        leaves.append(Leaf(path, _scalar(value), index))
    return -1


def json_leaves(text: str) -> list[Leaf] | None:
    """Leaves of JSON text, or None where it is none. Lines are found by scanning on for each leaf's key."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return None
    raw: list[Leaf] = []
    _walk(data, (0,), 0, raw)
    lines = text.split("\n")
    leaves: list[Leaf] = []
    cursor = 0
    for leaf in raw:
        key = next((f'"{part}"' for part in reversed(leaf.path) if isinstance(part, str)), None)
        if key is not None and isinstance(leaf.path[-1], str):
            for index in range(cursor, len(lines)):
                if key in lines[index]:
                    cursor = index
                    break
        leaves.append(Leaf(leaf.path, leaf.value, cursor))
    return leaves


def leaves_of(text: str) -> list[Leaf]:
    """Leaves of a text that is JSON or YAML, possibly with other text before it."""
    stripped = text.lstrip()
    if stripped[:1] in "{[":
        found = json_leaves(text)
        if found is not None:
            return found
    start = re.search(r"^[{\[]\s*$", text, re.MULTILINE)
    if start:
        found = json_leaves(text[start.start() :])
        if found is not None:
            skipped = text.count("\n", 0, start.start())
            return [Leaf(leaf.path, leaf.value, leaf.line + skipped) for leaf in found]
    return yaml_leaves(text.split("\n"))
