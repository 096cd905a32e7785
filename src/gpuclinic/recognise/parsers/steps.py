"""Timing of training steps: per rank and for the whole job, with the share of data loading: "step_time"."""

from __future__ import annotations

import re
import statistics
from typing import TYPE_CHECKING, NamedTuple

from gpuclinic.recognise.parsers._host_util import clipped_lines, fact

if TYPE_CHECKING:
    from gpuclinic.model import Document, Fact
    from gpuclinic.model._types import Scalar

_RANK = re.compile(
    r"\[?\brank[ =:_]?\s?(?P<a>\d{1,5})\b|^\[(?P<b>\d{1,5})\]:?\s|\b\[default(?P<c>\d{1,5})\]:|\bR(?P<d>\d{1,4})\]",
    re.IGNORECASE,
)
_STEP = re.compile(
    r"\b(?:global_?step|steps?|iter(?:ation)?s?|it|batch|Epoch: \[\d+\])[ :=#\[]*(?P<step>\d+)", re.IGNORECASE
)
_MANY = re.compile(
    r"(?P<head>[A-Za-z][\w+ /]{0,30}?)\s*(?:time)?\s*(?:\(?(?P<unit>ms|s|sec)\)?)?\s*:\s*(?P<list>(?:r(?:ank)?\d+\s*"
    r"[=:]\s*\d+(?:\.\d+)?(?:ms|s)?[ ,;]*){2,})"
)
_ONE_OF_MANY = re.compile(
    r"r(?:ank)?(?P<rank>\d{1,6})\s*[=:]\s*(?P<value>\d{1,15}(?:\.\d{1,15})?)(?P<unit>ms|s)?", re.IGNORECASE
)
_NUMBER = r"(?P<value>\d{1,15}(?:\.\d{1,15})?)\s*(?P<unit>ms|milliseconds|s|secs?|seconds|us)?\b"
_TIMES = (
    (
        "copy",
        re.compile(
            rf"(?<![\w/])(?:h2d|htod|d2h|dtoh|(?:cpu|host|ram)\s*(?:->|→|to|2|_to_)\s*(?:gpu|device|cuda)|(?:gpu|"
            rf"device|cuda)\s*(?:->|→|to|2|_to_)\s*"
            rf"(?:cpu|host|ram)|memcpy|to_device|transfer|upload|download)(?:[_ ]?(?:time|copy|ms|"
            rf"s))?[\"']?\s*[:= ]\s*{_NUMBER}",
            re.IGNORECASE,
        ),
    ),
    (
        "data",
        re.compile(
            rf"\b(?:data[_ -]?(?:load(?:ing|er)?)?[_ -]?(?:time|wait)?(?:_s|_sec|_ms)?|data(?:loader)?(?:[_ ]wait)?|"
            rf"load[_ ]time|batch[_ -]?(?:generator|load|fetch)|fetch|"
            rf"dataloader[_ ]?(?:time|wait)?)\s*(?P<unit0>\((?:ms|"
            rf"s|sec)\))?[\"']?\s*[:= ]\s*{_NUMBER}",
            re.IGNORECASE,
        ),
    ),
    (
        "wait",
        re.compile(
            rf"\b(?:all[_-]?reduce(?:[_ ]wait)?|comm(?:unication)?(?:[_ ]time)?|nccl|sync(?:[_ ]wait)?|barrier(?:[_ "
            rf"]wait)?|grad[_ ]sync|wait(?:[_ ]time)?)\s*(?P<unit0>\((?:ms|s|sec)\))?[\"']?\s*[:= ]\s*{_NUMBER}",
            re.IGNORECASE,
        ),
    ),
    (
        "compute",
        re.compile(
            rf"(?<![/>→])\b(?:fwd\+bwd|forward[_-]backward|compute(?:[_ ]time)?|forward(?:\+|_and_|-)backward|"
            rf"fwd_bwd|fwd/bwd|fwdbwd|fwd\+?bwd|"
            rf"gpu(?:[_ ]time)?|backward|model[_ ]time|infer(?:ence)?(?:[_ ]time)?|kernels?)\s*(?P<unit0>\((?:ms|"
            rf"s|sec)\))?[\"']?\s*[:= ]\s*{_NUMBER}",
            re.IGNORECASE,
        ),
    ),
    (
        "step",
        re.compile(
            rf"(?:elapsed time per iteration|\b(?:train_?)?(?:step|iter(?:ation)?|batch)[_ -]?(?:time|timing|took|"
            rf"duration|latency)(?:[_ ]?(?:in[_ ])?(?:s|sec|ms))?|\btime(?:/step|_per_step|_per_iter)?|\bdt|"
            rf"\bstep_ms|"
            rf"\btook|\btotal)\s*(?P<unit0>\((?:ms|s|sec)\))?[\"']?\s*[:= ]\s*{_NUMBER}",
            re.IGNORECASE,
        ),
    ),
)
_METER = re.compile(
    r"\bTime\s+(?P<now>\d{1,15}\.\d{1,15})\s*\(\s*(?P<mean>\d{1,15}\.\d{1,15})\)\s*.*?\bData\s+(?P<data>\d{1,15}\.\d{1,15})\s*\(\s*"
    r"(?P<data_mean>\d{1,15}\.\d{1,15})\)"
)
_RATE = re.compile(r"(?P<value>\d{1,15}(?:\.\d{1,15})?)\s*(?P<unit>s/it|it/s)\b")
_DEEPSPEED = re.compile(
    r"fwd(?:_microstep)?: (?P<fwd>\d{1,15}(?:\.\d{0,15})?) \| bwd(?:_microstep)?: (?P<bwd>\d{1,15}(?:\.\d{0,15})?).*?bwd_allreduce(?:_microstep)?: "
    r"(?P<wait>\d{1,15}(?:\.\d{0,15})?)"
    r"(?:.*?\bstep(?:_microstep)?: (?P<step>\d{1,15}(?:\.\d{0,15})?))?"
)
_OWN_RANK = re.compile(r"(?:^|[/_.-])rank[_.-]?(?P<rank>\d{1,5})(?=[/_.-]|$)", re.IGNORECASE)
_WORDS = {
    "copy": ("h2d", "htod", "d2h", "dtoh", "->", "→", "gpu", "device", "host", "memcpy", "transfer", "load"),
    "data": ("data", "load", "fetch", "batch"),
    "wait": ("reduce", "comm", "nccl", "sync", "barrier", "wait"),
    "compute": ("wd", "forward", "compute", "gpu", "backward", "model", "infer", "kernel"),
    "step": ("time", "step", "iter", "batch", "dt", "took", "total"),
}
"""One of these words must stand in a line before the expression of its kind is tried."""
_MAX_LINES = 8000
"""Of longer logs so many lines are judged, evenly spread: medians do not need more."""
_MAX_ROWS = 200_000


