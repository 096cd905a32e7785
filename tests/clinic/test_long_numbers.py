"""Numbers of thousands of digits in any place of any answer or text: no look and no parser stumbles, and no fact holds what no counter can.

int() refuses texts of more than 4,300 digits, takes quadratic time below that, and makes numbers that no float holds.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from gpuclinic.clinic import reading
from gpuclinic.clinic.checking import CheckOptions, check
from gpuclinic.model import Document, digits
from gpuclinic.observe.places import natural
from gpuclinic.observe.snapshot import open_snapshot
from gpuclinic.recognise import parsers
from gpuclinic.recognise.decoding import decode
from gpuclinic.recognise.sections import sections

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuclinic.model import Fact
    from gpuclinic.observe.asking import Answer
    from gpuclinic.recognise.parsers._entry import Entry

EXAMPLES = Path(__file__).parents[2] / "examples"
INCIDENTS = Path(__file__).parents[1] / "incidents"
_NUMBER = re.compile(rb"\d+")
_MOST_LINES = 1500
_MOST_VALUE = 1e30
_TEXTS_EACH = 2
EVERY = -1
"""In the place of a position: all numbers of a line."""


def swollen(data: bytes, position: int, number: bytes) -> bytes:
    """In each line the number at that position becomes another."""
    lines = []
    for line in data.split(b"\n")[:_MOST_LINES]:
        places = list(_NUMBER.finditer(line))
        for place in reversed(places if position == EVERY else places[position : position + 1]):
            line = line[: place.start()] + number + line[place.end() :]
        lines.append(line)
    return b"\n".join(lines)


class Swollen:
    """A snapshot of whose answers every line holds such a number; which files there are stays as it is."""

    def __init__(self, host: Any, position: int, number: bytes) -> None:
        self._host, self._position, self._number = host, position, number

    def __getattr__(self, name: str) -> Any:
        return getattr(self._host, name)

    def _other(self, answer: Answer) -> Answer:
        if answer.data[:1] in (b"\x7f", b"\x1f") or not answer.data:
            return answer  # a module, something packed
        return msgspec.structs.replace(answer, data=swollen(answer.data, self._position, self._number))

    def file(self, *asked: Any, **more: Any) -> Answer:
        return self._other(self._host.file(*asked, **more))

    def files(self, *asked: Any, **more: Any) -> dict[str, Answer]:
        return {path: self._other(answer) for path, answer in self._host.files(*asked, **more).items()}

    def untrusted(self, *asked: Any, **more: Any) -> dict[str, Answer]:
        return {path: self._other(answer) for path, answer in self._host.untrusted(*asked, **more).items()}

    def command(self, *asked: Any, **more: Any) -> Answer:
        return self._other(self._host.command(*asked, **more))

    def link(self, *asked: Any, **more: Any) -> Answer:
        return self._other(self._host.link(*asked, **more))


@pytest.fixture
def nothing_stumbles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors of looks and parsers are let through, where a person would get a gap."""
    monkeypatch.setenv("GPUCLINIC_DEBUG", "1")
    parse: Callable[[Entry, Document], list[Fact]] = parsers.parse

    def told(self: object, entry: Entry, document: Document) -> list[Fact]:
        return parse(entry, document)

    monkeypatch.setattr(reading.Reader, "_facts_of", told)


def beyond_counting(facts: list[Fact]) -> list[tuple[str, str]]:
    """Kinds and fields whose numbers no machine tells."""
    return [
        (fact.kind, name)
        for fact in facts
        for name, value in fact.fields.items()
        if isinstance(value, (int, float)) and not abs(value) < _MOST_VALUE  # so that "not a number" is found, too
    ]


@pytest.mark.usefixtures("nothing_stumbles")
@pytest.mark.parametrize("number", [b"9" * 5000, b"9" * 400], ids=["5000", "400"])
@pytest.mark.parametrize("position", [EVERY, *range(9)])
def test_no_look_stumbles_over_a_long_number(position: int, number: bytes) -> None:
    name = "healthy-server.tar.gz" if position % 2 else "sick-server.tar.gz"
    host = open_snapshot(EXAMPLES / name)
    try:
        answer = check(Swollen(host, position, number), CheckOptions(deep=True))
    finally:
        host.close()
    assert not [gap.why for gap in answer.not_looked_at if "stumbled" in gap.why]
    assert beyond_counting(answer.facts) == []


def _told_texts() -> dict[str, list[tuple[Entry, str]]]:
    """For each parser some short texts of incidents that it is called for."""
    out: dict[str, list[tuple[Entry, str]]] = {}
    for path in sorted(INCIDENTS.glob("*/input/**/*")):
        if not path.is_file() or path.stat().st_size > 40_000:
            continue
        for part in sections(Document(path.name, decode(path.read_bytes()), name_hint=path.name)):
            for entry in parsers.parsers_for(part.text):
                held = out.setdefault(entry.name, [])
                if len(held) < _TEXTS_EACH:
                    held.append((entry, part.text))
    return out


def test_no_parser_stumbles_over_a_long_number() -> None:
    texts = _told_texts()
    assert len(texts) > 80
    for name, held in texts.items():
        for entry, text in held:
            for position in (EVERY, *range(8)):
                for number in (b"9" * 5000, b"9" * 400):
                    data = swollen("\n".join(text.split("\n")[:60]).encode(), position, number)
                    facts = parsers.parse(entry, Document("x.txt", data.decode()))
                    assert beyond_counting(facts) == [], f"{name}, number {position} of {text[:200]!r}"


def test_digits() -> None:
    assert [digits(text) for text in ("12", " 7\n", "-3", "007")] == [12, 7, -3, 7]
    assert [digits(text) for text in ("", "1.5", "x", "²", "٣", "1 2", "9" * 19, "9" * 5000, None)] == [None] * 9


def test_names_of_files_sort_whatever_their_numbers() -> None:
    assert sorted(["rank10", "rank2", "rank" + "9" * 5000], key=natural)[:2] == ["rank2", "rank10"]
