"""Power supplies out of the firmware's tables: DMI type 39 as /sys/firmware/dmi/entries/39-*/raw holds it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuclinic.model import Fact, Where

if TYPE_CHECKING:
    from gpuclinic.model import Scalar

_UNKNOWN = 0x8000
_STATES = {1: "Other", 2: "Unknown", 3: "OK", 4: "Non-critical", 5: "Critical"}


def power_supply(data: bytes, source: str) -> Fact | None:
    """Fact `psu` with the fields that dmidecode's text gives (DSP0134, System Power Supply); None where the record is cut or foreign."""
    if len(data) < 0x10 or data[0] != 39 or data[1] < 0x10 or len(data) < data[1]:
        return None
    strings = data[data[1] :].split(b"\0")

    def named(offset: int) -> str | None:
        number = data[offset]
        if not 0 < number <= len(strings):
            return None
        return strings[number - 1].decode("utf-8", "replace").strip()[:80] or None

    capacity = int.from_bytes(data[0x0C:0x0E], "little")
    traits = int.from_bytes(data[0x0E:0x10], "little")
    state = _STATES.get(traits >> 7 & 7, "Unknown")
    watts = _watts(capacity)
    name = named(0x05) or named(0x06) or source.rsplit("/", 2)[-2]
    fields: dict[str, Scalar] = {
        "name": name, "model": named(0x0A), "capacity_w": watts, "state": state, "present": bool(traits & 2),
        "ok": state == "OK", "plugged": not traits & 4,
    }  # fmt: skip
    text = f"power supply {name}: {'unknown' if watts is None else f'{watts:g} W'}, {'present' if traits & 2 else 'not present'}, {state}"
    given: dict[str, Scalar] = {k: v for k, v in fields.items() if v is not None}
    return Fact(
        "psu",
        source.rsplit("/", 2)[-2],
        given,
        {"": Where(source, None, text), "capacity_w": Where(source, None, text)},
        source,
    )


def _watts(capacity: int) -> float | None:
    """The field is in watts since SMBIOS 2.3.1; boards that fill in milliwatts could not express a server's supply in 16 bits."""
    return float(capacity) if 0 < capacity < _UNKNOWN else None
