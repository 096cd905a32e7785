"""All environments of a host with a verdict each: what `gpuclinic compat` answers when it is not told what is wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from gpuclinic.clinic.checking import take_looks
from gpuclinic.clinic.environment_places import thorough
from gpuclinic.clinic.environment_verdicts import EnvironmentVerdict, Machine, judged_environments, machine_of
from gpuclinic.clinic.looks import LOOKS, Wanted
from gpuclinic.clinic.looks.software import gpu_pids, software_of
from gpuclinic.model import Fact, Gap

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuclinic.clinic.software_judge import SoftwareJudge
    from gpuclinic.observe.asking import Asked

_LOOKS = ("pci.bus", "driver", "gpu.nvml")
"""What tells GPUs, driver, kernel, and the processes that hold a GPU."""


class EnvironmentList(msgspec.Struct):
    """verdict: fails where one fails, else unknown where one could not be judged or none was found, else works. facts: all that was seen."""

    verdict: str
    environments: list[EnvironmentVerdict]
    machine: Machine
    gaps: list[Gap]
    facts: list[Fact]
    lang: str
    host: str


def list_environments(
    host: Asked, judge: SoftwareJudge, lang: str, progress: Callable[[str], None] | None = None, given: Machine | None = None
) -> EnvironmentList:  # fmt: skip
    """Looks at GPUs and driver, searches thoroughly, judges. given: what the person says of the machine instead (a GPU to be bought, say)."""
    looks = [look for look in LOOKS if look.id in _LOOKS]
    host.begin_nvml()
    host.expect([argv for look in looks for argv in look.commands])
    seen = take_looks(host, looks, Wanted(), progress)
    if progress is not None:
        progress("software.environments")
    software = software_of(host, seen.facts, thorough(gpu_pids(seen.facts)))
    facts = [*seen.facts, *software.facts]
    machine = _merged(machine_of(facts), given)
    judged = judged_environments(facts, judge, lang, machine)
    verdicts = {one.verdict for one in judged if one.answer is not None}
    verdict = "fails" if "fails" in verdicts else "works" if verdicts == {"works"} else "unknown"
    return EnvironmentList(verdict, judged, machine, [*seen.gaps, *software.gaps], facts, lang, host.label)


def _merged(found: Machine, given: Machine | None) -> Machine:
    if given is None:
        return found
    return Machine(
        given.gpus or found.gpus,
        given.driver or found.driver,
        given.kernel or found.kernel,
        given.module or found.module,
    )
