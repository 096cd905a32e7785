"""Builds the answer that reports print: texts of the asked language, places filled in, the contract's fields."""

from __future__ import annotations

import datetime
import hashlib
import re
from typing import TYPE_CHECKING, Any

import msgspec

from gpuclinic.knowledge.actions import action_step
from gpuclinic.knowledge.causes import cause_info
from gpuclinic.model import Cause, NotRead, ReadItem, Where
from gpuclinic.recognise.decoding import printable

if TYPE_CHECKING:
    from gpuclinic.diagnose.candidates import Candidate, Support
    from gpuclinic.diagnose.timeline import Timeline
    from gpuclinic.knowledge import CauseInfo

_SHELL_SAFE = re.compile(r"[\w:.@/+,-]{1,200}", re.ASCII)
MOST_EVIDENCE = 8
MOST_CAUSES = 12


class Answer(msgspec.Struct):
    """What `why` found. outcome: cause, hint, nothing_wrong, not_enough_evidence or nothing_read.

    live: a running machine, or the recording of one, was asked. asked: of it: pid, job, since, until (Unix seconds), those that were given.
    """

    outcome: str
    causes: list[Cause]
    read: list[ReadItem]
    not_read: list[NotRead]
    missing: list[dict[str, str]]
    lang: str
    host: str | None = None
    fingerprint: str | None = None
    timeline: list[dict[str, Any]] = []
    notes: list[str] = []
    asked: dict[str, Any] = {}
    boot_id: str | None = None
    live: bool = False


def fill(template: str, values: dict[str, Any]) -> str:
    """A text with its {places} filled; a text with a place nobody knows is dropped (empty)."""
    if "{" not in template:
        return template
    out: list[str] = []
    rest = template
    while "{" in rest:
        before, _, tail = rest.partition("{")
        name, closed, rest = tail.partition("}")
        if not closed or not name.isidentifier():
            return template
        value = values.get(name)
        if value is None or value == "":
            return ""
        out.append(before + str(value))
    return "".join(out) + rest


def build_cause(candidate: Candidate, key: str, role: str, sure: float, lang: str, timeline: Timeline) -> Cause:
    """One element of the answer's causes."""
    info = cause_info(candidate.cause)
    best = sorted(candidate.supports, key=lambda s: (-s.worth, s.order))
    values = _values(candidate, best)
    suffix = "zh" if lang == "zh" else "en"
    titles = [fill(s.texts.get(f"title_{suffix}", ""), {**values, **s.groups}) for s in best]
    title = (
        next((t for t in titles if t), "")
        or fill(getattr(info, f"title_{suffix}"), values)
        or str(getattr(info, f"title_{suffix}"))
    )
    steps = _steps(candidate, info, best, values, suffix)
    return Cause(
        key=key, role=role, id=candidate.cause, confidence=sure, domain=info.domain, title=printable(title)[:300],
        explanation=" ".join([getattr(info, f"text_{suffix}"), *candidate.notes]).strip(), action=candidate.action or info.action, steps=steps[:8],
        evidence=choose_evidence(best), explains=[], gpu=_named_gpu(candidate), gpu_index=candidate.gpu_index,
        gpu_uuid=candidate.gpu_uuid, gpus=candidate.gpus, pid=candidate.pid, rank=candidate.rank, host=candidate.host,
        time=None if role != "root" and candidate.moment is not None and candidate.moment.earliest else _time(candidate, timeline),
    )  # fmt: skip


