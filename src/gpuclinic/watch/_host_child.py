"""Looks at the host, taken by a child process each time: what hangs there (a mount, a process's memory) costs the sampling no time.

The looks are those of `check`. Each has its period, and one that takes long is taken less often, so that none costs more than a fifth of
a per cent of a processor. A child for each round costs some milliseconds, and no memory between two rounds.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import resource
import select
import struct
import time
import warnings
from typing import Any

import msgspec

from gpuclinic.clinic.looks import LOOKS, Seen, Wanted
from gpuclinic.model import Document, Fact, Gap
from gpuclinic.observe._children import give_up, settle
from gpuclinic.observe.live import LiveHost
from gpuclinic.recognise.parsers.services import parse_services

PERIODS: dict[str, float] = {
    "network.rdma": 10, "process.gpu": 30, "host.cgroup": 30, "network.interfaces": 30, "sensors.chips": 30, "pci.bus": 60,
    "storage.mounts": 60, "storage.devices": 60, "storage.remote": 60, "kernel.state": 60, "fabric.services": 60, "process.stuck": 60,
    "sensors.power": 300, "host.time": 300, "driver": 600, "kernel.boots": 3600, "host.ulimits": 600, "host.settings": 600,
    "network.names": 600, "container.runtime": 600, "scheduler.node": 600, "driver.next_boot": 3600, "driver.upgrades": 3600,
}  # fmt: skip
"""Seconds between two takings of a look, by its id; in their order at the beginning."""

_OFTEN_S = 60.0
"""Looks that are taken this often are imported once, here, and not by every child."""

_BY_ID = {look.id: look for look in LOOKS}
_SHARE = 0.002
_SLOWEST_S = 900.0
_DEADLINE_S = 30.0
_PUNISHED = 10.0
_NOTHING = 6.0
"""A look that finds nothing (no InfiniBand here) is taken so many times more seldom."""

_TOGETHER_S = 6.0
"""What is due so soon is taken with what is due now: a round costs more than a look."""

_LARGEST = 64 << 20
_SIZE = struct.Struct("=I")
_NICE = 5
_HOLDERS = "process.gpu"


class _Told(msgspec.Struct):
    look: str
    facts: list[Fact]
    gaps: list[Gap]
    seconds: float
    cpu_s: float


class HostLooks:
    """The parent's side. root: of the examined machine. expect_gpus: how many there should be."""

    def __init__(self, root: str = "", expect_gpus: int | None = None) -> None:
        self._root, self._expect_gpus = root, expect_gpus
        self._due = dict.fromkeys(PERIODS, 0.0)
        self._period: dict[str, float] = {}
        self._pid = 0
        self._from = -1
        self._buffer = bytearray()
        self._new: list[str] = []
        self._asked: list[str] = []
        self._since = 0.0
        self._gone: set[int] = set()
        self._facts: dict[str, list[Fact]] = {}
        self._gaps: dict[str, list[Gap]] = {}
        self._at: dict[str, float] = {}
        for name, period in PERIODS.items():
            if period <= _OFTEN_S:
                importlib.import_module(_module_of(name)[0])
        self._decoder = msgspec.msgpack.Decoder(_Told)

    @property
    def busy(self) -> bool:
        """Looks are being taken."""
        return bool(self._asked)

    def tick(self, gpus: list[Fact]) -> list[str]:
        """Takes what has been told, and has the looks taken that are due. gpus: facts that they build on. Returns whose facts are new.

        Never waits.
        """
        told = self._take()
        moment = time.monotonic()
        if self._asked and moment - self._since > _DEADLINE_S:
            self._hung(moment)
        if not self._asked:
            due = [name for name, at in self._due.items() if at <= moment + _TOGETHER_S]
            if due and min(self._due.values()) <= moment:
                self._ask(due, gpus, moment)
        return told

    def wait(self, seconds: float) -> None:
        """Lets the child finish what it was asked, for so long at most."""
        until = time.monotonic() + seconds
        while self._asked and (left := until - time.monotonic()) > 0:
            if not select.select([self._from], [], [], left)[0]:
                return
            self._take(keep=True)

    def facts(self) -> tuple[list[Fact], dict[str, float], list[Gap]]:
        """All facts as last told, how many seconds old they are by kind, and the gaps."""
        moment = time.monotonic()
        facts: list[Fact] = []
        ages: dict[str, float] = {}
        for name, found in self._facts.items():
            age = round(moment - self._at[name], 1)
            facts += found
            for fact in found:
                ages[fact.kind] = age
        return facts, ages, [gap for gaps in self._gaps.values() for gap in gaps]

    def of(self, look: str) -> list[Fact]:
        """The facts of one look, as last told."""
        return self._facts.get(look, [])

    def soon(self, look: str) -> None:
        """Something has happened that this look would see."""
        if look in self._due:
            self._due[look] = min(self._due[look], time.monotonic() + 1.0)

    def children(self) -> list[int]:
        """The child's process number, where there is one."""
        return [self._pid] if self._pid else []

    def close(self) -> None:
        """Ends the child."""
        if self._pid:
            self._end()

    def _ask(self, names: list[str], gpus: list[Fact], moment: float) -> None:
        given = [*gpus, *(fact for name, found in self._facts.items() if name not in names for fact in found)]
        orphans: set[int] = set()
        if _HOLDERS in names:
            gone = self._gone_now(gpus)
            orphans, self._gone = gone & self._gone, gone
        try:
            self._start(names, given, orphans)
        except OSError as problem:
            self._gaps["host"] = [Gap("host", f"no process looks at the host: {problem.strerror or problem}")]
            self._due = dict.fromkeys(self._due, moment + 60.0)
            return
        self._gaps.pop("host", None)
        self._asked, self._since = list(names), moment

    def _gone_now(self, gpus: list[Fact]) -> set[int]:
        """Processes that NVML lists and /proc has not; those that it has not at two rounds did not just end."""
        pids = {pid for fact in gpus if fact.kind == "gpu_process" and isinstance(pid := fact.fields.get("pid"), int)}
        return {pid for pid in pids if not os.path.exists(f"{self._root}/proc/{pid}")}  # noqa: PTH110 - text paths, many of them

    def _start(self, names: list[str], given: list[Fact], orphans: set[int]) -> None:
        self._from, answers = os.pipe2(os.O_CLOEXEC)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter(
                    "ignore", DeprecationWarning
                )  # a child that a thread's lock stops is given up as any other
                self._pid = os.fork()
        except OSError:
            os.close(self._from)
            os.close(answers)
            raise
        if self._pid == 0:
            code = 70
            try:
                settle(answers)
                _round(answers, self._root, names, Wanted(facts=given, expect_gpus=self._expect_gpus), orphans)
                code = 0
            finally:
                os._exit(code)
        os.close(answers)
        os.set_blocking(self._from, False)
        self._buffer.clear()

    def _take(self, *, keep: bool = False) -> list[str]:
        """What the child has told by now. keep: what is new is told by the next tick."""
        ended = False
        if self._pid:
            with contextlib.suppress(BlockingIOError):
                while piece := os.read(self._from, 1 << 18):
                    self._buffer += piece
                ended = True
        out: list[str] = []
        while len(self._buffer) >= _SIZE.size:
            (size,) = _SIZE.unpack_from(self._buffer)
            if size > _LARGEST or len(self._buffer) < _SIZE.size + size:
                break
            told = self._decoder.decode(bytes(self._buffer[_SIZE.size : _SIZE.size + size]))
            del self._buffer[: _SIZE.size + size]
            self._keep(told)
            out.append(told.look)
        if ended:
            self._hung(time.monotonic(), ended=True)
        new = [*self._new, *out]
        self._new = new if keep else []
        return [] if keep else new

    def _keep(self, told: _Told) -> None:
        moment = time.monotonic()
        if told.look in self._asked:
            self._asked.remove(told.look)
            self._since = moment
        self._facts[told.look], self._gaps[told.look], self._at[told.look] = told.facts, told.gaps, moment
        period = PERIODS.get(told.look, 60.0) * (1.0 if told.facts else _NOTHING)
        period = max(period, min(told.cpu_s / _SHARE, _SLOWEST_S))
        self._due[told.look] = moment + period

    def _hung(self, moment: float, *, ended: bool = False) -> None:
        """The child has ended; a look that was being taken then, or does not end, is put off. Another child goes on."""
        if self._asked:
            name = self._asked[0]
            why = "ended the process that took it" if ended else f"did not end within {_DEADLINE_S:g} s"
            self._gaps[name] = [Gap(name, f"the look {why}; it is tried again later")]
            self._due[name] = moment + _PUNISHED * PERIODS[name]
        self._asked = []
        self._end()

    def _end(self) -> None:
        pid, self._pid = self._pid, 0
        os.close(self._from)
        self._from = -1
        give_up(pid, 0.05)


