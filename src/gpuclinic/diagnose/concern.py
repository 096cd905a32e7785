"""Whether a fault that the machine logged concerns the process or job that was asked about.

A machine's logs tell of everybody. A fault in them explains a process only where something ties the two: the line names the process, its job,
its cgroup or a GPU that it holds, or the process ended when the fault came. Without a tie the fault is at most a guess, and for a process that
cannot have met it (it lives and holds no GPU, it never existed) not even that.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpuclinic.diagnose.subject import names_its_place

if TYPE_CHECKING:
    from gpuclinic.diagnose.candidates import Candidate, Support
    from gpuclinic.diagnose.subject import Subject

_LOG_OF_ALL = re.compile(
    r"kmsg|dmesg|journal|syslog|kern\.log|/log/messages|daemon\.log|auth\.log|/log/secure|user\.log|fabricmanager"
)
_LOG_OF_IT = re.compile(r"_PID=|(?:^|\s)(?:-u|--user-unit)\s")
"""Queries of the journal for the process or unit alone."""
_KERNEL_SAYS = " kernel: "
_OF_A_GPU = ("hw.gpu.", "hw.pcie.", "hw.thermal.", "hw.power.", "driver.", "mig.", "vgpu.", "mps.", "app.", "perf.")
_WITH_IT = 120.0
"""Seconds between a fault and an end that are one incident."""
_GUESS = 0.3
"""Less than a hint's worth: shown as something that may have had a part."""
_TELLS = 0.3


def of_concern(candidates: list[Candidate], subject: Subject) -> tuple[list[Candidate], list[Candidate]]:
    """(what may concern the process or job, faults of the machine that nothing ties to it); weakens what is only a guess."""
    kept: list[Candidate] = []
    aside: list[Candidate] = []
    for candidate in candidates:
        if not subject.named or _tied(candidate, subject):
            kept.append(candidate)
        elif _may_have_met(candidate, subject):
            candidate.strength = min(candidate.strength, _GUESS)
            kept.append(candidate)
        else:
            aside.append(candidate)
    aside.sort(key=lambda c: -c.strength)
    return kept, [c for c in aside if c.strength >= _TELLS and c.role != "consequence"]


def _tied(candidate: Candidate, subject: Subject) -> bool:
    """Something shows that the fault is about the process or job."""
    if candidate.pid is not None and candidate.pid in subject.pids:
        return True
    if any(_about_it(support, subject) for support in candidate.supports):
        return True
    cards = {card for card in (*candidate.gpus, candidate.gpu) if card}
    if cards & subject.gpus:
        return True
    if subject.asked == "job":
        return subject.job_known
    if subject.uses_gpu and not cards and candidate.cause.startswith(_OF_A_GPU):
        return True
    moment = candidate.moment
    return (
        subject.gone
        and subject.ended is not None
        and moment is not None
        and moment.clock == "wall"
        and -_WITH_IT <= subject.ended - moment.seconds <= _WITH_IT
    )


def _about_it(support: Support, subject: Subject) -> bool:
    """A reason that does not come from a log of the whole machine, or whose line names the process or its job."""
    if support.pid is not None and support.pid in subject.pids:
        return True
    for place in support.places:
        if place.source not in subject.live or place.source in subject.mine:
            return True  # a file that the person gave, or the process's own log
        if not _LOG_OF_ALL.search(place.source):
            return True
        if _LOG_OF_IT.search(place.source) and _KERNEL_SAYS not in place.text:
            return True
        if names_its_place(place.text, subject):
            return True
    return False


def _may_have_met(candidate: Candidate, subject: Subject) -> bool:
    """Nothing ties the fault to the process, and nothing rules it out."""
    if subject.asked != "pid" or subject.pid_unused:
        return False
    if subject.gone:
        return subject.existed
    if subject.uses_gpu is False or not candidate.cause.startswith(_OF_A_GPU):
        return False
    return not subject.progresses
