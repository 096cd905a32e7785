"""Every size, language and state of the machine: lines are exactly as wide as the screen, columns stand under their titles."""

from __future__ import annotations

import pytest
import shown
from wcwidth import wcswidth

from gpuclinic.knowledge.gpu_limits import gpu_limits
from gpuclinic.top.app import THEMES
from gpuclinic.top.choices import Choices, shown_holders
from gpuclinic.top.painting import ROLES, bar, clip, fit, graph
from gpuclinic.top.screen import once_text, paint, zones_of
from gpuclinic.top.tables import device_columns, device_head, device_lines, process_columns, process_head, process_line
from gpuclinic.top.words import HELP, WORDS, age_text, rate_text, size_text

SIZES = [(80, 24), (120, 40), (200, 60), (40, 10), (59, 15), (100, 30), (20, 5)]
MACHINES = [
    (1, "healthy"),
    (8, "healthy"),
    (8, "sick"),
    (16, "healthy"),
    (16, "sick"),
    (1, "mig"),
    (8, "mig"),
    (0, "none"),
]


def text(line: list[tuple[str, str]]) -> str:
    return "".join(part for part, _ in line)


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("machine", MACHINES)
def test_every_line_is_as_wide_as_the_screen(machine: tuple[int, str], size: tuple[int, int], lang: str) -> None:
    view, past = shown.machine(*machine)
    for overlay in ("", "help", "alert", "process", "kill", "nice", "sort", "beside"):
        choices = Choices(lang=lang, overlay=overlay, pid=41800, subject="a0000001")
        painted = paint(view, past, choices, *size)
        assert len(painted.lines) == len(painted.zone_at) == size[1]
        assert {wcswidth(text(line)) for line in painted.lines} == {size[0]}, overlay
        assert {role for line in painted.lines for _, role in line} <= set(ROLES)


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("width", [80, 104, 120, 150, 160, 200, 240])
def test_titles_and_fixed_words_are_never_cut(width: int, lang: str) -> None:
    assert "…" not in text(device_head(width, lang))
    assert "…" not in text(process_head(width, lang, "vram"))
    view, past = shown.machine(16, "sick")
    lines = [text(line) for gpu in view.gpus for line in device_lines(gpu, width, lang)]
    assert not [line for line in lines if "…" in line]
    painted = paint(view, past, Choices(lang=lang), width, 24)
    assert "…" not in text(painted.lines[0]) + text(painted.lines[1]) + text(painted.lines[-1])


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("width", [80, 120, 200])
def test_cells_stand_under_their_titles(width: int, lang: str) -> None:
    view, _ = shown.machine(8, "healthy")
    for columns, head, lines in (
        (device_columns(width), device_head(width, lang), [line for gpu in view.gpus for line in device_lines(gpu, width, lang)]),
        (process_columns(width), process_head(width, lang, "pid"), [process_line(holder, width, lang) for holder in view.holders]),
    ):  # fmt: skip
        place = 0
        for column in columns[:-1]:
            place += column.width
            for line in (head, *lines):
                cells = "".join(c + "\0" * (wcswidth(c) - 1) for c in text(line))
                assert cells[place] == " ", (column.id, text(line))
            place += 1


def test_limits_fit_their_column_in_both_languages() -> None:
    for row in gpu_limits():
        assert wcswidth(row.en) <= 19, row.en
        assert wcswidth(row.zh) <= 19, row.zh


def test_the_limit_of_each_gpu() -> None:
    view, _ = shown.machine(8, "sick")
    found = {gpu.index: gpu.limit.id if gpu.limit else None for gpu in view.gpus}
    assert found == {
        0: "power_cap",
        1: "busy",
        2: "busy",
        3: "hw_thermal",
        4: "memory_full",
        5: "busy",
        6: "held_idle",
        7: None,
    }
    assert view.gpus[3].heat_limit_c == 90
    assert view.gpus[7].lost
    assert view.gpus[7].trouble == "GPU is lost"


def test_a_lost_gpu_stays_in_its_place() -> None:
    view, past = shown.machine(8, "sick")
    painted = paint(view, past, Choices(), 80, 24)
    rows = [text(painted.lines[n]) for n, (zone, row) in enumerate(painted.zone_at) if zone == "gpus" and row >= 0]
    assert rows[7].split()[:2] == ["7", "LOST"]


def test_no_gpu_says_why_and_shows_the_host() -> None:
    view, past = shown.machine(0, "none")
    screen = "\n".join(text(line) for line in paint(view, past, Choices(), 80, 24).lines)
    assert "No GPU can be read." in screen
    assert "Driver Not Loaded (modprobe nvidia)" in screen
    assert "35.2/112" in screen


