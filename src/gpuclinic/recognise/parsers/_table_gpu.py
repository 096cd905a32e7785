"""Parsers of the gpu tools: names and marks only, so that start-up stays cheap."""

from __future__ import annotations

from gpuclinic.recognise.parsers._entry import Entry

ENTRIES: tuple[Entry, ...] = ()
