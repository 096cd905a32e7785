"""Puts together what the children told: the document of docs/nvml.md. A child's words are checked, a library ran in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpuclinic.observe._nvml_journal import NAMES, Now, records

if TYPE_CHECKING:
    import mmap

    from gpuclinic.observe._stuck import Stuck

_MOST_DEVICES = 256
_MOST_SLOW = 20
_MOST_ITEMS = 4000
_OWN = ("bus_id", "uuid", "serial", "minor", "name")
"""Fields that stand at the device's own level; the rest is under "values"."""

_ABSENT = (3, 13, 22, 26)


def called(name: str) -> dict[str, Any]:
    """A call as "nvmlDeviceGetTemperatureThreshold/SLOWDOWN" in its parts."""
    function, _, of = name.partition("/")
    return {"call": function or "between calls", **({"of": of} if of else {})}


class Answers:
    """All that was told, by whichever child."""

    def __init__(self) -> None:
        self.library: str | None = None
        self.init: dict[str, Any] = {}
        self.system: dict[str, Any] = {}
        self.count: int | None = None
        self.stuck: list[dict[str, Any]] = []
        self._devices: dict[int, dict[str, Any]] = {}
        self._calls: dict[str, str] = {}
        self._slow: list[tuple[str, float, int]] = []
        self._names: dict[int, str] = {}
        self._names_hung: dict[str, Any] | None = None
        self._finished: set[int] = set()
        self._failure: str | None = None

    def device(self, index: int) -> dict[str, Any]:
        """The part of the document about one device, made if need be."""
        return self._devices.setdefault(
            index, {"index": index, **dict.fromkeys(_OWN), "values": {}, "errors": {}, "calls": {}, "hung": None}
        )

    def finished(self) -> set[int]:
        """Devices about which everything was told, or that are not to be asked."""
        return set(self._finished)

    def bus_id(self, index: int) -> str | None:
        """The address of a device, where it was told."""
        found = self._devices.get(index, {}).get("bus_id")
        return found if isinstance(found, str) else None

    def gather(self, memory: mmap.mmap, alone: int | None = None) -> None:
        """Takes all that a child told. alone: the one device that a later child was started for."""
        for record in records(memory):
            kind, *parts = record
            take = getattr(self, f"_take_{kind}", None)
            if take is None:
                continue
            try:
                take(alone, *parts)
            except (TypeError, ValueError, AttributeError):
                continue  # not as our child writes it

    def _take_library(self, _alone: int | None, path: str | None) -> None:
        self.library = self.library or path

    def _take_init(self, alone: int | None, told: dict[str, Any]) -> None:
        if alone is None:
            self.init.update(told)
        elif told.get("code") != 0 and "error" in told:
            self.device(alone)["errors"]["init"] = {
                "code": told.get("code"), "error": told["error"], **called(str(told.get("call", "dlopen"))),
            }  # fmt: skip

    def _take_system(self, _alone: int | None, key: str, value: Any) -> None:
        if key == "cuda_driver":
            self.system["cuda_driver_version"] = f"{int(value) // 1000}.{int(value) % 1000 // 10}"
        else:
            self.system[str(key)] = str(value)

    def _take_count(self, alone: int | None, count: int) -> None:
        if alone is None:
            self.count = int(count)

    def _take_device(self, _alone: int | None, index: int) -> None:
        if 0 <= int(index) < _MOST_DEVICES:
            self.device(int(index))

    def _take_value(self, _alone: int | None, index: int, field: str, value: Any, call: str) -> None:
        device = self._devices[index] if index in self._devices else self.device(int(index))
        if field in _OWN:
            device[field] = value
        else:
            device["values"][field] = value
        device["errors"].pop(field, None)
        device["calls"].pop(field, None)
        if self._calls.setdefault(field, call) != call:
            device["calls"][field] = call

    def _take_error(self, _alone: int | None, index: int, field: str, code: int | None, text: str, call: str) -> None:
        errors = self.device(int(index))["errors"]
        known = errors.get(field)
        if known is None or (known["code"] in _ABSENT and code not in _ABSENT):
            errors[field] = {"code": code, "error": text, **called(call)}

    def _take_item(self, _alone: int | None, index: int, group: str, content: dict[str, Any]) -> None:
        items = self.device(int(index)).setdefault(str(group), [])
        if isinstance(items, list) and isinstance(content, dict) and len(items) < _MOST_ITEMS:
            items.append(content)

    def _take_left_out(self, _alone: int | None, index: int, what: str) -> None:
        self.device(int(index)).setdefault("left_out", []).append(str(what))

    def _take_told(self, _alone: int | None, index: int, seconds: float) -> None:
        self._finished.add(int(index))
        self.device(int(index))["seconds"] = float(seconds)

    def _take_slow(self, _alone: int | None, index: int, call: str, ms: float) -> None:
        self._slow.append((str(call), float(ms), int(index)))

    def _take_name(self, _alone: int | None, pid: int, name: str) -> None:
        self._names[int(pid)] = str(name)

    def _take_failed(self, _alone: int | None, text: str) -> None:
        self._failure = str(text)

    def hung(
        self, at: Now, moment: float, begun: float, alone: int | None = None, fair: float = 0.0, *, busy: bool = False
    ) -> None:
        """A child was given up where it was. moment, begun: now and the start of its stage, on the monotonic clock.

        fair: seconds that a call must have had to be called hung; one that was cut off earlier proves nothing.
        busy: the child had to wait for a processor for most of its life, which proves nothing either.
        """
        where = called(at.call)
        if at.stage == NAMES:
            self._names_hung = where
            return
        index = at.stage if 0 <= at.stage < _MOST_DEVICES else alone
        spent = round(max(0.0, moment - (at.call_since if at.call else begun)), 2)
        if index is None:
            self._start_hung(where if at.call else {}, round(moment - begun, 2), busy=busy or spent < fair)
            return
        self._finished.add(index)
        device = self.device(index)
        device["seconds"] = round(moment - begun, 4)
        if not 0 <= at.stage < _MOST_DEVICES:  # beside a call that hangs; that says nothing of this device
            device["not_asked"] = f"NVML did not start again within {spent:g} s ({where['call']})"
        elif busy or spent < fair:
            why = f"no time was left in {where['call']}, which had {spent:g} s"
            device["not_asked"] = f"{why}: this machine had no processor free" if busy else why
        else:
            device["hung"] = {**where, "after_s": spent}

    def _start_hung(self, where: dict[str, Any], seconds: float, *, busy: bool) -> None:
        """The child did not come as far as the devices. A library that is known not to load cannot hang."""
        if self.init.get("load"):
            return
        if where and not busy:
            self.init.update(hung_s=seconds, **where)
            return
        why = "this machine had no processor free for it" if busy else "it was not in a call of the library"
        self.init.update(code=None, error=f"NVML had not started within {seconds:g} s; {why}", load="no_answer")

    def crashed(self, at: Now, number: int | None, alone: int | None = None) -> None:
        """A child ended by itself, by a signal (number) or in our own code."""
        crash = {**called(at.call), "signal": number, "error": self._failure}
        self._failure = None
        index = at.stage if 0 <= at.stage < _MOST_DEVICES else alone
        if at.stage == NAMES:
            self._names_hung = crash
        elif index is None:
            self.init["crashed"] = crash
        else:
            self._finished.add(index)
            self.device(index)["crashed"] = crash

    def failed(self, devices: list[int] | None, why: str) -> None:
        """No child could be started."""
        if devices is None:
            self.init.update(code=None, error=why, load="no_child")
        else:
            self.not_asked(devices, why)

    def not_asked(self, devices: list[int], why: str) -> None:
        """Devices that nobody asked, and why."""
        for index in devices:
            device = self.device(index)
            if index not in self._finished and device["hung"] is None:
                device["not_asked"] = why

    def stuck_start(self, entry: Stuck) -> None:
        """An earlier child still hangs before any device: NVML is not asked again while it lives."""
        self.init.update(hung_s=None, **called(entry.call), stuck=entry.told())

    def stuck_device(self, index: int, entry: Stuck) -> None:
        """An earlier child still hangs on this device: it is not asked again while that one lives."""
        self._finished.add(index)
        device = self.device(index)
        device["bus_id"] = entry.bus_id
        if entry.call.startswith(("nvmlDevice", "between")) or not entry.call:
            device["hung"] = {**called(entry.call), "after_s": None, "stuck": entry.told()}
        else:
            device["not_asked"] = f"an earlier process is stuck in {entry.call} (process {entry.pid})"

    def lives_on(self, entry: Stuck) -> None:
        """A child that was given up now did not die of it."""
        told = entry.told()
        self.stuck.append({"subject": entry.subject, **called(entry.call), **told})
        index = entry.subject.removeprefix("gpu-")
        if index.isdecimal() and int(index) in self._devices:
            hung = self._devices[int(index)]["hung"]
            if isinstance(hung, dict):
                hung["stuck"] = told
        elif entry.subject == "init":
            self.init["stuck"] = told

    def document(self, seconds: float) -> dict[str, Any]:
        """Everything, ready for JSON."""
        for device in self._devices.values():
            for process in device.get("processes", ()):
                name = self._names.get(process.get("pid"))
                if name is not None:
                    process["name"] = name
        told: dict[str, Any] = {
            "library": self.library,
            "init": self.init,
            "system": self.system,
            "count": self.count,
            "devices": [self._devices[index] for index in sorted(self._devices)],
            "calls": self._calls,
            "stuck": self.stuck,
            "seconds": round(seconds, 3),
            "slow_calls": [list(call) for call in sorted(self._slow, key=lambda c: -c[1])[:_MOST_SLOW]],
        }
        if self._names_hung is not None:
            told["names_hung"] = self._names_hung
        return told
