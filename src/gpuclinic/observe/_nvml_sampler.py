"""NVML sampled by a child process that lives on, and is given up where a call of its does not come back.

nvmlInit is called once for a child, never once for a sample. A device that hangs costs its own values only: the child that hung on
it is killed and not waited for, another goes on without that device, and a child of its own looks at it again once a minute.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import mmap
import os
import select
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from gpuclinic.observe import _nvml_panel as panel_words
from gpuclinic.observe._nvml_answers import Answers, called
from gpuclinic.observe._nvml_child import Order
from gpuclinic.observe._nvml_journal import SIZE as JOURNAL_SIZE
from gpuclinic.observe._nvml_journal import Journal, now
from gpuclinic.observe._nvml_library import SONAME
from gpuclinic.observe._nvml_panel import Panel
from gpuclinic.observe._nvml_sampler_child import (
    ASK_ALL,
    ASK_FAST,
    ASK_MINUTES,
    PROGRAM,
    STARTED,
    TOLD_FAST,
    TOLD_SLOW,
)  # fmt: skip
from gpuclinic.observe._stuck import Ledger, Stuck, runtime_folder, start_time
from gpuclinic.observe.nvml import LIBRARY_VARIABLE, ROOT_VARIABLE, Deadlines, kill, memory_file, spawn

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from gpuclinic.observe._nvml_panel import Record

RETRY_S = 60.0
"""After which a device that hung, or an NVML that did not start, is tried again."""

_AGAIN_S = 1.0
"""What a child that takes over may have, beyond the first deadline, to start and to read the others within the same tick."""

_SLACK_S = 0.3
"""A call that hangs begins a little after the tick; it is given up within the same tick."""

_LIST_GROUPS = {"processes": ("processes",), "MIG": ("mig",), "NVLink": ("nvlinks",), "fans": ("fans",)}
_WHOLE = frozenset(("state", "memory health", "sensors", "PCIe", "settings"))
_IDENTITY = ("pci_id", "pci_subsystem_id", "board_part_number", "module_id", "board_id", "vbios_version")
_MOST_EVENTS = 1 << 18


class Happening(NamedTuple):
    """What became of a device. what: "hung", "crashed" or "back". device: -1 for NVML itself. after_s: how long the call had."""

    what: str
    device: int
    call: str = ""
    after_s: float = 0.0


class Reading(NamedTuple):
    """What a tick brought.

    records: of devices that were read now. document: all that is known, as docs/nvml.md has it. changed: differs from the last.
    events: NVML's (observe/_nvml_events.py). why: where NVML is not there, or has not told yet.
    """

    records: dict[int, Record]
    document: dict[str, Any]
    changed: bool
    happenings: list[Happening]
    events: list[dict[str, Any]]
    why: str | None


class _Child:
    """A child that samples. alone: the one device it was started for; None: all."""

    def __init__(self, pid: int, panel: Panel, journal: mmap.mmap, commands: int, wake: int, events: int, alone: int | None) -> None:  # fmt: skip
        self.pid, self.panel, self.journal, self.alone = pid, panel, journal, alone
        self.commands, self.wake, self.events = commands, wake, events
        self.begun = time.monotonic()
        self.started = self.gone = self.asks_slow = self.everything = False
        self.fast_since: float | None = None
        self.line = b""

    def tell(self, command: bytes) -> None:
        """Gives a command; a child that is gone does not take it."""
        with contextlib.suppress(OSError):
            os.write(self.commands, command)
            if command == ASK_FAST:
                self.fast_since = time.monotonic()
            else:
                self.asks_slow, self.everything = True, command == ASK_ALL

    def woken(self, timeout: float) -> bytes:
        """What it says within so many seconds; notes when it is gone."""
        poll = select.poll()
        poll.register(self.wake, select.POLLIN)
        if not poll.poll(max(0.0, timeout) * 1000):
            return b""
        said = os.read(self.wake, 256)
        self.gone = not said
        self.started = self.started or STARTED in said
        if TOLD_FAST in said:
            self.fast_since = None
        return said

    def close(self) -> None:
        """Lets go of its pipes; one that waits for commands ends of it."""
        for handle in (self.commands, self.wake, self.events):
            os.close(handle)


class _Hung(NamedTuple):
    """A device that is left alone. since, tried: on the monotonic clock. entry: the child that hangs there."""

    call: dict[str, Any]
    after_s: float
    tried: float
    entry: Stuck | None
    signal: int | None = None


class NvmlSampler:
    """Samples all devices. library: path or soname, by default as GPUCLINIC_NVML says. root: of the examined machine.

    runtime: folder of the ledger of stuck children. end: ends a child, for tests.
    """

    def __init__(
        self, library: str | None = None, root: str | None = None, deadlines: Deadlines = Deadlines(),  # noqa: B008 - immutable
        runtime: Path | None = None, retry_s: float = RETRY_S, end: Callable[[int], None] = kill,
    ) -> None:  # fmt: skip
        asked = library or os.environ.get(LIBRARY_VARIABLE) or SONAME
        root = os.environ.get(ROOT_VARIABLE, "") if root is None else root
        self._order = Order(asked, None, [], False, root.rstrip("/"), deadlines.device, False)
        self._deadlines, self._retry_s, self._end = deadlines, retry_s, end
        self._ledger = Ledger(runtime or runtime_folder())
        self._child: _Child | None = None
        self._lone: _Child | None = None
        self._left: list[tuple[int, Stuck | None]] = []
        self._hung: dict[int, _Hung] = {}
        self._not_before = 0.0
        self._devices: dict[int, dict[str, Any]] = {}
        self._head: dict[str, Any] = {}
        self._calls: dict[str, str] = {}
        self._seen_at: dict[int, float] = {}
        self._changed = True
        self._first = True
        self._ask_all = False
        self._happenings: list[Happening] = []

    # ---- what the owner calls

    def tick(self, tier: str | None = None) -> Reading:
        """Reads the fast numbers of all devices, within the deadlines whatever NVML does. tier: "minutes" or "all": asked besides.

        What a slower tier tells is in the document when it has come: with the first tick at once, else with a later one.
        """
        begun = time.monotonic()
        self._collect()
        self._look_again()
        first, self._first = self._first, False
        patience = self._deadlines.init + self._deadlines.whole if first else self._deadlines.device + _SLACK_S
        if first or self._ask_all:
            tier, self._ask_all = "all", False
        self._read(begun + patience, tier, wait_slow=first)
        events = self._events()
        records: dict[int, Record] = {}
        if self._child is not None:
            for index in range(self._child.panel.place().devices):
                record = self._child.panel.get(index)
                if record.state != panel_words.NEVER and record.at > self._seen_at.get(index, begun - 3600):
                    self._seen_at[index] = record.at
                    records[index] = record
        changed, self._changed = self._changed, False
        happenings, self._happenings = self._happenings, []
        return Reading(records, self._document(), changed, happenings, events, self._why())

    def children(self) -> list[int]:
        """Process numbers of the children that live, stuck ones among them."""
        running = [child.pid for child in (self._child, self._lone) if child is not None]
        return running + [pid for pid, _ in self._left]

    def close(self) -> None:
        """Ends the children; one that hangs is noted and left."""
        for child in (self._child, self._lone):
            if child is not None:
                self._note(child)
                self._let_go(child)
        self._child = self._lone = None
        until = time.monotonic() + 0.5
        while self._left and time.monotonic() < until:
            self._collect()
            time.sleep(0.002)

    # ---- reading

    def _read(self, until: float, tier: str | None, *, wait_slow: bool) -> None:
        command = {"minutes": ASK_MINUTES, "all": ASK_ALL}.get(tier or "")
        child = self._child or self._begin()
        wants_fast = True
        gathered = not wait_slow
        while child is not None:
            if child.started and wants_fast and child.fast_since is None:
                child.tell(ASK_FAST)
                if command and not child.asks_slow:
                    child.tell(command)
            wants_fast = wants_fast and not child.started
            moment = time.monotonic()
            if child.started and child.fast_since is None and gathered and not wants_fast:
                return
            said = child.woken(min(until, self._deadline(child)) - moment)
            if STARTED in said:
                self._take_start(child)
            if TOLD_SLOW in said:
                self._gather(child)
                gathered = True
            moment = time.monotonic()
            lost = (
                self._lost(child) if child.gone else False if moment < self._deadline(child) else self._give_up(child)
            )
            if lost:
                until = max(until, moment + _AGAIN_S)
                child, wants_fast, command = self._begin(), True, ASK_ALL
            elif child.gone:
                return
            if moment >= until:
                return

    def _deadline(self, child: _Child) -> float:
        """When what the child does is over, on the monotonic clock. What it wrote is not trusted."""
        if not child.started:
            return child.begun + self._deadlines.init
        place = child.panel.place()
        since = place.device_since
        if place.doing == panel_words.SLOW:
            told = now(child.journal)
            since = max(since, told.stage_since) if told.stage >= 0 else since
        elif place.doing == panel_words.IDLE:
            if child.fast_since is None and not child.asks_slow:
                return float("inf")
            since = max(since, child.fast_since or 0.0)
        return min(max(since, child.begun), time.monotonic()) + self._deadlines.device

    def _begin(self, alone: int | None = None) -> _Child | None:
        """Starts a child, where nothing speaks against it."""
        moment = time.monotonic()
        if alone is None and moment < self._not_before:
            return None
        known = self._ledger.living()
        start = known.get("init")
        if start is not None:
            self._no_start({"code": None, "hung_s": None, **called(start.call), "stuck": start.told()}, moment)
            return None
        for subject, entry in known.items():
            index = subject.removeprefix("gpu-")
            if index.isdecimal() and int(index) not in self._hung and int(index) < panel_words.MOST_DEVICES:
                self._hang(int(index), _Hung(called(entry.call), 0.0, moment, entry))
        if importlib.util.find_spec("pynvml") is None:
            why = "the Python package nvidia-ml-py is not installed"
            self._no_start({"code": None, "error": why, "load": "bindings"}, moment)
            return None
        try:
            child = self._spawn(alone)
        except OSError as problem:
            self._no_start({"code": None, "error": f"no child process: {problem.strerror}", "load": "no_child"}, moment)
            return None
        if alone is None:
            self._child = child
        return child

    def _no_start(self, init: dict[str, Any], moment: float) -> None:
        self._not_before = moment + self._retry_s
        self._changed = self._changed or self._head.get("init") != init
        self._head["init"] = init

    def _spawn(self, alone: int | None) -> _Child:
        """Starts an interpreter of its own: small, and sound whatever threads this process has. Raises OSError."""
        handles: list[int] = []

        def shared(size: int) -> mmap.mmap:
            handle = memory_file()
            handles.append(handle)
            os.ftruncate(handle, size)
            return mmap.mmap(handle, size)

        try:
            panel, journal = Panel(shared(panel_words.SIZE)), shared(JOURNAL_SIZE)
            Journal(journal)
            panel.doing(panel_words.STARTING)
            for index in self._hung:
                panel.skip(index, index != alone)
            commands, wake, events = (os.pipe2(os.O_CLOEXEC) for _ in range(3))
            handles += [commands[0], wake[1], events[1]]
            os.set_blocking(events[1], False)
            order = self._order._replace(devices=None if alone is None else [alone])
            pid = spawn(PROGRAM, json.dumps({"order": order._asdict(), "parent": os.getpid()}), handles)
        finally:
            for handle in handles:
                os.close(handle)
        os.set_blocking(events[0], False)
        return _Child(pid, panel, journal, commands[1], wake[0], events[0], alone)

    # ---- what becomes of children

    def _where(self, child: _Child) -> tuple[int, str, float]:
        """The device a child is at (-1: none), the call it is in, and since when."""
        place = child.panel.place()
        if not child.started or place.doing == panel_words.STARTING:
            told = now(child.journal)
            return -1, told.call, told.call_since if told.call else child.begun
        if place.doing == panel_words.FAST:
            return place.device, place.call, place.call_since
        told = now(child.journal)
        if place.doing == panel_words.SLOW and 0 <= told.stage < panel_words.MOST_DEVICES:
            return told.stage, told.call, told.call_since if told.call else told.stage_since
        return -1, "", time.monotonic()

    def _give_up(self, child: _Child) -> bool:
        """The child has passed a deadline. True: another may take over."""
        index, call, since = self._where(child)
        entry = self._note(child)
        after = round(max(0.0, time.monotonic() - since), 2)
        if child.asks_slow:
            self._gather(child)
        self._let_go(child, entry)
        if index >= 0:
            self._hang(index, _Hung(called(call), after, time.monotonic(), entry))
            self._happenings.append(Happening("hung", index, call, after))
        elif not child.started:
            self._no_start({"code": None, "hung_s": after, **called(call)}, time.monotonic())
            self._happenings.append(Happening("hung", -1, call, after))
        return True

    def _lost(self, child: _Child) -> bool:
        """The child ended by itself: NVML did not start, or crashed in it. True: another may take over."""
        index, call, _ = self._where(child)
        with contextlib.suppress(ChildProcessError):
            until = time.monotonic() + 0.25
            pid, status = 0, 0
            while pid == 0 and time.monotonic() < until:
                pid, status = os.waitpid(child.pid, os.WNOHANG)
                if pid == 0:
                    time.sleep(0.002)
            if pid == 0:
                self._let_go(child)
                return True
            number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
        self._take_start(child)
        child.close()
        self._child = None
        if not child.started:
            init = dict(self._head.get("init") or {})
            crash = {**called(call), "signal": number} if number is not None else None
            self._no_start({**init, "crashed": crash} if crash else init, time.monotonic())
            return False
        if index < 0:
            self._not_before = time.monotonic() + self._retry_s
            return False
        self._hang(index, _Hung(called(call), 0.0, time.monotonic(), None, number or 0))
        self._happenings.append(Happening("crashed", index, call))
        return True

    def _hang(self, index: int, hung: _Hung) -> None:
        self._hung[index] = hung
        self._changed = True
        if self._child is not None:
            self._child.panel.skip(index, True)

    def _note(self, child: _Child) -> Stuck | None:
        """Enters a child in the ledger before it is killed; the entry goes when it is seen to die."""
        started = start_time(child.pid)
        index, call, since = self._where(child)
        if started is None or (index < 0 and child.started):
            return None
        subject = f"gpu-{index}" if index >= 0 else "init" if child.alone is None else f"gpu-{child.alone}"
        at = time.time() - max(0.0, time.monotonic() - since)
        entry = Stuck(subject, child.pid, started, at, call[:100], self._devices.get(index, {}).get("bus_id"))
        self._ledger.write(entry)
        return entry

    def _let_go(self, child: _Child, entry: Stuck | None = None) -> None:
        self._end(child.pid)
        child.close()
        self._left.append((child.pid, entry))
        if child is self._child:
            self._child = None
        if child is self._lone:
            self._lone = None

    def _collect(self) -> None:
        """Buries children that died."""
        for left in list(self._left):
            pid, entry = left
            with contextlib.suppress(ChildProcessError):
                if os.waitpid(pid, os.WNOHANG)[0] == 0:
                    continue
            self._left.remove(left)
            if entry is not None:
                self._ledger.forget(entry)

    # ---- devices that hung

    def _look_again(self) -> None:
        """Has devices that hung looked at by a child of their own, one at a time; takes them back where they answer."""
        if self._lone is not None:
            self._watch_lone(self._lone)
        moment = time.monotonic()
        for index, hung in sorted(self._hung.items()):
            if self._lone is not None or moment - hung.tried < self._retry_s:
                continue
            self._hung[index] = hung._replace(tried=moment)
            if hung.entry is None or start_time(hung.entry.pid) != hung.entry.started:
                self._hung[index] = self._hung[index]._replace(entry=None)
                self._lone = self._begin(index)

    def _watch_lone(self, lone: _Child) -> None:
        said = lone.woken(0.0)
        index = lone.alone if lone.alone is not None else -1
        if STARTED in said:
            lone.tell(ASK_FAST)
        record = lone.panel.get(index)
        if TOLD_FAST in said:
            if record.state == panel_words.READ:
                self._back(index)
            self._let_go(lone)
        elif lone.gone:
            self._let_go(lone)
        elif time.monotonic() >= self._deadline(lone):
            entry = self._note(lone)
            self._hung[index] = self._hung[index]._replace(entry=entry)
            self._let_go(lone, entry)

    def _back(self, index: int) -> None:
        self._hung.pop(index, None)
        self._changed = self._ask_all = True
        self._happenings.append(Happening("back", index))
        if self._child is not None:
            self._child.panel.skip(index, False)

    # ---- what was told

    def _take_start(self, child: _Child) -> None:
        """What the child told of the library, its start and the count."""
        answers = Answers()
        answers.gather(child.journal)
        head = {name: value for name, value in answers.document(0.0).items() if name in ("library", "init", "system", "count")}  # fmt: skip
        if head.get("init"):
            self._changed = True
            if self._head.get("count") is not None and head["count"] not in (None, self._head["count"]):
                self._renumbered(child)
            self._head = head

    def _renumbered(self, child: _Child) -> None:
        """Devices came or went, so that a number may mean another one: what was known by numbers is forgotten, and asked again."""
        self._devices.clear()
        self._hung.clear()  # one that still hangs is found again
        for index in range(panel_words.MOST_DEVICES):
            child.panel.skip(index, False)

    def _gather(self, child: _Child) -> None:
        """What a slow tier told, onto what is known."""
        everything, child.asks_slow = child.everything, False
        answers = Answers()
        answers.gather(child.journal)
        told = answers.document(0.0)
        self._calls.update(told["calls"])
        for device in told["devices"]:
            index = int(device["index"])
            groups = [str(g) for row in device.pop("asked", []) for g in row.get("groups", [])]
            known = self._devices.get(index)
            whole = everything and set(groups) >= _WHOLE
            self._devices[index] = _merged(known, device, groups, everything=whole)
        self._changed = True

    def _events(self) -> list[dict[str, Any]]:
        child = self._child
        if child is None:
            return []
        with contextlib.suppress(BlockingIOError):
            child.line += os.read(child.events, _MOST_EVENTS)
        *lines, child.line = child.line.split(b"\n")
        out: list[dict[str, Any]] = []
        for line in lines:
            with contextlib.suppress(ValueError):
                content = json.loads(line)
                if isinstance(content, dict):
                    out.append(content)
        return out

    def _document(self) -> dict[str, Any]:
        devices = {index: device for index, device in self._devices.items() if index not in self._hung}
        for index, hung in self._hung.items():
            devices[index] = _hung_device(index, self._devices.get(index), hung)
        stuck = [{"subject": e.subject, "call": e.call, **e.told()} for _, e in self._left if e is not None]
        return {
            "gpuclinic_nvml": 1, "asked_for": self._order.library, "sample": 0, "library": None, "system": {}, "count": None, **self._head,
            "devices": [devices[index] for index in sorted(devices)], "calls": self._calls, "stuck": stuck,
        }  # fmt: skip

    def _why(self) -> str | None:
        init = self._head.get("init") or {}
        if self._child is not None and self._child.started:
            return None
        if "hung_s" in init:
            return f"{init.get('call') or 'its start'} does not come back"
        if init.get("crashed"):
            return "the library crashed when it was started"
        return str(init.get("error") or "NVML has not started yet")


_OWN = ("bus_id", "uuid", "serial", "minor", "name")
"""Who a device is: a lost one tells it no more, and stays who it was."""


def _merged(
    known: dict[str, Any] | None, device: dict[str, Any], groups: list[str], *, everything: bool
) -> dict[str, Any]:
    """A device as it is known with what was told now: lists are whole where their group was asked."""
    if known is None:
        return device
    device = {
        **device,
        **{name: known[name] for name in _OWN if device.get(name) is None and known.get(name) is not None},
    }
    kept = {name: known[name] for group, names in _LIST_GROUPS.items() if group not in groups for name in names if name in known}  # fmt: skip
    if everything:
        return {**kept, **device}
    new = {**known, **{name: value for name, value in device.items() if value is not None and name not in ("values", "errors", "calls")}}  # fmt: skip
    for group, names in _LIST_GROUPS.items():
        for name in names:
            if group in groups and name not in device:
                new.pop(name, None)
    new["values"] = {**known["values"], **device["values"]}
    new["errors"] = {**{f: e for f, e in known["errors"].items() if f not in device["values"]}, **device["errors"]}
    new["calls"] = {**known["calls"], **device["calls"]}
    return new


def _hung_device(index: int, known: dict[str, Any] | None, hung: _Hung) -> dict[str, Any]:
    """A device that is left alone: who it is, and why nothing more is told."""
    own = {name: (known or {}).get(name) for name in _OWN}
    if own["bus_id"] is None and hung.entry is not None:
        own["bus_id"] = hung.entry.bus_id
    values = {name: value for name, value in (known or {}).get("values", {}).items() if name in _IDENTITY}
    device: dict[str, Any] = {"index": index, **own, "values": values, "errors": {}, "calls": {}, "hung": None}
    if hung.signal is not None:
        return {**device, "crashed": {**hung.call, "signal": hung.signal}}
    stuck = {"stuck": hung.entry.told()} if hung.entry is not None and start_time(hung.entry.pid) else {}
    return {**device, "hung": {**hung.call, "after_s": hung.after_s or None, **stuck}}
