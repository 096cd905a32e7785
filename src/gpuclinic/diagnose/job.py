"""The job that is asked about, and what happened on its machine to somebody else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuclinic.diagnose.health import PROGRESS_IDS

if TYPE_CHECKING:
    from gpuclinic.diagnose.candidates import Candidate
    from gpuclinic.diagnose.evidence import Reading
    from gpuclinic.diagnose.health import Health

_OF_A_PROCESS = ("host.oom_killer", "host.cgroup_oom", "host.memory_pressure", "process.", "kernel.hung_task")
_IN_A_STUCK_TASK = ("storage.hung_in_network_fs", "kernel.frame_")
_NOT_THE_JOBS = 0.3


def set_aside_other_victims(candidates: list[Candidate], reading: Reading, health: Health) -> None:
    """A process that the kernel killed is not the job's where the job's own log tells of a good end."""
    jobs = {s.where.source for s in reading.signals if s.signature in PROGRESS_IDS}
    if not jobs or health.died or not all(health.ended_well_after(source, -1) for source in jobs):
        return
    for candidate in candidates:
        if _of_one_process(candidate) and not candidate.sources & jobs:
            candidate.strength = min(candidate.strength, _NOT_THE_JOBS)


def _of_one_process(candidate: Candidate) -> bool:
    """It befell one process, be it by its cause or because stacks of stuck tasks are all its proof."""
    stuck = [s.id.startswith(_IN_A_STUCK_TASK) for s in candidate.supports]
    return candidate.cause.startswith(_OF_A_PROCESS) or (bool(stuck) and all(stuck))
