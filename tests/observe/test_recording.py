"""What is asked on the record is answered the same from the record: refusals, hangs, second samples and the clock included."""

from __future__ import annotations

import errno
import io
import os
import tarfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gpuclinic.clinic.checking import CheckOptions, check
from gpuclinic.model import CouldNotError, UserError
from gpuclinic.observe.asking import Answer
from gpuclinic.observe.live import LiveHost
from gpuclinic.observe.recording import OVER, RecordingHost, answer_lines, written
from gpuclinic.observe.replay import NOT_ASKED, Replay
from gpuclinic.observe.snapshot import Snapshot, open_snapshot
from gpuclinic.observe.unpacking import unpacked

if TYPE_CHECKING:
    from gpuclinic.observe.asking import Asked


def _written(host: RecordingHost, folder: Path, **options: Any) -> Replay:
    """The recording as a folder, opened."""
    files = written(host, lambda _, data: data, lambda text: text, **options)
    for name, data in {**files.files, "answers.jsonl": answer_lines(files.lines, "1")}.items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
    replay = open_snapshot(folder)
    assert isinstance(replay, Replay)
    return replay


def _server(folder: Path) -> Path:
    """A root tree with a file that changes, one that is long, a link, and one that may not be read."""
    for name, text in {
        "proc/stat": "cpu 1 2 3\n", "proc/uptime": "5 5\n", "etc/odd\\name %": "odd\n", "var/log/long": "x" * 5000 + "end\n",
        "sys/class/net/eth0/mtu": "1500\n", "sys/class/net/eth1/mtu": "9000\n", "proc/empty": "",
    }.items():  # fmt: skip
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "sys/class/net/eth0/device").symlink_to("../../../devices/pci0000:00")
    return folder


def _ask_all(host: Asked, between: Any = lambda: None) -> list[object]:
    """Every kind of question, some twice; `between` changes the server."""
    out: list[object] = [host.clock()]
    for turn in range(2):
        if turn:
            between()
        out += [
            host.file("/proc/stat"), host.file("/proc/uptime", 3), host.file("/var/log/long", 100), host.file("/var/log/long", 100, end=True),
            host.file("/var/log/long"), host.file("/proc/absent"), host.file("/proc"), host.file("/proc/empty"), host.file("/etc/odd\\name %"),
            host.files("/sys/class/net/*/mtu"), host.files("/nothing/*"), host.listing("/proc"), host.listing("/proc/stat"),
            host.link("/sys/class/net/eth0/device"), host.links("/sys/class/net/*/device"), host.stat("/proc/stat"), host.stat("/nowhere"),
            host.space("/"), host.command("echo", "one"), host.command("sh", "-c", "echo half; exit 3"),
            host.command("no-such-program-at-all"), host.command("sleep", "5", deadline=0.1), host.nvml(deep=False, sample=turn), host.clock(),
        ]  # fmt: skip
        host.wait(0.01)
    return out


def test_a_replay_answers_all_questions_as_the_server_did(tmp_path: Path) -> None:
    root = _server(tmp_path / "server")
    nvml = LiveHost(str(root), lambda deep, sample: {"gpuclinic_nvml": 1, "sample": sample, "deep": deep})
    recorder = RecordingHost(nvml)
    try:
        live = _ask_all(recorder, lambda: (root / "proc/stat").write_text("cpu 4 5 6\n"))
    finally:
        recorder.close()
    replay = _written(recorder, tmp_path / "capture")
    assert _ask_all(replay) == live
    both = {answer.text for answer in live if isinstance(answer, Answer) and answer.question == "file /proc/stat"}
    assert both == {"cpu 1 2 3\n", "cpu 4 5 6\n"}


