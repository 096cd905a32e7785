"""The one sampler: GPUs, host, kernel log and exits in one tick, at rates that fit what they cost (docs/watch.md)."""

from __future__ import annotations

import contextlib
import os
import select
import time
from typing import TYPE_CHECKING, Any

from gpuclinic.model import Event, Fact, Gap, Tick
from gpuclinic.observe._nvml_sampler import NvmlSampler
from gpuclinic.observe.exits import Exits, comm
from gpuclinic.observe.kernel_follow import KernelFollower, Position
from gpuclinic.recognise import host_state
from gpuclinic.recognise.one_process import signal_name as name_of_signal
from gpuclinic.recognise.proc_files import ended_by
from gpuclinic.watch._gpu_facts import GpuFacts, gpu_pids
from gpuclinic.watch._host_child import HostLooks
from gpuclinic.watch._kernel_words import KernelWords

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from gpuclinic.model import Scalar
    from gpuclinic.observe.exits import Exit
    from gpuclinic.watch.config import Sampling

MINUTES_S, ALL_S = 10.0, 60.0
"""How often the middle and the slowest tier of NVML are asked."""

_SAME_XID_S = 10.0
"""The log's stamp is the kernel's, NVML's is the moment it was read: a tick that waited for a hung GPU lies between. Twins go in pairs."""
_MOST_EVENTS = 300
"""A tick's; a storm of one message fills no store. What is left out is counted in an event of its own."""

_MOST_NOTED = 50
_MEMORY, _ARC = "/proc/meminfo", "/proc/spl/kstat/zfs/arcstats"
_PRESSURE = ("/proc/pressure/cpu", "/proc/pressure/io", "/proc/pressure/memory")
_COUNTERS = ("/proc/vmstat", "/proc/stat", "/proc/loadavg", _ARC)
_LARGEST = 1 << 19
_FOR_LOOKS = frozenset(("gpu", "gpu_process", "mig_device", "nvlink_gpu", "gpu_count", "driver", "nvml"))
_LINKS = {"ib_port": ("state", "InfiniBand port"), "net_interface": ("up", "interface")}


