"""Finds the lines that match any signature: Hyperscan where it can be had, else literal anchors and Python's re.

The engine only nominates lines; `Confirmer` runs the signature's own expression on the cut line and takes its groups.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from gpuclinic.knowledge import Signature
from gpuclinic.recognise.patterns import for_hyperscan, longest_literal
from gpuclinic.store import read_cache, write_cache

Hit = Callable[[int, int], None]
"""Called with a signature's number and the offset just behind the match; the number one past the last means "holds an escape"."""


class Engine(Protocol):
    """Nominates matches in a buffer. One instance serves one thread; `clone` gives another thread its own."""

    name: str

    def scan(self, buffer: memoryview | bytes, hit: Hit) -> None:
        """Calls hit for each nominated match in the buffer."""

    def clone(self) -> Engine:
        """An engine for another thread."""


class HyperscanEngine:
    """All signatures in one automaton. The compiled database is cached by knowledge stamp and library version."""

    name = "hyperscan"

    def __init__(self, signatures: list[Signature], stamp: str) -> None:
        import hyperscan

        version = str(hyperscan.__version__)
        name = f"hyperscan-{stamp}-{version}.db"
        packed = read_cache(name) if stamp else None
        database = None
        if packed is not None:
            try:
                database = hyperscan.loadb(packed, hyperscan.HS_MODE_BLOCK)
            except (hyperscan.error, ValueError, TypeError):
                database = None
        if database is None:
            database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
            lines, caseless = hyperscan.HS_FLAG_MULTILINE, hyperscan.HS_FLAG_MULTILINE | hyperscan.HS_FLAG_CASELESS
            database.compile(
                expressions=[*(for_hyperscan(s.pattern).encode() for s in signatures), b"\\x1b"],
                ids=list(range(len(signatures) + 1)),
                flags=[*(caseless if s.ignore_case else lines for s in signatures), hyperscan.HS_FLAG_SINGLEMATCH],
            )
            if stamp:
                write_cache(name, hyperscan.dumpb(database))
        self._database = database
        self._scratch = hyperscan.Scratch(database)
        database.scratch = self._scratch

    def scan(self, buffer: memoryview | bytes, hit: Hit) -> None:
        """Calls hit for each nominated match in the buffer."""

        def on_match(number: int, _start: int, end: int, _flags: int, _context: Any) -> None:
            hit(number, end)

        self._database.scan(buffer, match_event_handler=on_match, scratch=self._scratch)

    def clone(self) -> HyperscanEngine:
        """Shares the database; the scratch space is the clone's own."""
        twin = object.__new__(HyperscanEngine)
        twin._database = self._database
        twin._scratch = self._scratch.clone()
        return twin


class AnchorEngine:
    """Fallback without a compiled library: each signature's longest literal is sought, then its line nominated."""

    name = "anchors"

    def __init__(self, signatures: list[Signature]) -> None:
        self._anchors: dict[bytes, list[int]] = {}
        self._escape = len(signatures)
        self._anywhere: list[tuple[int, re.Pattern[bytes]]] = []
        for number, signature in enumerate(signatures):
            literal = "" if signature.ignore_case else longest_literal(signature.pattern)
            if len(literal) >= 4:
                self._anchors.setdefault(literal.encode(), []).append(number)
            else:
                flags = re.MULTILINE | (re.IGNORECASE if signature.ignore_case else 0)
                self._anywhere.append((number, re.compile(for_hyperscan(signature.pattern).encode(), flags)))

    def scan(self, buffer: memoryview | bytes, hit: Hit) -> None:
        """Calls hit for each nominated match in the buffer."""
        data = bytes(buffer)
        if b"\x1b" in data:
            hit(self._escape, 0)
        for literal, numbers in self._anchors.items():
            at = data.find(literal)
            while at >= 0:
                for number in numbers:
                    hit(number, at + len(literal))
                end = data.find(b"\n", at)
                at = data.find(literal, end) if end >= 0 else -1
        for number, pattern in self._anywhere:
            for match in pattern.finditer(data):
                hit(number, match.end())

    def clone(self) -> AnchorEngine:
        """Holds no state of a scan, so it serves any thread."""
        return self


def make_engine(signatures: list[Signature], stamp: str) -> Engine:
    """The fastest engine this Python has."""
    try:
        return HyperscanEngine(signatures, stamp)
    except ImportError:
        return AnchorEngine(signatures)


class Confirmer:
    """Runs signatures' own expressions on cut lines; compiles each when first needed."""

    def __init__(self, signatures: list[Signature]) -> None:
        self.signatures = signatures
        self._compiled: dict[int, tuple[re.Pattern[str], list[re.Pattern[str]]]] = {}

    def confirm(self, number: int, line: str) -> re.Match[str] | None:
        """The match of a signature in a line, or None where it does not hold after all."""
        pair = self._compiled.get(number)
        if pair is None:
            signature = self.signatures[number]
            pattern = re.compile(signature.pattern, re.IGNORECASE if signature.ignore_case else 0)
            pair = self._compiled[number] = (pattern, [re.compile(u) for u in signature.unless])
        match = pair[0].search(line)
        if match is None or any(unless.search(line) for unless in pair[1]):
            return None
        return match

    def confirm_all(self, numbers: Iterable[int], line: str) -> list[tuple[int, re.Match[str]]]:
        """Those of the nominated signatures that hold for the line."""
        found: list[tuple[int, re.Match[str]]] = []
        for number in numbers:
            match = self.confirm(number, line)
            if match is not None:
                found.append((number, match))
        return found