def test_answers_lie_where_people_look_for_them(tmp_path: Path) -> None:
    root = _server(tmp_path / "server")
    recorder = RecordingHost(LiveHost(str(root), lambda deep, sample: {"gpuclinic_nvml": 1, "sample": sample}))
    try:
        _ask_all(recorder, lambda: (root / "proc/stat").write_text("cpu 4 5 6\n"))
    finally:
        recorder.close()
    _written(recorder, tmp_path / "capture")
    made = tmp_path / "capture"
    assert (made / "root/proc/stat").read_text() == "cpu 1 2 3\n"
    assert (made / "samples/1/root/proc/stat").read_text() == "cpu 4 5 6\n"
    assert (made / "root/var/log/long").stat().st_size == 5004
    assert (made / "commands/echo-one.txt").read_text() == "one\n"
    assert (made / "nvml.json").is_file()
    assert (made / "nvml-1.json").is_file()


def test_what_nobody_asked_is_not_called_absent(tmp_path: Path) -> None:
    root = _server(tmp_path / "server")
    recorder = RecordingHost(LiveHost(str(root)))
    try:
        recorder.files("/sys/class/net/*/mtu")
    finally:
        recorder.close()
    replay = _written(recorder, tmp_path / "capture")
    assert replay.file("/etc/passwd").why == NOT_ASKED
    assert replay.file("/etc/passwd").code is None
    assert replay.command("lspci").why == NOT_ASKED
    assert replay.listing("/proc").why == NOT_ASKED
    assert replay.files("/proc/*/stat")["/proc/*/stat"].why == NOT_ASKED
    # what other answers tell is told
    assert replay.file("/sys/class/net/eth0/mtu").line == "1500"
    assert replay.file("/sys/class/net/eth7/mtu").code == errno.ENOENT
    assert list(replay.files("/sys/class/net/eth1/mtu", 10)) == ["/sys/class/net/eth1/mtu"]


def test_a_second_question_of_the_person_begins_at_its_mark(tmp_path: Path) -> None:
    root = _server(tmp_path / "server")
    recorder = RecordingHost(LiveHost(str(root)))
    try:
        recorder.clock()
        recorder.file("/proc/stat")
        (root / "proc/stat").write_text("cpu 4 5 6\n")
        recorder.mark("why")
        later = recorder.clock()
        recorder.file("/proc/stat")
    finally:
        recorder.close()
    replay = _written(recorder, tmp_path / "capture")
    assert replay.seek("why")
    assert not replay.seek("audit")
    assert replay.clock() == pytest.approx(later, abs=1e-3)
    assert replay.file("/proc/stat").text == "cpu 4 5 6\n"


def test_caps_are_told(tmp_path: Path) -> None:
    root = _server(tmp_path / "server")
    recorder = RecordingHost(LiveHost(str(root)), most=5000)
    try:
        recorder.file("/proc/stat")
        assert len(recorder.file("/var/log/long").data) == 5004
    finally:
        recorder.close()
    replay = _written(recorder, tmp_path / "a")
    assert "left out of the capture" in (replay.file("/var/log/long").why or "")
    assert replay.file("/proc/stat").ok
    recorder = RecordingHost(LiveHost(str(root)))
    try:
        recorder.file("/var/log/long", 6000, end=True)
    finally:
        recorder.close()
    files = written(recorder, lambda _, data: data, lambda text: text, most=100)
    assert files.files["root/var/log/long"].endswith(b"end\n")
    assert files.left_out[0]["what"] == "root/var/log/long"


def test_nothing_is_asked_once_the_time_is_over(tmp_path: Path) -> None:
    host = RecordingHost(LiveHost(str(_server(tmp_path))), longest_s=-1.0)
    try:
        assert host.file("/proc/stat").why == OVER
        assert host.files("/proc/*")["/proc/*"].why == OVER
        assert host.links("/proc/*") == {}
        assert host.command("echo", "1").why == OVER
        assert host.nvml().why == OVER
        host.wait(3600)
    finally:
        host.close()