def _steps(
    candidate: Candidate, info: CauseInfo, best: list[Support], values: dict[str, Any], suffix: str
) -> list[dict[str, str]]:
    """What to do in order: the case's own advice, its action where that is not the cause's usual one, then the cause's steps."""
    steps: list[dict[str, str]] = []

    def add(text: str, command: str, risk: str, places: dict[str, Any]) -> None:
        if text and all(text != s["text"] for s in steps):
            steps.append(
                {"text": text, "command": fill(command, {k: _harmless(v) for k, v in places.items()}), "risk": risk}
            )

    own = action_step(candidate.action) if candidate.action and candidate.action != info.action else None
    named = [s for s in best if s.action and s.action == candidate.action and s.texts.get(f"advice_{suffix}")][:1]
    advised = bool(named) or (candidate.action == "none" and any(s.texts.get("command") for s in best[:1]))
    if own is not None and own.risk == "none" and not advised:
        add(fill(getattr(own, suffix), values), own.command, own.risk, values)
    for support in [*named, *best[:2]]:  # what asks for this action says it more exactly than the action's own sentence
        places = {**values, **support.groups}
        add(fill(support.texts.get(f"advice_{suffix}", ""), places), support.texts.get("command", ""), "none", places)
    risky = own is not None and own.risk != "none"
    for step in info.steps:
        if (
            risky and own is not None and step.risk != "none"
        ):  # after what is safe, as saving the evidence, and before other risks
            add(fill(getattr(own, suffix), values), own.command, own.risk, values)
            risky = False
        add(fill(getattr(step, suffix), values), step.command, step.risk, values)
    if risky and own is not None:
        add(fill(getattr(own, suffix), values), own.command, own.risk, values)
    return steps


def _harmless(value: Any) -> str:
    """A log's value where it may stand in a command that somebody pastes into a shell; nothing where it may not."""
    text = str(value)
    return text if _SHELL_SAFE.fullmatch(text) else ""


def _named_gpu(candidate: Candidate) -> str | None:
    """The address; for what an application said of its own device, the index it used (CUDA's order need not be the bus's)."""
    if candidate.gpu_index is not None and candidate.cause.startswith(
        ("app.cuda_oom", "compat.", "app.visible", "app.vram", "process.orphan")
    ):
        return str(candidate.gpu_index)
    return candidate.gpu or _index_text(candidate)


def _index_text(candidate: Candidate) -> str | None:
    return str(candidate.gpu_index) if candidate.gpu_index is not None else None


def _values(candidate: Candidate, best: list[Support]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for support in reversed(best[:4]):
        values.update(support.groups)
    known = {
        "gpu": candidate.gpu or _index_text(candidate),
        "gpu_index": candidate.gpu_index,
        "pid": candidate.pid,
        "rank": candidate.rank,
    }
    known |= {"host": candidate.host, "uuid": candidate.gpu_uuid}
    values.update({k: v for k, v in known.items() if v is not None})
    return values


def choose_evidence(supports: list[Support]) -> list[Where]:
    """The few lines that decide: the first of each reason, best reasons first, then further ones, in order of worth."""
    chosen: list[Where] = []
    seen: set[tuple[str, str]] = set()
    for turn in range(3):
        for support in supports:
            if turn < len(support.places) and len(chosen) < MOST_EVIDENCE:
                place = support.places[turn]
                key = (place.source, place.text)
                if key not in seen:
                    seen.add(key)
                    chosen.append(msgspec.structs.replace(place, text=printable(place.text)))
    return chosen


def _time(candidate: Candidate, timeline: Timeline) -> str | None:
    """ISO time of the first evidence; a zone only where the log gave one."""
    moment = candidate.moment
    if moment is None or moment.clock != "wall":
        return None
    try:
        when = datetime.datetime.fromtimestamp(moment.seconds, datetime.timezone.utc)
    except (OverflowError, ValueError, OSError):
        return None
    if timeline.year_known is False and when.year in (1999, 2000):  # the placeholder of stamps without a year
        return None
    text = when.isoformat()
    return text if timeline.zoned else text.removesuffix("+00:00")


def fingerprint(candidate: Candidate) -> str:
    """The same for the same fault on the same thing, whatever the host or time."""
    thing = candidate.gpu or (str(candidate.gpu_index) if candidate.gpu_index is not None else "")
    return fingerprint_of(candidate.cause, thing)


def fingerprint_of(cause: str, thing: str) -> str:
    """The fingerprint of a cause and a GPU (its address, else its index, else nothing)."""
    return hashlib.blake2b(f"{cause} {thing}".encode(), digest_size=8).hexdigest()
