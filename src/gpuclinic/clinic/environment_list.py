"""All environments of a host with a verdict each: what `gpuclinic compat` answers when it is not told what is wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from gpuclinic.clinic.checking import take_looks
from gpuclinic.clinic.environment_places import LOOK, Search, thorough
from gpuclinic.clinic.environment_verdicts import EnvironmentVerdict, Machine, judged_environments, machine_of
from gpuclinic.clinic.looks import LOOKS, Seen, Wanted
from gpuclinic.clinic.looks.from_texts import complete_from_texts
from gpuclinic.clinic.looks.software import gpu_pids, software_of
from gpuclinic.clinic.reading import Reader, Texts
from gpuclinic.clinic.software_judge import SoftwareAnswer
from gpuclinic.knowledge import load
from gpuclinic.model import Fact, Gap
from gpuclinic.observe.replay import NOT_ASKED, Replay

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuclinic.clinic.software_judge import SoftwareJudge
    from gpuclinic.observe.asking import Asked

_LOOKS = ("pci.bus", "driver", "gpu.nvml")
"""What tells GPUs, driver, kernel, and the processes that hold a GPU."""
_TEXTS = "snapshot.texts"


class EnvironmentList(msgspec.Struct):
    """verdict: fails where one fails, else unknown where one could not be judged or none was found, else works. facts: all that was seen.

    searched: environments were looked for.
    alone: the machine without any software, where a person said something of it: whether that driver drives that GPU on that kernel.
    """

    verdict: str
    environments: list[EnvironmentVerdict]
    machine: Machine
    gaps: list[Gap]
    facts: list[Fact]
    lang: str
    host: str
    alone: SoftwareAnswer | None = None
    searched: bool = True


def list_environments(
    host: Asked, judge: SoftwareJudge, lang: str, progress: Callable[[str], None] | None = None, given: Machine | None = None
) -> EnvironmentList:  # fmt: skip
    """Looks at GPUs and driver, searches thoroughly, judges. given: what the person says of the machine instead (a GPU to be bought, say)."""
    seen = _machine_looks(host, progress)
    if progress is not None:
        progress("software.environments")
    pids = gpu_pids(seen.facts)
    software = software_of(host, seen.facts, thorough(pids) if _asked_hard(host) else Search(pids=pids))
    software.gaps = _joined_gaps(software.gaps)
    facts = [*seen.facts, *software.facts]
    found = msgspec.structs.replace(machine_of(facts), of_host=True)
    machine = found if given is None else _merged(found, given)
    judged = judged_environments(facts, judge, lang, machine)
    alone = _alone(machine, judge, lang) if given is not None else None
    verdicts = {one.verdict for one in judged if one.answer is not None} | (
        {alone.verdict} if alone is not None else set()
    )
    gaps = [*seen.gaps, *software.gaps]
    verdict = "fails" if "fails" in verdicts else "works" if verdicts == {"works"} else "unknown"
    if verdict == "works" and software.gaps and not any(one.answer is not None for one in judged):
        verdict = "unknown"  # the machine fits, but what would run on it was not seen
    searched = bool(judged) or not any(gap.why.endswith(NOT_ASKED) for gap in software.gaps)
    return EnvironmentList(verdict, judged, machine, gaps, facts, lang, host.label, alone, searched)


def _asked_hard(host: Asked) -> bool:
    """Whether a thorough search can be answered: a capture answers what was asked when it was made, with --deep or without."""
    asked = host.about.get("asked") if isinstance(host, Replay) else None
    return not isinstance(host, Replay) or (isinstance(asked, dict) and asked.get("deep") is True)


def _joined_gaps(gaps: list[Gap]) -> list[Gap]:
    """All that a capture was not asked for as one gap."""
    unasked = [gap.why.removesuffix(f": {NOT_ASKED}") for gap in gaps if gap.why.endswith(NOT_ASKED)]
    others = [gap for gap in gaps if not gap.why.endswith(NOT_ASKED)]
    if not unasked:
        return others
    places = ", ".join(unasked[:3]) + (f", … ({len(unasked)})" if len(unasked) > 3 else "")
    return [*others, Gap(LOOK, f"{places}: {NOT_ASKED}", fix="capture --deep")]


def machine_there(host: Asked, progress: Callable[[str], None] | None = None) -> Machine:
    """GPUs, driver, kernel and module of a host."""
    return machine_of(_machine_looks(host, progress).facts)


def _machine_looks(host: Asked, progress: Callable[[str], None] | None) -> Seen:
    looks = [look for look in LOOKS if look.id in _LOOKS]
    host.begin_nvml()
    host.expect([argv for look in looks for argv in look.commands])
    seen = take_looks(host, looks, Wanted(), progress)
    there = machine_of(seen.facts)
    if not (there.gpus and there.driver) and not host.live:
        _complete(host, seen, progress)
    if machine_of(seen.facts).gpus:
        seen.gaps = [gap for gap in seen.gaps if gap.check not in ("pci.bus", "gpu.nvml")]
    seen.gaps = [gap for gap in seen.gaps if gap.check != "gpu.none"]  # the verdicts say so
    return seen


def _complete(host: Asked, seen: Seen, progress: Callable[[str], None] | None) -> None:
    """GPUs and driver by what programs printed (nvidia-smi, lspci), as `check` reads it; of a snapshot made by hand that is often all."""
    more = take_looks(host, [look for look in LOOKS if look.id == _TEXTS], Wanted(facts=seen.facts), progress)
    seen.texts += more.texts
    reader = Reader(load())
    reader.read_host(Texts(seen.texts))
    seen.facts += complete_from_texts(host, Wanted(facts=seen.facts), seen, reader.facts, reader.signals)


def _merged(found: Machine, given: Machine) -> Machine:
    """What was said goes before what was found. The module that was found belongs to the driver that was found."""
    said = frozenset(name for name in ("gpus", "driver", "kernel", "module") if getattr(given, name))
    return msgspec.structs.replace(
        given, gpus=given.gpus or found.gpus, driver=given.driver or found.driver, kernel=given.kernel or found.kernel,
        module=given.module or (None if given.driver else found.module), said=said, of_host=True,
    )  # fmt: skip


def _alone(machine: Machine, judge: SoftwareJudge, lang: str) -> SoftwareAnswer:
    return judge(machine.question(", ".join(machine.gpus) or None, installed=False), lang)
