"""Sizes as people write them; light to import."""

from __future__ import annotations

import re


def size_of(text: str) -> int | None:
    """Bytes of "50M", "1G", "800k"; None where it is no size between 64 KiB and 4 GiB.

    >>> size_of("50M"), size_of("1.5G"), size_of("1")
    (52428800, 1610612736, None)
    """
    found = re.fullmatch(r"(\d{1,9}(?:\.\d+)?)\s?([kmg]?)(?:i?b)?", text.strip().lower())
    size = int(float(found[1]) * {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}[found[2]]) if found else 0
    return size if (1 << 16) <= size <= (4 << 30) else None
