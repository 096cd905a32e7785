"""Raw kernel messages as people read them in dmesg: "6,1234,5678901,-;text" and "<6>[    5.678901] text" are "[    5.678901] text".

Lines keep their numbers.
"""

from __future__ import annotations

import re

_RECORD = re.compile(rb"^\d{1,10},\d{1,20},(\d{1,20}),[^;\n]{0,200};", re.MULTILINE)
_LEVEL = re.compile(rb"^<\d{1,4}>(?=\[ *\d{1,12}\.\d{6}\])", re.MULTILINE)


def readable(data: bytes) -> bytes:
    """The records of /dev/kmsg or the lines of `dmesg --raw` with their uptime in seconds in front; properties below them stay as they are."""
    if data[:1] == b"<":
        return _LEVEL.sub(b"", data)
    return _RECORD.sub(lambda found: b"[%5d.%06d] " % divmod(int(found[1]), 1_000_000), data)
