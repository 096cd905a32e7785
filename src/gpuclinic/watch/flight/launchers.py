"""Which rank of a distributed job this is, by the variables that launchers set."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

_RANK = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK")
_WORLD = ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE")
_LOCAL = ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "MV2_COMM_WORLD_LOCAL_RANK")
_GROUPS = (
    ("SLURM_JOB_ID", "SLURM_STEP_ID"), ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"), ("PBS_JOBID", ""), ("LSB_JOBID", ""),
    ("PMIX_NAMESPACE", ""), ("OMPI_MCA_ess_base_jobid", ""), ("PMI_ID", ""), ("MASTER_ADDR", "MASTER_PORT"),
)  # fmt: skip
"""Variables of torchrun, srun, Open MPI, PMIx, MPICH and MVAPICH, PBS and LSF, that are the same for all ranks of one start."""


class Place(NamedTuple):
    """Where in a distributed job we are. rank, world, local: None where nobody says so. group: the same for all ranks of one start."""

    rank: int | None = None
    world: int | None = None
    local: int | None = None
    group: str = ""


def is_rank(environment: Mapping[str, str]) -> bool:
    """A launcher started us as one of several."""
    return _number(environment, _RANK) is not None


def place_of(environment: Mapping[str, str]) -> Place:
    """From the variables that launchers set."""
    rank = _number(environment, _RANK)
    if rank is None:
        return Place()
    parts: list[str] = []
    for names in _GROUPS:
        values = [environment[name] for name in names if environment.get(name)]
        if values:
            parts = values
            break
    group = re.sub(r"[^\w.-]+", "-", "-".join(parts))[:80]
    return Place(rank, _number(environment, _WORLD), _number(environment, _LOCAL), group or f"parent-{os.getppid()}")


def _number(environment: Mapping[str, str], names: tuple[str, ...]) -> int | None:
    for name in names:
        text = environment.get(name, "")
        if text.isdecimal() and len(text) < 9:
            return int(text)
    return None
