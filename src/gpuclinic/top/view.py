"""What the screen shows, made of a tick: GPUs, processes, the host, findings."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from gpuclinic.diagnose.expression import compiled
from gpuclinic.knowledge.gpu_limits import PCIE_LANE_KBS, GpuLimit, gpu_limits
from gpuclinic.model import Gap
from gpuclinic.watch.alerts import Alert
from gpuclinic.watch.state import trouble_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpuclinic.diagnose.expression import Compiled
    from gpuclinic.model import Fact, Tick
    from gpuclinic.top.processes import ProcessNow

_MOST_TEXT = 4000
_UNSEEN_MIB = 256.0
"""Memory that no process accounts for is shown from here on: a driver's own needs stay below."""


class Gpu(msgspec.Struct):
    """One GPU. Values in the units of docs/facts.md; None: the card does not tell it.

    heat_limit_c: the temperature at which it slows down. limit: the row of gpu_limits.tsv that holds. trouble: why nothing can be read.
    """

    index: int
    key: str
    name: str
    fields: Mapping[str, Any]
    trouble: str | None = None
    lost: bool = False
    heat_limit_c: float | None = None
    limit: GpuLimit | None = None
    mig: list[Mapping[str, Any]] = []

    def number(self, field: str) -> float | None:
        """A number of it."""
        value = self.fields.get(field)
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None

    @property
    def memory_pct(self) -> float | None:
        """Share of its memory that is in use."""
        used, total = self.number("memory_used_mib"), self.number("memory_total_mib")
        return 100 * used / total if used is not None and total else None

    @property
    def slowed(self) -> list[str]:
        """Reasons for which its clocks are held down, in NVML's words, idleness left out."""
        told = str(self.fields.get("throttle_active") or "")
        return [reason for reason in told.split(", ") if reason and reason != "Idle"]


class Holder(msgspec.Struct):
    """A process on GPUs. mib: by GPU's key. gpu_pct: None where the driver tells only of all processes of a GPU together.

    where: container, Slurm job, unit. marks: zombie, hidden, stopped, orphan. start: its start in clock ticks since boot.
    """

    pid: int
    user: str
    where: str
    gpus: list[int]
    mib: float | None
    gpu_pct: float | None
    cpu_pct: float | None
    rss_mib: float | None
    age_s: float | None
    command: str
    marks: list[str]
    ppid: int = 0
    start: int | None = None
    visible: str | None = None
    nice: int | None = None
    mig: str = ""


class Host(msgspec.Struct):
    """The machine."""

    name: str
    driver: str = ""
    cuda: str = ""
    cpu_pct: float | None = None
    load1: float | None = None
    cpus: int | None = None
    memory_used_mib: float | None = None
    memory_total_mib: float | None = None
    swap_used_mib: float | None = None
    pressure: dict[str, float] = {}


class View(msgspec.Struct):
    """One moment. agent: one runs here. events: the newest last, a line each. took_s: of the sample."""

    at: float
    host: Host
    gpus: list[Gpu]
    holders: list[Holder]
    alerts: list[Alert]
    gaps: list[Gap]
    events: list[str] = []
    agent: bool = False
    took_s: float = 0.0


class _NoView:
    """Conditions of gpu_limits.tsv look at the fields of their GPU only."""

    def facts(self, kind: str) -> Iterable[Mapping[str, Any]]:  # noqa: ARG002 - a View's method
        """No facts but the one at hand."""
        return ()

    def signal_count(self, pattern: str, wanted: dict[str, Any]) -> int:  # noqa: ARG002 - as above
        """No signals."""
        return 0

    def over_window(self, function: str, names: Mapping[str, Any], field: str) -> Any:  # noqa: ARG002 - as above
        """No window."""
        return None


_NOTHING = _NoView()


@functools.cache
def _limits() -> tuple[tuple[GpuLimit, Compiled], ...]:
    return tuple((row, compiled(row.when)) for row in gpu_limits())


def text_of(value: object) -> str:
    """A text that processes, containers or the driver gave: one line; nothing in it moves the cursor or turns text round."""
    if value is None:
        return ""
    text = str(value)[:_MOST_TEXT]
    return text if text.isprintable() else "".join(c if c.isprintable() else "\ufffd" for c in text)


def gpus_of(tick: Tick) -> list[Gpu]:
    """The GPUs by index, lost ones in their place."""
    mig: dict[int, list[Mapping[str, Any]]] = {}
    found = []
    for fact in tick.facts:
        if fact.kind == "mig_device" and isinstance(number := fact.fields.get("gpu_index"), int):
            mig.setdefault(number, []).append(fact.fields)
    for fact in tick.facts:
        if fact.kind == "gpu":
            found.append(_gpu(fact))
    for gpu in found:
        gpu.mig = sorted(mig.get(gpu.index, []), key=lambda fields: str(fields.get("device")))
    return sorted(found, key=lambda gpu: (gpu.index, gpu.key))


