"""The life of the child that samples: starts NVML once, then reads the fast numbers or asks a slow tier whenever a byte tells it to.

It may hang or crash at any call; what it has told by then stands in memory that its parent reads.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import mmap
import os
import select
import sys
import threading
import time
from typing import Any, NamedTuple

from gpuclinic.observe import _nvml_calls as calls
from gpuclinic.observe import _nvml_panel as panel_words
from gpuclinic.observe._nvml_child import Order, count, settle, start
from gpuclinic.observe._nvml_device import Asker, RefusedError, ask_device
from gpuclinic.observe._nvml_events import follow
from gpuclinic.observe._nvml_fast import Changes, FastDevice
from gpuclinic.observe._nvml_journal import DONE, Journal
from gpuclinic.observe._nvml_panel import Panel

ASK_FAST, ASK_MINUTES, ASK_ALL = b"f", b"m", b"a"
PROGRAM = (
    "import sys,json;sys.path[:]=json.loads(sys.argv[2]);from gpuclinic.observe._nvml_sampler_child import main;main()"
)
STARTED, TOLD_FAST, TOLD_SLOW = b"S", b"F", b"D"

_MINUTES = frozenset(("memory health", "PCIe", "NVLink", "MIG", "processes"))
_ECC_TOTALS = (3, 4, 5, 6)
"""Field values of corrected and uncorrected errors, volatile and aggregate."""

_WITHOUT_THROUGHPUT = frozenset(
    ("state", "memory health", "sensors", "PCIe", "settings", "fans", "MIG", "fabric", "NVLink", "processes")
)
_KNOWN = ("ecc_mode", "architecture", "mig_mode", "accounting", "virtualization_mode")
"""What the questions of the middle tier build on and the slowest tier told."""

_MOST_LINKS = 36
_LISTED_ANYWAY_S = 30.0
_ALL_KINDS_S = 300.0
_WHOLE_S = 600.0
"""Questions whose answers have not changed by a quicker look are asked anyway after so long."""

_SERIOUS_MIB = 1


class Pipes(NamedTuple):
    """Descriptors of the child: commands come, bytes that wake the parent go, events go as lines."""

    commands: int
    wake: int
    events: int


class _Listing:
    """When a device's processes are listed again: when its used memory has changed, and now and then."""

    def __init__(self) -> None:
        self.at = self.all_at = -1e9
        self.used = -1
        self.others = ""

    def due(self, used: int | None, now: float) -> bool:
        """The list may have changed. used: memory in MiB, None where it is not told."""
        changed = used is None or abs(used - self.used) >= _SERIOUS_MIB
        if changed or now - self.at >= _LISTED_ANYWAY_S:
            self.at, self.used = now, -1 if used is None else used
            return True
        return False

    def kinds(self, now: float) -> str:
        """Graphics and MPS lists cost as much as the one of compute processes, and are empty on most servers."""
        if now - self.all_at >= _ALL_KINDS_S:
            self.all_at = now
            return "CGM"
        return "C" + self.others


