"""The acceptance incidents: written from public reports before the first run, judged as a whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scoring import answer_for, figures, judge

INCIDENTS = Path(__file__).parent / "incidents"
LEAST = {
    "top1": 95.0,
    "evidence": 90.0,
    "gpu": 85.0,
    "pid": 85.0,
    "rank": 85.0,
    "action": 88.0,
    "sure": 97.0,
    "calm": 100.0,
}


@pytest.fixture(scope="module")
def marks() -> dict[str, dict[str, Any]]:
    return {
        folder.name: judge(json.loads((folder / "case.json").read_text()), answer_for(folder))
        for folder in sorted(p.parent for p in INCIDENTS.glob("*/case.json"))
    }


def test_there_are_enough(marks: dict[str, dict[str, Any]]) -> None:
    assert len(marks) >= 60


@pytest.mark.parametrize("figure", LEAST)
def test_figures(marks: dict[str, dict[str, Any]], figure: str) -> None:
    wrong = sorted(name for name, mark in marks.items() if mark.get(figure, mark["top1"]) is False)
    assert figures(list(marks.values()))[figure] >= LEAST[figure], f"{figure}: {wrong}"


def test_no_harmless_case_is_accused(marks: dict[str, dict[str, Any]]) -> None:
    accused = {
        name: (m["named"], m["confidence"]) for name, m in marks.items() if m["harmless"] and m["confidence"] >= 0.5
    }
    assert not accused