class _Row(NamedTuple):
    rank: int
    step: int | None
    what: str
    seconds: float
    line: int


def _seconds(value: str, *units: str | None) -> float:
    number = float(value)
    unit = next((unit.strip("()").lower() for unit in units if unit), "")
    if unit.startswith(("ms", "milli")):
        return number / 1000
    return number / 1e6 if unit == "us" else number


def _kind(head: str) -> str:
    lower = head.lower()
    for kind, words in (
        ("data", ("data", "load", "fetch")),
        ("wait", ("wait", "allreduce", "all_reduce", "comm", "nccl", "sync", "barrier")),
        ("compute", ("fwd", "bwd", "forward", "backward", "compute", "gpu", "kernel")),
    ):
        if any(word in lower for word in words):
            return kind
    return "step"


def _rows_of(line: str, index: int, rows: list[_Row], own: int) -> None:
    found = _STEP.search(line)
    step = int(found["step"]) if found and len(found["step"]) < 12 else None
    many = list(_MANY.finditer(line)) if sum(1 for _ in _ONE_OF_MANY.finditer(line)) >= 2 else []
    for match in many:
        for one in _ONE_OF_MANY.finditer(match["list"]):
            rows.append(
                _Row(
                    int(one["rank"]),
                    step,
                    _kind(match["head"]),
                    _seconds(one["value"], one["unit"], match["unit"]),
                    index,
                )
            )
    if many:
        return
    ranked = _RANK.search(line[:400])
    rank = next((int(value) for value in ranked.groups() if value), own) if ranked else own
    parts = _DEEPSPEED.search(line)
    if parts:
        whole = sum(float(parts[name] or 0) for name in ("fwd", "bwd", "step")) / 1000
        rows.append(_Row(rank, step, "step", whole, index))
        rows.append(_Row(rank, step, "wait", float(parts["wait"]) / 1000, index))
        return
    meter = _METER.search(line)
    if meter:
        rows.append(_Row(rank, step, "step", float(meter["now"]), index))
        rows.append(_Row(rank, step, "data", float(meter["data"]), index))
        return
    _timed_rows(line, index, rows, rank, step)


def _timed_rows(line: str, index: int, rows: list[_Row], rank: int, step: int | None) -> None:
    """The times that a line tells of its step, by kind."""
    rate = _RATE.search(line)
    before = len(rows)
    lower = line.lower()
    for what, pattern in _TIMES:
        if not any(word in lower for word in _WORDS[what]):
            continue
        if what == "copy":
            copies = [_seconds(m["value"], m["unit"]) for m in pattern.finditer(line) if m["unit"]]
            if copies:
                rows.append(_Row(rank, step, what, sum(copies), index))
            continue
        timed = pattern.search(line)
        if timed and not (
            timed["unit"] is None and re.match(r"gpu\b\s+\d", timed.group(), re.IGNORECASE)
        ):  # a card's number
            unit = timed["unit"] or ("ms" if re.search(r"_ms\b", timed.group()) else None)
            rows.append(_Row(rank, step, what, _seconds(timed["value"], timed["unit0"], unit), index))
    if (
        rate is not None
        and not any(row.what in ("step", "compute") for row in rows[before:])
        and float(rate["value"]) > 0
    ):
        value = float(rate["value"])
        rows.append(_Row(rank, step, "step", value if rate["unit"] == "s/it" else 1 / value, index))
    kinds = {row.what for row in rows[before:]}
    if (
        step is None
        and rank < 0
        and rate is None
        and not kinds >= {"step", "data"}
        and not kinds >= {"copy", "compute"}
    ):
        del rows[before:]  # a time that belongs to no step