def test_hostile_names_do_nothing_to_the_terminal() -> None:
    view, past = shown.machine(2)
    hostile = "x\x1b[2J\x1b]0;owned\x07\r\n\x9b31m" + "ﷺ\u202eabc" * 50
    facts = [
        shown.fact("gpu_process", "a/9", pid=9, name=hostile, gpu_index=0, bus_id=shown.address(0), memory_mib=1.0)
    ]
    from gpuclinic.model import Tick
    from gpuclinic.top.view import holders_of

    view.holders = holders_of(Tick(shown.AT, 1.0, facts), view.gpus, {})
    screen = "".join(text(line) for line in paint(view, past, Choices(), 80, 24).lines) + once_text(
        view, Choices(), 120
    ).replace("\n", "")
    assert not [c for c in screen if ord(c) < 32 or 0x7F <= ord(c) < 0xA0]


def test_processes_unseen_and_marked() -> None:
    view, _ = shown.machine(8, "sick")
    marks = {(holder.pid, mark) for holder in view.holders for mark in holder.marks}
    assert (0, "nobody") in marks
    assert (41800, "zombie") in marks
    assert view.holders[0].gpu_pct == 97


def test_two_processes_on_a_gpu_do_not_share_its_figure() -> None:
    from gpuclinic.model import Tick
    from gpuclinic.top.view import gpus_of, holders_of

    facts = [
        shown.gpu(0),
        *(shown.fact("gpu_process", f"a/{pid}", pid=pid, gpu_index=0, bus_id=shown.address(0)) for pid in (7, 8)),
    ]
    tick = Tick(shown.AT, 1.0, facts)
    assert [holder.gpu_pct for holder in holders_of(tick, gpus_of(tick), {})] == [None, None]


def test_sorting_filtering_and_the_tree() -> None:
    view, _ = shown.machine(8, "sick")
    by_pid = [holder.pid for _, holder in shown_holders(view, Choices(sort="pid"))]
    assert by_pid == sorted(by_pid)
    assert [h.pid for _, h in shown_holders(view, Choices(sort="pid", inverted=True))] == by_pid[::-1]
    sizes = [holder.mib or 0 for _, holder in shown_holders(view, Choices(sort="vram"))]
    assert sizes == sorted(sizes, reverse=True)
    assert {h.user for _, h in shown_holders(view, Choices(filter="ALICE 771204"))} == {"alice"}
    assert {tuple(h.gpus) for _, h in shown_holders(view, Choices(only_gpus=[3]))} == {(3,)}
    view.holders[1].ppid = view.holders[0].pid
    tree = shown_holders(view, Choices(tree=True, sort="pid"))
    assert (1, view.holders[1]) in tree
    assert len(tree) == len(view.holders)
    view.holders[0].ppid = view.holders[1].pid  # a ring loses nobody
    assert len(shown_holders(view, Choices(tree=True))) == len(view.holders)


def test_heights_always_add_up() -> None:
    for height in range(10, 80):
        for rows in (1, 8, 16, 64):
            for findings in (0, 1, 9):
                zones = zones_of(height, rows, findings, rows, graphs=True)
                assert zones.gpus + zones.findings + zones.graphs + zones.processes == height - 3
                assert min(zones.gpus, zones.processes) >= 1, (height, rows, findings)


def test_numbers_in_few_columns() -> None:
    assert [size_text(v) for v in (None, 0, 999, 1024, 61000, 1_000_000, 3e7)] == [
        "-",
        "0M",
        "999M",
        "1.0G",
        "59.6G",
        "977G",
        "28.6T",
    ]
    assert [rate_text(v) for v in (None, 0, 512, 830_000, 1_250_000, 187e6)] == [
        "-",
        "0",
        "512k",
        "830M",
        "1.2G",
        "187G",
    ]
    assert [age_text(v) for v in (None, 5, 600, 11_100, 93_784, 9e7)] == ["-", "5s", "10m", "3h05m", "1d02h", "1041d"]


def test_painting() -> None:
    assert fit("显存已满", 5) == "显存…"
    assert fit("显存", 5, right=True) == " 显存"
    assert text(clip([("显存", "")], 3)) == "显…"
    assert text(bar(0.5, 4, "bar")) == "██··"
    assert text(bar(None, 4, "bar")) == "····"
    assert graph([None, 0, 10, 50, 100], 4, 2, 100) == ["   ⢸", "  ⣀⣿"]


def test_both_languages_have_every_word_and_themes_every_role() -> None:
    assert WORDS["en"].keys() == WORDS["zh"].keys()
    assert len(HELP["en"]) == len(HELP["zh"])
    assert all(set(theme) == set(ROLES) for theme in THEMES.values())


def _luminance(colour: str) -> float:
    parts = [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("theme", ["dark", "light", "contrast"])
def test_text_can_be_read_on_its_ground(theme: str) -> None:
    for role, style in THEMES[theme].items():
        if role in ("track", "edge", "bar", "graph"):
            continue  # no text
        front, back = (_luminance(word) for word in style.replace("bold ", "").split(" on "))
        assert (max(front, back) + 0.05) / (min(front, back) + 0.05) >= 4.5, role


def test_once_shows_everything_at_any_height() -> None:
    view, _ = shown.machine(16, "sick")
    told = once_text(view, Choices(), 160)
    assert all(f"\n{index:3} " in told for index in range(16))
    assert "418" in told
    assert "fell off the bus" in told
    assert once_text(view, Choices(only_gpus=[2]), 160).count("H100") == 1
