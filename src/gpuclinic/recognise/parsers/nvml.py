"""What NVML answered (docs/nvml.md), live or kept as nvml.json, as facts. The document may be made by anybody."""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Any

from gpuclinic.model import Where
from gpuclinic.recognise.parsers.gpu_text import Draft, Scalar, pci_address
from gpuclinic.recognise.parsers.nvidia_smi_fields import FLAGS, FLOATS, TEXTS, finish, reasons_of_mask

if TYPE_CHECKING:
    from gpuclinic.model import Document, Fact

_FLAGS = FLAGS | {
    "inforom_valid", "gsp_enabled", "gsp_default", "display_attached", "fabric_partition_assigned", "fabric_manager_connected",
}  # fmt: skip
_FLOATS = FLOATS | {"energy_j"}
_TEXTS = (TEXTS - {"throttle_mask"}) | {
    "pci_id", "pci_subsystem_id", "board_part_number", "inforom_version", "brand", "fabric_cluster",
}  # fmt: skip
_OWN = {"uuid": "uuid", "serial": "serial", "minor": "minor_number", "name": "name"}
_ABSENT = frozenset((2, 3, 6, 13, 21, 22, 25, 26))
"""NVML's codes for what a card or driver has not got: not supported, unknown to an older driver, nothing there."""

_NO_PERMISSION = 4
_TROUBLE = {15: "GPU is lost", 16: "GPU requires reset", 999: "Unknown Error"}
_UNITS = {"w": " W", "mib": " MiB", "mhz": " MHz", "c": " °C", "pct": " %", "us": " µs", "kbs": " KB/s", "j": " J"}
_FIELD = re.compile(r"[a-z][a-z0-9_]{0,59}")
_CALL = re.compile(r"[A-Za-z_]\w{0,79}(?:/[\w ,.-]{1,80})?")
_MOST_DEVICES, _MOST_FIELDS, _MOST_ITEMS, _LONGEST = 256, 500, 4000, 300
_LINK_ERRORS = ("error", "recovery", "replay", "crc")
_UP = ("active", "sleep")
_START_REASONS = {4: "no_permission", 9: "driver_not_loaded", 12: "library_missing", 18: "mismatch"}
_LOAD_REASONS = {
    "missing": "library_missing", "unreadable": "library_unreadable", "foreign": "library_foreign",
    "bindings": "bindings_missing",
}  # fmt: skip
_DENIED = {"EPERM": "device_denied", "EACCES": "no_permission"}


def parse_nvml(document: Document) -> list[Fact]:
    """Facts gpu, gpu_process, gpu_accounting, mig_device, nvlink, nvlink_gpu, driver, driver_component, gpu_count and nvml."""
    content = _content(document.text)
    return nvml_facts(content, document) if content is not None else []


def nvml_facts(content: dict[str, Any], document: Document) -> list[Fact]:
    """The same of what the document's text holds, where that was never written as text."""
    reader = _Reader(document, content)
    facts = [reader.nvml(), *reader.versions()]
    for device in _objects(content.get("devices"), _MOST_DEVICES):
        facts += reader.device(device)
    return facts


def _content(text: str) -> dict[str, Any] | None:
    try:
        value = _DECODER.decode(text)
    except (ValueError, RecursionError):
        return _salvaged(text)
    return value if isinstance(value, dict) and "gpuclinic_nvml" in value else None


def _whole(text: str) -> int | None:
    return int(text) if len(text) <= 20 else None


_DECODER = json.JSONDecoder(parse_constant=lambda _name: None, parse_int=_whole)


def _salvaged(text: str) -> dict[str, Any] | None:
    """The whole parts of a document that was cut or damaged."""
    if '"gpuclinic_nvml"' not in text:
        return None

    def at(place: int) -> Any:
        try:
            return _DECODER.raw_decode(text, place)[0]
        except (ValueError, RecursionError):
            return None

    told: dict[str, Any] = {"cut": True}
    for key in ("asked_for", "library", "init", "system", "count", "calls", "seconds"):
        found = re.search(rf'"{key}"\s*:\s*', text)
        told[key] = at(found.end()) if found else None
    starts = [found.start() for found in re.finditer(r'\{\s*"index"\s*:', text)][:_MOST_DEVICES]
    told["devices"] = [device for device in map(at, starts) if isinstance(device, dict)]
    return told


