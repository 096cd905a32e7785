"""Files read through a child process; where none can be started, in this one, as far as nothing there can hang."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import select
import time
from typing import Any

from gpuclinic.observe import _file_child
from gpuclinic.observe._children import give_up, settle

_MOST_ANSWER = 256 << 20
_REAP_S = 0.05
"""How long a killed child may take to die."""
_LOCAL = re.compile(r"/(proc|sys|dev|etc|run|boot|lib|usr/lib|usr/share|var/log|var/lib|var/run)(/|$)")
"""What is no network file system on any server, and is read without a child where there can be none."""
_ASKED_HERE = frozenset({"file", "files", "listing", "link", "links", "stat"})
_OF_MEMORY = re.compile(
    r"/proc/[^/]+/(task/[^/]+/)?(cmdline|environ|maps|smaps|smaps_rollup|numa_maps|auxv|mem|stack|exe)$"
)
"""These wait for a lock of the process that is looked at, which may never come."""

Answers = list[tuple[dict[str, Any], bytes]]


class Files:
    """A child that reads files. One that does not answer in time is killed, never waited for, and another takes over.

    here: what nothing can hang is read in this process, which is a child itself and may be given up.
    """

    def __init__(self, root: str, *, here: bool = False) -> None:
        self._root = root
        self._here = here
        self._pid = 0
        self._to = self._from = -1

    def ask(self, question: dict[str, Any], deadline: float) -> Answers | None:
        """The answers; None where the child hung and was given up."""
        if self._here and _is_local(question):
            return _file_child.answers(question, self._root)
        if not self._pid:
            try:
                self._start()
            except OSError as problem:
                return self._ask_here(question, problem)
        try:
            os.write(self._to, json.dumps(question).encode() + b"\n")
        except OSError:
            self._give_up()
            return None
        ends = time.monotonic() + deadline
        buffer = bytearray()
        out: Answers = []
        at = 0
        while True:
            at, ended = _taken(buffer, at, out)
            if ended:
                return out
            left = ends - time.monotonic()
            if left <= 0 or len(buffer) > _MOST_ANSWER or not select.select([self._from], [], [], left)[0]:
                self._give_up()
                return None
            piece = os.read(self._from, 1 << 20)
            if not piece:
                self._give_up()
                return None
            buffer += piece

    def _ask_here(self, question: dict[str, Any], problem: OSError) -> Answers:
        """Without a child and so without a deadline: only what the kernel itself answers, and local files."""
        path = str(question["path"])
        if _is_local(question):
            return _file_child.answers(question, self._root)
        why = f"no process can be started to read it: {problem.strerror or problem}"
        refusal = {"errno": problem.errno or errno.EAGAIN, "why": why}
        return [({"path": one, **refusal}, b"") for one in question.get("paths", [path])]

    def _start(self) -> None:
        """Raises OSError where no process or no pipe can be had."""
        asked_read, self._to = os.pipe()
        try:
            self._from, answer_write = os.pipe()
        except OSError:
            os.close(asked_read)
            os.close(self._to)
            raise
        try:
            pid = os.fork()
        except OSError:
            for handle in (asked_read, self._to, self._from, answer_write):
                os.close(handle)
            raise
        if pid == 0:
            code = 1
            try:
                settle(asked_read, answer_write)
                _file_child.serve(asked_read, answer_write, self._root)
                code = 0
            finally:
                os._exit(code)
        os.close(asked_read)
        os.close(answer_write)
        self._pid = pid

    def _give_up(self) -> None:
        pid, self._pid = self._pid, 0
        for handle in (self._to, self._from):
            with contextlib.suppress(OSError):
                os.close(handle)
        if pid:
            give_up(pid, _REAP_S)

    def close(self) -> None:
        """Ends the child."""
        if self._pid:
            self._give_up()


def _is_local(question: dict[str, Any]) -> bool:
    """Only the kernel, or a local file system, answers."""
    path = str(question["path"])
    local = question["ask"] in _ASKED_HERE and _LOCAL.match(path) is not None and ".." not in path
    return local and _OF_MEMORY.search(path) is None


def _taken(buffer: bytearray, at: int, out: Answers) -> tuple[int, bool]:
    """Takes whole answers off the buffer; returns where the rest begins and whether the last came."""
    while True:
        feed = buffer.find(b"\n", at)
        if feed < 0:
            return at, False
        head = json.loads(bytes(buffer[at:feed]))
        if "end" in head:
            return feed + 1, True
        size = int(head["size"])
        if len(buffer) < feed + 1 + size:
            return at, False
        out.append((head, bytes(buffer[feed + 1 : feed + 1 + size])))
        at = feed + 1 + size
