"""Compressed files and archives as streams, with caps against bombs; members that escape or link are refused."""

from __future__ import annotations

import contextlib
import importlib
import io
import re
import zlib
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from gpuclinic.model import NotRead
from gpuclinic.observe.host import Item

if TYPE_CHECKING:
    import tarfile
    import zipfile
    from collections.abc import Callable, Iterator

LARGEST_TOTAL = 64 << 30
LARGEST_RATIO = 400
RATIO_FLOOR = 512 << 20
MOST_MEMBERS = 50_000
DEEPEST = 4
_LARGEST_SPARSE = 1 << 30
_LARGEST_HELD_ZIP = 256 << 20
_BLOCK = 4096
_GZIP_BLOCK = 1 << 16
DAMAGE = (OSError, EOFError, ValueError, NotImplementedError, RuntimeError, zlib.error)
"""What reading a damaged or hostile stream may raise; errors of lzma, tarfile and zipfile are turned into OSError."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f\x80-\x9f\ud800-\udfff]")


class Budget:
    """What one thing a person named may hold in all, however deeply it is packed."""

    def __init__(self) -> None:
        self.bytes = LARGEST_TOTAL
        self.members = MOST_MEMBERS


class Careful(io.RawIOBase):
    """A stream out of an archive. Where it breaks, or at its cap, it ends; `problem_of` tells that it did."""

    def __init__(self, inner: Any, budget: Budget, compressed: int | None, errors: tuple[type[Exception], ...]) -> None:
        self._inner = inner
        self._budget = budget
        self._errors: tuple[type[Exception], ...] = (*DAMAGE, *errors)
        self._left = LARGEST_TOTAL if compressed is None else max(RATIO_FLOOR, compressed * LARGEST_RATIO)
        self._read = getattr(inner, "read1", inner.read)
        self.problem: str | None = None

    def readable(self) -> bool:
        """Always."""
        return True

    def close(self) -> None:
        """Closes what is read from, too."""
        if not self.closed and hasattr(self._inner, "close"):
            self._inner.close()
        super().close()

    def readinto(self, buffer: Any) -> int:
        """Fills the buffer; gives nothing from a break or the cap on."""
        if self.problem is not None:
            return 0
        try:
            data = self._read(len(buffer))
        except self._errors as problem:
            self.problem = f"damaged or cut short: {problem or type(problem).__name__}"
            return 0
        self._left -= len(data)
        self._budget.bytes -= len(data)
        if self._left < 0 or self._budget.bytes < 0:
            self.problem = "unpacks to far more than it holds: refused as a bomb"
            return 0
        buffer[: len(data)] = data
        return len(data)


def problem_of(stream: object) -> str | None:
    """Why a stream out of an archive ended early; None where it did not."""
    raw = getattr(stream, "raw", None)
    return raw.problem if isinstance(raw, Careful) else None


def buffered(stream: BinaryIO | io.RawIOBase) -> io.BufferedReader:
    """The stream with a buffer that can be peeked into."""
    return stream if isinstance(stream, io.BufferedReader) else io.BufferedReader(cast("io.RawIOBase", stream), 1 << 18)


def _giver(stream: io.BufferedReader) -> Callable[[], BinaryIO]:
    return lambda: cast("BinaryIO", stream)


def compression(head: bytes) -> str | None:
    """The compression a file's first bytes tell, or None."""
    for magic, name in ((b"\x1f\x8b", "gz"), (b"\xfd7zXZ\x00", "xz"), (b"\x28\xb5\x2f\xfd", "zst")):
        if head.startswith(magic):
            return name
    if head[:3] == b"BZh" and head[4:10] == b"1AY&SY":
        return "bz2"
    return "lz4" if head.startswith(b"\x04\x22\x4d\x18") else None


def decompressed(stream: BinaryIO, kind: str, size: int | None, budget: Budget) -> io.BufferedReader:
    """The unpacked content of a stream; raises OSError where the needed library is not installed."""
    inner: Any
    errors: tuple[type[Exception], ...] = ()
    if kind == "gz":
        inner, errors = _gunzip(stream)
    elif kind == "bz2":
        inner = _module("bz2").BZ2File(stream)
    elif kind == "xz":
        lzma = _module("lzma")
        inner, errors = lzma.LZMAFile(stream), (lzma.LZMAError,)
    elif kind == "lz4":
        raise OSError("lz4 is not read: unpack it first (lz4 -d)")
    else:
        inner, errors = _zstd(stream)
    return buffered(Careful(inner, budget, size, errors))


def _gunzip(stream: BinaryIO) -> tuple[Any, tuple[type[Exception], ...]]:
    library: Any = zlib
    with contextlib.suppress(ImportError):
        library = _module("isal.isal_zlib")
    return _Gunzip(stream, library), (library.error,)


