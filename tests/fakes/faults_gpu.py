"""Faults of a GPU itself: lost, memory, heat, power, clocks, modes, processes on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .faults import add_to, fault, limit_temperature, set_temperature, work, xid_line
from .machine import Process
from .scenario import THROTTLE

if TYPE_CHECKING:
    from .server import Server


@fault()
def lost(server: Server, gpu: int = 3) -> None:
    """The GPU has fallen off the bus: NVML code 15, all ones on the bus, Xid 79."""
    function = server.function(gpu)
    function.gone = True
    server.gpu(gpu, {"lost": 1})
    xid_line(server, gpu, 79, "GPU has fallen off the bus.")
    server.machine.say(f"NVRM: GPU {server.address(gpu)}: GPU has fallen off the bus.", level=3)
    if server.sku.architecture >= 9:
        xid_line(server, gpu, 154, "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)", ago=599)


@fault()
def reset_required(server: Server, gpu: int = 2) -> None:
    """The GPU wants a reset: NVML code 16, recovery action 1, Xid 119 or 62 before it."""
    server.gpu(gpu, {"reset_required": 1, "recovery_action": 1, "reset_status": 1})
    xid_line(server, gpu, 62, "2bb4 0000 00000000 00000000 00000000")
    if server.sku.architecture >= 9:
        xid_line(server, gpu, 154, "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)", ago=599)


@fault()
def missing(server: Server, gpu: int = 7) -> None:
    """The driver did not take the GPU: on the bus and bound, but not in NVML."""
    server.gpu(gpu, {"hidden": 1})
    address = server.address(gpu)
    server.machine.say(
        f"NVRM: GPU {address}: RmInitAdapter failed! (0x62:0x0:2477)", ago=server.machine.uptime_s - 15, level=3
    )
    server.machine.say(
        f"NVRM: GPU {address}: rm_init_adapter failed, device minor number {gpu}",
        ago=server.machine.uptime_s - 15,
        level=3,
    )


@fault()
def off_bus(server: Server, gpu: int = 7) -> None:
    """The GPU is not on the bus at all since the boot: one fewer everywhere, the slot's port has no device below."""
    function = server.function(gpu)
    server.machine.bus.remove(function)
    server.machine.log = [line for line in server.machine.log if function.address not in line.text]
    server.gpu(gpu, {"hidden": 1})
    server.machine.devices.pop(f"nvidia{server.gpus - 1}", None)


@fault()
def recovery_action(server: Server, gpu: int = 1, action: int = 4) -> None:
    """The driver asks for an action: 1 reset, 2 reboot, 3 drain P2P, 4 drain and reset."""
    server.gpu(gpu, {"recovery_action": action, "drain_and_reset": int(action == 4), "reset_status": int(action == 1)})
    words = {1: "GPU Reset Required", 2: "Node Reboot Required", 3: "Drain P2P", 4: "Drain and Reset"}
    xid_line(
        server, gpu, 154, f"GPU recovery action changed from 0x0 (None) to 0x{action:x} ({words.get(action, '?')})"
    )


@fault()
def hang(server: Server, call: str = "temp", gpu: int = 3, seconds: float = 30.0) -> None:
    """One NVML call (short or full name, or any) on one GPU does not come back; nvidia-smi hangs as well."""
    server.gpu(gpu, {f"hang.{call}": seconds})
    server.machine.hangs["nvidia-smi"] = seconds


@fault()
def hang_init(server: Server, seconds: float = 30.0) -> None:
    """nvmlInit does not come back; nvidia-smi hangs as well."""
    server.scenario["hang.init"] = str(seconds)
    server.machine.hangs["nvidia-smi"] = seconds


@fault()
def unreadable(server: Server, gpu: int = 7, call: str = "temp", code: int = 999) -> None:
    """One sensor of one GPU gives an error: NVML code, ERR! or its words in nvidia-smi."""
    server.gpu(gpu, {f"err.{call}": code})


@fault("ecc")
def ecc_ue(server: Server, gpu: int = 2, count: int = 2, place: str = "dram") -> None:
    """Uncorrectable ECC errors since the last reset (and in all); Xid 48 and, where rows are remapped, 94."""
    add_to(server, gpu, f"ecc.ue.vol.{place}", count)
    add_to(server, gpu, f"ecc.ue.agg.{place}", count)
    xid_line(
        server,
        gpu,
        48,
        "An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer at partition 5, subpartition 1.",
    )


@fault("ecc")
def ecc_ue_aggregate(server: Server, gpu: int = 2, count: int = 1, place: str = "dram") -> None:
    """Uncorrectable errors of the past only: none since the last reset."""
    add_to(server, gpu, f"ecc.ue.agg.{place}", count)


