"""Which package owns a file, from the package database's own files; nothing is asked of a program."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuclinic.audit.scene import Scene

_MOST_LIST = 8 << 20
_RUN_FROM_SHARE = (
    b"/usr/share/initramfs-tools/",
    b"/usr/share/dracut/",
    b"/usr/share/gitolite",
    b"/usr/share/bash-completion/",
)
"""Of /usr/share, half of all paths, what is ever run."""
_FIRST = "abcdefghijklmnopqrstuvwxyz0123456789"
"""What names of Debian packages begin with (Debian Policy 5.6.7)."""
_MERGED = ("/bin/", "/sbin/", "/lib/", "/lib64/", "/lib32/")
"""Where a package may say /lib/x for what stands in /usr/lib/x (merged /usr)."""


class Ownership:
    """owners: path to package. modules: those of kernel modules. known: there is a database that could be read."""

    def __init__(self, sums: Callable[[str], dict[str, str]]) -> None:
        """sums: of a package, path to MD5 as it was shipped; asked for only where a file is to be verified."""
        self.owners: dict[str, str] = {}
        self.modules: dict[str, str] = {}
        self.known = False
        self._sums = functools.lru_cache(16)(sums)

    def owner(self, path: str) -> str | None:
        """The package that ships the file; None where none does, or nothing is known."""
        return next((self.owners[way] for way in spellings(path) if way in self.owners), None)

    def md5(self, path: str) -> str | None:
        """What its package says of its content, in hexadecimal."""
        package = self.owner(path)
        told = self._sums(package) if package else {}
        return next((told[way] for way in spellings(path) if way in told), None)


def spellings(path: str) -> list[str]:
    """A path with and without the /usr that a merged system has before it.

    >>> spellings("/usr/lib/x"), spellings("/bin/sh")
    (['/usr/lib/x', '/lib/x'], ['/bin/sh', '/usr/bin/sh'])
    """
    if path.startswith("/usr/") and path[4:].startswith(_MERGED):
        return [path, path[4:]]
    return [path, f"/usr{path}"] if path.startswith(_MERGED) else [path]


def read_packages(scene: Scene) -> Ownership:
    """dpkg's lists, some at a time, since together they are large. An RPM database is SQLite or Berkeley DB: then nothing is known."""
    out = Ownership(lambda package: _sums(scene, package))
    for first in _FIRST:
        for path, answer in scene.host.files(f"/var/lib/dpkg/info/{first}*.list", _MOST_LIST).items():
            if not answer.ok:
                continue
            package = sys.intern(path.rpartition("/")[2].removesuffix(".list").partition(":")[0])
            out.known = True
            for raw in answer.data.split(b"\n"):
                if (
                    raw.startswith(b"/")
                    and raw != b"/."
                    and (not raw.startswith(b"/usr/share/") or raw.startswith(_RUN_FROM_SHARE))
                ):
                    line = raw.decode("utf-8", "replace")
                    out.owners.setdefault(line, package)
                    if ".ko" in line[-7:]:
                        out.modules[line] = package
    return out


def _sums(scene: Scene, package: str) -> dict[str, str]:
    out: dict[str, str] = {}
    for pattern in (f"/var/lib/dpkg/info/{package}.md5sums", f"/var/lib/dpkg/info/{package}:*.md5sums"):
        for answer in scene.host.files(pattern, _MOST_LIST).values():
            for line in answer.text.split("\n") if answer.ok else ():
                digest, _, path = line.partition("  ")
                if path and len(digest) == 32:
                    out[f"/{path}"] = digest
    return out
