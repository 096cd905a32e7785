"""Searches the tables for one line that would work, and checks it by the same rules."""

from __future__ import annotations

import re
from itertools import islice, zip_longest
from typing import TYPE_CHECKING

import msgspec

from gpuclinic.compat.judge import Judged, decide
from gpuclinic.compat.resolve import TORCH_FAMILY, Chosen, builds_of, of_ones_own, pins_of, requirement, wheels_of
from gpuclinic.compat.versions import numbers, satisfies, version
from gpuclinic.knowledge.compat import tables

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuclinic.compat.question import Question
    from gpuclinic.knowledge.compat import Build

MOST_TRIES = 40
INDEX = "https://download.pytorch.org/whl/"
JAX_FILES = "https://storage.googleapis.com/jax-releases/jax_cuda_releases.html"
_HOPELESS = ("driver.unsupported_gpu", "driver.kernel_mismatch", "compat.cuda_compat_libs")


def line_that_works(question: Question, judged: Judged) -> str | None:
    """The line for what was asked where that works; else for the nearest that does; None where the search finds none."""
    names = [one for one in judged.resolution.chosen if one.wanted is not None and _known(one)]
    if not names or len(names) > 12:
        return None
    if judged.verdict == "works" and any(of_ones_own(one) for one in names):
        return None  # no index has it
    if judged.verdict == "works":
        return _line([_as_asked(one) for one in names])
    if judged.verdict == "unknown" or any(f.text.startswith(_HOPELESS) for f in judged.problems):
        return None
    for wants in islice(_candidates(names, judged), MOST_TRIES):
        again = decide(msgspec.structs.replace(question, want=wants, installed=False))
        if again.verdict == "works":
            return _line([_pinned(text, again) for text in wants])
    return None


def _pinned(text: str, judged: Judged) -> str:
    """A requirement with the version that was found to work, so that pip takes no other."""
    if "==" in text or text.endswith(".whl"):
        return text
    one = judged.resolution.get(text.partition("[")[0])
    return f"{text}=={one.release}" if one is not None and one.release else text


def _known(one: Chosen) -> bool:
    return bool(wheels_of(one.name) or builds_of(one.name)) and not one.name.startswith(("nvidia-", "cuda"))


def _as_asked(one: Chosen) -> str:
    """The package as it was wanted, its version named."""
    if one.wanted is not None and one.wanted.wheel:
        return one.wanted.raw
    extras = f"[{','.join(sorted(one.wanted.extras))}]" if one.wanted is not None and one.wanted.extras else ""
    local = one.wanted.local if one.wanted is not None and one.wanted.local else one.variant
    return f"{one.name}{extras}=={one.release}{'+' + local if local else ''}" if one.release else f"{one.name}{extras}"


def _candidates(names: list[Chosen], judged: Judged) -> Iterator[list[str]]:
    """Lists of requirements to try, the nearest to what was asked first."""
    torch = next((one for one in names if one.name == "torch"), None) or judged.resolution.get("torch")
    others = [one for one in names if one.name not in TORCH_FAMILY]
    family = [one for one in names if one.name in TORCH_FAMILY and one.name != "torch"]
    if len(names) == 2 and {one.name for one in names} == {"onnxruntime", "onnxruntime-gpu"}:
        names = others = [one for one in names if one.name == "onnxruntime-gpu"]
        yield [_as_asked(names[0])]
    for one in names:
        for sibling in _sibling_wheels(one, judged.context.python):
            yield [sibling if other is one else _as_asked(other) for other in names]
    if torch is not None and any(one.name in TORCH_FAMILY for one in names):
        yield from _with_torch(torch, family, others, judged)
    elif names:
        yield from _without_torch(names, judged)


def _sibling_wheels(one: Chosen, python: str) -> list[str]:
    """Wheels that projects publish beside one that is named: the other C++ ABI, the Python that is there."""
    raw = one.wanted.raw if one.wanted is not None and one.wanted.wheel else ""
    if "cxx11abi" not in raw:
        return []
    tag = "cp" + python.replace(".", "") if python and not python.endswith("t") else ""
    mine = re.sub(r"-cp\d+-cp\d+-", f"-{tag}-{tag}-", raw) if tag else raw
    other = re.sub(r"cxx11abi(TRUE|FALSE)", lambda m: "cxx11abi" + {"TRUE": "FALSE", "FALSE": "TRUE"}[m[1]], mine)
    return [text for text in (mine, other) if text != raw]


def _with_torch(torch: Chosen, family: list[Chosen], others: list[Chosen], judged: Judged) -> Iterator[list[str]]:
    machine = judged.context.machine
    for release in _near(torch.name, torch.release):
        rows = [b for b in builds_of("torch") if satisfies(release, b.versions) and machine in b.machines.split()]
        for row in sorted(rows, key=lambda b: _liking(b, judged)):
            if row.cuda == "none":
                continue
            first = f"torch=={release}" + ("" if machine in row.default.split() else f"+{row.variant}")
            kin = [
                f"{one.name}=={v}{'' if machine in row.default.split() else '+' + row.variant}"
                for one in family
                if (v := _paired(one.name, release))
            ]
            if len(kin) < len([one for one in family if one.name != "torchtext"]):
                continue
            yield [first, *kin, *[_loosened(one, judged) for one in others]]


