"""Regular expressions as Go's RE2 reads them, which Prometheus and node-problem-detector use; both match the whole text. Pure."""

from __future__ import annotations

import re


def contains(pattern: str) -> str:
    """Matches a text that has the pattern somewhere in it. pattern: in the common part of Python's and Go's language."""
    flags = "(?i)" if pattern.startswith("(?i)") else ""
    inner = pattern.removeprefix("(?i)")
    return f"{flags}.*(?:{inner}).*"


def literal(text: str) -> str:
    """Matches this text alone. Python escapes blanks and more, which Go does not want."""
    return re.sub(r"([\\.+*?()|\[\]{}^$])", r"\\\1", text)
