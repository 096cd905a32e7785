"""NVML asked in child processes that can be given up, so that a call that never returns costs one device's answers.

What comes back is a document (docs/nvml.md) that can be kept and parsed again: recognise/parsers/nvml.py makes facts of it.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import json
import mmap
import os
import select
import signal
import sys
import tempfile
import threading
import time
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from gpuclinic.observe._nvml_answers import Answers
from gpuclinic.observe._nvml_child import Order, enter, settle
from gpuclinic.observe._nvml_journal import DONE, LOADING, NAMES, SIZE, Journal, now, records
from gpuclinic.observe._nvml_library import SONAME
from gpuclinic.observe._stuck import Ledger, Stuck, runtime_folder, start_time, waited_for_a_processor

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LIBRARY_VARIABLE, ROOT_VARIABLE = "GPUCLINIC_NVML", "GPUCLINIC_ROOT"
_MOST_CHILDREN = 16
_REAP_S = 0.2
_SPARE_S = 2.0
_DRAIN_S = 0.5
"""For the next piece of a document that was begun: a pipe holds less than one, and who asks may come late for it."""
_LARGEST = 64 << 20
_FAIR = 0.3
"""Share of a device's deadline that a call must have had, to be called hung when the time for everything ends it."""

_STARVED = 0.6
"""Share of its life that a child waited for a processor, from which on its being late tells of the machine's load, not of the driver."""
_EXIT_S = 0.25
_SPAWN = "import sys,json;sys.path[:]=json.loads(sys.argv[2]);from gpuclinic.observe._nvml_child import main;main()"


class Deadlines(NamedTuple):
    """Seconds: until NVML has started and counted its devices, for one device, and for everything."""

    init: float = 4.0
    device: float = 1.5
    whole: float = 4.3


