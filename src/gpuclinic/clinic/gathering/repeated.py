"""One line that several logs of a machine hold is read once: the kernel's ring buffer, its journal, the whole journal and syslog repeat one another.

Read four times it would be four pieces of evidence, and four times as often counted. What is taken out leaves an empty line behind, so that
line numbers stay those of the log.
"""

from __future__ import annotations

import re
from collections import Counter

_RING = re.compile(rb"(?:\d+,\d+,\d+,[^;]*;|<\d+>(?=\[))(.*)", re.DOTALL)
_STAMPED = re.compile(rb"(?:\d{4}-\d\d-\d\dT\S+|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d) \S+ (.*)", re.DOTALL)
_KERNEL = re.compile(rb"kernel: (.*)", re.DOTALL)
_UPTIME = re.compile(rb"\[[ \d]+\.\d+\] ?")
_PLAIN_RING = re.compile(rb"\[[ \d]+\.\d+\] ")


def without_repeats(texts: list[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
    """The logs, given best first: of a line that several hold the copies in the later ones are left out, the newest ones first."""
    seen: Counter[bytes] = Counter()
    out: list[tuple[str, bytes]] = []
    for name, data in texts:
        lines = data.split(b"\n")
        keys = [_key(line) for line in lines]
        left = Counter(seen) if seen else seen
        blanked = False
        for at in range(len(lines) - 1, -1, -1) if left else ():
            key = keys[at]
            if key and left[key] > 0:
                left[key] -= 1
                lines[at], blanked = b"", True
        for key, count in Counter(k for k in keys if k).items():
            seen[key] = max(seen[key], count)
        out.append((name, b"\n".join(lines) if blanked else data))
    return out


def _key(line: bytes) -> bytes:
    """What the line says, without its stamp, the host and the way it came; nothing for a line of another form."""
    ring = _RING.match(line)
    if ring is not None:
        return b"kernel " + _UPTIME.sub(b"", ring[1], count=1)
    if _PLAIN_RING.match(line):
        return b"kernel " + _UPTIME.sub(b"", line, count=1)
    stamped = _STAMPED.match(line)
    if stamped is None:
        return b""
    kernel = _KERNEL.match(stamped[1])
    return b"kernel " + _UPTIME.sub(b"", kernel[1], count=1) if kernel is not None else stamped[1]
