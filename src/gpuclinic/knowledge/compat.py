"""The tables that `compat` judges by: builds of frameworks, wheels, pins, CUDA releases, driver branches, kernels, GPUs.

TSV files under data/compat are for people; a packed copy in the cache is for speed. Versions are text here; who compares them parses them.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import msgspec

from gpuclinic.knowledge._load import DATA, packed_files

if TYPE_CHECKING:
    from pathlib import Path

FOLDER = DATA / "compat"


class Build(msgspec.Struct, frozen=True):
    """A build of a package, of all versions that a specifier names.

    variant: the local version's tag ("cu121", "cpu"), "" where there is one build only. default: machines for which the default index gives it.
    cuda: "12.1", "none" for a build without CUDA, "torch" for torch's, "" where not known.
    sass, ptx: compute capabilities, "" where not known, "none" where there is none. lowest, highest: the package's own bounds.
    libraries: "own" (bundled or pinned wheels), "system", or "torch" (what torch brings).
    toolkit, cudnn: specifiers of what a system's toolkit and cuDNN must satisfy; of torch, the cuDNN that it brings.
    with_cuda: specifier of torch's CUDA. jit: CUDA of a bundled ptxas. needs: "source" where it is compiled on the spot ("exact": by that very
    CUDA release), "nvrtc" where at run time, "glibc=2.32" or "glibc[torch>=2.7]=2.32" of prebuilt wheels whose tag does not say it.
    """

    package: str
    versions: str
    variant: str
    machines: str
    default: str
    cuda: str
    sass: str
    ptx: str
    lowest: str
    highest: str
    libraries: str
    toolkit: str
    cudnn: str
    with_cuda: str
    jit: str
    needs: str
    source: str


class Wheel(msgspec.Struct, frozen=True):
    """What the index offers of a version: Pythons ("3.8 3.9", "3.9+") and the lowest glibc, for each machine."""

    package: str
    version: str
    requires_python: str
    x86_64: str
    glibc_x86_64: str
    aarch64: str
    glibc_aarch64: str


class Pin(msgspec.Struct, frozen=True):
    """A requirement of a package's versions on another package. extra: only with that extra. reason: "metadata", or why it is so."""

    package: str
    versions: str
    extra: str
    requires: str
    reason: str
    source: str


class Cuda(msgspec.Struct, frozen=True):
    """A CUDA release: the driver of its toolkit, the lowest driver of its major ("" before 11), what it compiles for."""

    release: str
    toolkit_driver: str
    major_floor: str
    archs: str
    source: str


class DriverBranch(msgspec.Struct, frozen=True):
    """A driver branch and the CUDA release that it brings."""

    branch: str
    cuda: str
    source: str


class Gpu(msgspec.Struct, frozen=True):
    """GPUs by a pattern of their normalised name. kind: data_centre, geforce, workstation, jetson. machine: of those soldered to a CPU."""

    pattern: str
    capability: str
    kind: str
    first_driver: str
    machine: str
    source: str


class PciName(msgspec.Struct, frozen=True):
    """The product name of a PCI device id."""

    device: str
    name: str


class Chip(msgspec.Struct, frozen=True):
    """The compute capability of chips by a pattern of their code name: "gk107"."""

    pattern: str
    capability: str
    source: str


class Vendor(msgspec.Struct, frozen=True):
    """An accelerator that is not NVIDIA's, by a pattern of what people call it (lower case)."""

    pattern: str
    vendor: str
    source: str


class Architecture(msgspec.Struct, frozen=True):
    """What drives a compute capability: the first and the last driver branch ("" where open-ended), and the module flavour it needs."""

    capability: str
    name: str
    first_driver: str
    last_branch: str
    module: str
    module_from: str
    source: str


class KernelRange(msgspec.Struct, frozen=True):
    """Drivers from..below build on kernels up to builds_to, and not from fails_from on ("" where not known)."""

    driver_from: str
    driver_below: str
    builds_to: str
    fails_from: str
    fixed_in: str
    source: str


