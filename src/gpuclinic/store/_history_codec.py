"""Columns of samples as few bytes, without loss.

A column is an array of eight-byte cells, signed integers ("q") or floating point ("d"), with a mark for "no value". Integers, and floats that are
integers by a scale (watts told in milliwatts, MiB of whole bytes), are kept as offsets from the lowest or as differences, whichever is smaller,
in as few bytes as they need, byte planes apart, deflated. What has no such scale keeps the bits of its doubles.
"""

from __future__ import annotations

import operator
import struct
import zlib
from array import array
from itertools import accumulate, chain
from typing import NamedTuple

ABSENT_INT = -(1 << 63)
"""The cell of an integer column that has no value."""
ABSENT_FLOAT = float("nan")
"""The same of a floating-point column: no source tells "not a number", and one that does has told no value."""

Number = int | float

_HEAD = struct.Struct("<BBBBIqI")
_TOTAL = struct.Struct("<I")
_CODES = {1: "B", 2: "H", 4: "I", 8: "Q"}
_SIGNED = {1: "b", 2: "h", 4: "i", 8: "q"}
_SCALES: tuple[float, ...] = (1.0, 10.0, 100.0, 1e3, 1e4, 1e5, 1e6, 2.0**10, 2.0**20)
"""How many parts a unit has: decimals, and bytes of a KiB or MiB. Appended to, never changed: blobs name their place."""
_WHOLE, _SCALED, _BITS = 0, 1, 2
_OFFSET, _DIFFERENCE = 0, 1
_EXACT = 1 << 52
_PROBE = 24
_LEVEL = 6
_MOST = 1 << 17


class CodecError(ValueError):
    """Bytes that are no column, or a column that is not whole."""


class Column(NamedTuple):
    """A column taken apart. places: which of the moments have a value (None: all of them). values: theirs, in order."""

    places: list[int] | None
    values: list[Number]


class Figures(NamedTuple):
    """What is kept of an hour besides its samples."""

    n: int
    low: float
    high: float
    total: float
    first: float
    last: float


def encode(cells: array[int] | array[float], digits: int | None = None) -> tuple[bytes, Figures] | None:
    """A column and its figures; None where it has no value at all.

    cells: typecode q or d. digits: decimals that the source has, where values are computed and would carry noise beyond them.
    """
    values: list[Number] = list(cells)
    present = _present(cells)
    if present is not None:
        values = [values[i] for i in present]
    if not values:
        return None
    scaled = cells.typecode == "d"
    if scaled and digits is not None:
        values = [round(value, digits) for value in values]
    body = _floats(values) if scaled else _integers(values, _WHOLE, 0)
    marks = b"" if present is None else _marks(present, len(cells))
    kind, how, width, scale, base, payload = body
    blob = _HEAD.pack(kind, how, width, scale, len(values), base, len(marks)) + marks + payload
    figures = Figures(len(values), min(values), max(values), _total(values), values[0], values[-1])
    return blob, figures


def decode(blob: bytes) -> Column:
    """The column again. Raises CodecError."""
    try:
        kind, how, width, scale, n, base, marked = _HEAD.unpack_from(blob)
        if n > _MOST:
            raise CodecError("more samples than an hour can have")
        places = _places(blob[_HEAD.size : _HEAD.size + marked]) if marked else None
        payload = blob[_HEAD.size + marked :]
        if kind == _BITS:
            bits = accumulate(_numbers(payload, 8, n, "q"), operator.xor)
            values: list[Number] = list(array("d", array("q", bits).tobytes()))
        else:
            values = _whole(payload, how, width, n, base)
            if kind == _SCALED:
                parts = _SCALES[scale]
                values = [value / parts for value in values]
    except (struct.error, zlib.error, IndexError, OverflowError, ValueError) as problem:
        raise CodecError(str(problem)) from problem
    if len(values) != n or (places is not None and len(places) != n):
        raise CodecError("a column that is not whole")
    return Column(places, values)


def encode_times(moments: array[int]) -> bytes:
    """Moments in milliseconds, ascending."""
    kind, how, width, scale, base, payload = _integers(list(moments), _WHOLE, 0)
    return _HEAD.pack(kind, how, width, scale, len(moments), base, 0) + payload


def decode_times(blob: bytes) -> list[int]:
    """The moments again. Raises CodecError."""
    return [int(value) for value in decode(blob).values]


def _present(cells: array[int] | array[float]) -> list[int] | None:
    """The places that have a value; None where all have."""
    if cells.typecode == "q":
        if ABSENT_INT not in cells:
            return None
        return [i for i, value in enumerate(cells) if value != ABSENT_INT]
    if not any(map(operator.ne, cells, cells)):  # only "not a number" differs from itself
        return None
    return [i for i, value in enumerate(cells) if value == value]


def _total(values: list[Number]) -> float:
    try:
        return float(sum(values))
    except OverflowError:
        return float("inf")


