"""CUDA against the driver: minor-version compatibility, PTX, forward compatibility, containers, LD_LIBRARY_PATH."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from gpuclinic.compat.context import Context, cuda_of_driver
from gpuclinic.compat.finding import Finding
from gpuclinic.compat.versions import Numbers, at_least, numbers
from gpuclinic.knowledge.compat import Cuda, tables

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuclinic.compat.resolve import Resolution


class Reach(msgspec.Struct, frozen=True):
    """What the driver offers in the end.

    cuda: its CUDA release. driver: by which floors are judged. lifted: by a compat package; unsure: perhaps by one.
    """

    cuda: str
    driver: Numbers
    lifted: bool = False
    unsure: bool = False


def cuda_row(release: str) -> Cuda | None:
    """The row of "12.4"; of "12" the first release of that major."""
    rows = tables().cuda
    found = next((row for row in rows if row.release == release), None)
    if found is None and release and "." not in release:
        found = next((row for row in rows if row.release.split(".")[0] == release), None)
    return found


def floor_of(row: Cuda) -> str:
    """The lowest driver that runs programs of a CUDA release: of its major from 11 on, else of its own toolkit."""
    if not row.major_floor:
        return row.toolkit_driver
    if row.toolkit_driver and numbers(row.toolkit_driver) < numbers(row.major_floor):
        return row.toolkit_driver
    return row.major_floor


def reach_of(context: Context) -> tuple[Reach, list[Finding]]:
    """What the driver offers, lifted by a forward-compatibility package where one is in use, and what is wrong with that package."""
    own = Reach(context.driver_cuda, context.driver)
    if not context.driver:
        return own, list(_without_driver(context))
    package = compat_package(context)
    if package and _made_by_entry_point(context):
        return _where_it_helps(context, own, package), []
    if package:
        return _with_package(context, own, package, named=True)
    if context.container_cuda and own.cuda and numbers(context.container_cuda) > numbers(own.cuda):
        return _with_package(context, own, context.container_cuda, named=False)
    return own, []


def _without_driver(context: Context) -> Iterator[Finding]:
    """A compat package on a card that cannot use any."""
    package = compat_package(context)
    for card in context.cards:
        if package and card.kind == "geforce":
            yield Finding(
                "compat.cuda_compat_libs.geforce",
                {"gpu": card.label, "cuda": package, "driver": "?", "own": "?"},
                "libcuda.so",
            )


def compat_package(context: Context) -> str:
    """The CUDA release of a compat folder in LD_LIBRARY_PATH; "?" where its release is not told; "" where there is none."""
    for part in context.variables.get("LD_LIBRARY_PATH", "").split(":"):
        if re.search(r"/compat(?:/lib(?:\.real)?)?/?$", part.rstrip("/") + "/") or re.search(r"/compat(?:/|$)", part):
            release = re.search(r"cuda-(\d+\.\d+)", part)
            return release[1] if release else context.container_cuda or context.cuda or "?"
    return ""


def _made_by_entry_point(context: Context) -> bool:
    """Whether all compat folders are ".../compat/lib": in NVIDIA's framework images a link that the entry point makes only where it helps."""
    parts = [
        part for part in context.variables.get("LD_LIBRARY_PATH", "").split(":") if re.search(r"/compat(?:/|$)", part)
    ]
    return all(re.search(r"/cuda[^/]*/compat/lib/?$", part) for part in parts)


def _where_it_helps(context: Context, own: Reach, package: str) -> Reach:
    """What the driver offers in such an image: the compat package's where it can be used, else its own (minor-version compatibility)."""
    if package == "?" or not own.cuda or numbers(package) <= numbers(own.cuda):
        return own
    base = _base(package, context.driver[0])
    if not context.cards or any(card.kind != "data_centre" for card in context.cards) or base != "works":
        certain = (
            base == "fails"
            or any(card.kind == "geforce" for card in context.cards)
            or numbers(package)[:1] == numbers(own.cuda)[:1]
        )
        return own if certain else _unsure(own)
    row = cuda_row(package)
    lifted = numbers(row.toolkit_driver) if row is not None and row.toolkit_driver else own.driver
    return Reach(package, max(lifted, own.driver), lifted=True)


