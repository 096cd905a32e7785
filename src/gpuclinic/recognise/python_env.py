"""What the files of a Python environment tell: names in site-packages and conda-meta, METADATA, WHEEL, direct_url.json, version.py.

Pure, and of text alone: nothing is imported. Formats: Core metadata and "Recording installed projects" of packaging.python.org;
pyvenv.cfg of PEP 405; conda-meta of conda's documentation.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

MOST_NAMES = 200_000
"""As many as a listing holds at most: so many, and there may have been more."""
_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._]*[A-Za-z0-9])?"
_DIST = re.compile(rf"(?P<name>{_NAME})-(?P<version>[0-9][A-Za-z0-9.!+_]{{0,80}})\.dist-info")
_EGG = re.compile(
    r"(?P<name>[A-Za-z0-9][\w.]*?)(?:-(?P<version>[0-9][\w.!+]{0,80}?))?(?:-py\d\.\d+)?(?:-linux[-_]\w+)?\.egg(?P<what>-info|-link)?"
)
_CONDA = re.compile(r"(?P<name>[\w.-]{1,100})-(?P<version>[0-9][\w.+!]{0,80})-(?P<build>[\w.+]{1,100})\.json")
_EDITABLE = re.compile(rf"__editable__\.(?P<name>{_NAME})-.*\.pth|__editable___(?P<other>\w+?)_\d\w*_finder\.py")
_FIELD = re.compile(r"^(?P<name>[A-Za-z][\w-]*):[ \t]*(?P<value>.*)$")
_SETTING = re.compile(r"^\s*(?P<name>[\w-]+)\s*=\s*(?P<value>.*?)\s*$")
_ASSIGNED = re.compile(
    r"^(?P<name>__version__|cuda|hip|debug)\s*(?::[^=\n]{1,60})?=\s*(?P<value>.+?)\s*$", re.MULTILINE
)
_CUDA_WHEEL = re.compile(r"nvidia-[a-z0-9-]+?-cu(?P<major>1[0-9])")
_BUILD_CUDA = re.compile(r"(?:^|_)cuda_?(?P<digits>\d+\.\d+|\d{2,3})")


class Package(msgspec.Struct):
    """One installed package. name: normalised. manager: pip, conda, egg. entry: the file or folder that shows it. problems: what is wrong with it."""

    name: str
    version: str
    manager: str = "pip"
    build: str = ""
    entry: str = ""
    editable: bool = False
    cuda: str | None = None
    tags: list[str] = []
    problems: list[str] = []

    @property
    def local(self) -> str:
        """The local part of the version ("cu124")."""
        return self.version.partition("+")[2]


class Site(msgspec.Struct):
    """What the names in one folder of packages tell.

    leftovers: folders that an interrupted pip left ("~orch"). duplicates: name to its versions. unnamed: entries of metadata whose names
    are not as they should be. cut: there are, or may be, more names than were read.
    modules: folders and files that could be imported, under their own names.
    """

    packages: list[Package] = []
    leftovers: list[str] = []
    duplicates: dict[str, list[str]] = {}
    unnamed: list[str] = []
    modules: frozenset[str] = frozenset()
    cut: bool = False


def plain_name(name: str) -> str:
    """A package's name as all tools agree on it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def site_of(names: Iterable[str]) -> Site:
    """Packages of a site-packages folder by the names in it."""
    out = Site()
    modules: set[str] = set()
    editable: set[str] = set()
    entries = list(names)
    out.cut = len(entries) >= MOST_NAMES
    for entry in entries[:MOST_NAMES]:
        if entry.endswith((".dist-info", ".egg-info", ".egg", ".egg-link")):
            package = _package(entry)
            if package is not None:
                out.packages.append(package)
            elif not entry.startswith(("~", "-")):
                out.unnamed.append(entry)
            else:
                out.leftovers.append(entry)
        elif entry.startswith(("~", "-")):
            out.leftovers.append(entry)
        elif found := _EDITABLE.fullmatch(entry):
            editable.add(plain_name(found["name"] or found["other"]))
        else:
            modules.add(entry)
            modules.add(entry.partition(".")[0])
    versions: dict[str, list[str]] = {}
    for package in out.packages:
        package.editable = package.editable or package.name in editable
        if package.version:
            versions.setdefault(package.name, []).append(package.version)
    out.duplicates = {name: sorted(set(kept)) for name, kept in versions.items() if len(set(kept)) > 1}
    out.modules = frozenset(modules)
    return out


def _package(entry: str) -> Package | None:
    if found := _DIST.fullmatch(entry):
        return Package(plain_name(found["name"]), found["version"].replace("_", "-"), entry=entry)
    if found := _EGG.fullmatch(entry):
        link = found["what"] == "-link"
        return Package(plain_name(found["name"]), found["version"] or "", "egg", entry=entry, editable=link)
    return None


def conda_package(entry: str) -> Package | None:
    """A package by the name of its file in conda-meta ("pytorch-2.5.1-py3.12_cuda12.4_cudnn9.1.0_0.json")."""
    found = _CONDA.fullmatch(entry)
    if found is None:
        return None
    build = found["build"]
    return Package(found["name"].lower(), found["version"], "conda", build, entry, cuda=cuda_of_conda_build(build))


