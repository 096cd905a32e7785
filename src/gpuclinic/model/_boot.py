"""Boots of a machine, as its log shows them."""

from __future__ import annotations

import msgspec

from gpuclinic.model._types import Where


class Boot(msgspec.Struct, frozen=True):
    """A start of a machine seen in a log; signals from it on have this boot number, those in front of it a lower one.

    clean: the shutdown in front of it was an orderly one; None where the log does not reach back so far.
    where: the line that shows the start.
    """

    source: str
    host: str | None
    boot: int
    clean: bool | None
    where: Where