class _Sampling:
    """The child's work after its start."""

    def __init__(self, asker: Asker, library: ctypes.CDLL, order: Order, panel: Panel, journal: mmap.mmap, pipes: Pipes) -> None:  # fmt: skip
        self.asker, self.library, self.order, self.panel, self.pipes = asker, library, order, panel, pipes
        self.journal_memory = journal
        self.waiting: list[bytes] = []
        self.fast: dict[int, FastDevice] = {}
        self.known: dict[int, dict[str, Any]] = {}
        self.listings: dict[int, _Listing] = {}
        self.gates: dict[int, dict[str, Changes]] = {}
        self.whole_at: dict[int, float] = {}
        self.poll = select.poll()
        self.poll.register(pipes.commands, select.POLLIN)
        self.following = False

    def devices(self) -> list[int]:
        """Those to be asked."""
        wanted = self.order.devices if self.order.devices is not None else range(self.panel.place().devices)
        return [index for index in wanted if index < panel_words.MOST_DEVICES and not self.panel.skips(index)]

    def serve(self) -> None:
        """Does what it is told until nobody is left to tell."""
        while True:
            if not self.waiting:
                self.panel.doing(panel_words.IDLE)
                data = os.read(self.pipes.commands, 64)
                if not data:
                    return
                self._queue(data)
            command = self.waiting.pop(0)
            if command == ASK_FAST:
                self.read_fast()
            else:
                self.ask_slow(everything=command == ASK_ALL)

    def _queue(self, data: bytes) -> None:
        for number in sorted(set(data), key=lambda byte: bytes((byte,)) != ASK_FAST):
            if bytes((number,)) not in self.waiting:
                self.waiting.append(bytes((number,)))

    def between(self) -> None:
        """Serves the fast reading first, however long the slow tier takes."""
        while self.poll.poll(0):
            data = os.read(self.pipes.commands, 64)
            if not data:
                os._exit(0)
            self._queue(data)
        if ASK_FAST in self.waiting:
            self.waiting.remove(ASK_FAST)
            self.read_fast()
            self.panel.doing(panel_words.SLOW)

    def read_fast(self) -> None:
        """One reading of all devices."""
        for index in self.devices():
            self.panel.doing(panel_words.FAST, index)
            device = self.fast.get(index)
            if device is None:
                device = self._handle(index)
                if device is None:
                    continue
            self.panel.put(index, panel_words.READ, 0, *device.read())
        self.panel.doing(panel_words.IDLE)
        os.write(self.pipes.wake, TOLD_FAST)
        if not self.following and self.order.devices is None:
            self.following = True
            follow(self.library, {i: d for i, d in self.handles.items() if i in self.fast}, self.pipes.events)

    @property
    def handles(self) -> dict[int, int]:
        """Addresses of the handles that were given so far."""
        return {index: device.address for index, device in self.fast.items()}

    def _handle(self, index: int) -> FastDevice | None:
        self.panel.calling(0)
        handle = ctypes.c_void_p()
        function = getattr(self.library, "nvmlDeviceGetHandleByIndex_v2", None)
        code = int(function(index, ctypes.byref(handle))) if function is not None else 13
        if code or not handle.value:
            self.panel.put(index, panel_words.NO_HANDLE, code or 999)
            return None
        self.fast[index] = FastDevice(self.library, handle.value, self.panel.calling)
        return self.fast[index]

    def ask_slow(self, *, everything: bool) -> None:
        """Asks a tier of all devices; the journal begins anew with it."""
        self.asker.journal = journal = Journal(self.journal_memory)
        self.panel.doing(panel_words.SLOW)
        for index in self.devices():
            journal.stage(index)
            if everything and index in self.fast:
                self.fast[index].forget()
            groups = self._groups(index, everything=everything)
            ask_device(
                self.asker, index, deep=False, seconds=self.order.device_s, groups=groups,
                known=None if everything else self.known.get(index), between=self.between,
            )  # fmt: skip
            journal.tell("item", index, "asked", {"groups": sorted(groups)})
            if everything:
                self.known[index] = {name: self.asker.known[name] for name in _KNOWN if name in self.asker.known}
        journal.stage(DONE)
        os.write(self.pipes.wake, TOLD_SLOW)

    def _groups(self, index: int, *, everything: bool) -> frozenset[str]:
        groups = _WITHOUT_THROUGHPUT if everything or index not in self.known else _MINUTES
        now, listing = time.monotonic(), self.listings.setdefault(index, _Listing())
        unchanged = {group for group, gate in self._gates(index).items() if not gate.seen()}
        if now - self.whole_at.get(index, -1e9) >= _WHOLE_S and groups is not _MINUTES:
            self.whole_at[index] = now
        else:
            groups = groups - unchanged
        if not listing.due(self._used_mib(index), now):
            return groups - {"processes"}
        self.asker.process_kinds = listing.kinds(now)
        return groups

    def _gates(self, index: int) -> dict[str, Changes]:
        """What tells, in one call each, whether a group of the middle tier has anything new."""
        device = self.fast.get(index)
        if device is None:
            return {}
        if index not in self.gates:
            links = self._links(index)
            by_link = [(field.number, link) for link in range(links) for field in calls.LINK_FIELDS]
            by_link += [(field.number, link) for link in range(links) for field in calls.LINK5_FIELDS]
            health = [(number, 0) for number in (*_ECC_TOTALS, *(field.number for field in calls.HEALTH_FIELDS))]
            pcie = [(field.number, 0) for field in calls.PCIE_FIELDS]
            width = ("nvmlDeviceGetCurrPcieLinkGeneration", "nvmlDeviceGetCurrPcieLinkWidth")
            self.gates[index] = {
                "memory health": Changes(self.library, device.address, health, sure=_ECC_TOTALS),
                "PCIe": Changes(self.library, device.address, pcie, width),
                "NVLink": Changes(self.library, device.address, by_link),
            }
        return self.gates[index]

    def _links(self, index: int) -> int:
        """How many NVLinks the chip has."""
        self.asker.index, self.asker.handle = (
            index,
            ctypes.cast(self.fast[index].address, self.asker.nvml.c_nvmlDevice_t),
        )
        with contextlib.suppress(RefusedError):
            told = self.asker.batch((calls.Field("nvlinks", 91),), "NVLink count")
            if told and told[0][2] is None:
                return max(0, min(int(told[0][1]), _MOST_LINKS))
        return 0

    def _used_mib(self, index: int) -> int | None:
        record = self.panel.get(index)
        place = panel_words.USED
        return record.values[place] >> 20 if record.state == panel_words.READ and record.codes[place] == 0 else None


def live(panel: Panel, journal_memory: mmap.mmap, pipes: Pipes, order: Order, parent: int) -> None:
    """The whole life of a child; never returns."""
    code = 70
    try:
        settle(pipes.wake, parent, pipes.commands, pipes.events)
        threading.stack_size(1 << 18)
        panel.doing(panel_words.STARTING)
        nvml: Any = importlib.import_module("pynvml")
        asker = Asker(nvml, Journal(journal_memory))
        if start(asker, order):
            panel.counted(min(count(asker) or 0, panel_words.MOST_DEVICES))
            os.write(pipes.wake, STARTED)
            _Sampling(asker, nvml.nvmlLib, order, panel, journal_memory, pipes).serve()
        code = 0
    except (OSError, RefusedError):
        code = 71  # the parent is gone, or what it shares
    except BaseException as problem:  # noqa: BLE001 - told to the parent; nothing may return into its code
        with contextlib.suppress(Exception):
            Journal.resumed(journal_memory).tell("failed", f"{type(problem).__name__}: {problem}"[:300])
    finally:
        os._exit(code)


def main() -> None:
    """Entry of the child: what to ask stands in the first argument; descriptors are panel, journal, commands, wake, events, from 3 on."""
    told = json.loads(sys.argv[1])
    panel, journal = (mmap.mmap(handle, os.fstat(handle).st_size) for handle in (3, 4))
    live(Panel(panel), journal, Pipes(5, 6, 7), Order(**told["order"]), int(told["parent"]))
