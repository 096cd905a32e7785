"""The check's words are in both languages, its rows' units too."""

from __future__ import annotations

import re

from gpuclinic.knowledge import load_checks
from gpuclinic.report._check_words import EN, UNITS_ZH, ZH

SYMBOLS = {"", "%", "Gb/s", "Mb/s", "GiB", "MiB", "KiB", "MHz", "RPM", "V", "W", "ms", "°C"}


def test_tables_are_in_step() -> None:
    assert EN.keys() == ZH.keys()
    for key, text in EN.items():
        assert set(re.findall(r"\{(\w+)", text)) == set(re.findall(r"\{(\w+)", ZH[key])), key


def test_every_unit_is_a_symbol_or_has_chinese_words() -> None:
    missing = {row.unit for row in load_checks().checks} - SYMBOLS - UNITS_ZH.keys()
    assert not missing
