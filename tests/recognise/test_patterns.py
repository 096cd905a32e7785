from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuclinic.knowledge import load
from gpuclinic.recognise.patterns import for_hyperscan, longest_literal, plan


def test_a_simplified_expression_stays_on_its_line() -> None:
    assert re.search(for_hyperscan(r"a\s+b"), "a\nb") is None
    assert re.search(for_hyperscan(r"a[^x]b"), "a\nb") is None
    assert re.search(for_hyperscan(r"(?P<x>a)[\s]b"), "a b")
    assert re.search(for_hyperscan(r"a\Wb"), "a\nb") is None


def test_the_longest_literal_is_in_every_match() -> None:
    assert longest_literal(r"CUDA error: (?:out|in) of memory!") == ""
    assert longest_literal(r"\d+ device kernel image is invalid \d+") == " device kernel image is invalid "


@pytest.mark.parametrize(
    ("pattern", "texts"),
    [
        (r"GPU has fallen off the bus", {"GPU has fallen off the bus"}),
        (r"(?:Xid|SXid) \(PCI:", {"Xid (PCI:"}),
        (r"[Ww]atchdog caught collective", {"Watchdog caught collective", "watchdog caught collective"}),
        (r"显存不足", {"显存不足"}),
    ],
)
def test_telling_texts_are_found(pattern: str, texts: set[str]) -> None:
    assert set(plan(pattern).texts) == texts
    assert not plan(pattern).expressions


def test_what_has_no_telling_text_is_kept_as_an_expression() -> None:
    found = plan(r"\bstep[ =:]*(?P<step>\d+)\b")
    assert not found.texts
    assert len(found.expressions) == 1


def nominated(pattern: str, line: str, *, ignore_case: bool) -> bool:
    wanted = plan(pattern)
    data = line.encode("utf-8", "replace")
    flags = re.MULTILINE | (re.IGNORECASE if ignore_case else 0)
    texts = [text.lower() if ignore_case else text for text in wanted.texts]
    held = line.lower() if ignore_case else line
    return any(t in held for t in texts) or any(re.search(e.encode(), data, flags) for e in wanted.expressions)


def test_every_example_is_nominated_without_an_engine() -> None:
    missed = [
        (s.id, line)
        for s in load().signatures
        for line in s.match
        if not nominated(s.pattern, line, ignore_case=s.ignore_case or "(?i" in s.pattern)
    ]
    assert not missed


PIECES = st.sampled_from(
    [
        "abc",
        r"\d+",
        r"\s*",
        "[xyz]",
        "(?:one|two words)",
        ".{0,20}",
        "tail?",
        "显存",
        r"\w+",
        "[^:]+",
        "(?:un)?known",
        r"\bmid\b",
        "(?:a|b\\d)",
    ]
)


@given(
    st.lists(PIECES, min_size=1, max_size=6).map("".join),
    st.text(alphabet="abcxyz 0123:onetwrdsailukmi显存\n", max_size=80),
)
def test_nominations_are_never_too_few(pattern: str, text: str) -> None:
    for line in text.split("\n"):
        if re.search(pattern, line):
            assert nominated(pattern, line, ignore_case=False)
