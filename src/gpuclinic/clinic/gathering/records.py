"""Who keeps record of deaths: core dumps, process accounting, the audit log, NVML's accounting of dead processes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpuclinic.clinic.gathering._gathered import absent
from gpuclinic.clinic.gathering.process import gpu_facts
from gpuclinic.recognise.death_records import parse_accounting
from gpuclinic.recognise.parsers.audit import audit_lines, names_senders

if TYPE_CHECKING:
    from gpuclinic.clinic.gathering._gathered import Gathered
    from gpuclinic.clinic.gathering._question import Question
    from gpuclinic.observe.asking import Asked

_ACCOUNTS = ("/var/log/account/pacct", "/var/account/pacct", "/var/log/pacct")
_ACCOUNT_BYTES = 16 << 20
_AUDIT = "/var/log/audit/audit.log"
_AUDIT_BYTES = 8 << 20
_AUDIT_RULES = ("auditctl", "-l")
_CRASHES = ("/var/crash", "/var/spool/abrt", "/var/lib/systemd/coredump", "/var/lib/apport/coredump")
_DEADLINE = 3.0
_HIDDEN = re.compile(r"not seeing messages from other users")
"""systemd src/shared/logs-show.c, for whom is in none of the groups that may read the journal."""


def commands(question: Question, since: float) -> list[tuple[str, ...]]:
    """The programs that will be asked."""
    return _coredumps(question, since)


def _coredumps(question: Question, since: float) -> list[tuple[str, ...]]:
    if question.pid is not None and not question.recorded:
        return [("coredumpctl", "info", "--no-pager", str(question.pid))]
    return [("coredumpctl", "info", "--no-pager", "-n", "5", f"--since=@{since:.0f}")]


def gather_records(host: Asked, question: Question, gathered: Gathered, since: float) -> None:
    """Everything that may have recorded a death."""
    _core_dumps(host, question, gathered, since)
    _accounting(host, gathered, since)
    _audit(host, gathered)
    _gpu_accounting(host, gathered)


def _core_dumps(host: Asked, question: Question, gathered: Gathered, since: float) -> None:
    for argv in _coredumps(question, since):
        answer = host.command(*argv, deadline=_DEADLINE, most=1 << 20)
        if _HIDDEN.search(answer.why or ""):
            gathered.refused(" ".join(argv), "core dumps of other users are not shown to this user", "core_dumps")
        elif answer.ok or not re.search(r"[Nn]o (?:coredumps found|match|journal files)", answer.why or ""):
            gathered.text(" ".join(argv), answer, "core_dumps")
    for folder in _CRASHES:
        names = host.listing(folder)
        if not names.ok:
            if not absent(names):
                gathered.refused(folder, names.why or "no answer", "core_dumps")
            continue
        pids = gathered.subject.pids
        for name in names.lines()[-500:]:
            numbers = {int(n) for n in re.findall(r"(?<!\d)\d{2,8}(?!\d)", name)}
            if pids and not numbers & pids:
                continue
            about = host.stat(f"{folder}/{name}").json()
            changed = about.get("mtime")
            if isinstance(changed, (int, float)) and changed >= since:
                gathered.fact(
                    "core_file", f"{folder}/{name}", {"path": f"{folder}/{name}", "size": about.get("size"), "time_s": changed}, folder,
                    {"": f"{folder}/{name}: {about.get('size')} bytes"},
                )  # fmt: skip
    pattern = host.file("/proc/sys/kernel/core_pattern", 512)
    if pattern.ok and gathered.subject.gone:
        gathered.fact(
            "core_pattern",
            "core_pattern",
            {"value": pattern.line, "piped": pattern.line.startswith("|")},
            "/proc/sys/kernel/core_pattern",
            {"": pattern.line},
        )


def _accounting(host: Asked, gathered: Gathered, since: float) -> None:
    """The kernel's own records of ended processes, where accounting is switched on."""
    for path in _ACCOUNTS:
        answer = host.file(path, _ACCOUNT_BYTES, end=True)
        if answer.ok and answer.data:
            gathered.facts += parse_accounting(path, answer.data, gathered.subject.pids, since)
            return
        if not answer.ok and not absent(answer):
            gathered.refused(path, answer.why or "no answer", "accounting")
            return
    gathered.want("accounting")


def _audit(host: Asked, gathered: Gathered) -> None:
    """Who called kill on the process: the lines of the audit log about it. Without a rule for that it names no sender."""
    subject, senders = gathered.subject, False
    for path in (_AUDIT, f"{_AUDIT}.1"):
        answer = host.file(path, _AUDIT_BYTES, end=True)
        if answer.ok:
            senders = senders or names_senders(answer.text)
            lines = audit_lines(answer.text, subject.pids)
            if lines and (subject.pids or not subject.named):  # a job whose processes nobody told has none of them
                gathered.texts.append((path, lines.encode()))
        elif not absent(answer):
            gathered.refused(path, answer.why or "no answer", "audit")
            return
    if not senders and not names_senders(host.command(*_AUDIT_RULES).text):
        gathered.want("audit")


def _gpu_accounting(host: Asked, gathered: Gathered) -> None:
    """The driver's record of the dead process, where accounting mode is on."""
    if not gathered.subject.gone or gathered.subject.pid_unused:
        return
    facts = gpu_facts(host, gathered, deep=True)
    mine = [f for f in facts if f.kind == "gpu_accounting" and f.fields.get("pid") in gathered.subject.pids]
    gathered.facts += mine
    for fact in mine:
        gathered.words.append(
            (
                "gpu_accounted",
                {
                    "pid": fact.fields.get("pid"),
                    "gpu": fact.fields.get("gpu_index"),
                    "mib": fact.fields.get("memory_peak_mib"),
                },
            )
        )
    if not mine and any(f.kind == "gpu" for f in facts):
        gathered.want("gpu_accounting")
