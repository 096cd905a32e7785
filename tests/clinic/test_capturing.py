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


def test_an_environment_with_brackets_and_as_pairs() -> None:
    """A value with brackets ended the list for an older search, and everything in it was shown."""
    text = json.dumps(
        {
            "Config": {"Env": ["A=[x]", 'MINE={"k": ["word"]}', "NCCL_DEBUG=INFO"]},
            "envs": [{"key": "MINE", "value": "word"}],
        }
    )
    made = json.loads(Scrubber().data("root/var/lib/docker/containers/x/config.v2.json", text.encode()))
    assert made["Config"]["Env"] == ["A=***", "MINE=***", "NCCL_DEBUG=INFO"]
    assert made["envs"] == [{"key": "MINE", "value": "***"}]


def test_environment_of_units() -> None:
    text = (
        b'[Service]\nEnvironment="MINE=two words" NCCL_DEBUG=INFO OTHER=word\nDefaultEnvironment=MINE=word PATH=/bin\n'
    )
    made = Scrubber().data("root/etc/systemd/system/x.service", text)
    assert (
        made == b'[Service]\nEnvironment="MINE=***" NCCL_DEBUG=INFO OTHER=***\nDefaultEnvironment=MINE=*** PATH=/bin\n'
    )


PLANTED = {
    "root/etc/slurm/slurm.conf": "ClusterName=x\nAccountingStoragePass=S3KR3Tx\nStoragePass=a,S3KR3Tx\n",
    "root/proc/cmdline": "BOOT_IMAGE=/vmlinuz ro rd.luks.key=S3KR3Tx1 grubpw=S3KR3Tx rd.iscsi.password=S3KR3Tx\n",
    "root/boot/loader/entries/a.conf": "title x\noptions root=/dev/sda ro grubpw=S3KR3Tx\n",
    "root/etc/default/grub": 'GRUB_CMDLINE_LINUX="quiet inst.sshpw=S3KR3Tx"\n',
    "root/etc/apt/apt.conf.d/90proxy": 'Acquire::http::Proxy "http://u:a@S3KR3Tx@proxy:3128";\n',
    "root/etc/docker/daemon.json": '{"registry-mirrors": ["https://u:S3KR3Tx@m"], "http-proxy": "http://a:S3KR3Tx@p:1"}',
    "root/etc/containerd/config.toml": '[plugins."x".registry.configs."y".auth]\n  username = "u"\n  password = "S3KR3Tx"\n  auth = "QWxhZGRpS3KR3Tx=="\n',
    "root/etc/fstab": "//n/s /m cifs username=b,password=S3KR3Tx,uid=0 0 0\n10.0.0.1:/ /c ceph name=admin,secret=S3KR3Tx== 0 0\n",
    "root/var/log/audit/audit.log": 'type=EXECVE msg=audit(1.2:3): argc=2 a0="mysql" a1="-pS3KR3Tx"\ntype=PROCTITLE msg=audit(1.2:3): proctitle=6D7973716C002D7053334B52335478\n',
    "root/var/log/syslog": "Mar  2 04:11:09 h sudo: a : TTY=pts/0 ; COMMAND=/usr/bin/curl -u b:S3KR3Tx -U c:S3KR3Tx https://h\n",
    "root/var/log/apt/history.log": "Commandline: apt-get install -o Acquire::http::Proxy=http://u:S3KR3Tx@p x\n",
    "root/proc/77/cmdline": "python\0x.py\0--password\0Abc&S3KR3Tx\0--dsn\0mysql://u:p@S3KR3Tx@h/x\0-pS3KR3Txy\0--auth\0a1b2c3S3KR3Tx\0",
    "root/proc/77/environ": "SLURM_JWT=S3KR3Tx\0RAY_REDIS_PASSWORD=S3KR3Tx\0MINE=S3KR3Tx\0",
    "commands/coredumpctl.txt": "  Command Line: mysqldump -u root -pS3KR3Tx db\n",
}


@pytest.mark.parametrize("anonymiser", [None, Anonymiser(b"k")])
def test_no_kind_of_place_keeps_a_secret(anonymiser: Anonymiser | None) -> None:
    for name, text in PLANTED.items():
        made = Scrubber(anonymiser).data(name, text.encode())
        assert b"S3KR3Tx" not in made, name
        assert b"53334B52335478" not in made, name
        assert Scrubber().data(name, gzip.compress(text.encode()))[:2] == b"\x1f\x8b" or "/proc/" in name


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
