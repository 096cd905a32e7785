"""The CUDA, cuDNN and library paths that packages find, and one CUDA for all of them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpuclinic.compat.finding import Finding
from gpuclinic.compat.resolve import TORCH_FAMILY, Chosen, Resolution, uses_wheels
from gpuclinic.compat.versions import numbers, satisfies, two
from gpuclinic.knowledge.compat import tables

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuclinic.compat.context import Context
    from gpuclinic.knowledge.compat import Build


def judge_libraries(context: Context, resolution: Resolution) -> Iterator[Finding]:
    """All rules about CUDA libraries."""
    for one in resolution.chosen:
        yield from _system(one, context, resolution)
        yield from _with_torch(one, context, resolution)
        yield from _compiled_here(one, context, resolution)
        if one.name == "torch" and numbers(one.cuda):
            yield from _cudnn_arch(_bundled_cudnn(one, resolution), context)
    yield from _one_major(context, resolution)
    yield from _search_path(context, resolution)
    if not resolution.chosen:
        yield from _cudnn_alone(context)


def _brings_own(one: Chosen, resolution: Resolution) -> bool:
    """Whether pip brings the CUDA libraries of a package that would else look for the system's."""
    extras = one.wanted.extras if one.wanted is not None else frozenset()
    if extras & {"and-cuda", "cuda", "ctk"}:
        return True
    if one.name.startswith("jax-cuda"):
        jax = resolution.get("jax")
        asked = jax.wanted.extras if jax is not None and jax.wanted is not None else extras
        return bool(asked) and not any(e.endswith(("-local", "_local")) for e in asked)
    if one.name == "jaxlib":
        jax = resolution.get("jax")
        return (
            jax is not None and jax.wanted is not None and any(e.endswith(("-pip", "_pip")) for e in jax.wanted.extras)
        )
    return False


def toolkit_of(context: Context, resolution: Resolution) -> str:
    """The toolkit that is there: as given, or conda's."""
    if context.cuda:
        return context.cuda
    for name in ("cudatoolkit", "cuda-toolkit", "cuda-version"):
        one = resolution.get(name)
        if one is not None and one.wanted is not None and (one.wanted.conda or name == "cudatoolkit"):
            return two(one.release or one.wanted.spec.lstrip("=").rstrip(".*"))
    return ""


def cudnn_of(context: Context, resolution: Resolution) -> str:
    """The cuDNN that is there: as given, or a package's."""
    if context.cudnn:
        return context.cudnn
    one = next((c for c in resolution.chosen if re.fullmatch(r"nvidia-cudnn-cu\d+|cudnn", c.name)), None)
    return one.release if one is not None else ""


def _system(one: Chosen, context: Context, resolution: Resolution) -> Iterator[Finding]:
    build = one.build
    if build is None or build.libraries != "system" or _brings_own(one, resolution):
        return
    toolkit, cudnn = toolkit_of(context, resolution), cudnn_of(context, resolution)
    values = {
        "package": one.label,
        "toolkit": toolkit,
        "cudnn": cudnn,
        "asks": build.toolkit,
        "asks_cudnn": build.cudnn,
        "cuda": build.cuda,
    }
    if (
        toolkit
        and build.toolkit
        and not satisfies(toolkit, build.toolkit)
        and not _torch_brings(toolkit, build.toolkit, resolution)
    ):
        yield Finding("compat.framework_cuda.toolkit", values, one.label, build.source)
    if cudnn and build.cudnn and not satisfies(cudnn, build.cudnn):
        yield Finding("compat.cudnn.system", values, one.label, build.source)
    elif not cudnn and not toolkit and build.cudnn:
        yield from _cudnn_of_torch(one, build, resolution)
    if cudnn:
        yield from _cudnn_arch(cudnn, context)


def _cudnn_of_torch(one: Chosen, build: Build, resolution: Resolution) -> Iterator[Finding]:
    """Where nothing is told of the system, a package finds the cuDNN that torch brings."""
    torch = resolution.get("torch")
    bundled = _bundled_cudnn(torch, resolution) if torch is not None else ""
    if (
        torch is not None
        and bundled
        and numbers(torch.cuda)[:1] == numbers(one.cuda)[:1]
        and not satisfies(bundled, build.cudnn)
    ):
        values = {"package": one.label, "torch": torch.label, "bundled": bundled, "asks_cudnn": build.cudnn}
        yield Finding("compat.cudnn.of_torch", values, one.label, build.source)


