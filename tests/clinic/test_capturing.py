"""A capture gives elsewhere what the server gave, with its secrets and, where asked for, its names gone."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from typing import TYPE_CHECKING, Any

import pytest

from gpuclinic.clinic import examine
from gpuclinic.clinic.capturing import Captured, CaptureOptions, capture, write_capture
from gpuclinic.clinic.checking import CheckAnswer, CheckOptions, as_recorded, check
from gpuclinic.clinic.scrubbing import Scrubber, masked
from gpuclinic.observe import Places
from gpuclinic.observe.replay import Replay
from gpuclinic.observe.snapshot import open_snapshot
from gpuclinic.recognise.anonymising import Anonymiser
from gpuclinic.report.as_json import check_json, why_json

if TYPE_CHECKING:
    from pathlib import Path

    from gpuclinic.observe.asking import Asked

TOKEN = "hf_" + "A1b2C3d4" * 5
KERNEL = (
    "6,100,1000000,-;Linux version 6.1.0 (x@y) #1 SMP\n"
    "3,101,500000000,-;NVRM: Xid (PCI:0000:9a:00): 79, pid=41822, name=python, GPU has fallen off the bus.\n"
    f"6,102,500100000,-;login: token={TOKEN}\n"
)


def _snapshot(folder: Path) -> Path:
    """A sick server, made by hand."""
    for name, text in {
        "root/dev/kmsg": KERNEL, "root/proc/uptime": "600.0 1000.0\n", "root/proc/sys/kernel/hostname": "dgx-h100-03\n",
        "root/proc/sys/kernel/random/boot_id": "7c1f3f6e-0a52-4d4e-9a0f-3c1b2a4d5e6f\n", "root/etc/hosts": "10.1.2.3 dgx-h100-03\n",
        "root/sys/bus/pci/devices/0000:9a:00.0/vendor": "0x10de\n", "root/sys/bus/pci/devices/0000:9a:00.0/class": "0x030200\n",
        "root/sys/bus/pci/devices/0000:9a:00.0/device": "0x2330\n",
        "root/var/log/syslog": f"Mar  2 04:11:09 dgx-h100-03 sshd[1]: Accepted publickey for alice from 10.1.2.9 port 1\nMar  2 04:11:10 dgx-h100-03 app: password={TOKEN}\n",
        "snapshot.json": '{"time": "2026-03-02T04:12:00+00:00"}',
    }.items():  # fmt: skip
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def _captured(host: Asked, path: Path, **options: Any) -> Captured:
    wanted = CaptureOptions(check=options.pop("check", CheckOptions()), **options)
    made = capture(host, wanted)
    with path.open("wb") as out:
        write_capture(made, out, ".tar.gz", wanted.most)
    return made


def _checked(path: Path, options: CheckOptions | None = None) -> CheckAnswer:
    host = open_snapshot(path)
    try:
        return check(host, as_recorded(host, options or CheckOptions()))
    finally:
        host.close()


def _json(answer: CheckAnswer) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(check_json(answer))
    return {name: value for name, value in found.items() if name not in ("time", "seconds")}


def _members(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as archive:
        return {m.name.partition("/")[2]: (archive.extractfile(m) or io.BytesIO()).read() for m in archive}


def test_check_on_the_archive_gives_what_it_gave_there(tmp_path: Path) -> None:
    made = _captured(open_snapshot(_snapshot(tmp_path / "s")), tmp_path / "a.tar.gz")
    assert made.answer.verdict == "critical"
    again = _checked(tmp_path / "a.tar.gz")
    assert _json(again) == _json(made.answer)
    assert again.seconds == pytest.approx(made.answer.seconds, abs=1e-3)


def test_why_on_the_archive_gives_what_it_gave_there(tmp_path: Path) -> None:
    folder = _snapshot(tmp_path / "s")
    live = examine(Places([str(folder)]))
    _captured(open_snapshot(folder), tmp_path / "a.tar.gz")
    again = examine(Places([str(tmp_path / "a.tar.gz")]))
    assert again.causes[0].id == live.causes[0].id == "hw.gpu.fallen_off_bus"
    assert (again.causes[0].gpu, again.causes[0].pid, again.fingerprint) == (
        live.causes[0].gpu,
        live.causes[0].pid,
        live.fingerprint,
    )
    assert {item.path.rsplit("/", 1)[1] for item in again.not_read} >= {"answers.jsonl", "snapshot.json"}


def test_secrets_never_leave(tmp_path: Path) -> None:
    _captured(open_snapshot(_snapshot(tmp_path / "s")), tmp_path / "a.tar.gz")
    for name, data in _members(tmp_path / "a.tar.gz").items():
        assert TOKEN.encode() not in data, name


def test_names_are_replaced_and_the_answers_stay(tmp_path: Path) -> None:
    folder = _snapshot(tmp_path / "s")
    anonymiser = Anonymiser(b"of a test")
    made = _captured(open_snapshot(folder), tmp_path / "a.tar.gz", anonymiser=anonymiser)
    for name, data in _members(tmp_path / "a.tar.gz").items():
        for secret in ("dgx-h100-03", "alice", "10.1.2.3", "10.1.2.9", "7c1f3f6e-0a52"):
            assert secret not in data.decode(), (name, secret)
    assert "dgx" not in made.folder
    again = _checked(tmp_path / "a.tar.gz")
    assert _json(again) == json.loads(anonymiser.text(json.dumps(_json(made.answer))))
    live = json.loads(anonymiser.text(why_json(examine(Places([str(folder)])))))
    there = json.loads(why_json(examine(Places([str(tmp_path / "a.tar.gz")]))))
    for one, other in zip(live["causes"], there["causes"], strict=True):
        for cause in (one, other):
            for place in cause["evidence"]:
                place["source"] = place["source"].rsplit("/", 1)[-1]
    assert there["causes"] == live["causes"]


def test_a_capture_is_captured_again(tmp_path: Path) -> None:
    """As its owner does to anonymise it later."""
    _captured(open_snapshot(_snapshot(tmp_path / "s")), tmp_path / "a.tar.gz")
    host = open_snapshot(tmp_path / "a.tar.gz")
    made = _captured(host, tmp_path / "b.tar.gz", anonymiser=Anonymiser(b"k"))
    host.close()
    assert _json(_checked(tmp_path / "b.tar.gz"))["findings"] == _json(made.answer)["findings"]
    assert b"dgx-h100-03" not in b"".join(_members(tmp_path / "b.tar.gz").values())


def test_the_archive_is_no_larger_than_asked_for_and_says_what_is_missing(tmp_path: Path) -> None:
    import random

    folder = _snapshot(tmp_path / "s")
    noise = random.Random(3)
    log = "".join(f"Mar  2 04:11:09 h app: {noise.randbytes(40).hex()}\n" for _ in range(40_000))
    (folder / "root/var/log/syslog").write_text(log)
    made = capture(open_snapshot(folder), CaptureOptions(check=CheckOptions()))
    out = io.BytesIO()
    left_out = write_capture(made, out, ".tar.gz", 1 << 20)
    assert len(out.getvalue()) <= 1 << 20
    assert [one["what"] for one in left_out] == ["root/var/log/syslog"]
    (tmp_path / "a.tar.gz").write_bytes(out.getvalue())
    replay = open_snapshot(tmp_path / "a.tar.gz")
    assert isinstance(replay, Replay)
    assert "left out" in (dict(replay.texts())["root/var/log/syslog"].why or "")
    assert json.loads(_members(tmp_path / "a.tar.gz")["snapshot.json"])["left_out"] == left_out
    replay.close()


def test_what_the_capture_was_asked_for_is_asked_again(tmp_path: Path) -> None:
    _captured(
        open_snapshot(_snapshot(tmp_path / "s")),
        tmp_path / "a.tar.gz",
        check=CheckOptions(deep=True, seconds=2.0, expect_gpus=8),
    )
    host = open_snapshot(tmp_path / "a.tar.gz")
    found = as_recorded(host, CheckOptions())
    assert (found.deep, found.seconds, found.expect_gpus) == (True, 2.0, 8)
    assert as_recorded(host, CheckOptions(expect_gpus=4)).expect_gpus == 4
    host.close()


@pytest.mark.parametrize(
    "asked", ['{"seconds": "x"}', '{"seconds": -4, "expect_gpus": "8"}', "[]", "3", '{"seconds": 1e300}']
)
def test_a_hostile_label_changes_nothing(tmp_path: Path, asked: str) -> None:
    folder = _snapshot(tmp_path / "s")
    (folder / "snapshot.json").write_text(f'{{"asked": {asked}}}')
    found = as_recorded(open_snapshot(folder), CheckOptions())
    assert found == CheckOptions()


ENVIRON = f"CUDA_VISIBLE_DEVICES=0,1\0AWS_SECRET_ACCESS_KEY=abcd\0HOME=/home/alice\0NCCL_DEBUG=INFO\0VLLM_API_KEY=k\0WANDB={TOKEN}\0"


def test_of_an_environment_only_what_is_listed_stays() -> None:
    scrubber = Scrubber()
    made = scrubber.data("root/proc/77/environ", ENVIRON.encode())
    assert made == b"CUDA_VISIBLE_DEVICES=0,1\0NCCL_DEBUG=INFO\0VLLM_API_KEY=***\0"
    assert scrubber.variables == 3


def test_environments_in_outputs_too() -> None:
    text = json.dumps({"Config": {"Env": ["NCCL_DEBUG=INFO", 'MY_THING=words "quoted"', "PATH=/bin"]}})
    made = json.loads(Scrubber().data("commands/docker-inspect.txt", text.encode()))
    assert made["Config"]["Env"] == ["NCCL_DEBUG=INFO", "MY_THING=***", "PATH=/bin"]


def test_arguments_and_packed_logs_are_searched() -> None:
    scrubber = Scrubber()
    assert (
        scrubber.data("root/proc/7/cmdline", b"python\0--api-key\0verysecret1\0--lr\x003e-4\0")
        == b"python\0--api-key\0***\0--lr\x003e-4\0"
    )
    packed = gzip.compress(f"password={TOKEN}\n".encode())
    assert gzip.decompress(scrubber.data("root/var/log/syslog.2.gz", packed)) == b"password=***\n"
    assert scrubber.data("root/var/log/broken.gz", b"\x1f\x8b\x08\x00") == b""
    assert scrubber.unreadable


def test_what_has_no_secrets_is_not_touched() -> None:
    data = bytes(range(256)) * 300
    assert Scrubber().data("root/x", data) == data
    text = "a plain line\n" * 20_000
    assert masked(text) is text
    assert masked(text + f"token={TOKEN}\n").endswith("token=***\n")


def test_the_archive_holds_no_way_out(tmp_path: Path) -> None:
    """Files of odd names come back under harmless ones."""
    folder = _snapshot(tmp_path / "s")

    def gather(host: Asked) -> None:
        host.file("/../../etc/passwd")
        host.file("/a\nb")
        host.file("/" + "x" * 300)
        (folder / "root" / "odd\\na\tme").write_text("odd")
        assert host.file("/odd\\na\tme").ok

    made = capture(open_snapshot(folder), CaptureOptions(check=CheckOptions()), more=gather)
    out = io.BytesIO()
    write_capture(made, out, ".tar", 1 << 24)
    out.seek(0)
    with tarfile.open(fileobj=out) as archive:
        names = archive.getnames()
    assert all(
        ".." not in name and "\n" not in name and "\\" not in name and not name.startswith("/") for name in names
    )
    (tmp_path / "a.tar").write_bytes(out.getvalue())
    host = open_snapshot(tmp_path / "a.tar")
    assert host.file("/odd\\na\tme").text == "odd"
    host.close()
