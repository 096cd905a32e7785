"""Facts of the GPUs for every tick: what the slower tiers told, with the numbers of this moment over it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

from gpuclinic.model import Document, Event, Fact, Gap, Where
from gpuclinic.observe._nvml_device import ABSENT
from gpuclinic.observe._nvml_fast import COLUMNS, NOT_ASKED
from gpuclinic.observe._nvml_panel import READ
from gpuclinic.observe._nvml_words import error as error_words
from gpuclinic.recognise.expectations import complete
from gpuclinic.recognise.parsers.nvidia_smi_fields import reasons_of_mask
from gpuclinic.recognise.parsers.nvml import nvml_facts, shown_value
from gpuclinic.recognise.possible import drop_impossible

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpuclinic.model import Scalar
    from gpuclinic.observe._nvml_panel import Record
    from gpuclinic.observe._nvml_sampler import Happening, Reading

LOOK = "gpu.nvml"
_SOURCE = "nvml"
_IDENTITY = (
    "tool", "index", "bus_id", "uuid", "serial", "minor_number", "name", "pci_id", "pci_subsystem_id", "board_part_number", "module_id",
    "board_id", "vbios_version", "compute_capability", "compute_family",
)  # fmt: skip
_LOST, _RESET, _UNKNOWN = 15, 16, 999
_TROUBLE = {_LOST: "GPU is lost", _RESET: "GPU requires reset", _UNKNOWN: "Unknown Error"}
_GONE = "not enumerated by NVML"
_UNREAD = "NVML was not read at this moment"
_WRAPS = 1 << 32
_EMPTY = Document(_SOURCE, "", name_hint="nvml.json")


_OF_ALL = frozenset(("nvml", "driver", "driver_component", "gpu_count"))
_OF_LINKS = frozenset(("nvlink", "nvlink_gpu"))


class _Device(NamedTuple):
    """What was told of a device, and the facts that were made of it."""

    core: dict[str, Any]
    links: list[dict[str, Any]] | None
    facts: list[Fact]


def _troubled(devices: list[dict[str, Any]]) -> bool:
    return any(device.get("hung") or device.get("crashed") for device in devices)


class GpuFacts:
    """Makes facts and events of readings. One instance sees all readings of a run.

    earlier: who was who, by NVML's index, as an earlier sampler of this boot knew it.
    """

    def __init__(self, earlier: Mapping[int, dict[str, Any]] | None = None) -> None:
        self._earlier = earlier or {}
        self._slow: list[Fact] = []
        self._gpus: dict[int, Fact] = {}
        self._past: dict[str, Fact] = {}
        self._lost: dict[str, str] = {}
        self._before: dict[int, Record] = {}
        self._of_device: dict[int, _Device] = {}
        self._count: int | None = None
        self._shown: dict[str, dict[int, tuple[Scalar, Where]]] = {}

    def take(self, reading: Reading, others: Iterable[Fact]) -> tuple[list[Fact], list[Event], list[Gap]]:
        """The facts of this moment, what has happened since the last, and what could not be looked at. others: facts of the host."""
        events = [event for happening in reading.happenings if (event := self._of_happening(happening)) is not None]
        if reading.changed:
            self._rebuild(reading.document, others)
        facts = [fact for fact in self._slow if fact.kind != "gpu"]
        gaps: list[Gap] = []
        for index, base in self._gpus.items():
            fact, trouble = self._now(index, base, reading.records.get(index))
            facts.append(fact)
            events += self._loss(fact, trouble)
            if why := _untold(fact):
                gaps.append(Gap(LOOK, f"GPU {fact.key}: {why}", required=True))
        facts += self._absent(events)
        if reading.why is not None and not self._gpus:
            gaps.append(Gap(LOOK, f"NVML: {reading.why}", required=True))
        events += [event for told in reading.events if (event := self._of_nvml(told)) is not None]
        return facts, events, gaps

    def _rebuild(self, document: dict[str, Any], others: Iterable[Fact]) -> None:
        devices = document.get("devices") or []
        self._count = document.get("count")
        self._slow = nvml_facts({**document, "devices": []}, _EMPTY)
        for place, fact in enumerate(self._slow):
            if fact.kind == "nvml":
                self._slow[place] = (
                    next(f for f in nvml_facts(document, _EMPTY) if f.kind == "nvml") if _troubled(devices) else fact
                )
        for device in devices:
            self._slow += self._device(document, self._identified(device))
        complete([*self._slow, *(fact for fact in others if fact.kind in ("pci_device", "power_budget"))], time.time())
        self._gpus = {
            int(index): fact
            for fact in self._slow
            if fact.kind == "gpu" and isinstance(index := fact.fields.get("index"), int)
        }
        for fact in self._gpus.values():
            for line in [line for line in fact.lines if line.startswith("throttle:")]:
                del fact.lines[line]  # each moment has its own
            if fact.fields.get("uuid") is not None:
                self._past[fact.key] = fact

    def _identified(self, device: dict[str, Any]) -> dict[str, Any]:
        """A device that tells nothing of itself, under the name that an earlier sampler of this boot knew it by."""
        known = self._earlier.get(int(device["index"]))
        if device.get("bus_id") is not None or known is None or len(self._earlier) != self._count:
            return device
        return {**device, **known}

    def _device(self, document: dict[str, Any], device: dict[str, Any]) -> list[Fact]:
        """The facts of a device; those of earlier where nothing of it has changed, for making them is what costs."""
        index = int(device["index"])
        core = {name: value for name, value in device.items() if name not in ("nvlinks", "seconds")}
        links = device.get("nvlinks")
        known = self._of_device.get(index)
        if known is None or known.core != core or known.links != links:
            same_links = known is not None and known.links == links and known.core.get("bus_id") == core.get("bus_id")
            given = core if same_links else device
            made = [f for f in nvml_facts({**document, "devices": [given]}, _EMPTY) if f.kind not in _OF_ALL]
            of_links = [f for f in (known.facts if same_links and known is not None else made) if f.kind in _OF_LINKS]
            known = _Device(core, links, [*(f for f in made if f.kind not in _OF_LINKS), *of_links])
            self._of_device[index] = known
        return known.facts

    # ---- one device

    def _now(self, index: int, base: Fact, record: Record | None) -> tuple[Fact, str | None]:
        """The fact of a device with this moment's numbers, and what is wrong with it where nothing of it can be read."""
        if base.fields.get("hung") or base.fields.get("crash_call") or record is None:
            # a tick without a reading (NVML is starting again): moving numbers of earlier are not of this moment
            fields = (
                dict(base.fields) if base.fields.get("hung") or base.fields.get("crash_call") else _without_moving(base)
            )
            return _with(base, fields, base.lines), None
        before, self._before[index] = self._before.get(index), record
        if record.state != READ or not any(code == 0 for code in record.codes):
            code = record.code if record.state != READ else _worst(record.codes)
            error = _TROUBLE.get(code) or error_words(code)
            return _bare(base, error, record.state != READ), error
        fields, lines, shown = dict(base.fields), dict(base.lines), self._shown.setdefault(base.key, {})
        name = f"GPU {index} {base.key}" if base.key != str(index) else f"GPU {index}"
        for place, column in enumerate(COLUMNS):
            code = record.codes[place]
            if code == NOT_ASKED:
                continue
            if code:
                if code not in ABSENT:
                    fields.pop(column.field, None)
                continue
            value: Scalar
            value = (
                _rate(before, record, place, column.factor) if column.counter else column.convert(record.values[place])
            )
            if value is None:
                fields.pop(column.field, None)
                continue
            fields[column.field] = value
            known = shown.get(place)
            if known is None or known[0] != value:
                function, _, of = column.call.partition("/")
                text = f"{function}({name}{', ' + of if of else ''}) = {shown_value(column.field, value)}"
                known = shown[place] = (value, Where(_SOURCE, None, text))
            lines[column.field] = known[1]
        drop_impossible(fields, lines)
        _throttling(fields, lines)
        return _with(base, fields, lines), None

    def _loss(self, fact: Fact, trouble: str | None) -> list[Event]:
        """An event when a GPU is lost, once, and one when it is back."""
        hung = fact.fields.get("hung") or fact.fields.get("crash_call")
        known = self._lost.get(fact.key)
        if trouble in (_TROUBLE[_LOST], _TROUBLE[_UNKNOWN]) and known is None:
            self._lost[fact.key] = str(trouble)
            return [
                self.event("gpu_lost", fact, f"GPU {fact.fields.get('index')} {fact.key}: {trouble}", error=trouble)
            ]
        if trouble is None and known is not None and not hung and fact.fields.get("uuid") is not None:
            del self._lost[fact.key]
            return [self.event("gpu_back", fact, f"GPU {fact.fields.get('index')} {fact.key} answers again")]
        return []

    def _absent(self, events: list[Event]) -> list[Fact]:
        """GPUs of earlier that NVML does not list now: lost, where it tells of all others; else not known at this moment."""
        here = {fact.key for fact in self._gpus.values()}
        missing = [fact for key, fact in self._past.items() if key not in here]
        named = sum(fact.fields.get("bus_id") is not None for fact in self._gpus.values())
        if not named or named != self._count:
            return [_with(fact, _without_moving(fact), fact.lines) for fact in missing]
        for fact in missing:
            if fact.key not in self._lost:
                self._lost[fact.key] = _GONE
                events.append(self.event("gpu_lost", fact, f"GPU {fact.key}: {_GONE}", error=_GONE))
        return [_bare(fact, _GONE, unreachable=True) for fact in missing]

    # ---- events

    def by_address(self, address: str | None) -> Fact | None:
        """The newest fact of the GPU at a PCI address."""
        return self._past.get(address or "")

    def event(self, kind: str, gpu: Fact | None, text: str, at: float | None = None, **fields: Scalar) -> Event:
        """An event about a GPU, with what tells the card and its place."""
        own = gpu.fields if gpu is not None else {}
        serial, key = own.get("serial"), gpu.key if gpu is not None else ""
        given = {"gpu_index": own.get("index"), "uuid": own.get("uuid"), **fields}
        return Event(
            time.time() if at is None else at, kind, key, text[:500], {k: v for k, v in given.items() if v is not None},
            str(serial) if serial else None, key or None,
        )  # fmt: skip

    def _of_happening(self, happening: Happening) -> Event | None:
        gpu = self._gpus.get(happening.device)
        name = (
            f"GPU {happening.device}" + (f" {gpu.key}" if gpu is not None else "") if happening.device >= 0 else "NVML"
        )
        call = f"{happening.call}()" if happening.call else "a call"
        if happening.what == "back":
            return self.event("gpu_back", gpu, f"{name} answers again")
        text = (
            f"{name}: {call} does not come back"
            if happening.what == "hung"
            else f"{name}: the library crashed in {call}"
        )
        return self.event(
            "gpu_hung", gpu, text, call=happening.call or None, after_s=happening.after_s or None,
            crashed=True if happening.what == "crashed" else None,
        )  # fmt: skip

    def _of_nvml(self, told: dict[str, Any]) -> Event | None:
        """An event that NVML told."""
        kind, device, data, at = told.get("kind"), told.get("device"), told.get("data"), told.get("at")
        if not isinstance(kind, str) or not isinstance(device, int) or not isinstance(data, int):
            return None
        gpu = self._gpus.get(device)
        moment = float(at) if isinstance(at, int | float) else None
        name = f"GPU {device} {gpu.key}" if gpu is not None else f"GPU {device}"
        instance = {"gi": told.get("gi"), "ci": told.get("ci")}
        if kind == "xid":
            return self.event("xid", gpu, f"NVML: Xid {data} of {name}", moment, code=data, source="nvml", **instance)
        text = f"NVML: {kind.replace('_', ' ')} of {name} ({data})"
        return self.event("ecc", gpu, text, moment, what=kind, data=data, source="nvml", **instance)


