"""Which package owns a file, from the package database's own files; nothing is asked of a program."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from gpuclinic.audit.scene import Scene

_MOST_LIST = 8 << 20
_MERGED = ("/bin/", "/sbin/", "/lib/", "/lib64/", "/lib32/")
"""Where a package may say /lib/x for what stands in /usr/lib/x (merged /usr)."""


class Ownership(msgspec.Struct):
    """owners: path to package. sums: path to MD5 as the package was shipped. modules: those of kernel modules. known: there is a
    database that could be read."""

    owners: dict[str, str] = {}
    sums: dict[str, str] = {}
    modules: dict[str, str] = {}
    known: bool = False

    def owner(self, path: str) -> str | None:
        """The package that ships the file; None where none does, or nothing is known."""
        return next((self.owners[way] for way in spellings(path) if way in self.owners), None)

    def md5(self, path: str) -> str | None:
        """What its package says of its content, in hexadecimal."""
        return next((self.sums[way] for way in spellings(path) if way in self.sums), None)


def spellings(path: str) -> list[str]:
    """A path with and without the /usr that a merged system has before it.

    >>> spellings("/usr/lib/x"), spellings("/bin/sh")
    (['/usr/lib/x', '/lib/x'], ['/bin/sh', '/usr/bin/sh'])
    """
    if path.startswith("/usr/") and path[4:].startswith(_MERGED):
        return [path, path[4:]]
    return [path, f"/usr{path}"] if path.startswith(_MERGED) else [path]


def read_packages(scene: Scene) -> Ownership:
    """dpkg's lists and sums. An RPM database is SQLite or Berkeley DB: then nothing is known."""
    out = Ownership()
    for text in scene.texts("/var/lib/dpkg/info/*.list", "audit.packages", _MOST_LIST):
        package = text.path.rpartition("/")[2].removesuffix(".list").partition(":")[0]
        out.known = True
        for line in text.lines():
            if line.startswith("/") and line != "/.":
                out.owners.setdefault(line, package)
                if ".ko" in line[-7:]:
                    out.modules[line] = package
    for text in scene.texts("/var/lib/dpkg/info/*.md5sums", "audit.packages", _MOST_LIST):
        for line in text.lines():
            digest, _, path = line.partition("  ")
            if path and len(digest) == 32:
                out.sums[f"/{path}"] = digest
    return out
