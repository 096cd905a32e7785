"""Parsers of tools' output. Each is found by marks in the text, not by the file's name, and imported when needed."""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Callable

from gpuclinic.model import Document, Fact
from gpuclinic.recognise.parsers._entry import Entry
from gpuclinic.recognise.parsers._table_cluster import ENTRIES as CLUSTER
from gpuclinic.recognise.parsers._table_gpu import ENTRIES as GPU
from gpuclinic.recognise.parsers._table_host import ENTRIES as HOST
from gpuclinic.recognise.parsers._table_perf import ENTRIES as PERF

ENTRIES: tuple[Entry, ...] = GPU + HOST + CLUSTER + PERF
_HEAD = 4096


@functools.cache
def _mark(expression: str) -> re.Pattern[str]:
    return re.compile(expression, re.MULTILINE)


def parsers_for(text: str) -> list[Entry]:
    """The parsers whose marks the text shows."""
    head = text[:_HEAD]
    return [e for e in ENTRIES if any(_mark(m).search(head if e.whole else text) for m in e.marks)]


def parse(entry: Entry, document: Document) -> list[Fact]:
    """Runs one parser on a document."""
    module, _, name = entry.function.partition(":")
    function: Callable[[Document], list[Fact]] = getattr(importlib.import_module(f"gpuclinic.recognise.parsers.{module}"), name)
    return function(document)
