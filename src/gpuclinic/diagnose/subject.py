"""Whom a question is about: what was read is narrowed to a process, a job, a span of time, before anything is concluded."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from gpuclinic.diagnose.killings import audit_callers, without_mere_kills
from gpuclinic.model import Fact, Signal, Stamp

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuclinic.diagnose.evidence import Reading

_EARLY = 5.0
_LATE = 90.0
"""Clocks and logs lag: seconds around a span that still belong to it."""
_ONE_INCIDENT = 600.0
_ONE_CASCADE = 120.0
"""Deaths this close together are told as one: lines about a process asked for; of whatever died last, those of its neighbours."""
_MACHINE_BEFORE = 86400.0
_OF_A_VICTIM = (
    "oom.", "earlyoom.kill", "kernel.segfault", "kernel.trap", "kernel.illegal_instruction", "kernel.audit_abend", "coredump.", "kill.",
    "kernel.memory_failure", "kernel.hung_", "systemd.stop_timeout", "signal.sent_kill", "nohang.kill", "kill.process_low_memory",
)  # fmt: skip
"""Signatures whose line tells of one process; its `pid` is the victim's."""
_ENDS = ("death", "kill")
"""Facts of one process's end: how it ended, who ended it."""
_REPORT = ("oom.invoked", "oom.limit", "oom.usage")
_VICTIM = ("oom.killed", "oom.killed_global", "oom.killed_memcg", "oom.global", "oom.memcg", "oom.numa")
_UNIT_SAYS = ("systemd.", "oomd.", "systemd.oom_unit")
_AFTER_A_CRASH = frozenset({"boot.journal_unclean", "boot.fs_recovery", "boot.watchdog_reset"})
"""What the start after a crash logs."""
_APPLICATION_XIDS = frozenset({"13", "31", "43", "45", "68", "69", "109"})
"""Xids of the process that is named in them (NVIDIA's catalogue: application errors and their clean-up)."""
_OWN_CGROUP = re.compile(
    r"docker|libpod|cri-?o|containerd|kubepods|/job_\d+|/(?!user@|session)[\w@.-]+\.service(?:/|$)"
)
"""Cgroups of one container, job or service; a login session or a user's slice holds many processes that have nothing to do with one another."""
_UID = re.compile(r"\bUID:(\d+)|,uid=(\d+)|\bUID (\d+)|of user (\d+) |\bouid=(\d+)| uid (\d+) ")
_UNIT = re.compile(r"([\w@.:\\-]+\.(?:service|scope|slice))\b")


class Subject(msgspec.Struct):
    """pids: the process asked about and its descendants. units, cgroups, containers, jobs: where it ran; lower case.

    since, until: asked for, Unix seconds. began, ended: of the process or job, where known. boot: when the machine started. now: on the machine.
    uid: whose deaths count. mine: logs that the process itself wrote; others: logs found beside, whose writer is not known.
    live: sources of this machine, whose stamps without a zone are offset seconds ahead of UTC. gone: the process is no more.
    pid_unused: no process of this boot had the pid. existed: some process of this boot had it.
    gpus: PCI addresses of the GPUs that the process holds; uses_gpu: whether it holds any, None where that cannot be told.
    job_known: whoever keeps the job answered that it knows it. python: the process runs Python; None where that is not known.
    """

    asked: str = "recent"
    pid: int | None = None
    pids: set[int] = set()
    units: set[str] = set()
    cgroups: set[str] = set()
    containers: set[str] = set()
    jobs: set[str] = set()
    since: float | None = None
    until: float | None = None
    began: float | None = None
    ended: float | None = None
    boot: float | None = None
    now: float = 0.0
    uid: int | None = None
    mine: set[str] = set()
    others: set[str] = set()
    live: set[str] = set()
    offset: float = 0.0
    gone: bool = False
    alive: bool = False
    progresses: bool = False
    pid_unused: bool = False
    existed: bool = False
    gpus: set[str] = set()
    uses_gpu: bool | None = None
    job_known: bool = False
    python: bool | None = None

    @property
    def named(self) -> bool:
        """A process or a job was asked about, not just what is recent."""
        return self.asked != "recent"


