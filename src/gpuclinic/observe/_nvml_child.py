"""What runs in a child process: loads NVML, asks, and tells each answer as it comes. It may hang or crash at any call."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import importlib
import json
import mmap
import os
import resource
import signal
import sys
from typing import Any, NamedTuple

from gpuclinic.observe import _nvml_library as library
from gpuclinic.observe import _nvml_words as words
from gpuclinic.observe._children import settle as untie
from gpuclinic.observe._nvml_device import Asker, RefusedError, ask_device
from gpuclinic.observe._nvml_journal import DONE, LOADING, NAMES, Journal

MOST_DEVICES = 256
_MOST_NAMES = 256
_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15


class Order(NamedTuple):
    """What a child is to ask.

    library: soname or path. devices: indices, None for all. skip: indices left alone. deep: also what is slow. root: the
    examined machine's root folder, "" for this one. device_s: seconds that one device may take. names: ask for processes' names.
    """

    library: str
    devices: list[int] | None
    skip: list[int]
    deep: bool
    root: str
    device_s: float
    names: bool


def run(memory: mmap.mmap, wake: int, order: Order) -> None:
    """Asks all that the order says; the journal in memory holds the answers. Errors of NVML are answers, too."""
    journal = Journal(memory)
    nvml: Any = importlib.import_module("pynvml")
    asker = Asker(nvml, journal)
    if start(asker, order):
        counted = count(asker)
        wanted = order.devices if order.devices is not None else list(range(min(counted or 0, MOST_DEVICES)))
        pids: list[int] = []
        for index in wanted:
            if index in order.skip:
                continue
            journal.stage(index)
            os.write(wake, b".")
            pids += ask_device(asker, index, deep=order.deep, seconds=order.device_s)
        if order.names and pids:
            journal.stage(NAMES)
            os.write(wake, b".")
            _names(asker, pids)
    journal.stage(DONE)
    os.write(wake, b".")


def start(asker: Asker, order: Order) -> bool:
    """Loads and starts NVML, and tells its versions, or why it did not start."""
    journal = asker.journal
    journal.stage(LOADING)
    journal.calling("dlopen")
    try:
        loaded = library.load(order.library)
    except library.LibraryError as problem:
        journal.returned()
        journal.tell("init", {"code": None, "error": str(problem), "load": problem.kind})
        about = {"machine": library.elf(order.library)} if "/" in order.library else {}
        journal.tell("init", {**about, "elsewhere": library.elsewhere(), **library.surroundings(order.root)})
        return False
    journal.tell("library", library.mapped(loaded))
    asker.nvml.nvmlLib = loaded  # the bindings would load the soname; the path given wins
    with contextlib.suppress(RefusedError):  # works before the start, and names the library's version where that fails
        journal.tell("system", "nvml_version", str(asker.call("nvmlSystemGetNVMLVersion"))[:80])
    try:
        asker.call("nvmlInitWithFlags", 0)
    except RefusedError as refusal:
        if refusal.code != 13 or not _started_as_before(asker, loaded):
            code = refusal.code
            journal.tell("init", {"code": code, "error": refusal.text, "call": "nvmlInitWithFlags"})
            journal.tell("init", library.surroundings(order.root))
            return False
    journal.tell("init", {"code": 0})
    for key, function in (
        ("driver_version", "nvmlSystemGetDriverVersion"),
        ("cuda_driver", "nvmlSystemGetCudaDriverVersion_v2"),
        ("nvml_version", "nvmlSystemGetNVMLVersion"),
    ):
        with contextlib.suppress(RefusedError):
            value = asker.call(function)
            asker.driver = value if key == "driver_version" and isinstance(value, str) else asker.driver
            journal.tell("system", key, value if isinstance(value, int) else str(value)[:80])
    return True


def _started_as_before(asker: Asker, loaded: ctypes.CDLL) -> bool:
    """Libraries before driver 390 have only nvmlInit_v2."""
    if not hasattr(loaded, "nvmlInit_v2"):
        return False
    asker.journal.calling("nvmlInit_v2")
    code = int(loaded.nvmlInit_v2())
    asker.journal.returned()
    return code == 0


def count(asker: Asker) -> int | None:
    """How many devices NVML has; told, too."""
    try:
        counted = int(asker.call("nvmlDeviceGetCount"))
    except RefusedError as refusal:
        asker.journal.tell("init", {"count_code": refusal.code, "count_error": refusal.text})
        return None
    asker.journal.tell("count", counted)
    return counted


def _names(asker: Asker, pids: list[int]) -> None:
    """Last, for the library reads each process's memory map, which hangs where that process hangs."""
    for pid in sorted(set(pids))[:_MOST_NAMES]:
        with contextlib.suppress(RefusedError):
            asker.journal.tell("name", pid, words.text(asker.call("nvmlSystemGetProcessName", pid))[:300])


def enter(memory: mmap.mmap, wake: int, order: Order, parent: int) -> None:
    """The whole life of a child; never returns."""
    code = 70
    try:
        settle(wake, parent)
        run(memory, wake, order)
        code = 0
    except BaseException as problem:  # noqa: BLE001 - told to the parent; nothing may return into its code
        with contextlib.suppress(Exception):
            Journal.resumed(memory).tell("failed", f"{type(problem).__name__}: {problem}"[:300])
    finally:
        os._exit(code)


def settle(wake: int, parent: int, *kept: int) -> None:
    """Cuts what ties a child to its parent: it must hold none of its other pipes, for it may live longer than all of them."""
    faulthandler.disable()
    untie(wake, *kept)
    signal.signal(
        signal.SIGPIPE, signal.SIG_IGN
    )  # a parent that has stopped reading is no reason to die: what was told stays
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a library that crashes leaves no core of ours
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        libc.prctl(_PR_SET_NAME, b"gpuclinic-nvml", 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)  # it died before the line above


def main() -> None:
    """Entry of a child that was not forked: the order stands in the first argument, descriptors are 3 (memory) and 4."""
    told = json.loads(sys.argv[1])
    memory = mmap.mmap(3, int(told["size"]))
    enter(memory, 4, Order(**told["order"]), int(told["parent"]))
