"""The general step of each action."""

from __future__ import annotations

from gpuclinic.knowledge.actions import action_step
from gpuclinic.model import ACTIONS


def test_each_action_has_a_step_in_both_languages() -> None:
    for action in ACTIONS:
        step = action_step(action)
        assert step is not None, action
        assert step.en.isascii()
        assert any("\u4e00" <= c <= "\u9fff" for c in step.zh)
        assert step.risk in {"none", "job", "gpu", "node"}
    assert action_step("no such action") is None
