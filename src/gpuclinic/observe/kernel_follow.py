"""The kernel's log as it grows: /dev/kmsg, else the journal, else said once that there is neither. Reading never blocks."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import time
from typing import NamedTuple

from gpuclinic.model import Gap
from gpuclinic.observe._children import give_up

LOOK = "kernel.log"
_RECORD = re.compile(rb"(\d{1,10}),(\d{1,20}),(\d{1,20}),[^;\n]{0,200};([^\n]*)")
_LARGEST_RECORD = 1 << 14
_MOST_A_TAKE = 2000
_LONGEST_TEXT = 2000
_PIECE = 1 << 18
_AGAIN_S = 30.0
_JOURNAL = ("journalctl", "-f", "-k", "-o", "json", "--no-pager", "-q")
_NO_ACCESS = "as root, or in the group adm or systemd-journal, it can"


class KernelLine(NamedTuple):
    """A message. at: Unix seconds. sequence: its number in this boot, 0 where it has none. priority: 0 (emergency) to 7 (debug)."""

    at: float
    sequence: int
    priority: int
    text: str


class Position(NamedTuple):
    """How far the log was read: of which boot (its id), up to which number of /dev/kmsg, or cursor of the journal."""

    boot: str
    sequence: int = 0
    cursor: str = ""


class KernelFollower:
    """Follows the log from its end, or from where an earlier follower of this boot had come to. root: of the examined machine."""

    def __init__(self, root: str = "", since: Position | None = None, path: str = "/dev/kmsg") -> None:
        self.boot = boot_id(root)
        same = since is not None and since.boot == self.boot and bool(self.boot)
        self._since = since if same and since is not None else Position(self.boot)
        self._file = -1
        self._plain = False
        self._journal: subprocess.Popen[bytes] | None = None
        self._rest = b""
        self._not_before = 0.0
        self._sequence, self._cursor = self._since.sequence, self._since.cursor
        self._gaps: list[Gap] = []
        self._told: set[str] = set()
        why = self._open(f"{root}{path}", from_start=same and self._since.sequence > 0)
        if why is not None:
            self._begin_journal(why, here=not root)

    @property
    def source(self) -> str:
        """What is followed: "/dev/kmsg", "journalctl -k" or ""."""
        return "/dev/kmsg" if self._file >= 0 else "journalctl -k" if self._journal is not None else ""

    @property
    def position(self) -> Position:
        """How far it was read, to be kept for a later follower."""
        return Position(self.boot, self._sequence, self._cursor)

    def fileno(self) -> int:
        """What can be waited for; -1 where nothing is followed."""
        if self._file >= 0:
            return -1 if self._plain else self._file
        return self._journal.stdout.fileno() if self._journal is not None and self._journal.stdout is not None else -1

    def take(self) -> list[KernelLine]:
        """The messages since the last time, some thousands at most; never waits."""
        if self._file >= 0:
            return self._take_file() if self._plain else self._take_ring()
        return self._take_journal()

    def gaps(self) -> list[Gap]:
        """What could not be followed, each said once."""
        out, self._gaps = self._gaps, []
        return out

    def close(self) -> None:
        """Lets go of the log."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        self._end_journal()

    def _say(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self._gaps.append(Gap(LOOK, text, fix=_NO_ACCESS))

    # ---- /dev/kmsg

    def _open(self, path: str, *, from_start: bool) -> str | None:
        """Opens the log; why not where that cannot be."""
        try:
            self._file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            self._plain = not stat.S_ISCHR(os.fstat(self._file).st_mode)
            if not from_start:
                os.lseek(self._file, 0, os.SEEK_END)
            elif not self._plain:
                os.lseek(self._file, 0, os.SEEK_SET)
        except OSError as problem:
            if self._file >= 0:
                os.close(self._file)
                self._file = -1
            return problem.strerror or str(problem)
        return None

    def _take_ring(self) -> list[KernelLine]:
        out: list[KernelLine] = []
        zero = time.time() - time.monotonic()  # the kernel's stamps count as the monotonic clock does
        while len(out) < _MOST_A_TAKE:
            try:
                record = os.read(self._file, _LARGEST_RECORD)
            except BlockingIOError:
                break
            except OSError as problem:
                if problem.errno == errno.EPIPE:  # older messages were overwritten before they were read
                    self._say("/dev/kmsg: messages were lost, the kernel wrote faster than its buffer holds")
                    continue
                if problem.errno == errno.EINVAL:
                    continue
                self._say(f"/dev/kmsg: {problem.strerror}")
                break
            if not record:
                break
            self._add(record, zero, out)
        return out

    def _take_file(self) -> list[KernelLine]:
        """A file in a folder that stands in for a machine: its whole lines."""
        data = self._rest + os.read(self._file, _PIECE)
        *lines, self._rest = data.split(b"\n")
        out: list[KernelLine] = []
        for line in lines:
            if line and not self._add(line, None, out) and not line.startswith(b" "):
                out.append(KernelLine(time.time(), 0, 6, _text(line)))
        return out

    def _add(self, record: bytes, zero: float | None, out: list[KernelLine]) -> bool:
        """Adds a record; False where it is none. zero: Unix time of the kernel's start; None: its stamps are another machine's."""
        found = _RECORD.match(record)
        if found is None:
            return False
        sequence = int(found[2])
        if sequence > self._sequence or (sequence == 0 and self._sequence == 0):
            self._sequence = sequence
            at = time.time() if zero is None else zero + int(found[3]) / 1e6
            out.append(KernelLine(at, sequence, int(found[1]) & 7, _text(found[4])))
        return True

    # ---- the journal

    def _begin_journal(self, why: str, *, here: bool = True) -> None:
        program = shutil.which("journalctl") if here else None
        if program is None:
            self._say(f"the kernel log cannot be followed: /dev/kmsg: {why}, and there is no journal")
            return
        more = ["-n", "0"] if not self._cursor else [f"--after-cursor={self._cursor}", "-n", "2000"]
        try:
            self._journal = subprocess.Popen(
                [program, *_JOURNAL[1:], *more], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                start_new_session=True, close_fds=True,
            )  # fmt: skip
        except OSError as problem:
            self._say(f"the kernel log cannot be followed: /dev/kmsg: {why}; journalctl: {problem.strerror}")
            return
        if self._journal.stdout is not None:
            os.set_blocking(self._journal.stdout.fileno(), False)

    def _take_journal(self) -> list[KernelLine]:
        journal = self._journal
        if journal is None or journal.stdout is None:
            if self._not_before and time.monotonic() >= self._not_before:
                self._not_before = 0.0
                self._begin_journal("not readable")
            return []
        try:
            data = os.read(journal.stdout.fileno(), _PIECE)
        except BlockingIOError:
            return []
        if not data:
            self._end_journal()
            self._say("journalctl has ended; it is started again twice a minute")
            self._not_before = time.monotonic() + _AGAIN_S
            return []
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _PIECE:
            self._rest = b""
        return [line for raw in lines[:_MOST_A_TAKE] if (line := self._of_json(raw)) is not None]

    def _of_json(self, raw: bytes) -> KernelLine | None:
        try:
            entry = json.loads(raw)
        except (ValueError, RecursionError):
            return None
        message = entry.get("MESSAGE") if isinstance(entry, dict) else None
        if isinstance(message, list):  # bytes that are no UTF-8
            message = bytes(b for b in message if isinstance(b, int) and 0 <= b < 256).decode("utf-8", "replace")
        if not isinstance(message, str):
            return None
        if isinstance(entry.get("__CURSOR"), str):
            self._cursor = entry["__CURSOR"][:400]
        at, priority = str(entry.get("__REALTIME_TIMESTAMP")), str(entry.get("PRIORITY"))
        seconds = int(at) / 1e6 if at.isdecimal() and len(at) < 18 else time.time()
        return KernelLine(seconds, 0, int(priority) if priority in tuple("01234567") else 6, _text(message.encode()))

    def _end_journal(self) -> None:
        journal, self._journal = self._journal, None
        if journal is None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(journal.pid, signal.SIGKILL)
        if journal.stdout is not None:
            journal.stdout.close()
        if journal.poll() is None:
            journal.returncode = -signal.SIGKILL  # not waited for here
            give_up(journal.pid, 0.05)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace").strip()[:_LONGEST_TEXT]


def boot_id(root: str) -> str:
    """The id of the boot; "" where it cannot be read."""
    try:
        with open(f"{root}/proc/sys/kernel/random/boot_id", "rb") as file:  # noqa: PTH123 - text paths, as in this room
            return file.read(64).decode("ascii", "replace").strip()[:36]
    except OSError:
        return ""