def narrow(reading: Reading, subject: Subject) -> Reading:
    """The reading without what befell others and without what lies outside the time that is asked about."""
    signals = [_on_the_clock(s, subject) for s in reading.signals]
    facts = [_fact_on_the_clock(f, subject) for f in reading.facts]
    victims = _victims(signals)
    signals, facts = without_mere_kills(signals, facts, victims, named=subject.named)
    owners = _owners(signals, victims)
    signals = [s for s in signals if _about(s, victims, owners, subject)]
    signals = _without_other_logs(signals, subject)
    latest = _latest_death(signals, victims, facts, subject)
    signals = [s for s in signals if _in_time(s, victims, latest, subject)]
    if not subject.named:
        signals = _of_the_last_incident(signals, latest)
    if subject.asked == "pid" and subject.gone and subject.ended is None:
        subject.ended = latest
    counts: dict[str, int] = {}
    for signal in signals:
        counts[signal.signature] = counts.get(signal.signature, 0) + signal.count
    for name, count in counts.items():
        if count >= sum(s.signature == name for s in reading.signals):
            counts[name] = max(
                count, reading.counts.get(name, 0)
            )  # nothing of it was dropped: storms keep their number
    facts = [f for f in facts if _fact_about(f, subject) and not _earlier_end(f, latest, subject)]
    if _others_kills(facts, subject):
        facts = [_without_kills(f) if f.kind == "cgroup" and f.source in subject.live else f for f in facts]
    return msgspec.structs.replace(reading, signals=signals, facts=facts, counts=counts)


def _on_the_clock(signal: Signal, subject: Subject) -> Signal:
    """The stamp of a line of this machine's own logs as zoned wall time."""
    stamp = signal.time
    if stamp is None or stamp.zoned or signal.where.source not in subject.live:
        return signal
    if stamp.uptime:
        if subject.boot is None:
            return signal
        return msgspec.structs.replace(
            signal, time=Stamp(subject.boot + stamp.seconds, zoned=True, earliest=stamp.earliest)
        )
    seconds = stamp.seconds - subject.offset
    if stamp.yearless and subject.now:
        seconds = _nearest_year(seconds, subject.now)
    return msgspec.structs.replace(signal, time=Stamp(seconds, zoned=True, earliest=stamp.earliest))


def _fact_on_the_clock(fact: Fact, subject: Subject) -> Fact:
    """The time of a death that a tool of this machine gave in local time."""
    stamp = fact.time
    if fact.kind != "death" or stamp is None or stamp.zoned or fact.source not in subject.live:
        return fact
    return msgspec.structs.replace(fact, time=Stamp(stamp.seconds - subject.offset, zoned=True))


def _nearest_year(seconds: float, now: float) -> float:
    """The moment of a stamp without a year: the last time that this date came round."""
    import time

    parts = time.gmtime(seconds)
    year = time.gmtime(now).tm_year
    import calendar

    for candidate in (year + 1, year, year - 1):
        moment = float(calendar.timegm((candidate, *parts[1:6], 0, 0, 0))) + seconds % 1
        if moment <= now + 86400:
            return moment
    return seconds


def _victims(signals: list[Signal]) -> dict[int, int]:
    """order of each line that tells of one process → that process; the lines of an OOM report get the victim that it names last."""
    out: dict[int, int] = {}
    waiting: dict[str, list[Signal]] = {}
    for signal in signals:
        source = signal.where.source
        if signal.signature in _REPORT:
            waiting.setdefault(source, []).append(signal)
            continue
        if not signal.signature.startswith(_OF_A_VICTIM):
            continue
        pid = signal.groups.get("pid", "")
        if not pid.strip().isdecimal():
            continue
        out[signal.order] = int(pid)
        if signal.signature in _VICTIM:
            for line in waiting.pop(source, []):
                out[line.order] = int(pid)
    return {**out, **audit_callers(signals, out)}


def _owners(signals: Iterable[Signal], victims: dict[int, int]) -> dict[int, int]:
    """Victim → the user it belonged to, from whichever line names one."""
    out: dict[int, int] = {}
    for signal in signals:
        found = _UID.search(signal.where.text) if signal.order in victims else None
        uid = next((g for g in found.groups() if g), None) if found else None
        if uid is not None:
            out.setdefault(victims[signal.order], int(uid))
    return out


