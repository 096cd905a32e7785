"""Typed, frozen records that travel between the rooms. Imports nothing of ours."""

from gpuclinic.model._boot import Boot
from gpuclinic.model._numbers import digits
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
from gpuclinic.model._watching import EVENT_KINDS, Event, Tick

__all__ = [
    "ACTIONS",
    "EVENT_KINDS",
    "LEVEL_CONFIDENCE",
    "SEVERITIES",
    "Boot",
    "Cause",
    "CouldNotError",
    "Document",
    "Event",
    "Evidence",
    "Fact",
    "Finding",
    "Gap",
    "NotRead",
    "ReadItem",
    "Scalar",
    "Signal",
    "Stamp",
    "Tick",
    "UserError",
    "Where",
    "digits",
]