def _rate(before: Record | None, record: Record, place: int, factor: float) -> float | None:
    """Growth of a counter a second; None at the first reading, and where it was set back."""
    if before is None or before.state != READ or before.codes[place] or record.at <= before.at:
        return None
    grown = record.values[place] - before.values[place]
    if grown < 0 and before.values[place] < _WRAPS:
        grown += _WRAPS
    return round(grown * factor / (record.at - before.at), 1) if 0 <= grown < _WRAPS * 16 else None


def _worst(codes: Iterable[int]) -> int:
    told = set(codes) - {0, NOT_ASKED} - ABSENT
    return next((code for code in (_LOST, _RESET) if code in told), max(told, default=_UNKNOWN))


def _throttling(fields: dict[str, Scalar], lines: dict[str, Where]) -> None:
    """The words for the mask, in place of those of the slower tier."""
    mask = fields.get("throttle_mask")
    if not isinstance(mask, int):
        return
    fields["throttle_mask"] = f"0x{mask:016x}"
    place = lines["throttle_mask"]
    reasons = reasons_of_mask(mask)
    fields.pop("throttle_active", None)
    if reasons:
        fields["throttle_active"] = ", ".join(reasons)
        lines["throttle_active"] = place
        for reason in reasons:
            lines[f"throttle:{reason}"] = Where(place.source, None, f"{place.text} ({reason})")


