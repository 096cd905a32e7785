"""The running server as a Host: files read in a child process, programs and NVML under deadlines that can be given up."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import time
from typing import TYPE_CHECKING, Any

from gpuclinic.observe import _file_child
from gpuclinic.observe._walk import SKIPPED
from gpuclinic.observe.asking import MOST_BYTES, Answer

if TYPE_CHECKING:
    from collections.abc import Callable

FILE_DEADLINE = 1.0
"""Seconds for one file or one pattern; more than any healthy /proc or /sys needs."""
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_MOST_ANSWER = 256 << 20


_REAP_S = 0.05
"""How long a killed child may take to die; one in uninterruptible sleep is left, and looked for again at the next occasion."""
_LEFT: list[int] = []
"""Children of this process that were killed and are not collected yet."""


def reap(patience: float) -> None:
    """Collects children that died, for so many seconds at most."""
    until = time.monotonic() + patience
    while _LEFT:
        for pid in list(_LEFT):
            with contextlib.suppress(ChildProcessError):
                if os.waitpid(pid, os.WNOHANG)[0] == 0:
                    continue
            _LEFT.remove(pid)
        if not _LEFT or time.monotonic() >= until:
            return
        time.sleep(0.001)


class _Files:
    """A child that reads files. One that does not answer in time is killed, never waited for, and another takes over."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._pid = 0
        self._to = self._from = -1
        self.hung: list[str] = []

    def ask(self, question: dict[str, Any], deadline: float) -> list[tuple[dict[str, Any], bytes]] | None:
        """The answers; None where the child hung and was given up."""
        if not self._pid:
            self._start()
        try:
            os.write(self._to, json.dumps(question).encode() + b"\n")
        except OSError:
            self._give_up()
            return None
        ends = time.monotonic() + deadline
        buffer = bytearray()
        out: list[tuple[dict[str, Any], bytes]] = []
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

    def _start(self) -> None:
        asked_read, self._to = os.pipe()
        self._from, answer_write = os.pipe()
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                os.close(self._to)
                os.close(self._from)
                signal.signal(signal.SIGINT, signal.SIG_IGN)
                signal.signal(signal.SIGPIPE, signal.SIG_DFL)
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
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            _LEFT.append(pid)
        reap(_REAP_S)

    def close(self) -> None:
        """Ends the child."""
        if self._pid:
            self._give_up()


def _taken(buffer: bytearray, at: int, out: list[tuple[dict[str, Any], bytes]]) -> tuple[int, bool]:
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


