"""What nvidia-smi prints for a scenario: -q -x, -L, the plain table, topo -m, and its exit codes."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

from .scenario import THROTTLE, Scenario

if TYPE_CHECKING:
    from collections.abc import Callable

    from .skus import Sku

ERRORS = {
    3: "N/A",
    4: "Insufficient Permissions",
    14: "Corrupted infoROM",
    15: "GPU is lost",
    16: "GPU requires reset",
    999: "Unknown Error",
}
ARCHITECTURES = {4: "Pascal", 5: "Volta", 6: "Turing", 7: "Ampere", 8: "Ada Lovelace", 9: "Hopper", 10: "Blackwell"}
BRANDS = {2: "Tesla", 5: "GeForce", 6: "Titan", 12: "Quadro RTX", 13: "NVIDIA RTX", 14: "NVIDIA"}
ACTIONS = {"0": "None", "1": "Reset", "2": "Reboot", "3": "Drain P2P", "4": "Drain and Reset"}
FABRIC_STATES = {"1": "Not Started", "2": "In Progress", "3": "Completed"}
INIT_MESSAGES = {
    9: "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA driver is installed and running.\n",
    18: "Failed to initialize NVML: Driver/library version mismatch\n", 4: "Failed to initialize NVML: Insufficient Permissions\n",
    999: "Failed to initialize NVML: Unknown Error\n",
}  # fmt: skip


def shown(scenario: Scenario) -> list[int]:
    """The GPUs that the driver still enumerates, by their number in the scenario."""
    return [gpu for gpu in range(int(scenario.get("count", "0"))) if scenario.of(gpu, "hidden", "0") == "0"]


class Card:
    """The values of one GPU as nvidia-smi words them."""

    def __init__(self, scenario: Scenario, gpu: int) -> None:
        self.scenario, self.gpu = scenario, gpu
        self.trouble = "GPU is lost" if scenario.of(gpu, "lost", "0") != "0" else ""
        if scenario.of(gpu, "reset_required", "0") != "0":
            self.trouble = "GPU requires reset"

    def raw(self, key: str) -> str:
        """The text of a key, the base of growing values only, "" where there is none."""
        return self.scenario.of(self.gpu, key).split("+", maxsplit=1)[0]

    def number(self, key: str) -> float:
        """A number for sums; 0 where there is none."""
        text = self.raw(key)
        if text.startswith("0x"):
            return float(int(text, 16))
        return float(text) if text.replace(".", "", 1).lstrip("-").isdecimal() else 0.0

    def text(self, key: str, unit: str = "", call: str = "", change: Callable[[float], str] | None = None) -> str:
        """A value with its unit, "N/A", or the error that NVML gives in its place."""
        if self.trouble:
            return self.trouble
        error = self.scenario.of(self.gpu, f"err.{call}") if call else ""
        text = f"!{error}" if error else self.raw(key)
        if text.startswith("!"):
            return ERRORS.get(int(text[1:]), "Unknown Error")
        if not text or text == "N/A":
            return "N/A"
        return (change(self.number(key)) if change else text) + (f" {unit}" if unit else "")

    def yes(self, key: str, words: tuple[str, str] = ("No", "Yes")) -> str:
        """A flag in words."""
        return self.text(key, change=lambda value: words[int(value != 0)])

    def watts(self, key: str, call: str = "power") -> str:
        """mW as nvidia-smi shows power."""
        return self.text(key, "W", call, lambda value: f"{value / 1000:.2f}")

    def ecc(self, kind: str, life: str, place: str) -> str:
        """An ECC counter of one place; N/A where ECC is off or the place is not counted."""
        if self.trouble:
            return self.trouble
        if self.raw("ecc.mode") != "1" or place not in self.scenario.of(self.gpu, "ecc.locations").split(","):
            return "N/A"
        return str(int(self.number(f"ecc.{kind}.{life}.{place}")))


def _tag(name: str, content: str, depth: int) -> str:
    return "\t" * depth + f"<{name}>{escape(content)}</{name}>\n"


def _group(name: str, rows: dict[str, str], depth: int = 2) -> str:
    inner = "".join(_tag(key, value, depth + 1) for key, value in rows.items())
    return "\t" * depth + f"<{name}>\n{inner}" + "\t" * depth + f"</{name}>\n"


def _identity(card: Card, sku: Sku) -> str:
    flags = ("Disabled", "Enabled")
    rows = {
        "product_name": sku.name, "product_brand": BRANDS.get(sku.brand, "NVIDIA"), "product_architecture": ARCHITECTURES[sku.architecture],
        "display_mode": "Requested functionality has been deprecated", "display_attached": "No", "display_active": card.yes("display.active", flags),
        "persistence_mode": card.yes("persistence", flags), "addressing_mode": {"1": "HMM", "2": "ATS"}.get(card.raw("addressing_mode"), "None"),
    }  # fmt: skip
    text = "".join(_tag(key, value, 2) for key, value in rows.items())
    text += _group(
        "mig_mode", {"current_mig": card.yes("mig.mode", flags), "pending_mig": card.yes("mig.pending", flags)}
    )
    text += _mig_devices(card)
    rows = {
        "accounting_mode": card.yes("accounting.mode", flags), "accounting_mode_buffer_size": "4000", "serial": card.raw("serial") or "N/A",
        "uuid": card.raw("uuid"), "minor_number": card.raw("minor"), "vbios_version": card.raw("vbios"),
        "multigpu_board": card.yes("multi_gpu_board"), "board_part_number": card.raw("board_part") or "N/A",
    }  # fmt: skip
    text += "".join(_tag(key, value, 2) for key, value in rows.items())
    image = "N/A" if card.raw("inforom.corrupt") == "1" else card.text("inforom.image")
    text += _group(
        "inforom_version",
        {
            "img_version": image,
            "oem_object": card.text("inforom.oem"),
            "ecc_object": card.text("inforom.ecc"),
            "pwr_object": "N/A",
        },
    )
    mode = {"0": "None", "1": "Pass-Through", "2": "VGPU"}.get(card.raw("virtualization"), "None")
    text += _group("gpu_virtualization_mode", {"virtualization_mode": mode, "host_vgpu_mode": "N/A"})
    if card.raw("vgpu.licensed"):
        state = "Licensed (Expiry: Permanent)" if card.raw("vgpu.licensed") == "1" else "Unlicensed (Restricted)"
        text += _group(
            "vgpu_software_licensed_product",
            {"licensed_product_name": card.raw("vgpu.product"), "license_status": state},
        )
    text += _tag("gpu_recovery_action", ACTIONS.get(card.raw("recovery_action"), "N/A"), 2)
    return text + _tag("gsp_firmware_version", card.text("gsp.version", call="gsp"), 2)


def _mig_devices(card: Card) -> str:
    blocks = ""
    for index in range(8):
        base = f"{card.gpu}.mig.{index}."
        if f"{base}uuid" not in card.scenario:
            continue
        total, used = (card.scenario.get(f"{base}memory.{which}", "0") for which in ("total", "used"))
        blocks += "\t\t\t<mig_device>\n" + "".join([
            _tag("index", str(index), 4), _tag("gpu_instance_id", card.scenario.get(f"{base}gi", "0"), 4),
            _tag("compute_instance_id", card.scenario.get(f"{base}ci", "0"), 4),
            _group("fb_memory_usage", {"total": f"{total} MiB", "reserved": "0 MiB", "used": f"{used} MiB", "free": f"{int(total) - int(used)} MiB"}, 4),
        ]) + "\t\t\t</mig_device>\n"  # fmt: skip
    inner = blocks or "\t\t\tNone\n"
    return f"\t\t<mig_devices>\n{inner}\t\t</mig_devices>\n"


def _bus(card: Card, sku: Sku) -> str:
    domain, bus, _ = card.raw("pci.bus_id").split(":")
    inner = "".join(_tag(key, value, 3) for key, value in {
        "pci_bus": bus.upper(), "pci_device": "00", "pci_domain": domain, "pci_device_id": f"{sku.device:04X}10DE",
        "pci_bus_id": f"{int(domain, 16):08X}:{bus.upper()}:00.0", "pci_sub_system_id": f"{sku.subsystem:08X}"}.items())  # fmt: skip
    inner += "\t\t\t<pci_gpu_link_info>\n" + _group("pcie_gen", {
        "max_link_gen": card.text("pcie.gen.max"), "current_link_gen": card.text("pcie.gen"), "device_current_link_gen": card.text("pcie.gen"),
        "max_device_link_gen": card.text("pcie.gen.device_max"), "max_host_link_gen": "N/A"}, 4)  # fmt: skip
    inner += _group(
        "link_widths",
        {"max_link_width": card.text("pcie.width.max") + "x", "current_link_width": card.text("pcie.width") + "x"},
        4,
    )
    inner += "\t\t\t</pci_gpu_link_info>\n" + "".join(_tag(key, value, 3) for key, value in {
        "replay_counter": card.text("pcie.replays"), "replay_rollover_counter": card.text("pcie.replay_rollover"),
        "tx_util": card.text("pcie.tx", "KB/s"), "rx_util": card.text("pcie.rx", "KB/s")}.items())  # fmt: skip
    return f"\t\t<pci>\n{inner}\t\t</pci>\n"


REASONS = {"gpu_idle": "idle", "applications_clocks_setting": "app_clocks", "sw_power_cap": "sw_power_cap", "hw_slowdown": "hw_slowdown",
           "hw_thermal_slowdown": "hw_thermal", "hw_power_brake_slowdown": "power_brake", "sync_boost": "sync_boost",
           "sw_thermal_slowdown": "sw_thermal", "display_clocks_setting": "display"}  # fmt: skip


def _state(card: Card) -> str:
    text = _tag("fan_speed", card.text("fan.speed", "%", "fan"), 2) + _tag(
        "performance_state", card.text("pstate", change=lambda value: f"P{int(value)}"), 2
    )
    bits = int(card.number("throttle"))
    text += _group("clocks_event_reasons", {
        f"clocks_event_reason_{name}": card.trouble or ("Active" if bits & THROTTLE[key] else "Not Active") for name, key in REASONS.items()})  # fmt: skip
    counters = {"sw_power_cap": "violation.power", "sync_boost": "violation.sync_boost", "sw_therm_slowdown": "violation.sw_thermal",
                "hw_therm_slowdown": "violation.hw_thermal", "hw_power_brake": "violation.hw_power_brake"}  # fmt: skip
    text += _group("clocks_event_reasons_counters", {
        f"clocks_event_reasons_counters_{name}": card.text(key, "us", change=lambda value: str(int(value / 1000))) for name, key in counters.items()})  # fmt: skip
    free = card.number("memory.total") - card.number("memory.used") - card.number("memory.reserved")
    text += _group("fb_memory_usage", {"total": card.text("memory.total", "MiB", "memory"), "reserved": card.text("memory.reserved", "MiB", "memory"),
                                       "used": card.text("memory.used", "MiB", "memory"), "free": card.text("memory.total", "MiB", "memory", lambda _: str(int(free)))})  # fmt: skip
    text += _group("bar1_memory_usage", {"total": card.text("bar1.total", "MiB"), "used": card.text("bar1.used", "MiB"),
                                         "free": card.text("bar1.total", "MiB", change=lambda value: str(int(value - card.number("bar1.used"))))})  # fmt: skip
    modes = {0: "Default", 1: "Exclusive_Thread", 2: "Prohibited", 3: "Exclusive_Process"}
    text += _tag("compute_mode", card.text("compute_mode", change=lambda value: modes[int(value)]), 2)
    return text + _group(
        "utilization",
        {"gpu_util": card.text("util.gpu", "%", "util"), "memory_util": card.text("util.memory", "%", "util")},
    )


def _errors(card: Card) -> str:
    flags = ("Disabled", "Enabled")
    text = _group(
        "ecc_mode", {"current_ecc": card.yes("ecc.mode", flags), "pending_ecc": card.yes("ecc.pending", flags)}
    )
    text += "\t\t<ecc_errors>\n"
    for name, life in (("volatile", "vol"), ("aggregate", "agg")):
        parity = (
            card.text(f"ecc.sram.parity.{life}")
            if card.raw(f"ecc.sram.parity.{life}")
            else ("0" if card.ecc("ue", life, "sram") != "N/A" else "N/A")
        )
        secded = card.ecc("ue", life, "sram")
        rows = {"sram_correctable": card.ecc("ce", life, "sram"), "sram_uncorrectable_parity": card.trouble or parity,
                "sram_uncorrectable_secded": str(int(secded) - int(parity)) if secded.isdecimal() and parity.isdecimal() else secded,
                "dram_correctable": card.ecc("ce", life, "dram"), "dram_uncorrectable": card.ecc("ue", life, "dram")}  # fmt: skip
        if life == "agg":
            rows["sram_threshold_exceeded"] = (
                "Yes" if card.raw("ecc.sram.threshold") == "1" else "No" if secded != "N/A" else "N/A"
            )
        text += _group(name, rows, 3)
    text += (
        _tag("channel_repair_pending", card.yes("repair.channel"), 3)
        + _tag("tpc_repair_pending", card.yes("repair.tpc"), 3)
        + "\t\t</ecc_errors>\n"
    )
    text += "\t\t<retired_pages>\n" + _group(
        "multiple_single_bit_retirement", {"retired_count": card.text("retired.sbe")}, 3
    )
    text += _group("double_bit_retirement", {"retired_count": card.text("retired.dbe")}, 3)
    text += (
        _tag("pending_blacklist", card.yes("retired.pending"), 3)
        + _tag("pending_retirement", card.yes("retired.pending"), 3)
        + "\t\t</retired_pages>\n"
    )
    if card.trouble or not card.raw("remap.corr"):
        return text + _tag("remapped_rows", card.trouble or "N/A", 2)
    banks = card.raw("remap.histogram").split(",")
    inner = "".join(_tag(key, value, 3) for key, value in {
        "remapped_row_corr": card.text("remap.corr"), "remapped_row_unc": card.text("remap.unc"),
        "remapped_row_pending": card.yes("remap.pending"), "remapped_row_failure": card.yes("remap.failed")}.items())  # fmt: skip
    inner += _group(
        "row_remapper_histogram",
        {
            f"row_remapper_histogram_{name}": f"{count} bank(s)"
            for name, count in zip(("max", "high", "partial", "low", "none"), banks, strict=False)
        },
        3,
    )
    return text + f"\t\t<remapped_rows>\n{inner}\t\t</remapped_rows>\n"


def _heat(card: Card, sku: Sku) -> str:
    rows = {"gpu_temp": card.text("temp", "C", "temp"), "gpu_temp_tlimit": card.text("temp.margin", "C", "margin")}
    if sku.temperature["kind"] == "margin":
        rows |= {"gpu_temp_max_tlimit_threshold": card.text("tlimit.shutdown", "C"), "gpu_temp_slow_tlimit_threshold": card.text("tlimit.slowdown", "C"),
                 "gpu_temp_max_gpu_tlimit_threshold": card.text("tlimit.gpu_max", "C")}  # fmt: skip
    else:
        rows |= {"gpu_temp_max_threshold": card.text("temp.shutdown", "C"), "gpu_temp_slow_threshold": card.text("temp.slowdown", "C"),
                 "gpu_temp_max_gpu_threshold": card.text("temp.gpu_max", "C")}  # fmt: skip
    rows |= {"memory_temp": card.text("temp.memory", "C"), "gpu_temp_max_mem_threshold": card.text("temp.mem_max", "C")}
    text = _group("temperature", rows)
    text += _group("gpu_power_readings", {
        "power_state": card.text("pstate", change=lambda value: f"P{int(value)}"), "average_power_draw": card.watts("power.average"), "instant_power_draw": card.watts("power"),
        "current_power_limit": card.watts("power.limit", "power_limit"), "requested_power_limit": card.watts("power.requested", "power_management"),
        "default_power_limit": card.watts("power.default", "power_default"), "min_power_limit": card.watts("power.min", "power_constraints"),
        "max_power_limit": card.watts("power.max", "power_constraints")})  # fmt: skip
    for name, group in (
        ("clocks", "clock"),
        ("applications_clocks", "clock.app"),
        ("default_applications_clocks", "clock.app_default"),
        ("max_clocks", "clock.max"),
    ):
        names = ("graphics", "sm", "mem", "video") if group in ("clock", "clock.max") else ("graphics", "mem")
        text += _group(name, {f"{which}_clock": card.text(f"{group}.{which}", "MHz", "clock") for which in names})
    return text + _group("max_customer_boost_clocks", {"graphics_clock": card.text("clock.boost.graphics", "MHz")})


def _fabric(card: Card) -> str:
    status = (
        {"0": "Success"}.get(card.raw("fabric.status"), "Unknown Error") if card.raw("fabric.state") == "3" else "N/A"
    )
    mask = int(card.number("fabric.health"))
    words = {0: "N/A", 1: "True", 2: "False"}
    health = {"summary": {"1": "Healthy", "2": "Unhealthy", "3": "Limited Capacity"}.get(card.raw("fabric.summary"), "N/A"),
              "bandwidth": {0: "N/A", 1: "Degraded", 2: "Full"}[mask & 3], "route_recovery_in_progress": words[mask >> 2 & 3],
              "route_unhealthy": words[mask >> 4 & 3], "access_timeout_recovery": words[mask >> 6 & 3],
              "incorrect_configuration": {0: "N/A", 1: "None"}.get(mask >> 8 & 15, "Insufficient Nvlinks")}  # fmt: skip
    rows = {"state": card.text("fabric.state", change=lambda value: FABRIC_STATES.get(str(int(value)), "N/A")), "status": card.trouble or status,
            "cliqueId": card.text("fabric.clique"), "clusterUuid": card.text("fabric.cluster")}  # fmt: skip
    inner = "".join(_tag(key, value, 3) for key, value in rows.items()) + _group("health", health, 3)
    return f"\t\t<fabric>\n{inner}\t\t</fabric>\n"


def processes_of(card: Card) -> list[tuple[str, str, str]]:
    """(pid, type, bytes or "N/A") of every process on the card."""
    rows = []
    for kind, letter in (("compute", "C"), ("graphics", "G"), ("mps", "M+C")):
        for entry in filter(None, card.raw(f"proc.{kind}").split(",")):
            pid, amount, *_ = [*entry.split(":"), "N/A"]
            rows.append((pid, letter, amount))
    return rows


def _processes(card: Card) -> str:
    if card.trouble:
        return _tag("processes", card.trouble, 2)
    text = ""
    for pid, kind, amount in processes_of(card):
        memory = f"{int(amount) >> 20} MiB" if amount.isdecimal() else "N/A"
        text += _group("process_info", {"gpu_instance_id": "N/A", "compute_instance_id": "N/A", "pid": pid, "type": kind,
                                        "process_name": card.scenario.get(f"process.{pid}.name", "[Not Found]"), "used_memory": memory}, 3)  # fmt: skip
    return f"\t\t<processes>\n{text}\t\t</processes>\n"


def query_xml(scenario: Scenario, sku: Sku, now: float) -> str:
    """`nvidia-smi -q -x`."""
    cuda = int(scenario["cuda_version"])
    gpus = shown(scenario)
    text = ('<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v13.dtd">\n<nvidia_smi_log>\n'
            + _tag("timestamp", f"{datetime.fromtimestamp(now, tz=timezone.utc):%a %b %e %H:%M:%S %Y}", 1) + _tag("driver_version", scenario["driver_version"], 1)
            + _tag("cuda_version", f"{cuda // 1000}.{cuda % 1000 // 10}", 1) + _tag("attached_gpus", str(len(gpus)), 1))  # fmt: skip
    for gpu in gpus:
        card = Card(scenario, gpu)
        domain, bus, rest = card.raw("pci.bus_id").split(":")
        text += f'\t<gpu id="{int(domain, 16):08X}:{bus.upper()}:{rest}">\n'
        text += _identity(card, sku) + _bus(card, sku) + _state(card) + _errors(card) + _heat(card, sku)
        text += (_fabric(card) if card.raw("fabric.state") else "") + _processes(card) + "\t</gpu>\n\n"
    return text + "</nvidia_smi_log>\n"


def listing(scenario: Scenario, sku: Sku) -> str:
    """`nvidia-smi -L`."""
    lines = []
    for index, gpu in enumerate(shown(scenario)):
        card = Card(scenario, gpu)
        if card.trouble == "GPU is lost":
            lines.append(
                f"Unable to determine the device handle for gpu {card.raw('pci.bus_id').upper()}: GPU is lost.  Reboot the system to recover this GPU"
            )
            continue
        lines.append(f"GPU {index}: {sku.name} (UUID: {card.raw('uuid')})")
        for mig in range(8):
            if f"{gpu}.mig.{mig}.uuid" in scenario:
                lines.append(
                    f"  MIG {scenario.get(f'{gpu}.mig.{mig}.name', '1g.10gb'):<12} Device  {mig}: (UUID: {scenario[f'{gpu}.mig.{mig}.uuid']})"
                )
    return "\n".join(lines) + "\n" if lines else "No devices found.\n"


def topo(scenario: Scenario) -> str:
    """`nvidia-smi topo -m`."""
    gpus = shown(scenario)
    head = (
        "\t" + "\t".join(f"GPU{index}" for index in range(len(gpus))) + "\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
    )
    rows = ""
    for at, gpu in enumerate(gpus):
        one = Card(scenario, gpu)
        cells = []
        for other in gpus:
            two = Card(scenario, other)
            links = int(one.number("nvlink.count")) if one.raw("nvlink.state") == "1" else 0
            near = (
                "PIX"
                if one.raw("pcie.switch") == two.raw("pcie.switch")
                else "NODE"
                if one.raw("numa") == two.raw("numa")
                else "SYS"
            )
            cells.append(" X " if gpu == other else f"NV{links}" if links else near)
        rows += f"GPU{at}\t" + "\t".join(cells) + f"\t{one.raw('affinity.cpus')}\t{one.raw('numa')}\t\tN/A\n"
    return head + rows + "\nLegend:\n\n  X    = Self\n"


def table(scenario: Scenario, sku: Sku, now: float) -> str:
    """The plain table."""
    version, cuda = scenario["driver_version"], int(scenario["cuda_version"])
    line = "+-----------------------------------------+------------------------+----------------------+\n"
    text = (f"{datetime.fromtimestamp(now, tz=timezone.utc):%a %b %e %H:%M:%S %Y}\n+-----------------------------------------------------------------------------------------+\n"
            f"| NVIDIA-SMI {version:<22} Driver Version: {version:<14} CUDA Version: {f'{cuda // 1000}.{cuda % 1000 // 10}':<9}|\n{line}"
            "| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |\n"
            "| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |\n"
            "|                                         |                        |               MIG M. |\n"
            "|=========================================+========================+======================|\n")  # fmt: skip
    for index, gpu in enumerate(shown(scenario)):
        card = Card(scenario, gpu)
        bus = card.raw("pci.bus_id").split(":")
        memory = f"{card.raw('memory.used')}MiB / {card.raw('memory.total')}MiB"
        power = f"{card.number('power') / 1000:.0f}W / {card.number('power.limit') / 1000:.0f}W"
        bad = sum(
            int(value) for value in (card.ecc("ue", "vol", "dram"), card.ecc("ue", "vol", "sram")) if value.isdecimal()
        )
        ecc = str(bad) if card.raw("ecc.mode") == "1" else "N/A" if not card.raw("ecc.mode") else "Off"
        if card.trouble:
            memory, power, ecc = card.trouble, "ERR!", "ERR!"
        text += (f"|{index:4}  {sku.name[:25]:<25} {'On' if card.raw('persistence') == '1' else 'Off':>8} |   {int(bus[0], 16):08X}:{bus[1].upper()}:{bus[2]} Off |{ecc:>21} |\n"
                 f"| {card.raw('fan.speed') + '%' if card.raw('fan.speed') else 'N/A':>3}   {card.text('temp') + 'C' if not card.trouble else 'ERR!':>4}    P{card.raw('pstate'):<3}{power:>23} |{memory:>23} |{card.raw('util.gpu') + '%':>8}      Default |\n"
                 f"|                                         |                        |{'Disabled' if card.raw('mig.mode') == '0' else 'Enabled' if card.raw('mig.mode') else 'N/A':>21} |\n{line}")  # fmt: skip
    text += "\n+-----------------------------------------------------------------------------------------+\n| Processes:                                                                              |\n|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |\n|        ID   ID                                                               Usage      |\n|=========================================================================================|\n"
    rows = [(index, *row) for index, gpu in enumerate(shown(scenario)) for row in processes_of(Card(scenario, gpu))]
    for index, pid, kind, amount in rows:
        name = scenario.get(f"process.{pid}.name", "[Not Found]")[:36]
        text += f"|{index:5}   N/A  N/A{pid:>17} {kind:>6}   {name:<36}{int(amount) >> 20 if amount.isdecimal() else 0:>7}MiB |\n"
    return (
        text
        + (
            ""
            if rows
            else "|  No running processes found                                                             |\n"
        )
        + "+-----------------------------------------------------------------------------------------+\n"
    )


def links_of(scenario: Scenario, gpu: int) -> list[dict[str, str]]:
    """Per NVLink of a GPU: state, speed and error counters, a link's own line before that of all its links."""
    card = Card(scenario, gpu)
    found = []
    for link in range(int(card.number("nvlink.count"))):
        keys = ("state", "speed", "replay", "recovery", "crc_flit", "crc_data")
        found.append({key: card.raw(f"nvlink.{link}.{key}") or card.raw(f"nvlink.{key}") for key in keys})
    return found


