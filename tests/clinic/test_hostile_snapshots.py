"""Snapshots that are damaged or made to harm: every question is answered, "could not look" included, and nothing takes for ever."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from gpuclinic.clinic.capturing import CaptureOptions, capture, looks_captured, recorded_question
from gpuclinic.clinic.checking import CheckOptions, as_recorded, check
from gpuclinic.clinic.gathering import Question, as_moment, gather, parse_moment
from gpuclinic.clinic.looks import driver
from gpuclinic.clinic.looks._look import as_number
from gpuclinic.model import UserError
from gpuclinic.observe.recording import RecordingHost, answer_lines, written
from gpuclinic.observe.replay import Replay
from gpuclinic.observe.snapshot import MOST_NVML, Snapshot, open_snapshot

if TYPE_CHECKING:
    from pathlib import Path

    from gpuclinic.observe.asking import Asked

NASTY: dict[str, Any] = {
    "null": None, "true": True, "minus": -1, "text": "x", "empty": "", "nan": float("nan"), "infinite": float("inf"), "huge": 10**400,
    "list": [], "lists": [[1]], "object": {}, "slash": "/", "nul": "/a\0b", "surrogate": "/\udcff", "digits": "9" * 400,
}  # fmt: skip


def _files(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def _server(folder: Path, **more: str) -> Path:
    return _files(
        folder,
        {
            "root/proc/uptime": "600.0 1000.0\n", "root/proc/sys/kernel/hostname": "n1\n", "root/dev/kmsg": "6,1,1000000,-;Linux version 6.1.0\n",
            "root/sys/bus/pci/devices/0000:9a:00.0/vendor": "0x10de\n", "root/sys/bus/pci/devices/0000:9a:00.0/class": "0x030200\n",
            "root/proc/modules": "nvidia 1 0 - Live 0x0\n", "root/proc/41/stat": "41 (x) S 1 41 41 0 -1 4194304 9 0 0 0 8 20 0 0 20 0 1 0 10 1000 200 1\n",
            "root/etc/modprobe.d/a.conf": "options nvidia NVreg_X=1\n",
            "nvml.json": '{"gpuclinic_nvml": 1, "init": {"code": 0}, "devices": [{"index": 0}]}', "snapshot.json": '{"time": "2026-03-02T04:12:00+00:00"}',
            **more,
        },
    )  # fmt: skip


def _all_asked(host: Asked) -> None:
    """check, why and capture, as the command line asks them."""
    check(host, as_recorded(host, CheckOptions(deep=True, seconds=1.0)))
    question = Question(pid=41)
    gather(host, recorded_question(host, question) if isinstance(host, Replay) else question)
    capture(host, CaptureOptions(CheckOptions()))


def _replaced(value: Any, nasty: Any, keep: frozenset[str]) -> Any:
    """Every scalar replaced, but those that say which question it was."""
    if isinstance(value, dict):
        return {k: v if k in keep else _replaced(v, nasty, keep) for k, v in value.items()}
    return [_replaced(one, nasty, keep) for one in value] if isinstance(value, list) else nasty


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, bytes], list[dict[str, Any]]]:
    host = Snapshot(_server(tmp_path_factory.mktemp("server")))
    recorder = RecordingHost(host)
    check(recorder, CheckOptions(deep=True, seconds=1.0))
    recorder.mark("why")
    gather(recorder, Question(pid=41))
    files = written(recorder, lambda _, data: data, lambda text: text)
    return files.files, files.lines


@pytest.mark.parametrize("nasty", NASTY)
@pytest.mark.parametrize("keep", ["ask", "ask path argv", "ask path argv most end deep sample"])
def test_a_capture_with_any_value_in_any_place_is_answered(
    tmp_path: Path, recorded: tuple[dict[str, bytes], list[dict[str, Any]]], nasty: str, keep: str
) -> None:
    files, lines = recorded
    bad = [_replaced(line, NASTY[nasty], frozenset(keep.split())) for line in lines]
    for name, data in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
    (tmp_path / "answers.jsonl").write_bytes(answer_lines(bad, "1", live=True))
    about = {
        "time": 1,
        "host": "n",
        "asked": {"deep": 1, "seconds": 1, "since": 1, "uid": 1, "home": 1, "expect_gpus": 1, "psu_watts": 1},
    }
    (tmp_path / "snapshot.json").write_text(json.dumps(_replaced(about, NASTY[nasty], frozenset())))
    (tmp_path / "nvml.json").write_text(
        json.dumps(_replaced(json.loads(files["nvml.json"]), NASTY[nasty], frozenset()))
    )
    host = open_snapshot(tmp_path)
    assert isinstance(host, Replay)
    _all_asked(host)


@pytest.mark.parametrize("name", ["path", "most", "of", "links", "text", "in", "size", "at", "sample", "argv"])
@pytest.mark.parametrize("nasty", ["list", "object", "huge", "nul", "long"])
def test_one_key_of_a_capture_may_hold_anything(
    tmp_path: Path, recorded: tuple[dict[str, bytes], list[dict[str, Any]]], name: str, nasty: str
) -> None:
    value = [{"path": "a"}] if name == "of" else {"x": "y"} if name == "links" else {**NASTY, "long": "9" * 5000}[nasty]
    bad = [{**line, name: value} if name in line else line for line in recorded[1]]
    (tmp_path / "answers.jsonl").write_bytes(answer_lines(bad, "1"))
    _all_asked(open_snapshot(tmp_path))


@pytest.mark.parametrize("nasty", NASTY)
def test_a_snapshot_by_hand_with_any_value_is_answered(tmp_path: Path, nasty: str) -> None:
    host = open_snapshot(_server(tmp_path, **{"stat.json": '{"/etc/passwd": {"mode": 1, "uid": 2}}'}))
    for name in ("nvml.json", "snapshot.json", "stat.json"):
        content = json.loads((tmp_path / name).read_text())
        (tmp_path / name).write_text(json.dumps(_replaced(content, NASTY[nasty], frozenset())))
    _all_asked(open_snapshot(tmp_path))
    host.close()


@pytest.mark.parametrize("uptime", ["\ufffd 1\n", "x\n", "\n", "nan 1\n", "inf 1\n", "-5 1\n", "9" * 400 + "\n"])
def test_an_uptime_that_is_no_number_is_no_boot(tmp_path: Path, uptime: str) -> None:
    host = open_snapshot(_server(tmp_path, **{"root/proc/uptime": uptime}))
    gathered = gather(host, Question(pid=41))
    assert not any(fact.kind == "boot" for fact in gathered.facts)
    _all_asked(host)


def test_links_that_lead_in_circles_are_answers(tmp_path: Path) -> None:
    folder = _server(tmp_path)
    for link, target in {"var": "var", "usr": "lib", "lib": "usr", "run": "/run/run", "opt": "../../../../opt"}.items():
        (folder / "root" / link).symlink_to(target)
    host = open_snapshot(folder)
    assert host.file("/var/log/x").code == 40
    assert host.listing("/usr").why
    _all_asked(host)


def test_names_that_no_file_can_have_are_answers(tmp_path: Path) -> None:
    host = open_snapshot(_server(tmp_path))
    for path in ("/proc/\0", "/" + "x" * 5000, "/a/" * 3000, "/proc/uptime/x", "//..//../etc"):
        assert host.file(path).why
        assert not host.link(path).ok
        assert host.links(path + "*") == {}
        host.stat(path), host.listing(path), host.files(path)


def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "answers.jsonl")
    assert not looks_captured(tmp_path)
    assert not looks_captured(tmp_path / "answers.jsonl")
    folder = _server(tmp_path / "s")
    for name in ("nvml.json", "snapshot.json"):
        (folder / name).unlink()
        os.mkfifo(folder / name)
    _all_asked(open_snapshot(folder))


def test_an_nvml_document_of_any_size_is_not_taken_in(tmp_path: Path) -> None:
    folder = _server(tmp_path)
    (folder / "nvml.json").write_text('{"a":[' + "1," * (MOST_NVML // 2) + "1]}")
    host = open_snapshot(folder)
    assert "larger than" in (host.nvml().why or "")
    answer = check(host, CheckOptions())
    assert any(gap.check == "gpu.nvml" and "larger than" in gap.why for gap in answer.not_looked_at)


def test_a_look_that_stumbles_costs_only_itself_and_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stumbles(host: object, wanted: object) -> object:
        return [][1]

    monkeypatch.setattr(driver, "look_at_driver", stumbles)
    monkeypatch.delenv("GPUCLINIC_DEBUG", raising=False)
    host = open_snapshot(_server(tmp_path))
    answer = check(host, CheckOptions())
    told = [gap.why for gap in answer.not_looked_at if gap.check == "driver" and "stumbled" in gap.why]
    assert len(told) == 1
    assert "IndexError" in told[0]
    assert any(fact.kind == "pci_device" for fact in answer.facts)
    monkeypatch.setenv("GPUCLINIC_DEBUG", "1")
    with pytest.raises(IndexError):
        check(host, CheckOptions())


def test_a_question_that_stumbles_costs_only_itself_and_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gather_memory(host: object, gathered: object) -> object:
        return [][1]

    monkeypatch.setattr("gpuclinic.clinic.gathering.gather_memory", gather_memory)
    monkeypatch.delenv("GPUCLINIC_DEBUG", raising=False)
    gathered = gather(open_snapshot(_server(tmp_path)), Question(pid=41))
    assert [gap.path for gap in gathered.not_read if "stumbled" in gap.why] == ["memory"]


@pytest.mark.parametrize("words", ["99999999999999h", "9" * 400 + "w", "1970-01-01T00:00:00+14:00"])
def test_a_span_longer_than_time_itself_reaches_back_to_its_beginning(words: str) -> None:
    assert parse_moment(words, 1.7e9) == 0.0


@pytest.mark.parametrize("words", ["9999-12-31T23:59:59-12:00", "", "nan", "inf h", "1e9", "@99999999999999", "soon"])
def test_what_is_no_time_is_refused_in_a_line(words: str) -> None:
    with pytest.raises(UserError, match="no such time"):
        parse_moment(words, 1.7e9)


def test_numbers_of_files_are_finite() -> None:
    assert as_number("12.5 GT/s") == 12.5
    assert as_number("9" * 400) is None
    assert [as_moment(value) for value in (1.5, -1, float("nan"), 10**400, True, "1")] == [
        1.5,
        None,
        None,
        None,
        None,
        None,
    ]


@pytest.mark.parametrize("number", ["9" * 400, "9" * 5000, "\u00b2", "\u0663", "max", "-1", ""])
@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("root/proc/stat", "cpu  N N N N N N N N N N\n"), ("root/proc/modules", "nvidia N N - Live 0x0\n"), ("root/proc/meminfo", "MemTotal: N kB\n"),
        ("root/sys/bus/pci/devices/0000:9a:00.0/aer_dev_correctable", "RxErr N\nTOTAL_ERR_COR N\n"), ("root/proc/pressure/memory", "some avg10=N total=N\n"),
        ("root/sys/bus/pci/devices/0000:9a:00.0/current_link_width", "N\n"), ("root/sys/bus/pci/devices/0000:9a:00.0/numa_node", "N\n"),
        ("root/sys/fs/cgroup/memory.limit_in_bytes", "N\n"), ("root/proc/loadavg", "N N N N/N N\n"), ("root/proc/41/stat", "N (x) S N N N N N N\n"),
        ("root/sys/class/hwmon/hwmon0/temp1_input", "N\n"), ("root/proc/vmstat", "oom_kill N\n"), ("root/proc/sys/kernel/tainted", "N\n"),
        ("root/proc/devices", "N nvidia\n"), ("root/proc/mounts", "/dev/sda1 / ext4 rw N N\n"), ("root/sys/block/md0/md/degraded", "N\n"),
    ],
    ids=lambda value: value.rpartition("/")[2] if value.startswith("root") else "",
)  # fmt: skip
def test_a_number_that_no_kernel_prints_costs_only_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, text: str, number: str
) -> None:
    monkeypatch.setenv("GPUCLINIC_DEBUG", "1")  # nothing may stumble here
    _all_asked(
        open_snapshot(_server(tmp_path, **{"root/proc/41/cgroup": "1:memory:/\n", file: text.replace("N", number)}))
    )
