"""TOML, by the standard library where it has it."""

from __future__ import annotations

import sys
from typing import Any


def toml_loads(text: str) -> dict[str, Any]:
    """A TOML text as a dictionary. Raises ValueError, which names line and column."""
    if sys.version_info >= (3, 11):
        import tomllib as toml
    else:
        import tomli as toml
    return toml.loads(text)
