"""Finds the lines that may match a signature: Hyperscan where it can be had, else plain search.

An engine only nominates: it searches for needles, telling texts or simplified expressions taken from the signatures
(see `patterns`); `Confirmer` runs the signature's own expression on the cut line and takes its groups.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec

from gpuclinic.recognise.patterns import for_hyperscan, plan, rarity
from gpuclinic.store import read_cache, write_cache

if TYPE_CHECKING:
    from collections.abc import Iterable
    from collections.abc import Set as AbstractSet

    from gpuclinic.knowledge import Signature

_Database = Any  # of the compiled library, which declares no types
Hit = tuple[int, int]
"""Offset just behind a match, and the needle's number; the number one past the last means "escapes or NULs here"."""

_SHORTEST = 8
_STANDS_FOR_OTHERS = 7.0
_DIGITS = "0123456789"
_SUBJECTS = frozenset(
    ("gpu", "gpu_index", "uuid", "rank", "local_rank", "host", "code", "device", "peer", "exit", "signal")
)
_SPECIAL = r"[\x1b\x00]"


class Needle(NamedTuple):
    """Something to search for: an expression over bytes (a text, where text is set), and whom it nominates."""

    expression: str
    text: str
    caseless: bool
    signatures: tuple[int, ...]


class Engine(Protocol):
    """Nominates matches in a buffer. One instance serves one thread; `clone` gives another thread its own."""

    name: str
    needles: list[Needle]

    def scan(self, buffer: memoryview | bytes) -> list[Hit]:
        """The nominated matches in the buffer."""

    def clone(self) -> Engine:
        """An engine for another thread."""

    def reduced(self, quiet: AbstractSet[int], strict: dict[int, tuple[str, bool]]) -> Engine:
        """An engine that does not look for the quiet, and for the strict by their whole patterns, not by texts."""


def needles_of(patterns: list[tuple[str, bool]], cache: str, without: AbstractSet[int] = frozenset()) -> list[Needle]:
    """What to search for: patterns with whether they ignore case. cache: a name to keep it under, or "" for none."""
    name = f"needles-{cache}-5.msgpack"
    packed = read_cache(name) if cache else None
    if packed is not None:
        try:
            return msgspec.msgpack.decode(packed, type=list[Needle])
        except msgspec.MsgspecError:
            pass  # a torn cache file: it is made again
    texts: dict[tuple[str, bool], list[int]] = {}
    expressions: dict[tuple[str, bool], list[int]] = {}
    for number, (pattern, ignore_case) in enumerate(patterns):
        if number in without:
            continue
        wanted = plan(pattern)
        caseless = ignore_case or "(?i" in pattern
        for text in wanted.texts:
            texts.setdefault((text.lower() if caseless else text, caseless), []).append(number)
        for expression in wanted.expressions:
            expressions.setdefault((expression, caseless), []).append(number)
    merged = _merged(texts)
    needles = [Needle(escaped(text), text, caseless, tuple(n)) for (text, caseless), n in merged.items()]
    needles += [Needle(expression, "", caseless, tuple(n)) for (expression, caseless), n in expressions.items()]
    if cache:
        write_cache(name, msgspec.msgpack.encode(needles))
    return needles


def _merged(texts: dict[tuple[str, bool], list[int]]) -> dict[tuple[str, bool], list[int]]:
    """The texts without those that hold a shorter one of them, if that is rare enough to stand for both."""
    kept: dict[tuple[str, bool], list[int]] = {}
    short: set[tuple[str, bool]] = set()
    for (text, caseless), numbers in sorted(texts.items(), key=lambda item: len(item[0][0])):
        parts = ((text[i:j], caseless) for i in range(len(text)) for j in range(i + _SHORTEST, len(text) + 1))
        part = next((part for part in parts if part in short), None)
        if part is not None:
            kept[part] = [*kept[part], *(number for number in numbers if number not in kept[part])]
            continue
        kept[text, caseless] = list(numbers)
        if rarity(text) >= _STANDS_FOR_OTHERS:
            short.add((text, caseless))
    return kept


def escaped(text: str) -> str:
    """A text as an expression over its UTF-8 bytes."""
    return "".join(rf"\x{byte:02x}" for byte in text.encode("utf-8", "replace"))