def _objects(value: object, most: int = _MOST_ITEMS) -> list[dict[str, Any]]:
    return [row for row in value[:most] if isinstance(row, dict)] if isinstance(value, list) else []


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _real(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def _text(value: object) -> str | None:
    return value[:_LONGEST] if isinstance(value, str) and value else None


def _fitting(field: str, value: object) -> Scalar:
    """The value where it is of the field's type; None where it is not."""
    if field in _TEXTS:
        return _text(value)
    if field in _FLAGS:
        return value if isinstance(value, bool) else None
    if field in _FLOATS:
        return _real(value)
    return _number(value)


def shown_value(field: str, value: Scalar) -> str:
    """A value as evidence shows it."""
    if isinstance(value, bool):
        return str(int(value))
    unit = _UNITS.get(field.rpartition("_")[2], "")
    return f"{value:.12g}{unit}" if isinstance(value, float) else f"{value}{unit}"


def _by_signal(crash: dict[str, Any]) -> str:
    """By which signal a process ended, where that is known."""
    number = _number(crash.get("signal"))
    return "" if number is None else f", signal {number}"


class _Reader:
    """Makes the facts of one document."""

    def __init__(self, document: Document, content: dict[str, Any]) -> None:
        self.document = document
        self.content = content
        self.calls = _object(content.get("calls"))

    def _draft(self, kind: str, key: str, text: str) -> Draft:
        draft = Draft(self.document, kind, key)
        draft.lines[""] = Where(self.document.source, None, text[:500])
        return draft

    def _fact(self, kind: str, key: str, fields: dict[str, Scalar], text: str) -> Fact:
        draft = self._draft(kind, key, text)
        draft.fields.update({name: value for name, value in fields.items() if value is not None})
        return draft.fact()

    def nvml(self) -> Fact:
        """How NVML itself did: whether it loaded and started, and why not."""
        init, devices = _object(self.content.get("init")), _objects(self.content.get("devices"), _MOST_DEVICES)
        code, error = _number(init.get("code")), _text(init.get("error")) or _text(init.get("count_error"))
        call = _call(init)
        hung_s = _real(init.get("hung_s"))
        hung = [str(_number(d.get("index"))) for d in devices if d.get("hung") or d.get("crashed")]
        fields: dict[str, Scalar] = {
            "reason": _reason(self.content),
            "library": _text(self.content.get("library")),
            "asked_for": _text(self.content.get("asked_for")),
            "code": code if code is not None else _number(init.get("count_code")),
            "error": error,
            "hung_s": hung_s,
            "hung_call": call if "hung_s" in init else None,
            "seconds": _real(self.content.get("seconds")),
            "devices": _number(self.content.get("count")),
            "hung_devices": ",".join(hung) or None,
            "stuck": len(_objects(self.content.get("stuck"))),
            "module_version": _text(init.get("module_version")),
            "control_device": _text(init.get("control_device")),
            "elsewhere": ", ".join(_elsewhere(init)) or None,
            "names_hung": True if self.content.get("names_hung") else None,
            "cut": True if self.content.get("cut") is True else None,
        }
        crash = _object(init.get("crashed"))
        if crash:
            fields.update(
                crash_call=_call(crash),
                crash_signal=_number(crash.get("signal")),
                error=_text(crash.get("error")) or error,
            )
        if "hung_s" in init:
            shown = f"{call}() did not return" + (f" for {hung_s:g} s" if hung_s else "")
        elif crash:
            shown = f"{_call(crash) or 'NVML'}() ended the process that called it{_by_signal(crash)}"
        elif code == 0:
            shown = f"nvmlDeviceGetCount() = {fields['devices']}"
        elif code is None:
            shown = f"{call or 'nvmlInitWithFlags'}(): {error or 'no answer'}"
        else:
            shown = f"{call or 'nvmlInitWithFlags'}() = {code}: {error}"
        return self._fact("nvml", "nvml", fields, shown)

    def versions(self) -> list[Fact]:
        """Driver, NVML and the number of devices."""
        system, facts = _object(self.content.get("system")), []
        version, cuda = _text(system.get("driver_version")), _text(system.get("cuda_driver_version"))
        if version:
            fields: dict[str, Scalar] = {"version": version, "cuda_version": cuda, "tool": "nvml"}
            facts.append(self._fact("driver", "nvml", fields, f"nvmlSystemGetDriverVersion() = {version}"))
        library = _text(system.get("nvml_version"))
        if library:
            # NVML's own version is CUDA's major version, then the driver that the library came with
            own = (
                library.partition(".")[2]
                if library.count(".") >= 2 and len(library.partition(".")[0]) <= 2
                else library
            )
            told: dict[str, Scalar] = {"component": "nvml", "version": own}
            facts.append(self._fact("driver_component", "nvml", told, f"nvmlSystemGetNVMLVersion() = {library}"))
        count = _number(self.content.get("count"))
        if count is not None:
            facts.append(
                self._fact("gpu_count", "nvml", {"value": count, "tool": "nvml"}, f"nvmlDeviceGetCount() = {count}")
            )
        return facts

    def device(self, device: dict[str, Any]) -> list[Fact]:
        """Everything about one device."""
        index = _number(device.get("index"))
        if index is None or not 0 <= index < _MOST_DEVICES:
            return []
        bus = pci_address(_text(device.get("bus_id")) or "")
        key = bus or str(index)
        name = f"GPU {index} {bus}" if bus else f"GPU {index}"
        gpu = self._draft("gpu", key, name)
        gpu.fields.update(tool="nvml", index=index)
        if bus:
            gpu.fields["bus_id"] = bus
        own_calls = _object(device.get("calls"))
        self._values(gpu, device, name, own_calls)
        self._errors(gpu, device, name)
        self._hung(gpu, device, name)
        more = [*self._processes(gpu, device, name), *self._instances(gpu, device, name)]
        finish(gpu)
        return [gpu.fact(), *more, *self._links(gpu, device, name)]

    def _values(self, gpu: Draft, device: dict[str, Any], name: str, own_calls: dict[str, Any]) -> None:
        rows = [(field, own, device.get(own)) for own, field in _OWN.items()]
        rows += [
            (str(field), str(field), value)
            for field, value in list(_object(device.get("values")).items())[:_MOST_FIELDS]
        ]
        for field, told, value in rows:
            fitting = (
                _fitting(field, value) if _FIELD.fullmatch(field) and field not in ("index", "tool", "bus_id") else None
            )
            if fitting is None:
                continue
            gpu.fields[field] = fitting
            call = own_calls.get(told) or self.calls.get(told)
            gpu.lines[field] = self._place(call, name, shown_value(field, fitting))
        mask = gpu.fields.pop("throttle_mask", None)
        if isinstance(mask, int) and mask >= 0:
            place = gpu.lines["throttle_mask"]
            gpu.fields["throttle_mask"] = f"0x{mask:016x}"
            reasons = reasons_of_mask(mask)
            if reasons:
                gpu.fields["throttle_active"] = ", ".join(reasons)
                gpu.lines["throttle_active"] = place
            for reason in reasons:
                gpu.lines[f"throttle:{reason}"] = Where(place.source, None, f"{place.text} ({reason})"[:500])

    def _place(self, call: object, name: str, shown: str) -> Where:
        """The call that shows a value: "nvmlDeviceGetTemperature(GPU 1 0000:3b:00.0, GPU) = 61 °C"."""
        function, _, of = (call if isinstance(call, str) and _CALL.fullmatch(call) else "NVML").partition("/")
        return Where(self.document.source, None, f"{function}({name}{', ' + of if of else ''}) = {shown}"[:500])

    def _errors(self, gpu: Draft, device: dict[str, Any], name: str) -> None:
        lists: dict[str, list[str]] = {"unsupported": [], "denied": [], "unreadable": []}
        cells, worst = 0, 0
        for field, refusal in list(_object(device.get("errors")).items())[:_MOST_FIELDS]:
            if not isinstance(refusal, dict) or not _FIELD.fullmatch(str(field)):
                continue
            code = _number(refusal.get("code"))
            group = "unsupported" if code in _ABSENT else "denied" if code == _NO_PERMISSION else "unreadable"
            lists[group].append(str(field))
            place = self._refusal(refusal, name)
            if group == "unreadable":
                gpu.lines[f"unreadable:{field}"] = place
                gpu.lines.setdefault("unreadable", place)
            if field == "fan_pct":
                gpu.fields.update({"fan_pct": None} if group == "unsupported" else {"fan_error": True})
            if code in _TROUBLE:
                cells += 1
                if not worst or (worst == 999 and code != 999):
                    worst = code or 0
                    gpu.fields["error"] = _TROUBLE[worst]
                    gpu.lines["error"] = place
            if field in ("handle", "init"):
                gpu.fields["unreachable"] = True
                gpu.lines["unreachable"] = place
                gpu.fields.setdefault("error", _text(refusal.get("error")) or f"error {code}")
                gpu.lines.setdefault("error", place)
        if cells:
            gpu.fields["error_cells"] = cells
        for group, fields in lists.items():
            if fields:
                gpu.fields[group] = ",".join(sorted(fields))[:4000]

    def _refusal(self, refusal: dict[str, Any], name: str) -> Where:
        function, _, of = (_call(refusal) or "NVML").partition("/")
        shown = f"{_number(refusal.get('code'))}: {_text(refusal.get('error'))}"
        return Where(self.document.source, None, f"{function}({name}{', ' + of if of else ''}) = {shown}"[:500])

    def _hung(self, gpu: Draft, device: dict[str, Any], name: str) -> None:
        hung, crash = device.get("hung"), device.get("crashed")
        if isinstance(hung, dict):
            call, after = _call(hung), _real(hung.get("after_s"))
            stuck = _object(hung.get("stuck"))
            shown = f"{call}({name}) did not return" + (f" for {after:g} s" if after is not None else "")
            if stuck:
                shown += f"; process {_number(stuck.get('pid'))} is stuck in it, state {_text(stuck.get('state'))}"
            gpu.fields.update(hung=True, hung_call=call, hung_s=after)
            if stuck:
                gpu.fields.update(hung_pid=_number(stuck.get("pid")), hung_state=_text(stuck.get("state")))
                gpu.fields.update(hung_wchan=_text(stuck.get("wchan")), hung_since=_real(stuck.get("since")))
            gpu.lines["hung"] = gpu.lines["hung_call"] = Where(self.document.source, None, shown[:500])
        elif isinstance(crash, dict):
            gpu.fields.update(crash_call=_call(crash), crash_signal=_number(crash.get("signal")))
            shown = f"{_call(crash)}({name}) ended the process that called it{_by_signal(crash)}"
            gpu.lines["crash_call"] = Where(self.document.source, None, shown)
        missed = _text(device.get("not_asked"))
        if missed:
            gpu.fields["not_asked"] = missed
        left = device.get("left_out")
        if isinstance(left, list):
            gpu.fields["left_out"] = ",".join(str(_text(part)) for part in left[:20]) or None
        gpu.fields["seconds"] = _real(device.get("seconds"))
        for field in [f for f, v in gpu.fields.items() if v is None and f != "fan_pct"]:
            del gpu.fields[field]

    def _processes(self, gpu: Draft, device: dict[str, Any], name: str) -> list[Fact]:
        facts: list[Fact] = []
        rows = [row for row in _objects(device.get("processes")) if (_number(row.get("pid")) or 0) > 0]
        seen: set[str] = set()
        for row in rows:
            pid, gi, memory, called = (
                row["pid"],
                _number(row.get("gi")),
                _number(row.get("memory_mib")),
                row.get("name"),
            )
            key = f"{gpu.key}/{pid}" if f"{gpu.key}/{pid}" not in seen else f"{gpu.key}/{pid}/{gi}"
            seen.add(key)
            fields: dict[str, Scalar] = {
                "pid": pid, "type": _text(row.get("type")), "memory_mib": memory, "gi": gi, "ci": _number(row.get("ci")),
                "name": _text(called), "name_missing": called in ("", "[Not Found]") if isinstance(called, str) else None,
                "sm_pct": _number(row.get("sm_pct")), "memory_pct": _number(row.get("memory_pct")),
                "gpu_key": gpu.key, "gpu_index": gpu.fields["index"], "bus_id": gpu.fields.get("bus_id"),
            }  # fmt: skip
            shown = "unknown" if memory is None else f"{memory} MiB"
            facts.append(
                self._fact(
                    "gpu_process", key, fields, f"NVML({name}) process {pid} type {fields['type']}, memory {shown}"
                )
            )
        if self._lists_processes(gpu, device):
            sizes = [_number(row.get("memory_mib")) for row in rows]
            gpu.fields.update(
                processes=len(rows),
                compute_processes=sum("C" in str(row.get("type")) for row in rows),
                process_memory_mib=sum(size for size in sizes if size is not None),
                process_memory_known=all(size is not None for size in sizes),
            )
        for row in _objects(device.get("accounting")):
            if (_number(row.get("pid")) or 0) > 0:
                kept = {k: row.get(k) for k in _ACCOUNTING if isinstance(row.get(k), bool | int)}
                told: dict[str, Scalar] = {**kept, "gpu_key": gpu.key, "gpu_index": gpu.fields["index"]}
                text = f"nvmlDeviceGetAccountingStats({name}, pid {row['pid']}): most memory {row.get('memory_peak_mib')} MiB"
                facts.append(
                    self._fact("gpu_accounting", f"{gpu.key}/{row['pid']}/{row.get('started_us')}", told, text)
                )
        return facts

    @staticmethod
    def _lists_processes(gpu: Draft, device: dict[str, Any]) -> bool:
        """All lists of processes were answered, so that no process is a statement, too."""
        if gpu.fields.get("hung") or device.get("crashed") or device.get("not_asked") or gpu.fields.get("unreachable"):
            return False
        unread = f"{gpu.fields.get('unreadable')},{gpu.fields.get('denied')},{gpu.fields.get('unsupported')}".split(",")
        return "processes" not in unread and "processes" not in str(gpu.fields.get("left_out"))

    def _instances(self, gpu: Draft, device: dict[str, Any], name: str) -> list[Fact]:
        facts: list[Fact] = []
        rows = [row for row in _objects(device.get("mig")) if _number(row.get("device")) is not None]
        for row in rows:
            whole = (
                "device",
                "gi",
                "ci",
                "sm_count",
                "memory_used_mib",
                "memory_total_mib",
                "ecc_uncorrected_volatile",
                "code",
            )
            fields: dict[str, Scalar] = {field: _number(row.get(field)) for field in whole}
            fields |= {field: _text(row.get(field)) for field in ("profile", "uuid", "error")}
            fields |= {"gpu_index": gpu.fields["index"], "bus_id": gpu.fields.get("bus_id")}
            shown = (
                f"nvmlDeviceGetMigDeviceHandleByIndex({name}, {row['device']}) = {fields['profile'] or fields['error']}"
            )
            facts.append(self._fact("mig_device", f"{gpu.fields['index']}/{row['device']}", fields, shown))
        if gpu.fields.get("mig_mode") == "Enabled" and not gpu.fields.get("hung"):
            gpu.fields["mig_devices"] = len(rows)
        return facts

    def _links(self, gpu: Draft, device: dict[str, Any], name: str) -> list[Fact]:
        rows = [row for row in _objects(device.get("nvlinks")) if _number(row.get("link")) is not None]
        if not rows:
            return []
        index = gpu.fields["index"]
        whole = self._draft("nvlink_gpu", str(index), f"{name}: {len(rows)} NVLinks")
        own = {
            "gpu_index": index,
            "gpu_key": gpu.key,
            "bus_id": gpu.fields.get("bus_id"),
            "name": gpu.fields.get("name"),
        }
        whole.fields.update({**own, "uuid": gpu.fields.get("uuid"), "links": len(rows)})
        facts: list[Fact] = []
        up, speeds = 0, set()
        for row in rows:
            fact = self._link(row, {field: value for field, value in own.items() if value is not None}, name)
            facts.append(fact)
            state = fact.fields.get("state")
            up += state in _UP
            speeds.add(fact.fields.get("speed_gbs") if state in _UP else None)
            if state is not None and state not in _UP and "first_inactive" not in whole.fields:
                whole.fields["first_inactive"] = row["link"]
                whole.lines["inactive"] = fact.lines["state"]
        known = sum(fact.fields.get("state") is not None for fact in facts)
        whole.fields.update(active=up, inactive=known - up, speeds=len(speeds - {None}))
        whole.fields["state"] = (
            "unreadable" if not known else "active" if up == known else "partial" if up else "inactive"
        )
        return [whole.fact(), *facts]

    def _link(self, row: dict[str, Any], own: dict[str, Scalar], name: str) -> Fact:
        link = row["link"]
        draft = self._draft("nvlink", f"{own['gpu_index']}/{link}", f"{name} link {link}: {row.get('state')}")
        draft.fields.update(own, link=link)
        for field, value in list(row.items())[:60]:
            kept = (
                _text(value) if isinstance(value, str) else _number(value) if isinstance(value, int) else _real(value)
            )
            if field == "link" or kept is None or not _FIELD.fullmatch(field) or field in own:
                continue
            draft.fields[field] = kept
            shown = shown_value(field, kept) + (" GB/s" if field == "speed_gbs" else "")
            draft.lines[field] = Where(
                self.document.source, None, f"NVML({name}, link {link}): {field} = {shown}"[:500]
            )
            if (
                "ber" not in field.split("_")
                and any(w in field for w in _LINK_ERRORS)
                and not isinstance(kept, str)
                and kept > 0
            ):
                total = draft.fields.get("errors")
                draft.fields["errors"] = (total if isinstance(total, int | float) else 0) + kept
                draft.fields["worst_error"] = field.replace("_", " ")
                draft.lines["errors"] = draft.lines[field]
        return draft.fact()


_ACCOUNTING = (
    "pid", "running", "utilization_pct", "memory_utilization_pct", "memory_peak_mib", "time_ms", "started_us",
)  # fmt: skip


def _call(told: dict[str, Any]) -> str | None:
    """The call of a refusal or a hang, with what it was asked for."""
    call, of = _text(told.get("call")), _text(told.get("of"))
    return f"{call}/{of}"[:120] if call and of else call


def _elsewhere(init: dict[str, Any]) -> list[str]:
    """Where a library of that name lies though it was not loaded."""
    found = [(_text(row.get("path")), _text(row.get("machine"))) for row in _objects(init.get("elsewhere"), 8)]
    return [f"{path} ({machine})" if machine else path for path, machine in found if path]


def _reason(content: dict[str, Any]) -> str:
    """Why NVML tells nothing, as an id that names the fix; "ok" where it tells."""
    init = _object(content.get("init"))
    code, device = _number(init.get("code")), init.get("control_device")
    if "hung_s" in init:
        return "hung"
    if init.get("crashed"):
        return "crashed"
    if init.get("load"):
        return _LOAD_REASONS.get(str(init["load"]), "failed")
    if code == 0:
        count = _number(content.get("count"))
        return "failed" if count is None else "ok" if count else "no_devices"
    if code in (9, 17, 999) and device in _DENIED:
        return _DENIED[
            str(device)
        ]  # the driver runs, its device is closed to us: a user's rights, or a container's cgroup
    if code == 9 and (init.get("module_version") or init.get("module_text")) and device == "missing":
        return "no_device_nodes"
    return _START_REASONS.get(code, "failed") if code is not None else "failed"
