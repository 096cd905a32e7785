"""Deadlines for hostile texts."""

from __future__ import annotations

import re
import time

import pytest

from gpuclinic.model import Document
from gpuclinic.recognise.limits import TooSlowError, deadline
from gpuclinic.recognise.parsers.memory import parse_free


def test_an_endless_search_is_given_up() -> None:
    started = time.monotonic()
    with pytest.raises(TooSlowError), deadline(0.2):
        re.match(r"(?:a+)+$", "a" * 60 + "b")
    assert time.monotonic() - started < 5


def test_what_is_quick_is_left_alone() -> None:
    with deadline(5):
        value = 1 + 1
    assert value == 2
    with deadline(5), deadline(0.01):  # the outer one is in force already
        time.sleep(0.05)


def test_blanks_between_values_of_free_take_no_exponential_time() -> None:
    line = "Mem: " + "1  " * 60 + "x\n"
    with deadline(2):
        assert parse_free(Document("free.txt", line * 3)) == []