def _torch_brings(toolkit: str, asked: str, resolution: Resolution) -> bool:
    """Whether the wheels that torch pins hold the CUDA major that the system lacks."""
    torch = resolution.get("torch")
    del toolkit
    return torch is not None and bool(numbers(torch.cuda)) and satisfies(torch.cuda, asked)


def _cudnn_arch(cudnn: str, context: Context) -> Iterator[Finding]:
    row = next((r for r in tables().cudnn if cudnn and satisfies(cudnn, r.versions)), None)
    for card in context.cards:
        if row is not None and row.lowest and card.capability < numbers(row.lowest):
            yield Finding(
                "compat.cudnn.arch",
                {"cudnn": cudnn, "gpu": card.label, "cc": card.cc, "lowest": row.lowest},
                f"cuDNN {cudnn}",
                row.source,
            )


def _cudnn_alone(context: Context) -> Iterator[Finding]:
    if context.cudnn:
        yield from _cudnn_arch(context.cudnn, context)


def _with_torch(one: Chosen, context: Context, resolution: Resolution) -> Iterator[Finding]:
    """bitsandbytes and its kin have a library for each CUDA release of torch."""
    torch = resolution.get("torch")
    if (
        torch is None
        or one.build is None
        or not one.build.with_cuda
        or not numbers(torch.cuda)
        or context.variables.get("BNB_CUDA_VERSION")
    ):
        return
    if not satisfies(torch.cuda, one.build.with_cuda):
        values = {"package": one.label, "torch": torch.label, "cuda": torch.cuda, "asks": one.build.with_cuda}
        yield Finding("compat.framework_cuda.with_torch", values, one.label, one.build.source)


def _compiled_here(one: Chosen, context: Context, resolution: Resolution) -> Iterator[Finding]:
    """What nvcc compiles for torch must be of torch's CUDA major."""
    torch = resolution.get("torch")
    if (
        one.build is None
        or not one.build.needs.startswith("source")
        or (one.wanted is not None and (one.wanted.wheel or one.wanted.local))
    ):
        return
    if not context.cuda:
        return
    values = {
        "package": one.label,
        "toolkit": context.cuda,
        "asks": one.build.toolkit,
        "torch": torch.label if torch else "",
        "cuda": torch.cuda if torch else "",
    }
    if torch is not None and numbers(torch.cuda) and numbers(torch.cuda)[0] != numbers(context.cuda)[0]:
        yield Finding("compat.framework_cuda.nvcc", values, one.label, one.build.source)
    elif (
        torch is not None
        and "exact" in one.build.needs
        and numbers(torch.cuda)
        and two(torch.cuda) != two(context.cuda)
    ):
        yield Finding("compat.framework_cuda.nvcc_exact", values, one.label, one.build.source)
    elif one.build.toolkit and not satisfies(context.cuda, one.build.toolkit):
        yield Finding("compat.framework_cuda.toolkit", {**values, "cuda": context.cuda}, one.label, one.build.source)


def _one_major(context: Context, resolution: Resolution) -> Iterator[Finding]:
    """One CUDA major for all that run in one process, unless each brings its own."""
    torch = resolution.get("torch")
    if torch is not None and torch.build is not None:
        yield from _family(torch, resolution)
    if torch is None or not numbers(torch.cuda):
        yield from _majors_without_torch(context, resolution)
        return
    major = numbers(torch.cuda)[0]
    for one in resolution.chosen:
        if one is torch or one.name in TORCH_FAMILY or not numbers(one.cuda) or numbers(one.cuda)[0] == major:
            continue
        libraries = one.build.libraries if one.build is not None else "torch"
        if libraries == "own":
            continue
        if libraries == "system":
            brought = _brings_own(one, resolution)
            if (brought and not uses_wheels(torch)) or (
                not brought and numbers(context.cuda)[:1] == numbers(one.cuda)[:1]
            ):
                continue  # else two CUDA majors of NVIDIA's wheels write into one folder
        if re.match(r"nvidia-|cuda-", one.name):
            continue
        values = {"package": one.label, "cuda": one.cuda, "torch": torch.label, "torch_cuda": torch.cuda}
        yield Finding("compat.framework_cuda.majors", values, one.label)