class _Gunzip:
    """Members of a gzip file, one behind the other; gives all that a cut file still holds before it complains."""

    def __init__(self, stream: BinaryIO, library: Any) -> None:
        self._stream = stream
        self._library = library
        self._member = self._new()
        self._started = False
        self._pending = b""
        self._ended = False

    def _new(self) -> Any:
        return self._library.decompressobj(wbits=31)

    def read(self, size: int) -> bytes:
        """Some bytes, or none at the end."""
        while not self._ended:
            if not self._pending:
                self._pending = self._stream.read(_GZIP_BLOCK)
                if not self._pending:
                    self._ended = True
                    if self._started:
                        raise EOFError("the file ends within the compressed data")
                    break
            self._started = True
            data: bytes = self._member.decompress(self._pending, size)
            self._pending = self._member.unconsumed_tail
            if self._member.eof:
                self._pending = self._member.unused_data.lstrip(b"\x00")
                self._ended = bool(self._pending) and not b"\x1f\x8b".startswith(self._pending[:2])
                self._member, self._started = self._new(), False
            if data:
                return data
        return b""


def _zstd(stream: BinaryIO) -> tuple[Any, tuple[type[Exception], ...]]:
    try:
        zstandard = _module("zstandard")
        unpacker = zstandard.ZstdDecompressor(max_window_size=1 << 27)
        return unpacker.stream_reader(stream, read_across_frames=True), (zstandard.ZstdError,)
    except ImportError:
        pass
    try:
        zstd = _module("compression.zstd")  # from Python 3.14 on
        return zstd.ZstdFile(stream), (zstd.ZstdError,)
    except ImportError:
        raise OSError("zstd needs the extra zstandard: pip install zstandard") from None


def _module(name: str) -> Any:
    return importlib.import_module(name)


def shown_name(name: str) -> str:
    """A name fit to print: no control characters, no halves of characters."""
    return _CONTROL.sub("\ufffd", name) if _CONTROL.search(name) else name


def safe_name(name: str) -> str | None:
    """A member's name if it stays inside, else None."""
    cleaned = name.replace("\\", "/")
    while cleaned.startswith("./"):
        cleaned = cleaned[2:]
    if cleaned.startswith("/") or ".." in cleaned.split("/") or "\x00" in cleaned or re.match(r"[A-Za-z]:/", cleaned):
        return None
    return shown_name(cleaned)


def tar_items(stream: io.BufferedReader, path: str, depth: int, budget: Budget) -> Iterator[Item | NotRead]:
    """The members of a tar stream, in order, without seeking."""
    import tarfile

    from gpuclinic.observe._tar import members, open_tar

    links = 0
    try:
        with open_tar(stream) as archive:
            for member in members(archive):
                budget.members -= 1
                if budget.members < 0:
                    yield NotRead(path, f"more than {MOST_MEMBERS} files; the rest was left out")
                    return
                name = safe_name(member.name)
                if member.isdir():
                    continue
                if member.issym() or member.islnk():
                    links += 1
                    continue
                reason = tar_refusal(member, name)
                if reason is not None or name is None:
                    yield NotRead(f"{path}!/{shown_name(member.name)}", reason or "")
                    continue
                file = archive.extractfile(member)
                if file is not None:
                    raw = buffered(Careful(Pieces(file), budget, None, (tarfile.TarError,)))
                    yield from nested(Item(f"{path}!/{name}", member.size, _giver(raw)), depth, budget)
    except (*DAMAGE, tarfile.TarError) as problem:
        yield NotRead(path, f"archive damaged or cut short: {problem or type(problem).__name__}")
    if problem_of(stream) is not None:
        yield NotRead(path, f"the rest of it: {problem_of(stream)}")
    if links:
        yield NotRead(path, f"{links} links inside the archive were not followed")


def tar_refusal(member: tarfile.TarInfo, name: str | None) -> str | None:
    """Why a member of a tar archive is not read; None where it is."""
    if name is None:
        return "its name leads out of the archive"
    if not member.isreg():
        return "a device or FIFO inside an archive"
    if member.issparse() and member.size > _LARGEST_SPARSE:
        return "a sparse file inside an archive, mostly holes"
    return None


class Pieces:
    """A member read in small pieces, so that a cut archive loses at most the last of them."""

    def __init__(self, file: Any) -> None:
        self._file = getattr(file, "raw", file)

    def read(self, size: int) -> bytes:
        """At most one piece."""
        return bytes(self._file.read(min(size, _BLOCK)) or b"")


