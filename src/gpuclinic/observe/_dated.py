"""When a snapshot made by hand was taken, by what stands in it: its own file about itself, the kernel's clocks, `date`, nvidia-smi."""

from __future__ import annotations

import datetime as dt
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_KEYS = ("time", "taken_at", "when", "now", "captured_at", "at", "date")
_BTIME = re.compile(rb"^btime (\d{9,11})$", re.MULTILINE)
_MONTHS = {
    m: n for n, m in enumerate(["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"], 1)
}
_MONTH = "|".join(_MONTHS)
_WORDS = re.compile(
    rf"\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun),? (?:(?P<month>{_MONTH}) +(?P<day>\d{{1,2}})|(?P<day2>\d{{1,2}}) (?P<month2>{_MONTH})) "
    r"(?:(?P<year>\d{4}) )?(?P<time>\d\d:\d\d:\d\d)(?: (?P<half>[AP]M))?(?: (?P<zone>[A-Z]{1,5}|[+-]\d\d(?::?\d\d)?))?(?: (?P<year2>\d{4}))?"
)
_ISO = re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?: ?(?:Z|UTC|[+-]\d\d:?\d\d))?")
_EARLIEST, _LATEST = 1_000_000_000.0, 4_102_444_800.0


def taken_at(about: dict[str, Any], read: Callable[[str], bytes | None], outputs: Iterable[str]) -> float | None:
    """Unix seconds; None where nothing tells. read: a file of the snapshot's folder; outputs: names under commands/.

    Times without a zone are taken as UTC.
    """
    for key in _KEYS:
        when = _instant(about.get(key))
        if when is not None:
            return when
    booted = _BTIME.search(read("root/proc/stat") or b"")
    uptime = re.match(rb"\s*(\d{1,10}(?:\.\d+)?)", read("root/proc/uptime") or b"")
    if booted and uptime:
        return _sensible(int(booted[1]) + float(uptime[1]))
    names = sorted(outputs)
    for name in [n for n in names if n.startswith("date")] + [n for n in names if n.startswith("nvidia-smi")]:
        when = instant_in((read(f"commands/{name}") or b"")[:8192].decode("utf-8", "replace"))
        if when is not None:
            return when
    return None


def _instant(value: Any) -> float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        return _sensible(value)
    return instant_in(value[:200]) if isinstance(value, str) else None


def instant_in(text: str) -> float | None:
    """The first date with a time in a text, as `date`, `date -Is` and nvidia-smi write it, in Unix seconds."""
    iso = _ISO.search(text)
    words = _WORDS.search(text)
    try:
        if words and (not iso or words.start() < iso.start()):
            return _sensible(_of_words(words))
        if iso:
            plain = re.sub(r" ?UTC$|Z$", "+00:00", iso[0].replace(",", ".").replace(" ", "T", 1)).replace(" ", "")
            plain = re.sub(r"\.\d+", "", re.sub(r"([+-]\d\d)(\d\d)$", r"\1:\2", plain))
            when = dt.datetime.fromisoformat(plain)
            return _sensible((when if when.tzinfo else when.replace(tzinfo=dt.timezone.utc)).timestamp())
    except (ValueError, OverflowError):
        return None
    return None


def _of_words(found: re.Match[str]) -> float:
    hour, minute, second = map(int, found["time"].split(":"))
    if found["half"]:
        hour = hour % 12 + (12 if found["half"] == "PM" else 0)
    year = int(found["year"] or found["year2"] or 0)
    month, day = _MONTHS[found["month"] or found["month2"]], int(found["day"] or found["day2"])
    zone = re.fullmatch(r"([+-])(\d\d):?(\d\d)?", found["zone"] or "")
    offset = 0 if zone is None else (int(zone[2]) * 3600 + int(zone[3] or 0) * 60) * (-1 if zone[1] == "-" else 1)
    return dt.datetime(year, month, day, hour, minute, second, tzinfo=dt.timezone.utc).timestamp() - offset


def _sensible(seconds: float) -> float | None:
    return float(seconds) if _EARLIEST < seconds < _LATEST else None
