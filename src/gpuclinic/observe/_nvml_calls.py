"""Which of NVML's questions are asked of a device, in which order, and what their answers are called.

Order: cheap and telling first, what is slow or known to hang (process lists, links) last. Names, units and formats are
those of the `gpu` facts (docs/facts.md); sources are nvml.h and the nvidia-ml-py bindings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from gpuclinic.observe import _nvml_words as words

if TYPE_CHECKING:
    from collections.abc import Callable

Answer = dict[str, Any]


class Single(NamedTuple):
    """A question that one function answers.

    fields: what its answer gives, and what is unreadable where it is refused. function: NVML's name. args: after the handle.
    convert: the answer as fields; None where the answer itself is the one field. of: what the arguments mean, for people.
    unless: a field that, once known, makes the question needless (the batch answered it).
    """

    fields: tuple[str, ...]
    function: str
    args: tuple[Any, ...] = ()
    convert: Callable[[Any], Any] | None = None
    of: str = ""
    unless: str = ""


class Field(NamedTuple):
    """A field value (NVML_FI_DEV_...) asked in a batch. convert: from NVML's number to the field's value."""

    field: str
    number: int
    convert: Callable[[Any], Any] = int
    scope: int = 0


IDENTITY: tuple[Single, ...] = (
    Single(("bus_id", "pci_id", "pci_subsystem_id"), "nvmlDeviceGetPciInfo_v3", (), words.pci),
    Single(("uuid",), "nvmlDeviceGetUUID"),
    Single(("name",), "nvmlDeviceGetName"),
    Single(("serial",), "nvmlDeviceGetSerial"),
    Single(("minor",), "nvmlDeviceGetMinorNumber"),
)
"""Told at the device's own level."""

HEALTH_FIELDS: tuple[Field, ...] = (
    Field("recovery_action", 230, words.recovery_action),
    Field("reset_required", 226, bool),
    Field("drain_recommended", 227, bool),
    Field("remapped_correctable", 142),
    Field("remapped_uncorrectable", 143),
    Field("remap_pending", 144, bool),
    Field("remap_failed", 145, bool),
    Field("retired_pages_sbe", 29),
    Field("retired_pages_dbe", 30),
    Field("retired_pages_pending", 31, bool),
)
SENSOR_FIELDS: tuple[Field, ...] = (
    Field("memory_temperature_c", 82),
    Field("power_w", 186, words.watts),
    Field("power_average_w", 185, words.watts),
    Field("module_power_w", 186, words.watts, 1),
    Field("memory_power_w", 185, words.watts, 2),
    Field("power_requested_limit_w", 192, words.watts),
    Field("module_power_limit_w", 190, words.watts, 1),
    Field("shutdown_t_limit_c", 193),
    Field("slowdown_t_limit_c", 194),
    Field("memory_max_operating_t_limit_c", 195),
    Field("max_operating_t_limit_c", 196),
)
PCIE_FIELDS: tuple[Field, ...] = (
    Field("pcie_replays", 94),
    Field("pcie_replay_rollovers", 95),
    Field("pcie_l0_to_recovery", 169),
    Field("pcie_correctable_errors", 173),
    Field("pcie_naks_received", 174),
    Field("pcie_receiver_errors", 175),
    Field("pcie_bad_tlps", 176),
    Field("pcie_naks_sent", 177),
    Field("pcie_bad_dllps", 178),
    Field("pcie_non_fatal_errors", 179),
    Field("pcie_fatal_errors", 180),
    Field("pcie_unsupported_requests", 181),
    Field("pcie_lcrc_errors", 182),
    Field("pcie_lane_errors", 183),
)
COUNTER_FIELDS: tuple[Field, ...] = (
    Field("throttle_sw_power_us", 74, words.micro),
    Field("throttle_sync_boost_us", 76, words.micro),
    Field("throttle_sw_thermal_us", 269, words.micro),
    Field("throttle_hw_thermal_us", 270, words.micro),
    Field("throttle_hw_power_brake_us", 271, words.micro),
)
"""Asked of drivers from COUNTERS_FROM on: earlier headers gave these numbers to other fields."""

