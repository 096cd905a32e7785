"""Compressed files and archives as streams, with caps against bombs; members that escape or link are refused."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from typing import BinaryIO, cast

from gpuclinic.model import NotRead
from gpuclinic.observe.host import Item

LARGEST_MEMBER = 64 << 30
LARGEST_RATIO = 2000
RATIO_FLOOR = 64 << 20
MOST_MEMBERS = 20_000
DAMAGE = (OSError, EOFError, zlib.error, lzma.LZMAError, tarfile.TarError, zipfile.BadZipFile, ValueError, NotImplementedError, RuntimeError)


class Capped(io.RawIOBase):
    """A decompressing stream that ends with an error text instead of filling the machine."""

    def __init__(self, inner: BinaryIO, compressed: int | None) -> None:
        self._inner = inner
        self._given = 0
        self._limit = LARGEST_MEMBER
        if compressed is not None:
            self._limit = min(self._limit, max(RATIO_FLOOR, compressed * LARGEST_RATIO))

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Fills the buffer; raises OSError at the cap."""
        data = self._inner.read(len(buffer))
        self._given += len(data)
        if self._given > self._limit:
            raise OSError(f"unpacks to more than {self._limit} bytes: refused as a bomb")
        buffer[: len(data)] = data
        return len(data)


def compression(head: bytes) -> str | None:
    """The compression a file's first bytes tell, or None."""
    for magic, name in ((b"\x1f\x8b", "gz"), (b"BZh", "bz2"), (b"\xfd7zXZ\x00", "xz"), (b"\x28\xb5\x2f\xfd", "zst")):
        if head.startswith(magic):
            return name
    return None


def decompressed(stream: BinaryIO, kind: str, size: int | None) -> BinaryIO:
    """The unpacked content of a stream; raises OSError where the needed library is not installed."""
    inner: BinaryIO
    if kind == "gz":
        try:
            from isal import igzip

            inner = cast("BinaryIO", igzip.IGzipFile(fileobj=stream))
        except ImportError:
            inner = cast("BinaryIO", gzip.GzipFile(fileobj=stream))
    elif kind == "bz2":
        inner = cast("BinaryIO", bz2.BZ2File(stream))
    elif kind == "xz":
        inner = cast("BinaryIO", lzma.LZMAFile(stream))
    else:
        inner = _zstd(stream)
    return cast("BinaryIO", io.BufferedReader(Capped(inner, size), 1 << 18))


def _zstd(stream: BinaryIO) -> BinaryIO:
    try:
        import zstandard

        return cast("BinaryIO", zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(stream, read_across_frames=True))
    except ImportError:
        pass
    try:
        from compression import zstd  # type: ignore[import-not-found,unused-ignore]  # Python 3.14

        return cast("BinaryIO", zstd.ZstdFile(stream))
    except ImportError:
        raise OSError("zstd needs the extra: pip install 'gpuclinic[fast]'") from None


def safe_name(name: str) -> str | None:
    """A member's name if it stays inside, else None."""
    cleaned = name.replace("\\", "/")
    while cleaned.startswith("./"):
        cleaned = cleaned[2:]
    if cleaned.startswith("/") or ".." in cleaned.split("/") or "\x00" in cleaned:
        return None
    return cleaned


def tar_items(stream: BinaryIO, path: str, depth: int) -> Iterator[Item | NotRead]:
    """The members of a tar stream, in order, without seeking."""
    count = 0
    try:
        with tarfile.open(fileobj=stream, mode="r|", errorlevel=0) as archive:  # noqa: SIM117
            for member in archive:
                count += 1
                if count > MOST_MEMBERS:
                    yield NotRead(path, f"more than {MOST_MEMBERS} members; the rest was left out")
                    return
                shown = f"{path}!/{member.name}"
                name = safe_name(member.name)
                if member.isdir():
                    continue
                if name is None:
                    yield NotRead(shown, "its name leads out of the archive")
                elif member.issym() or member.islnk():
                    yield NotRead(shown, "a link inside an archive")
                elif not member.isreg():
                    yield NotRead(shown, "a device or FIFO inside an archive")
                else:
                    file = archive.extractfile(member)
                    if file is not None:
                        yield from nested(Item(f"{path}!/{name}", member.size, lambda file=file: cast("BinaryIO", file)), depth)
    except DAMAGE as problem:
        yield NotRead(path, f"archive damaged or cut short: {problem}")


