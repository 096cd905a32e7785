"""What a path says: temporary, hidden, or an ordinary place. Pure."""

from __future__ import annotations

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
    temporary = path.startswith(_TEMPORARY)
    if temporary and any(part in f"{path}/" for part in words().honest_temporary):
        return None
    hidden = [part for part in parts if part.startswith(".") and part not in (".", "..")]
    if _MADE_UP.search(path) or (
        hidden and (temporary or any(part not in words().honest_hidden for part in hidden) or path.startswith(_SYSTEM))
    ):
        return "hidden"
    return "temporary" if temporary else None


def in_system_place(path: str) -> bool:
    """A folder that packages fill."""
    return path.startswith(_SYSTEM)
