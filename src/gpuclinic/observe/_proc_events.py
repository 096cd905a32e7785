"""The kernel's own word about exits: the process connector (netlink), with a filter in the kernel that lets only bad ends through.

Source: linux include/uapi/linux/cn_proc.h, connector.h, filter.h. The message: nlmsghdr (16 bytes), cn_msg (20), proc_event (what, cpu,
timestamp_ns, then for an exit pid, tgid, exit_code, exit_signal, parent pid, parent tgid).
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import socket
import struct
import sys
from typing import NamedTuple

_NETLINK_CONNECTOR, _CN_IDX_PROC, _CN_VAL_PROC, _LISTEN = 11, 1, 1, 1
_SO_ATTACH_FILTER, _SO_RCVBUFFORCE = 26, 33
_BUFFER = 4 << 20
_EXIT = 0x80000000
_EVENT = struct.Struct("=IIQIIIIII")
_EVENT_AT = 36
_MOST_A_TAKE = 20_000


class ProcExit(NamedTuple):
    """A process ended otherwise than with code 0. status: as wait(2) gives it."""

    pid: int
    status: int
    parent: int


def _filter() -> bytes:
    """Classic BPF: an exit, of a whole process, with a status that is not 0. Words are loaded in network order."""
    exits = _EXIT if sys.byteorder == "big" else int.from_bytes(_EXIT.to_bytes(4, "little"), "big")
    load, to_x, equal_k, equal_x, end = 0x20, 0x07, 0x15, 0x1D, 0x06
    steps = (
        (load, 0, 0, _EVENT_AT), (equal_k, 0, 6, exits),
        (load, 0, 0, _EVENT_AT + 16), (to_x, 0, 0, 0), (load, 0, 0, _EVENT_AT + 20), (equal_x, 0, 2, 0),
        (load, 0, 0, _EVENT_AT + 24), (equal_k, 0, 1, 0), (end, 0, 0, 0), (end, 0, 0, 0x40000),
    )  # fmt: skip
    return b"".join(struct.pack("=HBBI", *step) for step in steps)


class ProcConnector:
    """Raises OSError where it cannot be had: it takes root (CAP_NET_ADMIN) in the first network and pid namespace."""

    def __init__(self) -> None:
        self.lost = False
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC, _NETLINK_CONNECTOR)
        try:
            self._socket.setblocking(False)
            program = _filter()
            kept = ctypes.create_string_buffer(program)
            told = struct.pack("@HP", len(program) // 8, ctypes.addressof(kept))
            self._socket.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, told)
            with contextlib.suppress(OSError):
                self._socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER)
            self._socket.bind((0, _CN_IDX_PROC))
            self._socket.send(_order(_LISTEN))
        except OSError:
            self._socket.close()
            raise

    def fileno(self) -> int:
        """To wait for."""
        return self._socket.fileno()

    def take(self) -> list[ProcExit]:
        """The exits since the last time; never waits. `lost` is set where the kernel had more than its buffer held."""
        out: list[ProcExit] = []
        for _ in range(_MOST_A_TAKE):
            try:
                data = self._socket.recv(4096)
            except BlockingIOError:
                break
            except OSError as problem:
                if problem.errno != errno.ENOBUFS:
                    raise
                self.lost = True
                continue
            if len(data) < _EVENT_AT + _EVENT.size:
                continue
            what, _, _, pid, group, status, _, _, parent = _EVENT.unpack_from(data, _EVENT_AT)
            if what == _EXIT and pid == group and status:
                out.append(ProcExit(pid, status, parent))
        return out

    def close(self) -> None:
        """Stops listening."""
        self._socket.close()


def _order(operation: int) -> bytes:
    body = struct.pack("=IIIIHHI", _CN_IDX_PROC, _CN_VAL_PROC, 0, 0, 4, 0, operation)
    return struct.pack("=IHHII", 16 + len(body), 3, 0, 0, os.getpid()) + body