def kill(pid: int) -> None:
    """Ends a child at once; a child in uninterruptible sleep stays."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def ask_nvml(
    deadlines: Deadlines = Deadlines(),  # noqa: B008 - immutable
    library: str | None = None,
    sample: int = 0,
    runtime: Path | None = None,
    *,
    deep: bool = False,
    root: str | None = None,
    end: Callable[[int], None] = kill,
) -> dict[str, Any]:
    """All that NVML says of this machine, within the deadlines, whatever it does. Never raises for what NVML does.

    library: path or soname; by default GPUCLINIC_NVML, else libnvidia-ml.so.1 as the loader finds it. sample: number of this
    reading, kept in the document. runtime: folder of the ledger of stuck children (by default XDG_RUNTIME_DIR, else the
    cache). deep: also what is slow (PCIe throughput, utilisation of processes, accounting). root: root folder of the examined
    machine, by default GPUCLINIC_ROOT, else "/". end: ends a child, for tests.
    """
    asked = library or os.environ.get(LIBRARY_VARIABLE) or SONAME
    root = os.environ.get(ROOT_VARIABLE, "") if root is None else root
    order = Order(asked, None, [], deep, root.rstrip("/"), deadlines.device, True)
    asking = _Asking(order, deadlines, Ledger(runtime or runtime_folder()), end)
    return {"gpuclinic_nvml": 1, "asked_for": asked, "sample": sample, **asking.answer()}


class Begun:
    """NVML that is being asked by a process beside ours; where there is none, it is asked when it is called.

    pid, read: that process, and the pipe on which its document comes. until: on the monotonic clock.
    """

    def __init__(
        self, ask: Callable[[], dict[str, Any]], asked_for: str, pid: int = 0, read: int = -1, until: float = 0.0
    ) -> None:
        self._ask = ask
        self._asked_for = asked_for
        self._pid = pid
        self._read = read
        self._until = until

    def __call__(self) -> dict[str, Any]:
        """Waits for the document. Where that is broken off (Ctrl-C), the process is given up."""
        if not self._pid:
            return self._ask()
        try:
            document = _document_of(self._read, self._until)
        finally:
            self.give_up()
        return document or {
            "gpuclinic_nvml": 1,
            "asked_for": self._asked_for,
            "init": {"code": None, "error": "the process that asks NVML did not answer", "load": "no_answer"},
        }

    def give_up(self) -> None:
        """Ends the process; it is asked to, so that it notes which of its children would not die, and then made to."""
        pid, self._pid = self._pid, 0
        if not pid:
            return
        os.close(self._read)
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(pid, signal.SIGTERM)
            if not _collected(pid, 2 * _REAP_S):
                os.kill(pid, signal.SIGKILL)
                _collected(pid, _REAP_S)


def _collected(pid: int, patience: float) -> bool:
    """The child has died within so many seconds, and is buried. ChildProcessError: it is none of ours."""
    until = time.monotonic() + patience
    while os.waitpid(pid, os.WNOHANG)[0] == 0:
        if time.monotonic() >= until:
            return False
        time.sleep(0.002)
    return True


def begin_nvml(
    deadlines: Deadlines = Deadlines(),  # noqa: B008 - immutable
    library: str | None = None,
    sample: int = 0,
    runtime: Path | None = None,
    *,
    deep: bool = False,
    root: str | None = None,
) -> Begun:
    """As ask_nvml, beside other work: a process of its own asks, and calling what is returned waits for its document.

    From a process with threads the question is asked only then.
    """

    def ask() -> dict[str, Any]:
        return ask_nvml(deadlines, library, sample, runtime, deep=deep, root=root)

    asked_for = library or os.environ.get(LIBRARY_VARIABLE) or SONAME
    if not _has_one_thread():
        return Begun(ask, asked_for)
    until, parent = time.monotonic() + deadlines.whole + _SPARE_S, os.getpid()
    read, write = os.pipe2(os.O_CLOEXEC)
    try:
        pid = os.fork()
    except OSError:
        os.close(read)
        os.close(write)
        return Begun(ask, asked_for)  # which tells that no process can be started
    if pid == 0:
        _ask_aside(write, parent, ask)
    os.close(write)
    return Begun(ask, asked_for, pid, read, until)


class _BrokenOffError(BaseException):
    """Nobody waits for the answer any more."""


def _break_off(number: int, frame: object) -> NoReturn:  # noqa: ARG001 - as signal handlers are called
    raise _BrokenOffError


def _ask_aside(write: int, parent: int, ask: Callable[[], dict[str, Any]]) -> NoReturn:
    """The life of the process beside ours."""
    code = 70
    try:
        settle(write, parent)
        signal.signal(signal.SIGTERM, _break_off)
        data = json.dumps(ask()).encode()
        while data:
            data = data[os.write(write, data) :]
        code = 0
    finally:
        os._exit(code)  # nothing may return into the code of the process that was copied


def _document_of(read: int, until: float) -> dict[str, Any] | None:
    """What the process beside ours wrote; None where it wrote nothing whole in time."""
    data = bytearray()
    poll = select.poll()
    poll.register(read, select.POLLIN)
    while poll.poll(max(_DRAIN_S if data else 0.0, until - time.monotonic()) * 1000):
        piece = os.read(read, 1 << 16)
        if not piece or len(data) > _LARGEST:
            break
        data += piece
    try:
        document = json.loads(bytes(data))
    except ValueError:
        return None
    return document if isinstance(document, dict) else None


class _Child:
    """A child that asks. devices: the indices it was given, None for all."""

    def __init__(self, pid: int, memory: mmap.mmap, pipe: int, devices: list[int] | None) -> None:
        self.pid = pid
        self.memory = memory
        self.pipe = pipe
        self.devices = devices
        self.begun = time.monotonic()
        self.ended = False
        self.status: int | None = None
        self.entry: Stuck | None = None

    @property
    def alone(self) -> int | None:
        """The one device it was started for, None for the first child."""
        return self.devices[0] if self.devices else None

    def reap(self) -> bool:
        """Whether the child is gone; never waits."""
        if self.status is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:
                pid, status = self.pid, 0
            if pid:
                self.status = status
        return self.status is not None


_unreaped: list[_Child] = []
"""Children that outlived their question; a long-lived parent collects them when they die."""


class _Asking:
    """One question to NVML: starts children, watches their deadlines, gathers what they told."""

    def __init__(self, order: Order, deadlines: Deadlines, ledger: Ledger, end: Callable[[int], None]) -> None:
        self.order = order
        self.deadlines = deadlines
        self.ledger = ledger
        self.end = end
        self.begun = time.monotonic()
        self.answers = Answers()
        self.children: list[_Child] = []
        self.waiting: list[int] = []
        self.given_up: list[_Child] = []

    def answer(self) -> dict[str, Any]:
        """The document's body."""
        _collect(self.ledger)
        known = self._known()
        start = known.get("init") or known.get("exit")
        if start is not None:
            self.answers.stuck_start(start)
        elif not self._bindings():
            self.answers.init.update(
                code=None, error="the Python package nvidia-ml-py is not installed", load="bindings"
            )
        else:
            skip = sorted(int(s[4:]) for s in known if s.startswith("gpu-") and s[4:].isdecimal())
            for index in skip:
                self.answers.stuck_device(index, known[f"gpu-{index}"])
            order = self.order._replace(skip=skip, names=self.order.names and "names" not in known)
            if self._start(order):
                try:
                    self._watch()
                except BaseException:  # Ctrl-C: no child is left behind, and one that will not die is noted
                    for child in list(self.children):
                        self._give_up(child)
                    self._leave()
                    raise
        for entry in known.values():
            self.answers.stuck.append({"subject": entry.subject, "call": entry.call, **entry.told()})
        self._leave()
        return self.answers.document(time.monotonic() - self.begun)

    def _known(self) -> dict[str, Stuck]:
        """Children that hang; one that is only leaving gets a moment."""
        until = time.monotonic() + self.deadlines.init / 2
        while "exit" in (known := self.ledger.living()) and time.monotonic() < until:
            time.sleep(0.02)
            _collect(self.ledger)
        return known

    def _bindings(self) -> bool:
        """The bindings are imported here once, so that children share their memory; the library is loaded only there."""
        try:
            importlib.import_module("pynvml")
        except ImportError:
            return False
        return True

    def _start(self, order: Order) -> bool:
        try:
            self.children.append(_start_child(order))
        except OSError as problem:
            self.answers.failed(order.devices, f"no child process: {os.strerror(problem.errno or 0)}")
            return False
        return True

    def _left(self) -> float:
        return self.begun + self.deadlines.whole - time.monotonic()

    def _watch(self) -> None:
        while self.children:
            timeout = max(0.0, min([self._left(), *(self._deadline(c) - time.monotonic() for c in self.children)]))
            poll = select.poll()
            by_pipe = {child.pipe: child for child in self.children}
            for pipe in by_pipe:
                poll.register(pipe, select.POLLIN)
            for pipe, _ in poll.poll(timeout * 1000 + 1):
                if not os.read(pipe, 4096):
                    self._ended(by_pipe[pipe])
            for child in list(self.children):
                if now(child.memory).stage == DONE:
                    self._done(child)
                elif self._left() <= 0 or time.monotonic() >= self._deadline(child):
                    self._give_up(child)
            while self.waiting and len(self.children) < _MOST_CHILDREN and self._left() > 0:
                index = self.waiting.pop(0)
                self._start(self.order._replace(devices=[index], names=False))
        self.answers.not_asked(self.waiting, "the time for everything had passed")

    def _deadline(self, child: _Child) -> float:
        """When the child's present stage is over, on the monotonic clock."""
        at = now(child.memory)
        if at.stage == LOADING:
            return child.begun + self.deadlines.init
        since = min(max(at.stage_since, child.begun), time.monotonic())  # what a child wrote is not trusted
        return since + self.deadlines.device

    def _ended(self, child: _Child) -> None:
        """The child is gone, or at least its pipe: by itself, or because the library crashed in it."""
        if now(child.memory).stage == DONE:
            return
        until = time.monotonic() + _EXIT_S
        while not child.reap() and time.monotonic() < until:
            time.sleep(0.002)
        if child.status is None:  # it closed the pipe and lives
            self._give_up(child)
            return
        at = now(child.memory)
        self._close(child)
        self.answers.gather(child.memory, child.alone)
        self.answers.crashed(at, os.WTERMSIG(child.status) if os.WIFSIGNALED(child.status) else None, child.alone)
        self._rest(child, at.stage)
        child.memory.close()

    def _done(self, child: _Child) -> None:
        self.answers.gather(child.memory, child.alone)
        self._close(child)
        self.given_up.append(child)

    def _give_up(self, child: _Child) -> None:
        at = now(child.memory)
        self._note(child, at.stage, at.call, time.monotonic() - at.call_since)
        busy = waited_for_a_processor(child.pid) > _STARVED * (time.monotonic() - child.begun)
        self.end(child.pid)
        self._close(child)
        self.answers.gather(child.memory, child.alone)
        begun = child.begun if at.stage == LOADING else at.stage_since
        fair = _FAIR * (self.deadlines.init if at.stage == LOADING else self.deadlines.device)
        self.answers.hung(at, time.monotonic(), begun, child.alone, fair, busy=busy)
        self.given_up.append(child)
        self._rest(child, at.stage)

    def _note(self, child: _Child, stage: int, call: str, ago: float) -> None:
        """Enters the child in the ledger before it is killed; the entry goes when it is seen to die."""
        started = start_time(child.pid)
        if started is None:
            return
        subject = {LOADING: "init", NAMES: "names", DONE: "exit"}.get(stage, f"gpu-{stage}")
        if child.alone is not None and stage != DONE:
            subject = f"gpu-{child.alone}"
        bus = self.answers.bus_id(stage) or _address_told(child.memory, stage)
        child.entry = Stuck(subject, child.pid, started, time.time() - max(0.0, ago), call[:100], bus)
        self.ledger.write(child.entry)

    def _rest(self, child: _Child, stage: int) -> None:
        """Devices that a lost child had not finished are asked anew, each by a child of its own; never the one it hung on."""
        if child.devices is None and stage >= 0:
            told = self.answers.finished() | {stage}
            self.waiting += [i for i in range(self.answers.count or 0) if i not in told]

    def _close(self, child: _Child) -> None:
        if not child.ended:
            child.ended = True
            os.close(child.pipe)
            self.children.remove(child)

    def _leave(self) -> None:
        """Collects what is dead; what is not after a moment stays in the ledger and is told."""
        until = time.monotonic() + _REAP_S
        while any(not child.reap() for child in self.given_up) and time.monotonic() < until:
            time.sleep(0.002)
        for child in self.given_up:
            if child.reap():
                if child.entry is not None:
                    self.ledger.forget(child.entry)
                continue
            _unreaped.append(child)
            if child.entry is not None:
                self.answers.lives_on(child.entry)
            else:  # it told everything; without persistence mode its exit shuts the cards down, which takes its time
                self._note(child, DONE, "exit", 0.0)
                self.end(child.pid)
        for child in self.given_up:
            child.memory.close()
        self.given_up.clear()