class HyperscanEngine:
    """All needles in one automaton. The compiled database is cached by knowledge stamp and library version."""

    name = "hyperscan"

    def __init__(self, needles: list[Needle], stamp: str) -> None:
        import hyperscan

        self.needles = needles
        version = getattr(hyperscan, "__version__", "")
        cached = f"hyperscan-{stamp}-{version}-5.db"
        packed = read_cache(cached) if stamp else None
        database: _Database = None
        if packed is not None:
            try:
                database = hyperscan.loadb(packed, hyperscan.HS_MODE_BLOCK)
            except (hyperscan.error, ValueError, TypeError):
                database = None
        if database is None:
            database = _compiled(needles)
            if stamp:
                write_cache(cached, hyperscan.dumpb(database))
        self._database = database
        self._scratch = hyperscan.Scratch(database)
        database.scratch = self._scratch

    def scan(self, buffer: memoryview | bytes) -> list[Hit]:
        """The nominated matches in the buffer, in order of their ends."""
        hits: list[Hit] = []
        add = hits.append

        def on_match(number: int, _start: int, end: int, _flags: int, _context: object) -> None:
            add((end, number))

        self._database.scan(buffer, match_event_handler=on_match, scratch=self._scratch)
        return hits

    def clone(self) -> HyperscanEngine:
        """Shares the database; the scratch space is the clone's own."""
        twin = object.__new__(HyperscanEngine)
        twin.needles = self.needles
        twin._database = self._database
        twin._scratch = self._scratch.clone()
        return twin

    def reduced(self, quiet: AbstractSet[int], strict: dict[int, tuple[str, bool]]) -> HyperscanEngine:
        """An engine that does not look for the quiet, and for the strict by their whole patterns, not by texts."""
        return HyperscanEngine(_reduced(self.needles, quiet, strict), "")


def _compiled(needles: list[Needle]) -> Any:
    import hyperscan

    database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    lines = hyperscan.HS_FLAG_MULTILINE
    caseless = hyperscan.HS_FLAG_CASELESS
    database.compile(
        expressions=[*(needle.expression.encode() for needle in needles), _SPECIAL.encode()],
        ids=list(range(len(needles) + 1)),
        flags=[*(lines | caseless if needle.caseless else lines for needle in needles), hyperscan.HS_FLAG_SINGLEMATCH],
    )
    return database


def _reduced(needles: list[Needle], quiet: AbstractSet[int], strict: dict[int, tuple[str, bool]]) -> list[Needle]:
    """The needles without the quiet signatures, with one whole expression for each strict one."""
    dropped = quiet | strict.keys()
    kept: list[Needle] = []
    for needle in needles:
        signatures = tuple(number for number in needle.signatures if number not in dropped)
        if signatures:
            kept.append(needle._replace(signatures=signatures))
    for number, (pattern, ignore_case) in strict.items():
        if number not in quiet:
            kept.append(Needle(for_hyperscan(pattern), "", ignore_case or "(?i" in pattern, (number,)))
    return kept


_WORD_RUN = re.compile(rb"[A-Za-z0-9_\x80-\xff]{2,}")
_LONG_LINE = re.compile(rb"[^\n]{4096,}")
_LINE_END = 2048


class PlainEngine:
    """The engine of last resort, without a compiled library: slow on large logs, the same answers.

    A text is sought only where its longest run of letters and digits is part of a word that the buffer holds: the
    different words of a buffer are few. Expressions see only both ends of lines longer than 4 KiB, since some of them
    take quadratic time.
    """

    name = "plain"

    def __init__(self, needles: list[Needle]) -> None:
        self.needles = needles
        self._texts: list[tuple[int, bytes, bytes, bool]] = []
        for number, needle in enumerate(needles):
            if needle.text and (needle.text.isascii() or not needle.caseless):
                text = needle.text.encode("utf-8", "replace")
                runs = _WORD_RUN.findall(text)
                self._texts.append((number, text, max(runs, key=len, default=b""), needle.caseless))
        self._others = [
            (number, re.compile(needle.expression.encode(), re.MULTILINE | (re.IGNORECASE if needle.caseless else 0)))
            for number, needle in enumerate(needles)
            if not needle.text or not (needle.text.isascii() or not needle.caseless)
        ]

    def scan(self, buffer: memoryview | bytes) -> list[Hit]:
        """The nominated matches in the buffer, one for each line and needle at most, in order of their ends."""
        data = bytes(buffer)
        lower = data.lower()
        words = b"\n".join(set(_WORD_RUN.findall(data)))
        lower_words = words.lower()
        hits: list[Hit] = []
        if b"\x1b" in data or b"\x00" in data:
            hits.append((0, len(self.needles)))
        for number, text, run, caseless in self._texts:
            if run not in (lower_words if caseless else words):
                continue
            within = lower if caseless else data
            at = within.find(text)
            while at >= 0:
                hits.append((at + len(text), number))
                end = data.find(b"\n", at)
                at = within.find(text, end) if end >= 0 else -1
        for start, stop in _short_parts(data):
            for number, pattern in self._others:
                hits.extend((match.end(), number) for match in pattern.finditer(data, start, stop))
        hits.sort()
        return hits

    def clone(self) -> PlainEngine:
        """Holds no state of a scan, so it serves any thread."""
        return self

    def reduced(self, quiet: AbstractSet[int], strict: dict[int, tuple[str, bool]]) -> PlainEngine:
        """An engine that does not look for the quiet, and for the strict by their whole patterns, not by texts."""
        return PlainEngine(_reduced(self.needles, quiet, strict))