def zip_items(stream: BinaryIO, path: str, depth: int, budget: Budget) -> Iterator[Item | NotRead]:
    """The members of a zip file; needs a stream that can seek."""
    import zipfile

    try:
        with zipfile.ZipFile(stream) as archive:
            members = archive.infolist()
            kind = _kind_of_zip({member.filename for member in members[:2000]})
            if kind is not None:
                yield NotRead(path, kind)
                return
            for member in members:
                budget.members -= 1
                if budget.members < 0:
                    yield NotRead(path, f"more than {MOST_MEMBERS} files; the rest was left out")
                    return
                if not member.is_dir():
                    yield from _zip_member(archive, member, path, depth, budget)
    except (*DAMAGE, zipfile.BadZipFile) as problem:
        yield NotRead(path, f"archive damaged or cut short: {problem or type(problem).__name__}")


def _zip_member(
    archive: zipfile.ZipFile, member: zipfile.ZipInfo, path: str, depth: int, budget: Budget
) -> Iterator[Item | NotRead]:
    import zipfile

    name = safe_name(member.filename)
    shown = f"{path}!/{shown_name(member.filename)}"
    if name is None:
        yield NotRead(shown, "its name leads out of the archive")
    elif member.flag_bits & 1:
        yield NotRead(shown, "encrypted")
    elif (member.external_attr >> 28) == 0xA:
        yield NotRead(shown, "a link inside an archive")
    elif member.file_size > max(RATIO_FLOOR, member.compress_size * LARGEST_RATIO):
        yield NotRead(shown, "unpacks to far more than it holds: refused as a bomb")
    else:
        try:
            opened = archive.open(member)
        except (*DAMAGE, zipfile.BadZipFile) as problem:
            yield NotRead(shown, f"cannot be unpacked: {problem or type(problem).__name__}")
            return
        raw = buffered(Careful(opened, budget, member.compress_size, (zipfile.BadZipFile,)))
        yield from nested(Item(f"{path}!/{name}", member.file_size, _giver(raw)), depth, budget)


def _kind_of_zip(names: set[str]) -> str | None:
    """Files that are zip archives only technically."""
    if any(name.endswith("/data.pkl") or name == "data.pkl" for name in names):
        return "a PyTorch checkpoint"
    if "[Content_Types].xml" in names:
        return "an office document; save it as text"
    if "META-INF/MANIFEST.MF" in names:
        return "a Java archive"
    if names and all(name.endswith(".npy") for name in names):
        return "arrays of numbers"
    return None


def nested(item: Item, depth: int = DEEPEST, budget: Budget | None = None) -> Iterator[Item | NotRead]:
    """The item itself, or what it holds where it is compressed or an archive, down to a depth."""
    budget = budget or Budget()
    try:
        stream = buffered(item.open())
        head = stream.peek(512)[:512]
    except DAMAGE as problem:
        yield NotRead(item.path, str(problem) or type(problem).__name__)
        return
    kind = compression(head)
    packed = kind is not None or is_tar(head) or head.startswith((b"PK\x03\x04", b"PK\x05\x06"))
    if not packed:
        if item.plain is not None:
            stream.close()
            yield item
        else:
            yield Item(item.path, item.size, _giver(stream))
        return
    with stream:
        if depth <= 0:
            yield NotRead(item.path, "packed too deeply")
        elif kind is not None:
            yield from _unpacked(item, stream, kind, depth, budget)
        elif is_tar(head):
            yield from tar_items(stream, item.path, depth - 1, budget)
        else:
            yield from _zip(item, stream, depth, budget)


def _unpacked(item: Item, stream: io.BufferedReader, kind: str, depth: int, budget: Budget) -> Iterator[Item | NotRead]:
    try:
        inner = decompressed(cast("BinaryIO", stream), kind, item.size, budget)
        head = inner.peek(512)[:512]
        if not head and problem_of(inner) is not None:
            raise OSError(problem_of(inner))
    except DAMAGE as problem:
        yield NotRead(item.path, f"cannot be unpacked: {problem or type(problem).__name__}")
        return
    with inner:
        if is_tar(head):
            yield from tar_items(inner, item.path, depth - 1, budget)
        elif compression(head) is not None:
            yield from nested(Item(item.path, None, _giver(inner)), depth - 1, budget)
        else:
            yield Item(item.path, None, _giver(inner))


def _zip(item: Item, stream: io.BufferedReader, depth: int, budget: Budget) -> Iterator[Item | NotRead]:
    if item.plain is not None:
        yield from zip_items(cast("BinaryIO", stream), item.path, depth - 1, budget)
        return
    try:
        held = stream.read(_LARGEST_HELD_ZIP + 1)
    except DAMAGE as problem:
        yield NotRead(item.path, f"cannot be unpacked: {problem or type(problem).__name__}")
        return
    if len(held) > _LARGEST_HELD_ZIP:
        yield NotRead(item.path, "a zip inside an archive, too large to hold")
    else:
        yield from zip_items(io.BytesIO(held), item.path, depth - 1, budget)


def is_tar(head: bytes) -> bool:
    """The first bytes are those of a tar archive."""
    return len(head) > 262 and head[257:262] == b"ustar"