def _family(torch: Chosen, resolution: Resolution) -> Iterator[Finding]:
    """torchvision and torchaudio of another CUDA than torch."""
    for one in resolution.chosen:
        if one.name not in TORCH_FAMILY or one is torch or not one.cuda or not torch.cuda or one.name == "torchtext":
            continue
        values = {"package": one.label, "cuda": one.cuda, "torch": torch.label, "torch_cuda": torch.cuda}
        if (one.cuda == "none") != (torch.cuda == "none"):
            if one.cuda == "none":
                yield Finding("compat.cpu_only_build.family", values, one.label)
            continue
        if one.name == "torchaudio" and numbers(one.release) < (2,):
            continue  # it did not look before 2.0
        if numbers(one.cuda)[:1] != numbers(torch.cuda)[:1]:
            yield Finding("compat.framework_cuda.family", values, one.label)
        elif one.name == "torchaudio" and two(one.cuda) != two(torch.cuda) and numbers(one.release) < (2, 9):
            yield Finding("compat.framework_cuda.audio", values, one.label)


def _majors_without_torch(context: Context, resolution: Resolution) -> Iterator[Finding]:
    """Two packages that both look for the system's CUDA, of two majors."""
    held: Chosen | None = None
    for one in resolution.chosen:
        if (
            one.build is None
            or one.build.libraries != "system"
            or not numbers(one.cuda)
            or _brings_own(one, resolution)
        ):
            continue
        if held is None:
            held = one
        elif numbers(held.cuda)[0] != numbers(one.cuda)[0]:
            values = {"package": one.label, "cuda": one.cuda, "torch": held.label, "torch_cuda": held.cuda}
            yield Finding("compat.framework_cuda.majors", values, one.label)
            return
    del context


def _search_path(context: Context, resolution: Resolution) -> Iterator[Finding]:
    """What LD_LIBRARY_PATH puts before the libraries of the wheels."""
    parts = [p for p in context.variables.get("LD_LIBRARY_PATH", "").split(":") if p]
    if any(re.search(r"/stubs/?$", p) for p in parts):
        yield Finding("compat.cuda_compat_libs.stubs", {"path": next(p for p in parts if "/stubs" in p)}, "libcuda.so")
    for path in parts:
        if re.search(r"/(?:compat|stubs)(?:/|$)", path) or not re.search(r"cuda|cudnn", path, re.IGNORECASE):
            continue
        release = re.search(r"cuda[-_]?(\d+\.\d+)", path)
        toolkit = release[1] if release else context.cuda if re.search(r"/cuda(?:/|$)", path) else ""
        for one in resolution.chosen:
            yield from _shadow(one, path, toolkit, context, resolution)


def _shadow(one: Chosen, path: str, toolkit: str, context: Context, resolution: Resolution) -> Iterator[Finding]:
    mine = numbers(one.cuda)
    if one.name not in ("torch", "tensorflow") and not one.name.startswith("jax-cuda"):
        return
    values = {
        "package": one.label,
        "path": path,
        "toolkit": toolkit,
        "cuda": one.cuda,
        "cudnn": context.cudnn,
        "bundled": _bundled_cudnn(one, resolution),
    }
    theirs = numbers(toolkit)
    # of CUDA 11, torch 1.13 is the first that asks for symbols of the minor release that it was built with
    strict = mine[:1] >= (12,) or (one.name == "torch" and numbers(one.release) >= (1, 13))
    if mine and theirs and strict and mine[0] == theirs[0] and theirs < mine:
        yield Finding("compat.framework_cuda.shadowed", values, one.label)
    bundled = numbers(values["bundled"])
    found = numbers(context.cudnn)
    if bundled and found and found[0] == bundled[0] and found[:2] < bundled[:2]:
        yield Finding("compat.cudnn.shadowed", values, one.label)


def _bundled_cudnn(one: Chosen, resolution: Resolution) -> str:
    """The cuDNN that a package's pins bring."""
    for holder, pin in resolution.pins:
        found = re.match(r"nvidia-cudnn-cu\d+\D*([\d.]+)", pin.requires)
        if holder is one and found:
            return found[1].rstrip(".")
    return one.build.cudnn.split(",")[0].lstrip(">=") if one.build is not None and one.build.cudnn else ""
