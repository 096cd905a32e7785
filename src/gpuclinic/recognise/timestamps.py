"""Time stamps of log lines, in the forms that logs use.

A stamp is found by its time of day ("11:22:33"); what stands left of it says which date form it is, what stands right
of it gives fraction, half of the day, zone and year. The leftmost stamp of a line wins: it is the log writer's own.
"""

from __future__ import annotations

import calendar
import functools
import re
from time import gmtime
from typing import TYPE_CHECKING

from gpuclinic.model import Stamp
from gpuclinic.recognise.months import NAME, month_number

if TYPE_CHECKING:
    from collections.abc import Iterable

_HEAD = 220
_PLACEHOLDER = 2000
_MAYBE = re.compile(r"\d:\d\d|\.\d{6}[ \]@]|,-|1\d{9}")
_TIME = re.compile(r"(?:(?<![\d:])|(?<=/(?:19|20)\d\d:))(\d\d?):(\d\d)(?::(\d\d)(?:[.,](\d{1,9}))?)?(?![\d:])")
_GAP = r"(?:[T _:-]|, ?| - | \| |\|)"
_ISO = re.compile(rf"(?<!\d)((?:19|20)\d\d)([-/.])(\d\d?)\2(\d\d?){_GAP}$")
_COMPACT = re.compile(r"(?<!\d)((?:19|20)\d\d)(\d\d)(\d\d)[T _:-]{1,2}$")
_CHINESE = re.compile(
    r"(?:((?:19|20)\d\d) ?[年년] ?)?(\d\d?) ?[月월] ?(\d\d?) ?[日일]?,?"
    r"(?: ?[(（]?(?:星期|周|礼拜)?[一二三四五六日天月火水木金土월화수목금토][)）]?)?"
    r"(?: ?(上午|下午|午前|午後|오전|오후))? ?$"
)
_GLOG = re.compile(
    r"(?<![A-Za-z0-9])[DIWEFC]((?:19|20)\d\d(?=\d{4} ))?(\d\d?)(\d\d) $"
)  # c10 leaves out the month's leading zero
_NAMED = re.compile(
    rf"(?:(?<!\d)((?:19|20)\d\d) )?(?<![A-Za-z])({NAME}) *(\d{{1,2}})(?:,? ((?:19|20)\d\d))?[ ,T:-]{{1,2}}$"
)
_DAY_FIRST = re.compile(rf"(?<!\d)(\d{{1,2}})\.?[ /-]({NAME})(?:[ /-]((?:19|20)\d\d))?(?:,? |:|-)$")
_SLASHED = re.compile(rf"(?<![\d/.])(\d\d?)([/.])(\d\d?)(?:\2(\d{{4}}|\d\d))?{_GAP}$")
_MONTH_DAY = re.compile(r"(?<![\d-])(\d\d)-(\d\d)[ T]$")
_DAY_MONTH_YEAR = re.compile(rf"(?<![\d-])(\d\d)-(\d\d)-((?:19|20)\d\d){_GAP}$")
_RIGHT = re.compile(
    r" ?(?:(?P<half>[AaPp])\.?[Mm]\.?(?![A-Za-z]))?"
    r"(?: ?(?P<offset>Z(?![A-Za-z])|[+-]\d\d:?\d\d(?!\d))| ?(?P<name>[A-Z]{3,4})\b)?"
)
_YEAR_RIGHT = re.compile(r"\s+(?:[A-Z]{2,5} |[+-]\d\d:?\d\d )?((?:19|20)\d\d)\b")
_UPTIME = re.compile(r"^(?:<\d{1,3}>)?(?:\w+ *: *\w+ *: )?\[ *(\d{1,9}\.\d{6}) *(?:@\d+)?\]")
_KERNEL_UPTIME = re.compile(r"(?:^|kernel(?:\[\d+\])?: |[>\] ])\[ *(\d{1,9}\.\d{6})(?:@\d+)?\]")
_KMSG = re.compile(r"^\d{1,4},\d+,(\d+),[^;]{0,60};")
_EPOCH = re.compile(
    r"^\[?(1\d{9}(?:\.\d{1,9})?|1\d{12})[\]:]?[ \t,|]|audit\((1\d{9}\.\d{3}):\d|[DIWEF]0000 00:00:(1\d{9}\.\d+)"
    r"|\b(?:ts|time|timestamp|asctime)\"?[:=] ?\"?(1\d{9}(?:\.\d{1,9})?|1\d{12})\b"
)
_RELATIVE = re.compile(r"^(?:\w+ *: *\w+ *: )?\[ *\+(\d{1,9}\.\d{6})\]")
_HUMAN = re.compile(rf"^(?:\w+ *: *\w+ *: )?\[({NAME}) ?\d{{1,2}} \d\d:\d\d\]")
_ZONES = {
    "UTC": 0, "GMT": 0, "WET": 0, "CET": 1, "CEST": 2, "EET": 2, "EEST": 3, "MSK": 3, "EST": -5, "EDT": -4, "CDT": -5,
    "MST": -7, "MDT": -6, "PST": -8, "PDT": -7, "JST": 9, "KST": 9, "HKT": 8, "SGT": 8, "AEST": 10, "AEDT": 11,
}  # fmt: skip
"""Zone names with one meaning; CST (America, China) and IST (India, Ireland, Israel) have several and count as none."""