def _about(signal: Signal, victims: dict[int, int], owners: dict[int, int], subject: Subject) -> bool:
    """The line concerns the process or job, or the machine as a whole."""
    victim = victims.get(signal.order)
    if victim is not None:
        if subject.named:
            return (
                victim in subject.pids
                or names_its_place(signal.where.text, subject)
                or (not subject.pids and not _places(subject))
            )
        uid = owners.get(victim)
        return subject.uid is None or uid is None or uid == subject.uid
    if not subject.named:
        return True
    if signal.signature in ("nvrm.xid", "nvrm.xid_reported") and signal.groups.get("code") in _APPLICATION_XIDS:
        pid = signal.groups.get("pid", "")
        return not pid.isdecimal() or int(pid) in subject.pids or not subject.pids
    if signal.signature.startswith(_UNIT_SAYS):
        units = {unit.lower() for unit in _UNIT.findall(signal.where.text)}
        return not units or bool(units & subject.units) or names_its_place(signal.where.text, subject)
    if signal.signature.startswith(("slurm.", "docker.", "k8s.")) and signal.where.source in subject.live:
        return _names_its_job(signal, subject)
    return True


def _places(subject: Subject) -> set[str]:
    return subject.cgroups | subject.units | subject.containers | subject.jobs


def names_its_place(line: str, subject: Subject) -> bool:
    """The line names the cgroup, the unit, the container or the Slurm job that the process ran in."""
    text = line.lower()
    cgroups = (
        subject.cgroups if subject.asked == "job" else {path for path in subject.cgroups if _OWN_CGROUP.search(path)}
    )
    if any(len(path) > 4 and re.search(re.escape(path) + r"(?![\w.-])", text) for path in cgroups):
        return True
    if any(f"job_{job}" in text for job in subject.jobs):
        return True
    return any(name in text for name in subject.units) or any(
        len(c) >= 12 and c[:12] in text for c in subject.containers
    )


def _names_its_job(signal: Signal, subject: Subject) -> bool:
    """A line of a scheduler or container runtime of this machine: of the job, or of no job that it names."""
    text = signal.where.text.lower()
    numbers = {
        number for pair in re.findall(r"\bjob(?:id)?[ =_#]?(\d+)|\bstep=?(\d+)\.", text) for number in pair if number
    }
    if numbers and subject.jobs:
        return bool(numbers & {job.split(".")[0] for job in subject.jobs})
    containers = set(re.findall(r"\b[0-9a-f]{64}\b", text))
    if containers and subject.containers:
        return any(c.startswith(tuple(k for k in subject.containers if len(k) >= 12)) for c in containers)
    return True


def _without_other_logs(signals: list[Signal], subject: Subject) -> list[Signal]:
    """Logs that lay about and name other processes than the one asked about tell of another run."""
    if not subject.pids:
        return signals
    named: dict[str, set[int]] = {}
    for signal in signals:
        source, pid = signal.where.source, signal.groups.get("pid", "")
        if source in subject.others and pid.strip().isdecimal():
            named.setdefault(source, set()).add(int(pid))
    foreign = {source for source, pids in named.items() if not pids & subject.pids}
    if subject.mine:
        foreign |= subject.others - subject.mine  # the process's own logs are known: no need to guess
    return [s for s in signals if s.where.source not in foreign]


def _moment(signal: Signal) -> float | None:
    stamp = signal.time
    return stamp.seconds if stamp is not None and stamp.zoned and not stamp.yearless and not stamp.uptime else None


def _latest_death(signals: list[Signal], victims: dict[int, int], facts: list[Fact], subject: Subject) -> float | None:
    """When the process asked about, or else the last one of all, died."""
    times = [
        moment
        for s in signals
        if s.order in victims and (moment := _moment(s)) is not None and _within(moment, subject)
    ]
    times += [
        f.time.seconds for f in facts
        if f.kind in _ENDS and f.time is not None and f.time.zoned and _fact_about(f, subject) and _within(f.time.seconds, subject)
    ]  # fmt: skip
    return max(times, default=subject.ended)


def _within(moment: float, subject: Subject) -> bool:
    since, until = subject.since, subject.until
    return (since is None or moment >= since - _EARLY) and (until is None or moment <= until + _LATE)


