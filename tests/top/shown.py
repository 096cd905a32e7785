"""Views for the tests of the live picture, made without a GPU: healthy, sick, with MIG, none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpuclinic.model import Fact, Finding, Gap, Tick, Where
from gpuclinic.top.feed import Past, Point
from gpuclinic.top.processes import ProcessNow
from gpuclinic.top.view import CpuShare, View, gpus_of, holders_of, host_of
from gpuclinic.watch.alerts import Alert

if TYPE_CHECKING:
    from gpuclinic.model import Scalar

AT = 1_770_000_000.0
COMMAND = "python -m torch.distributed.run train.py --model llama-70b --lr 1e-4 --sequence-length 8192"


def fact(kind: str, key: str, **fields: Scalar) -> Fact:
    return Fact(kind, key, fields, {"": Where("nvml")}, "nvml")


def address(index: int) -> str:
    return f"0000:{17 + 8 * index:02x}:00.0"


def gpu(index: int, **more: Scalar) -> Fact:
    fields: dict[str, Scalar] = {
        "index": index, "bus_id": address(index), "name": "NVIDIA H100 80GB HBM3", "utilization_pct": 97 - index % 3, "memory_utilization_pct": 61,
        "memory_total_mib": 81559, "memory_used_mib": 61000 + 500 * index, "memory_reserved_mib": 480, "temperature_c": 62 + index % 4, "t_limit_c": 25 - index % 4,
        "slowdown_t_limit_c": -2, "memory_temperature_c": 71, "power_w": 640.0 - index, "power_limit_w": 700.0, "sm_clock_mhz": 1755,
        "max_sm_clock_mhz": 1980, "memory_clock_mhz": 2619, "pcie_gen": 5, "pcie_width": 16, "pcie_width_max": 16, "pcie_rx_kbs": 1_250_000.0,
        "pcie_tx_kbs": 830_000.0, "nvlink_rx_kbs": 187_000_000.0, "nvlink_tx_kbs": 186_000_000.0, "ecc_uncorrected_volatile": 0, "throttle_active": "Idle",
    }  # fmt: skip
    return fact("gpu", address(index), **{**fields, **more})


def alert(number: int, severity: str, title: str, title_zh: str, index: int) -> Alert:
    steps = [
        {"text": "Drain the node, then reset the GPU.", "command": f"nvidia-smi --gpu-reset -i {index}", "risk": "gpu"}
    ]

    def finding(words: str) -> Finding:
        return Finding(
            "gpu.thermal.slowdown", severity, "thermal", address(index), words, "It runs 41 % below its clock.", "hw.thermal", "cool", steps, None, None,
            [Where("nvml", None, "nvmlDeviceGetCurrentClocksThrottleReasons(GPU 3) = 0x40 (HW Thermal Slowdown)")], address(index), index,
        )  # fmt: skip

    return Alert(
        f"a{number:07}",
        "gpu.thermal.slowdown",
        address(index),
        address(index),
        severity,
        AT - 90,
        AT - 30,
        finding(title),
        finding(title_zh),
    )


SICK: dict[int, dict[str, Any]] = {
    0: {"throttle_active": "SW Power Cap", "power_w": 699.0},
    3: {
        "throttle_active": "HW Slowdown, HW Thermal Slowdown",
        "temperature_c": 89,
        "t_limit_c": -1,
        "sm_clock_mhz": 1170,
    },
    4: {"memory_used_mib": 81000, "pcie_width": 8},
    6: {"utilization_pct": 0, "power_w": 117.0},
}


def machine(gpus: int, kind: str = "healthy", lang: str = "en") -> tuple[View, Past]:
    """A view of a server with so many GPUs. kind: healthy, sick, mig, none."""
    facts = [
        fact("memory", "host", total_mib=2097152.0, usable_mib=1890000.0, swap_used_mib=0.0), fact("driver", "nvml", version="580.105.08", cuda_version="13.0"),
        fact("cpu_times", "all", total_s=1000.0, idle_s=900.0, load1=35.2, cpus=112),
        *(fact("pressure", name, some_avg10=2.0) for name in ("cpu", "io", "memory")),
    ]  # fmt: skip
    now: dict[int, ProcessNow] = {}
    gaps: list[Gap] = []
    alerts: list[Alert] = []
    if kind == "none":
        gaps = [Gap("gpu.nvml", "NVML: Driver Not Loaded", required=True, fix="modprobe nvidia")]
        gpus = 0
    for index in range(gpus):
        facts.append(gpu(index, **(SICK.get(index, {}) if kind == "sick" else {})))
        pid = 41800 + index
        facts.append(
            fact(
                "gpu_process",
                f"{address(index)}/{pid}",
                pid=pid,
                memory_mib=60400,
                gpu_index=index,
                bus_id=address(index),
                type="C",
            )
        )
        facts.append(
            fact("gpu_holder", str(pid), pid=pid, user="alice" if index % 2 else "张伟", command=COMMAND, gpus=str(index), named_by_nvml=True, listed=True,
                 slurm_job="771204" if index < 4 else None, runtime="docker", container="4f5c0a1b2c3d", visible_devices="0,1,2,3,4,5,6,7", state="R", ppid=41799)
        )  # fmt: skip
        now[pid] = ProcessNow(
            "R", 41799, "alice" if index % 2 else "张伟", COMMAND, 103.5, 9216.0, 93784.0, 0, 1000 + index
        )
    if kind == "sick" and gpus:
        alerts = _sicken(facts, now, gpus)
    if kind == "mig":
        facts += [
            fact("mig_device", f"0/{n}", gpu_index=0, device=n, gi=n + 1, ci=0, profile="3g.40gb", memory_used_mib=20000, memory_total_mib=40448) for n in range(2)
        ]  # fmt: skip
    tick = Tick(AT, 1000.0, facts, gaps=gaps)
    found = gpus_of(tick)
    view = View(AT, host_of(tick, "node17", CpuShare()), found, holders_of(tick, found, now), alerts, gaps, agent=True)
    return view, past_of(view)


def _sicken(facts: list[Fact], now: dict[int, ProcessNow], gpus: int) -> list[Alert]:
    last = gpus - 1
    alerts = [alert(1, "critical", "GPU 3 slows down: it is too hot", "GPU 3 过热降频", 3)]
    if last:
        place = next(n for n, one in enumerate(facts) if one.kind == "gpu" and one.key == address(last))
        facts[place] = fact(
            "gpu", address(last), index=last, name="NVIDIA H100 80GB HBM3", error="GPU is lost", unreachable=True
        )
        alerts.insert(
            0, alert(2, "critical", f"GPU {last} fell off the bus (Xid 79)", f"GPU {last} 从总线掉线（Xid 79）", last)
        )
    alerts.append(
        alert(
            3,
            "warning",
            "GPU 4 runs at PCIe x8, its slot and the card can x16",
            "GPU 4 以 PCIe x8 运行，插槽和显卡支持 x16",
            4,
        )
    )
    alerts.append(alert(4, "info", "GPU 0 is at its power limit", "GPU 0 达到功率上限", 0))
    facts.append(fact("gpu_use", address(2), gpu_index=2, unaccounted_mib=12400.0))
    now[41800] = now[41800]._replace(state="Z")
    return alerts


def past_of(view: View) -> Past:
    """An hour of it."""
    past = Past()
    for one in view.gpus:
        for second in range(1800):
            wave = 90 + 8 * ((second // 40) % 2) - 60 * (second % 300 < 30)
            past._of(one.key).append(Point(AT - 1800 + second, wave, 74.0, 5.5 * wave + 60, 45 + wave / 5))
    return past