_MOVING = frozenset((*(column.field for column in COLUMNS), "throttle_active"))


def _without_moving(base: Fact) -> dict[str, Scalar]:
    return {name: value for name, value in base.fields.items() if name not in _MOVING} | {"not_asked": _UNREAD}


def _with(base: Fact, fields: dict[str, Scalar], lines: dict[str, Where]) -> Fact:
    return Fact(base.kind, base.key, fields, lines, base.source)


def _bare(base: Fact, error: str, unreachable: bool) -> Fact:
    """A GPU that is lost: who it is, and what NVML says instead of values."""
    fields: dict[str, Scalar] = {
        name: value for name, value in base.fields.items() if name in _IDENTITY or name.startswith("sku_")
    }
    fields["error"] = error
    if unreachable:
        fields["unreachable"] = True
    place = Where(_SOURCE, None, f"NVML(GPU {fields.get('index')} {base.key}): {error}")
    lines = {name: where for name, where in base.lines.items() if name in fields}
    return _with(base, fields, {**lines, "": place, "error": place})


def _untold(fact: Fact) -> str | None:
    """Why nothing is told of a GPU, where that is so."""
    if fact.fields.get("hung"):
        return f"{fact.fields.get('hung_call') or 'a call'} hung; it is left alone and tried again once a minute"
    if fact.fields.get("crash_call"):
        return f"the library crashed in {fact.fields['crash_call']}; it is tried again once a minute"
    if fact.fields.get("unreachable"):
        return str(fact.fields.get("error"))
    told = fact.fields.get("not_asked")
    return str(told) if told else None


def gpu_pids(facts: Iterable[Fact]) -> dict[int, Fact]:
    """Processes on GPUs by number, each with the first fact that names it."""
    out: dict[int, Fact] = {}
    for fact in facts:
        pid = fact.fields.get("pid")
        if fact.kind == "gpu_process" and isinstance(pid, int):
            out.setdefault(pid, fact)
    return out
