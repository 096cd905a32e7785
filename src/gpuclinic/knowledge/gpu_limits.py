"""What a GPU is running into at this moment, in two or three words (knowledge/data/tables/gpu_limits.tsv)."""

from __future__ import annotations

import functools
from typing import NamedTuple

from gpuclinic.knowledge._load import DATA


class GpuLimit(NamedTuple):
    """A row; the first that holds is what the GPU runs into.

    when: a condition over the fields of a `gpu` fact, with near_heat_c (degrees left) and pcie_most_kbs (what its link carries) beside them.
    severity: info, warning, critical. en, zh: at most 19 columns.
    """

    id: str
    when: str
    severity: str
    en: str
    zh: str
    source: str


@functools.cache
def gpu_limits() -> tuple[GpuLimit, ...]:
    """All rows, in the order in which they are tried."""
    lines = (DATA / "tables" / "gpu_limits.tsv").read_text(encoding="utf-8").splitlines()[1:]
    return tuple(GpuLimit(*line.split("\t")) for line in lines if line)


PCIE_LANE_KBS = {1: 250_000.0, 2: 500_000.0, 3: 985_000.0, 4: 1_969_000.0, 5: 3_938_000.0, 6: 7_563_000.0}
"""Thousands of bytes a second that a lane carries each way, by generation, line coding taken off (PCI Express base specification)."""
