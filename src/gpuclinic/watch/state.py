"""What the agent knows now, for programs that must answer at once: kept in memory, and written to state.json every few seconds."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import msgspec

from gpuclinic import __version__
from gpuclinic.model import CouldNotError
from gpuclinic.store import whole_file

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from gpuclinic.model import Fact, Tick
    from gpuclinic.observe.kernel_follow import Position

FILE = "state.json"
FORMAT = 1
_LARGEST = 64 << 20
_MOST_CODES = 500
_MOST_GPUS = 64


class Gpus(msgspec.Struct, frozen=True):
    """How many GPUs there should be, are there, and can be read. troubled: PCI address of each that cannot, and why."""

    expected: int
    present: int
    readable: int
    troubled: dict[str, str]


class State:
    """Takes ticks, and answers from the newest. expect_gpus: as the configuration says. earlier: a document of an earlier agent."""

    def __init__(self, expect_gpus: int | None = None, earlier: dict[str, Any] | None = None, boot: str = "") -> None:
        self.tick: Tick | None = None
        self.started = time.time()
        self.boot = boot
        self.xids: dict[int, int] = {}
        self.sxids: dict[int, int] = {}
        self.gpu_xids: dict[str, dict[int, int]] = {}
        self.last_xids: dict[str, int] = {}
        self.alerts: list[Any] = []
        self.unsent = 0
        self.ticks = self.slow_ticks = self.missed = 0
        self.slowest_s = 0.0
        self.own: dict[str, Any] = {}
        self.log: Position | None = None
        self.problems: list[str] = []
        self._expect = expect_gpus
        self._most = 0
        if earlier is not None and earlier.get("boot_id") == boot:
            self._remember(earlier)

    def _remember(self, earlier: dict[str, Any]) -> None:
        """Counts go on where an agent of this boot had come to; a damaged document costs only what it held."""
        for name, counts in (("xids", self.xids), ("sxids", self.sxids)):
            told = earlier.get(name)
            for code, count in list(told.items())[:_MOST_CODES] if isinstance(told, dict) else ():
                if code.isdecimal() and len(code) < 9 and isinstance(count, int) and count >= 0:
                    counts[int(code)] = count
        by_gpu, last = earlier.get("gpu_xids"), earlier.get("last_xids")
        for gpu, told in list(by_gpu.items())[:_MOST_GPUS] if isinstance(by_gpu, dict) else ():
            for code, count in list(told.items())[:_MOST_CODES] if isinstance(told, dict) else ():
                if code.isdecimal() and len(code) < 9 and isinstance(count, int) and count >= 0:
                    self.gpu_xids.setdefault(gpu, {})[int(code)] = count
        for gpu, code in list(last.items())[:_MOST_GPUS] if isinstance(last, dict) else ():
            if isinstance(code, int) and 0 <= code < 10**9:
                self.last_xids[gpu] = code
        gpus = earlier.get("gpus")
        most = gpus.get("expected") if isinstance(gpus, dict) else None
        self._most = most if isinstance(most, int) and 0 <= most <= 1024 else 0

    def take(self, tick: Tick) -> None:
        """The newest tick."""
        self.tick = tick
        self.ticks += 1
        self.slowest_s = max(self.slowest_s, tick.took_s)
        for event in tick.events:
            code = event.fields.get("code")
            counts = self.xids if event.kind == "xid" else self.sxids if event.kind == "sxid" else None
            if counts is not None and isinstance(code, int) and (code in counts or len(counts) < _MOST_CODES):
                counts[code] = counts.get(code, 0) + 1
                if event.kind == "xid" and event.subject:
                    self._of_gpu(event.subject, code)

    def _of_gpu(self, gpu: str, code: int) -> None:
        if gpu not in self.gpu_xids and len(self.gpu_xids) >= _MOST_GPUS:
            return
        counts = self.gpu_xids.setdefault(gpu, {})
        if code in counts or len(counts) < _MOST_CODES:
            counts[code] = counts.get(code, 0) + 1
            self.last_xids[gpu] = code

    def gpus(self) -> Gpus:
        """Expected, present and readable GPUs; expected is at least what an answer in this boot ever had, or what stands on the bus."""
        facts = self.tick.facts if self.tick is not None else []
        listed = [fact for fact in facts if fact.kind == "gpu"]
        troubled = {fact.key: why for fact in listed if (why := trouble_of(fact)) is not None}
        present = len(listed) - sum("not enumerated" in why for why in troubled.values())
        on_bus = sum(fact.kind == "pci_device" and fact.fields.get("is_gpu") is True for fact in facts)
        self._most = max(self._most, present)
        expected = self._expect if self._expect is not None else max(self._most, on_bus)
        return Gpus(expected, present, len(listed) - len(troubled), troubled)

    def document(self) -> dict[str, Any]:
        """Everything, ready for JSON. Readers must accept keys that they do not know."""
        tick = self.tick
        return {
            "gpuclinic_state": FORMAT, "version": __version__, "pid": os.getpid(), "host": os.uname().nodename, "boot_id": self.boot,
            "started": self.started, "at": tick.at if tick is not None else None, "mono": tick.mono if tick is not None else None,
            "gpus": self.gpus(), "xids": _by_text(self.xids), "sxids": _by_text(self.sxids),
            "alerts": self.alerts, "unsent": self.unsent,
            "gpu_xids": {gpu: _by_text(counts) for gpu, counts in self.gpu_xids.items()}, "last_xids": self.last_xids,
            "sampling": {
                "took_s": tick.took_s if tick is not None else None, "slowest_s": self.slowest_s, "ticks": self.ticks,
                "slow_ticks": self.slow_ticks, "missed": self.missed,
            },
            "agent": self.own, "problems": self.problems, "kernel_log": self.log._asdict() if self.log is not None else None,
            "gaps": tick.gaps if tick is not None else [], "ages": tick.ages if tick is not None else {},
            "facts": told_facts(tick.facts) if tick is not None else [],
        }  # fmt: skip

    def write(self, folder: Path) -> None:
        """Writes state.json, whole or not at all. OSError: the folder takes nothing."""
        data = msgspec.json.encode(self.document())
        with whole_file(folder / FILE, 0o644) as file:
            file.write(data + b"\n")


def _by_text(counts: dict[int, int]) -> dict[str, int]:
    return {str(code): count for code, count in sorted(counts.items())}


def trouble_of(fact: Fact) -> str | None:
    """Why a GPU cannot be read; None where it can."""
    fields = fact.fields
    if fields.get("hung"):
        return f"hung in {fields.get('hung_call') or 'a call'}"
    if fields.get("crash_call"):
        return f"the library crashed in {fields['crash_call']}"
    if fields.get("error"):
        return str(fields["error"])
    return str(fields["not_asked"]) if fields.get("not_asked") else None


def told_facts(facts: Iterable[Fact]) -> list[dict[str, Any]]:
    """Facts without the places that show them, as programs want them."""
    return [{"kind": fact.kind, "key": fact.key, "fields": fact.fields, "source": fact.source} for fact in facts]


def known_gpus(document: dict[str, Any] | None, boot: str) -> dict[int, dict[str, Any]]:
    """Who was who by NVML's index, as a document of that boot says: its fields bus_id, uuid, serial, minor, name."""
    facts = (document or {}).get("facts")
    if document is None or not isinstance(facts, list) or document.get("boot_id") != boot:
        return {}
    out: dict[int, dict[str, Any]] = {}
    for fact in facts:
        fields = fact.get("fields") if isinstance(fact, dict) and fact.get("kind") == "gpu" else None
        if not isinstance(fields, dict) or not isinstance(index := fields.get("index"), int):
            continue
        told = {"bus_id": fields.get("bus_id"), "uuid": fields.get("uuid"), "serial": fields.get("serial"),
                "minor": fields.get("minor_number"), "name": fields.get("name")}  # fmt: skip
        if isinstance(told["bus_id"], str):
            out[index] = {name: value for name, value in told.items() if isinstance(value, str | int)}
    return out


def read_state(folder: Path) -> dict[str, Any]:
    """The document that an agent wrote. Raises CouldNotError where there is none, or it is none."""
    path = folder / FILE
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST + 1)
    except FileNotFoundError:
        raise CouldNotError(f"{path}: no agent has written it; is gpuclinic agent running?") from None
    except OSError as problem:
        raise CouldNotError(f"{path}: {problem.strerror or problem}") from problem
    try:
        content = msgspec.json.decode(data) if len(data) <= _LARGEST else None
    except (msgspec.DecodeError, RecursionError):
        content = None
    if not isinstance(content, dict) or content.get("gpuclinic_state") != FORMAT:
        raise CouldNotError(f"{path}: not a state of this version's agent")
    return content
