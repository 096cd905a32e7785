"""Alerts: from rows and events, under their cause, once, across restarts and reboots."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from gpuclinic.clinic.logged import Now, logged
from gpuclinic.clinic.reading import Reader, Texts
from gpuclinic.diagnose import diagnose
from gpuclinic.diagnose.evidence import Reading
from gpuclinic.knowledge import load
from gpuclinic.knowledge.xids import catalogue
from gpuclinic.model import Event, Fact, Tick, UserError
from gpuclinic.watch.alerts import Book, Silence, add_silence, read_book, read_silences
from gpuclinic.watch.config import Rules as RulesConfig
from gpuclinic.watch.rules import Rules

if TYPE_CHECKING:
    from pathlib import Path

GPU = "0000:3b:00.0"
WALL = 1_780_000_000.0


def gpu(**fields: Any) -> Fact:
    return Fact("gpu", GPU, {"index": 1, "bus_id": GPU, "serial": "1654", **fields}, {}, "nvml")


def xid(code: int, at: float, text: str = "", subject: str = GPU) -> Event:
    line = f"NVRM: Xid (PCI:{subject[:-2]}): {code}, {text or 'pid=1234, name=python'}"
    return Event(WALL + at, "xid", subject, line, {"code": code, "gpu_index": 1}, "1654", subject)


def ticks(
    rules: Rules,
    begin: int,
    end: int,
    facts: list[Fact],
    events: dict[int, list[Event]] | None = None,
    mono: float = 0.0,
) -> list[tuple[str, str, str]]:
    out = []
    for n in range(begin, end):
        tick = Tick(WALL + n, mono + n, facts, (events or {}).get(n, []))
        out += [(c.what, c.alert.rule, c.alert.severity) for c in rules.take(tick)]
    return out


def test_a_row_fires_once_and_resolves() -> None:
    rules = Rules(RulesConfig())
    assert ticks(rules, 0, 50, [gpu(remap_pending=True)]) == [("fired", "gpu.remap.pending", "critical")]
    alert = rules.active()[0]
    assert alert.subject == GPU
    assert alert.serial == "1654"
    assert alert.finding.cause == "hw.gpu.row_remap_pending"
    assert alert.finding.steps
    assert alert.finding_zh.title != alert.finding.title
    assert ticks(rules, 50, 120, [gpu(remap_pending=False)]) == [("resolved", "gpu.remap.pending", "critical")]
    assert alert.why_ended == "ended"
    assert not rules.active()


def test_what_one_cause_explains_goes_under_it() -> None:
    rules = Rules(RulesConfig())
    ticks(rules, 0, 20, [gpu(remap_pending=True, recovery_action="Reset", reset_required=True)])
    tops = [a for a in rules.active() if a.explained_by is None]
    assert [a.rule for a in tops] == ["gpu.remap.pending"]
    assert set(tops[0].explains) == {"gpu.recovery_action", "gpu.needs_reset"}


def test_a_log_and_a_row_of_one_fault_are_one() -> None:
    rules = Rules(RulesConfig())
    ticks(
        rules,
        0,
        20,
        [gpu(error="GPU is lost")],
        {3: [xid(79, 3, "pid='<unknown>', name=<unknown>, GPU has fallen off the bus.")]},
    )
    assert len(rules.active()) == 2
    assert [a.rule for a in rules.active() if a.explained_by is None] == ["gpu.lost"]


@pytest.mark.parametrize("code", sorted(code for kind, code in catalogue() if kind == "xid"))
def test_an_xid_event_becomes_the_finding_that_check_gives_for_its_line(code: int) -> None:
    """The same line read from a kernel log by `check`, and told as an event."""
    event = xid(code, 0.0)
    line = f"2026-05-28T20:26:40,000000+00:00 kernel: {event.text}\n"
    reader = Reader(load())
    reader.read_host(Texts([("/dev/kmsg", line.encode())]))
    result = diagnose(Reading(reader.signals, [], reader.counts, {}, boots=reader.boots), load())
    wanted = {(f.id, f.severity) for f in logged(result, reader.signals, "en", Now(WALL))}
    rules = Rules(RulesConfig())
    rules.take(Tick(WALL, 0.0, [], [event]))
    assert {(a.rule, a.severity) for a in rules.active()} == wanted


def test_an_unknown_xid_is_told() -> None:
    rules = Rules(RulesConfig())
    rules.take(Tick(WALL, 0.0, [], [xid(987, 0)]))
    assert [a.rule for a in rules.active()] == ["log.gpu.unknown_code"]


def test_a_storm_of_xids_is_one_alert() -> None:
    rules = Rules(RulesConfig())
    told = ticks(rules, 0, 100, [], {n: [xid(74, n)] * 20 for n in range(100)})
    assert [t[0] for t in told].count("fired") == 1
    assert rules.active()[0].times >= 100


def test_events_end_by_quiet_reboot_and_reload() -> None:
    rules = Rules(RulesConfig())
    ticks(rules, 0, 5, [], {1: [xid(79, 1, "GPU has fallen off the bus.")]})
    assert rules.active()
    boot = Event(WALL + 6, "boot", "", "the machine was started")
    assert ticks(rules, 6, 8, [], {6: [boot]}) == [("resolved", "log.gpu.fallen_off_bus", "critical")]
    ticks(rules, 10, 12, [], {10: [xid(119, 10)]})
    assert rules.active()
    loaded = Event(WALL + 20, "kernel", "", "NVRM: loading", {"signature": "nvrm.loaded"})
    assert ticks(rules, 20, 22, [], {20: [loaded]})[0][0] == "resolved"
    ticks(rules, 30, 31, [], {30: [xid(31, 30, "pid=1, name=python, Ch 00000008, MMU Fault")]})
    held = [a.rule for a in rules.active()]
    ended = ticks(rules, 31 + 90000, 31 + 90002, [])
    assert [e[1] for e in ended] == held


def test_repeats_are_told_by_card_and_slot() -> None:
    past = SimpleNamespace(by_serial=[1.0, 2.0, 3.0], by_slot=[3.0], slots=["0000:5e:00.0", GPU])
    rules = Rules(RulesConfig(), repeated=lambda serial, slot, code, days: past)
    rules.take(Tick(WALL, 0.0, [], [xid(79, 0, "GPU has fallen off the bus.")]))
    alert = rules.active()[0]
    assert alert.finding.detail.startswith("Third Xid 79 of this card in 14 days, and it moved with the card")
    assert "第 3 次出现 Xid 79" in alert.finding_zh.detail
    past.slots, past.by_serial, past.by_slot = [GPU], [3.0], [1.0, 2.0, 3.0]
    rules = Rules(RulesConfig(), repeated=lambda serial, slot, code, days: past)
    rules.take(Tick(WALL, 0.0, [], [xid(79, 0, "GPU has fallen off the bus.")]))
    assert "stays with the slot" in rules.active()[0].finding.detail


def test_a_restart_forgets_nothing(tmp_path: Path) -> None:
    rules = Rules(RulesConfig(), tmp_path, boot_id="a")
    ticks(rules, 0, 10, [gpu(remap_pending=True)])
    fired_at = rules.active()[0].fired_at
    again = Rules(RulesConfig(), tmp_path, boot_id="a")
    assert ticks(again, 20, 60, [gpu(remap_pending=True)]) == []
    assert [(a.rule, a.fired_at) for a in again.active()] == [("gpu.remap.pending", fired_at)]
    third = Rules(RulesConfig(), tmp_path, boot_id="a")
    assert ticks(third, 70, 140, [gpu(remap_pending=False)]) == [("resolved", "gpu.remap.pending", "critical")]


def test_after_a_reboot_what_is_over_ends_and_what_is_not_stays(tmp_path: Path) -> None:
    rules = Rules(RulesConfig(), tmp_path, boot_id="a")
    ticks(rules, 0, 10, [gpu(remap_pending=True, remap_failed=False, inforom_valid=False)], {2: [xid(119, 2)]})
    assert len(rules.active()) == 3
    after = Rules(RulesConfig(), tmp_path, boot_id="b")
    told = ticks(after, 500, 600, [gpu(remap_pending=False, inforom_valid=False)], mono=-490.0)
    assert ("resolved", "log.gpu.gsp", "critical") in told
    assert ("resolved", "gpu.remap.pending", "critical") in told
    assert [a.rule for a in after.active()] == ["gpu.inforom_corrupt"]
    assert not [t for t in told if t[0] == "fired"]


def test_a_gpu_taken_out_over_a_reboot_ends_its_alerts(tmp_path: Path) -> None:
    rules = Rules(RulesConfig(), tmp_path, boot_id="a")
    ticks(rules, 0, 10, [gpu(remap_failed=True)])
    after = Rules(RulesConfig(), tmp_path, boot_id="b")
    told = ticks(after, 500, 1200, [Fact("gpu", "0000:5e:00.0", {"index": 0}, {}, "nvml")])
    assert told == [("resolved", "gpu.remap.failed", "critical")]


@pytest.mark.parametrize("junk", [b"", b"{", b"[]", b'{"version": 9}', b"\xff\xfe\x00", b'{"alerts": [{"id": 3}]}'])
def test_a_torn_file_is_kept_aside(tmp_path: Path, junk: bytes) -> None:
    (tmp_path / "alerts.json").write_bytes(junk)
    book = Book(tmp_path)
    assert not book.active
    assert "not readable" in str(book.trouble)
    assert [p.read_bytes() for p in tmp_path.glob("alerts.json.bad-*")] == [junk]


def test_a_folder_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    rules = Rules(RulesConfig(), tmp_path / "gone")
    ticks(rules, 0, 5, [gpu(remap_pending=True)])
    assert len(rules.active()) == 1
    assert "in memory only" in str(rules.book.trouble)


def test_off_and_durations_of_the_configuration() -> None:
    rules = Rules(RulesConfig(off=["gpu.remap", "log.gpu"], for_s={"gpu.inforom_corrupt": 30.0}))
    told = ticks(rules, 0, 40, [gpu(remap_pending=True, inforom_valid=False)], {1: [xid(79, 1)]})
    assert told == [("fired", "gpu.inforom_corrupt", "warning")]


def test_own_rows(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    row = 'id = "own.hot"\ncomponent = "gpu"\nlook = "gpu.nvml"\nsource = "us"\ntitle_en = "hot"\ntitle_zh = "热"\nover = "gpu"\n'
    file.write_text(f"[[check]]\n{row}warning = 'temperature_c > 40'\n")
    rules = Rules(RulesConfig(file=str(file)))
    assert ticks(rules, 0, 5, [gpu(temperature_c=41)]) == [("fired", "own.hot", "warning")]
    for wrong in (
        f"[[check]]\n{row}warning = 'temperature_c >'\n",
        f"[[check]]\n{row}warning = 'exec(1)'\n",
        "[[check]]\nid = 3\n",
        "= =",
    ):
        file.write_text(wrong)
        with pytest.raises(UserError, match=r"own\.toml"):
            Rules(RulesConfig(file=str(file)))


def test_slow_sampling_is_told() -> None:
    rules = Rules(RulesConfig())
    told = []
    for n in range(200):
        told += [c.alert.rule for c in rules.take(Tick(WALL + n, n, [], took_s=4.0))]
    assert told == ["driver.sampling_slow"]


def test_silences_are_kept_and_run_out(tmp_path: Path) -> None:
    add_silence(tmp_path, Silence("thermal.*", 100.0), 10.0)
    add_silence(tmp_path, Silence("abcd1234", 200.0), 10.0)
    assert {s.alert for s in read_silences(tmp_path, 50.0)} == {"thermal.*", "abcd1234"}
    assert {s.alert for s in read_silences(tmp_path, 150.0)} == {"abcd1234"}
    add_silence(tmp_path, Silence("abcd1234", 10.0), 10.0)
    assert {s.alert for s in read_silences(tmp_path, 11.0)} == {"thermal.*"}


def test_the_book_is_read_back(tmp_path: Path) -> None:
    rules = Rules(RulesConfig(), tmp_path)
    ticks(rules, 0, 5, [gpu(remap_pending=True)])
    assert [a.rule for a in read_book(tmp_path).active.values()] == ["gpu.remap.pending"]
