"""Judges the environments that were found against the GPUs and the driver of the same machine, by a judge that is handed in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from gpuclinic.clinic.software_judge import SoftwareAnswer, SoftwareQuestion
from gpuclinic.model import Fact, Where

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpuclinic.clinic.software_judge import SoftwareJudge
    from gpuclinic.model import Scalar

_MOST_GPUS = 4
"""Different models that are asked about; no server has more."""
_NONE_SAID = ("", "N/A", "None")


class EnvironmentVerdict(msgspec.Struct):
    """One environment with its answer. verdict: works where it works on one of the machine's models; not_on: models on which it fails all the same.

    gpu: the model that the answer is about. answer: None where there was nothing to judge in it.
    """

    environment: Fact
    packages: list[Fact]
    verdict: str
    gpu: str | None
    answer: SoftwareAnswer | None
    not_on: list[str]


class _NotWhole(msgspec.Struct):
    """The answer where something for GPUs is or may be there, but not so that it could be judged; unknown: why."""

    unknown: list[str]
    verdict: str = "unknown"
    problems: list[Any] = []
    install: str | None = None
    notes: list[str] = []


class Machine(msgspec.Struct):
    """What the environments are judged against.

    cuda, cudnn, container_cuda, env: None or empty where nobody said; what a host has of them is no business of its environments.
    said: the fields that a person said, in place of what was found. of_host: what is not there was looked for and not found.
    """

    gpus: list[str] = []
    driver: str | None = None
    kernel: str | None = None
    module: str | None = None
    cuda: str | None = None
    cudnn: str | None = None
    container_cuda: str | None = None
    env: list[str] = []
    said: frozenset[str] = frozenset()
    of_host: bool = False

    def question(self, gpu: str | None, **about: Any) -> SoftwareQuestion:
        """About this machine. The kernel matters only where it or the driver is not what was found: a driver that was found is built."""
        return SoftwareQuestion(
            gpu=gpu, driver=self.driver, kernel=self.kernel if self.said & {"kernel", "driver"} else None, module=self.module,
            cuda=self.cuda, cudnn=self.cudnn, container_cuda=self.container_cuda, env=self.env, of_host=self.of_host, **about,
        )  # fmt: skip


def machine_of(facts: Sequence[Fact]) -> Machine:
    """The machine's GPU models (by name, else by PCI id), driver, kernel and kind of kernel module."""
    out = Machine()
    named = [str(f.fields.get("name") or "") for f in facts if f.kind == "gpu" and f.fields.get("vendor") != "amd"]
    on_bus = [
        str(f.fields.get("id"))
        for f in facts
        if f.kind == "pci_device" and f.fields.get("is_gpu") and f.fields.get("id")
    ]
    models = [name for name in named if name not in _NONE_SAID] or [name for name in on_bus if name.startswith("10de:")]
    out.gpus = list(dict.fromkeys(models))[:_MOST_GPUS]
    for fact in facts:
        version = fact.fields.get("version")
        if fact.kind == "driver_state":
            out.driver = str(version) if version else out.driver
            flavour = fact.fields.get("flavour")
            out.module = str(flavour) if flavour else out.module
        elif fact.kind == "driver" and version and out.driver is None:
            out.driver = str(version)
        elif fact.kind == "kernel" and version and out.kernel is None:
            out.kernel = str(version)
    return out


def judged_environments(
    facts: Sequence[Fact], judge: SoftwareJudge, lang: str, machine: Machine | None = None
) -> list[EnvironmentVerdict]:
    """Every environment, in the order in which they were found; machine: what to judge against, if not what the facts tell."""
    machine = machine or machine_of(facts)
    packages: dict[str, list[Fact]] = {}
    for fact in facts:
        if fact.kind == "env_package":
            packages.setdefault(str(fact.fields.get("env")), []).append(fact)
    known: dict[tuple[object, ...], SoftwareAnswer] = {}

    def ask(question: SoftwareQuestion) -> SoftwareAnswer:
        key = (question.gpu, question.python, question.glibc, tuple(question.want))
        if key not in known:
            known[key] = judge(question, lang)
        return known[key]

    out: list[EnvironmentVerdict] = []
    for fact in facts:
        if fact.kind == "environment":
            mine = packages.get(fact.key, [])
            out.append(_judged(fact, mine, machine, ask, lang))
    return out


def _judged(
    environment: Fact,
    packages: list[Fact],
    machine: Machine,
    ask: Callable[[SoftwareQuestion], SoftwareAnswer],
    lang: str,
) -> EnvironmentVerdict:
    out = EnvironmentVerdict(environment, packages, "", None, None, [])
    wants = list(dict.fromkeys(str(f.fields["requirement"]) for f in packages if f.fields.get("requirement")))
    fields = environment.fields
    if not wants:
        if fields.get("for_gpus") or fields.get("not_whole"):
            why = fields.get("problem_zh" if lang == "zh" else "problem_en")
            out.answer, out.verdict = _NotWhole([str(why)] if why else []), "unknown"
        return out
    if not fields.get("for_gpus"):
        return out
    best: tuple[int, str | None, SoftwareAnswer] | None = None
    models: list[str | None] = [*machine.gpus] or [None]
    for gpu in models:
        answer = ask(
            machine.question(
                gpu, python=_text(fields.get("python")), glibc=_text(fields.get("glibc")), machine=_text(fields.get("machine")),
                want=wants,
            )
        )  # fmt: skip
        rank = {"works": 0, "unknown": 1}.get(answer.verdict, 2)
        if rank == 2 and gpu is not None:
            out.not_on.append(gpu)
        if best is None or rank < best[0]:
            best = (rank, gpu, answer)
    if best is not None:
        out.gpu, out.answer, out.verdict = best[1], best[2], best[2].verdict
    return out


def _text(value: Scalar) -> str | None:
    return str(value) if value is not None else None


def verdict_facts(facts: Sequence[Fact], judge: SoftwareJudge, lang: str) -> list[Fact]:
    """Facts `environment_verdict`; none where there is no GPU to judge against."""
    if not machine_of(facts).gpus:
        return []
    return [_fact(one, one.answer) for one in judged_environments(facts, judge, lang) if one.answer is not None]


def _fact(one: EnvironmentVerdict, answer: SoftwareAnswer) -> Fact:
    held = one.environment.fields
    problem = answer.problems[0] if answer.problems else None
    fields: dict[str, Scalar] = {
        "path": held.get("path"), "verdict": one.verdict, "gpu_model": one.gpu, "whose": held.get("whose"), "owner": held.get("owner"),
        "in_use": held.get("in_use"), "container": held.get("container"), "kind": held.get("kind"), "python": held.get("python"),
        "packages": held.get("gpu_packages"), "install": answer.install, "not_on": ", ".join(one.not_on) or None,
        "unknown": "; ".join(answer.unknown)[:300] or None,
    }  # fmt: skip
    if problem is not None:
        fields |= {
            "problem": problem.id, "title": problem.title, "why": problem.why, "fix": problem.fix, "rule": problem.source,
            "problems": len(answer.problems),
        }  # fmt: skip
    fields = {name: value for name, value in fields.items() if value is not None}
    source = one.environment.source
    shown = str(held.get("gpu_packages") or "")[:300]
    places = {"": Where(source, None, f"{held.get('path')}: {shown}"), "packages": Where(source, None, shown)}
    return Fact("environment_verdict", one.environment.key, fields, places, source)
