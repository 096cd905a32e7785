"""Bytes to text: byte-order marks, UTF-16, GB18030, Latin-1, NULs, terminal escapes; and what is no text."""

from __future__ import annotations

import codecs
import re
from typing import TYPE_CHECKING

from gpuclinic.recognise.scan import strip_escapes

if TYPE_CHECKING:
    from gpuclinic.recognise.scan import ReadInto

_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_HIGH_RUNS = re.compile(rb"[\x80-\xff]{2,}")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_MAGICS = (
    (b"SQLite format 3\x00", "a database"),
    (b"\x89PNG", "an image"),
    (b"\xff\xd8\xff", "an image"),
    (b"GIF8", "an image"),
    (b"%PDF-", "a PDF document"),
    (b"LPKSHHRH", "a binary journal; export it: journalctl --file FILE > journal.txt"),
    (b"\x93NUMPY", "an array of numbers"),
    (b"\x89HDF\r\n", "an HDF5 file"),
    (b"PAR1", "a Parquet file"),
    (b"PERFILE2", "a perf recording; read it: perf script -i FILE > perf.txt"),
    (b"\xd4\xc3\xb2\xa1", "a packet capture"),
    (b"\xa1\xb2\xc3\xd4", "a packet capture"),
    (b"\x0a\x0d\x0d\x0a", "a packet capture"),
    (b"KDUMP   ", "a kernel dump; read its log: vmcore-dmesg or crash"),
    (b"DISKDUMP", "a kernel dump"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive; unpack it first"),
    (b"Rar!\x1a\x07", "a RAR archive; unpack it first"),
)


def encoding_of(head: bytes) -> str:
    """The encoding a text's first bytes suggest."""
    for bom, name in _BOMS:
        if head.startswith(bom):
            return name
    wide = _wide(head[:4096])
    if wide is not None:
        return wide
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError as problem:
        if problem.start < len(head) - 4:
            return _legacy(head)
    return "utf-8"


def _wide(sample: bytes) -> str | None:
    """UTF-16 without a byte-order mark, by where its zero bytes and its line feeds lie."""
    if len(sample) < 8 or sample.count(0) < len(sample) * 0.02:
        return None
    low, high = sample[0::2], sample[1::2]
    if high.count(0) > len(sample) * 0.3 and low.count(0) < len(sample) * 0.05:
        return "utf-16-le"
    if low.count(0) > len(sample) * 0.3 and high.count(0) < len(sample) * 0.05:
        return "utf-16-be"
    if sample.count(b"\n\x00") > 2 * sample.count(b"\x00\n") and low.count(0) == 0:  # Chinese with some ASCII
        return "utf-16-le"
    return None


def _legacy(head: bytes) -> str:
    """GB18030 where the bytes above ASCII read as common Chinese, else UTF-8 with replacement or Latin-1."""
    try:
        text = codecs.getincrementaldecoder("gb18030")().decode(head)
    except UnicodeDecodeError:
        text = ""
    foreign = [c for c in text if ord(c) > 127]
    chinese = sum("\u4e00" <= c <= "\u9fff" or "\u3000" <= c <= "\u303f" or "\uff00" <= c <= "\uffef" for c in foreign)
    broken = head.decode("utf-8", "replace").count("\ufffd")
    high = sum(b > 127 for b in head)
    paired = sum(len(run) for run in _HIGH_RUNS.findall(head))  # letters with accents stand alone, Chinese never does
    if foreign and chinese > 0.7 * len(foreign) and paired > 0.8 * high:
        return "gb18030"
    return "latin-1" if broken > high * 0.5 else "utf-8"


def decode(data: bytes) -> str:
    """Text of the data in the encoding it seems to have; damage becomes replacement characters, escapes are dropped."""
    encoding = encoding_of(data[: 1 << 16])
    if encoding in ("utf-8", "utf-8-sig"):
        return strip_escapes(data).decode("utf-8", "replace").removeprefix("\ufeff")
    text = data.decode(encoding, "replace")
    if "\x1b" in text or "\x00" in text:
        text = strip_escapes(text.encode("utf-8", "replace")).decode("utf-8", "replace")
    return text.removeprefix("\ufeff")


def transcoded(read_into: ReadInto, encoding: str) -> ReadInto:
    """The same stream in UTF-8."""
    if encoding in ("utf-8", "utf-8-sig"):
        return read_into
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    pending = b""
    raw = bytearray(1 << 16)
    ended = False

    def read(buffer: memoryview) -> int:
        nonlocal pending, ended
        while not pending and not ended:
            got = read_into(memoryview(raw))
            ended = not got
            pending = decoder.decode(bytes(raw[:got]), final=not got).encode("utf-8", "replace")
        size = min(len(buffer), len(pending))
        buffer[:size] = pending[:size]
        pending = pending[size:]
        return size

    return read


def binary_reason(head: bytes) -> str | None:
    """What a file is that is no text in any encoding we read; None for text."""
    if not head:
        return None
    for magic, name in _MAGICS:
        if head.startswith(magic):
            return name
    if head.startswith(b"\x7fELF"):
        return "a core dump" if head[16:17] == b"\x04" else "a program or library"
    if head[:1] == b"\x80" and head[1:2] in b"\x02\x03\x04\x05" and len(head) > 2:
        return "a Python pickle"
    if head[8:10] == b'{"' and int.from_bytes(head[:8], "little") < 1 << 27 and head[7:8] == b"\x00":
        return "model weights (safetensors)"
    return "not text" if looks_binary(head) else None


_NOT_IN_TEXT = bytes(b for b in range(32) if not 9 <= b <= 13 and b != 27)
"""Control characters but those that move the cursor, and escape."""


def looks_binary(head: bytes) -> bool:
    """The bytes are no text in any encoding we read."""
    if not head or encoding_of(head).startswith(("utf-16", "utf-32")):
        return False
    controls = len(head) - len(head.translate(None, _NOT_IN_TEXT))
    nuls = head.count(0)
    if nuls == len(head):
        return True
    lines = head.replace(b"\x00", b"").count(b"\n")
    return controls - nuls > 0.04 * (len(head) - nuls) or (nuls > 0.3 * len(head) and not lines)


def printable(text: str) -> str:
    """Text with control characters replaced, safe to print; tabs stay."""
    return _CONTROL.sub("\ufffd", text) if _CONTROL.search(text) else text
