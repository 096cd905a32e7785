"""Time stamps of log lines, in the forms that logs use."""

from __future__ import annotations

import calendar
import functools
import re

from gpuclinic.model import Stamp

_MONTHS = {m: i + 1 for i, m in enumerate("jan feb mar apr may jun jul aug sep oct nov dec".split())}
_MONTHS.update({"mär": 3, "mrz": 3, "mai": 5, "maj": 5, "okt": 10, "dez": 12, "fév": 2, "fev": 2, "avr": 4, "juin": 6, "juil": 7, "aoû": 8, "déc": 12})

_ISO = re.compile(
    r"(?P<y>20\d\d|19\d\d)[-/](?P<mo>\d\d)[-/](?P<d>\d\d)[T _](?P<h>\d\d):(?P<mi>\d\d):(?P<s>\d\d)(?:[.,](?P<f>\d{1,9}))?\s?(?P<z>Z|[+-]\d\d:?\d\d|UTC|GMT)?"
)
_SYSLOG = re.compile(r"(?P<mon>[A-Za-zäéûÄ]{3,4})\.? +(?P<d>\d{1,2}) (?P<h>\d\d):(?P<mi>\d\d):(?P<s>\d\d)(?:[.,](?P<f>\d{1,9}))?")
_CTIME = re.compile(r"(?:[A-Z][a-z]{2}) (?P<mon>[A-Z][a-z]{2}) +(?P<d>\d{1,2}) (?P<h>\d\d):(?P<mi>\d\d):(?P<s>\d\d)(?:[.,](?P<f>\d+))? (?:[A-Z]{3,4} )?(?P<y>(?:19|20)\d\d)")
_UPTIME = re.compile(r"^(?:<\d+>)?(?:kern\s*:\w+\s*: )?\[ *(?P<u>\d{1,9}\.\d{6})\]")
_KMSG = re.compile(r"^\d{1,3},\d+,(?P<u>\d+),[^;]{0,60};")
_GLOG = re.compile(r"\b[IWEF](?P<mo>\d\d)(?P<d>\d\d) (?P<h>\d\d):(?P<mi>\d\d):(?P<s>\d\d)\.(?P<f>\d{6})")
_GLOG_YEAR = re.compile(r"\b[IWEF](?P<y>20\d\d)(?P<mo>\d\d)(?P<d>\d\d) (?P<h>\d\d):(?P<mi>\d\d):(?P<s>\d\d)\.(?P<f>\d{6})")
_VLLM = re.compile(r"\b(?:INFO|WARNING|ERROR|DEBUG|CRITICAL) (?P<mo>\d\d)-(?P<d>\d\d) (?P<h>\d\d):(?P<mi>\d\d):(?P<s>\d\d)")
_CLOCK = re.compile(r"^\[?(?P<h>\d\d):(?P<mi>\d\d):(?P<s>\d\d)(?:[.,](?P<f>\d{1,6}))?\]?\s")


def find_stamp(line: str) -> Stamp | None:
    """The time stamp in the first 160 characters of a line, or None."""
    return _find(line[:160])


@functools.lru_cache(maxsize=4096)
def _find(head: str) -> Stamp | None:
    found = _KMSG.match(head)
    if found:
        return Stamp(int(found["u"]) / 1e6, uptime=True)
    found = _UPTIME.match(head)
    if found:
        return Stamp(float(found["u"]), uptime=True)
    found = _ISO.search(head)
    if found:
        return _wall(found, int(found["y"]), int(found["mo"]), found["z"])
    found = _CTIME.search(head)
    if found and found["mon"].lower() in _MONTHS:
        return _wall(found, int(found["y"]), _MONTHS[found["mon"].lower()], None)
    found = _GLOG_YEAR.search(head)
    if found:
        return _wall(found, int(found["y"]), int(found["mo"]), None)
    found = _GLOG.search(head) or _VLLM.search(head)
    if found:
        return _wall(found, None, int(found["mo"]), None)
    found = _SYSLOG.search(head)
    if found and found["mon"].lower()[:4].rstrip(".") in _MONTHS:
        return _wall(found, None, _MONTHS[found["mon"].lower()[:4].rstrip(".")], None)
    return None


def _wall(found: re.Match[str], year: int | None, month: int, zone: str | None) -> Stamp | None:
    groups = found.groupdict()
    day, hour, minute, second = (int(groups[k]) for k in ("d", "h", "mi", "s"))
    if not (1 <= month <= 12 and 1 <= day <= 31 and hour < 24 and minute < 60 and second < 61):
        return None
    seconds = float(calendar.timegm((year or 2000, month, day, hour, minute, second, 0, 0, 0)))
    if groups.get("f"):
        seconds += float("0." + groups["f"])
    if zone and zone[0] in "+-":
        shift = int(zone[1:3]) * 3600 + int(zone[-2:]) * 60
        seconds -= shift if zone[0] == "+" else -shift
    return Stamp(seconds, zoned=bool(zone), yearless=year is None)
