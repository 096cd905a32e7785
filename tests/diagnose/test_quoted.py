"""Signals in quotations do not count."""

from __future__ import annotations

from gpuclinic.diagnose.evidence import Reading
from gpuclinic.diagnose.quoted import without_quotations
from gpuclinic.model import Fact, Signal, Where


def _signal(line: int) -> Signal:
    return Signal("nvrm.xid", Where("a.txt", line, "NVRM: Xid"), line, {"code": "79"})


def _fact(kind: str, line: int, **fields: str | int) -> Fact:
    return Fact(kind, "k", dict(fields), {"": Where("a.txt", line, "x")}, "a.txt")


def test_signals_in_quotations_are_left_out_and_no_longer_counted() -> None:
    quoted = _fact("quoted", 2, first=2, last=4, why="rule")
    reading = Reading([_signal(1), _signal(3), _signal(9)], [quoted, _fact("gpu", 3)], {"nvrm.xid": 3}, {})
    rest = without_quotations(reading)
    assert [s.where.line for s in rest.signals] == [1, 9]
    assert rest.counts == {"nvrm.xid": 2}
    assert [f.kind for f in rest.facts] == ["quoted", "gpu"]


def test_a_handbooks_tables_are_left_out_too() -> None:
    reading = Reading([], [_fact("quoted", 1, first=1, last=9, why="handbook"), _fact("gpu", 3)], {}, {})
    assert [f.kind for f in without_quotations(reading).facts] == ["quoted"]


def test_without_quotations_nothing_changes() -> None:
    reading = Reading([_signal(1)], [], {"nvrm.xid": 1}, {})
    assert without_quotations(reading) is reading


def test_a_good_end_told_by_a_test_still_counts() -> None:
    signals = [Signal("run.completed", Where("a.txt", 2, "ok"), 1, {}), _signal(3)]
    reading = Reading(signals, [_fact("quoted", 2, first=2, last=3, why="test")], {}, {})
    assert [s.signature for s in without_quotations(reading, frozenset({"run.completed"})).signals] == ["run.completed"]
