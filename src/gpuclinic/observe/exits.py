"""Which processes end, and how: the process connector where we may listen to it, process descriptors, else looking whether they are there.

Only ends that matter are told: of processes that held a GPU, and those by a signal. Who sent the signal is told by observe/_signal_trace.py.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
import time
from typing import TYPE_CHECKING, NamedTuple

from gpuclinic.model import Gap
from gpuclinic.observe._proc_events import ProcConnector
from gpuclinic.observe._signal_trace import SignalTrace
from gpuclinic.observe._stuck import start_time

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuclinic.observe._proc_events import ProcExit
    from gpuclinic.observe._signal_trace import Sent

LOOK = "process.exits"
_GET_INFO = 0xC040FF0B
"""PIDFD_GET_INFO, _IOWR(0xFF, 11, 64 bytes): linux include/uapi/linux/pidfd.h; tells the status of the dead from 6.15 on."""

_INFO = struct.Struct("=QQ11Ii")
_WANTS_EXIT = 1 << 3
_KEPT_S = 30.0
_MOST_WATCHED = 4096
_MOST_TOLD = 500


class Exit(NamedTuple):
    """A process that ended. status: as wait(2) gives it, None where nobody tells. on_gpu: it held one. name: "" where it is not known.

    sender, sender_name: who sent the signal (0: the kernel), None where nobody tells. oom: the kernel ended it for want of memory.
    """

    at: float
    pid: int
    name: str
    status: int | None
    on_gpu: bool
    sender: int | None = None
    sender_name: str = ""
    oom: bool = False


class _Watched(NamedTuple):
    """A process on a GPU. started: in clock ticks since boot, so that a number given again is not taken for it. descriptor: -1: none."""

    name: str
    started: int | None
    descriptor: int


class Exits:
    """Watches exits. trace: also record who sends signals. Where a way is closed to us another is taken; what is missing is said once."""

    def __init__(self, *, trace: bool = False) -> None:
        self._gaps: list[Gap] = []
        self._watched: dict[int, _Watched] = {}
        self._seen: list[tuple[float, ProcExit, str]] = []
        self._sent: dict[int, tuple[float, Sent]] = {}
        self._dead_tell = True
        self._told_lost = False
        self._connector: ProcConnector | None = None
        self._trace: SignalTrace | None = None
        try:
            self._connector = ProcConnector()
        except OSError as problem:
            self._gaps.append(
                Gap(LOOK, f"the kernel's process connector: {problem.strerror}; only ends of processes on GPUs are seen", fix="run as root")
            )  # fmt: skip
        if trace:
            try:
                self._trace = SignalTrace()
            except OSError as problem:
                self._gaps.append(
                    Gap(LOOK, f"who sends signals is not recorded: tracefs: {problem.strerror}", fix="run as root")
                )

    def fileno(self) -> int:
        """What can be waited for, so that the name of a process can still be read; -1 where there is nothing."""
        return self._connector.fileno() if self._connector is not None else -1

    def note(self) -> int:
        """Takes what the kernel has said by now, and reads the names of those that died by a signal. Returns how many there were."""
        if self._connector is None:
            return 0
        at = time.time()
        found = self._connector.take()
        for one in found:
            if one.status & 0x7F or one.pid in self._watched:
                self._seen.append((at, one, self._name(one.pid)))
        del self._seen[: -_MOST_TOLD * 4]
        if self._connector.lost and not self._told_lost:
            self._told_lost = True
            self._gaps.append(Gap(LOOK, "more processes ended than the kernel's buffer holds; some ends were not seen"))
        return len(found)

    def _name(self, pid: int) -> str:
        known = self._watched.get(pid)
        return known.name if known is not None and known.name else comm(pid)

    def watch(self, on_gpus: Mapping[int, str]) -> None:
        """The processes that hold GPUs now, by number, with their names; those that held one earlier stay watched until they end."""
        for pid, name in list(on_gpus.items())[:_MOST_WATCHED]:
            if pid in self._watched or len(self._watched) >= _MOST_WATCHED:
                continue
            started = start_time(pid)
            if started is not None:
                self._watched[pid] = _Watched(name or comm(pid), started, _descriptor(pid))

    def take(self) -> list[Exit]:
        """The ends since the last time."""
        self.note()
        moment = time.time()
        if self._trace is not None:
            for sent in self._trace.take():
                self._sent[sent.pid] = (moment, sent)
            self._sent = {pid: kept for pid, kept in self._sent.items() if moment - kept[0] < _KEPT_S}
        out: list[Exit] = []
        told: dict[int, ProcExit] = {}
        for at, one, name in self._seen:
            told[one.pid] = one
            if one.pid not in self._watched and one.status & 0x7F:
                out.append(self._made(at, one.pid, name, one.status, on_gpu=False))
        self._seen.clear()
        for pid, watched in list(self._watched.items()):
            if pid not in told and start_time(pid) == watched.started and not _is_zombie(pid):
                continue
            status = told[pid].status if pid in told else self._status(watched.descriptor)
            if status is None and self._connector is not None and not self._connector.lost:
                status = 0  # the connector would have told of any other
            out.append(self._made(moment, pid, watched.name, status, on_gpu=True))
            if watched.descriptor >= 0:
                os.close(watched.descriptor)
            del self._watched[pid]
        return out[:_MOST_TOLD]

    def _made(self, at: float, pid: int, name: str, status: int | None, *, on_gpu: bool) -> Exit:
        kept = self._sent.pop(pid, None)
        if kept is None or status is None or kept[1].signal != status & 0x7F:
            return Exit(at, pid, name, status, on_gpu)
        sent = kept[1]
        return Exit(at, pid, name, status, on_gpu, sent.sender, sent.sender_name, sent.victim)

    def _status(self, descriptor: int) -> int | None:
        """How a process ended that is gone, by its descriptor; None where the kernel does not tell."""
        if descriptor < 0 or not self._dead_tell:
            return None
        asked = bytearray(_INFO.size)
        struct.pack_into("=Q", asked, 0, _WANTS_EXIT)
        try:
            fcntl.ioctl(descriptor, _GET_INFO, asked)
        except OSError as problem:
            if problem.errno in (errno.ENOTTY, errno.EINVAL):
                self._dead_tell = False
                if self._connector is None:
                    self._gaps.append(
                        Gap(
                            LOOK,
                            "how processes on GPUs end is not told by this kernel (it is from 6.15 on); root can see it",
                        )
                    )
            return None
        told = _INFO.unpack(asked)
        return int(told[-1]) if told[0] & _WANTS_EXIT else None

    def gaps(self) -> list[Gap]:
        """What is not available, each said once."""
        out, self._gaps = self._gaps, []
        return out

    def close(self) -> None:
        """Lets go of all."""
        for watched in self._watched.values():
            if watched.descriptor >= 0:
                os.close(watched.descriptor)
        self._watched.clear()
        if self._connector is not None:
            self._connector.close()
        if self._trace is not None:
            self._trace.close()
        self._connector = self._trace = None


def comm(pid: int) -> str:
    """The kernel's short name of a process; reading it waits for nothing. "" where there is none."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/comm", "rb") as file:  # noqa: PTH123 - text paths, as in this room
        return file.read(64).decode("utf-8", "replace").strip()
    return ""


def _descriptor(pid: int) -> int:
    if hasattr(os, "pidfd_open"):
        with contextlib.suppress(OSError):
            return os.pidfd_open(pid)
    return -1


def _is_zombie(pid: int) -> bool:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
        return file.read(512).rpartition(b")")[2].split()[:1] in ([b"Z"], [b"X"])
    return False