def find_stamp(line: str) -> Stamp | None:
    """The leftmost time stamp near the start of a line, or None. A year left out is 2000 and marked as a guess."""
    head = line[:_HEAD]
    return _find(head) if _MAYBE.search(head) else None


def in_year(seconds: float, year: int) -> float:
    """The same month, day and time of day in another year; 29 February becomes 1 March where there is none."""
    parts = gmtime(seconds)
    return float(calendar.timegm((year, *parts[1:6], 0, 0, 0))) + seconds % 1


def kernel_uptime(line: str) -> float | None:
    """Seconds since boot as the kernel itself stamped the line, also behind a syslog stamp; None where it did not.

    >>> kernel_uptime("Mar  2 04:11:09 n1 kernel: [  123.456789] x"), kernel_uptime("6,31,1500000,-;x")
    (123.456789, 1.5)
    """
    found = _KERNEL_UPTIME.search(line[:120])
    if found:
        return float(found[1])
    found = _KMSG.match(line[:120])
    return int(found[1]) / 1e6 if found else None


def relative_stamps(text: str) -> dict[int, Stamp]:
    """Stamps by line number (from 1) of `dmesg -H`: a minute now and then, else what passed since the line before."""
    if "[" not in text or not re.search(r"(?m)^(?:\w+ *: *\w+ *: )?\[ *\+\d+\.\d{6}\]", text):
        return {}
    return dict(_relative(text.split("\n")))


def _relative(lines: Iterable[str]) -> Iterable[tuple[int, Stamp]]:
    now: float | None = None
    for number, line in enumerate(lines, 1):
        found = _RELATIVE.match(line)
        if found:
            if now is not None:
                now += float(found[1])
                yield number, Stamp(now, yearless=True)
        elif _HUMAN.match(line):
            stamp = find_stamp(line)
            if stamp is not None:
                now = stamp.seconds if now is None or not stamp.seconds <= now < stamp.seconds + 60 else now
                yield number, Stamp(now, yearless=True)


@functools.lru_cache(maxsize=8192)
def _find(head: str) -> Stamp | None:
    found = _KMSG.match(head)
    if found:
        return Stamp(int(found[1]) / 1e6, uptime=True)
    found = _UPTIME.match(head)
    if found:
        return Stamp(float(found[1]), uptime=True)
    epoch = _EPOCH.search(head)
    for time in _TIME.finditer(head):
        if epoch is not None and epoch.start() < time.start():
            break
        stamp = _dated(head, time)
        if stamp is not None:
            return stamp
    if epoch is not None:
        text = next(g for g in epoch.groups() if g)
        seconds = float(text)
        return Stamp(seconds / 1000 if seconds > 1e12 else seconds, zoned=True)
    return None