class LiveHost:
    """This machine. root: where its files are ("" for here; "/host" in a container that has the host's root mounted there).

    nvml: stands in for NVML (deep, number of the sample; gives its document), in tests.
    """

    live = True

    def __init__(self, root: str = "", nvml: Callable[[bool, int], dict[str, Any]] | None = None) -> None:
        self.label = os.uname().nodename
        self._root = root.rstrip("/")
        self._files = _Files(self._root)
        self._ask_nvml = nvml
        self._running: dict[tuple[str, ...], tuple[subprocess.Popen[bytes], float] | str] = {}
        self._left: list[subprocess.Popen[bytes]] = []
        self._samples: dict[str, int] = {}
        self._begun_nvml: tuple[bool, float, Callable[[], dict[str, Any]]] | None = None

    def file(self, path: str, most: int = MOST_BYTES, *, end: bool = False) -> Answer:
        """The beginning of a file, or its end."""
        return self._one("file", path, most=most, end=end)

    def listing(self, path: str) -> Answer:
        """The names in a folder."""
        return self._one("listing", path)

    def link(self, path: str) -> Answer:
        """Where a link leads."""
        return self._one("link", path)

    def find(self, start: str, names: list[str], *, depth: int = 4, most: int = 5000, seconds: float = 0.3) -> Answer:
        """Searches below a folder; what hangs there is given up a second after the time for it."""
        limits = {"names": names, "depth": depth, "most": most, "seconds": seconds, "skip": SKIPPED}
        return self._one("find", start, deadline=FILE_DEADLINE + seconds, **limits)

    def untrusted(self, paths: list[str], most: int = 1 << 16) -> dict[str, Answer]:
        """Files that others may have put there."""
        return (
            self._several({"ask": "untrusted", "path": paths[0], "paths": paths, "most": most}, "file") if paths else {}
        )

    def stat(self, path: str) -> Answer:
        """Kind, rights, owner of a path."""
        return self._one("stat", path)

    def space(self, path: str) -> Answer:
        """Sizes of a file system."""
        return self._one("space", path)

    def files(self, pattern: str, most: int = 1 << 16) -> dict[str, Answer]:
        """All files that a pattern names."""
        return self._many("files", pattern, most)

    def links(self, pattern: str) -> dict[str, str]:
        """Where all links lead that a pattern names."""
        return {path: answer.text for path, answer in self._many("links", pattern, 4096).items()}

    def _sample(self, question: str) -> int:
        number = self._samples.get(question, 0)
        self._samples[question] = number + 1
        return number

    def _many(self, what: str, pattern: str, most: int) -> dict[str, Answer]:
        return self._several({"ask": what, "path": pattern, "most": most}, what)

    def _several(self, question: dict[str, Any], what: str) -> dict[str, Answer]:
        """The answers of a question that has many; where it hangs, one that says so for each path that was named."""
        started, at = time.monotonic(), time.time()
        got = self._files.ask(question, 2 * FILE_DEADLINE)
        if got is None:
            why, seconds = f"no answer within {2 * FILE_DEADLINE:g} s", time.monotonic() - started
            named = question.get("paths", [question["path"]])
            return {path: Answer(f"{what} {path}", why=why, at=at, seconds=seconds) for path in named}
        seconds = time.monotonic() - started
        return {
            head["path"]: Answer(
                f"file {head['path']}", data, why=head.get("why"), code=head.get("errno"), at=at, seconds=seconds, cut=bool(head.get("cut"))
            )
            for head, data in got
        }  # fmt: skip

    def _one(self, what: str, path: str, *, deadline: float = FILE_DEADLINE, **more: Any) -> Answer:
        question = f"{what} {path}"
        started, at = time.monotonic(), time.time()
        got = self._files.ask({"ask": what, "path": path, **more}, deadline)
        seconds, sample = time.monotonic() - started, self._sample(question)
        if not got:
            return Answer(question, why=f"no answer within {deadline:g} s", at=at, seconds=seconds, sample=sample)
        head, data = got[0]
        return Answer(
            question, data, why=head.get("why"), code=head.get("errno"), at=at, seconds=seconds, sample=sample, cut=bool(head.get("cut"))
        )  # fmt: skip

    def expect(self, commands: list[tuple[str, ...]]) -> None:
        """Starts the commands, so that they run beside one another until they are asked for."""
        for argv in commands:
            if argv not in self._running:
                self._running[argv] = self._begun(argv)

    def _begun(self, argv: tuple[str, ...]) -> tuple[subprocess.Popen[bytes], float] | str:
        path = os.pathsep.join(filter(None, (os.environ.get("PATH"), _PATH)))
        program = shutil.which(argv[0], path=path)
        if program is None:
            return f"{argv[0]} is not installed"
        environment = {
            **os.environ,
            "LC_ALL": "C.UTF-8",
            "LANG": "C.UTF-8",
            "PATH": path,
            "SYSTEMD_PAGER": "",
            "SYSTEMD_COLORS": "0",
        }
        try:
            started = subprocess.Popen(
                [program, *argv[1:]], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                env=environment, start_new_session=True, close_fds=True,
            )  # fmt: skip
        except OSError as problem:
            return f"{argv[0]}: {problem.strerror or problem}"
        return started, time.monotonic()

    def command(self, *argv: str, deadline: float = 2.0, most: int = MOST_BYTES) -> Answer:
        """What a program prints; given up at its deadline, counted from its start."""
        question = "command " + " ".join(argv)
        at, sample = time.time(), self._sample(question)
        begun = self._running.pop(argv, None) or self._begun(argv)
        if isinstance(begun, str):
            return Answer(question, why=begun, at=at, sample=sample)
        process, started = begun
        out, err, cut = _outputs(process, started + deadline, most)
        seconds = time.monotonic() - started
        if out is None:
            self._kill(process)
            return Answer(question, why=f"no answer within {deadline:g} s", at=at, seconds=seconds, sample=sample)
        if cut:
            self._kill(process)
        else:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.2)
        code = process.returncode
        why = None
        if not out and code not in (0, None):
            why = (err.decode("utf-8", "replace").strip().partition("\n")[0] or f"status {code}")[:200]
        return Answer(question, out, why=why, code=code, at=at, seconds=seconds, sample=sample, cut=cut)

    def _kill(self, process: subprocess.Popen[bytes]) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
        if process.poll() is None:
            self._left.append(process)

    def begin_nvml(self, *, deep: bool = False) -> None:
        """Begins to ask NVML for the first sample, so that it goes on beside the other questions."""
        if self._ask_nvml is None and self._begun_nvml is None:
            from gpuclinic.observe.nvml import begin_nvml

            self._begun_nvml = (deep, time.time(), begin_nvml(deep=deep, root=self._root or None))

    def nvml(self, *, deep: bool = False, sample: int = 0) -> Answer:
        """NVML's view of all GPUs."""
        begun, self._begun_nvml = self._begun_nvml, None
        at = time.time()
        if begun is not None and begun[0] == deep and sample == 0:
            at, document = begun[1], begun[2]()
        elif self._ask_nvml is not None:
            document = self._ask_nvml(deep, sample)
        else:
            from gpuclinic.observe.nvml import ask_nvml

            document = ask_nvml(deep=deep, sample=sample, root=self._root or None)
        return Answer("nvml", json.dumps(document).encode(), at=at, seconds=time.time() - at, sample=sample)

    def clock(self) -> float:
        """Now."""
        return time.time()

    def wait(self, seconds: float) -> None:
        """Sleeps."""
        time.sleep(seconds)

    def close(self) -> None:
        """Gives up what still runs."""
        if self._begun_nvml is not None:
            self._begun_nvml[2]()
            self._begun_nvml = None
        self._files.close()
        for begun in self._running.values():
            if not isinstance(begun, str):
                self._kill(begun[0])
        self._running.clear()
        for process in self._left:
            if process.poll() is None:
                _LEFT.append(process.pid)
                process.returncode = -signal.SIGKILL  # not waited for here
        self._left.clear()
        reap(_REAP_S)


def _outputs(process: subprocess.Popen[bytes], ends: float, most: int) -> tuple[bytes | None, bytes, bool]:
    """Standard output and error up to a size and a moment; None where the moment passed first."""
    if process.stdout is None or process.stderr is None:
        return b"", b"", False
    streams = {process.stdout.fileno(): bytearray(), process.stderr.fileno(): bytearray()}
    out, err = process.stdout.fileno(), process.stderr.fileno()
    kept = dict(streams)
    while streams:
        left = ends - time.monotonic()
        ready = select.select(list(streams), [], [], left)[0] if left > 0 else []
        if not ready:
            return None, bytes(kept[err]), False
        for handle in ready:
            piece = os.read(handle, 1 << 16)
            if not piece:
                del streams[handle]
                continue
            kept[handle] += piece
            if len(kept[handle]) > most:
                return bytes(kept[out][:most]), bytes(kept[err][:most]), True
        if out not in streams and process.poll() is not None:
            break  # a grandchild may hold standard error open for ever
    for stream in (process.stdout, process.stderr):
        stream.close()
    return bytes(kept[out]), bytes(kept[err]), False
