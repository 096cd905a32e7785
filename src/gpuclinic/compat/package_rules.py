"""Packages against Python, machine, glibc, the system's libraries, and one another."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from packaging.specifiers import SpecifierSet

from gpuclinic.compat.demands import canonical
from gpuclinic.compat.finding import Finding
from gpuclinic.compat.gpus import vendor_of
from gpuclinic.compat.resolve import (
    TORCH_FAMILY,
    Chosen,
    Resolution,
    accepts_python,
    builds_of,
    has_python,
    offered,
    requirement,
    wheels_of,
)
from gpuclinic.compat.versions import numbers, satisfies, version

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuclinic.compat.context import Context
    from gpuclinic.knowledge.compat import Pin, Wheel


def judge_packages(context: Context, resolution: Resolution) -> Iterator[Finding]:
    """All rules about packages alone."""
    for exact, other in resolution.refused:
        yield Finding("compat.abi.contradiction", {"package": exact.raw[:100], "other": other.raw[:100]}, exact.name)
    for one in resolution.chosen:
        yield from _exists(one, context)
        yield from _python(one, context)
        yield from _glibc(one, context)
    yield from _cpu_only(context, resolution)
    yield from _pins(context, resolution)
    yield from _abi(resolution)


def _exists(one: Chosen, context: Context) -> Iterator[Finding]:
    values = {"package": one.label, "machine": context.machine}
    if one.missing == "unknown.version" and (wheels_of(one.name) or builds_of(one.name)):
        yield Finding("unknown.version", values, one.label)
        return
    if one.missing == "missing.build":
        made = sorted(
            {
                b.cuda
                for b in builds_of(one.name)
                if context.machine in b.machines.split() and satisfies(one.release, b.versions)
            }
            - {"none", ""},
            key=numbers,
        )
        yield Finding("compat.framework_cuda.no_build", {**values, "made": ", ".join(made)}, one.label)
        return
    if one.missing == "unknown.build":
        if one.variant and not _machine_has(one, context):
            yield Finding("compat.python.machine", values, one.label)
        else:
            yield Finding("unknown.build", values, one.label)
        return
    rows = wheels_of(one.name)
    if (
        rows
        and one.wheel is None
        and one.release
        and not (one.wanted is not None and (one.wanted.wheel or one.wanted.conda))
        and _never_heard_of(one, rows, context)
    ):
        yield Finding("unknown.version", values, one.label)


def _never_heard_of(one: Chosen, rows: list[Wheel], context: Context) -> bool:
    """Whether a version is newer than the tables; of torch and its kin, whose releases are never deleted, also whether the index has it."""
    parsed, first, last = version(one.release), version(rows[0].version), version(rows[-1].version)
    if parsed is None or first is None or last is None:
        return True
    if one.build is not None and parsed.is_prerelease:
        return False  # an image's own build, of which the image tells
    if parsed > last:  # a row of builds that ends at a version knows all before it
        return one.build is None or "<" not in one.build.versions
    return one.name in TORCH_FAMILY and not one.variant and parsed > first and not context.installed


def _machine_has(one: Chosen, context: Context) -> bool:
    """Whether the package has such a build for this machine in any version; if not for this version, but for another machine, it is missing."""
    other = [b for b in builds_of(one.name) if b.variant == one.variant and satisfies(one.release, b.versions)]
    return not other or any(context.machine in b.machines.split() for b in other)


def _python(one: Chosen, context: Context) -> Iterator[Finding]:
    """Wheels for this Python and machine."""
    want = one.wanted
    values = {"package": one.label, "python": context.python, "machine": context.machine}
    if want is not None and want.wheel:
        if want.machine and context.machine_given and want.machine != context.machine:
            yield Finding("compat.python.machine", values, one.label)
        if context.python and want.pythons and not has_python(" ".join(want.pythons), context.python):
            yield Finding("compat.python.tag", {**values, "has": " ".join(want.pythons)}, one.label)
        return
    if (
        one.wheel is None
        or (want is not None and (want.conda or want.source))
        or (context.installed and want is not None)
    ):
        return
    pythons = offered(one.wheel, context.machine)
    if (
        one.build is not None
        and context.machine == "aarch64"
        and one.variant
        and context.machine in one.build.machines.split()
    ):
        pythons = one.wheel.x86_64  # builds of another index: for the same Pythons
    if not pythons and (one.wheel.x86_64 or one.wheel.aarch64):
        yield Finding("compat.python.machine", values, one.label)
    elif context.python and not (
        has_python(pythons, context.python) and accepts_python(one.wheel, context.python, context.python_full)
    ):
        yield Finding(
            "compat.python.none", {**values, "has": pythons, "requires": one.wheel.requires_python or "-"}, one.label
        )


def _glibc(one: Chosen, context: Context) -> Iterator[Finding]:
    if not context.glibc:
        return
    floor = ""
    if one.wanted is not None and one.wanted.wheel:
        floor = one.wanted.glibc
    elif one.wheel is not None and not (one.wanted is not None and one.wanted.conda):
        floor = one.wheel.glibc_aarch64 if context.machine == "aarch64" else one.wheel.glibc_x86_64
    if one.build is not None and one.wanted is not None and one.wanted.wheel:
        floor = max(
            filter(None, (floor, _glibc_of_builders(one.build.needs, one.wanted.built_for.torch))),
            key=numbers,
            default="",
        )
    if floor and context.glibc < numbers(floor):
        values = {"package": one.label, "floor": floor, "glibc": ".".join(map(str, context.glibc))}
        yield Finding("compat.host_libs.glibc", values, one.label)


def _glibc_of_builders(needs: str, torch: str) -> str:
    """What prebuilt wheels need whose tag does not say it: "glibc=2.32", "glibc[torch>=2.7]=2.32" (of those for that torch and newer)."""
    for since, floor in re.findall(r"glibc(?:\[torch>=([\d.]+)\])?=(\S+)", needs):
        if not since or (torch and numbers(torch) >= numbers(since)):
            return str(floor)
    return ""


def _cpu_only(context: Context, resolution: Resolution) -> Iterator[Finding]:
    """Builds without CUDA, where a GPU is to be used."""
    cpu, gpu = resolution.get("onnxruntime"), resolution.get("onnxruntime-gpu")
    if cpu is not None and gpu is not None:
        yield Finding("compat.cpu_only_build.both", {"package": cpu.label, "other": gpu.label}, cpu.label)
    on_gpu = any(numbers(one.cuda) for one in resolution.chosen)
    for one in resolution.chosen:
        if (one is cpu and gpu is not None) or (on_gpu and _for_cpus_by_name(one)):
            continue
        if one.cuda != "none" and not (one.build is not None and one.build.variant == "rocm"):
            continue
        values = {"package": one.label, "machine": context.machine}
        if one.build is not None and one.build.variant == "rocm":
            if not any(vendor_of(name) for name in context.unknown_gpus):
                yield Finding("compat.cpu_only_build.rocm", values, one.label)
        elif one.name == "jaxlib" and not one.variant:
            jax_gpu = any(c.name.startswith("jax-cuda") for c in resolution.chosen)
            if context.gpu_wanted and not jax_gpu:
                yield Finding("compat.cpu_only_build.jax", values, one.label)
        elif one.name in TORCH_FAMILY and (
            one.variant == "cpu" or (one.build is not None and one.build.variant == "cpu")
        ):
            explicit = one.variant == "cpu" or context.machine_given or context.gpu_wanted
            if explicit and one.name == "torch":
                text = "compat.cpu_only_build.explicit" if one.variant == "cpu" else "compat.cpu_only_build.default"
                yield Finding(text, values, one.label, one.build.source if one.build is not None else "")
        elif one.name not in TORCH_FAMILY and (
            context.gpu_wanted or context.cuda or (context.machine_given and context.machine == "aarch64")
        ):
            yield Finding(
                "compat.cpu_only_build.package", values, one.label, one.build.source if one.build is not None else ""
            )
    jax = resolution.get("jax")
    if (
        jax is not None
        and context.gpu_wanted
        and not any(c.name.startswith("jax-cuda") or c.name == "jaxlib" for c in resolution.chosen)
    ):
        yield Finding("compat.cpu_only_build.jax", {"package": jax.label, "machine": context.machine}, jax.label)


def _for_cpus_by_name(one: Chosen) -> bool:
    """Whether no build of a package has CUDA, as of onnxruntime and tensorflow-cpu: beside software for GPUs it is meant so."""
    rows = builds_of(one.name)
    return bool(rows) and all(row.cuda == "none" for row in rows)


_ABOUT = [
    (r"nvidia-cudnn", "compat.cudnn.pins"),
    (r"nvidia-nccl", "compat.nccl_version.pins"),
    (r"nvidia-|cuda-", "compat.framework_cuda.pins"),
]


def _pins(context: Context, resolution: Resolution) -> Iterator[Finding]:
    """What packages demand of one another."""
    present = {one.name: one for one in resolution.chosen}
    told: set[tuple[str, str]] = set()
    for one, pin in resolution.pins:
        found = requirement(pin.requires)
        if found is None:
            continue
        name = canonical(found.name)
        other = present.get(name)
        if other is None or not other.release or other is one:
            continue
        asked = str(found.specifier)
        if satisfies(other.release, asked) or (context.installed and _same_minor(other.release, found.specifier)):
            continue
        if other.implied_by == one.name or (one.name, name) in told:
            continue
        told.add((one.name, name))
        values = {"package": one.label, "other": other.label, "requires": pin.requires, "reason": pin.reason}
        yield Finding(_text_for(name, pin), values, one.label, pin.source)
    yield from _both_pin(resolution, present)
    yield from _shared_folders(resolution)


def _same_minor(release: str, asked: SpecifierSet) -> bool:
    """Of what is installed already, another patch release than the pinned one runs."""
    return any(s.operator == "==" and numbers(s.version)[:2] == numbers(release)[:2] for s in asked)


def _text_for(name: str, pin: Pin) -> str:
    for pattern, text in _ABOUT:
        if re.match(pattern, name):
            return text
    if name == "numpy":
        return "compat.abi.numpy"
    return "compat.abi.pins" if pin.reason == "metadata" else "compat.abi.pair"


def _both_pin(resolution: Resolution, present: dict[str, Chosen]) -> Iterator[Finding]:
    """Two packages that demand different versions of a third that nobody named."""
    demands: dict[str, list[tuple[Chosen, str]]] = {}
    for one, pin in resolution.pins:
        found = requirement(pin.requires)
        if found is not None and found.specifier and canonical(found.name) not in present and pin.reason == "metadata":
            demands.setdefault(canonical(found.name), []).append((one, str(found.specifier)))
    for name, rows in demands.items():
        if not re.match(r"nvidia-(cudnn|nccl|cublas)|triton$|jaxlib$|torch$", name):
            continue
        for i, (one, mine) in enumerate(rows):
            for other, its in rows[i + 1 :]:
                if one is not other and _disjoint(mine, its):
                    values = {"package": one.label, "other": other.label, "requires": name + mine, "wants": name + its}
                    text = next((t for p, t in _ABOUT if re.match(p, name)), "compat.abi.pins")
                    yield Finding(text.replace(".pins", ".both"), values, one.label)
                    return


def _disjoint(mine: str, its: str) -> bool:
    """Whether no version satisfies both, as far as exact ones tell."""
    for first, second in ((mine, its), (its, mine)):
        for part in SpecifierSet(first):
            if part.operator == "==" and not part.version.endswith(".*") and not satisfies(part.version, second):
                return True
    return False


def _shared_folders(resolution: Resolution) -> Iterator[Finding]:
    """nvidia-nccl-cu11 and -cu12 write into one folder: the later one wins, whatever the framework was built with."""
    torch = resolution.get("torch")
    if torch is None or torch.build is None or not numbers(torch.cuda):
        return
    major = str(numbers(torch.cuda)[0])
    for one in resolution.chosen:
        found = re.fullmatch(r"nvidia-([a-z-]+?)-cu(\d\d)", one.name)
        if found and found[2] != major:
            text = {"nccl": "compat.nccl_version.folder", "cudnn": "compat.cudnn.folder"}.get(
                found[1], "compat.framework_cuda.folder"
            )
            yield Finding(
                text, {"package": one.label, "torch": torch.label, "major": major, "library": found[1]}, one.label
            )


def torch_abi(torch: Chosen) -> str:
    """How a torch build has its C++ strings: "new" from 2.7 on, and in the 2.6 builds for CUDA 12.6 and arm64; "" where not known."""
    release = numbers(torch.release)
    if torch.wanted is not None and torch.wanted.conda:
        return ""
    if release >= (2, 7):
        return "new"
    if release[:2] == (2, 6):
        tag = torch.build.variant if torch.build is not None else torch.variant
        return (
            "new"
            if tag in ("cu126", "cpu") or (torch.build is not None and torch.build.machines == "aarch64")
            else "old"
        )
    return "old" if release else ""


def _abi(resolution: Resolution) -> Iterator[Finding]:
    """Extensions against the torch they were built for."""
    torch = resolution.get("torch")
    if torch is None or not torch.release:
        return
    for one in resolution.chosen:
        want = one.wanted
        if want is None or one is torch:
            continue
        built = want.built_for
        values = {
            "package": one.label,
            "torch": torch.label,
            "built_torch": built.torch,
            "built_abi": built.abi,
            "abi": torch_abi(torch),
        }
        if built.torch and numbers(built.torch)[:2] != numbers(torch.release)[:2]:
            yield Finding("compat.abi.extension", values, one.label)
        elif built.abi and torch_abi(torch) and built.abi != torch_abi(torch):
            yield Finding("compat.abi.strings", values, one.label)