COUNTERS_FROM = 580

OLD_ECC_FIELDS: tuple[Field, ...] = tuple(
    Field(f"ecc_{place}_{how}_{when}", number)
    for when, first in (("volatile", 7), ("aggregate", 18))
    for offset, (place, how) in enumerate(
        (where, how) for where in ("l1", "l2", "dram", "register", "texture") for how in ("corrected", "uncorrected")
    )
    for number in (first + offset,)
)
"""Caches and memory apart, as cards before Ampere count (fields 7-16 and 18-27)."""

STATE: tuple[Single, ...] = (
    Single(
        ("memory_total_mib", "memory_reserved_mib", "memory_used_mib", "memory_free_mib"),
        "nvmlDeviceGetMemoryInfo", (0x02000028,), words.memory,
    ),
    Single(
        ("memory_total_mib", "memory_used_mib", "memory_free_mib"),
        "nvmlDeviceGetMemoryInfo", (), words.memory, unless="memory_total_mib",
    ),
    Single(("temperature_c",), "nvmlDeviceGetTemperature", (0,), of="GPU"),
    Single(("performance_state",), "nvmlDeviceGetPerformanceState", (), words.performance_state),
    Single(("utilization_pct", "memory_utilization_pct"), "nvmlDeviceGetUtilizationRates", (), words.utilization),
    Single(("graphics_clock_mhz",), "nvmlDeviceGetClockInfo", (0,), of="GRAPHICS"),
    Single(("sm_clock_mhz",), "nvmlDeviceGetClockInfo", (1,), of="SM"),
    Single(("memory_clock_mhz",), "nvmlDeviceGetClockInfo", (2,), of="MEM"),
    Single(("throttle_mask",), "nvmlDeviceGetCurrentClocksEventReasons"),
    Single(("throttle_mask",), "nvmlDeviceGetCurrentClocksThrottleReasons", unless="throttle_mask"),
    Single(("ecc_mode", "ecc_mode_pending"), "nvmlDeviceGetEccMode", (), words.ecc_mode),
)  # fmt: skip
"""Asked before the health batch: if that hangs, these are kept."""

ECC: tuple[Single, ...] = tuple(
    Single((f"ecc_{how}_{when}",), "nvmlDeviceGetTotalEccErrors", (kind, counter), of=f"{how.upper()}, {when.upper()}")
    for counter, when in enumerate(("volatile", "aggregate"))
    for kind, how in ((1, "uncorrected"), (0, "corrected"))
)
ECC_PLACES: tuple[Single, ...] = tuple(
    Single(
        (f"ecc_{place}_{how}_{when}",), "nvmlDeviceGetMemoryErrorCounter", (kind, counter, location),
        of=f"{how.upper()}, {when.upper()}, {place.upper()}",
    )
    for place, location in (("sram", 7), ("dram", 2))
    for counter, when in enumerate(("volatile", "aggregate"))
    for kind, how in ((1, "uncorrected"), (0, "corrected"))
)  # fmt: skip

AFTER_HEALTH: tuple[Single, ...] = (
    Single(
        ("remapped_correctable", "remapped_uncorrectable", "remap_pending", "remap_failed"),
        "nvmlDeviceGetRemappedRows", (), words.remapped, unless="remapped_uncorrectable",
    ),
    Single(
        ("remap_banks_max", "remap_banks_high", "remap_banks_partial", "remap_banks_low", "remap_banks_none"),
        "nvmlDeviceGetRowRemapperHistogram", (), words.histogram,
    ),
    Single(("retired_pages_sbe",), "nvmlDeviceGetRetiredPages", (0,), len, "SINGLE_BIT", "retired_pages_sbe"),
    Single(("retired_pages_dbe",), "nvmlDeviceGetRetiredPages", (1,), len, "DOUBLE_BIT", "retired_pages_dbe"),
    Single(
        ("retired_pages_pending",), "nvmlDeviceGetRetiredPagesPendingStatus", (), bool, unless="retired_pages_pending"
    ),
    Single(("channel_repair_pending", "tpc_repair_pending"), "nvmlDeviceGetRepairStatus", (), words.repairs),
    Single(("unrepairable_memory",), "nvmlDeviceGetUnrepairableMemoryFlag_v1", (), bool),
)  # fmt: skip

