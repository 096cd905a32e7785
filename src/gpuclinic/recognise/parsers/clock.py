"""What keeps the clock: timedatectl (status and show), chronyc tracking, ntpq -p."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpuclinic.model import Fact
from gpuclinic.recognise.parsers._host_util import clipped_lines, number, whole

if TYPE_CHECKING:
    from gpuclinic.model import Document, Scalar, Where

_LABEL = re.compile(r"^\s*(?P<name>[A-Z][\w ()-]{1,40}?)\s*[:=]\s*(?P<value>\S.{0,200}?)\s*$")
_OFFSET = re.compile(r"(?P<seconds>\d{1,12}(?:\.\d{1,12})?) seconds (?P<way>fast|slow)")
_PEER = re.compile(
    r"^(?P<mark>[ *o+#x.-])(?P<remote>\S{1,60})\s+\S+\s+(?P<stratum>\d{1,2})\s+[a-zA-Z-]\s+\S+\s+\S+\s+(?P<reach>[0-7]{1,3})"
    r"\s+\S+\s+(?P<offset>[-+]?\d{1,12}(?:\.\d{1,6})?)\s+\S+\s*$"
)
_SYNCHRONISED = ("System clock synchronized", "NTP synchronized", "NTPSynchronized")
_SERVICE = ("NTP service", "NTP enabled", "Network time on", "NTP")


def parse_timedatectl(document: Document) -> list[Fact]:
    """timedatectl, and timedatectl show: "time_sync" with synchronised and enabled (a time service is switched on)."""
    found = _labels(document)
    name = next((name for name in _SYNCHRONISED if name in found), None)
    if name is None:
        return []
    fields: dict[str, Scalar] = {"tool": "timedatectl", "synchronised": found[name][0] == "yes"}
    places = {"synchronised": found[name][1]}
    service = next((name for name in _SERVICE if name in found), None)
    if service is not None and found[service][0] in ("yes", "active", "no", "inactive"):
        fields["enabled"] = found[service][0] in ("yes", "active")
        places["enabled"] = found[service][1]
    return [_fact(document, "timedatectl", fields, places)]


def parse_chronyc(document: Document) -> list[Fact]:
    """chronyc tracking: "time_sync" with synchronised, stratum, offset_s (the system clock against NTP, ahead is positive)."""
    found = _labels(document)
    if "Leap status" not in found or "Stratum" not in found:
        return []
    status, place = found["Leap status"]
    fields: dict[str, Scalar] = {
        "tool": "chrony",
        "synchronised": status != "Not synchronised",
        "stratum": whole(found["Stratum"][0]),
    }
    places = {"synchronised": place, "stratum": found["Stratum"][1]}
    offset = _OFFSET.match(found["System time"][0]) if "System time" in found else None
    if offset:
        seconds = number(offset["seconds"]) or 0.0
        fields["offset_s"] = seconds if offset["way"] == "fast" else -seconds
        places["offset_s"] = found["System time"][1]
    return [_fact(document, "chrony", fields, places)]


def parse_ntpq(document: Document) -> list[Fact]:
    """ntpq -p: "time_sync"; a peer marked * or o is followed, its offset is in milliseconds."""
    fields: dict[str, Scalar] = {"tool": "ntpd", "synchronised": False}
    places: dict[str, Where] = {}
    peers = 0
    for index, line in enumerate(clipped_lines(document)):
        match = _PEER.match(line) if len(line) < 200 else None
        if match is None:
            continue
        peers += 1
        places.setdefault("synchronised", document.at(index, line))
        if match["mark"] in "*o":
            offset = number(match["offset"])
            fields |= {"synchronised": True, "stratum": whole(match["stratum"])}
            places["synchronised"] = document.at(index, line)
            if offset is not None:  # ntpq tells what to add to the clock
                fields["offset_s"] = -offset / 1000.0
                places["offset_s"] = document.at(index, line)
    return [_fact(document, "ntpd", fields, places)] if peers else []


def _labels(document: Document) -> dict[str, tuple[str, Where]]:
    """Labels with their values and where they stand, the first of each."""
    out: dict[str, tuple[str, Where]] = {}
    for index, line in enumerate(clipped_lines(document)[:2000]):
        match = _LABEL.match(line) if len(line) < 300 else None
        if match:
            out.setdefault(match["name"].strip(), (match["value"], document.at(index, line)))
    return out


def _fact(document: Document, key: str, fields: dict[str, Scalar], places: dict[str, Where]) -> Fact:
    given: dict[str, Scalar] = {name: value for name, value in fields.items() if value is not None}
    first = next(iter(places.values()))
    return Fact("time_sync", key, given, {"": first, **places}, document.source)