def _liking(build: Build, judged: Judged) -> tuple[bool, bool, list[int]]:
    """The default build first, then the newest CUDA that the driver itself has, then newer ones."""
    own = numbers(judged.context.driver_cuda)
    mine = numbers(build.cuda)
    return judged.context.machine not in build.default.split(), bool(own) and mine > own, [-n for n in mine]


def _paired(name: str, torch: str) -> str:
    """The torchvision or torchaudio that pins a torch; "" where the tables have none."""
    for wheel in reversed(wheels_of(name)):
        asked = [
            found
            for pin in pins_of(name, wheel.version, frozenset())
            if (found := requirement(pin.requires)) and found.name == "torch"
        ]
        if asked and all(satisfies(torch, str(found.specifier)) for found in asked):
            return wheel.version
    return ""


def _loosened(one: Chosen, judged: Judged) -> str:
    """A package whose own version is at fault is asked for without it."""
    extras = f"[{','.join(sorted(one.wanted.extras))}]" if one.wanted is not None and one.wanted.extras else ""
    at_fault = any(one.label == f.subject for f in judged.problems) or any(
        f.values.get("other") == one.label for f in judged.problems
    )
    return f"{one.name}{extras}" if at_fault or (one.wanted is not None and one.wanted.wheel) else _as_asked(one)


def _near(name: str, release: str) -> list[str]:
    """The same version first, then newer ones of the table from the nearest on, then older ones."""
    every = [w.version for w in wheels_of(name)]
    parsed = version(release) if release else None
    if parsed is None:
        return every[::-1]
    later = [v for v in every if (found := version(v)) is not None and found > parsed]
    earlier = [v for v in every if (found := version(v)) is not None and found < parsed]
    same = [v for v in every if version(v) == parsed]
    before, after = _thinned(earlier[::-1]), _thinned(later)
    mixed = [v for pair in zip_longest(before, after) for v in pair if v is not None]
    held = set(mixed)
    return [*same, *mixed, *[v for v in earlier[::-1] if v not in held], *[v for v in later if v not in held]]


def _thinned(releases: list[str]) -> list[str]:
    """One version of each minor."""
    seen: set[tuple[int, ...]] = set()
    kept = []
    for release in releases:
        minor = numbers(release)[:2]
        if minor not in seen:
            seen.add(minor)
            kept.append(release)
    return kept


def _without_torch(names: list[Chosen], judged: Judged) -> Iterator[list[str]]:
    """One package at a time is moved, the one at fault first."""
    fault = {f.subject for f in judged.problems}
    movable = sorted(names, key=lambda one: one.label not in fault)
    for one in movable[:2]:
        rest = [_as_asked(other) for other in names if other is not one]
        if one.name == "jaxlib" and one.variant:
            for row in builds_of("jaxlib"):
                if row.variant not in ("", one.variant) and satisfies(one.release, row.versions):
                    yield [*rest, f"jaxlib=={one.release}+{row.variant}"]
        for name in _names_for(one, judged):
            for release in _near(name, one.release)[: 25 if name == one.name else 8]:
                for extra in _extras_of(name, release, one):
                    yield [*rest, f"{name}{extra}=={release}"]


def _names_for(one: Chosen, judged: Judged) -> list[str]:
    """The names under which a package is published: cupy has one for each CUDA, of which the nearest to the toolkit or the driver comes first."""
    if one.name == "jaxlib":
        return ["jax"]
    if not one.name.startswith("cupy-cuda"):
        return [one.name]
    there = numbers(judged.context.cuda or judged.context.driver_cuda)
    rows = {
        row.package: numbers(row.cuda)
        for row in tables().builds
        if row.package.startswith("cupy-cuda") and wheels_of(row.package)
    }
    return sorted(
        rows,
        key=lambda name: (name != one.name, rows[name] > there, rows[name][:1] != there[:1], [-n for n in rows[name]]),
    )


def _extras_of(name: str, release: str, one: Chosen) -> list[str]:
    if name == "jax":
        if satisfies(release, ">=0.7"):
            return ["[cuda13]", "[cuda12]"]
        return ["[cuda12]"] if satisfies(release, ">=0.4.26") else ["[cuda12_pip]", "[cuda11_pip]"]
    if name == "tensorflow" and satisfies(release, ">=2.14"):
        return ["[and-cuda]"]
    if name == "onnxruntime-gpu" and satisfies(release, ">=1.21"):
        return ["[cuda,cudnn]"]
    return [f"[{','.join(sorted(one.wanted.extras))}]" if one.wanted is not None and one.wanted.extras else ""]


def _line(wants: list[str]) -> str:
    """pip's command line, with the index of a local build."""
    index = ""
    for text in wants:
        tag = text.rpartition("+")[2] if "+" in text and "==" in text else ""
        if tag.startswith(("cu", "cpu")) and text.startswith(TORCH_FAMILY) and (tag == "cpu" or tag[2:].isdigit()):
            index = f" --extra-index-url {INDEX}{tag}"
        elif text.startswith(("jax[cuda11_pip]", "jax[cuda12_pip]")) or (
            text.startswith("jaxlib==") and tag.startswith("cuda")
        ):
            index = f" -f {JAX_FILES}"
    return "pip install " + " ".join(_quoted(text) for text in wants) + index


def _quoted(text: str) -> str:
    safe = text.replace("'", "")
    return f"'{safe}'" if any(c in safe for c in "[]<>!;*& ") else safe
