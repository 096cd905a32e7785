"""/etc/passwd, /etc/shadow and /etc/group as tables. Pure."""

from __future__ import annotations

import msgspec

from gpuclinic.model import digits

_MOST = 50_000
NO_LOGIN = frozenset(["nologin", "false", "sync", "halt", "shutdown", "true", "git-shell"])
"""Last parts of shells that let nobody work at a prompt."""


class Account(msgspec.Struct, frozen=True):
    """A row of passwd(5). line: from 1."""

    name: str
    uid: int
    gid: int
    home: str
    shell: str
    line: int
    password: str = "x"

    @property
    def may_log_in(self) -> bool:
        """Its shell is one; an empty field means /bin/sh."""
        return self.shell.rpartition("/")[2] not in NO_LOGIN


def parse_passwd(text: str) -> list[Account]:
    """All rows that can be read.

    >>> parse_passwd("root:x:0:0:root:/root:/bin/bash")[0].may_log_in
    True
    """
    out = []
    for number, line in enumerate(text.split("\n")[:_MOST], 1):
        cells = line.strip("\r").split(":")
        uid, gid = (digits(cells[2]), digits(cells[3])) if len(cells) >= 7 else (None, None)
        if uid is None or gid is None or not cells[0] or line.startswith("#"):
            continue
        out.append(Account(cells[0][:64], uid, gid, cells[5][:4096], cells[6].strip()[:4096], number, cells[1][:1]))
    return out
