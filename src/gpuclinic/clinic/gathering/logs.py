"""The machine's own logs of the time that is asked about: kernel, journal, syslog and its rotations."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpuclinic.clinic.gathering._gathered import MOST_TEXT, absent
from gpuclinic.clinic.gathering.repeated import without_repeats
from gpuclinic.recognise.kmsg import readable

if TYPE_CHECKING:
    from gpuclinic.clinic.gathering._gathered import Gathered
    from gpuclinic.clinic.gathering._question import Question
    from gpuclinic.observe.asking import Asked

DEADLINE = 4.0
_SYSLOGS = re.compile(
    r"(?:kern\.log|syslog|messages|auth\.log|secure|daemon\.log|user\.log)(?:[.-]\d+)?(?:\.(?:gz|xz|bz2|zst))?"
)
_KERNEL_FILES = ("kern.log", "syslog", "messages")
_MOST_FILES = 24
_SYSLOG_END = 4 << 20
_LINES = "20000"


def commands(question: Question, since: float) -> list[tuple[str, ...]]:
    """The programs that will be asked, so that they can start early."""
    return [_journal(since, question.until, "-k"), _journal(since, question.until), *_of_the_subject(question, since)]


def _journal(since: float, until: float | None, *more: str) -> tuple[str, ...]:
    end = (f"--until=@{until + 1:.0f}",) if until is not None else ()
    return (
        "journalctl",
        "-o",
        "short-iso-precise",
        "--no-pager",
        "-q",
        "-n",
        _LINES,
        f"--since=@{since:.0f}",
        *end,
        *more,
    )


def _of_the_subject(question: Question, since: float) -> list[tuple[str, ...]]:
    if question.recorded:
        return []
    if question.pid is not None:
        return [
            _journal(
                since,
                question.until,
                f"_PID={question.pid}",
                "+",
                f"COREDUMP_PID={question.pid}",
                "+",
                f"OBJECT_PID={question.pid}",
            )
        ]
    job = question.job
    if job is not None and job.kind in ("unit", "name"):
        unit = job.name if "." in job.name else f"{job.name}.service"
        return [_journal(since, question.until, "-u", unit), _journal(since, question.until, "--user-unit", unit)]
    return []


def gather_logs(host: Asked, question: Question, gathered: Gathered, since: float) -> None:
    """Kernel log, journal, and where there is no journal the files of syslog."""
    boot = gathered.subject.boot
    before = len(gathered.texts)
    read_kernel = _ring(host, gathered)
    asked = [_journal(since, question.until, "-k"), _journal(since, question.until)]
    journal = False
    refusals: list[str] = []
    for argv in [*asked, *_of_the_subject(question, since)]:
        answer = host.command(*argv, deadline=DEADLINE, most=MOST_TEXT)
        shown = "journalctl " + " ".join(argv[8:])
        if answer.ok and answer.data.strip() and b"-- No entries --" not in answer.data[:200]:
            gathered.texts.append((shown, answer.data))
            journal = True
            read_kernel = read_kernel or "-k" in argv
        elif not answer.ok and not absent(answer) and "No journal files" not in (answer.why or ""):
            refusals.append(f"{shown}: {answer.why}")
    files = _files(host, gathered, since, every=not journal or boot is None or since < boot)
    read_kernel = read_kernel or any(name.rpartition("/")[2].startswith(_KERNEL_FILES) for name in files)
    if not journal and not files and question.until is not None and boot is not None and question.until < boot:
        read_kernel = False  # the ring buffer begins with this boot
        gathered.words.append(("window_unread", {}))
    logs = sorted(gathered.texts[before:], key=lambda text: _rank(text[0]))
    gathered.texts[before:] = without_repeats(logs)
    if refusals and not journal:
        why = refusals[0].partition(": ")[2]
        gathered.refused("journalctl", why, "" if "answer within" in why else "journal")
    if not read_kernel:
        gathered.want("kernel_log")
    gathered.fact(
        "looked", "logs", {"kernel_log": read_kernel, "journal": journal, "files": len(files)}, "logs of this machine",
        {"": "kernel log: " + ("read" if read_kernel else "not read")},
    )  # fmt: skip


def _rank(name: str) -> int:
    """Which log is believed first of those that hold the same line: what is asked for alone, and clocks with a date before counts since boot."""
    if not name.startswith("journalctl"):
        return 3 + name.startswith(("/dev/", "dmesg"))
    return 0 if name.endswith("-k") else 1 if "_PID=" in name or {"-u", "--user-unit"} & set(name.split()) else 2


def _ring(host: Asked, gathered: Gathered) -> bool:
    """The kernel's ring buffer."""
    ring = host.file("/dev/kmsg", MOST_TEXT)
    if ring.ok and ring.data:
        gathered.texts.append(("/dev/kmsg", readable(ring.data)))
        return True
    for argv in (("dmesg", "--raw"), ("dmesg",)):
        answer = host.command(*argv, deadline=2.0, most=MOST_TEXT)
        if answer.ok and answer.data.strip():
            gathered.texts.append((" ".join(argv), readable(answer.data)))
            return True
        if answer.why and not absent(answer):
            gathered.refused("kernel log", answer.why, "kernel_log")
            return False
    if not absent(ring):
        gathered.refused("/dev/kmsg", ring.why or "empty", "kernel_log")
    return False


def _files(host: Asked, gathered: Gathered, since: float, *, every: bool) -> list[str]:
    """Files of syslog that were written to after the moment, the newest ones' ends; those of the kernel only where the ring buffer is short."""
    names = [name for name in host.listing("/var/log").lines() if _SYSLOGS.fullmatch(name)] if every else []
    found: list[tuple[float, str]] = []
    for name in names:
        about = host.stat(f"/var/log/{name}").json()
        changed = about.get("mtime")
        if about.get("kind") == "file" and isinstance(changed, (int, float)) and (changed >= since or not host.live):
            found.append((float(changed), f"/var/log/{name}"))
    found.sort(reverse=True)
    read: list[str] = []
    for _, path in found[:_MOST_FILES]:
        packed = path.endswith((".gz", ".xz", ".bz2", ".zst"))
        answer = host.file(path, _SYSLOG_END, end=not packed)
        if gathered.text(path, answer, "syslog"):
            read.append(path)
    return read