def _address_told(memory: mmap.mmap, index: int) -> str | None:
    """The address of a device as its child has told it so far."""
    told = (r for r in records(memory) if r[:3] == ["value", index, "bus_id"] and len(r) > 3)
    return next((str(r[3])[:32] for r in told), None)


def _collect(ledger: Ledger) -> None:
    """Reaps children of earlier questions that have died since."""
    for child in list(_unreaped):
        if child.reap():
            _unreaped.remove(child)
            if child.entry is not None:
                ledger.forget(child.entry)


def _has_one_thread() -> bool:
    """A copy of this process is whole: no other thread holds a lock in it. Where /proc does not tell, there may be one."""
    try:
        return threading.active_count() == 1 and len(os.listdir("/proc/self/task")) == 1
    except OSError:
        return False


def _start_child(order: Order) -> _Child:
    """Forks where this process has one thread, which is cheap; else starts an interpreter. Raises OSError."""
    read, write = os.pipe2(os.O_CLOEXEC)
    try:
        pid, memory = _fork(order, write) if _has_one_thread() or not sys.executable else _spawn(order, write)
    except OSError:
        os.close(read)
        raise
    finally:
        os.close(write)
    return _Child(pid, memory, read, order.devices)


def _fork(order: Order, write: int) -> tuple[int, mmap.mmap]:
    memory = mmap.mmap(-1, SIZE)
    Journal(memory)  # it says "loading" before the child has said anything
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        enter(memory, write, order, parent)
    return pid, memory