def _gpu(fact: Fact) -> Gpu:
    fields = fact.fields
    number = fields.get("index")
    index = (
        number if isinstance(number, int) else int(number) if isinstance(number, str) and number.isdecimal() else 999
    )
    trouble = trouble_of(fact)
    gpu = Gpu(index, fact.key, _short_name(fields.get("name")), fields, text_of(trouble) if trouble else None)
    if trouble is not None:
        gpu.lost = bool(fields.get("error"))
        return gpu
    gpu.heat_limit_c = _heat_limit(gpu)
    gpu.limit = _limit(gpu)
    return gpu


def _short_name(name: object) -> str:
    """ "NVIDIA H100 80GB HBM3" is "H100 80GB HBM3"."""
    text = text_of(name)
    for maker in ("NVIDIA GeForce ", "NVIDIA "):
        text = text.removeprefix(maker)
    return text


def _heat_limit(gpu: Gpu) -> float | None:
    """Where the card slows itself down: by the degrees it says are left, else by its threshold."""
    temperature, left = gpu.number("temperature_c"), gpu.number("t_limit_c")
    if temperature is not None and left is not None:
        return temperature + left - (gpu.number("slowdown_t_limit_c") or 0.0)
    return gpu.number("slowdown_temp_c") or gpu.number("max_operating_temp_c")


def _limit(gpu: Gpu) -> GpuLimit | None:
    temperature = gpu.number("temperature_c")
    near = gpu.heat_limit_c - temperature if gpu.heat_limit_c is not None and temperature is not None else None
    lane = PCIE_LANE_KBS.get(int(gpu.number("pcie_gen") or 0))
    width = gpu.number("pcie_width")
    names = {
        **gpu.fields,
        "memory_reserved_mib": gpu.number("memory_reserved_mib") or 0.0,
        "near_heat_c": near,
        "pcie_most_kbs": lane * width if lane and width else None,
    }
    return next((row for row, condition in _limits() if condition(names, None, _NOTHING)), None)


def holders_of(tick: Tick, gpus: list[Gpu], now: Mapping[int, ProcessNow]) -> list[Holder]:
    """The processes on GPUs, each once, and memory that belongs to nobody who can be seen. now: what /proc says at this moment."""
    told: dict[int, list[Fact]] = {}
    looked = {fact.key: fact.fields for fact in tick.facts if fact.kind == "gpu_holder"}
    for fact in tick.facts:
        if fact.kind == "gpu_process" and isinstance(pid := fact.fields.get("pid"), int):
            told.setdefault(pid, []).append(fact)
    for key, fields in looked.items():
        if (
            key.isdecimal()
            and int(key) not in told
            and fields.get("named_by_nvml") is not True
            and fields.get("listed")
        ):
            told[int(key)] = []
    alone = _alone(told)
    by_index = {gpu.index: gpu for gpu in gpus}
    out = [_holder(pid, facts, looked.get(str(pid), {}), now.get(pid), by_index, alone) for pid, facts in told.items()]
    return [*out, *_unseen(tick)]


def _alone(told: Mapping[int, list[Fact]]) -> set[str]:
    """GPUs with one process: what the GPU does is that process's doing."""
    counts: dict[str, set[int]] = {}
    for pid, facts in told.items():
        for fact in facts:
            counts.setdefault(str(fact.fields.get("bus_id")), set()).add(pid)
    return {key for key, pids in counts.items() if len(pids) == 1}