def _with_package(context: Context, own: Reach, package: str, *, named: bool) -> tuple[Reach, list[Finding]]:
    """Judges the use of a compat package. named: it stands in LD_LIBRARY_PATH, so that it is used whatever the driver brings."""
    values = {"cuda": package, "driver": context.driver_text, "own": own.cuda, "branch": str(context.driver[0])}
    if package == "?" or not own.cuda:
        return _unsure(own), [Finding("unknown.forward", values, "libcuda.so")]
    if numbers(package) < numbers(own.cuda):
        return own, [Finding("compat.cuda_compat_libs.older", values, "libcuda.so")] if named else []
    if numbers(package) == numbers(own.cuda):
        # of the same branch: not needed, and a libcuda of another point version does not fit the kernel module
        return own, [Finding("unknown.forward", values, "libcuda.so")] if named else []
    for card in context.cards:
        if card.kind == "geforce":
            found = _base(package, context.driver[0])
            text = (
                "driver.too_old_for_cuda.image" if found == "fails" and not named else "compat.cuda_compat_libs.geforce"
            )
            return own, [Finding(text, {**values, "gpu": card.label}, "libcuda.so")]
        if card.kind != "data_centre":
            return _unsure(own), [Finding("unknown.forward_card", {**values, "gpu": card.label}, "libcuda.so")]
    base = _base(package, context.driver[0])
    if base == "fails":
        text = "compat.cuda_compat_libs.base" if named else "driver.too_old_for_cuda.image"
        return own, [Finding(text, {**values, "gpu": ", ".join(c.label for c in context.cards) or "GPU"}, "libcuda.so")]
    if base != "works":
        return _unsure(own), [Finding("unknown.forward", values, "libcuda.so")]
    if not context.cards:
        return _unsure(own), [Finding("unknown.forward_card", {**values, "gpu": "?"}, "libcuda.so")]
    row = cuda_row(package)
    lifted = numbers(row.toolkit_driver) if row is not None and row.toolkit_driver else own.driver
    return Reach(package, max(lifted, own.driver), lifted=True), []


def _unsure(own: Reach) -> Reach:
    return msgspec.structs.replace(own, unsure=True)


def _base(package: str, branch: int) -> str:
    """Whether a driver branch is a base for a compat package: "works", "fails", "" where the table does not tell."""
    mine = numbers(package)
    for row in tables().forward:
        if numbers(row.cuda_from) <= mine <= numbers(row.cuda_to) and int(row.branch) == branch:
            return row.result
    return ""


def judge_cuda(context: Context, resolution: Resolution, reach: Reach) -> Iterator[Finding]:
    """Each CUDA release in use against what the driver offers."""
    if not context.driver or (context.cards and all(card.kind == "jetson" for card in context.cards)):
        return  # the drivers of JetPack are numbered otherwise
    seen: set[str] = set()
    for one in resolution.chosen:
        release = one.cuda
        major = _major_of_name(one.name)
        if not release and major:
            release = major
        if (
            one.build is not None
            and one.build.libraries == "system"
            and context.cuda
            and numbers(context.cuda)[:1] == numbers(release)[:1]
        ):
            release = max(release, context.cuda, key=numbers)
        if not release or release == "none" or release in seen:
            continue
        seen.add(release)
        yield from _floor(release, one.label, context, reach)
        if (
            one.build is not None
            and one.build.libraries == "torch"
            and one.build.jit
            and not context.variables.get("TRITON_PTXAS_PATH")
        ):
            yield from _ptxas(one.build.jit, one.label, context, reach)
    for one in resolution.chosen:
        if one.build is not None and one.build.cuda == "jit" and not context.variables.get("TRITON_PTXAS_PATH"):
            yield from _ptxas(one.build.jit, one.label, context, reach)
    if context.cuda and not seen and not resolution.chosen:
        yield from _floor(context.cuda, f"CUDA toolkit {context.cuda}", context, reach)
    elif not resolution.chosen and context.container_cuda and not reach.lifted:
        yield from _floor(context.container_cuda, f"CUDA {context.container_cuda} image", context, reach)


def _major_of_name(name: str) -> str:
    """ "12" of nvidia-cublas-cu12, cudf-cu12."""
    found = re.search(r"-cu(?:da)?(\d\d)x?$", name)
    return found[1] if found else ""


def _floor(release: str, label: str, context: Context, reach: Reach) -> Iterator[Finding]:
    row = cuda_row(release)
    if row is None:
        yield Finding("unknown.cuda", {"cuda": release, "package": label}, label)
        return
    floor = floor_of(row)
    values = {
        "package": label,
        "cuda": release,
        "major": release.split(".")[0],
        "floor": floor,
        "driver": context.driver_text,
        "own": reach.cuda,
    }
    fits = at_least(reach.driver, numbers(floor))
    if fits is False and reach.unsure:
        return  # said already: whether the compat package lifts it is not known
    if fits is False:
        yield Finding("driver.too_old_for_cuda.floor", values, label, row.source)
    elif fits is None:
        yield Finding("unknown.driver_short", values, label)


def _ptxas(release: str, label: str, context: Context, reach: Reach) -> Iterator[Finding]:
    """What a bundled ptxas compiles needs a driver of its CUDA major."""
    row = cuda_row(release)
    if row is None:
        return
    floor = floor_of(row)
    if at_least(reach.driver, numbers(floor)) is False:
        values = {
            "package": label,
            "cuda": release,
            "floor": floor,
            "driver": context.driver_text,
            "own": cuda_of_driver(context.driver),
        }
        yield Finding("driver.too_old_for_cuda.ptxas", values, label)
