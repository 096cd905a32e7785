"""Versions and compute capabilities: how they are written, and how they compare."""

from __future__ import annotations

import functools
import re

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

Numbers = tuple[int, ...]
_NUMBERS = re.compile(r"\s*[vVR]?(\d{1,6}(?:\.\d{1,6}){0,5})")


@functools.lru_cache(16_384)
def numbers(text: str) -> Numbers:
    """The leading dotted numbers of a version: "535.104.05" -> (535, 104, 5); () where it begins with none."""
    found = _NUMBERS.match(text)
    return tuple(int(part) for part in found[1].split(".")) if found else ()


def at_least(mine: Numbers, floor: Numbers) -> bool | None:
    """Whether a version is at least another; None where it is written too short to tell ("535" against "535.54.03")."""
    if len(mine) < len(floor) and mine == floor[: len(mine)]:
        return None
    return mine >= floor


@functools.lru_cache(4096)
def version(text: str) -> Version | None:
    """As pip reads it; None where it is none."""
    try:
        return Version(text)
    except InvalidVersion:
        return None


@functools.lru_cache(4096)
def specifier(text: str) -> SpecifierSet | None:
    """As pip reads it; None where it is none."""
    try:
        return SpecifierSet(text, prereleases=True)
    except InvalidSpecifier:
        return None


@functools.lru_cache(65_536)
def satisfies(which: str, wanted: str) -> bool:
    """Whether a version satisfies a specifier; "" is satisfied by all. The local part of the version is left out unless it is asked for."""
    if not wanted.strip():
        return True
    parsed, asked = version(which), specifier(wanted)
    if parsed is None or asked is None:
        return False
    if "+" not in wanted:
        parsed = Version(parsed.public)
    return asked.contains(parsed, prereleases=True)


def two(text: str) -> str:
    """ "12.4.1" -> "12.4"; "11" stays."""
    return ".".join(str(n) for n in numbers(text)[:2])


def cuda_of_tag(tag: str) -> str | None:
    """ "cu121" -> "12.1", "cu92" -> "9.2", "cuda11.8" -> "11.8", "cu12" -> "12"; None where it is no such tag."""
    found = re.fullmatch(r"cu(?:da)?[-_]?(\d{1,2})\.(\d{1,2})(?:\.\d+)?", tag)
    if found:
        return f"{int(found[1])}.{int(found[2])}"
    found = re.fullmatch(r"cu(?:da)?(\d{2,4})x?", tag)
    if not found:
        return None
    digits = found[1]
    if len(digits) == 2:
        return digits if digits in ("11", "12", "13", "14", "10") else f"{digits[0]}.{digits[1]}"
    return f"{digits[:2]}.{digits[2:]}"


def capability(text: str) -> Numbers | None:
    """ "8.6", "sm_86", "compute_90a", "12.0f" -> (8, 6); None where it is none."""
    found = re.fullmatch(r"(?:sm|compute|cc)?[_ ]?(\d{1,2})\.(\d)[af]?", text, re.IGNORECASE)
    if found:
        return int(found[1]), int(found[2])
    found = re.fullmatch(r"(?:sm|compute|cc)[_ ]?(\d{1,2})(\d)[af]?", text, re.IGNORECASE)
    return (int(found[1]), int(found[2])) if found else None
