"""`gpuclinic history` and `gpuclinic usage`: names, sentences, pictures, tables, and what is wrong said in one line."""

from __future__ import annotations

import csv
import io
import json
import re
import time
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest

from gpuclinic.cli import main as cli
from gpuclinic.knowledge.metrics import kept_fields
from gpuclinic.model import CouldNotError, Event, Fact, Tick, UserError
from gpuclinic.report._layout import columns
from gpuclinic.store.history import History, Past
from gpuclinic.watch.history_view import find_metric, open_history, repeated_sentence

if TYPE_CHECKING:
    from pathlib import Path

KEYS = ("0000:1a:00.0", "0000:3b:00.0")
NOW = time.time()
BEGUN = NOW - 3600
HOUR = ("--since", f"@{BEGUN:.0f}", "--until", f"@{NOW:.0f}")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An hour of two GPUs: the second is lost for ten minutes; Xid 79 for the third time, in another slot than before."""
    path = tmp_path_factory.mktemp("agent") / "history.db"
    with History.open(path, kept=kept_fields()) as history:
        for second in range(0, 3600, 5):
            facts = []
            for index, key in enumerate(KEYS):
                fields = {
                    "index": index,
                    "serial": f"S{index}",
                    "utilization_pct": 50,
                    "power_w": 300.0 + second % 60,
                    "memory_used_mib": 61_000,
                }
                if index == 1 and 1200 <= second < 1800:
                    fields = {"index": 1, "serial": "S1", "error": "GPU is lost"}
                facts.append(Fact("gpu", key, fields, {}, "nvml"))
            process = {
                "pid": 7,
                "name": "python3",
                "gpu_key": KEYS[0],
                "memory_mib": 60_000,
                "user": "ann",
                "job": "4711",
            }
            facts.append(Fact("gpu_process", f"{KEYS[0]}/7", process, {}, "nvml"))
            facts.append(Fact("memory", "host", {"available_mib": 1000.5}, {}, "/proc/meminfo"))
            events = []
            if second == 1200:
                events.append(
                    Event(
                        BEGUN + second,
                        "xid",
                        KEYS[1],
                        "Xid 79, GPU has \x1b[31mfallen off the bus",
                        {"code": 79},
                        "S1",
                        KEYS[1],
                    )
                )
            history.append(Tick(BEGUN + second, 50.0 + second, facts, events))
        for day in (3, 9):
            history.add_event(Event(NOW - day * 86400, "xid", KEYS[0], "Xid 79", {"code": 79}, "S1", KEYS[0]))
    return path


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert cli.main(list(words)) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("word", "kind", "field"),
    [
        ("power_w", "gpu", "power_w"), ("power", "gpu", "power_w"), ("POWER", "gpu", "power_w"), ("gpu.power", "gpu", "power_w"),
        ("memory.available", "memory", "available_mib"), ("DCGM_FI_DEV_GPU_TEMP", "gpu", "temperature_c"),
        ("gpuclinic_gpu_energy_joules_total", "gpu", "energy_j"), ("gpu-memory-used-bytes", "gpu", "memory_used_mib"),
    ],
)  # fmt: skip
def test_a_metric_by_any_of_its_names(word: str, kind: str, field: str) -> None:
    metric = find_metric(word)
    assert (metric.kind, metric.field) == (kind, field)


def test_a_name_that_nothing_has() -> None:
    with pytest.raises(UserError, match=r"did you mean.*power"):
        find_metric("powerr_w")


@pytest.mark.parametrize(
    ("past", "english", "chinese"),
    [
        (Past(79, 14, [1.0], ["a"], [1.0], ["S1"]), "", ""),
        (Past(79, 14, [1.0, 2.0, 3.0], ["a", "b"], [3.0], ["S1"]), "third Xid 79 of this card in 14 days; it moved with the card (a → b)",
         "该卡 14 天内第 3 次出现 Xid 79；故障随卡移动（a → b）"),
        (Past(48, 14, [1.0, 2.0], ["a"], [1.0, 2.0], ["S1"]), "second Xid 48 of this card in 14 days", "该卡 14 天内第 2 次出现 Xid 48"),
        (Past(79, 7, [9.0], ["a"], [1.0, 9.0], ["S2", "S1"]),
         "second Xid 79 in this slot in 7 days; another card had it in the same slot: rather the slot, its power or the board",
         "该插槽 7 天内第 2 次出现 Xid 79；同一插槽中另有 1 张卡出现过：问题更可能在插槽、供电或主板"),
        (Past(31, 14, [float(i) for i in range(22)], ["a"], [], []), "22nd Xid 31 of this card in 14 days", "该卡 14 天内第 22 次出现 Xid 31"),
    ],
)  # fmt: skip
def test_whether_a_fault_came_before(past: Past, english: str, chinese: str) -> None:
    assert repeated_sentence(past, "en") == english
    assert repeated_sentence(past, "zh") == chinese


def test_a_plot(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, "history", "power_w", *HOUR, "--store", str(store), "--lang", "en")
    assert "power drawn (W)" in text
    assert "GPU 0" in text
    assert "GPU 1" in text
    assert "low 300" in text
    assert "▲" in text
    assert "\x1b" not in text
    assert re.search("[\u2801-\u28ff]", text)
    assert all(columns(line) <= 100 for line in text.splitlines())


def test_a_lost_gpu_leaves_a_gap(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, "history", "power_w", "--gpu", "1", *HOUR, "--store", str(store), "--lang", "en")
    rows = [line.partition("┤")[2] for line in text.splitlines() if "┤" in line]
    drawn = {place for row in rows for place, sign in enumerate(row) if sign != " "}
    width = max(drawn) + 1
    assert not any(width * 0.37 < place < width * 0.45 for place in drawn)
    assert "GPU 0" not in text


def test_widths_and_colours(store: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from gpuclinic.report.history_chart import chart_text
    from gpuclinic.watch.history_view import picture

    with open_history(read_only=True, path=str(store)) as history:
        found = picture(history, ["power", "available"], [], BEGUN, NOW, 200)
    for width in (40, 80, 120):
        for lang in ("en", "zh"):
            text = chart_text(found, lang, width=width)
            assert all(columns(line) <= width for line in text.splitlines()), text
    coloured = chart_text(found, "en", colour=True)
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == chart_text(found, "en")
    assert "\x1b[36m" in coloured


def test_in_chinese(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, "history", "memory.available", *HOUR, "--store", str(store), "--lang", "zh")
    assert "可用内存 (MiB)" in text
    assert "最低 1000.5" in text


def test_nothing_in_that_time(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, "history", "power", "--since", "3d", "--until", "2d", "--store", str(store), "--lang", "en")
    assert "no samples in this time" in text


def test_events_and_that_one_repeats(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, "history", "events", "xid", "--since", "14d", "--store", str(store), "--lang", "en")
    assert text.count("Xid 79") >= 3
    assert "Third Xid 79 of this card in 14 days; it moved with the card (0000:1a:00.0 → 0000:3b:00.0)" in " ".join(
        text.split()
    )
    assert "\x1b" not in text


def test_events_of_one_gpu(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    body = json.loads(
        said(capsys, "history", "events", "--gpu", "1", "--since", "14d", "--store", str(store), "--json")
    )
    assert body["kind"] == "history"
    assert [event["subject"] for event in body["events"]] == [KEYS[1]]
    assert "third Xid 79" in body["events"][0]["repeats"]
    assert "\x1b" not in body["events"][0]["text"]


def test_json(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    body = json.loads(said(capsys, "history", "power", *HOUR, "--store", str(store), "--json"))
    assert (body["schema"], body["kind"], body["lang"]) == (1, "history", "en")
    series = body["metrics"][0]["series"]
    assert [one["label"] for one in series] == ["GPU 0", "GPU 1"]
    assert 600 < sum(point["n"] for point in series[0]["points"]) <= 720
    assert {point["min"] for point in series[0]["points"]} >= {300.0, 355.0}


def test_csv(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = list(
        csv.reader(io.StringIO(said(capsys, "history", "power", "--gpu", "0", *HOUR, "--store", str(store), "--csv")))
    )
    assert rows[0][:4] == ["time", "metric", "unit", "thing"]
    assert rows[1][1:4] == ["gpu.power_w", "W", "GPU 0"]
    events = said(capsys, "history", "events", "--since", "14d", "--store", str(store), "--csv").splitlines()
    assert len(events) == 4


def test_svg(store: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert (
        said(
            capsys,
            "history",
            "power",
            "memory_used",
            "--since",
            "1h",
            "--svg",
            str(tmp_path / "p.svg"),
            "--store",
            str(store),
        )
        == ""
    )
    root = ET.fromstring((tmp_path / "p.svg").read_text(encoding="utf-8"))
    name = "{http://www.w3.org/2000/svg}"
    texts = ["".join(node.itertext()) for node in root.iter(f"{name}text")]
    assert "power drawn (W)" in texts
    assert "GPU memory in use (GiB)" in texts
    assert texts.count("GPU 1") == 2
    assert "Xid 79" in texts
    assert len(list(root.iter(f"{name}polyline"))) == 6
    style = root.find(f"{name}style")
    assert style is not None
    assert "prefers-color-scheme: dark" in (style.text or "")


def test_svg_that_cannot_be_written(store: Path) -> None:
    with pytest.raises(CouldNotError, match="No such file"):
        cli.main(["history", "power", "--svg", "/nowhere/p.svg", "--store", str(store)])


def test_hostile_names_stay_texts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "history.db"
    with History.open(path) as history:
        history.append(
            Tick(
                NOW - 60,
                1.0,
                [
                    Fact("fs", "/mnt/<script>\x1b[2J", {"used_mib": 5.0}, {}, "statvfs"),
                    Fact("fs", "=1+1", {"used_mib": 5.0}, {}, "s"),
                ],
            )
        )
    words = ("history", "fs.used", *HOUR, "--store", str(path))
    assert "\x1b" not in said(capsys, *words)
    drawn = said(capsys, *words, "--svg", "-")
    ET.fromstring(drawn)
    assert "<script" not in drawn
    assert "'=1+1" in said(capsys, *words, "--csv")


def test_the_list(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, "history", "--list", "--store", str(store), "--lang", "en")
    assert re.search(r"gpu\.power_w +2 +power drawn \(W\)", text)
    body = json.loads(said(capsys, "history", "--list", "--store", str(store), "--json"))
    assert {
        "metric": "memory.available_mib",
        "title": "memory that can be had without swapping",
        "unit": "MiB",
        "type": "gauge",
        "series": 1,
    } in body["metrics"]


@pytest.mark.parametrize(
    "words",
    [
        ["history"], ["history", "nonsense"], ["history", "events", "nonsense"], ["history", "power", "--since", "1h", "--until", "2h"],
        ["history", "power", "--since", "soon"], ["history", "events", "--svg", "x.svg"],
    ],
)  # fmt: skip
def test_mistakes_are_one_line(store: Path, words: list[str]) -> None:
    with pytest.raises(UserError):
        cli.main([*words, "--store", str(store)])


@pytest.mark.parametrize(
    "words", [["history", "power", "--gpu", "x"], ["usage", "--by", "colour"], ["history", "power", "--json", "--csv"]]
)
def test_wrong_options(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(words)
    assert ended.value.code == cli.EXIT_USAGE
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_no_history(tmp_path: Path) -> None:
    for words in (["history", "power"], ["usage"]):
        with pytest.raises(CouldNotError, match="no history yet"):
            cli.main([*words, "--store", str(tmp_path)])
    assert list(tmp_path.iterdir()) == []


def test_usage_by_user(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, "usage", *HOUR, "--store", str(store), "--lang", "en")
    assert re.search(r"ann +1\.0 +0\.5 \(50 %\) +0\.5 +0\.0 +58\.6 GiB +0", text)
    assert "Not known: 0.2 h of GPU time" in text
    assert "Not known: who used 0.4 h" in text
    assert "Free: 0.8 h" in text


def test_usage_by_job_and_gpu(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, "usage", *HOUR, "--by", "job", "--store", str(store), "--lang", "zh")
    assert re.search(r"4711 +1\.0", text)
    assert "未知：" in text
    body = json.loads(said(capsys, "usage", *HOUR, "--by", "gpu", "--store", str(store), "--json"))
    assert body["kind"] == "usage"
    assert [(share["name"], round(share["held_s"], -2)) for share in body["shares"]] == [("GPU 0", 3600), ("GPU 1", 0)]
    assert body["not_watched_s"] == pytest.approx(600, abs=120)


def test_usage_where_nothing_was_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    History.open(tmp_path / "history.db").close()
    assert "No GPU time" in said(capsys, "usage", "--store", str(tmp_path), "--lang", "en")