def _holder(
    pid: int, facts: list[Fact], looked: Mapping[str, Any], now: ProcessNow | None, gpus: Mapping[int, Gpu], alone: set[str]
) -> Holder:  # fmt: skip
    indices = sorted(
        {i for fact in facts if isinstance(i := fact.fields.get("gpu_index"), int)} or set(_numbers(looked.get("gpus")))
    )
    sizes = [float(size) for fact in facts if isinstance(size := fact.fields.get("memory_mib"), int | float)]
    shares = [float(share) for fact in facts if isinstance(share := fact.fields.get("sm_pct"), int | float)]
    if not shares and facts and all(str(fact.fields.get("bus_id")) in alone for fact in facts):
        shares = [
            s for i in indices if i in gpus and not gpus[i].mig and (s := gpus[i].number("utilization_pct")) is not None
        ]
    command = text_of(
        (now.command if now is not None else "")
        or looked.get("command")
        or next((f.fields["name"] for f in facts if f.fields.get("name")), "")
    )
    age = looked.get("age_s")
    instances = sorted({f"{fact.fields['gi']}" for fact in facts if fact.fields.get("gi") is not None})
    return Holder(
        pid, text_of((now.user if now is not None else "") or looked.get("user") or ""), _where(looked), indices,
        sum(sizes) if sizes else None, sum(shares) / len(shares) if shares else None,
        now.cpu_pct if now is not None else None, now.rss_mib if now is not None else None,
        now.age_s if now is not None else float(age) if isinstance(age, int | float) else None,
        command, _marks(looked, now), now.ppid if now is not None else int(looked.get("ppid") or 0),
        now.start if now is not None else None, text_of(v) if (v := looked.get("visible_devices")) is not None else None,
        now.nice if now is not None else None, ",".join(instances),
    )  # fmt: skip


def _numbers(text: object) -> Iterator[int]:
    for part in str(text or "").split(","):
        if part.isdecimal():
            yield int(part)


def _where(looked: Mapping[str, Any]) -> str:
    """Container, job or unit, whichever says most."""
    if looked.get("slurm_job"):
        return text_of(f"slurm {looked['slurm_job']}")
    if looked.get("pod_uid"):
        return text_of(f"pod {str(looked['pod_uid'])[:8]}")
    if looked.get("container"):
        return text_of(f"{looked.get('runtime') or 'container'} {looked['container']}")
    return text_of(looked.get("unit") or "")


def _marks(looked: Mapping[str, Any], now: ProcessNow | None) -> list[str]:
    state = now.state if now is not None else str(looked.get("state") or "")
    marks = []
    if state == "Z" or (now is None and looked.get("zombie")):
        marks.append("zombie")
    if state in ("T", "t"):
        marks.append("stopped")
    if state == "D":
        marks.append("waiting")
    if now is None and looked.get("listed") is False:
        marks.append("hidden")
    if looked and looked.get("named_by_nvml") is not True:
        marks.append("opens")
    if looked.get("leftover_worker"):
        marks.append("leftover")
    return marks


def _unseen(tick: Tick) -> Iterator[Holder]:
    """Memory in use that no process accounts for."""
    for fact in tick.facts:
        size, index = fact.fields.get("unaccounted_mib"), fact.fields.get("gpu_index")
        if fact.kind == "gpu_use" and isinstance(size, int | float) and size > _UNSEEN_MIB and isinstance(index, int):
            yield Holder(0, "", "", [index], float(size), None, None, None, None, "", ["nobody"])


class CpuShare:
    """The processors' load between two readings of their times."""

    def __init__(self) -> None:
        self._before: tuple[float, float] | None = None
        self._share: float | None = None

    def take(self, fields: Mapping[str, Any]) -> float | None:
        """Per cent of all processors that were busy."""
        total, idle = fields.get("total_s"), fields.get("idle_s")
        if not isinstance(total, int | float) or not isinstance(idle, int | float):
            return None
        wait = fields.get("iowait_s")
        now = (float(total), float(idle) + (float(wait) if isinstance(wait, int | float) else 0.0))
        if self._before is not None and now[0] > self._before[0]:
            self._share = max(0.0, min(100.0, 100 - 100 * (now[1] - self._before[1]) / (now[0] - self._before[0])))
        self._before = now
        return self._share


def host_of(tick: Tick, name: str, share: CpuShare) -> Host:
    """The machine's own numbers."""
    host = Host(name)
    for fact in tick.facts:
        fields: Mapping[str, Any] = fact.fields
        if fact.kind == "driver" and fields.get("version"):
            host.driver = host.driver or text_of(fields["version"])
            host.cuda = host.cuda or text_of(fields.get("cuda_version"))
        elif fact.kind == "memory":
            host.memory_total_mib = _of(fields, "total_mib")
            usable = _of(fields, "usable_mib")
            if host.memory_total_mib is not None and usable is not None:
                host.memory_used_mib = host.memory_total_mib - usable
            host.swap_used_mib = _of(fields, "swap_used_mib")
        elif fact.kind == "cpu_times":
            host.load1 = _of(fields, "load1")
            host.cpus = int(fields["cpus"]) if isinstance(fields.get("cpus"), int) else None
            host.cpu_pct = share.take(fields)
        elif fact.kind == "pressure" and (value := _of(fields, "some_avg10")) is not None:
            host.pressure[fact.key] = value
    return host


def _of(fields: Mapping[str, Any], name: str) -> float | None:
    value = fields.get(name)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
