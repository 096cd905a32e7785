"""Beside an agent: its hour before the screen was opened, and its alerts."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import shown

from gpuclinic.model import Tick
from gpuclinic.store import whole_file
from gpuclinic.top.feed import Past, _Agent
from gpuclinic.watch.alerts import Book
from gpuclinic.watch.config import Config
from gpuclinic.watch.history_view import open_history

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_graphs_begin_before_the_screen_was_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path))
    now = time.time()
    with open_history() as history:
        for second in range(60):
            history.append(
                Tick(now - 60 + second, 100.0 + second, [shown.gpu(0, utilization_pct=second, temperature_c=50)])
            )
    past = Past()
    past.load(Config())
    points = past.points[shown.address(0)]
    assert [point.util for point in points] == list(range(60))
    assert points[-1].temperature_c == 50
    assert points[-1].memory_pct is not None
    assert 74 < points[-1].memory_pct < 75


def test_alerts_of_an_agent_that_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path))
    monkeypatch.setenv("RUNTIME_DIRECTORY", str(tmp_path))
    agent = _Agent(Config())
    assert not agent.running()
    assert agent.alerts() == []
    with whole_file(tmp_path / "state.json") as file:
        file.write(b"{}")
    assert agent.running()
    book = Book(tmp_path)
    one = shown.alert(1, "critical", "hot", "热", 3)
    book.active[one.id] = one
    book.save(time.time())
    found = agent.alerts()
    assert found is not None
    assert [alert.id for alert in found] == [one.id]
    (tmp_path / "alerts.json").write_text("{torn")
    assert agent.alerts() is None  # then top judges by itself
