"""Python packages: pip list, pip freeze, conda list; and the driver's distribution packages (dpkg, rpm)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpuclinic.recognise.parsers.gpu_tables import cuda_of_tag, lowest_driver, torch_build
from gpuclinic.recognise.parsers.gpu_text import Draft, Scalar

if TYPE_CHECKING:
    from gpuclinic.model import Document, Fact

_FREEZE = re.compile(r"^\s*(?P<name>[A-Za-z0-9][\w.-]{0,80})==(?P<version>[0-9][\w.+!-]{0,60})\s*(?:;.*)?$")
_RULE = re.compile(r"^-{3,} -{3,}[- ]*$")
_HEAD = re.compile(r"^Package\s+Version(?:\s+.*)?$")
_ROW = re.compile(r"^(?P<name>[A-Za-z0-9][\w.-]{0,80})\s{1,}(?P<version>[0-9][\w.+!-]{0,60})(?:\s+\S.*)?$")
_CONDA_HEAD = re.compile(r"^# packages in environment at (?P<path>\S+?):?\s*$|^#\s+Name\s+Version\s+Build")
_CONDA = re.compile(
    r"^(?P<name>[a-z0-9_][\w.-]{0,80})\s+(?P<version>[0-9][\w.+!-]{0,60})\s+(?P<build>[\w.+-]{1,60})(?:\s+(?P<chan"
    r"nel>\S+))?\s*$"
)
_DPKG = re.compile(
    r"^(?P<state>[a-z]{2,3})\s+(?P<name>[a-z0-9][\w.+-]{2,80}?)(?::\w+)?\s+(?P<version>\d[\w.+:~-]{2,80})\s"
)
_RPM = re.compile(
    r"^(?P<name>(?:kmod-|akmod-|dkms-)?(?:nvidia|cuda|libnvidia|xorg-x11-drv-nvidia|nccl|libnccl|datacenter-gpu-ma"
    r"nager)[\w+-]*?)-(?:\d+:)?(?P<version>\d[\w.~+]*)-(?P<release>[\w.~+]+)\.(?:x86_64|aarch64|noarch)\s*$"
)
_DRIVERISH = (
    "nvidia",
    "libnvidia",
    "cuda",
    "libcuda",
    "libnccl",
    "libcudnn",
    "datacenter-gpu-manager",
    "linux-modules-nvidia",
    "linux-image",
    "libxnvctrl",
    "nvlsm",
    "kmod-nvidia",
)
_BUILD_CUDA = re.compile(r"cuda(\d{2,3}|\d+\.\d+|_?\d{2,3})")
MOST = 3000


def parse_pip(document: Document) -> list[Fact]:
    """Facts package of `pip list` tables and `pip freeze` lines."""
    facts: list[Fact] = []
    table = False
    for index, line in enumerate(document.lines()):
        if len(facts) > MOST:
            break
        text = line.rstrip()
        if _HEAD.match(text):
            table = True
            continue
        if table and _RULE.match(text):
            continue
        frozen = _FREEZE.match(text)
        if frozen:
            facts.append(package(document, "pip", frozen["name"], frozen["version"], index, line))
            continue
        if table:
            row = _ROW.match(text)
            if row:
                facts.append(package(document, "pip", row["name"], row["version"], index, line))
            else:
                table = False
    return facts


def parse_metadata(document: Document) -> list[Fact]:
    """Fact package of the METADATA of an installed Python package (NAME.dist-info), whose headers end at the first empty line."""
    name = version = ""
    place = (0, "")
    for index, line in enumerate(document.lines()[:200]):
        head, _, value = line.partition(":")
        if not line.strip():
            break
        if head == "Name":
            name = value.strip()
        elif head == "Version":
            version, place = value.strip(), (index, line)
    if not _FREEZE.match(f"{name}=={version}"):
        return []
    return [package(document, "pip", name, version, *place)]


def parse_conda(document: Document) -> list[Fact]:
    """Facts package of `conda list`."""
    facts: list[Fact] = []
    table = False
    for index, line in enumerate(document.lines()):
        text = line.rstrip()
        if _CONDA_HEAD.match(text):
            table = True
            continue
        if text.startswith("#"):
            continue
        row = _CONDA.match(text) if table else None
        if row:
            facts.append(package(document, "conda", row["name"], row["version"], index, line, row["build"]))
        elif table and text:
            table = False
        if len(facts) > MOST:
            break
    return facts


def parse_system_packages(document: Document) -> list[Fact]:
    """Facts system_package of `dpkg -l` and `rpm -qa`, only those of GPUs, CUDA and the kernel."""
    facts: list[Fact] = []
    for index, line in enumerate(document.lines()):
        if len(line) > 400:
            continue
        found = _DPKG.match(line) or _RPM.match(line)
        if not found or not found["name"].startswith(
            (*_DRIVERISH, "kmod-", "akmod-", "dkms-", "xorg-x11-drv-nvidia", "nccl")
        ):
            continue
        draft = Draft(document, "system_package", found["name"], index, line)
        version = found["version"]
        upstream = re.match(r"(?:\d+:)?(\d{3}\.\d+(?:\.\d+)?)", version)
        draft.put("name", found["name"], index, line)
        draft.put("version", version, index, line)
        draft.put("upstream", upstream.group(1) if upstream else None)
        draft.put("component", _component(found["name"]))
        state = found.groupdict().get("state") or "ii"
        draft.put("installed", state.startswith(("ii", "hi")))
        facts.append(draft.fact())
        if len(facts) > MOST:
            break
    return facts


def _component(name: str) -> str | None:
    for words, part in (
        ("fabricmanager", "fabric manager"),
        ("fabric-manager", "fabric manager"),
        ("libnvidia-compute", "libcuda"),
        ("nvidia-utils", "nvidia-smi"),
        ("nvidia-dkms", "kernel module"),
        ("nvidia-kernel", "kernel module"),
        ("linux-modules-nvidia", "kernel module"),
        ("kmod-nvidia", "kernel module"),
        ("nvidia-driver", "driver"),
        ("imex", "imex"),
    ):
        if words in name:
            return part
    return None


def package(document: Document, manager: str, name: str, version: str, index: int, line: str, build: str = "") -> Fact:
    """A Python package; torch also says its CUDA build, its GPU architectures and the driver it needs."""
    plain = re.sub(r"[-_.]+", "-", name).lower()
    draft = Draft(document, "package", plain, index, line)
    draft.put("name", plain, index, line)
    draft.put("version", version, index, line)
    draft.fields["manager"] = manager
    if build:
        draft.fields["build"] = build
    tag = version.split("+", 1)[1] if "+" in version else ""
    if tag:
        draft.fields["local"] = tag
    draft.fields["cpu_build"] = tag.startswith("cpu") or (bool(build) and re.search(r"(?:^|_)cpu", build) is not None)
    cuda = cuda_of_tag(tag) or _cuda_of_build(build)
    if plain in ("torch", "pytorch"):
        torch_fields(draft.fields, version, cuda, draft.fields["cpu_build"] is True or "rocm" in tag)
    elif cuda:
        draft.fields["cuda_build"] = cuda
    return draft.fact()


def _cuda_of_build(build: str) -> str | None:
    found = _BUILD_CUDA.search(build)
    if not found:
        return None
    digits = found.group(1).lstrip("_")
    return digits if "." in digits else f"{digits[:-1]}.{digits[-1]}" if len(digits) == 3 else None


def torch_fields(fields: dict[str, Scalar], version: str, cuda: str | None, without_cuda: bool) -> None:
    """Adds what the tables know of a PyTorch build: CUDA release, lowest driver, compute capabilities."""
    fields["is_torch"] = True
    if without_cuda:
        return
    row = torch_build(version, cuda)
    if "dev" in version or "a0" in version:
        row = None
    build = cuda or (row["cuda_build"] if row else None)
    if build:
        fields["cuda_build"] = build
        fields["lowest_driver"] = lowest_driver(build)
    if row and row["sm_list"]:
        capabilities = row["sm_list"].split()
        fields["sm_list"] = row["sm_list"]
        fields["sm_lowest"] = float(capabilities[0])
        fields["families"] = " ".join(sorted({f"sm_{c.split('.')[0]}x" for c in capabilities}))
        fields["ptx"] = row["ptx"] != "no"
        fields["cudnn_expected"] = row["cudnn"] or None
        fields["nccl_expected"] = row["nccl"] or None