HAND_MADE = {
    "node7/root/proc/version": b"Linux version 6.1.0 (x@y) #1\n",
    "node7/root/sys/devices/pci0000:00/0000:01:00.0/vendor": b"0x10de\n",
    "node7/commands/dmesg.txt": b"[    1.0] Linux version 6.1.0\n",
}
LINKS = {"node7/root/sys/bus/pci/devices/0000:01:00.0": "../../../devices/pci0000:00/0000:01:00.0"}


def _tar(path: Path, files: dict[str, bytes], links: dict[str, str] = LINKS) -> Path:
    ending = path.name.rpartition(".")[2]
    with tarfile.open(path, f"w:{'' if ending == 'tar' else ending}") as archive:  # type: ignore[call-overload]
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
        for name, target in links.items():
            member = tarfile.TarInfo(name)
            member.type, member.linkname = tarfile.SYMTYPE, target
            archive.addfile(member)
    return path


@pytest.mark.parametrize("name", ["a.tar", "a.tar.gz", "a.tar.xz", "a.tar.bz2"])
def test_a_snapshot_made_by_hand_is_read_from_its_archive(tmp_path: Path, name: str) -> None:
    host = open_snapshot(_tar(tmp_path / name, HAND_MADE))
    assert isinstance(host, Snapshot)
    assert host.file("/proc/version").line.startswith("Linux version")
    assert host.files("/sys/bus/pci/devices/*/vendor")["/sys/bus/pci/devices/0000:01:00.0/vendor"].line == "0x10de"
    assert host.command("dmesg", "--time-format=iso").ok
    folder = host._folder
    assert folder.is_dir()
    host.close()
    assert not folder.exists()


def test_zip_and_zst_too(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for name, data in HAND_MADE.items():
            archive.writestr(name, data)
    host = open_snapshot(tmp_path / "a.zip")
    assert host.file("/proc/version").ok
    host.close()
    zstandard = pytest.importorskip("zstandard")
    plain = _tar(tmp_path / "a.tar", HAND_MADE).read_bytes()
    (tmp_path / "a.tar.zst").write_bytes(zstandard.ZstdCompressor().compress(plain))
    host = open_snapshot(tmp_path / "a.tar.zst")
    assert host.file("/proc/version").ok
    host.close()


def test_nothing_leads_out_of_an_archive(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("outside")
    links = {
        "root/etc/absolute": str(secret), "root/etc/climbing": "../../../../../../../../" + str(secret), "root/under": "/etc",
        "nvml.json": str(secret), "commands/x.txt": str(secret),
    }  # fmt: skip
    files = {"root/proc/version": b"Linux\n", "../escape": b"x", "/absolute": b"x", "root/under/planted": b"x"}
    host = open_snapshot(_tar(tmp_path / "a.tar", files, links))
    assert isinstance(host, Snapshot)
    assert not host.file("/etc/absolute").ok
    assert not host.file("/etc/climbing").ok
    assert not host.nvml().ok
    assert not host.command("x").ok
    assert not (tmp_path / "escape").exists()
    assert host.file("/under/planted").text == "x"  # the file came, the link over it did not
    host.close()


def test_devices_and_hard_links_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as archive:
        for name, kind in (
            ("root/dev/null", tarfile.CHRTYPE),
            ("root/fifo", tarfile.FIFOTYPE),
            ("root/hard", tarfile.LNKTYPE),
        ):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, "/etc/passwd"
            archive.addfile(member)
    folder, refused, _ = unpacked(path)
    assert len(refused) == 3
    assert list(Path(folder.name).iterdir()) == []
    folder.cleanup()


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "no archive of a snapshot"),
        (b"hello world, no archive", "no archive of a snapshot"),
        (b"\x1f\x8b\x08\x00broken", "no archive|cannot be unpacked|damaged"),
        (b"PK\x03\x04broken", "damaged"),
    ],
)
def test_what_is_no_archive_is_refused_in_a_line(tmp_path: Path, data: bytes, told: str) -> None:
    (tmp_path / "a.tar.gz").write_bytes(data)
    with pytest.raises(UserError, match=told):
        open_snapshot(tmp_path / "a.tar.gz")