@fault("sram")
def sram_threshold(server: Server, gpu: int = 4, count: int = 5) -> None:
    """Uncorrectable SRAM errors above the vendor's threshold: an RMA."""
    add_to(server, gpu, "ecc.ue.agg.sram", count)
    server.gpu(gpu, {"ecc.sram.threshold": 1})


@fault("ecc")
def ecc_ce(server: Server, gpu: int = 6, count: int = 9000, per_second: int = 20) -> None:
    """Corrected errors that grow fast; Xid 92."""
    server.gpu(gpu, {"ecc.ce.vol.dram": f"{count}+{per_second}/s", "ecc.ce.agg.dram": f"{count * 2}+{per_second}/s"})
    xid_line(server, gpu, 92, "High single-bit ECC error rate")


@fault("ecc")
def ecc_off(server: Server, gpu: int = 5) -> None:
    """ECC is switched off on one GPU of several."""
    server.gpu(gpu, {"ecc.mode": 0, "ecc.pending": 0})


@fault("ecc")
def ecc_pending(server: Server, gpu: int = 5) -> None:
    """An ECC change waits for a reset."""
    server.gpu(gpu, {"ecc.pending": 0})


@fault("retire")
def retired_pages(server: Server, gpu: int = 1, double_bit: int = 12, single_bit: int = 50) -> None:
    """Many retired pages (60 and more are an RMA)."""
    server.gpu(gpu, {"retired.dbe": double_bit, "retired.sbe": single_bit})


@fault("retire")
def retired_pending(server: Server, gpu: int = 1) -> None:
    """A page waits for a reset to be retired; Xid 63."""
    server.gpu(gpu, {"retired.dbe": 1, "retired.pending": 1, "ecc.ue.agg.dram": 1})
    xid_line(server, gpu, 63, "Dynamic Page Retirement: New page retired, reboot to activate (0x00000000001a2b00).")


@fault("remap")
def remap_pending(server: Server, gpu: int = 1) -> None:
    """A row waits for a reset to be remapped; Xid 63."""
    server.gpu(gpu, {"remap.unc": 1, "remap.pending": 1})
    xid_line(server, gpu, 63, "Row Remapper: New row marked for remapping, reset gpu to activate.")


@fault("remap")
def remap_failed(server: Server, gpu: int = 1) -> None:
    """Row remapping failed: an RMA; Xid 64."""
    server.gpu(gpu, {"remap.unc": 8, "remap.failed": 1})
    xid_line(server, gpu, 64, "Row Remapper: Failed to remap a row, no spare rows left in the bank.")


@fault("remap")
def remap_exhausted(server: Server, gpu: int = 1) -> None:
    """Some banks have no spare row left, none has failed yet."""
    most = int(server.sku.ecc["histogram_max"])
    server.gpu(gpu, {"remap.corr": 2, "remap.unc": 8, "remap.histogram": f"{most - 2},0,0,1,1"})


@fault("repair")
def unrepairable_memory(server: Server, gpu: int = 1) -> None:
    """The driver says that memory is beyond repair."""
    server.gpu(gpu, {"unrepairable_memory": 1, "remap.failed": 1, "remap.unc": 8})


@fault("repair")
def repair_pending(server: Server, gpu: int = 1) -> None:
    """A channel repair waits for a reset."""
    server.gpu(gpu, {"repair.channel": 1})
    xid_line(server, gpu, 160, "Channel repair pending")


@fault()
def inforom(server: Server, gpu: int = 6) -> None:
    """The InfoROM is corrupted."""
    server.gpu(gpu, {"inforom.corrupt": 1, "inforom.image": "!14"})
    server.machine.say(f"NVRM: GPU at {server.address(gpu)} has a corrupted infoROM", level=4)


