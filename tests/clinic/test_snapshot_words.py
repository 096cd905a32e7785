"""What is said of a snapshot made by hand, and to root, is true there: no advice to become root, no owner that unpacking made, no "waits in -"."""

from __future__ import annotations

import errno
import io
import tarfile
from typing import TYPE_CHECKING

import pytest
from asked_fake import FakeAsked

from gpuclinic.clinic.checking import CheckOptions, check
from gpuclinic.clinic.gathering import Question, gather
from gpuclinic.observe.snapshot import Snapshot, open_snapshot
from gpuclinic.recognise.process_table import user_names

if TYPE_CHECKING:
    from pathlib import Path

XID = "[Mon Nov 30 10:00:03 2026] NVRM: Xid (PCI:0000:02:00): 79, GPU has fallen off the bus.\n"
STAT = "41822 (python) S 1 41822 41822 0 -1 4194304 9 0 0 0 80 20 0 0 20 0 4 0 5000 0 0 " + "0 " * 26


def _snapshot(folder: Path, **texts: str) -> Snapshot:
    (folder / "commands").mkdir()
    for name, text in texts.items():
        (folder / "commands" / f"{name.replace('_', '-')}.txt").write_text(text)
    return Snapshot(folder)


@pytest.mark.parametrize("name", ["dmesg", "dmesg_T", "dmesg_ctime", "kernel_messages", "journalctl_k_today"])
def test_a_kernel_log_under_any_name_was_looked_at(tmp_path: Path, name: str) -> None:
    answer = check(_snapshot(tmp_path, **{name: XID}), CheckOptions())
    assert any(finding.id == "log.gpu.fallen_off_bus" for finding in answer.findings)
    assert not any(gap.check == "kernel.log" for gap in answer.not_looked_at)


def test_what_is_not_in_a_snapshot_is_not_to_be_had_as_root(tmp_path: Path) -> None:
    answer = check(_snapshot(tmp_path, uname="Linux\n"), CheckOptions())
    told = {gap.check: gap.why for gap in answer.not_looked_at}
    assert told["kernel.log"] == told["pci.bus"] == told["process.gpu"] == "not in the snapshot"
    assert not any("root" in why or "No such file" in why for why in told.values())


def test_an_earlier_boot_is_no_kernel_log_of_now(tmp_path: Path) -> None:
    assert not _snapshot(tmp_path, dmesg_previous="x\n").command("dmesg").ok


def test_owner_and_rights_of_what_was_unpacked_are_not_those_of_the_machine(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for name, data in {
            "s/root/opt/venv/pyvenv.cfg": b"home = /usr\n",
            "s/stat.json": b'{"/opt/other": {"uid": 7}}',
        }.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    host = open_snapshot(tmp_path / "a.tar")
    assert set(host.stat("/opt/venv/pyvenv.cfg").json()) == {"kind", "size"}
    assert host.stat("/opt/other").json() == {"uid": 7}
    host.close()


def test_nobody_is_called_by_a_bare_number() -> None:
    assert user_names("")[0] == "root"
    assert user_names("toor:x:0:0::/:/bin/sh\n")[0] == "toor"


@pytest.mark.parametrize(("uid", "wanted"), [(None, "refused_to_root"), (1001, "other_user")])
def test_root_is_not_told_to_become_root(uid: int | None, wanted: str) -> None:
    files = {"/proc/41822/stat": STAT, "/proc/41822/stack": errno.EPERM, "/proc/41822/syscall": errno.EPERM}
    gathered = gather(FakeAsked(files), Question(pid=41822, uid=uid))
    assert wanted in gathered.wanted
    assert len({"refused_to_root", "other_user"} & set(gathered.wanted)) == 1


@pytest.mark.parametrize(("wchan", "sentence"), [(None, "running"), ("futex_wait_queue", "running_waits")])
def test_where_a_process_waits_is_said_only_where_it_is_known(wchan: str | None, sentence: str) -> None:
    files = {"/proc/41822/stat": STAT, **({"/proc/41822/wchan": wchan} if wchan else {})}
    words = dict(gather(FakeAsked(files), Question(pid=41822)).words)
    assert sentence in words
    assert words[sentence].get("wait") == wchan
