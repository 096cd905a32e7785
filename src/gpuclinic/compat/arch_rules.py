"""Code in a build against the compute capability of a GPU."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpuclinic.compat.cuda_rules import Reach, cuda_row
from gpuclinic.compat.finding import Finding
from gpuclinic.compat.versions import Numbers, numbers, satisfies
from gpuclinic.knowledge.compat import tables

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuclinic.compat.context import Context
    from gpuclinic.compat.gpus import Card
    from gpuclinic.compat.resolve import Chosen, Resolution


def sass_runs(capability: Numbers, tokens: str) -> bool:
    """Whether machine code runs: of the same major and no higher minor; "9.0a" on exactly 9.0; "12.0f" within its family."""
    for token in tokens.split():
        have = numbers(token)
        if token.endswith("a"):
            if have == capability:
                return True
        elif have[0] == capability[0] and have[1] <= capability[1]:
            return True
    return False


def ptx_below(capability: Numbers, tokens: str) -> bool:
    """Whether there is PTX that could be compiled for it: of the same or a lower capability ("90a" of that one alone)."""
    return any(
        numbers(t) == capability if t.endswith("a") else numbers(t) <= capability for t in tokens.split() if t != "none"
    )


def judge_arch(context: Context, resolution: Resolution, reach: Reach) -> Iterator[Finding]:
    """Each build on each GPU."""
    for card in context.cards:
        for one in resolution.chosen:
            if one.build is not None:
                yield from _build(one, card, context, reach, resolution.get("torch"))
        if context.cuda and not resolution.chosen:
            yield from _toolkit(card, context.cuda)


def _values(one: Chosen, card: Card) -> dict[str, str]:
    build = one.build
    assert build is not None  # noqa: S101 - the caller looked
    return {
        "package": one.label, "gpu": card.label, "cc": card.cc, "sm": "sm_" + card.cc.replace(".", ""), "cuda": build.cuda,
        "sass": ", ".join("sm_" + t.replace(".", "") for t in build.sass.split()), "lowest": build.lowest, "highest": build.highest,
        "ptx": ", ".join("compute_" + t.replace(".", "") for t in build.ptx.split() if t != "none"), "own": reach_text(build.cuda),
    }  # fmt: skip


def reach_text(cuda: str) -> str:
    """The toolkit driver of a CUDA release, for texts."""
    row = cuda_row(cuda)
    return row.toolkit_driver if row is not None else ""


def _build(one: Chosen, card: Card, context: Context, reach: Reach, torch: Chosen | None) -> Iterator[Finding]:
    build = one.build
    if build is None or build.cuda == "none" or build.variant == "rocm":
        return
    values = _values(one, card)
    if build.lowest and card.capability < numbers(build.lowest):
        yield Finding("compat.arch_unsupported.lowest", values, one.label, build.source)
        return
    if card.kind == "jetson" and build.cuda not in ("torch", "jit") and card.cc not in build.sass.split():
        yield Finding("unknown.jetson", values, one.label)
        return
    if build.needs == "nvrtc" and context.cuda:
        yield from _toolkit(card, context.cuda)
    if not build.sass:
        yield from _by_bounds(one, card, values)
        return
    if sass_runs(card.capability, build.sass):
        return
    if not ptx_below(card.capability, build.ptx):
        newer = card.capability > max((numbers(t) for t in build.sass.split()), default=())
        yield Finding(
            "compat.arch_unsupported.too_new" if newer else "compat.arch_unsupported.too_old",
            values,
            one.label,
            build.source,
        )
    elif not _libraries_know(card, _cuda_in_use(one, context, torch)):
        if build.highest and card.capability[0] > numbers(build.highest)[0]:
            yield Finding("compat.arch_unsupported.highest", values, one.label, build.source)
        elif build.libraries == "system" and not context.cuda and _some_toolkit_knows(card, build.toolkit):
            yield Finding("unknown.arch_ptx", values, one.label)
        else:
            yield Finding("compat.arch_unsupported.ptx", values, one.label, build.source)
    elif context.driver and reach.cuda and numbers(_built_with(one, torch)) > numbers(reach.cuda):
        yield Finding(
            "driver.too_old_for_cuda.ptx",
            {**values, "driver": context.driver_text, "has": reach.cuda},
            one.label,
            build.source,
        )


def _by_bounds(one: Chosen, card: Card, values: dict[str, str]) -> Iterator[Finding]:
    """Where no list of architectures is known: the package's own bounds, else nothing to say for "torch", else unknown."""
    build = one.build
    if build is None:
        return
    if build.highest:
        if card.capability[0] > numbers(build.highest)[0]:
            yield Finding("compat.arch_unsupported.highest", values, one.label, build.source)
    elif build.cuda not in ("torch", "toolkit", "jit") or (
        build.needs == "" and not build.lowest and one.name != "torchtext"
    ):
        yield Finding("unknown.arch", values, one.label)


