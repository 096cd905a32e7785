"""`gpustat`: one line for each card with its memory and the processes on it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpuclinic.recognise.parsers.gpu_text import Draft

if TYPE_CHECKING:
    from gpuclinic.model import Document, Fact

_CARD = re.compile(
    r"^[ \t>]*\[(?P<index>\d{1,3})\] (?P<name>[^|]{2,60}?) *\| *(?P<heat>\d{1,9})?[^,|]{0,8}(?:, *(?P<fan>\d{1,9}) %)?,"
    r" *(?P<busy>\d{1,9}|\?\?) %(?:, *(?P<power>\d{1,9})(?: / *(?P<limit>\d{1,9}))? W)? *\| *(?P<used>\d{1,9}) / *(?P<total>\d{1,9}) MB"
    r"(?: *\|(?P<processes>.*))?"
)
_PROCESS = re.compile(r"(?:(?P<user>[\w.-]+):)?(?P<name>[^\s:/()]+)?/(?P<pid>\d{1,8})\((?P<memory>\d{1,9}|\?)M?\)")


def parse_gpustat(document: Document) -> list[Fact]:
    """Facts gpu and gpu_process of each card."""
    facts: list[Fact] = []
    for number, line in enumerate(document.lines()):
        found = _CARD.match(line[:2000])
        if not found:
            continue
        index = int(found["index"])
        card = Draft(document, "gpu", str(index), number, line)
        card.fields.update(index=index, name=found["name"].strip(), tool="gpustat")
        card.fields.update(memory_used_mib=int(found["used"]), memory_total_mib=int(found["total"]))
        for field, group in (
            ("temperature_c", "heat"),
            ("utilization_pct", "busy"),
            ("power_w", "power"),
            ("power_limit_w", "limit"),
        ):
            if (found[group] or "").isdecimal():
                card.fields[field] = int(found[group])
        facts.append(card.fact())
        for process in _PROCESS.finditer(found["processes"] or ""):
            row = Draft(document, "gpu_process", f"{index}/{process['pid']}", number, line)
            row.fields.update(gpu_index=index, gpu_key=str(index), pid=int(process["pid"]), tool="gpustat")
            for field in ("user", "name"):
                if process[field]:
                    row.fields[field] = process[field]
            if process["memory"].isdecimal():
                row.fields["memory_mib"] = int(process["memory"])
            facts.append(row.fact())
    return facts
