"""Boots out of wtmp, as glibc writes it on both kinds of machine."""

from __future__ import annotations

import pytest

from gpuclinic.recognise.login_records import restarts
from made_snapshots import WTMP_SHAPES, boot, record, shutdown


@pytest.mark.parametrize("shape", WTMP_SHAPES)
def test_planned_and_not(shape: str) -> None:
    login = record(shape, 7, "joe", "pts/0", "10.0.0.1", 4000)
    found = restarts(boot(1000, shape) + shutdown(2000, shape) + boot(3000, shape) + login + boot(9000, shape))
    assert [(r.at, r.how) for r in found] == [(1000.0, "unknown"), (3000.0, "planned"), (9000.0, "unclean")]
    assert found[1].kernel == "6.8.0-45-generic"
    assert found[2].ran_s == 1000.0


def test_machines_that_record_no_shutdowns_say_nothing() -> None:
    assert [r.how for r in restarts(b"".join(boot(n * 1000) for n in range(1, 6)))] == ["unknown"] * 5


def test_two_boots_and_no_shutdown_are_a_crash() -> None:
    assert [r.how for r in restarts(boot(1000) + boot(2000))] == ["unknown", "unclean"]


@pytest.mark.parametrize("data", [b"", b"\xff" * 384, b"\xff" * 400, b"x" * 383, b"\0" * 384])
def test_what_is_no_wtmp_gives_no_boots(data: bytes) -> None:
    assert restarts(data) == []
