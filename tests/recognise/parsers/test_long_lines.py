"""Marks in lines of many kilobytes: found wherever they stand, and one of a line's beginning only there."""

from __future__ import annotations

import pytest

from gpuclinic.recognise.parsers import parsers_for

FILLER = "9" * 300_000


def _functions(text: str) -> list[str]:
    return [entry.function for entry in parsers_for(text)]


@pytest.mark.parametrize("before", ["", FILLER + " ", "first\n" + FILLER + " "])
@pytest.mark.parametrize("behind", ["\n", " " + FILLER + "\n"])
def test_a_mark_anywhere_in_a_long_line_is_found(before: str, behind: str) -> None:
    assert "limits:parse_limits" in _functions(f"{before}nofile 1024{behind}")


def test_a_mark_of_a_lines_beginning_is_none_in_its_middle() -> None:
    told = "reboot   system boot  6.8.0-45-generic Mon Mar  2 04:12   still running"
    assert "system:parse_last" in _functions(f"{told} {FILLER}\n")
    assert "system:parse_last" in _functions(f"{FILLER}\n{told}\n")
    assert "system:parse_last" not in _functions(f"{FILLER} {told}\n")


def test_many_marks_in_one_long_line_cost_one_look_each() -> None:
    text = (FILLER[:100_000] + " hostname ") * 40
    assert "launches:parse_inventory" not in _functions(text)
