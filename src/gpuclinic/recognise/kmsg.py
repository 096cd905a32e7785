"""Records of /dev/kmsg as people read them in dmesg: "6,1234,5678901,-;text" is "[    5.678901] text". Lines keep their numbers."""

from __future__ import annotations

import re

_RECORD = re.compile(rb"^\d{1,10},\d{1,20},(\d{1,20}),[^;\n]{0,200};", re.MULTILINE)


def readable(data: bytes) -> bytes:
    """The records with their uptime in seconds in front; the lines of properties below them stay as they are."""
    return _RECORD.sub(lambda found: b"[%5d.%06d] " % divmod(int(found[1]), 1_000_000), data)
