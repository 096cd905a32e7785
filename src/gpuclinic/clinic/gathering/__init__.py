"""Asks a machine for everything that may say why a process or job died or hangs; what it refused is told, too."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from gpuclinic.clinic.gathering._gathered import Gathered
from gpuclinic.clinic.gathering._question import Job, Question, as_moment, parse_job, parse_moment
from gpuclinic.clinic.gathering.changes import gather_changes
from gpuclinic.clinic.gathering.jobs import gather_job, gather_owner, gather_recent_jobs
from gpuclinic.clinic.gathering.logs import gather_logs
from gpuclinic.clinic.gathering.memory import gather_memory
from gpuclinic.clinic.gathering.process import gather_process
from gpuclinic.clinic.gathering.records import gather_records
from gpuclinic.clinic.gathering.user_logs import gather_user_logs
from gpuclinic.clinic.looks._look import as_number, zone_of
from gpuclinic.clinic.stumbling import stumbled
from gpuclinic.diagnose.subject import Subject
from gpuclinic.model import Fact, Stamp, UserError, Where

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpuclinic.observe.asking import Asked

__all__ = ["Gathered", "Job", "Question", "as_moment", "gather", "parse_job", "parse_moment"]

RECENT_S = 86400.0
"""How far back a question without a time looks."""


def gather(host: Asked, question: Question) -> Gathered:
    """Everything about the question, each under its deadline. A snapshot's logs are read with its other files, so only its state is asked here."""
    if question.pid is None and question.job is None and question.since is None and question.until is not None:
        question = msgspec.structs.replace(question, since=question.until - RECENT_S)
    now = host.clock()
    up = host.file("/proc/uptime", 64)
    up_s = as_number(up.line) if up.ok else None
    boot = now - up_s if up_s is not None and 0 <= up_s <= now else None
    subject = Subject(
        asked="pid" if question.pid is not None else "job" if question.job is not None else "recent",
        since=question.since, until=question.until, boot=boot, now=now, uid=question.uid, offset=_offset(host, now),
        pids=set(), units=set(), cgroups=set(), containers=set(), jobs=set(), mine=set(), others=set(), live=set(),
    )  # fmt: skip
    gathered = Gathered(subject, [], [], [], [], [], job=question.job)
    name, boot_id = host.file("/proc/sys/kernel/hostname", 256), host.file("/proc/sys/kernel/random/boot_id", 64)
    gathered.host = (name.line if name.ok else None) or host.label
    gathered.boot_id = boot_id.line if boot_id.ok else None
    damage = getattr(host, "damage", None)
    if damage is not None:
        gathered.refused(host.label, damage)
    since = _since(question, now, boot)
    if host.live:
        _start(host, question, since)
    if boot is not None:
        place = Where("/proc/uptime", 1, f"up {up_s:.2f} s")
        gathered.facts.append(Fact("boot", "this boot", {}, {"": place}, "/proc/uptime", time=Stamp(boot, zoned=True)))
    for step in _steps(host, question, gathered, since, now):
        try:
            step()
        except (UserError, MemoryError):
            raise
        except Exception as problem:  # noqa: BLE001 - it becomes a "not read, because"
            gathered.refused(getattr(step, "func", step).__name__.removeprefix("gather_"), stumbled(problem))
    subject.live |= {name for name, _ in gathered.texts} | {fact.source for fact in gathered.facts}
    _wish(gathered)
    return gathered


def _steps(
    host: Asked, question: Question, gathered: Gathered, since: float, now: float
) -> Iterator[Callable[[], object]]:
    """What is asked, one after the other; one that stumbles costs only its own answers."""
    if question.pid is not None:
        yield partial(gather_process, host, question.pid, gathered)
        yield partial(gather_owner, host, gathered, since)
    if question.job is not None:
        yield partial(gather_job, host, question.job, gathered, since, question.until)
    elif question.pid is None:
        yield partial(gather_recent_jobs, host, question, gathered, since)
    yield partial(gather_memory, host, gathered)
    logs, logs_since = question, since
    if question.recorded:  # what was asked then, of which the answer keeps what lies in the time asked about
        logs = msgspec.structs.replace(question, until=None)
        logs_since = question.recorded_since if question.recorded_since is not None else now - RECENT_S
    yield partial(gather_records, host, logs, gathered, logs_since)
    if host.live:
        recent = max(since, now - RECENT_S) if question.since is None else since
        yield partial(gather_logs, host, logs, gathered, logs_since)
        yield partial(gather_user_logs, host, question, gathered, recent)
        yield partial(gather_changes, host, gathered)


def _since(question: Question, now: float, boot: float | None) -> float:
    """How far back logs are read: as asked; a process cannot be older than the boot."""
    if question.since is not None:
        return question.since
    if question.pid is not None and boot is not None:
        return max(boot, now - 30 * RECENT_S)
    return now - (7 * RECENT_S if question.job is not None else RECENT_S)


def _start(host: Asked, question: Question, since: float) -> None:
    """Starts all programs that take their time, so that they run beside one another."""
    from gpuclinic.clinic.gathering import jobs, logs, records

    host.expect([*logs.commands(question, since), *records.commands(question, since), *jobs.commands(question, since)])


def _offset(host: Asked, now: float) -> float:
    """Seconds that the machine's local time is ahead of UTC; asked of the machine, so that a recording of it answers the same."""
    if host.live:
        found = re.fullmatch(r"([+-])(\d\d)(\d\d)", host.command("date", "+%z").line)
        if found:
            return (int(found[2]) * 3600 + int(found[3]) * 60) * (-1 if found[1] == "-" else 1)
    return zone_of(host, now)


def _wish(gathered: Gathered) -> None:
    """For a death the records that would have named the sender, where they were not kept."""
    if gathered.subject.alive:
        gathered.wanted = [
            w for w in gathered.wanted if w not in ("audit", "accounting", "core_dumps", "gpu_accounting")
        ]
    elif gathered.subject.gone:
        gathered.want("run")
