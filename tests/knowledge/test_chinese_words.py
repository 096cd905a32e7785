"""Chinese texts have Chinese punctuation, and reasons for gaps are translated wherever they are shown."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from gpuclinic.knowledge._load import DATA
from gpuclinic.knowledge.gap_words import full_width, gap_words
from gpuclinic.store._toml import toml_loads

if TYPE_CHECKING:
    from collections.abc import Iterator

HALF = re.compile(r"[\u4e00-\u9fff\u3001\u3002\uff08\uff09][,;:]|[,;] ?[\u4e00-\u9fff]")


def _texts(value: Any, name: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _texts(inner, key)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner, name)
    elif isinstance(value, str) and (name == "zh" or name.endswith("_zh")):
        yield value


@pytest.mark.parametrize("place", sorted(DATA.rglob("*.toml")), ids=lambda p: f"{p.parent.name}/{p.name}")
def test_no_half_width_punctuation_beside_chinese(place: Any) -> None:
    assert [text for text in _texts(toml_loads(place.read_text("utf-8"))) if HALF.search(text)] == []


@pytest.mark.parametrize(
    "why",
    [
        "no NVIDIA GPU stands on the PCI bus; where that is right, say --expect-gpus 0",
        "/proc: it lists no process",
        "not among those that a capture keeps",
        "over the size cap (--max-size)",
        "the environment of 3 processes of other users cannot be read; as root it can",
        "libnvidia-ml.so.1 cannot be read",
    ],
)
def test_reasons_are_translated(why: str) -> None:
    told = gap_words(why, "zh")
    assert not re.search(r"[a-z]{3,} [a-z]{2,} [a-z]{2,}", told), told
    assert not HALF.search(told)
    assert gap_words(why, "en") == why


def test_full_width() -> None:
    assert full_width("总线; 其余, 正常") == "总线；其余，正常"
    assert full_width("a, b; c: d") == "a, b; c: d"
