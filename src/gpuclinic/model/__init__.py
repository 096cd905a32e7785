"""Typed, frozen records that travel between the rooms. Imports nothing of ours."""

from gpuclinic.model._boot import Boot
from gpuclinic.model._types import (
    ACTIONS,
    LEVEL_CONFIDENCE,
    Cause,
    Document,
    Evidence,
    Fact,
    NotRead,
    ReadItem,
    Signal,
    Stamp,
    UserError,
    Where,
)

__all__ = [
    "ACTIONS",
    "LEVEL_CONFIDENCE",
    "Boot",
    "Cause",
    "Document",
    "Evidence",
    "Fact",
    "NotRead",
    "ReadItem",
    "Signal",
    "Stamp",
    "UserError",
    "Where",
]
