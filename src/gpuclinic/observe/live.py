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

from gpuclinic.observe._children import Keeper, give_up, reap
from gpuclinic.observe._files import Files
from gpuclinic.observe._walk import SKIPPED
from gpuclinic.observe.asking import MOST_BYTES, Answer

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuclinic.observe._files import Answers
    from gpuclinic.observe.nvml import Begun

FILE_DEADLINE = 1.0
"""Seconds for one file or one pattern; more than any healthy /proc or /sys needs."""
MOST_WASTED_S = 4.0
"""Seconds that programs which never answer may cost together, or as long as the longest of them may take."""
_GRACE_S = 0.25
"""What a program gets at least: what it has printed by then was perhaps only not fetched yet."""
_MOST_HUNG_S = 8.0
"""Seconds that files which never answer may cost together; after that the others get no more than _GRACE_S each."""
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_REAP_S = 0.05


class LiveHost:
    """This machine. root: where its files are ("" for here; "/host" in a container that has the host's root mounted there).

    nvml: stands in for NVML (deep, number of the sample; gives its document), in tests.
    expendable: this process is a child that may be given up, so that what hardly hangs is read in it.
    """

    live = True

    def __init__(
        self, root: str = "", nvml: Callable[[bool, int], dict[str, Any]] | None = None, *, expendable: bool = False
    ) -> None:
        self.label = os.uname().nodename
        self._root = root.rstrip("/")
        self._files = Files(self._root, here=expendable)
        self._hung_s = 0.0
        self._wasted_s = 0.0
        self._keeper = Keeper()
        self._ask_nvml = nvml
        self._running: dict[tuple[str, ...], tuple[subprocess.Popen[bytes], float] | str] = {}
        self._left: list[subprocess.Popen[bytes]] = []
        self._samples: dict[str, int] = {}
        self._begun_nvml: tuple[bool, float, Begun] | None = None

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
        got, why = self._asked(question, 2 * FILE_DEADLINE)
        if got is None:
            seconds = time.monotonic() - started
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
        got, why = self._asked({"ask": what, "path": path, **more}, deadline)
        seconds, sample = time.monotonic() - started, self._sample(question)
        if not got:
            return Answer(question, why=why, at=at, seconds=seconds, sample=sample)
        head, data = got[0]
        return Answer(
            question, data, why=head.get("why"), code=head.get("errno"), at=at, seconds=seconds, sample=sample, cut=bool(head.get("cut"))
        )  # fmt: skip

    def _asked(self, question: dict[str, Any], deadline: float) -> tuple[Answers | None, str]:
        """The answers within the deadline, and what is said where there are none."""
        why = f"no answer within {deadline:g} s"
        if self._hung_s > _MOST_HUNG_S:
            deadline = min(deadline, _GRACE_S)
            why = f"not answered within {deadline:g} s, which is all that was left after others had hung"
        started = time.monotonic()
        got = self._files.ask(question, deadline)
        if got is None:
            self._hung_s += time.monotonic() - started
        return got, why

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
        self._keeper.add(started.pid)
        return started, time.monotonic()

    def command(self, *argv: str, deadline: float = 2.0, most: int = MOST_BYTES) -> Answer:
        """What a program prints; given up at its deadline, counted from its start, or sooner where others have used up the patience."""
        question = "command " + " ".join(argv)
        at, sample = time.time(), self._sample(question)
        begun = self._running.pop(argv, None) or self._begun(argv)
        if isinstance(begun, str):
            return Answer(question, why=begun, at=at, sample=sample)
        process, started = begun
        asked = time.monotonic()
        patience = max(MOST_WASTED_S, deadline) - self._wasted_s
        ends = max(min(started + deadline, asked + patience), asked + _GRACE_S)
        try:
            out, err, cut = _outputs(process, ends, most)
        except BaseException:  # Ctrl-C: nobody will ask for it again
            self._kill(process)
            raise
        now = time.monotonic()
        if out is None:
            self._kill(process)
            self._wasted_s += now - asked
            why = f"no answer within {min(deadline, now - started):.2g} s"
            return Answer(question, why=why, at=at, seconds=now - started, sample=sample)
        if not cut:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.2)
        code = process.returncode
        self._kill(process)  # and whatever it left behind
        refusal: str | None = None
        if not out and code not in (0, None):
            refusal = (err.decode("utf-8", "replace").strip().partition("\n")[0] or f"status {code}")[:200]
        return Answer(question, out, why=refusal, code=code, at=at, seconds=now - started, sample=sample, cut=cut)

    def _kill(self, process: subprocess.Popen[bytes]) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
        if process.poll() is None:
            self._left.append(process)
        else:
            self._keeper.drop(process.pid)

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
        """Gives up what still runs, whatever it does."""
        running = [begun[0] for begun in self._running.values() if not isinstance(begun, str)]
        self._running.clear()
        for process in running:
            self._kill(process)
        self._files.close()
        begun_nvml, self._begun_nvml = self._begun_nvml, None
        if begun_nvml is not None:
            begun_nvml[2].give_up()
        for process in self._left:
            if process.poll() is None:
                process.returncode = -signal.SIGKILL  # not waited for here
                give_up(process.pid, 0.0)
        self._left.clear()
        reap(_REAP_S)
        self._keeper.close()


def _outputs(process: subprocess.Popen[bytes], ends: float, most: int) -> tuple[bytes | None, bytes, bool]:
    """Standard output and error up to a size and a moment; None where the moment passed first."""
    if process.stdout is None or process.stderr is None:
        return b"", b"", False
    streams = {process.stdout.fileno(): bytearray(), process.stderr.fileno(): bytearray()}
    out, err = process.stdout.fileno(), process.stderr.fileno()
    kept = dict(streams)
    while streams:
        left = ends - time.monotonic()
        if left <= 0 or not (ready := select.select(list(streams), [], [], left)[0]):
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
