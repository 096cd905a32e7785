"""What the tests of host and cluster parsers share."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from gpuclinic.model import Document, Fact
from gpuclinic.recognise.parsers import parse, parsers_for

SHARED = Path(os.environ.get("GPUCLINIC_SHARED", Path(__file__).parents[3].parent / "shared"))


def read(text: str, source: str = "paste.txt") -> list[Fact]:
    """Facts of all parsers whose marks the text shows."""
    document = Document(source, text)
    return [fact for entry in parsers_for(text) for fact in parse(entry, document)]


def of(text: str, kind: str, source: str = "paste.txt") -> list[dict[str, object]]:
    """Fields of the facts of one kind."""
    return [fact.fields for fact in read(text, source) if fact.kind == kind]


def one(text: str, kind: str, source: str = "paste.txt") -> dict[str, object]:
    """Fields of the only fact of a kind."""
    found = of(text, kind, source)
    assert len(found) == 1, found
    return found[0]


def shared(*parts: str) -> str:
    """Text of a real output; skips where the data folder is absent."""
    path = SHARED.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"no shared data at {path}")
    return path.read_text(errors="replace")


def damage(text: str, seed: int) -> list[str]:
    """The text cut, shuffled and soiled: what a parser must survive."""
    chance = random.Random(seed)
    lines = text.split("\n")
    shuffled = lines[:]
    chance.shuffle(shuffled)
    soiled = list(text)
    for _ in range(max(3, len(soiled) // 20)):
        soiled[chance.randrange(len(soiled))] = chance.choice("\x00\t |:={}[]\"'%文9-\n")
    cuts = [text[: chance.randrange(len(text))] for _ in range(4)]
    return [*cuts, "\n".join(shuffled), "".join(soiled), text.replace(" ", "  "), text * 3, text.replace("\n", " ")]
