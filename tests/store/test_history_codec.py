"""Columns come back as they were, bit by bit, whatever they held."""

from __future__ import annotations

import contextlib
import math
import random
import struct
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuclinic.store._history_codec import (
    ABSENT_FLOAT,
    ABSENT_INT,
    CodecError,
    decode,
    decode_times,
    encode,
    encode_times,
)

_INTS = st.integers(-(2**63) + 1, 2**63 - 1)
_SMALL = st.integers(-300, 300)
_MILLI = st.integers(-(10**7), 10**7).map(lambda whole: whole / 1000)
_MIB = st.integers(0, 2**38).map(lambda whole: whole / 2**20)
_FLOATS = st.floats(allow_nan=False)


def _bits(values: list[float]) -> bytes:
    return struct.pack(f"<{len(values)}d", *values)


def _with_gaps(values: st.SearchStrategy[object]) -> st.SearchStrategy[list[object]]:
    return st.lists(st.one_of(st.none(), values), min_size=1, max_size=200)


@given(st.one_of(_with_gaps(_INTS), _with_gaps(_SMALL)))
def test_integers(values: list[int | None]) -> None:
    packed = encode(array("q", [ABSENT_INT if value is None else value for value in values]))
    told = [value for value in values if value is not None]
    if packed is None:
        assert not told
        return
    column = decode(packed[0])
    assert column.values == told
    assert (column.places or list(range(len(values)))) == [i for i, value in enumerate(values) if value is not None]
    assert (packed[1].n, packed[1].low, packed[1].high) == (len(told), min(told), max(told))
    assert (packed[1].first, packed[1].last) == (told[0], told[-1])


@given(st.one_of(_with_gaps(_FLOATS), _with_gaps(_MILLI), _with_gaps(_MIB)))
def test_floats_bit_by_bit(values: list[float | None]) -> None:
    packed = encode(array("d", [ABSENT_FLOAT if value is None else value for value in values]))
    told = [value for value in values if value is not None]
    if packed is None:
        assert not told
        return
    column = decode(packed[0])
    assert _bits(column.values) == _bits(told)
    assert (column.places or list(range(len(values)))) == [i for i, value in enumerate(values) if value is not None]


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50), st.integers(0, 6))
def test_decimals_that_the_source_has(values: list[float], digits: int) -> None:
    packed = encode(array("d", values), digits)
    assert packed is not None
    assert decode(packed[0]).values == [round(value, digits) for value in values]


@given(st.lists(st.integers(0, 2**45), min_size=1, max_size=300))
def test_moments(moments: list[int]) -> None:
    assert decode_times(encode_times(array("q", moments))) == moments


def test_special_floats() -> None:
    values = [0.0, -0.0, math.inf, -math.inf, 5e-324, 1.7976931348623157e308, 0.1]
    packed = encode(array("d", values))
    assert packed is not None
    assert _bits(decode(packed[0]).values) == _bits(values)


def test_what_never_changes_takes_next_to_nothing() -> None:
    packed = encode(array("q", [700] * 3600))
    assert packed is not None
    assert len(packed[0]) < 30


def test_noise_costs_little_more_than_its_own_information() -> None:
    noise = random.Random(3)
    watts = [int(noise.gauss(600, 30) * 1000) / 1000 for _ in range(3600)]
    packed = encode(array("d", watts))
    assert packed is not None
    bits = math.log2(30_000 * math.sqrt(2 * math.pi * math.e))
    assert len(packed[0]) * 8 / 3600 < bits + 1


@given(st.binary(max_size=200))
def test_foreign_bytes_are_an_error_of_their_own(data: bytes) -> None:
    with contextlib.suppress(CodecError):
        decode(data)


@given(st.data())
def test_damaged_columns_are_an_error_or_wrong_but_never_a_crash(data: st.DataObject) -> None:
    packed = encode(array("d", [0.5, ABSENT_FLOAT, 7.25, 1e-9, 3.0] * 20))
    assert packed is not None
    blob = bytearray(packed[0])
    place = data.draw(st.integers(0, len(blob) - 1))
    blob[place] ^= data.draw(st.integers(1, 255))
    with contextlib.suppress(CodecError):
        decode(bytes(blob))


def test_a_column_that_claims_to_be_huge() -> None:
    packed = encode(array("q", [1, 2, 3]))
    assert packed is not None
    blob = bytearray(packed[0])
    blob[4:8] = (2**31).to_bytes(4, "little")
    with pytest.raises(CodecError):
        decode(bytes(blob))
