"""Parsers of tools' output. Each is found by marks in the text, not by the file's name, and imported when needed."""

from __future__ import annotations

import functools
import hashlib
import importlib
import re
from typing import TYPE_CHECKING

from gpuclinic import __version__
from gpuclinic.recognise.engine import Engine, engine_for
from gpuclinic.recognise.limits import deadline
from gpuclinic.recognise.parsers._table_cluster import ENTRIES as CLUSTER
from gpuclinic.recognise.parsers._table_gpu import ENTRIES as GPU
from gpuclinic.recognise.parsers._table_host import ENTRIES as HOST
from gpuclinic.recognise.parsers._table_perf import ENTRIES as PERF
from gpuclinic.recognise.parsers._table_texts import ENTRIES as TEXTS

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuclinic.model import Document, Fact
    from gpuclinic.recognise.parsers._entry import Entry

ENTRIES: tuple[Entry, ...] = GPU + HOST + CLUSTER + PERF + TEXTS
_HEAD = 4096
_MARKS = [(number, mark) for number, entry in enumerate(ENTRIES) for mark in entry.marks]
_LONG, _NEAR = 1 << 16, 1 << 13
"""Bytes of a window of lines up to which it is searched whole; of longer ones its beginning, and so much on either side of each place."""
_TRIES = 40
_STEP = 1 << 20
_OVERLAP = 4096


@functools.cache
def _mark(expression: str) -> re.Pattern[str]:
    return re.compile(expression, re.MULTILINE)


@functools.cache
def _engine() -> Engine:
    """Finds all marks in one pass; kept in the cache by what the marks are."""
    digest = hashlib.blake2b(repr((__version__, _MARKS)).encode(), digest_size=12).hexdigest()
    return engine_for([(mark, False) for _, mark in _MARKS], f"marks-{digest}")


def parsers_for(text: str) -> list[Entry]:
    """The parsers whose marks the text shows."""
    engine = _engine()
    data = text.encode("utf-8", "replace")
    ends: dict[int, list[int]] = {}
    for at in range(0, len(data), _STEP):
        for end, needle in engine.scan(data[at : at + _STEP + _OVERLAP]):
            if needle < len(engine.needles):
                for number in engine.needles[needle].signatures:
                    places = ends.setdefault(number, [])
                    if len(places) < _TRIES:
                        places.append(at + end)
    chosen = {_MARKS[number][0] for number, places in ends.items() if _shows(number, text, data, places)}
    return [entry for number, entry in enumerate(ENTRIES) if number in chosen]


def _shows(number: int, text: str, data: bytes, places: list[int]) -> bool:
    """The mark is really there, near the places where a search nominated it."""
    entry, mark = ENTRIES[_MARKS[number][0]], _MARKS[number][1]
    pattern = _mark(mark)
    if entry.whole or "\\A" in mark or "\\Z" in mark or len(text) < _HEAD:
        return pattern.search(text[:_HEAD] if entry.whole else text) is not None
    windows: dict[tuple[int, int], None] = {}
    for place in places:
        start = data.rfind(b"\n", 0, max(0, place - 1))
        start = data.rfind(b"\n", 0, start) + 1 if start > 0 else 0
        stop = place
        for _ in range(3):
            stop = data.find(b"\n", stop) + 1 or len(data)
        windows[start, min(stop, start + _LONG)] = None
        if stop - start > _LONG:
            windows[max(start, place - _NEAR), min(stop, place + _NEAR)] = None
    for start, stop in windows:
        inside = start > 0 and data[start - 1 : start] != b"\n"
        piece = data[start:stop].decode("utf-8", "replace")
        if pattern.search("\0" + piece if inside else piece):
            return True
    return len(places) == _TRIES and pattern.search(text) is not None


LONGEST_S = 10.0
"""No parser needs this long for the 8 MiB that it gets at most; one that does is given up."""


def parse(entry: Entry, document: Document) -> list[Fact]:
    """Runs one parser on a document."""
    module, _, name = entry.function.partition(":")
    function: Callable[[Document], list[Fact]] = getattr(
        importlib.import_module(f"gpuclinic.recognise.parsers.{module}"), name
    )
    with deadline(LONGEST_S):
        return function(document)
