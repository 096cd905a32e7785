"""What a text is, by its content: shown to people as "what was read", and used to know kernel logs."""

from __future__ import annotations

import re

from gpuclinic.recognise.signals import is_kernel_line

_KINDS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("NCCL log", re.compile(r"\bNCCL (?:INFO|WARN|VERSION)")),
    (
        "training log",
        re.compile(
            r"(?i)\b(?:epoch|step|iter(?:ation)?|loss|it/s)\b|Traceback \(most recent call last\)|torch|tensorflow|cuda"
        ),
    ),
    ("Slurm log", re.compile(r"slurm(?:stepd|ctld|d)\b|\bsrun: ")),
    (
        "system log",
        re.compile(
            r"(?m)^(?:<\d+>)?(?:[^\W\d]{2,9}\.? +\d+ [\d:]{8}|\d{1,2}[月월] \d\d [\d:]{8}|20\d\d-\d\d-\d\dT[\d:.+-]+Z?)"
            r" [\w.-]+ [\w./@()-]+(?:\[\d+\])?: "
        ),
    ),
)

_LATER_SAMPLE = re.compile(r"(?:^|/)samples/\d{1,4}/(?:root|commands)/")
_BOOKS = {
    "answers.jsonl": (re.compile(rb'\s*\{"gpuclinic_answers"'), "the index of a capture"),
    "snapshot.json": (re.compile(rb'\s*\{\s*"gpuclinic_snapshot"'), "the label of a capture"),
    "capture.json": (re.compile(rb'\s*\{\s*"gpuclinic_capture"'), "the label of a capture"),
    "samples.jsonl": (re.compile(rb'\s*\{"at": ?\d'), "the samples of a recorded job"),
    "stat.json": (re.compile(rb'\s*\{\s*"/[^"\n]*":\s*\{'), "owners and times of a snapshot's files"),
}
_RUN_RECORD = re.compile(rb'\s*\{\s*"gpuclinic_run"\s*:')
_BUG_REPORT = "Start of NVIDIA bug report log file"


def kind_of(text: str, parser_names: list[str]) -> str:
    """A short name of what the text is."""
    lines = [line for line in text[:65536].split("\n") if line.strip()][:400]
    if lines:
        kernel = sum(is_kernel_line(line) for line in lines)
        if kernel > 0.5 * len(lines):
            return "kernel log"
    if _BUG_REPORT in text[:4096]:
        return "nvidia-bug-report"
    if parser_names:
        return parser_names[0]
    for name, pattern in reversed(_KINDS):
        found = len(pattern.findall(text[:65536]))
        if found and (name != "system log" or found > 0.4 * len(lines)):
            return name
    return "text"


def is_run_record(head: bytes) -> bool:
    """The file begins as a record of `gpuclinic run` does."""
    return _RUN_RECORD.match(head) is not None


def bookkeeping(path: str, head: bytes) -> str | None:
    """What a file of a snapshot is that is no record of the machine itself; None for all others. head: its first bytes."""
    book = _BOOKS.get(path.rsplit("/", 1)[-1])
    if book is not None and book[0].match(head):
        return book[1]
    return "a later sample of an answer" if _LATER_SAMPLE.search(path) else None
