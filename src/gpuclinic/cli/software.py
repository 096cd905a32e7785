"""Hands the rules of compatibility to those below them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from gpuclinic.clinic.software_judge import SoftwareAnswer, SoftwareQuestion


def judge_software(question: SoftwareQuestion, lang: str) -> SoftwareAnswer:
    """Asks `gpuclinic.compat`, which is imported only when there is something to judge."""
    from gpuclinic.compat import Question, judge

    return judge(Question(**msgspec.structs.asdict(question)), lang)
