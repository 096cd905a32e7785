"""The first versions without a hole that matters on a GPU server, as data with the CVE and where it is said."""

from __future__ import annotations

import functools

import msgspec

from gpuclinic.knowledge._load import DATA, packed_files, read_toml


class SafeVersion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """package: its name in dpkg, or on PyPI where python is true. first_safe: the first number without the hole. why: CVE and what it allows."""

    package: str
    first_safe: str
    why: str
    source: str
    python: bool = False


@functools.cache
def safe_versions() -> tuple[SafeVersion, ...]:
    """All rows."""
    path = DATA / "audit" / "safe_versions.toml"
    return tuple(
        packed_files(
            "audit-versions",
            [path],
            lambda: msgspec.convert(read_toml(path)["version"], list[SafeVersion]),
            list[SafeVersion],
        )
    )
