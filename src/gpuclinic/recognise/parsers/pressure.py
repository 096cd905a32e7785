"""Pressure stall information of Linux: a "pressure" for each of cpu, io and memory."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpuclinic.recognise.parsers._host_util import clipped_lines, fact

if TYPE_CHECKING:
    from gpuclinic.model import Document, Fact
    from gpuclinic.model._types import Scalar

_NAMES = re.compile(r"(?:pressure[/ ]|\b)(cpu|io|memory)(?:\.pressure)?\b")
_VALUES = re.compile(
    r"^(?:\S*?(?P<name>cpu|io|memory)(?:\.pressure)?:)?\s*(?P<what>some|full) avg10=(?P<ten>\d{1,9}(?:\.\d{1,9})?) "
    r"avg60=(?P<sixty>\d{1,9}(?:\.\d{1,9})?)(?: avg300=(?P<three>\d{1,9}(?:\.\d{1,9})?))?"
)
_USUAL = ("cpu", "io", "memory")


def parse_pressure(document: Document) -> list[Fact]:
    """The names come from the file, from the command before, or from the usual order cpu, io, memory."""
    lines = clipped_lines(document)
    starts = sum(line.lstrip().startswith("some avg10=") for line in lines)
    hinted = _NAMES.findall(document.name_hint) if "pressure" in document.name_hint else []
    waiting: list[str] = hinted or (list(_USUAL) if starts == len(_USUAL) else [])
    facts: list[Fact] = []
    fields: dict[str, Scalar] = {}
    for index, line in enumerate(lines):
        found = _VALUES.match(line[:300])
        if not found:
            if "pressure" in line and len(line) < 400 and _NAMES.search(line):
                waiting = _NAMES.findall(line)
            continue
        if found["what"] == "some":
            name = found["name"] or (waiting.pop(0) if waiting else None)
            if name is None:
                continue
            fields = {"resource": name, "some_avg10": float(found["ten"]), "some_avg60": float(found["sixty"])}
            if found["three"]:
                fields["some_avg300"] = float(found["three"])
            facts.append(fact(document, "pressure", name, fields, index, line))
        elif facts:
            last = facts[-1]
            for field, group in (("full_avg10", "ten"), ("full_avg60", "sixty"), ("full_avg300", "three")):
                if found[group]:
                    last.fields[field] = float(found[group])
                    last.lines[field] = document.at(index, line)
    return facts[:24]


_QUOTA = re.compile(
    r"^\s*(?:\S*:)?\s*(?P<name>nr_periods|nr_throttled|throttled_usec|throttled_time) (?P<value>\d{1,20})\s*$"
)


def parse_quota(document: Document) -> list[Fact]:
    """cpu.stat of a cgroup: "cpu_quota" with the share of periods in which the quota stopped the processes."""
    facts: list[Fact] = []
    periods = 0
    for index, line in enumerate(clipped_lines(document)):
        found = _QUOTA.match(line.strip()[:200])
        if not found:
            continue
        if found["name"] == "nr_periods":
            periods = int(found["value"])
        elif found["name"] == "nr_throttled" and periods:
            throttled = int(found["value"])
            fields: dict[str, Scalar] = {
                "periods": periods,
                "throttled": throttled,
                "throttled_share": round(throttled / periods, 4),
                "throttled_pct": round(100 * throttled / periods),
            }
            facts.append(fact(document, "cpu_quota", "cgroup", fields, index, line))
    return facts[:24]
