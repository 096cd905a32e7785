"""Tar archives as streams, of which no header may send the reader on for ever or make it hold more than headers do."""

from __future__ import annotations

import tarfile
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Iterator

LARGEST_MEMBER = 64 << 30
"""Bytes that a header may promise. To skip what it promises is counted out in blocks, even where the file has long ended."""
_LARGEST_HEADER = 1 << 20
"""Bytes of a header that continues in data (a long name, attributes), which are held whole."""
_CONTINUED = frozenset((b"L", b"K", b"N", b"x", b"g", b"X"))
"""GNU's long names and links, and attributes as of POSIX and Solaris."""
_BLOCKS = 1 << 18


class _Bounded(tarfile.TarInfo):
    """A header whose size is possible."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _Bounded:
        """The header; ReadError where its size is none that is read."""
        member = super().frombuf(buf, encoding, errors)
        most = _LARGEST_HEADER if member.type in _CONTINUED else LARGEST_MEMBER
        _check(member.size, most)
        return member


def _check(size: int, most: int) -> None:
    if not 0 <= size <= most:
        raise tarfile.ReadError(f"a header that promises {size} bytes")


def open_tar(stream: BinaryIO) -> tarfile.TarFile:
    """The archive, read in order without seeking. ReadError: it is none."""
    return tarfile.open(fileobj=stream, mode="r|", errorlevel=0, tarinfo=_Bounded, bufsize=_BLOCKS)


def members(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """All members; ReadError at the first whose size is none that is read, however its header gives it."""
    for member in archive:
        _check(member.size, LARGEST_MEMBER)
        yield member