def nvlink(scenario: Scenario, sku: Sku, *, errors: bool) -> str:
    """`nvidia-smi nvlink -s`, or with errors `nvidia-smi nvlink -e`."""
    text = ""
    for index, gpu in enumerate(shown(scenario)):
        text += f"GPU {index}: {sku.name} (UUID: {scenario.of(gpu, 'uuid')})\n"
        links = links_of(scenario, gpu)
        if not links:
            text += "Device does not have or support Nvlink\n"
        elif all(link["state"] != "1" for link in links):
            text += "NVML: Unable to retrieve Nvlink information as all links are inActive\n"
            continue
        for number, link in enumerate(links):
            if errors and link["state"] == "1":
                for word, key in (("Replay", "replay"), ("Recovery", "recovery"), ("CRC", "crc_flit")):
                    text += f"\t Link {number}: {word} Errors: {link[key] or 0}\n"
            elif link["state"] == "1":
                text += f"\t Link {number}: {int(link['speed'] or 0) / 1000:.3f} GB/s\n"
            else:
                text += f"\t Link {number}: <inactive>\n"
    return text


def p2p(scenario: Scenario) -> str:
    """`nvidia-smi topo -p2p r`."""
    gpus = shown(scenario)
    words = {0: "OK", 1: "CNS", 2: "GNS", 3: "TNS", 4: "DR", 5: "NS"}
    text = " \t" + "\t".join(f"GPU{index}" for index in range(len(gpus))) + "\n"
    for index, gpu in enumerate(gpus):
        one = Card(scenario, gpu)
        cells = ["X" if gpu == other else words[int(one.number(f"p2p.{other}") or one.number("p2p"))] for other in gpus]
        text += f" GPU{index}\t" + "\t".join(cells) + "\n"
    return (
        text
        + "\nLegend:\n\n  X    = Self\n  OK   = Status Ok\n  CNS  = Chipset not supported\n  GNS  = GPU not supported\n  TNS  = Topology not supported\n  NS   = Not supported\n  U    = Unknown\n"
    )
