"""Where a text only quotes messages: rules of monitors, data sets, prompts, source code, patches, help, handbooks.

Each such place is a fact "quoted" with its first and last line; what was recognised there happened to nobody here.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpuclinic.recognise.parsers._host_util import clipped_lines, command_of, fact
from gpuclinic.recognise.parsers.quotation_blocks import (
    answers_of_models,
    commits,
    descriptions,
    examples,
    ignored_exceptions,
    labels,
    passed_tests,
    remarks,
)

if TYPE_CHECKING:
    from gpuclinic.model import Document, Fact
    from gpuclinic.model._types import Scalar

_MOST = 4000
_MOST_LOOKED_AT = 20_000
_FIELDS = ("prompt", "instruction", "question", "chosen", "rejected", "conversation", "query", "role")
_WORDS = (
    *(f'"{word}' for word in _FIELDS),
    *(f"'{word}" for word in _FIELDS),
    *("Received request ", "GenerateReqInput(", "<|im_start|>", "[INST]", "attern", "egex", "egExp"),
    *(
        "raise ",
        '" in ',
        "' in ",
        "re.compile(",
        "re.search(",
        "re.match(",
        "re.findall(",
        "log.",
        "logger.",
        "logging.",
        "LOG.",
        "LOGGER.",
    ),
    *("Fix", "Resolve", "Address", "Work", "修复", "解决", "PASSED", "Passed", "XPASS", "SKIPPED", "Skipped", "... ok"),
    *("OK", "ok]", "PASS", "GOOD", "通过", "正常", "✓", "✔", "✅"),
    *("printf(", "printf (", "print(", "throw ", "panic(", "errors.New(", "fmt.Errorf(", "pytest.raises("),
    *(
        "grep",
        " rg ",
        " ag ",
        " awk ",
        " sed ",
        "findstr",
        "strings ",
        "objdump ",
        "man ",
        "pydoc",
        "tldr ",
        "--help",
        "help(",
        "cat ",
        "less ",
        "head ",
        "bat ",
        "Select-String",
        "journalctl",
        ".md:",
        ".md-",
        ".mdx:",
        ".rst:",
        ".rst-",
        ".adoc:",
    ),
)
"""Words of which a quoting line holds at least one."""
_BLOCKS = (
    (commits, ("git log", "commit ")),
    (passed_tests, ("--- PASS", "--- SKIP", " OK ]")),
    (remarks, ("NodeName=",)),
    (ignored_exceptions, ("Exception ignored ",)),
    (examples, ("xample", "ample ", "样本", "示例", "样例")),
    (labels, ('"expr"', " expr:")),
    (descriptions, ("- name:",)),
    (answers_of_models, ("Assistant:", "ASSISTANT:", "助手", "AI:", "Bot:")),
)
"""Finders of blocks, and the words without which there are none."""
_ROLES = r"""["']role["'] ?: ?["'](?:user|assistant|system|human)["']"""
_DATA = re.compile(
    r"""["'](?:prompt|instruction|question|chosen|rejected|conversations?|query)["'] ?: ?["'\[{]|""" + _ROLES
    + r"""|\bReceived request \S{1,80}: prompt: |GenerateReqInput\(|<\|im_start\|>|\[INST\]"""
)  # fmt: skip
_ALARM = re.compile(r"\b(?:ERROR|CRITICAL|FATAL|Traceback|Exception|[Ff]ailed|Xid)\b|[Ee]rror\b")
_RULE = re.compile(
    r"""(?:^|[\s{,\[])["']?(?:[Pp]attern|[Rr]eg[Ee]xp?|matchRegex|match_regex)["']? ?[:=] ?["'r(/\\^.\w]"""
)
_EXPRESSION = re.compile(r"\\+[dSsw(.\[]|\.[*+]|\(\?|\[\^?[0-9a-z]-|\)\?|^\s*[-{\"']")
_CODE = re.compile(
    r"""^\s*(?:\d{1,5}[:|\s]\s*|>+\s*)?(?:raise \w[\w.]*\(|"""
    r"""(?:el)?if [^:]{0,80}["'][^"']*["'] (?:not )?in \w|re\.(?:compile|search|match|findall)\(|"""
    r"""(?:self\.|_)?(?:log|logger|logging|LOG|LOGGER)\.\w+\(|f?printf? ?\(|fprintf ?\(|throw (?:new )?\w|panic\(["']|"""
    r"""(?:errors\.New|fmt\.Errorf)\(|\w[\w.]* ?= ?re\.compile\(|with pytest\.raises\()"""
)
_FIXED = re.compile(
    r"^\s*(?:[-*•+]|\d{1,3}[.)])?\s*(?:\[[^\]]{1,40}\]\s*)?(?:Fix(?:e[sd])?|Resolve[sd]?|Address(?:es|ed)?|Work(?:s|ed)? around|修复|解决)"
    r"(?:了|:)?\s.{0,40}?(?:\b(?:issue|bug|problem|regression|race|crash|hang|panic|error|deadlock|leak|where|failure)\b|问题|错误)"
)
_PASSED = re.compile(
    r"^(?:test |\S+::|\s*\d+/\d+ Test )[^\n]{0,200}(?:\bPASSED\b|\bXPASS\b|\bSKIPPED\b|\bPassed\b|\*{3}Skipped|\.\.\. (?:ok|ignored)\b)"
)
_GOOD = re.compile(
    r"^\s*(?:\d{4}-\d\d-\d\d \S+ )?(?:\[ ?(?:OK|ok|PASS|PASSED|GOOD|通过|正常) ?\]|(?:OK|PASS|PASSED)\s*[:|]|✓|✔|✅)"
)
_HISTORY = re.compile(r"^\s{0,6}\d{1,6}\*? {1,3}(?:\d{4}-\d\d-\d\d [\d:]+ +)?(?:sudo +)?[a-z][\w./-]*(?: |$)")
_PAGE = re.compile(r"(?i)\A\s*(?:<!doctype html|<html)")
_PAGE_OF_TALK = re.compile(
    r"(?i)class=[\"'][^\"']*\b(?:question|answer|post|comment|topic|thread)|<title>[^<]*(?:stack ?overflow|forum|github|issue|discuss|how to|"
    r"q&amp;a|论坛|知乎|csdn|博客|解决)"
)
_SEARCH = re.compile(r"\b(?:z?[ef]?grep|rg|ag|awk|sed|findstr|Select-String|journalctl\b[^|]*(?: -g|--grep))\b")
_TRACE = re.compile(r"^\++ +\S")
_SHOWS_TEXT = re.compile(
    r"\b(?:strings|objdump|man|pydoc3?|tldr) +\S|--help\b|\bhelp\(|\b(?:cat|less|head|bat)\b[^|]*\.(?:md|rst|adoc|py|sh|go|cc?|h|cu|cpp|rs)\b"
)
_SEARCHED_TREE = re.compile(r"\b(?:git grep|rg|ag|grep +(?:-\w+ +)*-\w*[rR]\w*)\b")
_FROM_TEXT = re.compile(r"^(?:[\w.~@+-]+/|/|\./)?[\w./~@+ -]{0,200}\.(?:md|rst|adoc|mdx)[:-](?:\d+[:-])?", re.ASCII)
_FROM_CODE = re.compile(
    r"^(?:[\w.~@+-]+/|/|\./)?[\w./~@+ -]{0,200}"
    r"\.(?:py|pyi|c|cc|cpp|h|hpp|cuh?|go|rs|java|js|ts|ya?ml|toml|sh|ipynb|tex|html|cfg|conf|rules)[:-]",
    re.ASCII,
)
_HUNK = re.compile(r"^@@ -\d+(?:,(?P<old>\d{1,9}))? \+\d+(?:,(?P<new>\d{1,9}))? @@")
_USAGE = re.compile(r"^\s*[Uu]sage:\s")
_OPTIONS = re.compile(r"^\s*(?:options|optional arguments|positional arguments|[Ff]lags|Options|Arguments)\s*:?\s*$")
_TITLE = re.compile(
    r"(?i)^#{1,3} .{0,60}(?:runbook|run book|playbook|troubleshoot|faq\b|guide|handbook|known issues|common (?:\w+ ){0,2}(?:errors|problems)|"
    r"error codes|how to|cheat ?sheet|reference|手册|排查|排障|指南|常见|故障处理)"
)
_NAMES = re.compile(r"(?i)(?:^|/)(?:readme|runbook|playbook|faq|troubleshooting|contributing|howto|handbook)[\w.-]*$")
_HEADING = re.compile(r"^#{1,4} \S|^[=~-]{4,}$")
_CONDITION = re.compile(
    r"\b(?:[Ii]f|[Ww]hen(?:ever)?|[Ss]hould) (?:you|your|the|a|an|it|this|these|dmesg|nvidia-smi)\b|\b[Ff]or example\b|\be\.g\.|"
    r"\blooks? like\b|如果|若出现|若看到|当.{1,20}时|例如"
)
_ACCOUNT = re.compile(r"\b(?:I|I'm|my|we|our)\b|\bTraceback \(most recent|我(?:们)?的?")
"""Words of somebody who tells what happened to him."""
_DATED = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d|\b[A-Z][a-z]{2} +\d{1,2} \d\d:\d\d:\d\d|^\[ *\d+\.\d{6}\]")


def parse_quotations(document: Document) -> list[Fact]:
    """Every place of the document that only quotes: "quoted" with first, last (line numbers) and why."""
    lines = clipped_lines(document)
    if _is_handbook(document, lines):
        return [_quoted(document, 0, len(lines) - 1, lines[0], "handbook")]
    found = _hunks(document, lines) if "@@ -" in document.text else []
    found += _help(document, lines) if "sage:" in document.text else []
    for blocks, words in _BLOCKS:
        if any(word in document.text for word in words):
            found += [_quoted(document, first, last, lines[first], why) for first, last, why in blocks(lines)]
    for index in _telling(document.text):
        line = lines[index]
        why = _why(line)
        if why:
            found.append(_quoted(document, index, index, line, why))
        elif _SHOWS_TEXT.search(line) and command_of(line):
            found.extend(_answers(document, lines, index + 1, any_line=True))
        if why == "command" and (_SEARCHED_TREE.search(line) or _SHOWS_TEXT.search(line)):
            found.extend(_answers(document, lines, index + 1, any_line=_SHOWS_TEXT.search(line) is not None))
        if len(found) >= _MOST:
            break
    return found


def _telling(text: str) -> list[int]:
    """The indices of the lines that hold any of the telling words: plain search is much faster than expressions."""
    places: set[int] = set()
    for word in _WORDS:
        at = text.find(word)
        while at >= 0 and len(places) < _MOST_LOOKED_AT:
            places.add(text.rfind("\n", 0, at) + 1)
            end = text.find("\n", at)
            at = text.find(word, end) if end >= 0 else -1
    indices: list[int] = []
    counted = number = 0
    for start in sorted(places):
        number += text.count("\n", counted, start)
        counted = start
        indices.append(number)
    return indices


def _answers(document: Document, lines: list[str], start: int, *, any_line: bool) -> list[Fact]:
    """What a search through a tree of sources answered, or a program that only shows texts, up to the next command."""
    found: list[Fact] = []
    for index in range(start, min(start + 400, len(lines))):
        if command_of(lines[index]):
            break
        if any_line or _FROM_CODE.match(lines[index]):
            found.append(_quoted(document, index, index, lines[index], "search"))
    return found


def _why(line: str) -> str:
    """Why a line by itself only quotes, or nothing."""
    if command_of(line) or _TRACE.match(line) or (_HISTORY.match(line) and _SEARCH.search(line)):
        return "command" if _SEARCH.search(line) else ""
    data = _DATA.search(line)
    if data and not _ALARM.search(line[: data.start()]):
        return "data"
    rule = _RULE.search(line)
    if rule and _EXPRESSION.search(line):
        return "rule"
    if _CODE.match(line):
        return "code"
    if _FIXED.match(line):
        return "release notes"
    if _PASSED.match(line) or _GOOD.match(line):
        return "test"
    return "search" if _FROM_TEXT.match(line) else ""


def _hunks(document: Document, lines: list[str]) -> list[Fact]:
    """The changed lines of patches."""
    found: list[Fact] = []
    index = 0
    while index < len(lines):
        match = _HUNK.match(lines[index])
        start = index
        index += 1
        if match is None:
            continue
        old, new = int(match["old"] or 1), int(match["new"] or 1)
        while index < len(lines) and (old > 0 or new > 0) and lines[index][:1] in (" ", "+", "-", "\\", ""):
            mark = lines[index][:1]
            old -= mark != "+"
            new -= mark != "-"
            index += 1
        found.append(_quoted(document, start, index - 1, lines[start], "patch"))
    return found


def _help(document: Document, lines: list[str]) -> list[Fact]:
    """The options that a program's help lists."""
    found: list[Fact] = []
    usage = -(10**6)
    index = 0
    while index < len(lines):
        if _USAGE.match(lines[index]):
            usage = index
        start = index
        index += 1
        if not _OPTIONS.match(lines[start]) or start - usage > 60:
            continue
        while index < len(lines) and (
            not lines[index].strip() or lines[index][:1] in " \t" or _OPTIONS.match(lines[index])
        ):
            index += 1
        found.append(_quoted(document, start, index - 1, lines[start], "help"))
    return found


def _is_handbook(document: Document, lines: list[str]) -> bool:
    """The document tells what to do in case of, and is no account of what happened."""
    if _PAGE.match(document.text) and _PAGE_OF_TALK.search(document.text[:65536]):
        return True
    head = lines[:400]
    if not any(_CONDITION.search(line) for line in head) or not any(_HEADING.match(line) for line in head):
        return False
    if any(_DATED.search(line) or _ACCOUNT.search(line) for line in head):
        return False
    return any(_TITLE.match(line) for line in head[:15]) or bool(_NAMES.search(document.source))


def _quoted(document: Document, first: int, last: int, line: str, why: str) -> Fact:
    fields: dict[str, Scalar] = {"first": document.first_line + first, "last": document.first_line + last, "why": why}
    return fact(document, "quoted", why, fields, first, line[:200])
