"""Reads listings: requirements, lock files, pip freeze, pip list, conda list, environment.yml, an image's environment."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

from gpuclinic.compat.versions import two
from gpuclinic.compat.wants import MOST_LENGTH, NotReadError, Wanted, conda_package, cuda_tag, parse_want

MOST_LINES = 20_000
_VARIABLE = re.compile(r"^(?:ENV\s+|export\s+|-?\s*)?\"?([A-Z][A-Z0-9_]{2,80})=(?!=)(.*?)\"?,?$")
_BLOCK = re.compile(r"^name\s*=\s*\"([^\"]+)\"\s*$\n(?:^\s*$\n)?^version\s*=\s*\"([^\"]+)\"", re.MULTILINE)
_INDEX = re.compile(r"^(?:--extra-index-url|--index-url|-i|--find-links|-f)[= ]\s*(\S+)")
_WHEEL_INDEX = re.compile(r"/whl/(?:nightly/|test/)?(cu\d{2,4}|cpu|rocm[\d.]+)\b")


class Listing(msgspec.Struct):
    """What one text holds. index: the tag of a named PyTorch index ("cu121"). variables: of an image's environment."""

    wanted: list[Wanted] = []
    index: str = ""
    variables: dict[str, str] = {}
    container_cuda: str = ""
    not_read: list[str] = []
    frozen: bool = False


def read_listing(text: str, surroundings: dict[str, str]) -> Listing:
    """Whatever it is; what cannot be read is named in not_read."""
    text = text.lstrip("\ufeff")
    if text.lstrip().startswith("{"):
        return _json(text, surroundings)
    found = Listing()
    blocks = _BLOCK.findall(text)
    if blocks:
        for name, release in blocks[:MOST_LINES]:
            _add(found, f"{name}=={release}", surroundings)
        found.frozen = True
        if len(blocks) > MOST_LINES:
            found.not_read.append(f"all packages after the first {MOST_LINES}")
        return found
    lines = _joined(text)
    for line in lines[:MOST_LINES]:
        _line(line, found, surroundings)
    if len(lines) > MOST_LINES:
        found.not_read.append(f"all lines after the first {MOST_LINES}")
    return found


def _joined(text: str) -> list[str]:
    """Logical lines: a backslash at the end joins."""
    return re.sub(r"\\\r?\n", " ", text).splitlines()


def _line(raw: str, found: Listing, surroundings: dict[str, str]) -> None:
    line = raw.strip()[:MOST_LENGTH]
    index = _INDEX.match(line)
    if index:
        tag = _WHEEL_INDEX.search(index[1])
        found.index = tag[1] if tag else found.index
        return
    for option in re.findall(r"\s(?:--extra-index-url|--index-url|-i)[= ]\s*(\S+)", line):
        tag = _WHEEL_INDEX.search(option)
        found.index = tag[1] if tag else found.index
    line = re.sub(
        r"\s--?(?:extra-index-url|index-url|hash|i|no-deps|find-links|f|no-build-isolation|pre|upgrade|U)\b(?:[= ]\S+)?",
        "",
        line,
    ).strip()
    line = re.sub(r"^(?:uv\s+|python3?\s+-m\s+)?pip3?\s+install\s+", "", line)
    variable = _VARIABLE.match(line)
    if variable:
        _variable(variable[1], variable[2], found)
        return
    image = image_of(line)
    if image is not None:
        found.wanted += image.wanted
        found.container_cuda = image.container_cuda
        if not image.wanted and not image.container_cuda:
            found.not_read.append(line)
        return
    line = re.sub(r"^-\s+(?!e\b)", "", line)
    if re.match(r"(?:-e|--editable)[= ]\s*(?:\.|/|file:)|(?:-r|-c|--requirement|--constraint)[= ]", line):
        found.not_read.append(line[:200])  # another file, or a folder: not followed
        return
    if (
        not line
        or line.startswith(("#", "--", "-r", "-c", "-e .", "[", "{", "<"))
        or line.endswith(":")
        or set(line) <= set("-= ")
    ):
        return
    if re.match(r"(?:name|prefix|channels|dependencies|python):", line, re.IGNORECASE) or re.match(
        r"Package\s+Version|Name\s+Version", line, re.IGNORECASE
    ):
        return
    table = re.match(r"^([A-Za-z0-9][\w.-]*)\s+(\d[\w.+!]*)(?:\s+(\S+))?(?:\s+\S+)?$", line)
    if table:
        _table(table[1], table[2], table[3] or "", line, found, surroundings)
        return
    _add(found, line, surroundings)


