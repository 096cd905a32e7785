"""Timers across ranks: Megatron's three reports and its straggler detector, NVRx scores. One "rank_time" a "
"rank and timer."""

from __future__ import annotations

import re
import statistics
from typing import TYPE_CHECKING

from gpuclinic.model import Fact, Where
from gpuclinic.recognise.parsers._host_util import unstamped_lines

if TYPE_CHECKING:
    from gpuclinic.model import Document
    from gpuclinic.model._types import Scalar

_HEAD = re.compile(r"(?P<kind>\(min, max\) time|max time|times) across ranks \(ms\):")
_SECTION = re.compile(r"^\s*(?:\S+: )?\s{0,8}(?P<name>[a-z][\w/-]+(?:-[\w/]+)*) ?:\s*$")
_RANK = re.compile(r"^\s*(?:\d+: )?\s*rank +(?P<rank>\d{1,6}): +(?P<value>\d{1,15}(?:\.\d{1,15})?)\s*$")
_PAIR = re.compile(
    r"^\s*(?:\S+: )?\s*(?P<name>[a-z][\w/-]+) \.*\s?: \((?P<low>\d{1,15}(?:\.\d{0,15})?), (?P<high>\d{1,15}(?:\.\d{0,15})?)\)"
)
_DETECTOR = re.compile(
    r"\b(?P<end>Mn|Mx)(?P<what>D?Rtt|Pwr|Tmp|Utl|Clk|Etpt)/Rnk: (?P<value>\d{1,15}(?:\.\d{0,15})?)(?P<unit>\w+|%)/(?P<rank>\d{1,6})"
)
_SCORE = re.compile(r"\bRank=(?P<rank>\d{1,6}) Node=(?P<node>\S+) Score=(?P<score>\d\.\d+)")
_WAITS = re.compile(
    r"all-?gather|reduce|sync|allreduce|recv|send|barrier|optimizer|interval|setup|load|save|iterators|startup"
)
_COMPUTES = re.compile(r"^(?:forward|backward|embedding|batch-generator)(?:-compute)?$|compute")
_FAR = 1.25


def parse_rank_times(document: Document) -> list[Fact]:
    """Ranks that take longer than the others, with the factor; spreads where the report names no rank."""
    times: dict[str, dict[int, list[tuple[float, Where]]]] = {}
    pairs: dict[str, list[tuple[float, float, Where]]] = {}
    facts: list[Fact] = []
    kind, section = "", ""
    scores: dict[int, tuple[float, str, Where]] = {}
    for index, line in enumerate(unstamped_lines(document)):
        line = line[:1500]
        head = _HEAD.search(line)
        if head:
            kind, section = head["kind"], ""
            continue
        if "/Rnk: " in line:
            facts.extend(_detector(document, index, line))
            continue
        score = _SCORE.search(line)
        if score and (int(score["rank"]) not in scores or float(score["score"]) < scores[int(score["rank"])][0]):
            scores[int(score["rank"])] = (float(score["score"]), score["node"], document.at(index, line))
        if not kind:
            continue
        ranked, pair, named = _RANK.match(line), _PAIR.match(line), _SECTION.match(line)
        if ranked and section:
            times.setdefault(section, {}).setdefault(int(ranked["rank"]), []).append(
                (float(ranked["value"]), document.at(index, line))
            )
        elif pair:
            pairs.setdefault(pair["name"], []).append(
                (float(pair["low"]), float(pair["high"]), document.at(index, line))
            )
        elif named and kind == "times":
            section = named["name"]
        elif line.strip():
            kind = ""
    facts.extend(_by_rank(document, times))
    facts.extend(_spreads(document, pairs))
    facts.extend(_scores(document, scores))
    return facts[:2048]


def _by_rank(document: Document, times: dict[str, dict[int, list[tuple[float, Where]]]]) -> list[Fact]:
    facts: list[Fact] = []
    for name, ranks in times.items():
        medians = {rank: statistics.median(v for v, _ in values) for rank, values in ranks.items()}
        middle = statistics.median(medians.values())
        if len(medians) < 3 or middle <= 0:
            continue
        waits = bool(_WAITS.search(name)) and not _COMPUTES.search(name)
        for rank, value in sorted(medians.items()):
            factor = value / middle
            if factor < _FAR and factor > 1 / _FAR:
                continue
            place = max(ranks[rank], key=lambda pair: abs(pair[0] - middle))[1]
            fields: dict[str, Scalar] = {
                "rank": rank,
                "timer": name,
                "ms": value,
                "typical_ms": middle,
                "factor": round(factor, 3),
                "ranks": len(medians),
                "waits": waits,
                "computes": bool(_COMPUTES.search(name)),
                "alone": sum(v > _FAR * middle for v in medians.values()) <= max(1, len(medians) // 4),
            }
            facts.append(Fact("rank_time", f"{name}/{rank}", fields, {"": place}, document.source, document.host))
    return facts


def _spreads(document: Document, pairs: dict[str, list[tuple[float, float, Where]]]) -> list[Fact]:
    facts: list[Fact] = []
    for name, values in pairs.items():
        low, high = statistics.median(v[0] for v in values), statistics.median(v[1] for v in values)
        if low <= 0 or len(values) < 2:
            continue
        fields: dict[str, Scalar] = {
            "timer": name,
            "low_ms": low,
            "high_ms": high,
            "factor": round(high / low, 3),
            "times": len(values),
            "computes": bool(_COMPUTES.search(name)),
        }
        facts.append(Fact("rank_spread", name, fields, {"": values[-1][2]}, document.source, document.host))
    return facts


def _detector(document: Document, index: int, line: str) -> list[Fact]:
    """Megatron's straggler detector: for the round trip and the estimated throughput the slow end, with the "
    "clock's low end."""
    found = {(m["end"], m["what"]): (float(m["value"]), int(m["rank"])) for m in _DETECTOR.finditer(line)}
    facts: list[Fact] = []
    low, high = found.get(("Mn", "Etpt")), found.get(("Mx", "Etpt"))
    if low and high and low[0] > 0:
        clock_low, clock_high = found.get(("Mn", "Clk")), found.get(("Mx", "Clk"))
        data_high, round_trip = found.get(("Mx", "DRtt")), found.get(("Mx", "Rtt"))
        fields: dict[str, Scalar] = {
            "rank": low[1],
            "timer": "Etpt",
            "factor": round(high[0] / low[0], 3),
            "computes": True,
            "alone": True,
            "ranks": None,
            "clock_low": bool(
                clock_low and clock_high and clock_low[1] == low[1] and clock_low[0] < 0.85 * clock_high[0]
            ),
            "data_slow": bool(
                data_high and round_trip and data_high[1] == low[1] and data_high[0] > 0.3 * round_trip[0]
            ),
        }
        facts.append(
            Fact("rank_time", f"Etpt/{low[1]}", fields, {"": document.at(index, line)}, document.source, document.host)
        )
    return facts


def _scores(document: Document, scores: dict[int, tuple[float, str, Where]]) -> list[Fact]:
    """NVRx scores below its threshold of 0.7."""
    return [
        Fact(
            "rank_time",
            f"score/{rank}",
            {
                "rank": rank,
                "timer": "score",
                "factor": round(1 / max(score, 0.01), 3),
                "computes": True,
                "alone": True,
                "node": node,
                "score": score,
            },
            {"": place},
            document.source,
            document.host,
        )
        for rank, (score, node, place) in sorted(scores.items())
        if score < 0.75
    ]