@fault()
def hot(server: Server, gpu: int = 6, degrees: int = 0) -> None:
    """At the slowdown temperature, with thermal slowdown active and its counter growing."""
    work(server, gpu)
    set_temperature(server, gpu, degrees or limit_temperature(server, "slowdown") + 1)
    bits = THROTTLE["hw_slowdown"] | THROTTLE["hw_thermal"]
    server.gpu(gpu, {"throttle": bits, "violation.thermal": "9000000000+500000000/s", "violation.hw_thermal": "9000000000+500000000/s",
                     "clock.sm": server.sku.clocks["graphics_max"] // 2, "clock.graphics": server.sku.clocks["graphics_max"] // 2})  # fmt: skip


@fault("memory_temp")
def memory_hot(server: Server, gpu: int = 6) -> None:
    """The memory is above its own limit while the core is cool."""
    work(server, gpu)
    limit = server.sku.temperature["memory_max"]
    server.gpu(
        gpu,
        {
            "temp.memory": (limit if limit > 0 else 95) + 8,
            "throttle": THROTTLE["sw_thermal"],
            "violation.sw_thermal": "9000000000+300000000/s",
        },
    )


@fault()
def throttle(server: Server, gpu: int = 5, reason: str = "hw_thermal") -> None:
    """Slowed down under load for a reason of scenario.THROTTLE, with its counter growing."""
    work(server, gpu)
    bits = THROTTLE[reason] | (THROTTLE["hw_slowdown"] if reason in ("hw_thermal", "power_brake") else 0)
    counter = {
        "hw_thermal": "hw_thermal",
        "sw_thermal": "sw_thermal",
        "power_brake": "hw_power_brake",
        "sw_power_cap": "power",
        "hw_slowdown": "thermal",
    }
    server.gpu(
        gpu,
        {
            "throttle": bits,
            "clock.sm": server.sku.clocks["graphics_max"] // 3,
            "clock.graphics": server.sku.clocks["graphics_max"] // 3,
        },
    )
    if reason in counter:
        server.gpu(gpu, {f"violation.{counter[reason]}": "4000000000+700000000/s"})
    if "thermal" in reason:
        set_temperature(server, gpu, limit_temperature(server, "slowdown"))


@fault()
def power_capped(server: Server, gpu: int = 4, watts: int = 0) -> None:
    """The power limit was set far below the default and is reached."""
    work(server, gpu)
    value = (watts or int(server.sku.power["min"])) * 1000
    server.gpu(gpu, {"power.limit": value, "power.requested": value, "power": value, "power.average": value, "throttle": THROTTLE["sw_power_cap"],
                     "violation.power": "8000000000+900000000/s", "clock.sm": server.sku.clocks["graphics_max"] // 2})  # fmt: skip


@fault("fans")
def fan_failed(server: Server, gpu: int = 0) -> None:
    """The fan stands still while the card is hot."""
    work(server, gpu)
    set_temperature(server, gpu, limit_temperature(server, "slowdown") - 1)
    server.gpu(gpu, {"fan.speed": 0, "fan.target": 100, "fan.rpm": 0})


@fault()
def clocks_locked(server: Server, gpu: int = 3, mhz: int = 0) -> None:
    """Clocks locked low by somebody: busy, cool, no throttling but the applications setting."""
    work(server, gpu)
    low = mhz or server.sku.clocks["graphics_max"] // 3
    server.gpu(
        gpu, {"clock.sm": low, "clock.graphics": low, "clock.app.graphics": low, "throttle": THROTTLE["app_clocks"]}
    )


@fault()
def persistence_off(server: Server, gpu: str = "all") -> None:
    """Persistence mode off and the daemon stopped."""
    for index in range(server.gpus) if gpu == "all" else [int(gpu)]:
        server.gpu(index, {"persistence": 0})
    if gpu == "all":
        server.machine.units["nvidia-persistenced"] |= {
            "ActiveState": "inactive",
            "SubState": "dead",
            "UnitFileState": "disabled",
        }
        server.machine.processes.pop(1201, None)


@fault()
def compute_mode(server: Server, gpu: int = 2, mode: int = 2) -> None:
    """Compute mode 2 prohibited, 3 exclusive process."""
    server.gpu(gpu, {"compute_mode": mode})


@fault("gsp")
def gsp_timeout(server: Server, gpu: int = 4) -> None:
    """The GSP does not answer: Xid 119, a reset is wanted."""
    xid_line(
        server,
        gpu,
        119,
        f"Timeout after 6s of waiting for RPC response from GPU{gpu} GSP! Expected function 76 (GSP_RM_CONTROL) (0x20800a4c 0x4).",
        pid="41004",
        name="python3",
    )
    server.gpu(gpu, {"reset_required": 1, "recovery_action": 1})


@fault("gsp")
def gsp_off(server: Server, gpu: int = 4) -> None:
    """One GPU runs without its GSP firmware."""
    server.gpu(gpu, {"gsp.mode": 0, "gsp.version": "N/A"})


@fault("mig")
def mig_pending(server: Server, gpu: int = 0) -> None:
    """MIG was switched on but the GPU not reset yet."""
    server.gpu(gpu, {"mig.pending": 1})


@fault("mig")
def mig_empty(server: Server, gpu: int = 0) -> None:
    """MIG is on and nobody made an instance: CUDA finds no device."""
    server.gpu(gpu, {"mig.mode": 1, "mig.pending": 1, "util.gpu": "N/A", "util.memory": "N/A"})


@fault("mig")
def mig(server: Server, gpu: int = 0, instances: int = 2) -> None:
    """No fault: MIG with so many equal instances."""
    share = server.sku.memory["total"] // (server.sku.mig_max + 1)
    server.gpu(gpu, {"mig.mode": 1, "mig.pending": 1, "util.gpu": "N/A", "util.memory": "N/A", "memory.used": 20})
    for index in range(instances):
        base = f"{gpu}.mig.{index}."
        uuid = server.scenario.of(gpu, "uuid").removeprefix("GPU-")
        values = {"uuid": f"MIG-{uuid[:-1]}{index}", "name": f"1g.{share // 1024}gb", "gi": index + 7, "ci": 0, "memory.total": share, "memory.used": 12, "sm": 16,
                  "bar1.total": 65536}  # fmt: skip
        server.scenario.update({base + key: str(value) for key, value in values.items()})


@fault()
def vgpu_unlicensed(server: Server) -> None:
    """A vGPU guest without a licence."""
    for gpu in range(server.gpus):
        server.gpu(
            gpu,
            {
                "virtualization": 2,
                "vgpu.licensed": 0,
                "vgpu.product": "NVIDIA Virtual Compute Server",
                "vgpu.licence_info": "Unlicensed",
            },
        )
    server.machine.units["nvidia-gridd"] = {
        "LoadState": "loaded",
        "ActiveState": "failed",
        "SubState": "failed",
        "UnitFileState": "enabled",
    }


@fault()
def xid(
    server: Server, gpu: int = 3, code: int = 13, text: str = "Graphics Exception: ESR 0x504730=0x20000000"
) -> None:
    """Any Xid, in the log and as an event."""
    xid_line(server, gpu, code, text, pid="41003", name="python3")


@fault()
def busy(server: Server, gpu: int = 0) -> None:
    """No fault: a GPU at work."""
    work(server, gpu)


@fault()
def process_gone(server: Server, gpu: int = 4, pid: int = 43_210) -> None:
    """NVML holds memory for a pid that /proc has not."""
    server.add_process(Process(pid, ""), {gpu: 30_000 if server.sku.memory["total"] > 40_000 else 4_000}, in_proc=False)


@fault()
def zombie(server: Server, gpu: int = 4, pid: int = 43_211) -> None:
    """A zombie still holds memory."""
    server.add_process(Process(pid, "python3", state="Z"), {gpu: 4_000})


@fault()
def hidden_holder(server: Server, gpu: int = 4, pid: int = 43_212) -> None:
    """A process has the device open and memory is used, but NVML lists no process."""
    server.add_process(Process(pid, "/usr/bin/python3 notebook.py", devices=(gpu,)))
    server.gpu(gpu, {"memory.used": 4_000})


@fault()
def memory_unexplained(server: Server, gpu: int = 4) -> None:
    """Memory is used and nobody holds it."""
    server.gpu(gpu, {"memory.used": server.sku.memory["total"] // 2})


@fault()
def idle_holder(server: Server, gpu: int = 2, pid: int = 43_213) -> None:
    """A process of days ago holds half the memory and does nothing."""
    server.add_process(
        Process(pid, "/usr/bin/python3 -m ipykernel_launcher", age_s=400_000, cpu_s=5.0),
        {gpu: server.sku.memory["total"] // 2},
    )


@fault()
def stuck_process(server: Server, gpu: int = 2, pid: int = 43_214) -> None:
    """A process on the GPU in state D inside the driver."""
    server.add_process(
        Process(pid, "/usr/bin/python3 train.py", state="D", wchan="uvm_va_space_destroy", age_s=9000), {gpu: 4_000}
    )
    server.machine.say(f"INFO: task python3:{pid} blocked for more than 122 seconds.", level=3)


@fault()
def two_jobs(server: Server, gpu: int = 1) -> None:
    """Two users' jobs on one GPU."""
    work(server, gpu, 43_220, mib=10_000)
    second = Process(
        43_221,
        "/usr/bin/python3 other.py",
        user=1002,
        state="R",
        environment={"CUDA_VISIBLE_DEVICES": str(gpu), "SLURM_JOB_ID": "777"},
    )
    server.add_process(second, {gpu: min(10_000, server.sku.memory["total"] // 4)})


@fault()
def visible_devices(server: Server, value: str = "0,9") -> None:
    """A running process with invalid or repeated ordinals in CUDA_VISIBLE_DEVICES."""
    process = work(server, 0, 43_230)
    process.environment["CUDA_VISIBLE_DEVICES"] = value
