"""What the board's controller and sensors say: ipmitool sel/sdr/sensor/chassis, ipmi-sel, racadm, dmidecode, lm-sensors."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpuclinic.recognise.parsers._host_util import MAX_FACTS, clipped_lines, fact, iso_stamp, number, size_mib, stamp
from gpuclinic.recognise.possible import is_possible_in

if TYPE_CHECKING:
    from gpuclinic.model import Document, Fact, Stamp
    from gpuclinic.model._types import Scalar

_SEL = re.compile(
    r"^\s*(?P<id>[0-9a-fA-F]+)\s*\|\s*(?P<date>\d\d/\d\d/\d{2,4}|[A-Z][a-z]{2}-\d\d-\d{4}|\d{4}-\d\d-\d\d|Pre-Init\s*"
    r"|PostInit\s*|Unspecified)\s*\|"
    r"\s*(?P<time>[^|]*)\|(?P<rest>.*)$"
)
_RACADM = re.compile(
    r"^(?P<name>Record|Date/Time|Source|Severity|Description|Message|Timestamp|Message ID|SeqNumber)\s*[:=]\s*"
    r"(?P<value>.*)$"
)
_SENSOR = re.compile(
    r"^(?P<name>[\w+][^|]{0,40}?)\s*\|\s*(?P<value>[^|]+?)\s*\|\s*(?P<third>[^|]+?)\s*(?:\|\s*(?P<fourth>[^|]*?)\s*"
    r"(?:\|(?P<rest>.*))?)?$"
)
_LM = re.compile(
    r"^(?P<name>\w[\w +./-]{0,30}):\s+(?P<value>[+-]?\d+(?:\.\d+)?)\s*(?P<unit>°C|°F|C|RPM|V|W|A|mV)\b(?P<rest>.*)$"
)
_LM_CHIP = re.compile(r"^(?P<chip>[a-z][\w]*-(?:isa|pci|i2c|acpi|virtual|hid|mdio|spi)-[0-9a-fA-F-]+)\s*$")
_NORMAL = re.compile(
    r"Presence detected|Fully Redundant|Present\b|OEM System boot|Timestamp Clock|Clock Sync|Log area reset|S0/G0|"
    r"Initiated by power up|"
    r"Transition to OK|Device Present|Connected|Event Logging|Log area|normal state|restored|regained|redundant\.|is "
    r"operating normally|"
    r"Enabled|Microcontroller/Coprocessor",
    re.IGNORECASE,
)


def event_type(sensor: str, event: str) -> str:
    """What a sensor event is about: power, temperature, fan, voltage, memory, processor, pcie, boot, or other."""
    text = f"{sensor} {event}".lower()
    for kind, pattern in (
        ("boot", r"system boot|clock sync|log area|log cleared|os boot"),
        (
            "power",
            (
                r"power supply|power unit|power supplies|\bpsu?\s?\d|\bps\d|psu|power input|ac lost|power off|power "
                r"cycle|redundan|power_supply|input lost|overcurrent|power limit"
            ),
        ),
        ("fan", r"\bfan|rpm"),
        ("memory", r"memory|dimm|ecc\b|mem_"),
        ("temperature", r"temp|thermal|inlet|overheat|prochot|catastrophic thermal"),
        ("voltage", r"voltage|volt\b|\b\d+(?:\.\d+)?\s?v\b|vcore|vbat|12v|vrm"),
        ("pcie", r"pci|critical interrupt|bus (?:fatal|correctable|uncorrectable)|slot"),
        ("processor", r"processor|\bcpu|ierr|machine check|mce|caterr"),
    ):
        if re.search(pattern, text):
            return kind
    return "other"


def _sel_fact(
    document: Document,
    index: int,
    line: str,
    sensor: str,
    event: str,
    *,
    asserted: bool,
    time: Stamp | None,
    extra: dict[str, Scalar],
) -> Fact:
    text = f"{sensor} {event}"
    critical = re.search(
        r"critical|non-?recoverable|fail|lost|fault|uncorrectable|power off|over(?:heat|temp)|going (?:low|high)|"
        r"exceed|IERR|CATERR",
        text,
        re.IGNORECASE,
    )
    normal = _NORMAL.search(event) and not re.search(r"fail|lost|fault", event, re.IGNORECASE)
    fields: dict[str, Scalar] = {
        "sensor": sensor,
        "event": event,
        "type": event_type(sensor, event),
        "asserted": asserted,
        "bad": bool(critical) and asserted and not normal,
        **extra,
    }
    return fact(document, "sel_event", sensor, fields, index, line, time=time)


def parse_sel(document: Document) -> list[Fact]:
    """ipmitool sel list|elist and freeipmi's ipmi-sel: "sel_event"."""
    facts: list[Fact] = []
    for index, line in enumerate(clipped_lines(document)):
        match = _SEL.match(line) if len(line) < 600 else None
        if not match:
            continue
        parts = [part.strip() for part in match["rest"].split("|")]
        if len(parts) < 2:
            continue
        flags = [part for part in parts if re.fullmatch(r"(?:De)?asserted", part, re.IGNORECASE)]
        texts = [part for part in parts[1:] if part not in flags and part]
        clock = re.sub(r"\s+[A-Z]{3,5}\s*$", "", match["time"].strip())
        date = match["date"].strip()
        time = stamp(
            f"{date} {clock}",
            *(
                f"{day} {hour}"
                for hour in ("%H:%M:%S", "%I:%M:%S %p")
                for day in ("%m/%d/%Y", "%m/%d/%y", "%b-%d-%Y", "%Y-%m-%d")
            ),
        )
        asserted = not any(flag.lower().startswith("de") for flag in flags)
        extra: dict[str, Scalar] = {"id": match["id"], "time": f"{date} {clock}"}
        facts.append(
            _sel_fact(document, index, line, parts[0], ", ".join(texts), asserted=asserted, time=time, extra=extra)
        )
        if len(facts) >= MAX_FACTS:
            break
    _mark_cleared(facts)
    return facts


