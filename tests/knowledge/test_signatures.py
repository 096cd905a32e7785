"""Every signature's own lines: those that must match do, those that must not do not, by both engines."""

from __future__ import annotations

import pytest

from gpuclinic.knowledge import Signature, load
from gpuclinic.knowledge.causes import cause_ids
from gpuclinic.model import ACTIONS, LEVEL_CONFIDENCE
from gpuclinic.recognise.engine import Confirmer, Engine, PlainEngine, make_engine, needles_of

SIGNATURES = load().signatures


@pytest.mark.parametrize("signature", SIGNATURES, ids=lambda s: s.id)
def test_lines_that_must_and_must_not_match(signature: Signature) -> None:
    confirmer = Confirmer([signature])
    assert signature.match
    for line in signature.match:
        assert confirmer.confirm(0, line), f"must match: {line!r}"
    for line in signature.nomatch:
        assert not confirmer.confirm(0, line), f"must not match: {line!r}"


def test_ids_are_unique_and_fields_are_known() -> None:
    ids = [s.id for s in SIGNATURES]
    assert len(set(ids)) == len(ids)
    causes = set(cause_ids())
    for signature in SIGNATURES:
        assert signature.level in LEVEL_CONFIDENCE
        assert signature.role in ("root", "consequence")
        assert bool(signature.cause) == (signature.level != "context"), signature.id
        assert not signature.cause or signature.cause in causes, signature.id
        assert not signature.action or signature.action in ACTIONS, signature.id
        assert signature.source
        assert set(signature.cleared_by) <= set(ids), signature.id


@pytest.mark.parametrize(
    "engine",
    [make_engine(SIGNATURES, ""), PlainEngine(needles_of([(s.pattern, s.ignore_case) for s in SIGNATURES], ""))],
    ids=lambda e: e.name,
)
def test_engine_nominates_every_must_match_line(engine: Engine) -> None:
    missed = []
    nominated = [*(set(needle.signatures) for needle in engine.needles), set()]
    for number, signature in enumerate(SIGNATURES):
        for line in signature.match:
            hits = engine.scan(f"before\n{line}\nafter\n".encode())
            if not any(number in nominated[needle] for _, needle in hits):
                missed.append((signature.id, line))
    assert not missed