class Sampler:
    """Samples this machine. root: where its files are ("" for here). library: NVML's, by default as GPUCLINIC_NVML says.

    since: how far an earlier sampler had read the kernel's log. runtime: folder of the ledger of stuck children.
    eager: load the recogniser now, not with the first line of the log, which then has to wait for it.
    gpus: who was who, by NVML's index, as an earlier sampler of this boot knew it: a lost GPU does not tell its name.
    """

    def __init__(
        self, config: Sampling, root: str = "", library: str | None = None, *, since: Position | None = None, runtime: Path | None = None,
        eager: bool = False, gpus: Mapping[int, dict[str, Any]] | None = None,
    ) -> None:  # fmt: skip
        self._nvml = NvmlSampler(library, root or None, runtime=runtime) if config.gpus else None
        self._looks = HostLooks(root, config.expect_gpus)
        self._gpus = GpuFacts(gpus)
        self._log = KernelFollower(root, since)
        self._exits = Exits(trace=config.trace_signals) if config.exits and not root else None
        self._words = KernelWords() if eager else None
        self._numbers = _Numbers(root)
        self._minutes_at = self._all_at = time.monotonic()
        self._xids: list[tuple[float, str, int, str]] = []
        self._counts: dict[str, float] = {}
        self._links: dict[str, tuple[object, Fact]] = {}
        self._names: dict[int, str] = {}
        self._said: list[Gap] = []
        self._here = not root

    @property
    def position(self) -> Position:
        """How far the kernel's log was read."""
        return self._log.position

    @property
    def log_source(self) -> str:
        """What is followed of the kernel's log: "/dev/kmsg", "journalctl -k" or ""."""
        return self._log.source

    def children(self) -> list[int]:
        """Process numbers of the children that live."""
        return [*(self._nvml.children() if self._nvml is not None else []), *self._looks.children()]

    def tick(self) -> Tick:
        """One sample; comes back within NVML's first deadline whatever a GPU or a mount does."""
        at, mono = time.time(), time.monotonic()
        events: list[Event] = []
        gaps: list[Gap] = []
        facts: list[Fact] = []
        host, ages, host_gaps = self._looks.facts()
        if self._nvml is not None:
            reading = self._nvml.tick(self._tier(mono))
            facts, events, gaps = self._gpus.take(reading, host)
            facts = [self._named(fact) for fact in facts]
        told = self._looks.tick([fact for fact in facts if fact.kind in _FOR_LOOKS])
        if told:
            host, ages, host_gaps = self._looks.facts()
            events += self._of_looks(told, at)
        numbers, kills = self._numbers.read(mono)
        if kills:
            self._looks.soon("host.cgroup")
        present = {fact.kind for fact in numbers}
        facts += numbers
        facts += [fact for fact in host if fact.kind not in present]
        events += self._of_log()
        events += self._of_exits(facts)
        events = _in_bounds(self._without_doubles(events), at)
        gaps += host_gaps
        self._said += self._log.gaps() + (self._exits.gaps() if self._exits is not None else [])
        gaps += self._said
        older = {kind: age for kind, age in ages.items() if kind not in present}
        older |= dict.fromkeys(present & {"vm_counters", "cpu_times"}, self._numbers.age(mono))
        return Tick(at, mono, facts, events, gaps, older, round(time.monotonic() - mono, 4))

    def settle(self, seconds: float) -> None:
        """Waits until the looks at the host have been taken once, for so long at most; for who wants one whole tick."""
        self._looks.wait(seconds)

    def wait(self, until: float, wake: int = -1) -> bool:
        """Sleeps until a moment of the monotonic clock; notes meanwhile who dies, while the name can still be read.

        wake: a descriptor that ends the sleep where something can be read from it. Returns whether it did.
        """
        handle = self._exits.fileno() if self._exits is not None else -1
        poll = select.poll()
        for one in (handle, wake):
            if one >= 0:
                poll.register(one, select.POLLIN)
        noted = 0
        while (left := until - time.monotonic()) > 0:
            ready = {one for one, _ in poll.poll(left * 1000)}
            if wake in ready:
                return True
            if handle in ready and self._exits is not None:
                noted += 1 + self._exits.note()
                if noted > _MOST_NOTED:  # a storm of exits: the rest is taken with the next tick
                    poll.unregister(handle)
                    handle = -2
        return False

    def close(self) -> None:
        """Ends all children and lets go of everything."""
        if self._nvml is not None:
            self._nvml.close()
        self._looks.close()
        self._log.close()
        if self._exits is not None:
            self._exits.close()
        self._numbers.close()

    # ---- GPUs

    def _tier(self, mono: float) -> str | None:
        if mono - self._all_at >= ALL_S:
            self._all_at = self._minutes_at = mono
            return "all"
        if mono - self._minutes_at >= MINUTES_S:
            self._minutes_at = mono
            return "minutes"
        return None

    def _named(self, fact: Fact) -> Fact:
        """A process on a GPU with the kernel's name of it: NVML's own answer may hang with the process."""
        pid = fact.fields.get("pid")
        if (
            fact.kind != "gpu_process"
            or not isinstance(pid, int)
            or fact.fields.get("name") is not None
            or not self._here
        ):
            return fact
        name = self._names.get(pid)
        if name is None:
            if len(self._names) > 4096:
                self._names.clear()
            name = self._names[pid] = comm(pid)
        if name:
            fact.fields["name"] = name
        return fact

    # ---- events

    def _of_log(self) -> list[Event]:
        lines = self._log.take()
        if not lines:
            return []
        if self._words is None:
            self._words = KernelWords()
        return self._words.events(lines, self._gpus.by_address)

    def _of_exits(self, facts: Iterable[Fact]) -> list[Event]:
        if self._exits is None:
            return []
        on_gpus = gpu_pids(facts)
        self._exits.watch({pid: str(fact.fields.get("name") or "") for pid, fact in on_gpus.items()})
        ended = self._exits.take()
        if any(one.on_gpu for one in ended):
            self._looks.soon("process.gpu")
        return [self._exit(one, on_gpus.get(one.pid)) for one in ended]

    def _exit(self, ended: Exit, process: Fact | None) -> Event:
        gpu = self._gpus.by_address(str(process.fields.get("bus_id"))) if process is not None else None
        code, number = ended_by(ended.status) if ended.status is not None else (None, None)
        how = (
            "ended, nobody tells how" if ended.status is None
            else f"died by {name_of_signal(number)}" if number is not None
            else f"ended with code {code}"
        )  # fmt: skip
        by = ""
        if ended.sender is not None:
            by = (
                ", sent by the kernel"
                if ended.sender == 0
                else f", sent by {ended.sender_name or 'a process'} ({ended.sender})"
            )
        event = self._gpus.event(
            "exit", gpu, f"process {ended.pid}{f' ({ended.name})' if ended.name else ''} {how}{by}", ended.at,
            pid=ended.pid, name=ended.name or None, code=code, signal=number, signal_name=name_of_signal(number) if number is not None else None,
            on_gpu=ended.on_gpu, sender_pid=ended.sender, sender_name=ended.sender_name or None, oom=ended.oom or None,
            bus_id=gpu.key if gpu is not None else None,
        )  # fmt: skip
        return Event(event.at, event.kind, str(ended.pid), event.text, event.fields, event.serial, event.slot)

    def _of_looks(self, told: list[str], at: float) -> list[Event]:
        """What has changed between two takings of a look: kills for want of memory, links that came or went."""
        out: list[Event] = []
        for look in told:
            for fact in self._looks.of(look):
                if fact.kind == "cgroup":
                    out += self._kills(fact, at)
                elif fact.kind in _LINKS:
                    out += self._link(fact, at)
        return out

    def _kills(self, fact: Fact, at: float) -> list[Event]:
        count = fact.fields.get("oom_kill_count")
        if not isinstance(count, int | float):
            return []
        before, self._counts[fact.key] = self._counts.get(fact.key), count
        if before is None or count <= before:
            return []
        grown = int(count - before)
        fields = {
            "count": grown,
            "limit_mib": fact.fields.get("limit_mib"),
            "current_mib": fact.fields.get("current_mib"),
        }
        text = f"cgroup {fact.key}: the kernel ended {grown} process{'es' if grown > 1 else ''} for want of memory"
        return [Event(at, "oom_kill", fact.key, text, {k: v for k, v in fields.items() if v is not None})]

    def _link(self, fact: Fact, at: float) -> list[Event]:
        field, what = _LINKS[fact.kind]
        now = fact.fields.get(field)
        known, self._links[f"{fact.kind} {fact.key}"] = self._links.get(f"{fact.kind} {fact.key}"), (now, fact)
        if known is None or known[0] == now or now is None:
            return []
        word = now if isinstance(now, str) else "up" if now else "down"
        fields: dict[str, Scalar] = {"kind": fact.kind, "state": word, "up": bool(fact.fields.get("up"))}
        return [Event(at, "link", fact.key, f"{what} {fact.key} is {word} now", fields)]

    def _without_doubles(self, events: list[Event]) -> list[Event]:
        """An Xid that NVML and the kernel's log tell is one event; the log's words come first where both come at once."""
        out: list[Event] = []
        for event in sorted(events, key=lambda e: e.kind == "xid" and e.fields.get("source") == "nvml"):
            code = event.fields.get("code")
            if event.kind != "xid" or not isinstance(code, int):
                out.append(event)
                continue
            source = str(event.fields.get("source") or "log")
            self._xids = [known for known in self._xids if abs(known[0] - event.at) <= 60]
            twin = next(
                (k for k in self._xids if k[1:3] == (event.subject, code) and k[3] != source and abs(k[0] - event.at) <= _SAME_XID_S), None
            )  # fmt: skip
            if twin is not None:
                self._xids.remove(twin)
                continue
            self._xids.append((event.at, event.subject, code, source))
            out.append(event)
        return sorted(out, key=lambda e: e.at)