def _spawn(order: Order, write: int) -> tuple[int, mmap.mmap]:
    handle = memory_file()
    try:
        os.ftruncate(handle, SIZE)
        memory = mmap.mmap(handle, SIZE)
        Journal(memory)
        told = {"order": order._asdict(), "size": SIZE, "parent": os.getpid()}
        pid = spawn(_SPAWN, json.dumps(told), [handle, write])
    finally:
        os.close(handle)
    return pid, memory


def spawn(program: str, told: str, handles: list[int]) -> int:
    """Starts an interpreter that has nothing of ours but these descriptors, from 3 on, and two arguments: what is told, and our path.

    Raises OSError. Returns its process number.
    """
    arguments = [sys.executable, "-I", "-S", "-c", program, told, json.dumps(sys.path)]
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10) for fd in handles]
    try:
        actions = [(os.POSIX_SPAWN_DUP2, fd, 3 + place) for place, fd in enumerate(high)]
        return os.posix_spawn(sys.executable, arguments, os.environ, file_actions=actions)
    finally:
        for fd in high:
            os.close(fd)


def memory_file() -> int:
    """A file of memory alone, for two processes to map."""
    if hasattr(os, "memfd_create"):
        with contextlib.suppress(OSError):
            return os.memfd_create("gpuclinic-nvml", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