def _marks(present: list[int], total: int) -> bytes:
    row = bytearray(total)
    for place in present:
        row[place] = 1
    return _TOTAL.pack(total) + _deflated(bytes(row))


def _places(marks: bytes) -> list[int]:
    (total,) = _TOTAL.unpack_from(marks)
    if total > _MOST:
        raise CodecError("more samples than an hour can have")
    return [i for i, mark in enumerate(_inflated(marks, _TOTAL.size, total)[0]) if mark]


_Body = tuple[int, int, int, int, int, bytes]


def _floats(values: list[Number]) -> _Body:
    """By the first scale at which the values are integers, bit by bit the same when taken back; else by their bits."""
    original = array("d", values).tobytes()
    for index, parts in enumerate(_SCALES):
        if not _fits(values[:_PROBE], parts):
            continue
        whole = _scaled(values, parts)
        if whole is not None and array("d", [value / parts for value in whole]).tobytes() == original:
            return _integers(whole, _SCALED, index)
    bits = array("q", original)
    mixed = array("q", chain(bits[:1], map(operator.xor, bits[1:], bits)))
    return _BITS, _DIFFERENCE, 8, 0, 0, _planes(mixed.tobytes(), 8)


def _fits(values: list[Number], parts: float) -> bool:
    whole = _scaled(values, parts)
    return whole is not None and all(map(operator.eq, [value / parts for value in whole], values))


def _scaled(values: list[Number], parts: float) -> list[Number] | None:
    try:
        whole: list[Number] = [round(value * parts) for value in values]
    except (OverflowError, ValueError):  # infinite
        return None
    return whole if min(whole) > -_EXACT and max(whole) < _EXACT else None


def _integers(values: list[Number], kind: int, scale: int) -> _Body:
    """As offsets from the lowest, or as differences: what gives fewer bytes."""
    whole = [int(value) for value in values]
    low, high = min(whole), max(whole)
    if low == high:
        return kind, _OFFSET, 0, scale, low, b""
    width = _width(high - low)
    offsets = _planes(array(_CODES[width], [value - low for value in whole]).tobytes(), width)
    steps = list(map(operator.sub, whole[1:], whole))
    reach = max(max(steps), -min(steps) - 1)
    if reach >= 1 << 63:
        return kind, _OFFSET, width, scale, low, offsets
    narrow = _width(2 * reach + 1)
    differences = _planes(array(_SIGNED[narrow], steps).tobytes(), narrow)
    if len(differences) < len(offsets):
        return kind, _DIFFERENCE, narrow, scale, whole[0], differences
    return kind, _OFFSET, width, scale, low, offsets


def _whole(payload: bytes, how: int, width: int, n: int, base: int) -> list[Number]:
    if width == 0:
        return [base] * n
    if how == _DIFFERENCE:
        return list(accumulate(chain((base,), _numbers(payload, width, n - 1, _SIGNED[width]))))
    return [base + value for value in _numbers(payload, width, n, _CODES[width])]


def _width(span: int) -> int:
    return 1 if span < 1 << 8 else 2 if span < 1 << 16 else 4 if span < 1 << 32 else 8


def _planes(raw: bytes, width: int) -> bytes:
    """Byte planes one after another, each deflated by itself: high bytes hardly change, low ones are noise, and one code would not suit both."""
    return b"".join(_deflated(raw[i::width]) for i in range(width))


def _numbers(payload: bytes, width: int, n: int, code: str) -> array[int]:
    raw = bytearray(n * width)
    place = 0
    for i in range(width):
        plane, place = _inflated(payload, place, n)
        raw[i::width] = plane
    return array(code, bytes(raw))


_PIECE = struct.Struct("<BI")
_RAW, _DEFLATED, _ONE = 0, 1, 2


def _deflated(raw: bytes) -> bytes:
    """One byte where all are the same; else the shortest of the ways that suit noise and repetition; with its kind and length before it."""
    if raw.count(raw[:1]) == len(raw):
        return _PIECE.pack(_ONE, min(len(raw), 1)) + raw[:1]
    best, kind = raw, _RAW
    for strategy in (zlib.Z_DEFAULT_STRATEGY, zlib.Z_HUFFMAN_ONLY):
        packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, -15, 9, strategy)
        tried = packer.compress(raw) + packer.flush()
        if len(tried) < len(best):
            best, kind = tried, _DEFLATED
    return _PIECE.pack(kind, len(best)) + best


def _inflated(packed: bytes, place: int, n: int) -> tuple[bytes, int]:
    """A piece of n bytes that begins there, and where the next begins."""
    kind, length = _PIECE.unpack_from(packed, place)
    place += _PIECE.size
    piece = packed[place : place + length]
    if kind == _ONE:
        raw = piece * n
    elif kind == _DEFLATED:
        raw = zlib.decompressobj(-15).decompress(piece, n + 1)
    else:
        raw = piece
    if len(raw) != n:
        raise CodecError("a column that is not whole")
    return raw, place + length