_CHASSIS = re.compile(r"^(?P<name>Power Restore Policy|Last Power Event|System restart cause)\s*:\s*(?P<value>.*?)\s*$")
_CHASSIS_NAMES = {
    "Power Restore Policy": "power_restore_policy",
    "Last Power Event": "last_power_event",
    "System restart cause": "restart_cause",
}


def parse_chassis(document: Document) -> list[Fact]:
    """ipmitool chassis status and chassis restart_cause: "chassis", each with what it tells."""
    facts: list[Fact] = []
    for index, line in enumerate(clipped_lines(document)):
        match = _CHASSIS.match(line) if len(line) < 200 else None
        if match and match["value"]:
            name = _CHASSIS_NAMES[match["name"]]
            place = {name: document.at(index, line)}
            facts.append(fact(document, "chassis", "host", {name: match["value"]}, index, line, place))
    return facts[:50]


_TAKEN_BACK = {
    "Fully Redundant": "Redundancy Lost",
    "Transition to OK": "Transition to Critical from less severe",
    "Presence detected": "Failure detected",
}
"""Events that end another one of the same sensor without the word deasserted."""


def _mark_cleared(facts: list[Fact]) -> None:
    """Marks what a later line of the log takes back (Deasserted)."""
    open_events: dict[tuple[Scalar, Scalar], Fact] = {}
    for event in facts:
        text = str(event.fields.get("event")).split(", Reading", 1)[0].strip()
        key = (event.fields.get("sensor"), _TAKEN_BACK.get(text, text))
        if event.fields.get("asserted") and text not in _TAKEN_BACK:
            open_events[key] = event
        elif key in open_events:
            open_events.pop(key).fields["cleared"] = True


def parse_racadm(document: Document) -> list[Fact]:
    """racadm getsel and lclog view: "sel_event" with severity."""
    facts: list[Fact] = []
    record: dict[str, str] = {}
    for index, line in enumerate(clipped_lines(document)):
        match = _RACADM.match(line.strip()[:600])
        if not match:
            continue
        name, value = match["name"], match["value"].strip()
        if name in ("Record", "SeqNumber"):
            record = {}
        record[name] = value
        if name not in ("Description", "Message") or not value:
            continue
        when = record.get("Date/Time") or record.get("Timestamp") or ""
        time = stamp(when, "%m/%d/%Y %H:%M:%S", "%Y-%m-%d %H:%M:%S", "%a %b %d %Y %H:%M:%S", "%m/%d/%Y %H:%M:%S%z")
        severity = record.get("Severity", "").lower()
        good = severity in ("ok", "informational", "normal", "information") or bool(_NORMAL.search(value))
        extra: dict[str, Scalar] = {"severity": severity, "time": when}
        facts.append(
            _sel_fact(
                document,
                index,
                line,
                record.get("Message ID", "system"),
                value,
                asserted=not good,
                time=time,
                extra=extra,
            )
        )
    return facts[:MAX_FACTS]


