from __future__ import annotations

import gzip
import io
import json
import pickle
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gpuclinic.clinic import large, reading
from gpuclinic.clinic.reading import Reader
from gpuclinic.knowledge import load
from gpuclinic.observe import Places

if TYPE_CHECKING:
    from gpuclinic.model import Signal

XID = "Mar  2 04:11:09 n1 kernel: NVRM: Xid (PCI:0000:9a:00): 79, pid=41822, GPU has fallen off the bus."
QUIET = "Mar  2 04:10:00 n1 systemd[1]: Started Session 77 of User ml."


def read(path: Path, stdin: bytes | None = None) -> Reader:
    reader = Reader(load())
    reader.read_host(Places(["-"], io.BytesIO(stdin)) if stdin is not None else Places([str(path)]))
    return reader


def xids(reader: Reader) -> list[Signal]:
    return [s for s in reader.signals if s.signature == "nvrm.xid"]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file counts as a large one."""
    monkeypatch.setattr(reading, "HELD_WHOLE", 1 << 14)
    monkeypatch.setattr(large, "_EDGE", 1 << 15)
    monkeypatch.setattr(large, "_REGION", 1 << 16)
    monkeypatch.setattr(large, "_WORTH_REBUILDING", 1 << 14)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("ending", ["\n", ""])
def test_regions_of_a_large_file(tmp_path: Path, ending: str) -> None:
    rows = [QUIET] * 9000
    wanted = [1, 500, 3000, 3001, 8999, 9000]
    for number in wanted:
        rows[number - 1] = XID
    (tmp_path / "syslog").write_text("\n".join(rows) + ending)
    reader = read(tmp_path)
    assert [s.where.line for s in xids(reader)] == wanted
    assert reader.counts["nvrm.xid"] == len(wanted)
    assert {s.host for s in xids(reader)} == {"n1"}
    assert reader.read[0].bytes == (tmp_path / "syslog").stat().st_size


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "gb18030", "utf-8-sig"])
def test_large_files_in_other_encodings(tmp_path: Path, encoding: str) -> None:
    rows = [QUIET + " 训练开始"] * 3000
    rows[1999] = XID
    (tmp_path / "log").write_bytes("\n".join(rows).encode(encoding))
    assert [s.where.line for s in xids(read(tmp_path))] == [2000]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("packed", [True, False])
def test_large_json_logs(tmp_path: Path, packed: bool) -> None:
    rows = [json.dumps({"log": f"{QUIET}\n", "stream": "stdout", "time": "2026-03-02T04:11:09Z"})] * 3000
    rows[1999] = json.dumps({"log": f"{XID}\n", "stream": "stdout", "time": "2026-03-02T04:11:09Z"})
    data = "\n".join(rows).encode()
    (tmp_path / "log").write_bytes(gzip.compress(data) if packed else data)
    (signal,) = xids(read(tmp_path))
    assert signal.where.line == 2000
    assert signal.time is not None
    assert signal.time.zoned


def test_standard_input_may_be_large() -> None:
    data = (f"{QUIET}\n" * 200_000 + XID).encode()
    (signal,) = xids(read(Path(), data))
    assert signal.where.line == 200_001


def test_a_cut_archive_still_speaks(tmp_path: Path) -> None:
    rows = "".join(f"{n} {QUIET}\n" for n in range(4000))
    data = gzip.compress((XID + "\n" + rows).encode())
    (tmp_path / "log.gz").write_bytes(data[: len(data) // 2])
    reader = read(tmp_path)
    assert len(xids(reader)) == 1
    assert reader.not_read[0].why.startswith("the rest of it: damaged or cut short")


def test_dmesg_h_has_times(tmp_path: Path) -> None:
    text = (
        "[Mar 2 04:11] usb 1-1: new device\n[  +1.500000] NVRM: Xid (PCI:0000:9a:00): 79, GPU has fallen off the bus.\n"
    )
    (tmp_path / "dmesg.txt").write_text(text)
    (signal,) = xids(read(tmp_path))
    assert signal.time is not None
    assert signal.time.yearless
    assert signal.time.seconds % 60 == 1.5


def test_boots_are_seen(tmp_path: Path) -> None:
    text = f"{XID}\n-- Boot 0123456789abcdef0123456789abcdef --\n{XID}\n"
    (tmp_path / "journal.txt").write_text(text)
    reader = read(tmp_path)
    assert [s.boot for s in xids(reader)] == [0, 1]
    assert [(b.boot, b.clean) for b in reader.boots] == [(1, False)]


def test_names_of_files_are_hosts_only_where_nothing_contradicts(tmp_path: Path) -> None:
    line = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
    for name in ("node1", "node2"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "train.log").write_text(line)
    assert {s.host for s in read(tmp_path).signals} == {"node1", "node2"}
    (tmp_path / "syslog").write_text(XID.replace(" n1 ", " gpu-b07 ") + "\n")
    assert {s.host for s in read(tmp_path).signals} == {None, "gpu-b07"}


def test_binary_files_are_named_not_read(tmp_path: Path) -> None:
    (tmp_path / "state.db").write_bytes(b"SQLite format 3\x00" + bytes(200))
    (tmp_path / "x.pkl").write_bytes(pickle.dumps({"a": 1}))
    (tmp_path / "nul").write_bytes(bytes(5000))
    reader = read(tmp_path)
    assert {n.path: n.why for n in reader.not_read} == {
        "nul": "not text",
        "state.db": "a database",
        "x.pkl": "a Python pickle",
    }
    assert not reader.read


def test_a_flight_recorder_s_dump_is_read(tmp_path: Path) -> None:
    dump = {"version": "2.5", "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}, "entries": []}
    (tmp_path / "nccl_trace_rank_0").write_bytes(pickle.dumps(dump))
    assert [item.kind for item in read(tmp_path).read] == ["NCCL flight recorder"]


def test_a_bug_report_s_sections_have_true_lines(tmp_path: Path) -> None:
    rule = "_" * 44
    text = (
        f"{rule}\n\nStart of NVIDIA bug report log file.  Please include\n\n{rule}\n\n*** /proc/driver/nvidia/version\n"
        "*** ls: -r--r--r-- 1 root root 0 2026-03-02 x\n"
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\n\n"
        f"{rule}\n\ndmesg\n\n{XID}\n"
    )
    with gzip.open(tmp_path / "nvidia-bug-report.log.gz", "wt") as file:
        file.write(text)
    reader = read(tmp_path)
    (signal,) = xids(reader)
    assert text.split("\n")[(signal.where.line or 0) - 1] == XID
    for fact in reader.facts:
        place = fact.where()
        if place.line is not None and place.text:
            assert place.text.strip() in text.split("\n")[place.line - 1]


@pytest.mark.usefixtures("small")
def test_the_last_progress_of_a_long_stream_is_kept(tmp_path: Path) -> None:
    rows = [f"step {n} loss 1.25" for n in range(60_000)]
    rows[30_000] = XID
    (tmp_path / "train.log.gz").write_bytes(gzip.compress("\n".join(rows).encode()))
    reader = read(tmp_path)
    assert [s.where.line for s in xids(reader)] == [30_001]
    steps = [s for s in reader.signals if s.signature == "run.step"]
    assert steps[-1].where.line == 60_000
    assert len(steps) < 200