def _cuda_in_use(one: Chosen, context: Context, torch: Chosen | None) -> str:
    """The CUDA release whose libraries a build works with: the system's, torch's, or its own."""
    build = one.build
    if build is not None and build.libraries == "system" and context.cuda:
        return context.cuda
    if build is not None and build.libraries == "torch" and torch is not None and numbers(torch.cuda):
        return torch.cuda
    return build.cuda if build is not None else ""


def _built_with(one: Chosen, torch: Chosen | None) -> str:
    """The CUDA release whose compiler wrote the PTX."""
    if one.build is not None and one.build.cuda == "torch":
        return torch.cuda if torch is not None else ""
    return one.build.cuda if one.build is not None else ""


def _some_toolkit_knows(card: Card, asked: str) -> bool:
    """Whether one of the toolkits that a build accepts has code for the GPU."""
    return any(satisfies(row.release, asked) and sass_runs(card.capability, row.archs) for row in tables().cuda)


def _libraries_know(card: Card, cuda: str) -> bool:
    """Whether cuBLAS and its kin of a CUDA release have code for the GPU's generation: PTX of a framework alone does not carry it."""
    row = cuda_row(cuda)
    return row is not None and sass_runs(card.capability, row.archs)


def _toolkit(card: Card, cuda: str) -> Iterator[Finding]:
    """A toolkit against a GPU."""
    row = cuda_row(cuda)
    values = {
        "cuda": cuda,
        "gpu": card.label,
        "cc": card.cc,
        "sm": "sm_" + card.cc.replace(".", ""),
        "package": f"CUDA toolkit {cuda}",
    }
    if row is None:
        yield Finding("unknown.cuda", values, f"CUDA {cuda}")
    elif not sass_runs(card.capability, row.archs):
        archs = [numbers(t) for t in row.archs.split()]
        first = next((r.release for r in tables().cuda if sass_runs(card.capability, r.archs)), "?")
        last = next((r.release for r in reversed(tables().cuda) if sass_runs(card.capability, r.archs)), "?")
        newer = card.capability > max(archs) or card.capability[0] not in {a[0] for a in archs if a < card.capability}
        text = (
            "compat.arch_unsupported.toolkit_old"
            if newer and card.capability > min(archs)
            else "compat.arch_unsupported.toolkit_new"
        )
        yield Finding(text, {**values, "first": first, "last": last}, f"CUDA {cuda}", row.source)


def has_cuda_name(name: str) -> bool:
    """Whether a package's name says that it is for GPUs, though no table lists it."""
    return bool(
        re.search(
            r"(?:^|[-_.])(?:cuda|cu1[0-9](?:\d|x)?|gpu|nvidia|cudf|cuml|cugraph|rapids|triton|torch|tensorrt|cutlass)(?:$|[-_.0-9])|^torch|-cuda",
            name,
        )
    )
