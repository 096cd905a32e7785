"""Reads what is wanted: a requirement, a wheel's file name, a conda spec, one line each. Listings are in `listings`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import msgspec

from gpuclinic.compat.demands import NoRequirementError, canonical, demand
from gpuclinic.compat.versions import cuda_of_tag, two, version

if TYPE_CHECKING:
    from packaging.markers import Marker

MOST_LENGTH = 2_000
_CONDA_NAMES = {
    "pytorch": "torch",
    "pytorch-gpu": "torch",
    "pytorch-cpu": "torch",
    "libtorch": "torch",
    "py-xgboost": "xgboost",
}
_SPEC = re.compile(r"^(?:[\w.-]+::)?([A-Za-z0-9][\w.-]*)\s*=\s*([\w.*+!]+)(?:=([\w.*]+))?$")


class BuiltFor(msgspec.Struct, frozen=True):
    """What a file name or a local version says that the code was built against. abi: of libstdc++'s strings, "new" or "old"."""

    torch: str = ""
    cuda: str = ""
    abi: str = ""


class Wanted(msgspec.Struct, frozen=True):
    """One package that is wanted.

    spec: a specifier set. local: the local version ("cu121"). exact: the version where exactly one is named, without its local part.
    python, machine, glibc: of a wheel's tags. marker_false: the requirement does not apply here. source: it is built on the spot.
    """

    name: str
    raw: str
    spec: str = ""
    exact: str = ""
    local: str = ""
    extras: frozenset[str] = frozenset()
    built_for: BuiltFor = BuiltFor()
    pythons: tuple[str, ...] = ()
    machine: str = ""
    glibc: str = ""
    wheel: bool = False
    applies: bool = True
    source: bool = False
    conda: bool = False


class NotReadError(Exception):
    """A text that is no requirement."""


def parse_want(text: str, surroundings: dict[str, str]) -> Wanted:
    """One requirement, wheel file, URL or conda spec. surroundings: for markers (python_version, platform_machine ...)."""
    text = text.strip()[:MOST_LENGTH]
    text = re.sub(r"\s+--?hash[= ].*$|\s+;?\s*#.*$|\s*\\$", "", text)
    if re.search(r"\.whl(?:[#?\s].*)?$", text, re.IGNORECASE):
        return _wheel(text)
    if text.startswith(("git+", "hg+", "svn+", "-e ")) or re.search(r"@\s*git\+", text):
        return _editable(text)
    conda = _SPEC.match(text)
    if conda and "==" not in text:
        return _conda(conda[1], conda[2], conda[3] or "", text)
    try:
        found = demand(text)
    except NoRequirementError as problem:
        raise NotReadError(str(problem)) from problem
    if found.url:
        return _from_url(canonical(found.name), found.url, text)
    exact = next(
        (s.version for s in found.specifier if s.operator in ("==", "===") and not s.version.endswith(".*")), ""
    )
    parsed = version(exact) if exact else None
    local = (parsed.local or "") if parsed else ""
    return Wanted(
        _alias(canonical(found.name)), text, _without_local(str(found.specifier)), parsed.public if parsed else exact, local,
        frozenset(canonical(extra) for extra in found.extras), built_for=built_for(local),
        applies=_applies(found.marker, surroundings),
    )  # fmt: skip


def _alias(name: str) -> str:
    return _CONDA_NAMES.get(name, name)


def _without_local(spec: str) -> str:
    return re.sub(r"\+[\w.]+", "", spec)


def _applies(marker: Marker | None, surroundings: dict[str, str]) -> bool:
    if marker is None:
        return True
    from packaging.markers import UndefinedComparison, UndefinedEnvironmentName

    try:
        return bool(marker.evaluate({**surroundings, "extra": ""}))
    except (UndefinedComparison, UndefinedEnvironmentName, ValueError):
        return True


def built_for(local: str) -> BuiltFor:
    """What a local version tells: "cu12torch2.6cxx11abiFALSE", "pt21cu118", "torch2.1.0cu121"."""
    text = local.lower()
    torch = re.search(r"torch[-_]?(\d+\.\d+)", text)
    short = re.search(r"(?:^|[^a-z])pt(\d{2,4})(?=[^0-9]|$)", text)
    cuda = re.search(r"cu(?:da)?(\d{2,4}(?:\.\d+)?)", text)
    abi = re.search(r"cxx11abi(true|false)", text)
    return BuiltFor(
        torch[1] if torch else _torch_of_digits(short[1]) if short else "",
        (cuda_of_tag("cu" + cuda[1]) or "") if cuda else "",
        {"true": "new", "false": "old"}[abi[1]] if abi else "",
    )


