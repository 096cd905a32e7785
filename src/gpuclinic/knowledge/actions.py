"""The general step of each action, for where the case at hand asks for another than its cause's own."""

from __future__ import annotations

import functools

from gpuclinic.knowledge._load import DATA
from gpuclinic.knowledge._records import Step


@functools.cache
def _all() -> dict[str, Step]:
    lines = (DATA / "actions.tsv").read_text(encoding="utf-8").splitlines()[1:]
    rows = (line.split("\t") for line in lines if line)
    return {action: Step(en, zh, command, risk) for action, en, zh, command, risk in rows}


def action_step(action: str) -> Step | None:
    """What to do first for an action of the contract; None for an action that is not in it."""
    return _all().get(action)
