"""Known faults of the collective library by version (tables/nccl_bugs.tsv), and the switches of its features."""

from __future__ import annotations

import functools
import re
from typing import NamedTuple

from gpuclinic.knowledge._load import DATA

FEATURE_SWITCH = re.compile(
    r"(?:NCCL|RCCL)_(?:CUMEM\w*|NVLS\w*|PROTO|ALGO|COLLNET\w*|GRAPH\w*|LOCAL_REGISTER|MNNVL\w*|PXN\w*|DMABUF\w*|RUNTIME_CONNECT"
    r"|LAUNCH_MODE|NET_SHARED\w*|LL128\w*|WIN\w*|SYM\w*|RAS\w*|IB_ADAPTIVE\w*|IB_PCI_RELAXED\w*|MAX_NCHANNELS|MAX_CTAS"
    r"|P2P_USE_CUDA_MEMCPY|IB_SPLIT\w*|MSCCL\w*|CROSS_NIC|TUNER\w*|NET_PLUGIN)$"
)
"""Switches of one feature of the library; that a job runs with one and dies without it accuses the library."""

PEER_SWITCH = re.compile(r"(?:NCCL|RCCL)_P2P_(?:DISABLE|LEVEL)$")
"""Switches that keep GPUs from reading each other's memory; that they help accuses the way between the GPUs."""


class Bug(NamedTuple):
    """One known fault: signals (any of them) with context (any, if given), seen with a version in [lowest, below)."""

    id: str
    lowest: tuple[int, ...]
    below: tuple[int, ...]
    signals: tuple[str, ...]
    context: tuple[str, ...]
    level: str
    what: str
    fixed_in: str
    workaround: str
    source: str


def numbers(text: str) -> tuple[int, ...]:
    """A dotted version as a tuple that compares.

    >>> numbers("2.27.3") < numbers("2.27.5")
    True
    """
    return tuple(int(part) for part in re.findall(r"\d{1,9}", text)[:3])


@functools.cache
def bugs() -> tuple[Bug, ...]:
    """All rows of the table."""
    rows: list[Bug] = []
    for line in (DATA / "tables" / "nccl_bugs.tsv").read_text(encoding="utf-8").splitlines()[1:]:
        name, lowest, below, signals, context, *rest = line.split("\t")
        level, what, fixed_in, workaround, source = rest
        rows.append(
            Bug(
                id=name,
                lowest=numbers(lowest),
                below=numbers(below),
                signals=tuple(signals.split(",")),
                context=tuple(c for c in context.split(",") if c),
                level=level,
                what=what,
                fixed_in=fixed_in,
                workaround=workaround,
                source=source,
            )
        )
    return tuple(rows)