def _torch_of_digits(digits: str) -> str:
    """ "21" -> "2.1", "270" -> "2.7", "2100" -> "2.10"; "" for "210", which is 2.1.0 as well as 2.10."""
    if len(digits) == 3:
        return f"{digits[0]}.{digits[1]}" if digits[1] != "1" else ""
    return f"{digits[0]}.{digits[1:3]}" if len(digits) == 4 else f"{digits[0]}.{digits[1]}"


def _wheel(text: str) -> Wanted:
    from packaging.utils import InvalidWheelFilename, parse_wheel_filename

    raw = text
    text = re.sub(r"[#?\s].*$", "", text.split("@", 1)[-1].strip() if "://" in text else text)
    file = unquote(urlsplit(text).path if "://" in text else text).rsplit("/", 1)[-1]
    try:
        name, found, _, tags = parse_wheel_filename(file)
    except InvalidWheelFilename as problem:
        raise NotReadError(f"not a wheel's file name: {file[:120]}") from problem
    pythons, machines, glibc = set(), set(), set()
    for tag in tags:
        python = re.fullmatch(r"cp(\d)(\d+)", tag.interpreter)
        if python:
            pythons.add(
                f"{python[1]}.{python[2]}"
                + ("+" if tag.abi == "abi3" else "t" if tag.abi.endswith("t") and tag.abi != "abi3t" else "")
            )
        machine = re.search(r"(x86_64|aarch64)$", tag.platform)
        machines.add(machine[1] if machine else tag.platform)
        floor = _floor(tag.platform)
        if floor:
            glibc.add(floor)
    lowest = min(glibc, default="", key=lambda text: tuple(int(part) for part in text.split(".")))
    local = found.local or ""
    return Wanted(
        _alias(name), raw, f"=={found.public}", found.public, local, built_for=built_for(local), pythons=tuple(sorted(pythons)),
        machine=next(iter(machines)) if len(machines) == 1 else "", glibc=lowest, wheel=True,
    )  # fmt: skip


def _floor(platform: str) -> str:
    """The glibc of a platform tag; "" where it names none."""
    found = re.match(r"manylinux_(\d+)_(\d+)_", platform)
    if found:
        return f"{found[1]}.{found[2]}"
    return {"manylinux2014": "2.17", "manylinux2010": "2.12", "manylinux1": "2.5"}.get(platform.split("_", 1)[0], "")


def _from_url(name: str, url: str, raw: str) -> Wanted:
    path = unquote(urlsplit(url).path)
    if path.lower().endswith(".whl"):
        return msgspec.structs.replace(_wheel(url), raw=raw)
    tag = re.search(r"@v?(\d+(?:\.\d+)+[\w.]*)$", path)
    return Wanted(_alias(name), raw, f"=={tag[1]}" if tag else "", tag[1] if tag else "", source=True)


def _editable(text: str) -> Wanted:
    named = re.search(r"#egg=([\w.-]+)", text) or re.match(r"([\w.-]+)(?:\[[^\]]*\])?\s*@", text)
    name = named[1] if named else re.sub(r"(?:\.git)?(?:@[^/]*)?(?:#.*)?$", "", text).rsplit("/", 1)[-1]
    tag = re.search(r"@v?(\d+(?:\.\d+)+)(?:#|$)", text)
    return Wanted(_alias(canonical(name)), text, f"=={tag[1]}" if tag else "", tag[1] if tag else "", source=True)


def _conda(name: str, release: str, build: str, raw: str) -> Wanted:
    """pytorch=1.13.1=py3.9_cuda11.7_cudnn8.5.0_0; "=" in conda means "==X.*" where it is short."""
    return conda_package(name, release.rstrip("*").rstrip("."), build, raw)


def conda_package(name: str, release: str, build: str, raw: str) -> Wanted:
    """A package of a conda environment: its build string tells CUDA and CPU builds apart."""
    plain = canonical(name)
    local = ""
    cuda = re.search(r"cuda_?(\d{1,2}\.\d|\d{2,4})", build)
    if cuda:
        found = cuda_of_tag("cu" + cuda[1].replace(".", ""))
        local = "cu" + found.replace(".", "") if found else ""
    elif re.search(r"(?:^|_)cpu(?:_|$|\d)|mkl|eigen|cpu_", build) or plain == "pytorch-cpu":
        local = "cpu"
    parsed = version(release)
    full = parsed is not None and len(parsed.release) >= 3
    spec = f"=={release}" if full else f"=={release}.*" if parsed else ""
    return Wanted(_alias(plain), raw, spec, release if full else "", local, conda=True)


def cuda_tag(cuda: str) -> str:
    """ "12.1" -> "cu121"."""
    return "cu" + two(cuda).replace(".", "")
