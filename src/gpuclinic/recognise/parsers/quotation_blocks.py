"""Blocks of a text that tell of other things than of what happened: commits, tests that passed, remarks on a node.

Each function gives (first index, last index, why) of the blocks in lines.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

Block = tuple[int, int, str]

_COMMIT = re.compile(r"^commit [0-9a-f]{40}\b")
_SHORT = re.compile(r"^[*|\\/ ]{0,8}(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])(?P<hash>[0-9a-f]{7,12}) (?:\([^)]{1,80}\) )?\S")
_FEWEST = 3
_BEGINS = re.compile(r"^\s*(?:=== RUN\s+|\[ RUN\s+\] )(?P<name>\S+)")
_PASSES = re.compile(r"^\s*(?:--- (?:PASS|SKIP): |\[\s+(?:OK|SKIPPED) \] )(?P<name>[^\s,(]+)")
_NODE_STATE = re.compile(r"\bState=(?P<state>\S+)")
_WORKS = re.compile(r"(?:IDLE|MIXED|ALLOCATED|COMPLETING)(?:\+(?:CLOUD|DYNAMIC_NORM|DYNAMIC_FUTURE|POWERED_UP))*")
_LONGEST_TEST = 2000


def commits(lines: list[str]) -> Iterator[Block]:
    """What `git log` prints: whole commits, and lists of at least three short ones."""
    index = 0
    while index < len(lines):
        start = index
        if _COMMIT.match(lines[index]):
            index += 1
            while index < len(lines) and re.match(r"(?:[A-Z]\w+:\s|\s{4}|\s*$)", lines[index]):
                index += 1
            yield start, index - 1, "commit"
        elif _SHORT.match(lines[index]):
            while index < len(lines) and _SHORT.match(lines[index]):
                index += 1
            if index - start >= _FEWEST:
                yield start, index - 1, "commit"
        else:
            index += 1


def passed_tests(lines: list[str]) -> Iterator[Block]:
    """What tests of Go and GoogleTest print that pass."""
    open_tests: dict[str, int] = {}
    for index, line in enumerate(lines):
        begins = _BEGINS.match(line)
        if begins:
            open_tests[begins["name"]] = index
            continue
        passes = _PASSES.match(line)
        start = open_tests.pop(passes["name"], None) if passes else None
        if start is not None and index - start <= _LONGEST_TEST:
            yield start, index, "test"


def remarks(lines: list[str]) -> Iterator[Block]:
    """Comments on a Slurm node, and the reason that stays at a node which works again."""
    works = False
    for index, line in enumerate(lines):
        state = _NODE_STATE.search(line)
        if state:
            works = _WORKS.fullmatch(state["state"]) is not None
        text = line.lstrip()
        if text.startswith(("Comment=", "AdminComment=", "Extra=")) or (works and text.startswith("Reason=")):
            yield index, index, "remark"
