"""Faults of a simulated machine: what each changes in what is read, which finding must come of it, and after how long."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from gpuclinic.knowledge import load_checks, watched_rows
from gpuclinic.model import Event
from simulated_machine import WALL

if TYPE_CHECKING:
    from collections.abc import Callable

    from simulated_machine import Simulated

FAST, MIDDLE, SLOW = 1.0, 10.0, 60.0
"""How often what a fault changes is read, in seconds."""
KEPT = ("index", "bus_id", "uuid", "name", "serial", "tool")


class Fault(NamedTuple):
    """begin(machine, gpu): puts it there. rule: the finding. tier: how often its values are read. more: seconds a rate needs to show."""

    name: str
    rule: str
    begin: Callable[[Simulated, int], None]
    tier: float = FAST
    more: float = 0.0


def _gpu(**fields: Any) -> Callable[[Simulated, int], None]:
    return lambda machine, gpu: machine.patches.update({("gpu", machine.addresses[gpu]): fields})


def _fact(kind: str, key: str, **fields: Any) -> Callable[[Simulated, int], None]:
    return lambda machine, gpu: machine.patches.update(
        {(kind, key.format(gpu=gpu, address=machine.addresses[gpu])): fields}
    )


def _mute(**left: Any) -> Callable[[Simulated, int], None]:
    def begin(machine: Simulated, gpu: int) -> None:
        every = machine.tick_gpu_fields()
        machine.patches["gpu", machine.addresses[gpu]] = {**dict.fromkeys(f for f in every if f not in KEPT), **left}

    return begin


def _missing(machine: Simulated, gpu: int) -> None:
    machine.patches["gpu", machine.addresses[gpu]] = None
    machine.patches["gpu_use", machine.addresses[gpu]] = None
    machine.patches["nvml", "nvml"] = {"devices": machine.gpus - 1}


def _growing(kind: str, key: str, field: str, per_s: float) -> Callable[[Simulated, int], None]:
    def begin(machine: Simulated, gpu: int) -> None:
        place = (kind, key.format(gpu=gpu, address=machine.addresses[gpu]))
        first: list[float] = []

        def wave(now: float) -> None:
            first.append(now)
            machine.patches[place] = {field: 7 + int((now - first[0]) * per_s)}

        machine.waves.append(wave)

    return begin


def _once(kind: str, key: str, field: str, value: int) -> Callable[[Simulated, int], None]:
    return lambda machine, gpu: machine.patches.update(
        {(kind, key.format(gpu=gpu, address=machine.addresses[gpu])): {field: value}}
    )


def _xid(code: int, text: str) -> Callable[[Simulated, int], None]:
    def begin(machine: Simulated, gpu: int) -> None:
        address = machine.addresses[gpu]
        machine.needs_reboot = True
        line = f"NVRM: Xid (PCI:{address[:-2]}): {code}, {text}"
        machine.events.append(
            Event(WALL + machine.now, "xid", address, line, {"code": code, "gpu_index": gpu}, f"16540{gpu}", address)
        )

    return begin


def _held_by_nobody(machine: Simulated, gpu: int) -> None:
    machine.patches["gpu_use", machine.addresses[gpu]] = {
        "utilization_pct": 0,
        "process_mib": 0,
        "memory_used_mib": 40620,
        "unaccounted_mib": 40000,
        "workers": 0,
        "holders": 0,
        "job_count": 0,
        "ranks_here": 0,
        "servers_only": False,
    }
    machine.patches["gpu", machine.addresses[gpu]] = {"utilization_pct": 0, "memory_used_mib": 40620}


def _narrow(machine: Simulated, gpu: int) -> None:
    machine.patches["pci_device", machine.addresses[gpu]] = {"width": 4}
    machine.patches["gpu", machine.addresses[gpu]] = {"pcie_width": 4}


FAULTS = [
    Fault("lost", "gpu.lost", _mute(error="GPU is lost")),
    Fault("hung", "gpu.hung", _mute(hung=True, hung_call="nvmlDeviceGetTemperature")),
    Fault("missing", "gpu.missing_in_driver", _missing, MIDDLE),
    Fault("remap pending", "gpu.remap.pending", _gpu(remap_pending=True)),
    Fault("remap failed", "gpu.remap.failed", _gpu(remap_failed=True)),
    Fault("double bit", "gpu.ecc.uncorrectable", _gpu(ecc_uncorrected_volatile=1)),
    Fault("single bit storm", "gpu.ecc.corrected_storm", _growing("gpu", "{address}", "ecc_corrected_volatile", 7), FAST, 30),
    Fault("ecc off", "gpu.ecc.off", _gpu(ecc_mode="Disabled")),
    Fault("recovery", "gpu.recovery_action", _gpu(recovery_action="Reset")),
    Fault("inforom", "gpu.inforom_corrupt", _gpu(inforom_valid=False)),
    Fault("sram", "gpu.ecc.sram_threshold", _gpu(sram_threshold_exceeded=True)),
    Fault("brake", "power.gpu.brake", _gpu(throttle_active="HW Slowdown, HW Power Brake Slowdown")),
    Fault("limit lowered", "power.gpu.limit_lowered", _gpu(power_limit_w=400.0, power_w=390.0, throttle_active="SW Power Cap", utilization_pct=97)),
    Fault("over its limit", "thermal.gpu.over_limit", _gpu(temperature_c=91, t_limit_c=-4, throttle_active="HW Slowdown, HW Thermal Slowdown", memory_temperature_c=93)),
    Fault("near its limit", "thermal.gpu.near_limit", _gpu(temperature_c=83, t_limit_c=4)),
    Fault("hot memory", "thermal.gpu.memory", _gpu(memory_temperature_c=98)),
    Fault("slow clocks", "gpu.clocks.low_under_load", _gpu(utilization_pct=99, sm_clock_mhz=345, throttle_active="None", power_w=210.0)),
    Fault("spins", "gpu.busy_without_work", _gpu(utilization_pct=100, memory_utilization_pct=0, power_w=121.0, sm_clock_mhz=1980, throttle_active="None")),
    Fault("prohibited", "gpu.compute_mode", _gpu(compute_mode="Prohibited")),
    Fault("mig pending", "gpu.mig.pending_change", _gpu(mig_mode="Disabled", mig_pending="Enabled")),
    Fault("narrow link", "pcie.link.width", _narrow, SLOW),
    Fault("fatal aer", "pcie.aer.fatal", _fact("pci_device", "{address}", aer_fatal_total=1), SLOW),
    Fault("bus silent", "gpu.bus.no_answer", _fact("pci_device", "{address}", rev_ff=True), SLOW),
    Fault("nvlink down", "nvlink.links.inactive", _fact("nvlink_gpu", "{gpu}", active=17, inactive=1, state="partial"), MIDDLE),
    Fault("nvlink replays", "nvlink.errors.growing", _growing("nvlink", "{gpu}/3", "replay_errors", 3), MIDDLE, 20),
    Fault("port down", "network.rdma.port_down", _fact("ib_port", "mlx5_{gpu}/1", state="DOWN", up=False, physical_state="Polling", peers_up=7), SLOW),
    Fault("port errors", "network.rdma.errors", _growing("ib_counters", "mlx5_{gpu}/1", "symbol_error", 40), MIDDLE, 20),
    Fault("nvme dead", "storage.nvme.state", _fact("nvme", "nvme{gpu}", state="dead"), SLOW),
    Fault("disk full", "storage.space.data", _fact("fs", "/data", use_pct=100, available_mib=12, available_gib=0), SLOW),
    Fault("shm full", "host.shm.full", _fact("fs", "/dev/shm", use_pct=100, available_mib=4, available_gib=0), SLOW),
    Fault("memory low", "host.memory.low", _fact("memory", "host", usable_pct=0.6, usable_mib=3100, usable_gib=3), MIDDLE),
    Fault("memory pressure", "host.memory.pressure", _fact("pressure", "memory", full_avg60=61.0, full_avg10=60.0), MIDDLE),
    Fault("clock off", "host.time.offset", _fact("time_sync", "chronyc", offset_s=-37.0), SLOW),
    Fault("held by nobody", "process.gpu.unaccounted_memory", _held_by_nobody, MIDDLE),
    Fault("zombies", "process.zombies", _fact("process_count", "host", zombies=5200, zombie_parent_count=5190), MIDDLE),
    Fault("oom", "host.oom.now", _once("vm_counters", "host", "oom_kills", 2), MIDDLE, 10),
    Fault("xid 79", "log.gpu.fallen_off_bus", _xid(79, "pid='<unknown>', name=<unknown>, GPU has fallen off the bus.")),
    Fault("xid 119", "log.gpu.gsp", _xid(119, "pid=4711, name=python, Timeout after 6s of waiting for RPC response from GPU2 GSP! Expected function 76 (GSP_RM_CONTROL).")),
    Fault("xid 48", "log.gpu.ecc_uncorrectable", _xid(48, "pid=4711, name=python, An uncorrectable double bit error (DBE) has been detected on GPU")),
    Fault("xid 64", "log.gpu.row_remap_failed", _xid(64, "Row Remapper: Error writing to the InfoROM")),
    Fault("slow sampling", "driver.sampling_slow", lambda machine, gpu: setattr(machine, "took_s", 6.0)),
]  # fmt: skip
DURATIONS = {row.id: row.for_s for row in watched_rows(load_checks().checks)}


def heal(machine: Simulated) -> None:
    machine.patches.clear()
    machine.waves.clear()
    machine.took_s = 0.05
    if (
        machine.needs_reboot
    ):  # what an Xid tells of is over when somebody has reset the GPU; until then it stays one alert
        machine.needs_reboot = False
        machine.events.append(Event(WALL + machine.now, "boot", "", "the machine was started"))
