"""Typed, frozen records that travel between the rooms. Imports nothing of ours."""

from gpuclinic.model._boot import Boot
from gpuclinic.model._types import (
    ACTIONS,
    LEVEL_CONFIDENCE,
    SEVERITIES,
    Cause,
    CouldNotError,
    Document,
    Evidence,
    Fact,
    Finding,
    Gap,
    NotRead,
    ReadItem,
    Scalar,
    Signal,
    Stamp,
    UserError,
    Where,
)

__all__ = [
    "ACTIONS",
    "LEVEL_CONFIDENCE",
    "SEVERITIES",
    "Boot",
    "Cause",
    "CouldNotError",
    "Document",
    "Evidence",
    "Fact",
    "Finding",
    "Gap",
    "NotRead",
    "ReadItem",
    "Scalar",
    "Signal",
    "Stamp",
    "UserError",
    "Where",
]
