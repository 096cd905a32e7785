from __future__ import annotations

from gpuclinic.model import Signal, Where
from gpuclinic.recognise.boots import number_boots
from gpuclinic.recognise.timestamps import find_stamp


def signals(*rows: tuple[str, str]) -> list[Signal]:
    return [
        Signal(name, Where("log", n + 10, text), n, {}, time=find_stamp(text)) for n, (name, text) in enumerate(rows)
    ]


def test_a_journal_mark_with_the_kernel_s_first_lines_is_one_boot() -> None:
    found, boots = number_boots(
        signals(
            ("a.x", "Mar  2 04:11:09 n1 kernel: x"),
            ("boot.journal_mark", "-- Boot 0123456789abcdef0123456789abcdef --"),
            ("boot.start", "Mar  2 04:15:09 n1 kernel: Linux version 6.1.0 (x"),
            ("boot.command_line", "Mar  2 04:15:09 n1 kernel: Command line: BOOT_IMAGE=/x"),
            ("a.y", "Mar  2 04:16:09 n1 kernel: y"),
        )
    )
    assert [s.boot for s in found] == [0, 1, 1, 1, 1]
    assert [(b.boot, b.clean) for b in boots] == [(1, False)]


def test_an_orderly_shutdown_is_told_from_a_crash() -> None:
    found, boots = number_boots(
        signals(
            ("a.x", "x"),
            ("boot.clean_shutdown", "systemd[1]: Reached target Power-Off"),
            ("boot.start", "Linux version 6.1.0 (x"),
            ("a.x", "x"),
            ("boot.start", "Linux version 6.1.0 (x"),
        )
    )
    assert [s.boot for s in found] == [0, 0, 1, 1, 2]
    assert [b.clean for b in boots] == [True, False]


def test_an_uptime_that_goes_backwards_is_a_boot() -> None:
    found, boots = number_boots(
        signals(("a.x", "[ 9000.000000] x"), ("a.x", "[    5.000000] y"), ("a.x", "[    4.900000] z"))
    )
    assert [s.boot for s in found] == [0, 1, 1]
    assert len(boots) == 1


def test_parts_of_a_pstore_dump_are_no_boots() -> None:
    found, _ = number_boots(signals(("a.x", "<4>[ 9000.000000] x"), ("a.x", "<4>[ 100.000000] y")), "Panic#2 Part1\n")
    assert [s.boot for s in found] == [0, 0]


def test_a_log_that_begins_with_its_boot_has_one() -> None:
    rows = [
        Signal("boot.start", Where("log", 1, "[    0.000000] Linux version 6 (x"), 0, {}),
        *signals(("a.x", "[ 9.000000] x")),
    ]
    found, boots = number_boots(rows)
    assert {s.boot for s in found} == {0}
    assert not boots
