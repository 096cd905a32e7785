"""The kernel's log of this boot: the ring buffer, else the journal, else what syslog kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuclinic.clinic.looks._look import Seen, Wanted
from gpuclinic.model import Gap

if TYPE_CHECKING:
    from gpuclinic.observe.asking import Asked

LOOK = "kernel.log"
_MOST = 8 << 20
_JOURNAL = ("journalctl", "-k", "-b", "0", "-o", "short-iso-precise", "--no-pager", "-q", "-n", "20000")
_FILES = ("/var/log/kern.log", "/var/log/messages", "/var/log/syslog")


def look_at_kernel_log(host: Asked, wanted: Wanted) -> Seen:  # noqa: ARG001 - all looks are called alike
    """The text of the first of these that can be read."""
    seen = Seen()
    ring = host.file("/dev/kmsg", _MOST)
    if ring.ok and ring.data:
        seen.texts.append(("/dev/kmsg", ring.data))
        return seen
    why = ring.why or "empty"
    for argv in (("dmesg", "--time-format=iso"), _JOURNAL):
        answer = host.command(*argv, deadline=2.0, most=_MOST)
        if answer.ok and answer.data.strip():
            seen.texts.append((" ".join(argv[:3]), answer.data))
            return seen
    for path in _FILES:
        answer = host.file(path, _MOST, end=True)
        if answer.ok and answer.data:
            seen.texts.append((path, answer.data))
            return seen
    seen.gaps.append(
        Gap(LOOK, f"the kernel log cannot be read ({why}); as root, or in the group adm or systemd-journal, it can")
    )
    return seen