def _short_parts(data: bytes) -> list[tuple[int, int]]:
    """The buffer in parts without the middles of very long lines."""
    parts: list[tuple[int, int]] = []
    at = 0
    for line in _LONG_LINE.finditer(data):
        parts.append((at, line.start() + _LINE_END))
        at = line.end() - _LINE_END
    parts.append((at, len(data)))
    return parts


def make_engine(signatures: list[Signature], stamp: str, without: AbstractSet[int] = frozenset()) -> Engine:
    """The fastest engine this Python has, for signatures; cached by the knowledge's stamp.

    without: numbers of signatures that are not looked for (always the same ones).
    """
    patterns = [(signature.pattern, signature.ignore_case) for signature in signatures]
    return engine_for(patterns, f"{stamp}-part" if without and stamp else stamp, without)


def engine_for(patterns: list[tuple[str, bool]], cache: str, without: AbstractSet[int] = frozenset()) -> Engine:
    """The fastest engine this Python has, for patterns with whether they ignore case."""
    needles = needles_of(patterns, cache, without)
    try:
        return HyperscanEngine(needles, cache)
    except ImportError:
        return PlainEngine(needles)


class Confirmer:
    """Runs signatures' own expressions on cut lines; compiles each when first needed."""

    def __init__(self, signatures: list[Signature]) -> None:
        self.signatures = signatures
        self._compiled: dict[int, tuple[re.Pattern[str], list[re.Pattern[str]]]] = {}
        self._subjects: dict[int, tuple[int, ...]] = {}

    def names_subject(self, number: int) -> bool:
        """A signature's expression tells of which GPU, rank, device or code a line speaks."""
        groups = self._subjects.get(number)
        if groups is None:
            pattern, _ = self._compiled.get(number) or self._expressions(number)
            named = (place for name, place in pattern.groupindex.items() if name.rstrip(_DIGITS) in _SUBJECTS)
            groups = self._subjects[number] = tuple(named)
        return bool(groups)

    def subject(self, number: int, line: str) -> tuple[str | None, ...] | None:
        """Of what a line that holds a signature speaks; None where it does not hold it after all."""
        match = self._compiled[number][0].search(line)
        return None if match is None else tuple(match.group(place) for place in self._subjects[number])

    def _expressions(self, number: int) -> tuple[re.Pattern[str], list[re.Pattern[str]]]:
        signature = self.signatures[number]
        flags = re.IGNORECASE if signature.ignore_case else 0
        pair = (re.compile(signature.pattern, flags), [re.compile(unless) for unless in signature.unless])
        self._compiled[number] = pair
        return pair

    def confirm(self, number: int, line: str) -> re.Match[str] | None:
        """The match of a signature in a line, or None where it does not hold after all."""
        found = self.confirm_all((number,), line)
        return found[0][1] if found else None

    def confirm_all(self, numbers: Iterable[int], line: str) -> list[tuple[int, re.Match[str]]]:
        """Those of the nominated signatures that hold for the line."""
        found: list[tuple[int, re.Match[str]]] = []
        compiled = self._compiled
        for number in numbers:
            pattern, unless = compiled.get(number) or self._expressions(number)
            match = pattern.search(line)
            if match is not None and not (unless and any(other.search(line) for other in unless)):
                found.append((number, match))
        return found