def test_of_a_cut_archive_that_is_taken_which_came_before(tmp_path: Path) -> None:
    whole = _tar(tmp_path / "a.tar.gz", {"root/a": b"whole", "root/x": os.urandom(200_000)}).read_bytes()
    (tmp_path / "cut.tar.gz").write_bytes(whole[: len(whole) // 2])
    host = open_snapshot(tmp_path / "cut.tar.gz")
    assert host.file("/a").data == b"whole"
    assert (host.damage or "").count("cut short") == 1
    answer = check(host, CheckOptions())
    host.close()
    assert answer.verdict == "unknown"
    assert any("cut short" in gap.why and gap.required for gap in answer.not_looked_at)


@pytest.mark.parametrize("kept", [20, 60])
def test_a_cut_archive_of_which_nothing_came_is_no_wrong_command(tmp_path: Path, kept: int) -> None:
    whole = _tar(tmp_path / "a.tar.gz", {"root/x": os.urandom(200_000)}).read_bytes()
    (tmp_path / "cut.tar.gz").write_bytes(whole[:kept])
    with pytest.raises(CouldNotError, match="cut short"):
        open_snapshot(tmp_path / "cut.tar.gz")


def test_a_bomb_and_a_crowd_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuclinic.observe.unpacking.MOST_UNPACKED", 1 << 16)
    with pytest.raises(UserError, match="refused as a snapshot"):
        open_snapshot(_tar(tmp_path / "b.tar.gz", {"root/x": b"0" * (1 << 20)}))
    monkeypatch.setattr("gpuclinic.observe.unpacking.MOST_FILES", 3)
    with pytest.raises(UserError, match="more than 3 files"):
        open_snapshot(_tar(tmp_path / "c.tar", {f"root/{n}": b"1" for n in range(5)}))


def test_an_archive_without_a_snapshot_says_so(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no snapshot"):
        open_snapshot(_tar(tmp_path / "a.tar", {"readme.txt": b"hello"}, {}))
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="no snapshot"):
        open_snapshot(tmp_path / "empty")


@pytest.mark.parametrize("name", ["../../secret", "/etc/passwd", "link", "root/../../secret"])
def test_an_index_cannot_point_out_of_its_capture(tmp_path: Path, name: str) -> None:
    (tmp_path / "secret").write_text("outside")
    folder = tmp_path / "capture"
    folder.mkdir()
    (folder / "link").symlink_to(tmp_path / "secret")
    line = {"ask": "file", "path": "/etc/x", "most": 1 << 20, "in": name}
    (folder / "answers.jsonl").write_bytes(answer_lines([line], "1"))
    answer = open_snapshot(folder).file("/etc/x")
    assert not answer.ok
    assert answer.data == b""


def test_a_damaged_index_is_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "answers.jsonl").write_text(
        '{"ask": "file"}\n{"ask": "files", "of": 3}\n{"ask": "nvml", "sample": 1e99}\n[1]\n{"ask": 4}\n'
    )
    replay = open_snapshot(tmp_path)
    assert replay.file("/x").why == NOT_ASKED
    (tmp_path / "answers.jsonl").write_text('{"ask": "file", "pa')
    with pytest.raises(UserError, match="line 1 is no JSON"):
        open_snapshot(tmp_path)


def test_a_snapshot_made_by_hand_shows_all_its_texts(tmp_path: Path) -> None:
    for name in (
        "commands/nvidia-smi.txt",
        "commands/lspci.txt",
        "root/var/log/kern.log",
        "root/var/log/apt/history.log",
        "root/etc/passwd",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    host = open_snapshot(tmp_path)
    assert isinstance(host, Snapshot)
    assert host.command("lspci").ok
    assert [name for name, _ in host.texts()] == [
        "commands/nvidia-smi.txt",
        "root/var/log/kern.log",
        "root/var/log/apt/history.log",
    ]
