"""Power supplies, fans, inlet and voltages: firmware tables, kernel sensors, and the board's controller."""

from __future__ import annotations

import datetime as dt
import re
from typing import TYPE_CHECKING

from gpuclinic.clinic.looks._look import Seen, Wanted, as_number
from gpuclinic.model import Fact, Gap, Where
from gpuclinic.recognise.dmi import power_supply
from gpuclinic.recognise.possible import is_possible_in

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuclinic.model import Scalar
    from gpuclinic.observe.asking import Answer, Asked

LOOK = "sensors.power"
LOOK_DEEP = "sensors.board"
_PSU = "/sys/firmware/dmi/entries/39-*/raw"
_SDR = ("ipmitool", "sdr", "elist")
_SEL = ("ipmitool", "sel", "elist", "last", "500")
_CLOCK = ("ipmitool", "sel", "time", "get")
_CLOCK_FORMS = ("%m/%d/%Y %H:%M:%S", "%m/%d/%y %H:%M:%S", "%m/%d/%Y %I:%M:%S %p", "%m/%d/%y %I:%M:%S %p")
_DCMI = ("ipmitool", "dcmi", "power", "reading")
_HWMON = "/sys/class/hwmon/hwmon*"
_KINDS = {"temp": ("temperature", "C", 1000.0), "fan": ("fan", "RPM", 1.0), "in": ("voltage", "V", 1000.0)}


_GUESSING = ("nct", "it8", "f71", "f81", "w83", "asus", "sch5", "lm7", "acpi")
"""Super-I/O chips, whose inputs are often not wired: a kernel driver cannot know which, so their alarms prove nothing."""


def look_at_power(host: Asked, wanted: Wanted) -> Seen:  # noqa: ARG001 - all looks are called alike
    """Facts `psu` from the firmware's table; refused to ordinary users, which is a gap only where GPUs would need it."""
    seen = Seen()
    answers = host.files(_PSU, 4096)
    refused = [a for a in answers.values() if not a.ok and a.code in (1, 13)]
    for path, answer in answers.items():
        fact = power_supply(answer.data, path) if answer.ok else None
        if fact is not None:
            seen.facts.append(fact)
    if refused and not seen.facts:
        seen.gaps.append(
            Gap("power.psu", f"power supplies: {_PSU}: {refused[0].why}; as root, or with --psu-watts, they are judged")
        )
    return seen


def look_at_board(host: Asked, wanted: Wanted) -> Seen:
    """Facts `sensor` of the kernel's hwmon, `power_reading`; the texts of ipmitool for the recogniser."""
    seen = Seen()
    _hwmon(host, seen)
    virtual = any(fact.fields.get("virtual") or fact.fields.get("container") for fact in wanted.of("view"))
    asked = False
    for argv in (_SDR, _SEL, _DCMI):
        if host.live and virtual:
            break  # a guest has no board of its own
        answer = host.command(*argv, deadline=12.0, most=4 << 20)
        if answer.ok:
            asked = asked or bool(answer.data)
            draw = re.search(r"Instantaneous power reading:\s*(\d{1,6}) Watts", answer.text)
            if draw:
                seen.fact("power_reading", "host", {"value": float(draw[1])}, " ".join(argv), value=draw[0])
            seen.text(answer.named(" ".join(argv)), answer, LOOK_DEEP)
            if argv is _SEL and answer.data:
                _board_clock(host, seen)
        else:
            seen.gaps.append(
                Gap(LOOK_DEEP, f"{' '.join(argv)}: {answer.why} (root and the ipmi_devintf module are needed)")
            )
            break
    if not asked and not (host.live and virtual):
        other = host.command("ipmi-sensors", "--output-sensor-state", deadline=12.0)
        if other.ok and other.data:
            seen.texts.append(("ipmi-sensors", other.data))
    return seen


def look_at_chips(host: Asked, wanted: Wanted) -> Seen:  # noqa: ARG001 - all looks are called alike
    """Facts `sensor` of the kernel's own sensor chips (/sys/class/hwmon); no program is started."""
    seen = Seen()
    _hwmon(host, seen)
    return seen


def _board_clock(host: Asked, seen: Seen) -> None:
    """Fact `board_clock`: by how much the clock that stamps the board's events is ahead, read as its log is printed."""
    answer = host.command(*_CLOCK, deadline=2.0, most=256)
    told = re.sub(r"\s+[A-Z]{2,5}$", lambda zone: zone[0] if zone[0].strip() in ("AM", "PM") else "", answer.line[:40])
    for form in _CLOCK_FORMS if answer.ok else ():
        try:
            at = dt.datetime.strptime(told, form).replace(tzinfo=dt.timezone.utc).timestamp()
        except (ValueError, OverflowError):
            continue
        seen.fact("board_clock", "host", {"ahead_s": at - host.clock()}, " ".join(_CLOCK), ahead_s=answer.line[:80])
        return


def _hwmon(host: Asked, seen: Seen) -> None:
    answers = {}
    for pattern in ("name", "temp*_*", "fan*_*", "in*_*"):
        answers.update(host.files(f"{_HWMON}/{pattern}", 256))
    chips: dict[str, dict[str, Answer]] = {}
    for path, answer in answers.items():
        folder, _, name = path.rpartition("/")
        chips.setdefault(folder, {})[name] = answer
    for folder, files in sorted(chips.items()):
        chip = files["name"].line if "name" in files and files["name"].ok else folder.rsplit("/", 1)[-1]
        for name in sorted(files):
            if name.endswith("_input") and files[name].ok:
                fact = _sensor(folder, chip, name, {k: a.line for k, a in files.items() if a.ok})
                if fact is not None:
                    seen.facts.append(fact)


def _sensor(folder: str, chip: str, name: str, files: Mapping[str, str]) -> Fact | None:
    """One reading with its own limits (linux Documentation/hwmon/sysfs-interface): millidegrees, RPM, millivolts."""
    stem = name.removesuffix("_input")
    kind, unit, scale = _KINDS[stem.rstrip("0123456789")]
    raw = as_number(files[name])
    if raw is None:
        return None
    value = raw / scale
    if not is_possible_in(unit, value):
        return None  # a sensor that is not connected reads anything
    critical = as_number(files.get(f"{stem}_crit"))
    critical = critical / scale if critical is not None else None
    low = as_number(files.get(f"{stem}_min")) if kind == "fan" else None
    fault = files.get(f"{stem}_fault") == "1"
    alarm = files.get(f"{stem}_crit_alarm") == "1" or files.get(f"{stem}_emergency_alarm") == "1"
    trusted = not chip.startswith(_GUESSING)
    over = trusted and kind == "temperature" and critical is not None and 30 < critical <= value < 200
    stopped = trusted and kind == "fan" and bool(low) and value == 0 and files.get(f"{stem}_alarm") == "1"
    label = files.get(f"{stem}_label") or stem
    bad = over or stopped or (trusted and alarm and kind == "temperature")
    fields: dict[str, Scalar] = {
        "name": f"{chip} {label}"[:80], "value": value, "unit": unit, "type": kind, "chip": chip, "critical": critical,
        "status": "cr" if over or alarm or stopped else "fault" if fault else "ok", "bad": bad,
    }  # fmt: skip
    where = Where(
        f"{folder}/{name}",
        None,
        f"{chip} {label} = {value:g} {unit}" + (f" (critical {critical:g})" if critical is not None else ""),
    )
    given: dict[str, Scalar] = {k: v for k, v in fields.items() if v is not None}
    return Fact("sensor", f"{folder.rsplit('/', 1)[-1]}/{stem}", given, {"": where, "value": where}, where.source)
