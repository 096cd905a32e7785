"""Widths and breaks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpuclinic.report._layout import columns, ranges, shorten, wrap

CHINESE = (
    "驱动已无法通过 PCIe 访问该 GPU。用到这张卡的进程会在下一次调用时报错退出或卡死，"
    "其他卡上的 rank 随后超时（见 Xid 79）。"
)


def test_columns() -> None:
    assert columns("GPU") == 3
    assert columns("掉卡") == 4
    assert columns("e\u0301") == 1
    assert columns("，") == 2


def test_wrap_chinese() -> None:
    for width in (20, 33, 40, 80):
        lines = wrap(CHINESE, width)
        assert all(columns(line) <= width for line in lines)
        assert "".join(lines).replace(" ", "") == CHINESE.replace(" ", "")
        assert not any(line[0] in "，。、；：）" for line in lines)
        assert not any(line[-1] == "（" for line in lines)


def test_wrap_english_keeps_words() -> None:
    text = "The driver can no longer reach the GPU over PCIe."
    assert " ".join(wrap(text, 20)) == text
    assert wrap("", 20) == [""]


@given(st.text(st.sampled_from("ab 显存，。（)/-\u0301"), max_size=120), st.integers(8, 60))
def test_wrap_never_exceeds_the_width(text: str, width: int) -> None:
    assert all(columns(line) <= width for line in wrap(text, width))


def test_shorten() -> None:
    assert shorten("short", 10) == "short"
    assert columns(shorten("显存不足显存不足", 9)) <= 9
    assert shorten("abcdefgh", 5) == "abcd…"


def test_ranges() -> None:
    assert ranges([3, 1, 2, 7]) == "1-3,7"
    assert ranges([1, 2]) == "1,2"
    assert ranges([]) == ""
