"""Every check row: its examples hold and hold not, its texts are in both languages, what it names exists."""

from __future__ import annotations

import re

import pytest

from gpuclinic.clinic.looks import LOOKS
from gpuclinic.diagnose.expression import parse
from gpuclinic.diagnose.judge import Sample, judge
from gpuclinic.knowledge import Check, load_checks
from gpuclinic.knowledge._checks import COMPONENTS
from gpuclinic.knowledge.causes import cause_ids, cause_info
from gpuclinic.model import ACTIONS, SEVERITIES, Fact

ROWS = load_checks().checks


def window_of(samples: list[dict[str, list[dict[str, object]]]]) -> list[Sample]:
    """Samples as rows write them: {kind = [fields...], at = [{s = seconds}]}; ten seconds apart unless "at" says otherwise."""
    out = []
    for number, sample in enumerate(samples):
        facts = []
        for kind, rows in sample.items():
            if kind in ("at", "severity"):
                continue
            for place, fields in enumerate(rows):
                key = str(fields.get("key", fields.get("bus_id", fields.get("index", place))))
                facts.append(Fact(kind, key, {k: v for k, v in fields.items() if k != "key"}, {}, "test"))
        at = float(sample["at"][0]["s"]) if "at" in sample else 10.0 * number
        out.append(Sample(at, facts))
    return out


def severities(row: Check, samples: list[dict[str, list[dict[str, object]]]]) -> set[str]:
    return {one.severity or "" for one in judge([row], window_of(samples)) if one.state == "holds"}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_row_holds_where_it_should_and_nowhere_else(row: Check) -> None:
    assert row.holds, f"{row.id}: no example that holds"
    assert row.holds_not, f"{row.id}: no healthy look-alike"
    for samples in row.holds:
        wanted = samples[0].get("severity")
        found = severities(row, samples)
        assert found, f"{row.id}: {samples}"
        assert not wanted or found == {str(wanted[0]["is"])}, f"{row.id}: {samples} gave {found}"
    for samples in row.holds_not:
        assert not severities(row, samples), f"{row.id}: {samples}"
    told = {s for s in SEVERITIES if getattr(row, s)}
    shown = set().union(*(severities(row, samples) for samples in row.holds))
    assert shown == told, f"{row.id}: no example of {told - shown}"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_row_is_whole(row: Check) -> None:
    assert re.fullmatch(r"[a-z0-9_]+(\.[a-z0-9_]+)+", row.id)
    assert row.component in COMPONENTS
    assert row.look in {look.id for look in LOOKS}
    assert row.source
    assert row.title_en
    assert re.search(r"[\u4e00-\u9fff]", row.title_zh)
    assert bool(row.detail_en) == bool(row.detail_zh)
    assert not row.action or row.action in ACTIONS
    for condition in (row.where, row.critical, row.warning, row.info):
        if condition:
            parse(condition)
    assert row.critical or row.warning or row.info
    if row.cause:
        assert cause_info(row.cause).id == row.cause
    elif row.critical or row.warning:
        assert row.steps or row.action, f"{row.id}: a fault without a thing to do"
    for step in row.steps:
        assert step.en
        assert step.zh
        assert step.risk in ("none", "job", "gpu", "node")


def test_ids_are_unique_and_no_causes() -> None:
    ids = [row.id for row in ROWS]
    assert len(ids) == len(set(ids))
    causes = set(cause_ids())
    assert not causes & (set(ids) | {row.id for row in load_checks().log_findings})


def test_implied_by_names_rows_that_exist() -> None:
    import fnmatch

    ids = [row.id for row in ROWS] + [row.id for row in load_checks().log_findings]
    for row in ROWS:
        for name in row.implied_by:
            assert any(fnmatch.fnmatchcase(identity, name) for identity in ids), f"{row.id}: implied by {name}"


def test_log_findings_are_whole() -> None:
    for row in load_checks().log_findings:
        assert row.component in COMPONENTS
        assert row.severity in (*SEVERITIES, "none")


def test_table_of_findings_is_current() -> None:
    import subprocess
    import sys
    from pathlib import Path

    tool = Path(__file__).parents[2] / "tools" / "make_findings.py"
    done = subprocess.run([sys.executable, str(tool), "--check"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_every_finding_is_explained(lang: str) -> None:
    from gpuclinic.clinic.explain import explain

    for identity in [row.id for row in ROWS] + [row.id for row in load_checks().log_findings]:
        found = explain(identity, lang)
        assert found.topic == "finding"
        assert found.name
        assert "{" not in found.text.replace("{key}", "")
