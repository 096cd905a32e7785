"""Hand-made tables of times, a line a node or rank ("node 05 (ranks 40-47): 8102.7"): "peer_time" for those far above the rest."""

from __future__ import annotations

import re
import statistics
from typing import TYPE_CHECKING

from gpuclinic.model import Fact, Where
from gpuclinic.recognise.parsers._host_util import unstamped_lines

if TYPE_CHECKING:
    from gpuclinic.model import Document

_ROW = re.compile(
    r"^\s*[|*-]?\s*(?P<label>(?:node|host|worker|rank|gpu|server|pod|trainer)s?[ _:#-]?[\w.-]{1,60}|[a-z][a-z-]{0,30}\d{1,5}[\w.-]{0,40})"
    r"(?P<more> ?\([^()]{1,60}\))?\s*[:=|\t ]\s*(?P<value>\d{1,9}(?:\.\d{1,6})?)\s*(?P<unit>ms|s|sec|seconds|us|ms/step|s/it)?\s*\|?\s*$",
    re.IGNORECASE,
)
_RANK = re.compile(r"\brank[ _:#-]?(\d{1,6})\b", re.IGNORECASE)
_TIMES = re.compile(r"\b(?:ms|sec|seconds?|time|s/it|s/step|duration|latency|elapsed)\b|耗时|时间", re.IGNORECASE)
_FEWEST = 4
_FAR = 1.4
_GAP = 2


def parse_peer_times(document: Document) -> list[Fact]:
    """Members of a table of times that take much longer than the typical one: label, rank, value, typical, factor, members."""
    facts: list[Fact] = []
    block: list[tuple[int, str, float, bool]] = []
    heading = ""
    last = ""
    for index, line in enumerate(unstamped_lines(document)):
        row = _ROW.match(line[:300])
        if row:
            if not block:
                heading = last
            block.append((index, row["label"].strip(), float(row["value"]), bool(row["unit"])))
            continue
        if block and index - block[-1][0] >= _GAP:
            facts.extend(_outliers(document, heading, block))
            block = []
        if line.strip():
            last = line
    facts.extend(_outliers(document, heading, block))
    return facts


def _outliers(document: Document, heading: str, block: list[tuple[int, str, float, bool]]) -> list[Fact]:
    labels = {label for _, label, _, _ in block}
    if (
        len(block) < _FEWEST
        or len(labels) != len(block)
        or not (_TIMES.search(heading) or all(unit for *_, unit in block))
    ):
        return []
    typical = statistics.median(value for _, _, value, _ in block)
    far = [row for row in block if typical > 0 and row[2] >= _FAR * typical]
    if not far or len(far) > max(1, len(block) // 4):
        return []
    lines = document.lines()
    facts = []
    for index, label, value, _ in far:
        rank = _RANK.search(label)
        place = document.at(index, lines[index])
        fields = {
            "label": label, "rank": int(rank[1]) if rank else None, "value": value, "typical": typical,
            "factor": round(value / typical, 2), "members": len(block),
        }  # fmt: skip
        facts.append(
            Fact(
                "peer_time",
                label,
                fields,
                {"": place, "value": Where(place.source, place.line, place.text)},
                document.source,
            )
        )
    return facts
