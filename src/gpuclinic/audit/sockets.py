"""Sockets of a scene, joined to processes by inode, or by what `ss` printed. Pure, but for reading through the scene."""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING

import msgspec

from gpuclinic.model import Where, digits

if TYPE_CHECKING:
    from gpuclinic.audit.scene import Scene

LISTEN, ESTABLISHED = "LISTEN", "ESTAB"
_STATES = {"0A": LISTEN, "01": ESTABLISHED}
_MOST = 20_000
_USERS = re.compile(r'\("([^"]{0,64})",pid=(\d{1,10}),fd=(\d{1,10})\)')


class Socket(msgspec.Struct, frozen=True):
    """A TCP socket. local, remote: address and port. pid: who holds it, where that could be told; name: what `ss` calls it."""

    state: str
    local: tuple[str, int]
    remote: tuple[str, int]
    where: Where
    inode: int | None = None
    pid: int | None = None
    name: str = ""

    @property
    def open_to_others(self) -> bool:
        """Not bound to the machine itself."""
        return not is_own(self.local[0])


def is_own(address: str) -> bool:
    """A loopback address, in either family."""
    try:
        found = ipaddress.ip_address(address.strip("[]").partition("%")[0])
    except ValueError:
        return address == "localhost"
    mapped = getattr(found, "ipv4_mapped", None)
    return (mapped or found).is_loopback


def is_private(address: str) -> bool:
    """Of a network that is not routed in the open; addresses of documentation stand for public ones."""
    try:
        found = ipaddress.ip_address(address.strip("[]").partition("%")[0])
    except ValueError:
        return False
    return (
        found.is_loopback
        or found.is_link_local
        or any(found in net for net in _PRIVATE if net.version == found.version)
    )


_PRIVATE = [
    ipaddress.ip_network(n) for n in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7")
]


def read_sockets(scene: Scene) -> list[Socket]:
    """Of /proc/net/tcp, tcp6 and, in a snapshot, of what ss or netstat printed; a socket that both tell comes once, with its holder."""
    holders = {}
    for process in scene.processes.values():
        for target in (process.files or {}).values():
            if target.startswith("socket:["):
                holders[digits(target[8:-1])] = process.pid
    out: dict[tuple[str, tuple[str, int], tuple[str, int]], Socket] = {}
    for name in ("tcp", "tcp6"):
        text = scene.text(f"/proc/net/{name}", "audit.network", 4 << 20)
        for index, line in enumerate(text.lines()[1:_MOST] if text else (), 1):
            one = _of_proc(line, Where(f"/proc/net/{name}", index + 1, line.strip()[:200]), holders)
            if one is not None:
                out[one.state, one.local, one.remote] = one
    if not scene.host.live:
        for words in (
            ("ss", "-tanp"),
            ("ss", "-tlnp"),
            ("ss", "-tunap"),
            ("ss", "-antp"),
            ("ss", "-lntp"),
            ("ss", "-tulpn"),
            ("ss", "-ltnp"),
        ):
            answer = scene.host.command(*words)
            for index, line in enumerate(answer.lines() if answer.ok else ()):
                one = of_ss(line, Where(answer.named("ss"), index + 1, line.strip()[:200]))
                if one is not None:
                    known = out.get((one.state, one.local, one.remote))
                    if known is None or known.pid is None:
                        out[one.state, one.local, one.remote] = one
    return list(out.values())


def _of_proc(line: str, where: Where, holders: dict[int | None, int]) -> Socket | None:
    cells = line.split()
    state = _STATES.get(cells[3]) if len(cells) >= 10 else None
    if state is None:
        return None
    local, remote = _hex(cells[1]), _hex(cells[2])
    if local is None or remote is None:
        return None
    inode = digits(cells[9])
    shown = f"{state} {local[0]}:{local[1]} {remote[0]}:{remote[1]}"
    return Socket(
        state, local, remote, Where(where.source, where.line, shown), inode, holders.get(inode) if inode else None
    )


def _hex(text: str) -> tuple[str, int] | None:
    """ "0A0200C0:C93A": the words of the address in the byte order of the machine (little-endian on all that GPUs run on)."""
    address, _, port = text.partition(":")
    try:
        raw = bytes.fromhex(address)
        number = int(port, 16)
    except ValueError:
        return None
    if len(raw) not in (4, 16):
        return None
    swapped = b"".join(raw[n : n + 4][::-1] for n in range(0, len(raw), 4))
    found = ipaddress.ip_address(swapped)
    mapped = getattr(found, "ipv4_mapped", None)
    return str(mapped or found), number


def of_ss(line: str, where: Where) -> Socket | None:
    """A line of ss(8), with or without the column of the netid.

    >>> of_ss('LISTEN 0 0 0.0.0.0:22 0.0.0.0:* users:(("sshd",pid=760,fd=3))', Where("ss")).pid
    760
    """
    cells = line.split()
    if cells and cells[0] in ("tcp", "tcp6"):
        cells = cells[1:]
    if len(cells) < 5 or cells[0] not in (LISTEN, ESTABLISHED):
        return None
    local, remote = _named(cells[3]), _named(cells[4])
    if local is None or remote is None:
        return None
    user = _USERS.search(line)
    return Socket(cells[0], local, remote, where, None, int(user[2]) if user else None, user[1] if user else "")


def _named(text: str) -> tuple[str, int] | None:
    address, colon, port = text.rpartition(":")
    number = 0 if port == "*" else digits(port)
    if not colon or number is None:
        return None
    address = address.strip("[]").partition("%")[0]
    return ("0.0.0.0" if address == "*" else address.removeprefix("::ffff:")), number
