"""Who is who: rank ↔ pid ↔ GPU, index ↔ PCI address ↔ UUID, from everything that names two of them at once."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeVar

from gpuclinic.diagnose.deaths import table_pairs
from gpuclinic.diagnose.decide import same_host

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuclinic.diagnose.candidates import Candidate
    from gpuclinic.model import Fact, Signal

_ONE_PROCESS = re.compile(r"--(?:nproc[_-]per[_-]node|num_processes)[= ]1\b")
_BY_ADDRESS = ("hw.", "driver.", "kernel.", "perf.clock", "vgpu.", "mig.")


class People:
    """Maps of identities. Conflicting entries (two nodes with a GPU 0) are kept per host, and used without host only if all agree."""

    def __init__(self, signals: Iterable[Signal], facts: Iterable[Fact]) -> None:
        self._pid_local: dict[int, int] = {}
        self._pid_rank: dict[tuple[str | None, int], int] = {}
        self._rank_pid: dict[int, set[int]] = {}
        self._index_bus: dict[int, set[str]] = {}
        self._bus_index: dict[str, set[int]] = {}
        self._uuid_bus: dict[str, str] = {}
        self._bus_uuid: dict[str, str] = {}
        self._pid_bus: dict[int, set[str]] = {}
        self._pid_index: dict[int, set[int]] = {}
        self._rank_of_source: dict[str, set[int]] = {}
        self._ranks_on: dict[str, dict[str | None, tuple[int, int | None]]] = {}
        signals = list(signals)
        pairs = table_pairs(signals)
        for signal in signals:
            self._from_signal(signal, pairs.get(signal.order))
            if signal.signature == "elastic.launch":
                self._from_launch(signal)
            elif signal.signature == "nccl.init_rank" and "bus" in signal.groups and signal.rank is not None:
                address = nccl_bus_address(signal.groups["bus"])
                self._ranks_on.setdefault(address, {})[signal.host] = (signal.rank, signal.pid)
        for fact in facts:
            if fact.kind == "gpu":
                self._from_gpu(fact.fields)
            elif fact.kind == "gpu_process":
                self._from_process(fact.fields)

    def _from_launch(self, signal: Signal) -> None:
        """A launch of one process on a node names its rank."""
        if _ONE_PROCESS.search(signal.where.text):
            self._rank_of_source.setdefault(signal.where.source, set()).add(int(signal.groups["node_rank"][:6]))

    def _from_signal(self, signal: Signal, paired: int | None) -> None:
        groups = signal.groups
        pid = _integer(groups.get("pid"))
        rank = paired if paired is not None else _integer(groups.get("rank"))
        local = _integer(groups.get("local_rank"))
        if pid is not None and rank is None and local is not None:
            self._pid_local[pid] = local
        if pid is not None and rank is not None:
            self._pid_rank[(signal.host, pid)] = rank
            self._pid_rank.setdefault((None, pid), rank)
            self._rank_pid.setdefault(rank, set()).add(pid)
        elif signal.pid is not None and signal.rank is not None:
            self._pid_rank.setdefault((None, signal.pid), signal.rank)
            self._rank_pid.setdefault(signal.rank, set()).add(signal.pid)
        if signal.gpu is not None and signal.gpu_uuid is not None:
            self._uuid_bus[signal.gpu_uuid] = signal.gpu
            self._bus_uuid[signal.gpu] = signal.gpu_uuid
        if signal.gpu is not None and signal.gpu_index is not None and "gpu_index" in groups:
            self._pair(signal.gpu_index, signal.gpu)

    def _from_gpu(self, fields: dict[str, Any]) -> None:
        index, bus, uuid = fields.get("index"), fields.get("bus_id"), fields.get("uuid")
        if isinstance(index, int) and isinstance(bus, str):
            self._pair(index, bus)
        if isinstance(uuid, str) and isinstance(bus, str):
            self._uuid_bus[uuid] = bus
            self._bus_uuid[bus] = uuid

    def _from_process(self, fields: dict[str, Any]) -> None:
        pid, index, bus = fields.get("pid"), fields.get("gpu_index"), fields.get("bus_id")
        if isinstance(pid, int):
            if isinstance(bus, str):
                self._pid_bus.setdefault(pid, set()).add(bus)
            if isinstance(index, int):
                self._pid_index.setdefault(pid, set()).add(index)

    def _pair(self, index: int, bus: str) -> None:
        self._index_bus.setdefault(index, set()).add(bus)
        self._bus_index.setdefault(bus, set()).add(index)

    def rank_of(self, pid: int, host: str | None = None) -> int | None:
        """The rank of a process."""
        known = self._pid_rank.get((host, pid), self._pid_rank.get((None, pid)))
        if known is None and not self._pid_rank.keys() - {(None, pid)}:  # one node, as far as told: local rank is rank
            return self._pid_local.get(pid)
        return known

    def pid_of(self, rank: int) -> int | None:
        """The process of a rank, where only one is named."""
        if not self._pid_rank:  # one node, as far as told: local rank is rank
            return _only({pid for pid, local in self._pid_local.items() if local == rank})
        return _only(self._rank_pid.get(rank))

    def bus_of(self, index: int) -> str | None:
        """The PCI address of a GPU index, where only one is named."""
        return _only(self._index_bus.get(index))

    def index_of(self, bus: str) -> int | None:
        """The index of a PCI address, where only one is named."""
        return _only(self._bus_index.get(bus))

    def rank_on(self, bus: str, host: str | None) -> tuple[int, int | None] | None:
        """(rank, pid) of the process that NCCL saw on a card; with several nodes only where the host is told."""
        found = self._ranks_on.get(bus, {})
        mine = {who for name, who in found.items() if host is None or name is None or same_host(name, host)}
        return _only(mine or (set(found.values()) if len(found) == 1 else set()))

    def complete(self, candidate: Candidate, *, device_level: bool) -> None:
        """Fills the identities of a candidate that follow from those it has."""
        if candidate.rank is None and candidate.pid is None:
            candidate.rank = _only(self._rank_of_source.get(candidate.source))
        if candidate.pid is not None and candidate.rank is None:
            candidate.rank = self.rank_of(candidate.pid, candidate.host)
        if candidate.rank is not None and candidate.pid is None:
            candidate.pid = self.pid_of(candidate.rank)
        if candidate.gpu is None and candidate.gpu_uuid is not None:
            candidate.gpu = self._uuid_bus.get(candidate.gpu_uuid)
        if candidate.gpu is None and candidate.gpu_index is None and candidate.pid is not None and device_level:
            candidate.gpu = _only(self._pid_bus.get(candidate.pid))
            candidate.gpu_index = _only(self._pid_index.get(candidate.pid))
        if candidate.gpu is None and candidate.gpu_index is not None and candidate.cause.startswith(_BY_ADDRESS):
            candidate.gpu = self.bus_of(
                candidate.gpu_index
            )  # elsewhere the index may be CUDA's own, which need not be nvidia-smi's
        if (
            candidate.gpu is not None
            and candidate.rank is None
            and candidate.pid is None
            and candidate.cause.startswith("hw.")
        ):
            candidate.rank, candidate.pid = self.rank_on(candidate.gpu, candidate.host) or (None, None)
        if candidate.gpu is not None:
            candidate.gpu_index = (
                candidate.gpu_index if candidate.gpu_index is not None else self.index_of(candidate.gpu)
            )
            candidate.gpu_uuid = candidate.gpu_uuid or self._bus_uuid.get(candidate.gpu)
            if candidate.gpu not in candidate.gpus:
                candidate.gpus.insert(0, candidate.gpu)


T = TypeVar("T")


def nccl_bus_address(text: str) -> str:
    """NCCL's busId, which packs domain, bus, device and function into one hexadecimal number, as an address.

    >>> nccl_bus_address("9b000"), nccl_bus_address("100043000")
    ('0000:9b:00.0', '1000:43:00.0')
    """
    value = int(text, 16)
    return f"{value >> 20:04x}:{value >> 12 & 0xFF:02x}:{value >> 4 & 0x1F:02x}.{value & 7}"


def _only(values: set[T] | None) -> T | None:
    return next(iter(values)) if values is not None and len(values) == 1 else None


def _integer(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() and len(text) < 10 else None
