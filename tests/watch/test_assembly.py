"""The agent with all its parts: what it samples is kept, judged, told, and known again after a restart."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from watched_server import built, server

from gpuclinic.model import Fact, Tick
from gpuclinic.store.history import History
from gpuclinic.watch.agent import Agent, Parts
from gpuclinic.watch.assembly import Assembly
from gpuclinic.watch.config import Config, Exporting, Sampling, Storing
from gpuclinic.watch.history_view import open_history
from gpuclinic.watch.state import read_state
from gpuclinic.watch.usual import usual_facts

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from fakes.server import Server

__all__ = ["built", "server"]


def begun(server: Server, tmp_path: Path, said: list[str]) -> tuple[Agent, list[Assembly]]:
    config = Config(
        sampling=Sampling(exits=False), store=Storing(folder=str(tmp_path / "state")), exporter=Exporting(listen="")
    )
    made: list[Assembly] = []

    def build(config: Config, boot: str) -> Parts:
        made.append(Assembly(config, said.append, boot))
        return made[-1].parts()

    folder = tmp_path / "run"
    folder.mkdir(exist_ok=True)
    return Agent(config, None, folder, build, str(server.root), say=said.append), made


def test_a_fault_is_found_kept_and_known_after_a_restart(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in server.env.items():
        monkeypatch.setenv(name, value)
    said: list[str] = []
    agent, made = begun(server, tmp_path, said)
    agent.step()
    assert made[0].rules.active() == []
    server.inject("lost:3")
    until = time.monotonic() + 30
    while "gpu.lost" not in {alert.rule for alert in made[0].rules.active()} and time.monotonic() < until:
        agent.step()
    lost = made[0].rules.active()
    assert [(alert.severity, alert.finding.gpu_index) for alert in lost if alert.explained_by is None] == [
        ("critical", 3)
    ]
    agent.close()

    document = read_state(tmp_path / "run")
    assert [alert["id"] for alert in document["alerts"]] == [alert.id for alert in lost]
    with open_history(Storing(folder=str(tmp_path / "state")), read_only=True) as history:
        kept = history.findings(0.0, time.time() + 60)
        assert lost[0].rule in {one.finding.id for one in kept}
        assert history.series("gpu", None, "temperature_c")

    agent, made = begun(server, tmp_path, said)
    agent.step()
    agent.step()
    again = {alert.id: alert.fired_at for alert in made[0].rules.active()}
    assert {alert.id: again.get(alert.id) for alert in lost} == {alert.id: alert.fired_at for alert in lost}
    assert [(a.rule, a.subject, a.explained_by, a.key) for a in made[0].rules.active()] == [
        (a.rule, a.subject, a.explained_by, a.key) for a in lost
    ]
    agent.close()
    assert said == []


def test_without_a_folder_it_judges_all_the_same(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    said: list[str] = []
    made = Assembly(Config(store=Storing(folder=str(file)), exporter=Exporting(listen="")), said.append, "boot")
    assert made.parts().history is None
    gone = Fact("nvml", "nvml", {"reason": "ok", "devices": 7}, {}, "nvml")
    eight = Fact("gpu_count", "pci", {"value": 8, "tool": "pci"}, {}, "pci")
    for second in range(200):
        made.take(Tick(1000.0 + second, float(second), [gone, eight]))
    assert "gpu.count.fewer_than_bus" in {alert.rule for alert in made.rules.active()}
    made.close()
    assert len(said) == 1
    assert said[0].startswith("nothing is kept: ")


def test_usual_numbers_come_from_hours_of_work(tmp_path: Path) -> None:
    now = 1_700_000_000.0 // 3600 * 3600
    with History.open(tmp_path / "history.sqlite") as history:
        for hour in range(60, 0, -1):
            busy = hour % 2 == 0
            for minute in range(0, 60, 10):
                fields = {"utilization_pct": 99 if busy else 0, "temperature_c": 60 + hour % 4 if busy else 31}
                at = now - hour * 3600 + minute * 60
                history.append(Tick(at, at, [Fact("gpu", "0000:3b:00.0", fields, {}, "nvml")]))
        history.pack_all(now)
        told = {fact.key: fact.fields for fact in usual_facts(history, now)}
    usual = told["gpu/0000:3b:00.0/temperature_c"]
    assert 60 <= float(str(usual["low"])) <= float(str(usual["middle"])) <= float(str(usual["high"])) <= 62
    assert usual["hours"] == 29


def test_a_few_hours_are_no_past(tmp_path: Path) -> None:
    now = 1_700_000_000.0 // 3600 * 3600
    with History.open(tmp_path / "history.sqlite") as history:
        for minute in range(0, 240, 10):
            at = now - 6 * 3600 + minute * 60
            fields = {"utilization_pct": 99, "temperature_c": 60}
            history.append(Tick(at, at, [Fact("gpu", "0000:3b:00.0", fields, {}, "nvml")]))
        history.pack_all(now)
        assert usual_facts(history, now) == []
