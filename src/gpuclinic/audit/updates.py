"""Versions with known holes that let a container or a visitor out, and what watches over the server. By files alone."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpuclinic.audit.hits import Hit
from gpuclinic.knowledge.audit_versions import SafeVersion, safe_versions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpuclinic.audit.scene import Scene
    from gpuclinic.model import Scalar, Where

_STATUS = "/var/lib/dpkg/status"
_MOST_STATUS = 16 << 20
_NUMBERS = re.compile(r"^(?:\d{1,3}:)?(\d{1,6}(?:\.\d{1,6}){0,4})")
_DISTRIBUTION = re.compile(r"ubuntu|deb\d|\+dfsg|~bpo|\.el\d|\.fc\d")
"""Marks of packages that a distribution mends without a new number of its maker; by their number nothing can be said."""


def versions(scene: Scene) -> list[Hit]:
    """version_unsafe: packages of their makers below the first number without the hole; an information, since who can use it is not known."""
    wanted = {row.package: row for row in safe_versions()}
    out = []
    for package, version, where in (*_dpkg(scene, wanted), *_of_python(scene, wanted)):
        row = wanted[package]
        if is_older(version, row.first_safe):
            values: dict[str, Scalar] = {"name": package, "version": version, "safe": row.first_safe, "why": row.why}
            out.append(Hit(id="version_unsafe", subject=package, evidence=[where], values=values))
    return out


def is_older(version: str, safe: str) -> bool:
    """By its numbers; a version that cannot be read, or that a distribution mends under its old number, is not older.

    >>> is_older("1.17.4-1", "1.17.8"), is_older("1.17.8-1", "1.17.8"), is_older("1.1.7-0ubuntu1~22.04.2", "1.2.8"), is_older("made-up", "1.2")
    (True, False, False, False)
    """
    here, there = _NUMBERS.match(version), _NUMBERS.match(safe)
    if here is None or there is None or _DISTRIBUTION.search(version):
        return False
    return [int(n) for n in here[1].split(".")] < [int(n) for n in there[1].split(".")]


def _dpkg(scene: Scene, wanted: dict[str, SafeVersion]) -> Iterator[tuple[str, str, Where]]:
    text = scene.text(_STATUS, "audit.updates", _MOST_STATUS)
    package, installed = "", False
    for index, line in enumerate(text.lines() if text else ()):
        key, _, value = line.partition(": ")
        if key == "Package":
            package, installed = value.strip(), False
        elif key == "Status":
            installed = value.strip().endswith(" installed")
        elif key == "Version" and installed and package in wanted and text is not None:
            yield package, value.strip()[:64], text.at(index)


def _of_python(scene: Scene, wanted: dict[str, SafeVersion]) -> Iterator[tuple[str, str, Where]]:
    """Packages of Python of the system, of conda in its usual place, and of environments that processes run from."""
    folders = {
        "/usr/lib/python3/dist-packages",
        "/usr/local/lib/python3*/dist-packages",
        "/usr/local/lib/python3*/site-packages",
        "/opt/conda/lib/python3*/site-packages",
    }
    for process in scene.processes.values():
        way = process.argv[0] if process.argv and process.argv[0].startswith("/") else process.exe or ""
        if "/bin/python" in way and not way.startswith(("/usr/bin/", "/bin/")) and not set("*?[") & set(way):
            folders.add(f"{way[: way.index('/bin/python')]}/lib/python3*/site-packages")
    for name in (row.package for row in wanted.values() if row.python):
        for folder in sorted(folders)[:64]:
            for text in scene.texts(f"{folder}/{name}-*.dist-info/METADATA", "audit.updates", 1 << 16):
                found = re.search(rf"/{re.escape(name)}-([^/]+)\.dist-info/", text.path)
                if found:
                    yield name, found[1][:64], scene.where(text.path, f"{name} {found[1]}")


CHECKS: tuple[tuple[str, Callable[[Scene], list[Hit]]], ...] = (("audit.updates", versions),)