def parse_steps(document: Document) -> list[Fact]:
    """One "step_time" for each rank (None: the job as a whole), with medians over its steps."""
    rows: list[_Row] = []
    lines = clipped_lines(document)
    named = _OWN_RANK.search(document.name_hint)
    own = int(named["rank"]) if named else -1
    stride = max(1, len(lines) // _MAX_LINES)
    for index in range(0, len(lines), stride):
        line = lines[index]
        if len(line) < 2000 and any(character.isdecimal() for character in line):
            _rows_of(line, index, rows, own)
        if len(rows) >= _MAX_ROWS:
            break
    ranks = sorted({row.rank for row in rows})
    facts = [_rank_fact(document, [row for row in rows if row.rank == rank], rank, lines) for rank in ranks[:2048]]
    return [*[found for found in facts if found is not None], *_table(document, lines)]


def _rank_fact(document: Document, rows: list[_Row], rank: int, lines: list[str]) -> Fact | None:
    medians: dict[str, float] = {}
    for what in ("step", "data", "compute", "wait", "copy"):
        values = [row.seconds for row in rows if row.what == what]
        if values:
            medians[what] = round(statistics.median(values), 6)
    steps = len({row.line for row in rows})
    if steps < 3 or not {"step", "compute", "data"} & set(medians):
        return None
    seconds = medians.get("step", medians.get("compute"))
    if seconds is None or seconds <= 0:
        seconds = None
    data = medians.get("data")
    worst = max((row for row in rows if row.what in ("step", "compute", "data")), key=lambda row: row.seconds)
    shown = next(row for row in rows if row.line == worst.line)
    halves = [row.seconds for row in rows if row.what in ("step", "compute")]
    early, late = halves[: len(halves) // 2], halves[len(halves) // 2 :]
    fields: dict[str, Scalar] = {
        "rank": rank if rank >= 0 else None,
        "step": rows[-1].step,
        "seconds": seconds,
        "data_seconds": data,
        "compute_seconds": medians.get("compute"),
        "wait_seconds": medians.get("wait"),
        "copy_seconds": medians.get("copy"),
        "copy_share": _part(medians.get("copy"), medians.get("compute")),
        "steps": steps,
        "data_share": round(data / max(seconds, data), 4) if data is not None and seconds else None,
        "wait_share": round(medians["wait"] / (medians["wait"] + seconds), 4)
        if "wait" in medians and seconds and "step" not in medians
        else (round(min(medians["wait"] / seconds, 1), 4) if "wait" in medians and seconds else None),
        "slowdown": round(statistics.median(late) / statistics.median(early), 3)
        if len(early) >= 3 and statistics.median(early) > 0
        else None,
    }
    return fact(document, "step_time", str(rank), fields, shown.line, lines[shown.line])


def _part(some: float | None, other: float | None) -> float | None:
    """The share of the first in the sum of both."""
    return round(some / (some + other), 4) if some and other else None


def _table(document: Document, lines: list[str]) -> list[Fact]:
    """A table whose header names a rank and times: one row for each rank."""
    facts: list[Fact] = []
    header: list[str] = []
    for index, line in enumerate(lines):
        if not header and "rank" not in line.lower():
            continue
        words = re.split(r"[\s,|;]+", line.strip().strip("|")) if len(line) < 600 else []
        lower = [word.lower() for word in words]
        if (
            "rank" in lower
            and sum(
                bool(re.search(r"ms|sec|time|step|data|fwd|bwd|wait|load|compute|_s$|\(s\)", word)) for word in lower
            )
            >= 1
        ):
            header = lower
            continue
        if (
            not header
            or len(words) != len(header)
            or not re.fullmatch(r"\d{1,6}", words[header.index("rank")] if "rank" in header else "")
        ):
            header = header if not line.strip() or set(line.strip()) <= set("-+|= ") else []
            continue
        fields: dict[str, Scalar] = {"rank": int(words[header.index("rank")]), "steps": 1, "table": True}
        for name, value in zip(header, words, strict=True):
            if not re.fullmatch(r"\d+(?:\.\d+)?(?:ms|s)?", value) or name in ("rank", "step", "node", "gpu", "host"):
                continue
            seconds = _seconds(re.sub(r"[a-z]+", "", value), "ms" if "ms" in value or "ms" in name else None)
            field = {"data": "data_seconds", "wait": "wait_seconds", "compute": "compute_seconds", "step": "seconds"}[
                _kind(name)
            ]
            if not re.search(r"ms|sec|time|step|data|fwd|bwd|wait|load|compute|_s$|\(s\)|dur|mean|avg|p50", name):
                continue
            fields.setdefault(field, seconds)
        fields.setdefault("seconds", fields.get("compute_seconds"))
        if fields.get("seconds") is not None or fields.get("data_seconds") is not None:
            facts.append(fact(document, "step_time", str(fields["rank"]), fields, index, line))
    return facts[:2048]
