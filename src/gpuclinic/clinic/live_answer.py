"""What an answer about a running machine says beside the causes: how the process is, what would have told more, what was asked."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Any

import msgspec

from gpuclinic.clinic.answer import build_cause, fill
from gpuclinic.clinic.live_state import add_state
from gpuclinic.knowledge.records import sentence, wished
from gpuclinic.model import Fact, Where

if TYPE_CHECKING:
    from gpuclinic.clinic.answer import Answer
    from gpuclinic.clinic.gathering import Gathered
    from gpuclinic.diagnose.diagnosis import Diagnosis
    from gpuclinic.diagnose.evidence import Reading
    from gpuclinic.diagnose.subject import Subject
    from gpuclinic.model import ReadItem

_OUTSIDE = ("process.killed",)
"""Causes of which somebody is the author whom only a record could name."""
_PROVEN = 0.9
_KERNEL_LOG = re.compile(r"journalctl -k|dmesg")
_KERNEL_FILE = re.compile(r"dmesg|kmsg|kern\.log|journalctl-k")
_PLACE = re.compile(r"\b(?:PID|JOBID|NAME|NAMESPACE|POD|CONTAINER|UNIT)\b|gpuclinic why \.\.\.")
_OF_TRAINING = re.compile(r"torchrun|py-spy|pip install|\brank|rank ", re.IGNORECASE)
"""Advice that makes sense for Python alone, and mostly for several of them."""
_FIRST = ("kernel_log", "journal", "other_user", "refused_to_root", "scheduler", "containers", "kubernetes", "stacks")
"""Records that exist and only have to be read come before those that would have to be kept from now on."""
_OF_THE_SENDER = frozenset({"audit", "run", "accounting"})


def add_live(answer: Answer, gathered: Gathered, reading: Reading, result: Diagnosis) -> None:
    """Completes the answer; decides between "nothing wrong" and "not enough evidence" by what the process itself shows."""
    subject = gathered.subject
    answer.live = True
    answer.host, answer.boot_id = answer.host or gathered.host, gathered.boot_id
    answer.asked = {
        k: v for k, v in (("pid", subject.pid), ("since", subject.since), ("until", subject.until)) if v is not None
    }
    words = [*gathered.words, *_ended_well(reading, subject)]
    answer.notes = [
        text for name, values in words if (text := fill(sentence(name, answer.lang), dict(values)))
    ] + answer.notes
    answer.notes += _aside(result, answer.lang)
    if not answer.causes:
        answer.outcome = _outcome(answer.outcome, subject, words, gathered)
    if gathered.state is not None:
        add_state(answer, gathered.state)
    wanted = list(gathered.wanted)
    sure = answer.outcome == "cause" and not answer.causes[0].id.startswith(_OUTSIDE)
    gone_or_never = subject.asked == "pid" and subject.gone and not subject.existed and not result.candidates
    unknown = gone_or_never or (subject.asked == "job" and not subject.job_known)
    if sure or answer.outcome == "nothing_wrong" or unknown:
        wanted = [name for name in wanted if name not in _OF_THE_SENDER]
    if sure:
        wanted = []
        if answer.causes[0].confidence >= _PROVEN:
            answer.missing = []
    elif not unknown and not gathered.snapshot and not (subject.named and answer.outcome == "nothing_wrong"):
        wanted += ["check"] if subject.named else ["check", "own_log"]
    if any(f.kind == "looked" and f.fields.get("kernel_log") for f in reading.facts):
        answer.missing = [item for item in answer.missing if not _KERNEL_LOG.match(item["command"])]
    wanted.sort(key=lambda name: name not in _FIRST)
    told = {item["command"] for item in answer.missing}
    answer.missing = [item for item in wished(wanted, answer.lang) if item["command"] not in told] + answer.missing
    _as_asked(answer, gathered)


def _as_asked(answer: Answer, gathered: Gathered) -> None:
    """Advice with the number or name that was asked about in place of PID, JOBID and the like; none about Python for what is none."""
    values = _places(gathered)

    def said(command: str) -> str:
        return _PLACE.sub(lambda found: values.get(found[0], found[0]), command)

    def fits(item: dict[str, str]) -> bool:
        return gathered.subject.python is not False or not _OF_TRAINING.search(
            " ".join(item.get(name, "") for name in ("what", "text", "command"))
        )

    answer.missing = [{**item, "command": said(item["command"])} for item in answer.missing if fits(item)]
    answer.causes = [
        msgspec.structs.replace(
            cause,
            steps=[{**s, "command": said(s.get("command", ""))} for s in [step for step in cause.steps if fits(step)]],
        )
        for cause in answer.causes
    ]


def _places(gathered: Gathered) -> dict[str, str]:
    """What stands for whom in commands of our data -> what was asked about, fit for a shell."""
    pid, job = gathered.subject.pid, gathered.job
    if pid is not None:
        return {"PID": str(pid), "gpuclinic why ...": f"gpuclinic why --pid {pid}"}
    if job is None:
        return {"gpuclinic why ...": "gpuclinic why --live"}
    name = shlex.quote(job.name)
    found = {"gpuclinic why ...": f"gpuclinic why --job {shlex.quote(job.shown)}"}
    if job.kind == "pod":
        return {**found, "NAME": name, "POD": name, "NAMESPACE": job.namespace}
    if job.kind == "slurm":
        return {**found, "JOBID": name}
    return {**found, "NAME": name, "CONTAINER": name, **({"UNIT": name} if job.kind == "unit" else {})}


def _aside(result: Diagnosis, lang: str) -> list[str]:
    """The gravest fault of the machine that nothing ties to the process or job: told, but not as its cause."""
    notes: list[str] = []
    for candidate in result.aside[:1]:
        cause = build_cause(candidate, "", "alternative", candidate.strength, lang, result.timeline)
        place = next((f"{e.source}:{e.line}" if e.line else e.source for e in cause.evidence), "")
        title = cause.title + (f", {cause.time}" if cause.time else "")
        notes.append(fill(sentence("aside", lang), {"title": title, "place": place, "command": "gpuclinic why --live"}))
    return notes


def looked_in_files(read: list[ReadItem]) -> Fact:
    """Whether a kernel log was among the files of a snapshot."""
    logs = [item for item in read if item.kind == "kernel log" or _KERNEL_FILE.search(item.path)]
    place = Where(logs[0].path if logs else "", None, "kernel log: " + ("read" if logs else "not read"))
    return Fact("looked", "logs", {"kernel_log": bool(logs)}, {"": place}, place.source)


def _ended_well(reading: Reading, subject: Subject) -> list[tuple[str, dict[str, Any]]]:
    return [
        ("ended_well", {"pid": f.fields.get("pid"), "recorder": f.fields.get("recorder")})
        for f in reading.facts
        if f.kind == "death"
        and f.fields.get("exit_code") == 0
        and (not subject.pids or f.fields.get("pid") in subject.pids)
    ][:1]


def _outcome(outcome: str, subject: Subject, words: list[tuple[str, Any]], gathered: Gathered) -> str:
    """Without a cause: a process that gets on, or ended well, is in order; one that stands or is gone without a trace is not explained."""
    if subject.asked == "pid":
        if subject.alive:
            return "nothing_wrong" if subject.progresses else "not_enough_evidence"
        return "nothing_wrong" if any(name == "ended_well" for name, _ in words) else "not_enough_evidence"
    if subject.asked == "job" and any(name == "job_unknown" for name, _ in words):
        return "not_enough_evidence"
    if outcome == "nothing_wrong" and {"kernel_log"} & set(gathered.wanted):
        return "not_enough_evidence"
    return outcome