SENSORS: tuple[Single, ...] = (
    Single(("power_w",), "nvmlDeviceGetPowerUsage", (), words.watts, unless="power_w"),
    Single(("power_limit_w",), "nvmlDeviceGetEnforcedPowerLimit", (), words.watts),
    Single(
        ("power_requested_limit_w",), "nvmlDeviceGetPowerManagementLimit", (), words.watts,
        unless="power_requested_limit_w",
    ),
    Single(("default_power_limit_w",), "nvmlDeviceGetPowerManagementDefaultLimit", (), words.watts),
    Single(
        ("min_power_limit_w", "max_power_limit_w"), "nvmlDeviceGetPowerManagementLimitConstraints", (),
        words.power_range,
    ),
    Single(("energy_j",), "nvmlDeviceGetTotalEnergyConsumption", (), words.joules),
    Single(("t_limit_c",), "nvmlDeviceGetMarginTemperature"),
    Single(("slowdown_temp_c",), "nvmlDeviceGetTemperatureThreshold", (1,), of="SLOWDOWN"),
    Single(("shutdown_temp_c",), "nvmlDeviceGetTemperatureThreshold", (0,), of="SHUTDOWN"),
    Single(("max_operating_temp_c",), "nvmlDeviceGetTemperatureThreshold", (3,), of="GPU_MAX"),
    Single(("memory_max_operating_temp_c",), "nvmlDeviceGetTemperatureThreshold", (2,), of="MEM_MAX"),
    Single(("throttle_supported_mask",), "nvmlDeviceGetSupportedClocksEventReasons"),
    Single(
        ("throttle_supported_mask",), "nvmlDeviceGetSupportedClocksThrottleReasons", unless="throttle_supported_mask"
    ),
    *(
        Single((f"{name}_violation_us",), "nvmlDeviceGetViolationStatus", (policy,), words.violation, name.upper())
        for policy, name in enumerate(
            ("power", "thermal", "sync_boost", "board_limit", "low_utilization", "reliability")
        )
    ),
    Single(("max_sm_clock_mhz",), "nvmlDeviceGetMaxClockInfo", (1,), of="SM"),
    Single(("max_graphics_clock_mhz",), "nvmlDeviceGetMaxClockInfo", (0,), of="GRAPHICS"),
    Single(("max_memory_clock_mhz",), "nvmlDeviceGetMaxClockInfo", (2,), of="MEM"),
    Single(("app_clock_mhz",), "nvmlDeviceGetApplicationsClock", (0,), of="GRAPHICS"),
    Single(("app_memory_clock_mhz",), "nvmlDeviceGetApplicationsClock", (2,), of="MEM"),
    Single(("default_app_clock_mhz",), "nvmlDeviceGetDefaultApplicationsClock", (0,), of="GRAPHICS"),
    Single(("max_boost_clock_mhz",), "nvmlDeviceGetMaxCustomerBoostClock", (0,), of="GRAPHICS"),
)  # fmt: skip

PCIE: tuple[Single, ...] = (
    Single(("pcie_gen",), "nvmlDeviceGetCurrPcieLinkGeneration"),
    Single(("pcie_width",), "nvmlDeviceGetCurrPcieLinkWidth"),
    Single(("pcie_gen_max",), "nvmlDeviceGetMaxPcieLinkGeneration"),
    Single(("pcie_width_max",), "nvmlDeviceGetMaxPcieLinkWidth"),
    Single(("pcie_gen_device_max",), "nvmlDeviceGetGpuMaxPcieLinkGeneration"),
    Single(("pcie_replays",), "nvmlDeviceGetPcieReplayCounter", unless="pcie_replays"),
    Single(("bar1_total_mib", "bar1_used_mib"), "nvmlDeviceGetBAR1MemoryInfo", (), words.bar1),
)
THROUGHPUT: tuple[Single, ...] = (
    Single(("pcie_tx_kbs",), "nvmlDeviceGetPcieThroughput", (0,), of="TX_BYTES"),
    Single(("pcie_rx_kbs",), "nvmlDeviceGetPcieThroughput", (1,), of="RX_BYTES"),
)
"""Each blocks for 20 ms; asked only where the caller wants it."""