def _dated(head: str, time: re.Match[str]) -> Stamp | None:
    """The stamp around a time of day, where a date stands left of it."""
    left = head[max(0, time.start() - 40) : time.start()]
    if not left:
        return None
    date = _date(left, head, time)
    if date is None:
        return None
    year, month, day, afternoon = date
    right = _RIGHT.match(head, time.end())
    half = (right["half"] or "").lower() if right else ""
    hour, minute, second = int(time[1]), int(time[2]), int(time[3] or 0)
    if half or afternoon is not None:
        late = half == "p" or bool(afternoon)
        hour = hour % 12 + 12 * late
    if not (1 <= month <= 12 and hour < 24 and minute < 60 and second < 61):
        return None
    if not 1 <= day <= calendar.monthrange(year or _PLACEHOLDER, month)[1]:
        return None
    seconds = float(calendar.timegm((year or _PLACEHOLDER, month, day, hour, minute, second, 0, 0, 0)))
    if time[4]:
        seconds += int(time[4]) / 10 ** len(time[4])
    shift = _zone(right["offset"], right["name"]) if right else None
    return Stamp(seconds - (shift or 0.0), zoned=shift is not None, yearless=year is None)


def _zone(offset: str | None, name: str | None) -> float | None:
    """Seconds east of UTC, or None where no zone is told."""
    if offset == "Z":
        return 0.0
    if offset:
        hours, minutes = int(offset[1:3]), int(offset[-2:])
        if hours > 14 or minutes > 59:
            return None
        return (hours * 3600.0 + minutes * 60.0) * (-1 if offset[0] == "-" else 1)
    hours_east = _ZONES.get(name or "")
    return None if hours_east is None else hours_east * 3600.0


_Date = tuple[int | None, int, int, bool | None]
"""Year or None, month, day, and whether it is afternoon where the date says so."""


def _date(left: str, head: str, time: re.Match[str]) -> _Date | None:
    """The date that ends where the time of day begins."""
    whole = time[3] is not None
    found = _ISO.search(left)
    if found:
        return int(found[1]), int(found[3]), int(found[4]), None
    if not whole:
        return _date_of_minutes(left, head, time)
    found = _COMPACT.search(left)
    if found:
        return int(found[1]), int(found[2]), int(found[3]), None
    found = _GLOG.search(left)
    if found:
        return (int(found[1]) if found[1] else None), int(found[2]), int(found[3]), None
    return _named(left, head, time) or _numbered(left)


def _date_of_minutes(left: str, head: str, time: re.Match[str]) -> _Date | None:
    """A time without seconds has a date only in the heads of `dmesg -H`: "[Mar 2 04:11]"."""
    if left.startswith("[") and head[time.end() : time.end() + 1] == "]":
        return _named(left, head, time)
    return None


def _named(left: str, head: str, time: re.Match[str]) -> _Date | None:
    """Dates with a month's name, or with the characters for year, month and day."""
    if any(c in left for c in "月월"):
        found = _CHINESE.search(left)
        if found:
            afternoon = None if not found[4] else found[4] in ("下午", "午後", "오후")
            year = found[1] or _year_right(head, time)
            return (int(year) if year else None), int(found[2]), int(found[3]), afternoon
    found = _NAMED.search(left)
    if found:
        month = month_number(found[2])
        if month is not None:
            year = found[1] or found[4] or _year_right(head, time)
            return (int(year) if year else None), month, int(found[3]), None
    found = _DAY_FIRST.search(left)
    if found:
        month = month_number(found[2])
        if month is not None:
            year = found[3] or _year_right(head, time)
            return (int(year) if year else None), month, int(found[1]), None
    return None


def _year_right(head: str, time: re.Match[str]) -> str | None:
    found = _YEAR_RIGHT.match(head, time.end())
    return found[1] if found else None


def _numbered(left: str) -> _Date | None:
    """11/30, 11/30/2026, 11/30/26, 30.11.2026, 11-30: month first with slashes and dashes, day first with dots."""
    found = _SLASHED.search(left)
    if found:
        first, second = int(found[1]), int(found[3])
        year = int(found[4]) if found[4] else None
        if found[2] == "." and year is None:
            return None
        day_first = found[2] == "." or first > 12
        if year is not None and year < 100:
            year += 2000
        return (year, second, first, None) if day_first else (year, first, second, None)
    found = _MONTH_DAY.search(left)
    if found:
        first, second = int(found[1]), int(found[2])
        return (None, second, first, None) if first > 12 else (None, first, second, None)
    found = _DAY_MONTH_YEAR.search(left)
    if found:
        first, second = int(found[1]), int(found[2])
        return (int(found[3]), first, second, None) if second > 12 else (int(found[3]), second, first, None)
    return None
