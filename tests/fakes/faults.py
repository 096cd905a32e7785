"""Faults by name: each breaks a fake server as a real one shows it, in NVML, on the bus, in files, commands and the log.

A fault is written "name:argument:..."; arguments that are left out have defaults. `FAULTS` lists them all.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .machine import Process
from .smi import Card

if TYPE_CHECKING:
    from .server import Server
    from .skus import Sku

Breaker = Callable[..., None]


@dataclass(frozen=True)
class Fault:
    """One fault: its name, what it does, and on which SKUs it can happen."""

    name: str
    apply: Breaker
    needs: str  # "", ecc, remap, retire, nvlink, fabric, fabric_manager, mig, fans, nic, gsp, memory_temp

    @property
    def what(self) -> str:
        """One line on what is broken."""
        return inspect.getdoc(self.apply) or ""


FAULTS: dict[str, Fault] = {}
CONVERT: dict[str, Callable[[str], Any]] = {"int": int, "float": float, "str": str}  # by annotation


def fault(needs: str = "") -> Callable[[Breaker], Breaker]:
    """Registers a function as the fault of its name."""

    def register(function: Breaker) -> Breaker:
        name = function.__name__.rstrip("_")
        FAULTS[name] = Fault(name, function, needs)
        return function

    return register


def inject(server: Server, text: str) -> None:
    """Applies "name:argument:..." or sets a scenario key ("3.temp=91"). Raises KeyError for an unknown name."""
    name, _, rest = text.partition(":")
    if name not in FAULTS and "=" in text:
        key, _, value = text.partition("=")
        server.scenario[key] = value
        return
    function = FAULTS[name].apply
    parameters = list(inspect.signature(function).parameters.values())[1:]
    words = rest.split(":", maxsplit=max(len(parameters) - 1, 0)) if rest else []  # the last one takes what is left
    values: list[Any] = [
        CONVERT[parameter.annotation](word) for parameter, word in zip(parameters, words, strict=False)
    ]
    function(server, *values)


def can_happen(sku: Sku, name: str) -> bool:
    """Whether a SKU has what this fault breaks."""
    there: dict[str, bool] = {
        "": True, "ecc": sku.ecc["kind"] in ("page_retirement", "row_remapping"), "remap": sku.ecc["kind"] == "row_remapping",
        "sram": sku.ecc["kind"] == "row_remapping", "retire": sku.ecc["kind"] == "page_retirement", "nvlink": bool(sku.nvlink and sku.nvlink["active"]),
        "nvlink5": bool(sku.nvlink and sku.architecture >= 10), "fabric": sku.fabric, "fabric_health": sku.fabric and sku.architecture >= 10,
        "fabric_manager": sku.fabric_manager, "mig": bool(sku.mig_max), "fans": bool(sku.fans), "nic": sku.form in ("sxm", "nvl"),
        "gsp": sku.gsp, "memory_temp": "memory_max" in sku.temperature, "repair": sku.architecture >= 9 and sku.ecc["kind"] == "row_remapping",
        "open": sku.open_module,
    }  # fmt: skip
    return there[FAULTS[name].needs]


# ---- what several faults do ------------------------------------------------------------------------------------------


def xid_line(
    server: Server,
    gpu: int,
    code: int,
    text: str,
    *,
    pid: str = "'<unknown>'",
    name: str = "<unknown>",
    ago: float = 600.0,
) -> None:
    """An Xid in the kernel log and as an NVML event."""
    address = server.address(gpu).rsplit(".", 1)[0]
    server.machine.say(f"NVRM: Xid (PCI:{address}): {code}, pid={pid}, name={name}, {text}", ago=ago, level=3)
    events = server.scenario.get("xid", "")
    server.scenario["xid"] = f"{events},{gpu}:{code}" if events else f"{gpu}:{code}"


def work(server: Server, gpu: int, pid: int = 0, utilization: int = 98, mib: int = 40_000) -> Process:
    """A training process that keeps the GPU busy: clocks and power up, the link at full speed."""
    sku = server.sku
    pid = pid or 41_000 + gpu
    process = Process(
        pid,
        "/usr/bin/python3 train.py",
        state="R",
        environment={"CUDA_VISIBLE_DEVICES": str(gpu)},
        rss_mib=5000,
        cpu_s=7000.0,
    )
    server.add_process(process, {gpu: min(mib, sku.memory["total"] // 2)})
    function = server.function(gpu)
    function.gen = function.gen_max
    if sku.fans:
        server.gpu(gpu, {"fan.speed": 72, "fan.target": 72, "fan.rpm": 2300})
    server.gpu(gpu, {
        "util.gpu": utilization, "util.memory": utilization // 2, "pstate": 0, "throttle": 0, "clock.graphics": sku.clocks["graphics_max"] - 60,
        "clock.sm": sku.clocks["graphics_max"] - 60, "clock.mem": sku.clocks["memory_max"], "power": int(sku.power["default"] * 900),
        "power.average": int(sku.power["default"] * 890), "pcie.gen": sku.pcie["gen"], "proc.util": f"{pid}:{utilization}:{utilization // 2}:0:0",
    })  # fmt: skip
    return process


def set_temperature(server: Server, gpu: int, degrees: int) -> None:
    """The GPU's temperature and, where the card has one, its margin (T.Limit counts from 87 degrees here)."""
    server.gpu(gpu, {"temp": degrees})
    if server.sku.temperature["kind"] == "margin":
        server.gpu(gpu, {"temp.margin": 87 - degrees})


def limit_temperature(server: Server, which: str) -> int:
    """max_operating, slowdown or shutdown in degrees, for both kinds of thresholds."""
    heat = server.sku.temperature
    return int(heat[which]) if heat["kind"] == "absolute" else 87 - int(heat[which])


def add_to(server: Server, gpu: int, key: str, amount: int) -> None:
    """Raises a counter."""
    server.gpu(gpu, {key: int(Card(server.scenario, gpu).number(key)) + amount})


from . import faults_driver, faults_gpu, faults_host, faults_links, faults_reboots  # noqa: E402,F401 - they register themselves