SETTINGS: tuple[Single, ...] = (
    Single(("persistence",), "nvmlDeviceGetPersistenceMode", (), bool),
    Single(("compute_mode",), "nvmlDeviceGetComputeMode", (), words.compute_mode),
    Single(("mig_mode", "mig_pending"), "nvmlDeviceGetMigMode", (), words.mig_mode),
    Single(("virtualization_mode",), "nvmlDeviceGetVirtualizationMode", (), words.virtualization),
    Single(("display_active",), "nvmlDeviceGetDisplayActive", (), bool),
    Single(("display_attached",), "nvmlDeviceGetDisplayMode", (), bool),
    Single(("accounting",), "nvmlDeviceGetAccountingMode", (), bool),
    Single(("addressing_mode",), "nvmlDeviceGetAddressingMode", (), words.addressing),
    Single(("architecture",), "nvmlDeviceGetArchitecture", (), words.architecture),
    Single(("compute_capability",), "nvmlDeviceGetCudaComputeCapability", (), words.capability),
    Single(("brand",), "nvmlDeviceGetBrand", (), words.brand),
    Single(("board_id",), "nvmlDeviceGetBoardId"),
    Single(("board_part_number",), "nvmlDeviceGetBoardPartNumber"),
    Single(("module_id",), "nvmlDeviceGetModuleId"),
    Single(("numa_node",), "nvmlDeviceGetNumaNodeId"),
    Single(("vbios_version",), "nvmlDeviceGetVbiosVersion"),
    Single(("inforom_version",), "nvmlDeviceGetInforomImageVersion"),
    Single(("inforom_valid",), "nvmlDeviceValidateInforom", (), words.inforom),
    Single(("gsp_firmware",), "nvmlDeviceGetGspFirmwareVersion", (), words.text),
    Single(("gsp_enabled", "gsp_default"), "nvmlDeviceGetGspFirmwareMode", (), words.gsp_mode),
    Single(("fan_pct",), "nvmlDeviceGetFanSpeed"),
    Single(("encoder_pct",), "nvmlDeviceGetEncoderUtilization", (), words.share),
    Single(("decoder_pct",), "nvmlDeviceGetDecoderUtilization", (), words.share),
)

LINK_FIELDS: tuple[Field, ...] = (
    Field("state", 165, words.link_state),
    Field("speed_gbs", 164, words.link_speed),
    Field("version", 166, words.link_version),
    Field("replay_errors", 161),
    Field("recovery_errors", 162),
    Field("crc_errors", 163),
)
"""For each link, its number as the scope."""

LINK5_FIELDS: tuple[Field, ...] = (
    Field("malformed_packet_errors", 206),
    Field("buffer_overrun_errors", 207),
    Field("rx_errors", 208),
    Field("rx_remote_errors", 209),
    Field("rx_general_errors", 210),
    Field("local_link_integrity_errors", 211),
    Field("tx_discards", 212),
    Field("link_recovery_successful_events", 213),
    Field("link_recovery_failed_events", 214),
    Field("total_link_recovery_events", 215),
    Field("effective_errors", 219),
    Field("effective_ber", 220, words.bit_error_rate),
    Field("symbol_errors", 221),
    Field("symbol_ber", 222, words.bit_error_rate),
)
"""What NVLink 5 counts besides, in the words of nvidia-smi nvlink -e."""

LINK_ERRORS = ("replay_errors", "recovery_errors", "crc_flit_errors", "crc_data_errors", "ecc_data_errors")
"""By nvmlDeviceGetNvLinkErrorCounter's numbers, for libraries that do not know the fields."""
