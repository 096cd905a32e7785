from __future__ import annotations

import gzip
import io
import lzma
import os
import socket
import tarfile
import zipfile
from pathlib import Path

import pytest

from gpuclinic.model import NotRead
from gpuclinic.observe import Item, Places, archives
from gpuclinic.observe.places import natural


def read(path: Path | str) -> tuple[dict[str, bytes], dict[str, str]]:
    """What a host gives: contents and reasons by path."""
    contents: dict[str, bytes] = {}
    reasons: dict[str, str] = {}
    for item in Places([str(path)]).items():
        if isinstance(item, NotRead):
            reasons[item.path] = item.why
            continue
        pieces = []
        with item.open() as stream:
            while piece := stream.read(1 << 16):
                pieces.append(piece)
            if problem := archives.problem_of(stream):
                reasons[item.path] = problem
        contents[item.path] = b"".join(pieces)
    return contents, reasons


def tar_of(files: dict[str, bytes], mode: str = "w:gz") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as archive:  # type: ignore[call-overload]
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return out.getvalue()


def test_a_folder_in_natural_order(tmp_path: Path) -> None:
    for name in ("rank10.log", "rank2.log", "rank1.log"):
        (tmp_path / name).write_text("x\n")
    items = [item.path for item in Places([str(tmp_path)]).items() if isinstance(item, Item)]
    assert items == ["rank1.log", "rank2.log", "rank10.log"]
    assert natural("a10b2") == ["a", 10, "b", 2, ""]


def test_only_regular_files_are_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "to_fifo").symlink_to("fifo")
    (tmp_path / "nowhere").symlink_to("missing")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "out").symlink_to("/etc/hostname")
    (tmp_path / "device").symlink_to("/dev/null")
    (tmp_path / "empty").touch()
    (tmp_path / "core.1").write_bytes(b"\x7fELF" + b"\x02\x01\x01" + bytes(9) + b"\x04" + bytes(100))
    folder = os.open(tmp_path, os.O_RDONLY)
    server = socket.socket(socket.AF_UNIX)
    server.bind(f"/proc/self/fd/{folder}/sock")
    contents, reasons = read(tmp_path)
    server.close()
    os.close(folder)
    assert not contents
    assert reasons["fifo"] == reasons["to_fifo"] == "a FIFO"
    assert reasons["sock"] == "a socket"
    assert reasons["nowhere"] == reasons["loop"] == "a link to nothing"
    assert reasons["out"] == reasons["device"] == "a link that leads out of the folder"
    assert (reasons["empty"], reasons["core.1"]) == ("empty", "a core dump")


