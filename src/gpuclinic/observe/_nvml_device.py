"""Asks NVML about one device. Every refusal is told with its code; nothing stops the rest."""

from __future__ import annotations

import ctypes
import time
from typing import TYPE_CHECKING, Any

from gpuclinic.observe import _nvml_calls as calls
from gpuclinic.observe import _nvml_words as words

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from gpuclinic.observe._nvml_calls import Field, Single
    from gpuclinic.observe._nvml_journal import Journal

ABSENT = frozenset((3, 13, 22, 26))
"""Codes that say "this card or driver has not got it": not supported, no such function, no ECC on a vGPU, deprecated."""

_OLDER = frozenset((2, 3, 13, 25))
"""Codes that an older library gives for a newer question: ask in the older way."""

_CORRUPTED_INFOROM = 14
_NOT_FOUND = 6
_SLOW_S = 0.05
_MOST_PROCESSES = 2000
_MOST_LINKS = 36
_MOST_MIG = 64
_MOST_FANS = 16
_LATE = 0.75
_NUMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
_BROKEN = (ValueError, TypeError, OverflowError, AttributeError, IndexError, MemoryError, ctypes.ArgumentError)
"""What bindings raise over answers that no NVML gives."""


class RefusedError(Exception):
    """NVML answered with an error. code: its return code, None where the answer could not be read at all."""

    def __init__(self, code: int | None, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


class Asker:
    """Makes the calls: each is noted in the journal before it is made.

    process_kinds: which lists of processes are asked for, by their letters (compute, graphics, MPS); each costs milliseconds.
    """

    def __init__(self, nvml: Any, journal: Journal) -> None:
        self.nvml = nvml
        self.journal = journal
        self.driver = ""
        self.index = -1
        self.handle: Any = None
        self.known: dict[str, Any] = {}
        self.process_kinds = "CGM"

    def call(self, function: str, *args: Any, of: str = "") -> Any:
        """NVML's answer. Raises RefusedError."""
        name = f"{function}/{of}" if of else function
        function_of = getattr(self.nvml, function, None)
        if function_of is None:
            raise RefusedError(13, words.error(13))  # bindings older than the question
        begun = self.journal.calling(name)
        try:
            return function_of(*args)
        except self.nvml.NVMLError as error:
            code = int(error.value)
            raise RefusedError(code, words.error(code)) from error
        except _BROKEN as problem:
            raise RefusedError(None, f"unreadable answer: {type(problem).__name__}") from problem
        finally:
            self.journal.returned()
            spent = time.monotonic() - begun
            if spent > _SLOW_S:
                self.journal.tell("slow", self.index, name, round(spent * 1000, 1))

    def value(self, field: str, value: Any, call: str) -> None:
        """Tells one value."""
        if value is None:
            return
        value = (
            value[:300] if isinstance(value, str) else words.text(value)[:300] if isinstance(value, bytes) else value
        )
        self.known[field] = value
        self.journal.tell("value", self.index, field, value, call)

    def refused(self, fields: Iterable[str], refusal: RefusedError, call: str) -> None:
        """Tells that fields could not be read."""
        for field in fields:
            if field not in self.known:
                self.journal.tell("error", self.index, field, refusal.code, refusal.text, call)

    def take(self, row: Single) -> None:
        """Asks one question and tells its answer."""
        if row.unless and row.unless in self.known:
            return
        call = f"{row.function}/{row.of}" if row.of else row.function
        try:
            told = self.fields(row.function, *row.args, convert=row.convert, of=row.of)
        except RefusedError as refusal:
            if refusal.code == _CORRUPTED_INFOROM and row.fields == ("inforom_valid",):
                self.value("inforom_valid", False, call)
            else:
                self.refused(row.fields, refusal, call)
            return
        for field, value in (told if isinstance(told, dict) else {row.fields[0]: told}).items():
            self.value(field, value, call)

    def fields(self, function: str, *args: Any, convert: Callable[[Any], Any] | None = None, of: str = "") -> Any:
        """The answer of a function of this device, converted. Raises RefusedError."""
        answer = self.call(function, self.handle, *args, of=of)
        try:
            return convert(answer) if convert else answer
        except _BROKEN as problem:
            raise RefusedError(None, f"unreadable answer: {type(problem).__name__}") from problem

    def batch(self, fields: Iterable[Field], of: str) -> list[tuple[Field, Any, int | None]]:
        """Field values in one call: (field, value, None) or (field, None, code). Raises RefusedError for the call itself."""
        rows = list(fields)
        answers = self.call("nvmlDeviceGetFieldValues", self.handle, [(f.number, f.scope) for f in rows], of=of)
        told: list[tuple[Field, Any, int | None]] = []
        for field, answer in zip(rows, answers, strict=False):
            code = int(answer.nvmlReturn)
            if code:
                told.append((field, None, code))
                continue
            kind = int(answer.valueType)
            try:
                told.append((field, field.convert(getattr(answer.value, _NUMBERS[kind])), None))
            except _BROKEN:
                told.append((field, None, 999))
        return told

    def take_batch(self, fields: tuple[Field, ...], of: str) -> None:
        """Tells a batch of field values of the device."""
        try:
            told = self.batch(fields, of)
        except RefusedError as refusal:
            self.refused((f.field for f in fields), refusal, f"nvmlDeviceGetFieldValues/{of}")
            return
        for field, value, code in told:
            call = f"nvmlDeviceGetFieldValues/field {field.number}"
            if code is None:
                self.value(field.field, value, call)
            else:
                self.refused((field.field,), RefusedError(code, words.error(code)), call)

    def item(self, group: str, content: dict[str, Any]) -> None:
        """Tells one element of a list of the device."""
        self.journal.tell("item", self.index, group, {k: v for k, v in content.items() if v is not None})


def ask_device(
    asker: Asker, index: int, *, deep: bool, seconds: float,
    groups: Collection[str] | None = None, known: Mapping[str, Any] | None = None, between: Callable[[], None] | None = None,
) -> list[int]:  # fmt: skip
    """Asks everything about one device. Returns the pids that it named.

    Where the device is slow, groups late in the order are left out and named, so that an answer comes within the deadline.
    groups: only these (GROUP_NAMES). known: what an earlier question told that they build on. between: called after each group.
    """
    begun = time.monotonic()
    asker.index, asker.known, asker.handle = index, dict(known or {}), None
    pids: list[int] = []
    asker.journal.tell("device", index)
    try:
        asker.handle = asker.call("nvmlDeviceGetHandleByIndex", index)
    except RefusedError as refusal:
        asker.refused(("handle",), refusal, "nvmlDeviceGetHandleByIndex")
    else:
        for name, group in _GROUPS:
            if groups is not None and name not in groups:
                continue
            if name not in _ALWAYS and time.monotonic() - begun > seconds * _LATE:
                asker.journal.tell("left_out", index, name)
                continue
            pids += group(asker, deep) or []
            if between is not None:
                between()
    asker.journal.tell("told", index, round(time.monotonic() - begun, 4))
    return pids


def _state(asker: Asker, _deep: bool) -> None:
    for row in (*calls.IDENTITY, *calls.STATE):
        asker.take(row)


def _memory_health(asker: Asker, _deep: bool) -> None:
    counts = asker.known.get("ecc_mode") == "Enabled"
    if counts:
        for row in calls.ECC:
            asker.take(row)
    asker.take_batch(calls.HEALTH_FIELDS, "health")
    for row in calls.AFTER_HEALTH:
        asker.take(row)
    if counts:
        for row in calls.ECC_PLACES:
            asker.take(row)
        if "ecc_sram_uncorrected_volatile" not in asker.known:
            asker.take_batch(calls.OLD_ECC_FIELDS, "ECC by place")
        _sram(asker)


def _sram(asker: Asker) -> None:
    """Fields of its own: totals by another route that may differ from the counters stay apart."""
    call = "nvmlDeviceGetSramEccErrorStatus"
    try:
        status = asker.nvml.c_nvmlEccSramErrorStatus_v1_t()
    except (AttributeError, TypeError):
        return
    try:
        asker.call(call, asker.handle, ctypes.byref(status))
    except RefusedError as refusal:
        asker.refused(("sram_threshold_exceeded",), refusal, call)
        return
    for field, value in words.sram(status).items():
        if field not in asker.known:
            asker.value(field, value, call)


def _sensors(asker: Asker, _deep: bool) -> None:
    asker.take_batch(calls.SENSOR_FIELDS, "sensors")
    for row in calls.SENSORS:
        asker.take(row)
    branch = asker.driver.split(".", 1)[0]
    if branch.isdecimal() and int(branch) >= calls.COUNTERS_FROM:
        asker.take_batch(calls.COUNTER_FIELDS, "throttle counters")


def _pcie(asker: Asker, _deep: bool) -> None:
    for row in calls.PCIE[:5]:
        asker.take(row)
    asker.take_batch(calls.PCIE_FIELDS, "PCIe counters")
    for row in calls.PCIE[5:]:
        asker.take(row)


def _settings(asker: Asker, _deep: bool) -> None:
    for row in calls.SETTINGS:
        asker.take(row)
    if asker.known.get("virtualization_mode") == "VGPU":
        function = "nvmlDeviceGetGridLicensableFeatures_v4"
        try:
            for field, value in asker.fields(function, convert=words.licence).items():
                asker.value(field, value, function)
        except RefusedError as refusal:
            asker.refused(("vgpu_license",), refusal, function)


def _fans(asker: Asker, _deep: bool) -> None:
    if "fan_pct" not in asker.known:
        return
    try:
        count = int(asker.fields("nvmlDeviceGetNumFans"))
    except RefusedError:
        return
    for fan in range(min(count, _MOST_FANS)):
        try:
            asker.item("fans", {"fan": fan, "pct": asker.fields("nvmlDeviceGetFanSpeed_v2", fan)})
        except RefusedError as refusal:
            asker.item("fans", {"fan": fan, "code": refusal.code, "error": refusal.text})


def _throughput(asker: Asker, deep: bool) -> None:
    if deep:
        for row in calls.THROUGHPUT:
            asker.take(row)


def _fabric(asker: Asker, _deep: bool) -> None:
    nvml, refusal = asker.nvml, RefusedError(13, words.error(13))
    for function, kind in (
        ("nvmlDeviceGetGpuFabricInfoV", "c_nvmlGpuFabricInfo_v3_t"),
        ("nvmlDeviceGetGpuFabricInfoV", "c_nvmlGpuFabricInfo_v2_t"),
        ("nvmlDeviceGetGpuFabricInfo", "c_nvmlGpuFabricInfo_t"),
    ):
        if not hasattr(nvml, kind):
            continue
        info = getattr(nvml, kind)()
        try:
            asker.call(function, asker.handle, ctypes.byref(info))
        except RefusedError as problem:
            refusal = problem
            if problem.code in _OLDER:
                continue
            break
        for field, value in words.fabric(info).items():
            asker.value(field, value, function)
        return
    asker.refused(("fabric_state",), refusal, "nvmlDeviceGetGpuFabricInfoV")


def _mig(asker: Asker, _deep: bool) -> None:
    if asker.known.get("mig_mode") != "Enabled":
        return
    try:
        most = min(int(asker.fields("nvmlDeviceGetMaxMigDeviceCount")), _MOST_MIG)
    except RefusedError as refusal:
        asker.refused(("mig_devices",), refusal, "nvmlDeviceGetMaxMigDeviceCount")
        return
    for number in range(most):
        try:
            handle = asker.fields("nvmlDeviceGetMigDeviceHandleByIndex", number)
        except RefusedError as refusal:
            if refusal.code not in (_NOT_FOUND, *_OLDER):
                asker.item("mig", {"device": number, "code": refusal.code, "error": refusal.text})
            continue
        asker.item("mig", _mig_device(asker, number, handle))


def _mig_device(asker: Asker, number: int, handle: Any) -> dict[str, Any]:
    told: dict[str, Any] = {"device": number}

    def ask(function: str, *args: Any) -> Any:
        try:
            return asker.call(function, handle, *args, of="MIG")
        except RefusedError as refusal:
            if refusal.code not in ABSENT:
                told.update(code=refusal.code, error=refusal.text, call=function)
            return None

    uuid, name = ask("nvmlDeviceGetUUID"), ask("nvmlDeviceGetName")
    gi, ci = ask("nvmlDeviceGetGpuInstanceId"), ask("nvmlDeviceGetComputeInstanceId")
    attributes, memory = ask("nvmlDeviceGetAttributes_v2"), ask("nvmlDeviceGetMemoryInfo")
    told.update(uuid=uuid, gi=None if gi is None else words.instance(gi), ci=None if ci is None else words.instance(ci))
    if isinstance(name, str) and "MIG " in name:
        told["profile"] = name.rsplit("MIG ", 1)[1][:40]
    if attributes is not None:
        told["sm_count"] = int(attributes.multiprocessorCount)
    if memory is not None:
        told.update(memory_total_mib=words.mib(memory.total), memory_used_mib=words.mib(memory.used))
    if asker.known.get("ecc_mode") == "Enabled":
        told["ecc_uncorrected_volatile"] = ask("nvmlDeviceGetMemoryErrorCounter", 1, 0, 7)
    return told


def _links(asker: Asker, _deep: bool) -> None:
    count = _link_count(asker)
    links: list[dict[str, Any]] = [{"link": number} for number in range(count)]
    if not links:
        return
    fields = [f._replace(scope=number) for number in range(count) for f in calls.LINK_FIELDS]
    if asker.known.get("architecture") in ("Blackwell", "Rubin"):
        fields += [f._replace(scope=number) for number in range(count) for f in calls.LINK5_FIELDS]
    try:
        for field, value, code in asker.batch(fields, "NVLinks"):
            if code is None:
                links[field.scope][field.field] = value
            elif code not in _OLDER | ABSENT:
                links[field.scope].update(
                    code=code, error=words.error(code), call=f"nvmlDeviceGetFieldValues/field {field.number}"
                )
    except RefusedError:
        pass  # asked one by one below
    for link in links:
        _link(asker, link)
        asker.item("nvlinks", link)


def _link_count(asker: Asker) -> int:
    """How many links the chip has; 0 where it has none."""
    try:
        told = asker.batch((calls.Field("nvlinks", 91),), "NVLink count")
    except RefusedError:
        told = []
    if told and told[0][2] is None:
        return min(int(told[0][1]), _MOST_LINKS)
    for number in range(_MOST_LINKS):
        try:
            asker.fields("nvmlDeviceGetNvLinkState", number)
        except RefusedError as refusal:
            if refusal.code in _OLDER | {_NOT_FOUND} or number == 0:
                return number
    return 0


def _link(asker: Asker, link: dict[str, Any]) -> None:
    """What the batch left open about one link, and who is at its other end."""
    number = link["link"]

    def ask(function: str, *args: Any) -> Any:
        try:
            return asker.fields(function, number, *args, of=f"link {number}")
        except RefusedError as refusal:
            if refusal.code not in _OLDER | ABSENT:
                link.update(code=refusal.code, error=refusal.text, call=f"{function}/link {number}")
            return None

    if "state" not in link:
        state = ask("nvmlDeviceGetNvLinkState")
        link["state"] = None if state is None else words.link_state(state)
    if link["state"] in (None, "inactive"):
        link.pop("speed_gbs", None)
        return
    if "version" not in link:
        version = ask("nvmlDeviceGetNvLinkVersion")
        link["version"] = None if version is None else words.link_version(version)
    if "replay_errors" not in link:
        for kind, name in enumerate(calls.LINK_ERRORS):
            link[name] = ask("nvmlDeviceGetNvLinkErrorCounter", kind)
    remote = ask("nvmlDeviceGetNvLinkRemotePciInfo")
    link["remote"] = None if remote is None else words.remote(remote)
    kind = ask("nvmlDeviceGetNvLinkRemoteDeviceType")
    link["remote_type"] = {0: "GPU", 1: "NPU", 2: "switch"}.get(kind)


def _processes(asker: Asker, deep: bool) -> list[int]:
    found: dict[tuple[int, int | None, int | None], dict[str, Any]] = {}
    for kind, function in (
        ("C", "nvmlDeviceGetComputeRunningProcesses"),
        ("G", "nvmlDeviceGetGraphicsRunningProcesses"),
        ("M", "nvmlDeviceGetMPSComputeRunningProcesses"),
    ):
        if kind not in asker.process_kinds:
            continue
        for process in _listed(asker, function):
            gi, ci = (words.instance(getattr(process, n, 0xFFFFFFFF)) for n in ("gpuInstanceId", "computeInstanceId"))
            row = found.setdefault(
                (int(process.pid), gi, ci), {"pid": int(process.pid), "kinds": set(), "gi": gi, "ci": ci}
            )
            row["kinds"].add(kind)
            row["memory_mib"] = words.mib(process.usedGpuMemory) if row.get("memory_mib") is None else row["memory_mib"]
    busy = _busy(asker) if deep and found else {}
    for row in list(found.values())[:_MOST_PROCESSES]:
        kinds = row.pop("kinds")
        row["type"] = "M+C" if "M" in kinds else "+".join(sorted(kinds))
        asker.item("processes", {**row, **busy.get(row["pid"], {})})
    if len(found) > _MOST_PROCESSES:
        asker.journal.tell("left_out", asker.index, f"{len(found) - _MOST_PROCESSES} processes")
    if deep and asker.known.get("accounting"):
        _accounting(asker)
    return [pid for pid, _, _ in found]


def _listed(asker: Asker, function: str) -> list[Any]:
    refusal = RefusedError(13, words.error(13))
    for version in ("_v3", "_v2"):
        try:
            return list(asker.fields(f"{function}{version}"))
        except RefusedError as problem:
            refusal = problem
            if problem.code not in (13, 25):
                break
    field = {"C": "processes", "G": "graphics_processes", "M": "mps_processes"}[function[len("nvmlDeviceGet")]]
    asker.refused((field,), refusal, function)
    return []


def _busy(asker: Asker) -> dict[int, dict[str, Any]]:
    """The last utilisation sample of each process."""
    try:
        samples = asker.fields("nvmlDeviceGetProcessUtilization", 0)
    except RefusedError:
        return {}  # none yet, or a card that takes none
    told: dict[int, dict[str, Any]] = {}
    for sample in sorted(samples, key=lambda s: int(s.timeStamp)):
        told[int(sample.pid)] = {"sm_pct": int(sample.smUtil), "memory_pct": int(sample.memUtil)}
    return told


def _accounting(asker: Asker) -> None:
    """What the driver recorded of processes, dead ones too."""
    try:
        pids = asker.fields("nvmlDeviceGetAccountingPids")
    except RefusedError as refusal:
        asker.refused(("accounting_pids",), refusal, "nvmlDeviceGetAccountingPids")
        return
    for pid in list(pids)[:500]:
        try:
            stats = asker.fields("nvmlDeviceGetAccountingStats", pid)
        except RefusedError:
            continue
        asker.item("accounting", {
            "pid": int(pid), "running": bool(stats.isRunning), "utilization_pct": int(stats.gpuUtilization),
            "memory_utilization_pct": int(stats.memoryUtilization), "memory_peak_mib": words.mib(stats.maxMemoryUsage),
            "time_ms": int(stats.time), "started_us": int(stats.startTime),
        })  # fmt: skip


_GROUPS: tuple[tuple[str, Callable[[Asker, bool], list[int] | None]], ...] = (
    ("state", _state),
    ("memory health", _memory_health),
    ("sensors", _sensors),
    ("PCIe", _pcie),
    ("settings", _settings),
    ("fans", _fans),
    ("MIG", _mig),
    ("fabric", _fabric),
    ("NVLink", _links),
    ("processes", _processes),
    ("PCIe throughput", _throughput),
)
_ALWAYS = frozenset(("state", "memory health"))
GROUP_NAMES = tuple(name for name, _ in _GROUPS)
