"""Numbers as programs and kernels print them, out of texts that anybody may have written."""

from __future__ import annotations

import re

_WHOLE = re.compile(r"-?[0-9]{1,18}")


def digits(text: str | None) -> int | None:
    """The whole number that a text writes, blanks around it left out; None where it is none, or longer than any counter is.

    int() itself refuses texts of more than 4,300 digits, takes quadratic time for those below, and makes numbers that no float can hold.
    """
    if text is None or len(text) > 64:
        return None
    word = text.strip()
    return int(word) if _WHOLE.fullmatch(word) else None
