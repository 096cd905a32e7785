"""`ldd`: which library a program would load from where, and which it would not find."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpuclinic.recognise.parsers.gpu_text import Scalar, make

if TYPE_CHECKING:
    from gpuclinic.model import Document, Fact

_COMMAND = re.compile(r"(?:^|[$#>]\s*)(?:sudo )?ldd\s+(?:-\w\s+)?(?P<path>[^\s|;&]+)")
_FILE = re.compile(r"^(?P<path>/?\S+\.so[\w.]*|/\S+):\s*$")
_ROW = re.compile(r"^\s+(?P<name>[\w.+-]+\.so[\w.+-]*) => (?P<path>/\S+|not found)(?: \(0x[0-9a-f]+\))?\s*$")
_VERSION = re.compile(
    r"version [`'‘](?P<need>(?:GLIBC|GLIBCXX|CXXABI)_[\d.]+)['’] not found \(required by (?P<by>\S+)\)"
)


def parse_ldd(document: Document) -> list[Fact]:
    """Facts library: name, path or missing, needed_by."""
    facts: list[Fact] = []
    by = ""
    for index, line in enumerate(document.lines()):
        if len(line) > 600:
            continue
        row = _ROW.match(line)
        if row:
            gone = row["path"] == "not found"
            fields: dict[str, Scalar] = {
                "name": row["name"],
                "path": None if gone else row["path"],
                "missing": gone,
                "needed_by": by,
                "from_system": row["path"].startswith(("/usr/local/cuda", "/usr/lib", "/lib", "/opt/")),
                "in_wheel": "/site-packages/" in row["path"],
                "needed_by_wheel": "/site-packages/" in by or "/dist-packages/" in by,
                "cuda_library": re.match(r"lib(?:cu|nv|nccl)", row["name"]) is not None
                and row["name"] != "libnuma.so.1",
            }
            facts.append(make(document, "library", row["name"], fields, index, line))
            continue
        need = _VERSION.search(line)
        if need:
            fields = {"name": need["need"], "missing": True, "needed_by": need["by"], "symbol_version": need["need"]}
            facts.append(make(document, "library", need["need"], fields, index, line))
            continue
        found = _COMMAND.search(line) or _FILE.match(line)
        if found:
            by = found["path"]
    return facts
