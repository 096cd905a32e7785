"""How processes that are not our children ended, by descriptors that were opened while they lived."""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct

from gpuclinic.recognise.proc_files import parse_stat
from gpuclinic.watch.flight.sampling import read

_GET_INFO = 0xC040FF0B
"""PIDFD_GET_INFO: _IOWR(PIDFS_IOCTL_MAGIC 0xFF, 11, struct pidfd_info of 64 bytes); Linux 6.13, the exit code from 6.15 (uapi linux/pidfd.h)."""
_WANTS_EXIT = 1 << 3
_MOST = 256


class Exits:
    """Follows processes by pidfd. A process whose descriptor cannot be had is left out: only that it is gone will be seen."""

    def __init__(self) -> None:
        self.open: dict[int, int] = {}
        self._tried: set[int] = set()

    def follow(self, pids: list[int]) -> None:
        """Opens those that are new."""
        for pid in pids:
            if pid not in self._tried and len(self.open) < _MOST:
                self._tried.add(pid)
                with contextlib.suppress(OSError, AttributeError):
                    self.open[pid] = os.pidfd_open(pid)

    def ended(self, pid: int) -> int | None:
        """The wait status of a process whose descriptor says that it has ended; None where the kernel does not tell (yet)."""
        stat = parse_stat(read(f"/proc/{pid}/stat", 1024).decode("utf-8", "replace"))
        if stat is not None and stat.state == "Z":
            return stat.wait_status
        handle = self.open.get(pid)
        if handle is None:
            return None
        buffer = bytearray(struct.pack("=Q", _WANTS_EXIT).ljust(64, b"\0"))
        try:
            fcntl.ioctl(handle, _GET_INFO, buffer)
        except OSError:
            return None
        (mask,), (code,) = struct.unpack_from("=Q", buffer), struct.unpack_from("=i", buffer, 60)
        return int(code) if mask & _WANTS_EXIT else None

    def drop(self, pid: int) -> None:
        """Nothing more is to be learned of it."""
        handle = self.open.pop(pid, None)
        self._tried.discard(pid)
        if handle is not None:
            os.close(handle)