def parse_sensors(document: Document) -> list[Fact]:
    """ipmitool sensor, sdr, sdr elist, freeipmi tables, lm-sensors: "sensor" with value, unit, status."""
    facts: list[Fact] = []
    chip = ""
    for index, line in enumerate(clipped_lines(document)):
        if len(line) > 400:
            continue
        match = _LM_CHIP.match(line)
        if match:
            chip = match["chip"]
            continue
        match = _LM.match(line.strip())
        if match:
            facts.append(_lm_fact(document, index, line, match, chip))
            continue
        match = None if _SEL.match(line) else _SENSOR.match(line)
        if match:
            found = _table_sensor(document, index, line, match)
            if found:
                facts.append(found)
        if len(facts) >= MAX_FACTS:
            break
    return facts


def _lm_fact(document: Document, index: int, line: str, match: re.Match[str], chip: str) -> Fact:
    unit = match["unit"].replace("°", "")
    limits = {
        name: number(value) for name, value in re.findall(r"(high|crit|min|max|low)\s*=\s*([+-]?[\d.]+)", match["rest"])
    }
    value = _possible(number(match["value"]), unit)
    critical = limits.get("crit") if limits.get("crit") is not None else limits.get("high")
    alarm = "ALARM" in match["rest"] and "ALARM (CRIT)" not in match["rest"].replace("crit", "CRIT")
    over = value is not None and critical is not None and 0 < critical <= value and unit == "C"
    fields: dict[str, Scalar] = {
        "name": match["name"].strip(),
        "value": value,
        "unit": unit,
        "status": "cr" if over else ("alarm" if alarm else "ok"),
        "type": "fan" if unit == "RPM" else event_type(match["name"], unit),
        "chip": chip,
        "critical": critical,
        "bad": over,
    }
    return fact(document, "sensor", str(fields["name"]), fields, index, line)


def _possible(value: float | None, unit: str) -> float | None:
    """The value, if a machine can have it."""
    return value if value is not None and is_possible_in(unit, value) else None


def _table_sensor(document: Document, index: int, line: str, match: re.Match[str]) -> Fact | None:
    value_text, third, fourth = match["value"], match["third"], match["fourth"] or ""
    status_words = ("ok", "ns", "nc", "cr", "nr", "lnc", "lcr", "lnr", "unc", "ucr", "unr", "na", "u", "0x")
    unit: str | None
    if re.fullmatch(r"[0-9A-Fa-f]{2}h", value_text):  # sdr elist: name | id | status | entity | reading
        status, rest = third, (match["rest"] or "").strip()
        value, unit = number(rest) if re.match(r"-?\d", rest) else None, rest.split(" ", 1)[-1]
        state = rest
    elif third.lower() in status_words:  # sdr: name | reading | status
        status = third
        value = number(value_text) if re.match(r"-?[\d.]+\b(?!x)", value_text) else None
        unit, state = value_text.split(" ", 1)[-1], value_text
    elif fourth.lower() in status_words or fourth.startswith("0x"):  # sensor: name | value | unit | status
        status, value, unit, state = fourth, number(value_text) if value_text != "na" else None, third, value_text
    else:
        return None
    unit = unit.replace("degrees ", "") if unit else None
    possible = _possible(value, unit or "")
    if value is not None and possible is None:
        status, value = "unreadable", None
    state_bad = bool(re.search(r"fail|lost|fault|error", state, re.IGNORECASE))
    fields: dict[str, Scalar] = {
        "name": match["name"].strip(),
        "value": value,
        "unit": unit,
        "status": status.lower(),
        "type": event_type(match["name"], unit or ""),
        "state": state[:200],
        "bad": status.lower() in ("cr", "nr", "lcr", "lnr", "ucr", "unr") or state_bad,
    }
    return fact(document, "sensor", str(fields["name"]), fields, index, line)


_DMI_HANDLE = re.compile(r"^Handle 0x[0-9A-Fa-f]+, DMI type (?P<type>\d{1,4})")
_DMI_FIELD = re.compile(r"^\s+(?P<name>[A-Z][\w /()-]{2,40}):\s*(?P<value>.*)$")
_DMI_TITLES = {
    "System Power Supply": 39,
    "Memory Device": 17,
    "System Information": 1,
    "BIOS Information": 0,
    "Base Board Information": 2,
}


