"""Every rule's own examples, judged by the engine that ships."""

from __future__ import annotations

from typing import Any

import pytest

from gpuclinic.diagnose.evidence import EvidenceView, Reading, fields_of
from gpuclinic.diagnose.expression import ExpressionError, holds, parse
from gpuclinic.knowledge import Rule, load
from gpuclinic.knowledge.causes import cause_ids
from gpuclinic.model import ACTIONS, LEVEL_CONFIDENCE, Fact, Signal, Where

RULES = load().rules


def reading_of(example: dict[str, list[Any]]) -> Reading:
    facts = [
        Fact(kind, str(fields.get("key", number)), {k: v for k, v in fields.items() if k not in ("key", "host_name")}, {"": Where("example")}, "example",
             host=fields.get("host_name"))
        for kind, rows in example.items() if kind != "signals" for number, fields in enumerate(rows)
    ]  # fmt: skip
    signals = [signal_of(entry, order) for order, entry in enumerate(example.get("signals", []))]
    counts: dict[str, int] = {}
    for signal in signals:
        counts[signal.signature] = counts.get(signal.signature, 0) + 1
    return Reading(signals, facts, counts, {})


def signal_of(entry: Any, order: int) -> Signal:
    if isinstance(entry, str):
        return Signal(entry, Where("example", order + 1), order, {})
    groups = {k: str(v) for k, v in entry.items() if k != "id"}
    return Signal(entry["id"], Where("example", order + 1), order, groups)


def judged(rule: Rule, example: dict[str, list[Any]]) -> bool:
    reading = reading_of(example)
    view = EvidenceView(reading)
    if not rule.each:
        return holds(rule.when, {}, view)
    return any(holds(rule.when, fields_of(f), view) for f in reading.facts if f.kind == rule.each)


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.id)
def test_examples(rule: Rule) -> None:
    assert rule.holds, "a rule needs an example that holds"
    for example in rule.holds:
        assert judged(rule, example), f"must hold: {example}"
    for example in rule.holds_not:
        assert not judged(rule, example), f"must not hold: {example}"


def test_ids_are_unique_and_fields_are_known() -> None:
    ids = [r.id for r in RULES] + [s.id for s in load().signatures]
    assert len(set(ids)) == len(ids)
    causes = set(cause_ids())
    for rule in RULES:
        assert rule.level in LEVEL_CONFIDENCE
        assert not rule.cause or rule.cause in causes, rule.id
        assert rule.cause or rule.drops, rule.id
        assert not rule.action or rule.action in ACTIONS, rule.id
        assert set(rule.drops) <= causes | {"*"}, rule.id


@pytest.mark.parametrize("text", ["__import__('os')", "a.b", "x[0]", "lambda: 1", "a if", "open('x')"])
def test_what_is_not_in_the_language_is_refused(text: str) -> None:
    with pytest.raises(ExpressionError):
        holds(text, {}, EvidenceView(reading_of({})))


def test_missing_fields_never_raise() -> None:
    view = EvidenceView(reading_of({"gpu": [{"index": 0, "power_w": "250 W"}]}))
    assert not holds("temperature_c > 80", {}, view)
    assert not holds("a + 1 > 0", {}, view)
    assert holds("some('gpu', 'power_w > 200')", {}, view)
    assert holds("count('gpu', 'index == 0') == 1 and total('gpu', 'power_w') == 250", {}, view)
    assert parse("a and\n b") is not None