def _write(to: int, data: bytes) -> None:
    whole = memoryview(_SIZE.pack(len(data)) + data)
    while whole:
        whole = whole[os.write(to, whole) :]


def _round(answers: int, root: str, names: list[str], wanted: Wanted, orphans: set[int]) -> None:
    """The child's life: takes looks, and tells each when it has been taken. orphans: what NVML would still list; it is asked elsewhere."""
    os.nice(_NICE)
    host = LiveHost(root, lambda _deep, _sample: {"processes": [{"pid": pid} for pid in orphans]}, expendable=True)
    encoder = msgspec.msgpack.Encoder()
    for name in names:
        begun, used = time.monotonic(), _cpu_s()
        seen = _taken(name, host, wanted)
        wanted.facts = [*wanted.facts, *seen.facts]
        told = _Told(name, seen.facts, seen.gaps, time.monotonic() - begun, _cpu_s() - used)
        _write(answers, encoder.encode(told))
    host.close()


def _cpu_s() -> float:
    """Processor seconds of this process and of its children that have ended."""
    own, ended = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + ended.ru_utime + ended.ru_stime


def _module_of(name: str) -> tuple[str, str]:
    """Module and function of a look."""
    look = _BY_ID.get(name)
    module, _, function = (look.function if look is not None else "sensors:look_at_chips").partition(":")
    return f"gpuclinic.clinic.looks.{module}", function


def _taken(name: str, host: LiveHost, wanted: Wanted) -> Seen:
    module, function = _module_of(name)
    take: Any = getattr(importlib.import_module(module), function)
    try:
        seen: Seen = take(host, wanted)
        for source, data in seen.texts:
            if source.startswith("systemctl show"):
                seen.facts += parse_services(Document(source, data.decode("utf-8", "replace"), name_hint=source))
    except Exception as problem:  # noqa: BLE001 - it becomes a gap, as in a check
        return Seen(gaps=[Gap(name, f"{type(problem).__name__}: {problem}"[:300])])
    return seen
