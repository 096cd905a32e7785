"""What a path says: temporary, hidden, or an ordinary place. Pure."""

from __future__ import annotations

import functools
import posixpath
import re

from gpuclinic.knowledge.audit_words import words

_TEMPORARY = ("/tmp/", "/var/tmp/", "/dev/shm/", "/run/user/", "/run/lock/", "/var/lock/", "/dev/mqueue/", "/usr/tmp/")
_MADE_UP = re.compile(r"(?:^|/)(?:\.{3,}|\.\s+|\s+|\.\.\s+)(?:/|$)")
"""Names that are to be overlooked: three dots, dots and blanks."""
_SYSTEM = (
    "/bin/",
    "/sbin/",
    "/usr/bin/",
    "/usr/sbin/",
    "/usr/lib/",
    "/lib/",
    "/lib64/",
    "/usr/lib64/",
    "/usr/libexec/",
)


def odd_place(path: str) -> str | None:
    """ "temporary" or "hidden" where programs that are meant to stay do not live; None for ordinary places.

    >>> odd_place("/tmp/.X11-cache/nvupd"), odd_place("/root/.config/cron/x"), odd_place("/home/a/.local/bin/uv"), odd_place("/opt/x/y")
    ('hidden', 'hidden', None, None)
    """
    path = posixpath.normpath(path.removesuffix(" (deleted)"))
    if not path.startswith("/"):
        return None
    parts = path.split("/")[1:]
    hidden = [part for part in parts if part.startswith(".") and part not in (".", "..")]
    if _MADE_UP.search(path):
        return "hidden"
    if path.startswith(_TEMPORARY):
        if any(not part.startswith(_honest_dots()) for part in hidden):
            return "hidden"
        return None if any(f"/{known}" in path for known in words().honest_temporary) else "temporary"
    if any(part not in words().honest_hidden for part in hidden) or (hidden and path.startswith(_SYSTEM)):
        return "hidden"
    return None


@functools.cache
def _honest_dots() -> tuple[str, ...]:
    return tuple(name for name in words().honest_temporary if name.startswith("."))


def in_system_place(path: str) -> bool:
    """A folder that packages fill."""
    return path.startswith(_SYSTEM)