def test_a_device_or_fifo_named_by_hand(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    assert read(tmp_path / "fifo")[1] == {"fifo": "a FIFO"}
    assert read("/dev/null")[1] == {"null": "a device"}


def test_files_of_proc_are_read_though_they_tell_no_size() -> None:
    contents, _ = read("/proc/self/status")
    assert contents["status"].startswith(b"Name:")


def test_a_file_seen_twice_is_read_once(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x\n")
    os.link(tmp_path / "a", tmp_path / "b")
    assert len(read(tmp_path)[0]) == 1


def test_names_fit_to_print(tmp_path: Path) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/bad\xff\n\x1b[31m.log")).write_text("x\n")
    contents, _ = read(tmp_path)
    (name,) = contents
    assert name.encode()
    assert not any(ord(c) < 32 for c in name)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_without_permission(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x\n")
    (tmp_path / "a").chmod(0)
    assert read(tmp_path)[1]["a"] == "Permission denied"


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
def test_archives(tmp_path: Path, mode: str) -> None:
    (tmp_path / "b.tar").write_bytes(tar_of({"n1/dmesg.txt": b"hello\n", "./n2/x.log": b"world\n"}, mode))
    assert read(tmp_path / "b.tar")[0] == {"b.tar!/n1/dmesg.txt": b"hello\n", "b.tar!/n2/x.log": b"world\n"}


def test_zstd(tmp_path: Path) -> None:
    zstandard = pytest.importorskip("zstandard")
    (tmp_path / "b.tar.zst").write_bytes(zstandard.compress(tar_of({"a.log": b"x\n"}, "w")))
    assert read(tmp_path)[0] == {"b.tar.zst!/a.log": b"x\n"}


def test_archives_within_archives(tmp_path: Path) -> None:
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("deep.log.gz", gzip.compress(b"deep\n"))
    (tmp_path / "outer.tgz").write_bytes(
        tar_of({"n1/logs.zip": inner.getvalue(), "n2.tar.xz": tar_of({"y": b"y\n"}, "w:xz")})
    )
    assert read(tmp_path)[0] == {"outer.tgz!/n1/logs.zip!/deep.log.gz": b"deep\n", "outer.tgz!/n2.tar.xz!/y": b"y\n"}


def test_nesting_ends_somewhere(tmp_path: Path) -> None:
    data = b"x\n"
    for _ in range(7):
        data = tar_of({"a.tgz": data})
    (tmp_path / "m.tgz").write_bytes(data)
    contents, reasons = read(tmp_path)
    assert not contents
    assert "packed too deeply" in reasons.values()


def test_members_that_escape_or_are_no_files(tmp_path: Path) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, kind in (
            ("../up", b"0"),
            ("/abs", b"0"),
            ("link", b"2"),
            ("dev", b"3"),
            ("fifo", b"6"),
            ("ok", b"0"),
        ):
            member = tarfile.TarInfo(name)
            member.type, member.linkname, member.size = kind, "/etc/passwd", 2 if kind == b"0" else 0
            archive.addfile(member, io.BytesIO(b"x\n"))
    (tmp_path / "e.tar").write_bytes(out.getvalue())
    contents, reasons = read(tmp_path)
    assert list(contents) == ["e.tar!/ok"]
    assert reasons["e.tar!/../up"] == reasons["e.tar!//abs"] == "its name leads out of the archive"
    assert reasons["e.tar!/dev"] == reasons["e.tar!/fifo"] == "a device or FIFO inside an archive"
    assert reasons["e.tar"] == "1 links inside the archive were not followed"


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress])
def test_what_came_before_a_cut_still_counts(tmp_path: Path, pack: object) -> None:
    lines = b"".join(os.urandom(24).hex().encode() + b"\n" for _ in range(20000))
    whole: bytes = pack(lines)  # type: ignore[operator]
    (tmp_path / "cut.log").write_bytes(whole[: len(whole) // 2])
    contents, reasons = read(tmp_path)
    assert len(contents["cut.log"]) > len(lines) // 4
    assert lines.startswith(contents["cut.log"])
    assert "damaged or cut short" in reasons["cut.log"]


def test_a_cut_tar(tmp_path: Path) -> None:
    text = b"".join(b"line %d\n" % n for n in range(20000))
    data = tar_of({"first": b"a\n", "second": text}, "w")
    (tmp_path / "cut.tar").write_bytes(data[: len(data) // 2])
    contents, reasons = read(tmp_path)
    assert contents["cut.tar!/first"] == b"a\n"
    assert text.startswith(contents["cut.tar!/second"])
    assert len(contents["cut.tar!/second"]) > len(text) // 3
    assert any("cut short" in why for why in reasons.values())


def test_bombs_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "RATIO_FLOOR", 1 << 20)
    (tmp_path / "bomb.gz").write_bytes(gzip.compress(bytes(32 << 20)))
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zeros", bytes(32 << 20))
    contents, reasons = read(tmp_path)
    assert "refused as a bomb" in reasons["bomb.gz"]
    assert "refused as a bomb" in reasons["bomb.zip!/zeros"]
    assert len(contents["bomb.gz"]) < 16 << 20


def test_too_many_members(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MOST_MEMBERS", 5)
    (tmp_path / "many.tar").write_bytes(tar_of({f"f{n}": b"x\n" for n in range(9)}, "w"))
    contents, reasons = read(tmp_path)
    assert len(contents) == 5
    assert reasons["many.tar"].startswith("more than 5 files")


def test_a_checkpoint_is_no_log(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "model.pt", "w") as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02}q\x00.")
        archive.writestr("archive/data/0", bytes(100))
    assert read(tmp_path) == ({}, {"model.pt": "a PyTorch checkpoint"})


def test_standard_input() -> None:
    stream = io.BytesIO(gzip.compress(b"hello\n"))
    items = Places(["-"], stream).items()
    item = next(items)
    assert isinstance(item, Item)
    assert item.open().read() == b"hello\n"
