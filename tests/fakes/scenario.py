"""The scenario that the fake NVML and the fake commands answer from."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from .skus import Sku

Value = str | int | float

# Reasons of the clocks as NVML's bits (nvml.h): the words are those of faults.
THROTTLE = {
    "idle": 0x1, "app_clocks": 0x2, "sw_power_cap": 0x4, "hw_slowdown": 0x8, "sync_boost": 0x10, "sw_thermal": 0x20,
    "hw_thermal": 0x40, "power_brake": 0x80, "display": 0x100,
}  # fmt: skip


class Scenario(dict[str, str]):
    """Keys and values of a scenario file; values are kept as text."""

    def put(self, **values: Value) -> None:
        """Sets keys of the machine; a dot is written as two underscores."""
        for key, value in values.items():
            self[key.replace("__", ".")] = str(value)

    def gpu(self, index: int | str, values: Mapping[str, Value]) -> None:
        """Sets keys of one GPU, or of "all"."""
        for key, value in values.items():
            self[f"{index}.{key}"] = str(value)

    def of(self, index: int, key: str, otherwise: str = "") -> str:
        """The value that GPU ``index`` has: its own, else that of all GPUs."""
        return self.get(f"{index}.{key}", self.get(f"all.{key}", otherwise))

    def write(self, path: Path) -> None:
        """Writes the file whole, with a new time, so that the library reads it again."""
        temporary = path.with_name(path.name + ".new")
        temporary.write_text("".join(f"{key}={value}\n" for key, value in self.items()), encoding="utf-8")
        temporary.replace(path)


def gpu_uuid(sku: Sku, index: int) -> str:
    """A UUID that is always the same for a GPU of a SKU."""
    return f"GPU-{uuid.uuid5(uuid.NAMESPACE_DNS, f'{sku.key}.{index}.gpu.example')}"


def _memory_keys(sku: Sku) -> dict[str, Value]:
    keys: dict[str, Value] = {
        "memory.total": sku.memory["total"], "memory.reserved": sku.memory["reserved"], "memory.used": 0,
        "bar1.total": sku.memory["bar1"], "bar1.used": 1,
    }  # fmt: skip
    kind = sku.ecc["kind"]
    if kind != "none":
        on = int(kind != "off")
        keys |= {"ecc.mode": on, "ecc.pending": on, "ecc.default": on}
        keys["ecc.locations"] = "dram,sram" if sku.architecture >= 7 else "l1,l2,dram,reg,tex,cbu"
    if kind == "page_retirement":
        keys |= {"retired.sbe": 0, "retired.dbe": 0, "retired.pending": 0}
    if sku.remaps_rows:
        keys |= {"remap.corr": 0, "remap.unc": 0, "remap.pending": 0, "remap.failed": 0,
                 "remap.histogram": f"{sku.ecc['histogram_max']},0,0,0,0"}  # fmt: skip
    if sku.architecture >= 9 and kind == "row_remapping":
        keys |= {"repair.channel": 0, "repair.tpc": 0, "unrepairable_memory": 0}
    return keys


def _heat_and_power_keys(sku: Sku) -> dict[str, Value]:
    limits, clocks = sku.power, sku.clocks
    keys: dict[str, Value] = {
        "power": int(limits["idle"] * 1000), "power.average": int(limits["idle"] * 1000), "power.mode": 1,
        "power.limit": int(limits["default"] * 1000), "power.requested": int(limits["default"] * 1000),
        "power.default": int(limits["default"] * 1000), "power.min": int(limits["min"] * 1000),
        "power.max": int(limits["max"] * 1000), "energy": f"{int(limits['idle']) * 86_400_000}+{int(limits['idle'] * 1000)}/s",
        "clock.graphics": clocks["graphics_idle"], "clock.sm": clocks["graphics_idle"], "clock.mem": clocks["memory_idle"],
        "clock.video": max(clocks["graphics_idle"], 300), "clock.max.graphics": clocks["graphics_max"],
        "clock.max.sm": clocks["graphics_max"], "clock.max.mem": clocks["memory_max"], "clock.max.video": clocks["video_max"],
        "pstate": clocks["pstate"], "throttle": THROTTLE["idle"], "throttle.supported": 0x1FF,
    }  # fmt: skip
    for policy in ("power", "thermal", "sync_boost", "board_limit", "low_utilization", "reliability", "app_clocks",
                   "base_clocks", "sw_thermal", "hw_thermal", "hw_power_brake"):  # fmt: skip
        keys[f"violation.{policy}"] = 0
    if not sku.is_display:
        keys |= {"clock.app.graphics": clocks["graphics_max"], "clock.app.mem": clocks["memory_max"],
                 "clock.app_default.graphics": clocks["graphics_max"], "clock.app_default.mem": clocks["memory_max"],
                 "clock.boost.graphics": clocks["graphics_max"], "clock.boost.sm": clocks["graphics_max"]}  # fmt: skip
    heat = sku.temperature
    if heat["kind"] == "absolute":
        keys |= {
            "temp.shutdown": heat["shutdown"],
            "temp.slowdown": heat["slowdown"],
            "temp.gpu_max": heat["max_operating"],
        }
        if "memory_max" in heat:
            keys["temp.mem_max"] = heat["memory_max"]
    else:
        keys |= {
            "tlimit.shutdown": heat["shutdown"],
            "tlimit.slowdown": heat["slowdown"],
            "tlimit.gpu_max": heat["max_operating"],
        }
        if "memory_max" in heat:
            keys["tlimit.mem_max"] = heat["memory_max"]
    if sku.fans:
        keys |= {
            "fan.count": sku.fans,
            "fan.speed": 30 if sku.form == "ws" else 0,
            "fan.target": 30 if sku.form == "ws" else 0,
        }
    return keys


def _link_keys(sku: Sku) -> dict[str, Value]:
    keys: dict[str, Value] = {
        "pcie.gen": sku.pcie["idle_gen"], "pcie.gen.max": sku.pcie["gen"], "pcie.gen.device_max": sku.pcie["gen"],
        "pcie.width": sku.pcie["width"], "pcie.width.max": sku.pcie["width"], "pcie.replays": 0, "pcie.replay_rollover": 0,
        "pcie.tx": 500, "pcie.rx": 550, "pcie.tx_bytes": "0+512000/s", "pcie.rx_bytes": "0+563200/s", "p2p": 0,
    }  # fmt: skip
    for counter in ("l0_to_recovery", "correctable", "naks_received", "receiver_error", "bad_tlp", "naks_sent", "bad_dllp",
                    "non_fatal", "fatal", "unsupported_req", "lcrc", "lane"):  # fmt: skip
        if sku.architecture >= 9:
            keys[f"pcie.{counter}"] = 0
    link = sku.nvlink
    if link:
        keys |= {"nvlink.count": link["count"], "nvlink.version": link["version"], "nvlink.speed": link["speed"] if link["active"] else 0,
                 "nvlink.state": int(link["active"]), "nvlink.remote_type": 2 if link["nvswitches"] or sku.form == "superchip" else 0}  # fmt: skip
        counters = ["replay", "recovery", "crc_flit", "crc_data", "ecc_data"]
        if sku.architecture >= 10:
            counters += ["malformed", "buffer_overrun", "rcv_errors", "rcv_remote", "rcv_general", "integrity", "xmit_discards",
                         "recovery_successful", "recovery_failed", "recovery_events", "raw_ber", "effective_errors",
                         "effective_ber", "symbol_errors", "symbol_ber"]  # fmt: skip
        keys |= {f"nvlink.{counter}": 0 for counter in counters}
    if sku.fabric:
        keys |= {"fabric.state": 3, "fabric.status": 0, "fabric.clique": 0,
                 "fabric.cluster": "00000000-0000-0000-0000-000000000000" if sku.form == "sxm" else "5c0e9b7e-1d2a-4f6b-9a3d-7e8f90a1b2c3",
                 "fabric.health": 0x0 if sku.architecture == 9 else 0x1AA, "fabric.summary": 1 if sku.architecture >= 10 else 0}  # fmt: skip
    if sku.form == "superchip":
        keys |= {"c2c.enabled": 1, "c2c.links": 10}
    return keys


def healthy(sku: Sku, gpus: int, addresses: list[str], driver: str) -> Scenario:
    """The scenario of an idle server with nothing wrong."""
    scenario = Scenario()
    major = int(driver.split(".", maxsplit=1)[0])
    cuda = {450: 11000, 470: 11040, 535: 12020, 550: 12040, 570: 12080, 580: 13000, 590: 13010, 595: 13020}.get(
        major, 13000
    )
    scenario.put(count=gpus, init=0, driver_version=driver, nvml_version=f"{cuda // 1000}.{driver}", cuda_version=cuda)
    scenario.gpu("all", {
        "name": sku.name, "brand": sku.brand, "arch": sku.architecture, "cc": sku.compute_capability, "bus_type": 2,
        "pci.device_id": f"0x{sku.device:04x}10de", "pci.subsystem_id": f"0x{sku.subsystem:08x}", "pci.sub_class": 0 if sku.is_display else 2,
        "vbios": f"9{sku.architecture - 3}.00.4A.00.0{sku.architecture}", "inforom.image": "G520.0200.00.05", "inforom.oem": "2.1",
        "inforom.checksum": 439041101, "util.gpu": 0, "util.memory": 0, "util.encoder": 0, "util.decoder": 0,
        "persistence": 0 if sku.form == "geforce" else 1, "compute_mode": 0, "display.active": 0, "display.mode": 0,
        "virtualization": 0, "accounting.buffer": 4000, "accounting.mode": 0, "multi_gpu_board": int(sku.key == "a16"),
        "event.types": 0x1F, "proc.compute": "",
    })  # fmt: skip
    if sku.ecc["kind"] != "none":
        scenario.gpu("all", {"inforom.ecc": "7.16" if sku.architecture >= 9 else "6.16", "event.types": 0x1F})
    if sku.gsp:
        scenario.gpu("all", {"gsp.version": driver, "gsp.mode": 1, "gsp.default": 1})
    if sku.mig_max:
        scenario.gpu("all", {"mig.mode": 0, "mig.pending": 0, "mig.max": sku.mig_max})
    if major >= 565:
        scenario.gpu("all", {"recovery_action": 0, "addressing_mode": 2 if sku.form == "superchip" else 1})
    for keys in (_memory_keys(sku), _heat_and_power_keys(sku), _link_keys(sku)):
        scenario.gpu("all", keys)
    for index, address in enumerate(addresses[:gpus]):
        _one_gpu(scenario, sku, index, address, gpus)
    return scenario


def _one_gpu(scenario: Scenario, sku: Sku, index: int, address: str, gpus: int) -> None:
    numa = index * 2 // gpus if gpus > 1 and sku.form != "geforce" else 0
    warm = 29 + (index * 3) % 8
    keys: dict[str, Value] = {
        "uuid": gpu_uuid(sku, index), "minor": index, "pci.bus_id": address, "board_id": int(address.split(":")[1], 16) << 8,
        "module_id": index + 1, "temp": warm, "numa": numa, "pcie.switch": index // 2,
        "affinity.cpus": f"{numa * 56}-{numa * 56 + 55}", "affinity.nodes": str(numa),
    }  # fmt: skip
    if not sku.is_display:
        keys["serial"] = f"165{sku.device:05d}{index:05d}"
        keys["board_part"] = "692-2G520-0200-000"
    if sku.temperature["kind"] == "margin":
        keys["temp.margin"] = 87 - warm
    if sku.temperature.get("memory_max") is not None:
        keys["temp.memory"] = warm + 6
    scenario.gpu(index, keys)