def parse_dmidecode(document: Document) -> list[Fact]:
    """dmidecode: power supplies as "psu", modules as "dimm", system and BIOS as "machine" and "bios"."""
    facts: list[Fact] = []
    kind: int | None = None
    block: dict[str, str] = {}
    start = (0, "")
    shown: dict[str, tuple[int, str]] = {}

    def close() -> None:
        made = _dmi_fact(document, kind, block, start)
        if made:
            if kind == 39 and "Max Power Capacity" in shown:
                made.lines["capacity_w"] = document.at(*shown["Max Power Capacity"])
            facts.append(made)
        block.clear()
        shown.clear()

    for index, line in enumerate(clipped_lines(document)):
        line = line[:500]
        match = _DMI_HANDLE.match(line)
        title = _DMI_TITLES.get(line.strip())
        if match or (title is not None and kind != title) or (title is not None and block):
            close()
            kind, start = int(match["type"]) if match else title, (index, line)
            continue
        field = _DMI_FIELD.match(line)
        if field and kind is not None:
            block.setdefault(field["name"].strip(), field["value"].strip())
            shown.setdefault(field["name"].strip(), (index, line))
    close()
    return facts[:MAX_FACTS]


def _dmi_fact(document: Document, kind: int | None, block: dict[str, str], start: tuple[int, str]) -> Fact | None:
    if not block:
        return None
    if kind == 39:
        capacity = block.get("Max Power Capacity", "")
        watts = number(capacity)
        status = block.get("Status", "")
        fields: dict[str, Scalar] = {
            "name": block.get("Location") or block.get("Name"),
            "model": block.get("Model Part Number") or block.get("Name"),
            "capacity_w": watts / 1000 if watts is not None and "mW" in capacity else watts,
            "state": status,
            "present": "Not Present" not in status and "Present" in status,
            "ok": "OK" in status,
            "plugged": block.get("Plugged") == "Yes",
        }
        return fact(document, "psu", str(fields["name"]), fields, *start)
    if kind == 17:
        size = block.get("Size", "")
        fields = {
            "name": block.get("Locator"),
            "bank": block.get("Bank Locator"),
            "size_mib": size_mib(size.replace(" ", "")),
            "speed": block.get("Configured Memory Speed") or block.get("Configured Clock Speed") or block.get("Speed"),
            "part": block.get("Part Number"),
            "serial": block.get("Serial Number"),
            "present": "No Module" not in size and bool(size),
        }
        return fact(document, "dimm", str(fields["name"]), fields, *start)
    if kind == 1:
        fields = {
            "maker": block.get("Manufacturer"),
            "product": block.get("Product Name"),
            "serial": block.get("Serial Number"),
        }
        return fact(document, "machine", str(fields["product"]), fields, *start)
    if kind == 0:
        fields = {"vendor": block.get("Vendor"), "version": block.get("Version"), "date": block.get("Release Date")}
        return fact(document, "bios", str(fields["version"]), fields, *start)
    return None


_REDFISH = re.compile(
    r'"(?P<name>Message|MessageId|Severity|Created|SensorType|EntryCode)"\s*:\s*"(?P<value>[^"]{0,400})"'
)


def parse_redfish(document: Document) -> list[Fact]:
    """Log entries of a Redfish service (JSON): "sel_event"."""
    facts: list[Fact] = []
    record: dict[str, str] = {}
    for index, line in enumerate(document.lines()):
        for match in _REDFISH.finditer(line[:200_000]):
            if match["name"] in record:
                record = {}
            record[match["name"]] = match["value"]
            if "Message" in record and "Severity" in record and "done" not in record:
                record["done"] = "1"
                good = record["Severity"].lower() in ("ok", "informational")
                extra: dict[str, Scalar] = {"severity": record["Severity"].lower(), "time": record.get("Created")}
                sensor = record.get("MessageId") or record.get("SensorType") or "system"
                text = record["Message"]
                when = iso_stamp(record.get("Created", ""))
                facts.append(
                    _sel_fact(document, index, line[:500], sensor, text, asserted=not good, time=when, extra=extra)
                )
    return facts[:MAX_FACTS]