def _in_time(signal: Signal, victims: dict[int, int], latest: float | None, subject: Subject) -> bool:
    """The line falls in the span that is asked about; the deaths of others, and of an earlier owner of the pid, do not."""
    moment = _moment(signal)
    if moment is None:
        return True
    if signal.time is not None and signal.time.earliest:
        return subject.until is None or moment <= subject.until + _LATE
    if not _within(moment, subject):
        return False
    if subject.began is not None and signal.order in victims and moment < subject.began - _EARLY:
        return False
    if (
        signal.order in victims
        and latest is not None
        and moment < latest - (_ONE_INCIDENT if subject.named else _ONE_CASCADE)
    ):
        return False
    if subject.ended is not None and moment > subject.ended + _ONE_INCIDENT:
        return False
    if subject.since is None and signal.where.source in subject.live:
        begin = min(t for t in (subject.began, latest, subject.now) if t is not None)
        return moment >= begin - _MACHINE_BEFORE
    return True


def _of_the_last_incident(signals: list[Signal], latest: float | None) -> list[Signal]:
    """Without units that failed long before whatever died last, and without signs of restarts long before the last restart."""
    restart = max((m for s in signals if s.signature in _AFTER_A_CRASH and (m := _moment(s)) is not None), default=None)

    def old(signal: Signal) -> bool:
        unit = signal.signature.startswith(_UNIT_SAYS)
        end = latest if unit else restart if signal.signature in _AFTER_A_CRASH else None
        moment = _moment(signal)
        return end is not None and moment is not None and moment < end - _ONE_CASCADE

    return [s for s in signals if not old(s)]


def _others_kills(facts: list[Fact], subject: Subject) -> bool:
    """The kills that a cgroup counts tell nothing of the process: it lives, it died of something else, or the kernel log would name it."""
    if subject.asked != "pid":
        return False
    log = any(f.kind == "looked" and f.fields.get("kernel_log") for f in facts)
    other = any(f.kind == "death" and f.fields.get("pid") == subject.pid and f.fields.get("signal") != 9 for f in facts)
    return subject.alive or log or other


def _without_kills(fact: Fact) -> Fact:
    return msgspec.structs.replace(
        fact, fields={k: v for k, v in fact.fields.items() if k not in ("oom_kill_count", "oom_count")}
    )


def _earlier_end(fact: Fact, latest: float | None, subject: Subject) -> bool:
    """The end of a process long before that of the last one, of which alone a question without a name asks."""
    if subject.named or latest is None or fact.kind not in _ENDS or fact.time is None or not fact.time.zoned:
        return False
    return fact.time.seconds < latest - _ONE_CASCADE


def _fact_about(fact: Fact, subject: Subject) -> bool:
    """Facts of processes, jobs and containers only of those asked about; all others."""
    if fact.kind in (*_ENDS, "core_dump", "asked_process", "kernel_stack", "process", "gpu_accounting"):
        pid, uid = fact.fields.get("pid"), fact.fields.get("uid")
        if fact.kind in _ENDS and not subject.named and subject.uid is not None and uid not in (None, subject.uid):
            return False
        if fact.kind in _ENDS and fact.time is not None and fact.time.zoned and not _within(fact.time.seconds, subject):
            return False
        if not subject.pids and subject.asked == "job" and fact.source in subject.live:
            unit = str(fact.fields.get("unit") or "").lower()  # whose processes nobody told: the unit alone ties it
            return unit in subject.units or any(len(c) >= 12 and c[:12] in unit for c in subject.containers)
        return not subject.pids or not isinstance(pid, int) or pid in subject.pids
    if not subject.named or fact.source not in subject.live:
        return True
    if fact.kind == "container" and subject.containers:
        told = {str(fact.fields.get(k) or "").lower().lstrip("/") for k in ("id", "name")} | {
            fact.key.lower().lstrip("/")
        }
        return any(a and b and (a.startswith(b) or b.startswith(a)) for a in told for b in subject.containers)
    if fact.kind == "job" and subject.jobs:
        base = str(fact.fields.get("base") or fact.fields.get("id") or fact.key)
        return any(base.split(".")[0] == job.split(".")[0] for job in subject.jobs)
    if fact.kind == "service" and subject.units:
        return any(unit.rpartition(".")[0] == fact.key.lower() or unit == fact.key.lower() for unit in subject.units)
    return True