def zip_items(stream: BinaryIO, path: str, depth: int) -> Iterator[Item | NotRead]:
    """The members of a zip file; needs a stream that can seek."""
    try:
        with zipfile.ZipFile(stream) as archive:
            for count, member in enumerate(archive.infolist()):
                if count > MOST_MEMBERS:
                    yield NotRead(path, f"more than {MOST_MEMBERS} members; the rest was left out")
                    return
                name = safe_name(member.filename)
                shown = f"{path}!/{member.filename}"
                if member.is_dir():
                    continue
                if name is None:
                    yield NotRead(shown, "its name leads out of the archive")
                elif member.flag_bits & 1:
                    yield NotRead(shown, "encrypted")
                elif (member.external_attr >> 28) == 0xA:
                    yield NotRead(shown, "a link inside an archive")
                elif member.file_size > max(RATIO_FLOOR, member.compress_size * LARGEST_RATIO):
                    yield NotRead(shown, "unpacks to far more than it holds: refused as a bomb")
                else:
                    opened = cast("BinaryIO", io.BufferedReader(Capped(cast("BinaryIO", archive.open(member)), member.compress_size)))
                    yield from nested(Item(f"{path}!/{name}", member.file_size, lambda opened=opened: opened), depth)
    except DAMAGE as problem:
        yield NotRead(path, f"archive damaged or cut short: {problem}")


def nested(item: Item, depth: int) -> Iterator[Item | NotRead]:
    """The item itself, or what it holds where it is compressed or an archive; nested once, then given as it is."""
    try:
        stream = item.open()
        buffered = stream if isinstance(stream, io.BufferedReader) else io.BufferedReader(cast("io.RawIOBase", stream), 1 << 18)
        head = buffered.peek(512)[:512]
    except DAMAGE as problem:
        yield NotRead(item.path, str(problem) or type(problem).__name__)
        return
    kind = compression(head)
    if kind is not None:
        if depth <= 0:
            yield NotRead(item.path, "packed more than twice")
            return
        try:
            inner = decompressed(cast("BinaryIO", buffered), kind, item.size)
            inner_head = cast("io.BufferedReader", inner).peek(512)[:512]
        except DAMAGE as problem:
            yield NotRead(item.path, f"cannot be unpacked: {problem}")
            return
        if _is_tar(inner_head):
            yield from tar_items(inner, item.path, depth - 1)
        else:
            yield Item(item.path, None, lambda: inner)
    elif _is_tar(head):
        yield from tar_items(cast("BinaryIO", buffered), item.path, depth - 1)
    elif head.startswith(b"PK\x03\x04"):
        yield from _zip(item, cast("BinaryIO", buffered), depth)
    elif item.plain is not None:
        buffered.close()
        yield item
    else:
        yield Item(item.path, item.size, lambda: cast("BinaryIO", buffered))


def _zip(item: Item, stream: BinaryIO, depth: int) -> Iterator[Item | NotRead]:
    if depth <= 0:
        yield NotRead(item.path, "packed more than twice")
    elif item.plain is not None:
        yield from zip_items(stream, item.path, depth - 1)
    elif item.size is not None and item.size <= 256 << 20:
        yield from zip_items(io.BytesIO(stream.read()), item.path, depth - 1)
    else:
        yield NotRead(item.path, "a zip inside an archive, too large to hold")


def _is_tar(head: bytes) -> bool:
    return len(head) > 262 and head[257:262] == b"ustar"
