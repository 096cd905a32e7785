"""Throughput lines of inference servers (vLLM, SGLang): does the engine still give tokens? One "serving" for "
"each text."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from gpuclinic.model import Fact, Where
from gpuclinic.recognise.parsers._host_util import clipped_lines

if TYPE_CHECKING:
    from gpuclinic.model import Document
    from gpuclinic.model._types import Scalar

_VLLM = re.compile(
    r"Avg prompt throughput: (?P<prompt>\d{1,15}(?:\.\d{0,15})?) tokens/s, Avg generation throughput: (?P<rate>\d{1,15}(?:\.\d{0,15})?) tokens/s, "
    r"Running: (?P<running>\d{1,9}) reqs.*?(?:Waiting|Pending): (?P<waiting>\d{1,9}) reqs"
)
_SGLANG = re.compile(
    r"#running-req: (?P<running>\d{1,9}).*?gen throughput \(token/s\): (?P<rate>\d{1,15}(?:\.\d{0,15})?).*?#queue-req: (?P<waiting>\d{1,9})"
)
_ENGINE = re.compile(r"\b(?:Engine|DP) ?(?P<engine>\d{1,4})\b")
_REQUEST = re.compile(r'"(?:POST|GET) (?P<path>/\S*) HTTP/[\d.]+" (?P<status>\d{3})')
_HEALTH = re.compile(r"^/(?:health\w*|healthz|ping|v1/models|metrics|-/healthy|ready\w*|live\w*)\b")
_LEAST_ZERO = 3


class _Sample(NamedTuple):
    rate: float
    running: int
    waiting: int
    place: Where


def parse_throughput(document: Document) -> list[Fact]:
    """How the series ended: stalled where the last samples give no token while requests run or wait."""
    series: dict[str, list[_Sample]] = {}
    health: Where | None = None
    for index, line in enumerate(clipped_lines(document)):
        found = _VLLM.search(line[:1000]) or _SGLANG.search(line[:1000])
        if found:
            engine = _ENGINE.search(line[: found.start()])
            total = float(found["rate"]) + float(found.groupdict().get("prompt") or 0)
            series.setdefault(engine["engine"] if engine else "", []).append(
                _Sample(total, int(found["running"]), int(found["waiting"]), document.at(index, line))
            )
            continue
        request = _REQUEST.search(line[:500])
        if request and request["status"] == "200" and _HEALTH.match(request["path"]):
            health = document.at(index, line)
    return [_fact(document, engine, samples, health) for engine, samples in sorted(series.items())]


def _fact(document: Document, engine: str, samples: list[_Sample], health: Where | None) -> Fact:
    zero = 0
    for sample in reversed(samples):
        if sample.rate > 0 or not (sample.running or sample.waiting):
            break
        zero += 1
    end = samples[-1]
    stalled = zero >= _LEAST_ZERO
    start = samples[-zero] if stalled else end
    fields: dict[str, Scalar] = {
        "engine": engine or None,
        "samples": len(samples),
        "rate_last": end.rate,
        "rate_peak": max(s.rate for s in samples),
        "running": end.running,
        "waiting": end.waiting,
        "zero_samples": zero,
        "stalled": stalled,
        "waiting_grows": stalled and end.waiting > start.waiting,
        "health_ok": health is not None and (health.line or 0) >= (start.place.line or 0),
    }
    lines = {"": end.place, "rate_last": end.place, "first_zero": start.place}
    if health is not None:
        lines["health"] = health
    return Fact("serving", engine or document.source, fields, lines, document.source, document.host)
