"""CUDA toolkits and libraries on disk and in processes: version files, headers, ld.so.conf, /proc/PID/maps. Pure."""

from __future__ import annotations

import json
import re
from typing import NamedTuple

LIBRARIES = (
    "libcuda",
    "libcudart",
    "libcudnn",
    "libnccl",
    "libnvidia-ml",
    "libcublas",
    "libcublasLt",
    "libnvrtc",
    "libcufft",
    "libcusparse",
)
"""Whose versions decide whether a program runs; libcudnn_ops and its like are parts of libcudnn."""
_LIBRARY = re.compile(rf"(?P<name>{'|'.join(LIBRARIES)})\.so(?:\.(?P<version>\d+(?:\.\d+)*))?")
_MAPPED = re.compile(r"^[0-9a-f]+-[0-9a-f]+ \S{4} [0-9a-f]+ [0-9a-f]+:[0-9a-f]+ \d+\s+(?P<path>/.*)$", re.MULTILINE)
_DEFINED = re.compile(
    r"^\s*#\s*define\s+(?P<name>CUDNN_(?:MAJOR|MINOR|PATCHLEVEL)|NCCL_(?:MAJOR|MINOR|PATCH))\s+(?P<value>\d{1,4})\b",
    re.MULTILINE,
)


class Mapped(NamedTuple):
    """A library that a process has mapped. deleted: its file is no more, or has been replaced. version: as its file name tells."""

    name: str
    path: str
    version: str | None
    deleted: bool


def library_of(path: str) -> tuple[str, str | None] | None:
    """Name and version of a CUDA library by its file name."""
    found = _LIBRARY.fullmatch(path.rpartition("/")[2])
    return (found["name"], found["version"]) if found else None


def parse_maps(text: str) -> list[Mapped]:
    """The CUDA libraries in /proc/PID/maps, each once."""
    out: dict[str, Mapped] = {}
    for found in _MAPPED.finditer(text):
        path = found["path"]
        deleted = path.endswith(" (deleted)")
        place = path.removesuffix(" (deleted)")
        library = library_of(place)
        if library is not None:
            out.setdefault(place, Mapped(library[0], place, library[1], deleted))
    return list(out.values())


def packages_folder(text: str) -> str | None:
    """The site-packages folder that most of a process's mapped extension modules lie in."""
    counts: dict[str, int] = {}
    for found in _MAPPED.finditer(text):
        head, middle, _ = found["path"].rpartition("-packages/")
        if middle and head.endswith(("/site", "/dist")):
            counts[f"{head}-packages"] = counts.get(f"{head}-packages", 0) + 1
    return max(counts, key=lambda place: (counts[place], place), default=None)


def parse_toolkit(path: str, text: str) -> str | None:
    """The release of a toolkit by its version.json or version.txt ("12.4.1")."""
    if path.endswith(".json"):
        try:
            told = json.loads(text)
        except (ValueError, RecursionError):
            return None
        cuda = told.get("cuda") if isinstance(told, dict) else None
        version = cuda.get("version") if isinstance(cuda, dict) else None
        return version[:40] if isinstance(version, str) and re.match(r"\d+\.\d+", version) else None
    found = re.search(r"CUDA Version (\d+\.\d+(?:\.\d+)?)", text)
    return found[1] if found else None


def parse_header(text: str) -> str | None:
    """The version that cudnn_version.h, cudnn.h or nccl.h defines ("9.1.0")."""
    told: dict[str, str] = {}
    for found in _DEFINED.finditer(text):
        told.setdefault(found["name"], found["value"])
    for names in (("CUDNN_MAJOR", "CUDNN_MINOR", "CUDNN_PATCHLEVEL"), ("NCCL_MAJOR", "NCCL_MINOR", "NCCL_PATCH")):
        if all(name in told for name in names[:2]):
            return ".".join(told[name] for name in names if name in told)
    return None


def glibc_of_name(name: str) -> str | None:
    """The C library's release where its file's name tells it ("libc-2.31.so"), as it did up to 2.33."""
    found = re.fullmatch(r"libc-(2\.\d+)\.so", name.rpartition("/")[2])
    return found[1] if found else None


def parse_os_release(text: str) -> dict[str, str]:
    """The settings of os-release(5), quotes taken off."""
    out: dict[str, str] = {}
    for line in text.splitlines()[:200]:
        name, equals, value = line.partition("=")
        if equals:
            out.setdefault(name.strip(), value.strip().strip("\"'"))
    return out


_CUDA_PACKAGE = re.compile(
    r"^Package: (?P<name>(?:cuda-(?:toolkit|runtime|compat)|libcudnn|libnccl|nvidia-cuda-toolkit|cudnn)[\w.+-]*)\n"
    r"Status: \w+ ok installed\n(?:[^\n]+\n){0,40}?Version: (?P<version>[^\n]{1,80})$",
    re.MULTILINE,
)


def parse_installed(text: str) -> list[tuple[str, str]]:
    """Name and version of CUDA's packages in /var/lib/dpkg/status."""
    return [(found["name"], found["version"]) for found in _CUDA_PACKAGE.finditer(text)][:200]


_CUDA_RPM = re.compile(
    r"^(?P<name>(?:cuda-(?:toolkit|runtime|compat)|libcudnn|libnccl|cudnn|nccl)[\w.+-]*?)-(?P<version>\d[^-\n]{0,60}-[^-\n]{1,60})\.(?:x86_64|aarch64|noarch|sbsa)$",
    re.MULTILINE,
)


def parse_rpms(text: str) -> list[tuple[str, str]]:
    """Name and version of CUDA's packages in what `rpm -qa` prints."""
    return [(found["name"], found["version"]) for found in _CUDA_RPM.finditer(text)][:200]


def library_folders(conf: dict[str, str]) -> list[tuple[str, str]]:
    """Folders that ld.so.conf and the files of ld.so.conf.d name, in their order, each with the file that names it."""
    out: list[tuple[str, str]] = []
    for path, text in conf.items():
        for line in text.splitlines()[:500]:
            words = line.partition("#")[0].split()
            out += [(word.partition("=")[0].rstrip("/"), path) for word in words[:20] if word.startswith("/")]
    return list(dict.fromkeys(out))