class Forward(msgspec.Struct, frozen=True):
    """Whether a forward-compatibility package of CUDA from..to works on a driver branch: "works", "fails"."""

    cuda_from: str
    cuda_to: str
    branch: str
    result: str
    source: str


class Known(msgspec.Struct, frozen=True):
    """A package that no GPU rule is about. pattern: of its normalised name."""

    pattern: str
    role: str
    source: str


class CudnnArchs(msgspec.Struct, frozen=True):
    """cuDNN versions and the lowest and highest compute capability that they have kernels for."""

    versions: str
    lowest: str
    highest: str
    source: str


class DistributionKernel(msgspec.Struct, frozen=True):
    """Kernels of distributions whose number tells less than they hold: a pattern of uname -r, and the release they are to be judged as."""

    pattern: str
    as_if: str
    source: str


class CompatTables(msgspec.Struct, frozen=True):
    """All tables. updated: of each file, the date in its first comment."""

    builds: list[Build]
    wheels: list[Wheel]
    pins: list[Pin]
    cuda: list[Cuda]
    branches: list[DriverBranch]
    gpus: list[Gpu]
    pci: list[PciName]
    chips: list[Chip]
    vendors: list[Vendor]
    architectures: list[Architecture]
    kernels: list[KernelRange]
    forward: list[Forward]
    packages: list[Known]
    cudnn: list[CudnnArchs]
    distributions: list[DistributionKernel]
    texts: dict[str, dict[str, str]]


_SHAPES: dict[str, type[msgspec.Struct]] = {
    "builds": Build,
    "wheels": Wheel,
    "pins": Pin,
    "cuda": Cuda,
    "branches": DriverBranch,
    "gpus": Gpu,
    "pci": PciName,
    "chips": Chip,
    "vendors": Vendor,
    "architectures": Architecture,
    "kernels": KernelRange,
    "forward": Forward,
    "packages": Known,
    "cudnn": CudnnArchs,
    "distributions": DistributionKernel,
}


def rows_of(path: Path) -> list[dict[str, str]]:
    """The rows of a table, comment lines (#) left out."""
    import csv  # only where the packed copy is not current

    with path.open(encoding="utf-8", newline="") as file:
        lines = (line for line in file if not line.startswith("#"))
        return [
            {name: value or "" for name, value in row.items() if name}
            for row in csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
        ]


def _read() -> CompatTables:
    from gpuclinic.knowledge._load import read_toml

    tables: dict[str, object] = {}
    for name, shape in _SHAPES.items():
        rows: list[dict[str, str]] = []
        for path in _files_of(name):
            rows += rows_of(path)
        tables[name] = [msgspec.convert({f: row.get(f, "") for f in shape.__struct_fields__}, shape) for row in rows]
    tables["texts"] = {row["id"]: row for row in read_toml(FOLDER / "texts.toml")["text"]}
    return msgspec.convert(tables, CompatTables)


def _files_of(name: str) -> list[Path]:
    """A table may be split by frameworks: builds.tsv, builds-torch.tsv ..."""
    return [
        FOLDER / file
        for file in _names()
        if file.endswith(".tsv") and (file == f"{name}.tsv" or file.startswith(f"{name}-"))
    ]


@functools.cache
def _names() -> list[str]:
    return sorted(path.name for path in FOLDER.iterdir())


@functools.cache
def tables() -> CompatTables:
    """All tables, from the cache where it is current."""
    files = [path for name in _SHAPES for path in _files_of(name)]
    return packed_files("compat", [*files, FOLDER / "texts.toml"], _read, CompatTables)


def ages() -> list[tuple[str, int, str, list[str]]]:
    """Of each table file: its name, its number of rows, when it was last brought up to date (its first comment), and its sources."""
    found = []
    for name in _SHAPES:
        for path in _files_of(name):
            with path.open(encoding="utf-8") as file:
                first = file.readline()
            rows = rows_of(path)
            date = first.removeprefix("#").strip() if first.startswith("#") else ""
            sources = sorted(
                {part.strip() for row in rows for part in row.get("source", "").split(";") if part.strip()}
            )
            found.append((path.name, len(rows), date, sources))
    return found
