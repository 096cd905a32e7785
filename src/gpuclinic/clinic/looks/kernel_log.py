"""The kernel's log: of this boot from the ring buffer, else the journal, else what syslog kept; with --deep, earlier boots' too."""

from __future__ import annotations

import re
import zlib
from typing import TYPE_CHECKING

from gpuclinic.clinic.looks._look import Seen, Wanted, is_absent
from gpuclinic.model import Gap
from gpuclinic.recognise.kmsg import readable

if TYPE_CHECKING:
    from gpuclinic.observe.asking import Asked

LOOK = "kernel.log"
EARLIER = "kernel.log.earlier"
_MOST = 8 << 20
_JOURNAL = ("journalctl", "-k", "-b", "0", "-o", "short-iso-precise", "--no-pager", "-q", "-n", "20000")
_EARLIER = (
    "journalctl", "_TRANSPORT=kernel", "--since=-14 days", "-o", "short-iso-precise", "--no-pager", "-q", "-n", "60000",
)  # fmt: skip
_FILES = ("/var/log/kern.log", "/var/log/messages", "/var/log/syslog")
_MOST_EARLIER = 48 << 20
_MOST_UNPACKED = 32 << 20


def look_at_kernel_log(host: Asked, wanted: Wanted) -> Seen:  # noqa: ARG001 - all looks are called alike
    """The text of the first of these that can be read."""
    seen = Seen()
    ring = host.file("/dev/kmsg", _MOST)
    if ring.ok and ring.data:
        seen.texts.append(("/dev/kmsg", readable(ring.data)))
        return seen
    why = ring.why or "empty"
    for argv in (("dmesg", "--time-format=iso"), ("dmesg",), _JOURNAL):
        answer = host.command(*argv, deadline=2.0, most=_MOST)
        if answer.ok and answer.data.strip():
            seen.texts.append((answer.named(" ".join(argv[:3])), answer.data))
            return seen
    for path in _FILES:
        answer = host.file(path, _MOST, end=True)
        if answer.ok and answer.data:
            seen.texts.append((path, _whole_lines(answer.data) if answer.cut else answer.data))
            return seen
    if not host.live and is_absent(ring):
        seen.gaps.append(Gap(LOOK, "not in the snapshot", fix="add root/dev/kmsg or commands/dmesg.txt"))
        return seen
    fix = "as root, or in the group adm or systemd-journal, it can"
    seen.gaps.append(Gap(LOOK, f"the kernel log cannot be read ({why}); {fix}", fix=fix))
    return seen


def look_at_earlier_logs(host: Asked, wanted: Wanted) -> Seen:  # noqa: ARG001 - all looks are called alike
    """Two weeks of the journal, all boots of it; where there is none, syslog's files with their rotations, the newest first."""
    seen = Seen()
    journal = host.command(*_EARLIER, deadline=6.0, most=_MOST_EARLIER)
    if journal.ok and journal.data.strip():
        seen.texts.append((journal.named(" ".join(_EARLIER[:3])), journal.data))
        return seen
    refused = ""
    for path in _FILES:
        left = _MOST_EARLIER
        names = _rotations(host, path)
        for name in names:
            answer = host.file(name, min(left, _MOST_UNPACKED), end=not name.endswith(".gz"))
            if not answer.ok:
                refused = f"{name}: {answer.why}"
                continue
            data = _unpacked(answer.data) if name.endswith(".gz") else answer.data
            if data is None:
                seen.gaps.append(Gap(EARLIER, f"{name}: damaged, or no gzip file"))
                continue
            if data:
                seen.texts.append((name, _whole_lines(data) if answer.cut and not name.endswith(".gz") else data))
            left -= len(data)
            if left <= 0:
                seen.gaps.append(
                    Gap(EARLIER, f"{name} and older ones: only the newest {_MOST_EARLIER >> 20} MiB were read")
                )
                break
        if seen.texts:
            return seen
    if refused:
        seen.gaps.append(Gap(EARLIER, f"{refused}; {journal.why or 'the journal is empty'}", fix="run as root"))
    return seen


def _rotations(host: Asked, path: str) -> list[str]:
    """A log and its rotations by number or date, the newest first."""
    folder, _, name = path.rpartition("/")
    listing = host.listing(folder)
    own = re.compile(rf"{re.escape(name)}(?:[.-](?P<number>\d{{1,8}}))?(?:\.gz)?$")
    found = [(m, n) for n in listing.lines() if (m := own.fullmatch(n))] if listing.ok else []

    def age(one: tuple[re.Match[str], str]) -> int:
        number = one[0]["number"]
        return -1 if number is None else int(number) if len(number) < 5 else 100_000_000 - int(number)

    return [f"{folder}/{n}" for _, n in sorted(found, key=age)]


def _unpacked(data: bytes) -> bytes | None:
    try:
        return zlib.decompressobj(wbits=31).decompress(data, _MOST_UNPACKED)
    except zlib.error:
        return None


def _whole_lines(data: bytes) -> bytes:
    """The end of a file without its first line, which is cut."""
    return data[data.find(b"\n") + 1 :]
