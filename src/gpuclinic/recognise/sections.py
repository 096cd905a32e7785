"""Files that hold many outputs, cut into Documents, so that each parser gets its own and lines stay true.

nvidia-bug-report.log: a rule of underscores, an empty line, then "*** /path" with "*** ls: ...", or the command line,
then the content (as nvidia-bug-report.sh of the NVIDIA driver writes it). `kubectl cluster-info dump`: "==== START logs
for container ...".
"""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from gpuclinic.model import Document

_RULE = re.compile(r"^_{30,}[ \t\r]*$", re.MULTILINE)
_POD_LOGS = re.compile(r"^==== (?:START|END) logs for container .{1,400}====[ \t\r]*$", re.MULTILINE)
_HEADING = re.compile(r"\s*(?:\*\*\* (?P<path>/\S+)|(?P<command>[^\n]{1,200}))")
_MOST = 2000


def sections(document: Document) -> list[Document]:
    """The parts of a bundle in one file, or the document itself."""
    text = document.text
    if "Start of NVIDIA bug report log file" in text[:4096]:
        return _cut(document, [match.start() for match in _RULE.finditer(text)])
    if "==== START logs for container" in text:
        return _cut(document, [match.start() for match in _POD_LOGS.finditer(text)])
    return [document]


def _cut(document: Document, starts: list[int]) -> list[Document]:
    text = document.text
    edges = sorted({0, *starts[:_MOST], len(text)})
    out: list[Document] = []
    line = document.first_line
    for start, stop in itertools.pairwise(edges):
        part = text[start:stop]
        out.append(msgspec.structs.replace(document, text=part, first_line=line, name_hint=_name(part)))
        line += part.count("\n")
    return out


def _name(part: str) -> str:
    """The path or command a section's heading names."""
    rest = part.split("\n", 1)[1] if part.startswith("___") and "\n" in part else part
    found = _HEADING.match(rest)
    return (found["path"] or found["command"]).strip() if found else ""
