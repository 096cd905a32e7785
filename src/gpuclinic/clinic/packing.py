"""A capture as an archive: the answers that matter most first, and no larger than asked for."""

from __future__ import annotations

import gzip
import io
import lzma
import tarfile
import zlib
from typing import TYPE_CHECKING, BinaryIO, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_LARGE = 64 << 10
"""From this size on it is tried out how small a file becomes before it is put in."""
_RESERVE = 256 << 10
ENDINGS = (".tar.gz", ".tgz", ".tar.xz", ".txz", ".tar")


class _Counted(io.RawIOBase):
    """Counts what goes through."""

    def __init__(self, inner: BinaryIO) -> None:
        self._inner = inner
        self.size = 0

    def writable(self) -> bool:
        """Always."""
        return True

    def write(self, data: object) -> int:
        """Passes on."""
        piece = bytes(cast("bytes", data))
        self._inner.write(piece)
        self.size += len(piece)
        return len(piece)


def pack(
    out: BinaryIO, ending: str, folder: str, first: tuple[str, bytes], files: dict[str, bytes],
    rest: Callable[[set[str]], dict[str, bytes]], most: int, at: float,
) -> set[str]:  # fmt: skip
    """Writes an archive of at most about so many bytes; returns the names that did not fit.

    folder: under which all names stand. first: its first member. rest: what is written last, made from the names left out
    (answers.jsonl, snapshot.json). at: Unix time for all members.
    """
    counted = _Counted(out)
    left_out: set[str] = set()
    with (
        _packer(counted, ending) as packer,
        tarfile.open(fileobj=packer, mode="w|", format=tarfile.PAX_FORMAT) as archive,
    ):
        _add(archive, f"{folder}/{first[0]}", first[1], at)
        reserve = min(_RESERVE + 40 * len(files), most // 2)
        for name, data in _ordered(files):
            size = len(zlib.compress(data, 1)) if len(data) > _LARGE and ending != ".tar" else len(data) // 3 + 200
            if ending == ".tar":
                size = len(data) + 1024
            if counted.size + size > most - reserve:
                left_out.add(name)
            else:
                _add(archive, f"{folder}/{name}", data, at)
        for name, data in rest(left_out).items():
            _add(archive, f"{folder}/{name}", data, at)
    return left_out


def _packer(counted: _Counted, ending: str) -> BinaryIO:
    inner = cast("BinaryIO", counted)
    if ending in (".tar.gz", ".tgz"):
        return cast("BinaryIO", gzip.GzipFile(filename="", mode="wb", fileobj=inner, mtime=0))
    if ending in (".tar.xz", ".txz"):
        return cast("BinaryIO", lzma.LZMAFile(inner, "wb"))
    return inner


def _ordered(files: dict[str, bytes]) -> Iterator[tuple[str, bytes]]:
    """Small before large, and what tells most (NVML, commands) before the rest of its size."""

    def rank(item: tuple[str, bytes]) -> tuple[bool, int, bool, int]:
        name, data = item
        return (
            len(data) > (1 << 20),
            name.startswith("samples/"),
            not name.startswith(("nvml", "commands/")),
            len(data),
        )

    return iter(sorted(files.items(), key=rank))


def _add(archive: tarfile.TarFile, name: str, data: bytes, at: float) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    member.mode = 0o600
    member.mtime = int(at)
    archive.addfile(member, io.BytesIO(data))
