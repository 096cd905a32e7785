"""A GPU server that lives by an accelerated clock: training with phases, evaluation, idle nights, changing jobs, MIG; and faults at moments.

It makes ticks as the sampler does: facts of the slower tiers come again as the same objects until they are read anew.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, NamedTuple

from gpuclinic.model import Event, Fact, Tick, Where

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuclinic.model import Scalar

TOTAL_MIB = 81559
HOUR = 3600.0
SOURCE = "nvml"
WALL = 1_770_000_000.0


class Job(NamedTuple):
    """What runs from begin to end on some GPUs. kind: train, serve, notebook."""

    kind: str
    gpus: tuple[int, ...]
    begin: float
    end: float
    pid: int
    memory: int


def fact(kind: str, key: str, fields: dict[str, Scalar]) -> Fact:
    return Fact(kind, key, fields, {"": Where(SOURCE)}, SOURCE)


class Simulated:
    """A machine with so many GPUs. Whatever `patch` puts there overrides what is read: by (kind, key) fields; None takes a fact away."""

    def __init__(self, seed: int, gpus: int = 8, *, mig: tuple[int, ...] = ()) -> None:
        self.random = random.Random(seed)
        self.gpus = gpus
        self.mig = mig
        self.addresses = [f"0000:{17 + 16 * n:02x}:00.0" for n in range(gpus)]
        self.jobs: list[Job] = []
        self.patches: dict[tuple[str, str], dict[str, Any] | None] = {}
        self.waves: list[Callable[[float], None]] = []
        self.events: list[Event] = []
        self.now = 0.0
        self.took_s = 0.05
        self.needs_reboot = False
        self._slow: list[Fact] = []
        self._middle: list[Fact] = []
        self._slow_at = self._middle_at = float("-inf")
        self._heat = [34.0] * gpus

    def plan_day(self, length: float = 24 * HOUR) -> None:
        """Jobs of a day: long training on all or half, short ones, a notebook, idle hours of the night."""
        now, pid = self.random.uniform(0, 1800), 4000
        while now < length:
            free = tuple(n for n in range(self.gpus) if n not in self.mig)
            share = free if self.random.random() < 0.5 else free[: max(1, len(free) // 2)]
            lasts = self.random.uniform(0.7, 6) * HOUR
            self.jobs.append(Job("train", share, now, now + lasts, pid, self.random.randint(30000, 76000)))
            rest = tuple(n for n in free if n not in share)
            if rest:
                kind = self.random.choice(("serve", "notebook"))
                self.jobs.append(Job(kind, rest, now, now + lasts, pid + 1, self.random.randint(3000, 72000)))
            now += lasts + self.random.choice((30.0, 240.0, 1.5 * HOUR))
            pid += 40

    def job_on(self, gpu: int, now: float) -> Job | None:
        return next((j for j in self.jobs if gpu in j.gpus and j.begin <= now < j.end), None)

    def tick(self, now: float) -> Tick:
        """The machine at a moment, in seconds since the day began."""
        self.now = now
        for wave in self.waves:
            wave(now)
        if now - self._slow_at >= 60:
            self._slow_at, self._slow = now, self._slow_facts(now)
        if now - self._middle_at >= 10:
            self._middle_at, self._middle = now, self._middle_facts(now)
        facts = [self._gpu(n, now) for n in range(self.gpus)]
        facts += self._middle + self._slow
        out = [f for one in facts if (f := self._patched(one)) is not None]
        events, self.events = self.events, []
        ages = {f.kind: now - self._middle_at for f in self._middle} | {f.kind: now - self._slow_at for f in self._slow}
        return Tick(WALL + now, now + 1000.0, out, events, [], ages, self.took_s)

    def tick_gpu_fields(self) -> list[str]:
        """Names of all fields of a GPU."""
        return list(self._gpu(0, self.now).fields)

    def _patched(self, one: Fact) -> Fact | None:
        patch = self.patches.get((one.kind, one.key), {})
        if patch is None:
            return None
        if not patch:
            return one
        fields = {k: v for k, v in {**one.fields, **patch}.items() if v is not None}
        return Fact(one.kind, one.key, fields, one.lines, one.source)

    def _work(self, gpu: int, now: float) -> tuple[float, float, int]:
        """Utilisation, share of full power, memory of the processes."""
        job = self.job_on(gpu, now)
        if job is None:
            return 0.0, 0.1, 0
        age = now - job.begin
        if job.kind == "notebook":
            return (60.0, 0.4, job.memory) if age % 7200 < 240 else (0.0, 0.17, job.memory)
        if job.kind == "serve":
            return self.random.choice((0.0, 12.0, 55.0, 80.0)), 0.45, job.memory
        if age < 120:
            return 0.0, 0.15, min(job.memory, int(500 + age * 100))  # loads its data
        memory = int(job.memory * min(1.0, 0.8 + 0.2 * (age - 120) / 400))
        cycle = age % 2400
        if cycle > 2340:
            return 0.0, 0.16, memory  # writes a checkpoint
        if cycle > 2200:
            return 35.0 + 20 * self.random.random(), 0.5, memory  # evaluates
        return 92.0 + 8 * self.random.random(), 0.86 + 0.08 * self.random.random(), memory

    def _gpu(self, gpu: int, now: float) -> Fact:
        busy, power, memory = self._work(gpu, now)
        if gpu in self.mig:
            power = 0.3
        aim = 33 + 38 * power + gpu % 4
        self._heat[gpu] += (aim - self._heat[gpu]) * 0.1 + self.random.uniform(-0.6, 0.6)
        heat = round(self._heat[gpu])
        fields: dict[str, Scalar] = {
            "index": gpu, "bus_id": self.addresses[gpu], "uuid": f"GPU-{gpu:08d}", "name": "NVIDIA H100 80GB HBM3", "serial": f"16540{gpu}",
            "tool": "nvml", "vbios_version": "96.00.74.00.01", "compute_capability": "9.0", "persistence": True, "compute_mode": "Default",
            "mig_mode": "Enabled" if gpu in self.mig else "Disabled", "mig_pending": "Enabled" if gpu in self.mig else "Disabled",
            "temperature_c": heat, "memory_temperature_c": heat + 9, "memory_max_operating_temp_c": 95, "t_limit_c": 87 - heat,
            "slowdown_t_limit_c": -2, "power_w": round(700 * power + self.random.uniform(-9, 9), 1), "power_limit_w": 700.0,
            "default_power_limit_w": 700.0, "sm_clock_mhz": 1980 - (120 if busy > 90 else 0) if busy else 345, "max_sm_clock_mhz": 1980,
            "memory_clock_mhz": 2619, "memory_total_mib": TOTAL_MIB, "memory_used_mib": memory + 620, "process_memory_mib": memory,
            "throttle_active": "SW Power Cap" if power > 0.92 else "Idle" if not busy else "None", "throttle_hw_thermal_us": 0,
            "throttle_sw_thermal_us": 0, "throttle_hw_power_brake_us": 0, "ecc_mode": "Enabled", "ecc_corrected_volatile": gpu,
            "ecc_uncorrected_volatile": 0, "remapped_uncorrectable": 0, "remapped_correctable": 0, "remap_pending": False, "remap_failed": False,
            "pcie_gen": 5, "pcie_gen_max": 5, "pcie_width": 16, "pcie_width_max": 16, "pcie_replays": 2, "recovery_action": "None",
            "sku_use": "data_centre", "sku_form": "sxm", "sku_ecc": "yes", "inforom_valid": True, "gsp_enabled": True, "fabric_state": "Completed",
            "fabric_status": "Success", "energy_j": round(now * 300),
        }  # fmt: skip
        if gpu not in self.mig:
            fields["utilization_pct"] = round(busy)
            fields["memory_utilization_pct"] = round(busy * 0.4)
        return fact("gpu", self.addresses[gpu], fields)

    def _middle_facts(self, now: float) -> list[Fact]:
        out = [fact("nvml", "nvml", {"reason": "ok", "devices": self.gpus})]
        for gpu, address in enumerate(self.addresses):
            out += self._uses(gpu, address, now)
            if gpu in self.mig:
                out.append(
                    fact(
                        "mig_device",
                        f"{gpu}/0",
                        {"gpu_index": gpu, "device": 0, "bus_id": address, "profile": "3g.40gb"},
                    )
                )
            for link in range(18):
                out.append(
                    fact(
                        "nvlink",
                        f"{gpu}/{link}",
                        {
                            "gpu_index": gpu,
                            "link": link,
                            "bus_id": address,
                            "name": "NVIDIA H100 80GB HBM3",
                            "state": "active",
                            "speed_gbs": 26.562,
                            "replay_errors": 0,
                            "recovery_errors": 0,
                            "crc_flit_errors": 0,
                            "errors": 0,
                        },
                    )
                )
            out.append(
                fact(
                    "nvlink_gpu",
                    str(gpu),
                    {
                        "gpu_index": gpu,
                        "bus_id": address,
                        "links": 18,
                        "active": 18,
                        "inactive": 0,
                        "state": "active",
                        "sku_nvlinks": 18,
                        "sku_nvlink_by": "switch",
                        "sku_form": "sxm",
                    },
                )
            )
        for resource in ("cpu", "io", "memory"):
            out.append(
                fact(
                    "pressure",
                    resource,
                    {
                        "resource": resource,
                        "some_avg10": 3.0,
                        "some_avg60": 3 + self.random.random(),
                        "some_avg300": 3.0,
                        "full_avg10": 0.1,
                        "full_avg60": 0.1,
                        "full_avg300": 0.1,
                    },
                )
            )
        usable = 1_500_000 + self.random.randint(-40000, 40000)
        out.append(
            fact(
                "memory",
                "host",
                {
                    "total_mib": 2_060_000,
                    "total_gib": 2011,
                    "usable_mib": usable,
                    "usable_gib": usable // 1024,
                    "usable_pct": round(100 * usable / 2_060_000, 1),
                    "swap_total_mib": 0,
                    "swap_used_mib": 0,
                },
            )
        )
        out.append(
            fact(
                "process_count",
                "host",
                {
                    "total": 1900,
                    "zombies": self.random.randint(0, 6),
                    "zombie_parent": 1200,
                    "zombie_parent_count": 3,
                    "uninterruptible": self.random.choice((0, 0, 1, 3)),
                    "whole_view": True,
                },
            )
        )
        for port in range(8):
            out.append(
                fact(
                    "ib_counters",
                    f"mlx5_{port}/1",
                    {
                        "device": f"mlx5_{port}",
                        "symbol_error": 0,
                        "link_downed": 0,
                        "link_error_recovery": 0,
                        "port_rcv_errors": 0,
                        "local_link_integrity_errors": 0,
                        "excessive_buffer_overrun_errors": 0,
                        "packet_seq_err": 0,
                    },
                )
            )
        out.append(fact("vm_counters", "host", {"oom_kills": 0, "swap_in_mib": 0.0, "swap_out_mib": 0.0}))
        return out

    def _uses(self, gpu: int, address: str, now: float) -> list[Fact]:
        job = self.job_on(gpu, now)
        used = self._work(gpu, now)[2]
        use: dict[str, Scalar] = {
            "gpu": address,
            "gpu_index": gpu,
            "whole_view": True,
            "memory_total_mib": TOTAL_MIB,
            "memory_used_mib": used + 620,
            "process_mib": used,
            "unaccounted_mib": 620,
            "reserved_known": True,
            "holders": int(job is not None),
            "workers": int(job is not None),
            "job_count": int(job is not None),
            "servers_only": job is not None and job.kind == "serve",
            "ranks_here": int(job is not None and job.kind == "train"),
            "mig": gpu in self.mig,
            "compute_mode": "Default",
        }
        if gpu not in self.mig:
            use["utilization_pct"] = round(self._work(gpu, now)[0])
        if job is None:
            return [fact("gpu_use", address, use)]
        use.update({"youngest_s": now - job.begin, "pids": str(job.pid + gpu), "jobs": "train.py"})
        return [
            fact("gpu_use", address, use),
            fact(
                "gpu_process",
                f"{address}/{job.pid + gpu}",
                {"pid": job.pid + gpu, "name": "python", "memory_mib": used, "gpu_key": address, "gpu_index": gpu},
            ),
            fact(
                "gpu_holder",
                str(job.pid + gpu),
                {
                    "pid": job.pid + gpu,
                    "user": "alice",
                    "program": "train.py",
                    "role": "server" if job.kind == "serve" else "job",
                    "gpus": str(gpu),
                    "memory_mib": used,
                    "named_by_nvml": True,
                    "listed": True,
                    "whole_view": True,
                    "age_s": now - job.begin,
                    "zombie": False,
                    "stopped": False,
                    "orphan": False,
                    "leftover_worker": False,
                },
            ),
        ]

    def _slow_facts(self, now: float) -> list[Fact]:
        out = []
        for gpu, address in enumerate(self.addresses):
            out.append(
                fact(
                    "pci_device",
                    address,
                    {
                        "address": address,
                        "gpu": address,
                        "id": "10de:2330",
                        "is_gpu": True,
                        "driver": "nvidia",
                        "rev_ff": False,
                        "width": 16,
                        "width_max": 16,
                        "width_possible": 16,
                        "gen": 5,
                        "gen_max": 5,
                        "gen_possible": 5,
                        "aer_fatal_total": 0,
                        "aer_nonfatal_serious": 0,
                        "aer_corrected_total": 12,
                        "index": gpu,
                    },
                )
            )
        out.append(fact("gpu_count", "pci", {"value": self.gpus, "tool": "pci"}))
        out.append(fact("gpu_count", "expected", {"value": self.gpus, "tool": "expected"}))
        free = 5_000_000 - int(now / 86400 * 100_000) + self.random.randint(-30000, 30000)
        for mount, size, available, kind in (
            ("/", 900_000, 610_000, "ext4"),
            ("/data", 7_000_000, free, "xfs"),
            ("/dev/shm", 1_030_000, 1_010_000 + self.random.randint(-9000, 9000), "tmpfs"),
        ):
            out.append(
                fact(
                    "fs",
                    mount,
                    {
                        "mount": mount,
                        "type": kind,
                        "system": mount == "/",
                        "network": False,
                        "read_only": False,
                        "size_mib": size,
                        "available_mib": available,
                        "available_gib": available // 1024,
                        "use_pct": round(100 - 100 * available / size),
                    },
                )
            )
        out.append(
            fact(
                "time_sync",
                "chronyc",
                {"tool": "chronyc", "synchronised": True, "offset_s": self.random.uniform(-0.0004, 0.0004)},
            )
        )
        for port in range(8):
            out.append(
                fact(
                    "ib_port",
                    f"mlx5_{port}/1",
                    {
                        "device": f"mlx5_{port}",
                        "port": 1,
                        "state": "ACTIVE",
                        "up": True,
                        "physical_state": "LinkUp",
                        "rate_gbs": 400.0,
                        "rate_typical_gbs": 400.0,
                        "peers": 8,
                        "peers_up": 8,
                        "group": "a",
                        "link_layer": "InfiniBand",
                    },
                )
            )
        for disk in range(10):
            out.append(fact("nvme", f"nvme{disk}", {"device": f"nvme{disk}", "state": "live"}))
        for address, field in (
            (self.addresses[n], f) for n in range(self.gpus) for f in ("temperature_c", "sm_clock_mhz")
        ):
            low, middle, high = (55, 66, 74) if field == "temperature_c" else (1700, 1860, 1980)
            out.append(fact("usual", f"gpu/{address}/{field}", {"low": low, "middle": middle, "high": high}))
        return out
