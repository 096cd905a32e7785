"""What `check` says of the machine now, beside what `why` read: a fault that no log tells of is still why things do not run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from gpuclinic.clinic.answer import MOST_CAUSES, fill, fingerprint_of
from gpuclinic.clinic.checking import CheckOptions, as_recorded, check
from gpuclinic.knowledge.causes import cause_info
from gpuclinic.knowledge.gap_words import gap_words
from gpuclinic.knowledge.records import sentence
from gpuclinic.model import LEVEL_CONFIDENCE, Cause

if TYPE_CHECKING:
    from gpuclinic.clinic.answer import Answer
    from gpuclinic.clinic.checking import CheckAnswer
    from gpuclinic.clinic.gathering import Question
    from gpuclinic.model import Finding
    from gpuclinic.observe.asking import Asked

_MOST_TOLD = 4
_BESIDE = 0.3
"""Of what is not the first: it may have had a part."""

_RESTARTS = ("kernel.reboot.unexpected", "kernel.reboot.again_and_again")
"""Their subject is the time of the boot, in ISO 8601 and UTC as the times of causes of a running machine are."""
_OF_ONE_PROCESS = ("app.", "process.", "compat.", "host.cgroup_oom", "host.limits", "host.shm_exhausted")


def state_of(host: Asked, question: Question, lang: str) -> CheckAnswer | None:
    """The quick check of a running server (or of its recording), where the question is about all that is recent and reaches up to now."""
    if not host.live or question.pid is not None or question.job is not None or question.until is not None:
        return None
    return check(host, as_recorded(host, CheckOptions(lang=lang)))


def add_state(answer: Answer, state: CheckAnswer) -> None:
    """Critical findings are causes where the logs named none; else, and with warnings, they are told beside."""
    told = {cause.id for cause in answer.causes}
    critical = [f for f in state.findings if f.severity == "critical" and f.cause not in told]
    named = [f for f in critical if f.cause]
    if answer.outcome == "cause" or not named:
        restart = _restart_since(answer, state)
        named = [restart] if restart is not None else []
    if named:
        causes = _causes(named, answer.causes)
        answer.causes, answer.outcome, answer.missing = causes, "cause", []
        root = causes[0]
        answer.fingerprint = fingerprint_of(
            root.id, root.gpu or ("" if root.gpu_index is None else str(root.gpu_index))
        )
        answer.host = root.host or answer.host
        critical = [f for f in critical if not f.cause]
        told |= {root.id}
    warnings = [f for f in state.findings if f.severity == "warning" and f.cause not in told]
    required = [f"{gap.check}: {gap_words(gap.why, answer.lang)}" for gap in state.not_looked_at if gap.required]
    if answer.outcome == "nothing_wrong" and (critical or state.verdict == "unknown"):
        answer.outcome = "not_enough_evidence"
    for name, what in (
        ("state_critical", [_shown(f) for f in critical]),
        ("state_warning", [_shown(f) for f in warnings]),
        ("state_unknown", required if state.verdict == "unknown" else []),
    ):
        if what:
            more = [f"+{len(what) - _MOST_TOLD}"] if len(what) > _MOST_TOLD else []
            text = ("；" if answer.lang == "zh" else "; ").join([*what[:_MOST_TOLD], *more])
            answer.notes.append(fill(sentence(name, answer.lang), {"what": text}))


def _restart_since(answer: Answer, state: CheckAnswer) -> Finding | None:
    """The machine went down unasked after the last death that the logs tell of: that ended everything which ran since.

    Not where the logs' cause may itself have brought the machine down.
    """
    found = next((f for f in state.findings if f.id in _RESTARTS and f.severity != "info"), None)
    if found is None:
        return None
    for root in answer.causes[:1]:
        if not root.id.startswith(_OF_ONE_PROCESS) or (root.time is not None and root.time >= found.subject):
            return None
    return msgspec.structs.replace(found, time=found.subject)


def _shown(finding: Finding) -> str:
    return f"{finding.title} ({finding.subject})" if finding.subject not in finding.title else finding.title


def _causes(findings: list[Finding], others: list[Cause]) -> list[Cause]:
    """The first finding as the root, further ones and what the logs hinted at as alternatives."""
    sure = LEVEL_CONFIDENCE["strong"]
    first, *rest = [_cause(f, str(f.cause), sure if f is findings[0] else _BESIDE) for f in findings]
    seen = {first.id}
    kept = [first]
    for cause in [*rest, *(msgspec.structs.replace(c, confidence=min(c.confidence, _BESIDE)) for c in others)]:
        if cause.id not in seen and len(kept) < MOST_CAUSES:
            seen.add(cause.id)
            kept.append(msgspec.structs.replace(cause, role="alternative", key=f"c{len(kept) + 1}", explains=[]))
    alike = [g for f in findings if f.cause == first.id and (g := f.gpu)]
    kept[0] = msgspec.structs.replace(first, gpus=list(dict.fromkeys(alike)))
    return kept


def _cause(finding: Finding, cause: str, confidence: float) -> Cause:
    """A finding as an element of the answer's causes."""
    info = cause_info(cause)
    return Cause(
        key="c1", role="root", id=cause, confidence=confidence, domain=info.domain, title=finding.title, explanation=finding.detail,
        action=finding.action, steps=finding.steps, evidence=finding.evidence, explains=[], gpu=finding.gpu, gpu_index=finding.gpu_index,
        gpus=[finding.gpu] if finding.gpu else [], pid=finding.pid, host=finding.host, time=finding.time,
    )  # fmt: skip
