"""Takes secrets and anything a terminal could obey out of texts that came from a log.

Every form of an answer passes through `clean`, JSON included: answers are pasted into tickets and chats.
"""

from __future__ import annotations

import re

from gpuclinic.recognise.secrets import HIDDEN, mask

__all__ = ["HIDDEN", "clean", "cleaned", "harmless", "mask"]

_BREAKS = re.compile(r"[\t\n\r\x0b\x0c\x85\u2028\u2029]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
_ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]{0,40}[ -/]{0,10}[@-~]|\][^\x07\x1b\n]{0,300}(?:\x07|\x1b\\)|[@-Z\\-_])"
    r"|\x9b[0-?]{0,40}[ -/]{0,10}[@-~]"
)


def harmless(text: str) -> str:
    """One line without escape sequences, control characters, direction overrides and lone surrogates."""
    if text.isascii() and text.isprintable():
        return text
    text = _ESCAPES.sub("", text)
    return _CONTROL.sub("\ufffd", _BREAKS.sub(" ", text))


def clean(text: str) -> str:
    """What may be shown of a text that came from outside."""
    return harmless(mask(text))


def cleaned(value: object) -> object:
    """The same for every text inside lists and dictionaries."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {key: cleaned(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [cleaned(item) for item in value]
    return value
