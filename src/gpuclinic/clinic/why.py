"""`why`: from a host to a ranked answer."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from gpuclinic.clinic.answer import MOST_CAUSES, MOST_EVIDENCE, Answer, build_cause, fingerprint
from gpuclinic.clinic.explained_versions import explain_versions
from gpuclinic.clinic.extras import extras
from gpuclinic.clinic.live_answer import add_live, looked_in_files
from gpuclinic.clinic.reading import Progress, Reader, Texts
from gpuclinic.clinic.recorded_run import subject_of_run
from gpuclinic.diagnose import diagnose
from gpuclinic.diagnose.decide import confidence
from gpuclinic.diagnose.evidence import Reading
from gpuclinic.diagnose.subject import narrow
from gpuclinic.knowledge import load
from gpuclinic.recognise.decoding import printable

if TYPE_CHECKING:
    from gpuclinic.clinic.gathering import Gathered
    from gpuclinic.clinic.software_judge import SoftwareJudge
    from gpuclinic.diagnose.candidates import Candidate
    from gpuclinic.diagnose.timeline import Timeline
    from gpuclinic.model import Cause, Where
    from gpuclinic.observe import Host

_CUT = re.compile(
    r"left out|the rest of it|cut short|[Pp]ermission|cannot be unpacked|needs the extra|refused as a bomb|more than twice"
)
"""Reasons for not reading that leave a hole in what was looked at."""
_VERDICT = 0.5
_SHOWN = 0.3
_TRACES = 3


def examine(
    host: Host,
    lang: str = "en",
    progress: Progress | None = None,
    gathered: Gathered | None = None,
    software: SoftwareJudge | None = None,
) -> Answer:
    """Reads the host and answers why it went wrong. gathered: what a running machine told beside; then only its subject is asked about.

    software: judges whether versions go together; an error that versions explain is then joined with them.
    """
    knowledge = load()
    reader = Reader(knowledge, progress)
    reader.read_host(host)
    if gathered is not None:
        if gathered.snapshot:
            gathered.subject.live |= {item.path for item in reader.read}
            gathered.facts.append(looked_in_files(reader.read))
        reader.read_host(Texts(gathered.texts))
        reader.facts.extend(gathered.facts)
        reader.not_read.extend(gap for gap in gathered.not_read if gap not in reader.not_read)
    sources = {item.path: item.kind for item in reader.read}
    reading = Reading(reader.signals, reader.facts, reader.counts, sources, boots=reader.boots)
    subject = gathered.subject if gathered is not None else subject_of_run(reader.facts, reader.read)
    if subject is not None:
        reading = narrow(reading, subject)
    result = diagnose(reading, knowledge, subject)
    answer = Answer(
        outcome="nothing_read", causes=[], read=reader.read, not_read=reader.not_read, missing=[], lang=lang
    )
    if not reader.read and gathered is None:
        return answer
    roots = [c for c in result.roots if confidence(c, result.roots, result.candidates) >= 0.05]
    answer.causes = _causes(roots, result.candidates, lang, result.timeline)
    if roots:
        best = answer.causes[0].confidence
        answer.outcome = "cause" if best >= _VERDICT else "hint"
        answer.fingerprint = fingerprint(roots[0])
        answer.host = roots[0].host
    else:
        answer.outcome = "nothing_wrong" if result.looked_fine else "not_enough_evidence"
    if answer.outcome == "nothing_wrong" and any(_CUT.search(item.why) for item in reader.not_read):
        answer.outcome = "not_enough_evidence"  # a part was not looked at: no word about it
    answer.missing = result.missing(lang)
    answer.notes = [_unknown_code(place, lang) for place in result.unknown_codes[:5]]
    if roots:
        notes, fields = extras(roots[0], reading, result.timeline, lang)
        answer.notes = [*answer.notes, *notes]
        answer.causes[0] = msgspec.structs.replace(answer.causes[0], extra=fields)
        if software is not None:
            explain_versions(answer, roots[0], reading, software)
    if gathered is not None:
        add_live(answer, gathered, reading, result)
    return answer


def _unknown_code(place: Where, lang: str) -> str:
    where = f"{place.source}:{place.line}: {place.text[:160]}"
    return (
        f"目录中没有的错误码，请保留原文并咨询厂商：{where}"
        if lang == "zh"
        else f"A code that no catalogue lists; keep the line and ask the vendor: {where}"
    )


def _causes(roots: list[Candidate], candidates: list[Candidate], lang: str, timeline: Timeline) -> list[Cause]:
    causes: list[Cause] = []
    if not roots:
        return causes
    root = roots[0]
    sure = confidence(root, roots, candidates)
    followers = [c for c in candidates if c.explained_by is not None and _leads_to(c, root)]
    followers.sort(key=lambda c: (-c.strength, c.order))
    causes.append(build_cause(root, "c1", "root", sure, lang, timeline))
    causes[0] = msgspec.structs.replace(causes[0], evidence=_with_traces(causes[0].evidence, followers))
    for follower in followers[: MOST_CAUSES - 1]:
        causes.append(
            build_cause(follower, f"c{len(causes) + 1}", "consequence", min(sure, follower.strength), lang, timeline)
        )
    causes[0] = msgspec.structs.replace(causes[0], explains=[c.key for c in causes[1:]])
    for other in roots[1:]:
        if len(causes) >= MOST_CAUSES:
            break
        if other.strength >= _SHOWN:
            left = max(0.05, min(other.strength, 1.0 - sure)) if sure >= _VERDICT else min(other.strength, sure)
            causes.append(build_cause(other, f"c{len(causes) + 1}", "alternative", round(left, 3), lang, timeline))
    return causes


def _with_traces(evidence: list[Where], followers: list[Candidate]) -> list[Where]:
    """The root's own lines, then where there is room the line in which each of its plainest consequences shows."""
    out = list(evidence)
    for follower in followers[:_TRACES]:
        best = max(follower.supports, key=lambda s: (s.worth, -s.order), default=None)
        if follower.strength >= _VERDICT and best is not None and best.places and len(out) < MOST_EVIDENCE:
            place = msgspec.structs.replace(best.places[0], text=printable(best.places[0].text))
            out += [place] if place not in out else []
    return out


def _leads_to(candidate: Candidate, root: Candidate) -> bool:
    step: Candidate | None = candidate
    while step is not None:
        if step is root:
            return True
        step = step.explained_by
    return False
