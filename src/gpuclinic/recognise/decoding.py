"""Bytes to text: byte-order marks, UTF-16 without one, GB18030, Latin-1, NULs, terminal escapes."""

from __future__ import annotations

import codecs
import re

from gpuclinic.recognise.scan import strip_escapes

_BOMS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


def encoding_of(head: bytes) -> str:
    """The encoding a text's first bytes suggest."""
    for bom, name in _BOMS:
        if head.startswith(bom):
            return name
    sample = head[:4096]
    if len(sample) >= 8:
        odd, even = sample[1::2].count(0), sample[0::2].count(0)
        if odd > len(sample) * 0.3 and even < len(sample) * 0.05:
            return "utf-16-le"
        if even > len(sample) * 0.3 and odd < len(sample) * 0.05:
            return "utf-16-be"
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError as problem:
        if problem.start < len(head) - 4:
            return _legacy(head)
    return "utf-8"


def _legacy(head: bytes) -> str:
    """GB18030 where the bytes above ASCII read as common Chinese, else UTF-8 with replacement or Latin-1."""
    try:
        text = codecs.getincrementaldecoder("gb18030")().decode(head)
    except UnicodeDecodeError:
        text = ""
    foreign = [c for c in text if ord(c) > 127]
    chinese = sum("\u4e00" <= c <= "\u9fff" or "\u3000" <= c <= "\u303f" or "\uff00" <= c <= "\uffef" for c in foreign)
    if foreign and chinese > 0.7 * len(foreign):
        return "gb18030"
    broken = head.decode("utf-8", "replace").count("\ufffd")
    high = sum(b > 127 for b in head)
    return "latin-1" if broken > high * 0.5 else "utf-8"


def decode(data: bytes) -> str:
    """Text of the data in the encoding it seems to have; damage becomes replacement characters, escapes are dropped."""
    encoding = encoding_of(data[: 1 << 16])
    if encoding in ("utf-8", "utf-8-sig"):
        data = strip_escapes(data)
    text = data.decode(encoding, "replace")
    if encoding not in ("utf-8", "utf-8-sig"):
        text = strip_escapes(text.encode("utf-8", "replace")).decode("utf-8")
    return text.removeprefix("\ufeff")


def looks_binary(head: bytes) -> bool:
    """The bytes are no text in any encoding we read."""
    if not head or encoding_of(head).startswith(("utf-16", "utf-32")):
        return False
    controls = sum(b < 9 or 13 < b < 27 or 27 < b < 32 for b in head)
    nuls = head.count(0)
    return controls - nuls > 0.1 * len(head) or nuls > 0.9 * len(head) or (nuls > 0.3 * len(head) and b"\n" not in head)


def printable(text: str) -> str:
    """Text with control characters replaced, safe to print; tabs stay."""
    return _CONTROL.sub("\ufffd", text) if _CONTROL.search(text) else text