def _table(name: str, release: str, build: str, line: str, found: Listing, surroundings: dict[str, str]) -> None:
    """A line of conda list or pip list."""
    found.frozen = True
    if build and "/" not in build and not build.startswith("pypi"):
        found.wanted.append(conda_package(name, release, build, line))
    else:
        _add(found, f"{name}=={release}", surroundings)


def _add(found: Listing, text: str, surroundings: dict[str, str]) -> None:
    if re.match(r"^-?e?\s*(?:\.{0,2}/|file:)", text):
        found.not_read.append(text)
        return
    try:
        wanted = parse_want(text, surroundings)
    except NotReadError:
        parts = text.split()
        if len(parts) > 1 and not re.search(r"[<>=!~;@]\s", text):
            for part in parts:
                _add(found, part, surroundings)
            return
        found.not_read.append(text[:200])
        return
    if wanted.applies:
        found.wanted.append(wanted)


def _variable(name: str, value: str, found: Listing) -> None:
    value = value.strip().strip("'\"")
    found.variables[name] = value
    if name in ("CUDA_VERSION", "NV_CUDA_LIB_VERSION") and re.match(r"\d+\.\d+", value):
        found.container_cuda = found.container_cuda or two(value)
    elif name == "PYTORCH_VERSION" and re.match(r"\d+\.\d+", value):
        try:
            found.wanted.append(parse_want(f"torch=={value}", {}))
        except NotReadError:
            found.not_read.append(f"{name}={value}")


def image_of(text: str) -> Listing | None:
    """A container image's name: nvidia/cuda and pytorch/pytorch tell their CUDA; other images tell nothing."""
    found = re.fullmatch(r"(?:docker\.io/|FROM\s+)?((?:nvcr\.io/)?[a-z0-9_.-]+/[a-z0-9_./-]+):([\w.-]+)", text)
    if not found:
        return None
    listing = Listing()
    name, tag = found[1], found[2]
    if name.endswith("nvidia/cuda"):
        release = re.match(r"(\d+\.\d+)", tag)
        listing.container_cuda = release[1] if release else ""
    elif name == "pytorch/pytorch":
        parts = re.match(r"(\d+\.\d+(?:\.\d+)?)-cuda(\d+\.\d+)", tag)
        if parts:
            listing.container_cuda = parts[2]
            listing.wanted.append(parse_want(f"torch=={parts[1]}+{cuda_tag(parts[2])}", {}))
    return listing


def _json(text: str, surroundings: dict[str, str]) -> Listing:
    """Pipfile.lock, pip inspect and pip's report, docker inspect's environment."""
    found = Listing(frozen=True)
    try:
        body: Any = json.loads(text)
    except (ValueError, RecursionError):
        found.not_read.append("a JSON text that is broken")
        return found
    for group in ("default", "develop"):
        rows = body.get(group) if isinstance(body, dict) else None
        if isinstance(rows, dict):
            for name, row in list(rows.items())[:MOST_LINES]:
                release = row.get("version") if isinstance(row, dict) else None
                _add(found, f"{name}{release if isinstance(release, str) else ''}", surroundings)
    for key in ("installed", "install"):
        rows = body.get(key) if isinstance(body, dict) else None
        for row in (rows if isinstance(rows, list) else [])[:MOST_LINES]:
            about = row.get("metadata") if isinstance(row, dict) else None
            if isinstance(about, dict) and isinstance(about.get("name"), str) and isinstance(about.get("version"), str):
                _add(found, f"{about['name']}=={about['version']}", surroundings)
    if not found.wanted:
        found.not_read.append("a JSON text without packages")
    return found
