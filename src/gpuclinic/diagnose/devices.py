"""Which card a program's error is about, where another line close by or the rank's own start lines tell it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpuclinic.diagnose.candidates import Candidate
    from gpuclinic.diagnose.evidence import Reading
    from gpuclinic.model import Signal

_NEAR_LINES = 4
_ABOUT_A_CARD = (
    "app.cuda_oom", "app.vram_leak", "app.illegal_access", "app.device_assert", "app.launch_timeout",
    "compat.arch_unsupported",
)  # fmt: skip


_SPAWNED_LINES = 120


_TAG = re.compile(r"^\S.{5,45}? \S+ (?P<tag>[\w./@-]{1,40})\[(?P<pid>\d{1,8})\]: ")
_SERVICES = frozenset(
    [
        "kernel",
        "systemd",
        "containerd",
        "dockerd",
        "kubelet",
        "slurmd",
        "slurmstepd",
        "sshd",
        "CRON",
        "cron",
        "sudo",
        "crond",
    ]
)
_RAY_LINES = 40
_SHELL_LINES = 60


def name_pids(candidates: list[Candidate], reading: Reading) -> None:
    """The process that printed a candidate's best line: by the journal's tag, Ray's task above a traceback, or the shell's line below."""
    ended = [s for s in reading.signals if s.signature == "python.segfault_pid" and s.pid is not None]
    tasks = [s for s in reading.signals if s.signature == "programs.ray_task_error" and s.pid is not None]
    for candidate in candidates:
        if (
            candidate.pid is not None
            or candidate.rank is not None
            or not candidate.supports
            or not candidate.cause.startswith(("app.", "compat."))
        ):
            continue
        for place in max(candidate.supports, key=lambda s: s.worth).places[:1]:
            found = _TAG.match(place.text)
            if found and found["tag"].rsplit("/", 1)[-1] not in _SERVICES:
                candidate.pid = int(found["pid"])
            above = [
                s.pid for s in tasks
                if s.where.source == place.source and 0 < (place.line or 0) - (s.where.line or 0) <= _RAY_LINES
            ]  # fmt: skip
            candidate.pid = above[-1] if above and candidate.pid is None else candidate.pid
            below = {
                s.pid for s in ended
                if s.where.source == place.source and 0 < (s.where.line or 0) - (place.line or 0) <= _SHELL_LINES
            }  # fmt: skip
            if candidate.pid is None and len(below) == 1:
                candidate.pid = below.pop()


_MAY_BE_OF_A_RANK = ("app.", "host.", "storage.", "compat.", "net.")


def name_spawned_ranks(candidates: list[Candidate], reading: Reading) -> None:
    """torch.multiprocessing prints "-- Process 3 terminated with the following error:", then that rank's traceback."""
    started = [
        (s.where.source, s.where.line, int(s.groups["rank"]))
        for s in reading.signals
        if s.signature == "python.spawn_rank" and s.groups.get("rank", "").isdecimal() and s.where.line is not None
    ]
    for candidate in candidates if started else ():
        if candidate.rank is not None or not candidate.supports or not candidate.cause.startswith(_MAY_BE_OF_A_RANK):
            continue
        for place in max(candidate.supports, key=lambda s: s.worth).places[:1]:
            above = [
                rank for source, line, rank in started
                if source == place.source and place.line is not None and 0 < place.line - line <= _SPAWNED_LINES
            ]  # fmt: skip
            candidate.rank = above[-1] if above else None


def name_devices(candidates: list[Candidate], reading: Reading) -> None:
    """Sets the GPU of errors of a program that name none."""
    open_ones = [c for c in candidates if c.cause.startswith(_ABOUT_A_CARD) and c.gpu is None and c.gpu_index is None]
    if not open_ones:
        return
    telling: dict[str, list[tuple[int, int]]] = {}
    for signal in reading.signals:
        if signal.gpu_index is not None and "gpu_index" in signal.groups and signal.where.line is not None:
            telling.setdefault(signal.where.source, []).append((signal.where.line, signal.gpu_index))
    of_rank = _indices_of_ranks(reading.signals)
    for candidate in open_ones:
        index = _beside(candidate, telling)
        if index is None and candidate.rank is not None:
            found = of_rank.get((candidate.rank, candidate.host)) or of_rank.get((candidate.rank, None), set())
            index = next(iter(found)) if len(found) == 1 else None
        candidate.gpu_index = index


def _beside(candidate: Candidate, telling: dict[str, list[tuple[int, int]]]) -> int | None:
    """The index that lines next to the candidate's best evidence name, where they agree."""
    best = max(candidate.supports, key=lambda s: s.worth)
    found = {
        index
        for place in best.places[:4]
        if place.line is not None
        for line, index in telling.get(place.source, ())
        if abs(line - place.line) <= _NEAR_LINES
    }
    return found.pop() if len(found) == 1 else None


def _indices_of_ranks(signals: list[Signal]) -> dict[tuple[int, str | None], set[int]]:
    """(rank, host) → CUDA device numbers of the lines that show a rank together with its device."""
    out: dict[tuple[int, str | None], set[int]] = {}
    for signal in signals:
        if signal.rank is not None and signal.gpu_index is not None:
            out.setdefault((signal.rank, None), set()).add(signal.gpu_index)
            if signal.host is not None:
                out.setdefault((signal.rank, signal.host), set()).add(signal.gpu_index)
    return out
