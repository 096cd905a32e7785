"""The newest logs of this user: nohup.out, slurm-*.out and *.log where people run things, changed in the time that is asked about."""

from __future__ import annotations

import fnmatch
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpuclinic.clinic.gathering._gathered import Gathered
    from gpuclinic.clinic.gathering._question import Question
    from gpuclinic.observe.asking import Asked

_NAMES = ("nohup.out", "slurm-*.out", "slurm-*.err", "*.log", "*.err", "*.out", "stderr*", "stdout*", "error.json")
_MOST_FILES, _MOST_BYTES = 8, 4 << 20
_MOST_NAMES = 4000


def gather_user_logs(host: Asked, question: Question, gathered: Gathered, since: float) -> None:
    """The newest few of them, their ends where they are long."""
    found: list[tuple[float, str]] = []
    for folder in dict.fromkeys(f for f in (question.folder, question.home) if f):
        names = host.listing(folder)
        for name in names.lines()[:_MOST_NAMES]:
            if not any(fnmatch.fnmatchcase(name.lower(), pattern) for pattern in _NAMES):
                continue
            path = f"{folder.rstrip('/')}/{name}"
            about = host.stat(path).json()
            changed = about.get("mtime")
            if about.get("kind") != "file" or not isinstance(changed, (int, float)) or not about.get("size"):
                continue
            if changed >= since and (question.until is None or changed <= question.until + 3600):
                found.append((float(changed), path))
    found.sort(reverse=True)
    for _, path in found[:_MOST_FILES]:
        if path not in gathered.subject.mine and gathered.text(path, host.file(path, _MOST_BYTES, end=True)):
            gathered.subject.others.add(path)