def _in_bounds(events: list[Event], at: float) -> list[Event]:
    if len(events) <= _MOST_EVENTS:
        return events
    left = len(events) - _MOST_EVENTS
    grave = sorted(range(len(events)), key=lambda n: (events[n].kind in ("kernel", "exit"), n))[:_MOST_EVENTS]
    kept = [events[n] for n in sorted(grave)]
    return [*kept, Event(at, "agent", "", f"{left} more events in this moment were left out", {"left_out": left})]


class _Numbers:
    """What of the host moves from second to second, out of files that stay open and never wait; its counters every ten seconds."""

    def __init__(self, root: str) -> None:
        self._files: dict[str, int] = {}
        self._counters: list[Fact] = []
        self._counted_at = -1e9
        for path in (_MEMORY, *_PRESSURE, *_COUNTERS):
            with contextlib.suppress(OSError):
                self._files[path] = os.open(root + path, os.O_RDONLY | os.O_CLOEXEC)

    def _text(self, path: str) -> str:
        handle = self._files.get(path)
        if handle is None:
            return ""
        with contextlib.suppress(OSError):
            return os.pread(handle, _LARGEST, 0).decode("utf-8", "replace")
        return ""

    def read(self, mono: float) -> tuple[list[Fact], bool]:
        """Facts `memory`, `pressure`, `vm_counters`, `cpu_times`; whether the kernel has ended processes for want of memory since the last."""
        meminfo = self._text(_MEMORY)
        facts = host_state.memory(meminfo, self._text(_ARC) or None) if meminfo else []
        facts += host_state.pressure({path: text for path in _PRESSURE if (text := self._text(path))})
        kills = False
        if mono - self._counted_at >= MINUTES_S:
            self._counted_at = mono
            before = _kills(self._counters)
            vmstat, stat, load, _ = (self._text(path) for path in _COUNTERS)
            self._counters = [*host_state.vm_counters(vmstat, meminfo), *host_state.cpu_times(stat, load)]
            now = _kills(self._counters)
            kills = before is not None and now is not None and now > before
        return facts + self._counters, kills

    def age(self, mono: float) -> float:
        """How old the counters are, in seconds."""
        return round(mono - self._counted_at, 1)

    def close(self) -> None:
        """Closes the files."""
        for handle in self._files.values():
            os.close(handle)
        self._files.clear()


def _kills(facts: Iterable[Fact]) -> float | None:
    counts = (fact.fields.get("oom_kills") for fact in facts if fact.kind == "vm_counters")
    return next((float(count) for count in counts if isinstance(count, int | float)), None)
