"""An error text joined with the versions that explain it, where both are in the same input: which build lacks what, and what to install instead."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from gpuclinic.clinic.software_judge import SoftwareQuestion, harmless_line
from gpuclinic.recognise.python_env import Package, plain_name, requirement

if TYPE_CHECKING:
    from gpuclinic.clinic.answer import Answer
    from gpuclinic.clinic.software_judge import SoftwareAnswer, SoftwareJudge, SoftwareProblem
    from gpuclinic.diagnose.candidates import Candidate
    from gpuclinic.diagnose.evidence import Reading
    from gpuclinic.model import Cause, Fact, Scalar, Where

_OF_VERSIONS = ("compat.", "driver.too_old_for_cuda", "driver.unsupported_gpu")
_MOST_WANTS = 400
_TEXTS = {
    "en": {
        "title": "By the versions in this input: {title}. {why}",
        "step": "Install what fits the GPU and the driver at hand: {fix}",
        "other": "The versions in this input do not go together, either: {title}. {why}",
    },
    "zh": {
        "title": "结合输入中的版本：{title}。{why}",
        "step": "安装与当前 GPU 和驱动匹配的版本：{fix}",
        "other": "另外，输入中的版本本身也不匹配：{title}。{why}",
    },
}
_ARCH = re.compile(r"\bsm_(\d{2,3})\b")
_DEVICE = re.compile(r"((?:NVIDIA|GeForce|Tesla|Quadro|TITAN)[\w .-]{2,60}?) with CUDA capability")


def explain_versions(answer: Answer, root: Candidate, reading: Reading, judge: SoftwareJudge) -> None:
    """Adds to the root cause, where versions explain it, a note, the line that shows them, and the command that mends it as the first step."""
    if not answer.causes or not root.cause.startswith(_OF_VERSIONS):
        return
    question, places = question_of(reading, root)
    if question is None:
        return
    told = judge(question, answer.lang)
    if told.verdict != "fails" or not told.problems:
        return
    words = _TEXTS["zh" if answer.lang == "zh" else "en"]
    same = next((problem for problem in told.problems if problem.id == root.cause), None)
    problem = same or told.problems[0]
    answer.notes = [words["title" if same else "other"].format(title=problem.title, why=problem.why), *answer.notes]
    if same is not None:
        answer.causes[0] = _completed(answer, told, same, places, words["step"])


def _completed(answer: Answer, told: SoftwareAnswer, problem: SoftwareProblem, places: list[Where], step: str) -> Cause:
    cause = answer.causes[0]
    first = {"text": step.format(fix=problem.fix), "command": harmless_line(told.install), "risk": "none"}
    evidence = [*cause.evidence[:6], *(place for place in places if place not in cause.evidence)][:8]
    fields = {
        "versions": {
            "problem": problem.id,
            "why": problem.why,
            "install": harmless_line(told.install) or None,
            "source": problem.source,
        }
    }
    return msgspec.structs.replace(
        cause, steps=[first, *cause.steps][:8], evidence=evidence, extra={**cause.extra, **fields}
    )


def question_of(reading: Reading, root: Candidate) -> tuple[SoftwareQuestion | None, list[Where]]:
    """What the input tells of versions; None where it names no package, or neither GPU nor driver, or two different answers to one of these."""
    facts = reading.facts
    gpus = _gpus(facts, root)
    drivers = {str(f.fields["version"]) for f in facts if f.kind == "driver" and f.fields.get("version")}
    wants, places = _wants(facts)
    if not wants or (not gpus and not drivers) or len(gpus) > 1 or len(drivers) > 1:
        return None, []
    env = next((f for f in facts if f.kind == "torch_env"), None)
    told = env.fields if env is not None else {}
    return SoftwareQuestion(
        gpu=next(iter(gpus), None), driver=next(iter(drivers), None), python=_release(told.get("python"), r"\d+\.\d+(?:\.\d+)?"),
        glibc=_release(told.get("libc"), r"2\.\d+"), want=wants, installed=True,
    ), places  # fmt: skip


def _gpus(facts: list[Fact], root: Candidate) -> set[str]:
    """The GPU that the error is about: by the words of the line, else the one model that the tools show."""
    for support in root.supports:
        for place in support.places:
            named, arch = _DEVICE.search(place.text), _ARCH.search(place.text)
            if named is not None:
                return {named[1].strip()}
            if arch is not None and "capability sm_" in place.text:
                return {arch[0]}
    return {
        str(f.fields["name"])
        for f in facts
        if f.kind == "gpu" and f.fields.get("name") and f.fields.get("vendor") != "amd"
    }


def _wants(facts: list[Fact]) -> tuple[list[str], list[Where]]:
    """The packages as requirements, and where torch's is shown. Nothing where the input tells of two different torches."""
    out: dict[str, str] = {}
    places: list[Where] = []
    for fact in facts:
        if fact.kind == "package" and isinstance(fact.fields.get("version"), str):
            one = Package(
                plain_name(str(fact.fields.get("name"))), str(fact.fields["version"]), str(fact.fields.get("manager") or "pip"),
                str(fact.fields.get("build") or ""), cuda=_of_tag(fact.fields),
            )  # fmt: skip
            _take(out, places, requirement(one, cuda=None, hip=None, told=False), fact)
        elif fact.kind == "torch_env" and isinstance(fact.fields.get("version"), str):
            cuda, hip = fact.fields.get("cuda_build"), fact.fields.get("rocm_build")
            one = Package("torch", str(fact.fields["version"]))
            told = fact.fields.get("cpu_build") is True
            text = requirement(one, cuda=str(cuda) if cuda else None, hip=str(hip) if hip else None, told=told)
            _take(out, places, text, fact)
    if "" in out:
        return [], []
    return list(out.values())[:_MOST_WANTS], places[:2]


def _take(out: dict[str, str], places: list[Where], text: str | None, fact: Fact) -> None:
    """Keeps the fuller of two words on one package; two different versions of torch make the input ambiguous."""
    name, _, version = (text or "").partition("==")
    if not name or text is None:
        return
    held = out.get(name)
    if name == "torch":
        places.append(fact.where("version"))
        if held is not None and held.partition("==")[2].partition("+")[0] != version.partition("+")[0]:
            out[""] = "two"
    if held is None or ("+" in version and "+" not in held):
        out[name] = text


def _of_tag(fields: dict[str, Scalar]) -> str | None:
    """CUDA of a conda build; of a pip package the version's own local part says it."""
    build = fields.get("cuda_build")
    return str(build) if build and fields.get("manager") == "conda" else None


def _release(value: Scalar, pattern: str) -> str | None:
    found = re.search(pattern, str(value)) if value is not None else None
    return found[0] if found else None
