"""Why something could not be looked at, in Chinese (knowledge/data/tables/gap_words.tsv); the reasons themselves are made in English."""

from __future__ import annotations

import functools
import re

from gpuclinic.knowledge._load import DATA

_HAN = r"[\u3400-\u9fff\u3001\u3002\uff00-\uffef]"
_HALF = re.compile(rf"(?<={_HAN})([,;:]) ?|([,;]) ?(?={_HAN})")
_FULL = {",": "，", ";": "；", ":": "："}


@functools.cache
def _rows() -> list[tuple[str, str]]:
    """Parts of sentences, longest first."""
    lines = (DATA / "tables" / "gap_words.tsv").read_text(encoding="utf-8").splitlines()[1:]
    pairs = [(line.split("\t")[0], line.split("\t")[1]) for line in lines]
    return sorted(pairs, key=lambda pair: -len(pair[0]))


def gap_words(why: str, lang: str) -> str:
    """The reason in a language."""
    if lang != "zh":
        return why
    for english, chinese in _rows():
        why = why.replace(english, chinese)
    return full_width(why)


def full_width(text: str) -> str:
    """Commas, semicolons and colons beside Chinese characters as Chinese has them."""
    return _HALF.sub(lambda found: _FULL[found[1] or found[2]], text)