def cuda_of_conda_build(build: str) -> str | None:
    """The CUDA release in a conda build string.

    >>> [cuda_of_conda_build(b) for b in ("cuda121py310h2b9a52d_300", "py3.10_cuda12.4_cudnn9.1.0_0", "cuda92_0", "cpu_mkl")]
    ['12.1', '12.4', '9.2', None]
    """
    found = _BUILD_CUDA.search(build)
    if found is None:
        return None
    digits = found["digits"]
    if "." in digits:
        return digits
    if len(digits) == 3:
        return f"{digits[:2]}.{digits[2]}"
    return f"{digits[0]}.{digits[1]}" if digits[0] in "6789" else digits


def is_cpu_build(package: Package) -> bool:
    """Built without CUDA, by its own words."""
    return package.local.startswith("cpu") or (
        package.manager == "conda" and re.search(r"(?:^|_)cpu", package.build) is not None
    )


_CONDA_NAMES = {"pytorch": "torch"}


def requirement(package: Package, *, cuda: str | None, hip: str | None, told: bool) -> str | None:
    """An installed package as a pip requirement; torch with the build that its files tell. None without a version.

    cuda, hip: of torch/version.py. told: that file was read, so that neither means built for processors alone.

    >>> requirement(Package("pytorch", "2.5.1", "conda", "py3.12_cuda12.4_cudnn9.1.0_0", cuda="12.4"), cuda=None, hip=None, told=False)
    'torch==2.5.1+cu124'
    """
    if not package.version:
        return None
    name, version = _CONDA_NAMES.get(package.name, package.name), package.version
    if name == "torch" and not package.local:
        build = cuda or package.cuda
        if build:
            version += f"+cu{build.replace('.', '')}"
        elif hip:
            version += f"+rocm{hip}"
        elif told or is_cpu_build(package):
            version += "+cpu"
    return f"{name}=={version}"


def cuda_wheel_major(name: str) -> str | None:
    """The CUDA major in the name of one of NVIDIA's wheels ("nvidia-cudnn-cu12")."""
    found = _CUDA_WHEEL.fullmatch(name)
    return found["major"] if found else None


class Metadata(msgspec.Struct):
    """Fields of METADATA or PKG-INFO that matter. problem: why it is not as it should be."""

    name: str | None = None
    version: str | None = None
    requires_python: str | None = None
    requires: list[str] = []
    problem: str | None = None


def parse_metadata(data: bytes) -> Metadata:
    """The head of METADATA: fields up to the first empty line; bytes that are no UTF-8 are told, not fatal."""
    out = Metadata()
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as problem:
        cut_short = problem.start >= len(data) - 4
        text = data.decode("utf-8", "replace")
        out.problem = None if cut_short else "METADATA is not UTF-8"
    for line in text.split("\n")[:3000]:
        if not line.strip():
            break
        found = _FIELD.match(line.rstrip("\r"))
        if found is None:
            continue
        name, value = found["name"].lower(), found["value"].strip()[:300]
        if name == "name" and out.name is None:
            out.name = value
        elif name == "version" and out.version is None:
            out.version = value
        elif name == "requires-python":
            out.requires_python = value
        elif name == "requires-dist" and len(out.requires) < 300:
            out.requires.append(value)
    if out.problem is None and not text.strip("\0 \n\r"):
        out.problem = "METADATA is empty"
    elif out.problem is None and (not out.name or not out.version):
        out.problem = "METADATA has no name or no version"
    return out


def parse_wheel_tags(text: str) -> list[str]:
    """The tags of WHEEL ("cp312-cp312-manylinux_2_28_x86_64")."""
    found = (_FIELD.match(line.strip()) for line in text.splitlines()[:200])
    return [one["value"].strip()[:100] for one in found if one is not None and one["name"].lower() == "tag"][:20]


def parse_direct_url(text: str) -> tuple[str | None, bool]:
    """Where a package was installed from, and whether it is editable (PEP 610)."""
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        return None, False
    if not isinstance(told, dict):
        return None, False
    folder = told.get("dir_info")
    editable = isinstance(folder, dict) and folder.get("editable") is True
    url = told.get("url")
    return (url[:300] if isinstance(url, str) else None), editable


def parse_build(text: str) -> dict[str, str | None]:
    """torch/version.py: version, cuda, hip as they are written there; read as text, never run. Empty where it is none."""
    out: dict[str, str | None] = {}
    for found in _ASSIGNED.finditer(text[:20_000]):
        value = found["value"]
        quoted = re.fullmatch(r"""(['"])([^'"\n]{0,100})\1""", value)
        if quoted or value == "None":
            out.setdefault({"__version__": "version"}.get(found["name"], found["name"]), quoted[2] if quoted else None)
    return out


def parse_pyvenv(text: str) -> dict[str, str]:
    """pyvenv.cfg: its settings, names in lower case."""
    found = (_SETTING.match(line) for line in text.splitlines()[:200])
    return {one["name"].lower(): one["value"][:500] for one in found if one is not None}


def python_of(settings: dict[str, str]) -> str | None:
    """The Python release ("3.11.4") of a pyvenv.cfg; venv writes version, virtualenv and uv version_info."""
    for name in ("version_info", "version"):
        found = re.match(r"\d+\.\d+(?:\.\d+)?", settings.get(name, ""))
        if found:
            return found[0]
    return None


def parse_conda_file(data: bytes) -> dict[str, str]:
    """name, version, build, channel of the head of a file of conda-meta, which may be megabytes long; empty where it is no such file."""
    text = data.decode("utf-8", "replace")
    if not text.lstrip().startswith("{"):
        return {}
    found = re.findall(r'"(name|version|build|channel|build_string)"\s*:\s*"([^"\n]{0,200})"', text)
    return dict(reversed(found))
