"""`coredumpctl info` and `coredumpctl list`: who crashed, of which signal, when."""

from __future__ import annotations

import calendar
import re
import time
from typing import TYPE_CHECKING

import msgspec

from gpuclinic.model import Document, Fact, Stamp, digits
from gpuclinic.recognise.one_process import death_fact

if TYPE_CHECKING:
    from gpuclinic.model import Where

_PID = re.compile(r"^\s*PID: (?P<pid>\d{1,10}) \((?P<name>[^)]*)\)")
_FIELD = re.compile(r"^\s*(?P<name>UID|Signal|Timestamp|Unit|Storage|Executable): (?P<value>.*)$")
_ROW = re.compile(
    r"^(?P<when>\w{3} \d{4}-\d\d-\d\d \d\d:\d\d:\d\d \S+)\s+(?P<pid>\d{1,10})\s+(?P<uid>\d+)\s+\d+\s+"
    r"(?:SIG)?(?P<signal>[A-Z]+|\d+)\s+(?P<core>\S+)\s+(?P<exe>\S+)"
)
_WHEN = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?: (\S+))?")
_NUMBERS = {"ILL": 4, "TRAP": 5, "ABRT": 6, "BUS": 7, "FPE": 8, "KILL": 9, "SEGV": 11, "SYS": 31, "QUIT": 3}
_MOST = 200


def parse_core_dumps(document: Document) -> list[Fact]:
    """Facts `death` (recorder "core dump"), with unit, executable and where the core lies."""
    facts: list[Fact] = []
    block: dict[str, str] = {}
    places: dict[str, Where] = {}
    for index, line in enumerate([*document.lines(), "PID: 0 ()"]):
        line = line[:1000]
        row = _ROW.match(line)
        if row:
            told = {
                "pid": row["pid"],
                "UID": row["uid"],
                "Signal": row["signal"],
                "Timestamp": row["when"],
                "Executable": row["exe"],
                "Storage": row["core"],
            }
            facts += _death(told, {"Signal": document.at(index, line)})
            continue
        head = _PID.match(line)
        if head or line == "PID: 0 ()":
            facts += _death(block, places)
            block, places = (
                ({"pid": head["pid"], "name": head["name"]}, {"": document.at(index, line)}) if head else ({}, {})
            )
            continue
        field = _FIELD.match(line)
        if field and block:
            block.setdefault(field["name"], field["value"].strip())
            places.setdefault(field["name"], document.at(index, line))
    return facts[:_MOST]


def _death(block: dict[str, str], places: dict[str, Where]) -> list[Fact]:
    """One dump, where it names a process and a signal."""
    told = block.get("Signal", "")
    number = digits(told.split()[0] if told.split() else None) or _NUMBERS.get(told)
    if not number or "pid" not in block:
        return []
    uid = re.match(r"\d{1,10}", block.get("UID", ""))
    place = places.get("Signal") or places[""]
    if places.get(""):
        place = msgspec.structs.replace(place, text=f"{places[''].text.strip()}, {place.text.strip()}")
    fact = death_fact(
        int(block["pid"]), None, "core dump", place, signal=number, name=block.get("name") or block.get("Executable", "").rpartition("/")[2],
        uid=int(uid[0]) if uid else None, unit=block.get("Unit"), core=block.get("Storage"), executable=block.get("Executable"),
    )  # fmt: skip
    return [msgspec.structs.replace(fact, time=_stamp(block.get("Timestamp", "")))]


def _stamp(text: str) -> Stamp | None:
    found = _WHEN.search(text)
    if found is None:
        return None
    try:
        seconds = calendar.timegm(time.strptime(found[1], "%Y-%m-%d %H:%M:%S"))
    except ValueError:
        return None
    return Stamp(float(seconds), zoned=found[2] in ("UTC", "GMT"))
