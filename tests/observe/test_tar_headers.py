"""Headers of tar archives that promise what no file holds end the archive, with a word, instead of being followed."""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
from typing import TYPE_CHECKING

import pytest

from gpuclinic.model import NotRead
from gpuclinic.observe import Places

if TYPE_CHECKING:
    from pathlib import Path

READ = "import sys; from gpuclinic.observe import Places; print(*(getattr(i, 'why', i.path) for i in Places(sys.argv[1:]).items()), sep='\\n')"
CHECK = "import sys; sys.argv[0] = 'gpuclinic'; from gpuclinic.cli.start import entry; entry()"


def _header(size: bytes, kind: bytes = b"0") -> bytes:
    """A header with this field for the size, its checksum right."""
    member = tarfile.TarInfo("s/root/proc/meminfo")
    raw = bytearray(member.tobuf(tarfile.USTAR_FORMAT))
    raw[124:136], raw[156:157] = size.rjust(12, b"\0"), kind
    raw[148:156] = b" " * 8
    raw[148:156] = b"%06o\0 " % sum(raw)
    return bytes(raw)


def _by_attribute(size: int) -> bytes:
    member = tarfile.TarInfo("s/root/proc/meminfo")
    member.pax_headers = {"size": str(size)}
    return member.tobuf(tarfile.PAX_FORMAT)


HOSTILE = {
    "a number in base 256": _header(b"\x80" + b"\xff" * 11),
    "one of 63 bits": _header(b"\x80" + b"\x00" * 3 + b"\x7f" + b"\xff" * 7),
    "less than nothing": _header(b"\xff" * 12),
    "an attribute": _by_attribute(1 << 80),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_size_that_no_file_has_ends_the_archive(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(HOSTILE[kind] + b"hello".ljust(512, b"\0"))
    done = subprocess.run(
        [sys.executable, "-c", READ, str(path)], capture_output=True, text=True, check=True, timeout=100
    )
    assert "archive damaged or cut short" in done.stdout
    done = subprocess.run(
        [sys.executable, "-c", CHECK, "check", "--host", str(path)], capture_output=True, text=True, check=False, timeout=100
    )  # fmt: skip
    assert done.returncode == 3
    assert "damaged or cut short" in done.stderr


@pytest.mark.parametrize("kind", [b"L", b"K", b"x", b"g"])
def test_a_long_name_is_not_held_beyond_what_names_are(tmp_path: Path, kind: bytes) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(_header(b"%011o\0" % (32 << 20), kind) + b"a" * (32 << 20))
    found = list(Places([str(path)]).items())
    assert [item.why for item in found if isinstance(item, NotRead)] == [
        f"archive damaged or cut short: a header that promises {32 << 20} bytes"
    ]


def test_long_names_and_attributes_are_read(tmp_path: Path) -> None:
    out = io.BytesIO()
    for form in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        with tarfile.open(fileobj=out, mode="w", format=form) as archive:
            member = tarfile.TarInfo("n" * 300)
            member.size = 2
            archive.addfile(member, io.BytesIO(b"x\n"))
        (tmp_path / "a.tar").write_bytes(out.getvalue())
        found = [item.path for item in Places([str(tmp_path / "a.tar")]).items()]
        assert found == ["a.tar!/" + "n" * 300]
        out = io.BytesIO()
