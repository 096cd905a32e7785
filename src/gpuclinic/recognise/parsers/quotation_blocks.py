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


_IGNORED = re.compile(r"^(?:\S{0,20} ?)?Exception ignored (?:in|on|while)\b")
_EXCEPTION_ENDS = re.compile(r"^(?:\S{0,20} ?)?[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|Warning|Stopped)\b")
_LONGEST_TRACE = 80
_EXAMPLE = re.compile(r"^\s*(?:[Ee]xample|[Ss]ample|样本|示例|样例) ?#?\d{1,7} ?[:：]\s*$")
_LABEL = re.compile(
    r"""^\s*-?\s*["']?(?:title|summary|description|expr|alert|legendFormat|message|runbook_url)["']?\s*:|"expr"\s*:"""
)
_ANSWER = re.compile(r"^\s*(?:Assistant|ASSISTANT|助手|AI|Bot)\s*[:：]\s")


def ignored_exceptions(lines: list[str]) -> Iterator[Block]:
    """Exceptions in destructors and at exit, which Python prints and ignores."""
    index = 0
    while index < len(lines):
        start = index
        index += 1
        if not _IGNORED.match(lines[start]):
            continue
        if index < len(lines) and "Traceback (most recent call last)" in lines[index]:
            while index < len(lines) and index - start < _LONGEST_TRACE and not _EXCEPTION_ENDS.match(lines[index]):
                index += 1
        if index < len(lines) and _EXCEPTION_ENDS.match(lines[index]):
            index += 1
        yield start, min(index, len(lines)) - 1, "ignored"


def examples(lines: list[str]) -> Iterator[Block]:
    """Samples of a data set, each under its number."""
    index = 0
    while index < len(lines):
        start = index
        index += 1
        if _EXAMPLE.match(lines[start]):
            while index < len(lines) and lines[index][:1] in (" ", "\t"):
                index += 1
            yield start, index - 1, "data"


def labels(lines: list[str]) -> Iterator[Block]:
    """Titles and texts of dashboards and alert rules."""
    for index, line in enumerate(lines):
        if _LABEL.search(line):
            yield index, index, "rule"


def answers_of_models(lines: list[str]) -> Iterator[Block]:
    """What a chat model said."""
    for index, line in enumerate(lines):
        if _ANSWER.match(line):
            yield index, index, "data"


_DESCRIPTION = re.compile(r"""^\s*-?\s*(?:description|summary|title|help|doc|expect)\s*:\s*\S""")


def descriptions(lines: list[str]) -> Iterator[Block]:
    """What the items of a list in YAML are for: plans, checks, tests."""
    for index, line in enumerate(lines):
        if _DESCRIPTION.match(line):
            yield index, index, "rule"
