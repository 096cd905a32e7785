"""What a look is: it asks the host for one thing, and hands what it gets to those who recognise it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from gpuclinic.model import Fact, Gap, Scalar, Where

if TYPE_CHECKING:
    from gpuclinic.observe.asking import Answer, Asked


class Look(NamedTuple):
    """id: as in not_looked_at ("pci.bus"). function: "module:function" under gpuclinic.clinic.looks, (Asked, Wanted) -> Seen.

    commands: programs it will ask for, so that they start early. deep: only with --deep (or named by --only). sampled: taken again for every
    sample of the window. required: what could not be looked at here makes the verdict unknown. after: looks whose facts it builds on; they are
    taken, too, where --only names it alone.
    """

    id: str
    function: str
    commands: tuple[tuple[str, ...], ...] = ()
    deep: bool = False
    sampled: bool = False
    required: bool = False
    after: tuple[str, ...] = ()


class Wanted(msgspec.Struct):
    """What the person asked for. seconds: between first and last sample. facts: what looks before this one have seen.

    expect_gpus: how many there should be; psu_watts: what the power supplies can give together, in watts.
    """

    deep: bool = False
    seconds: float = 0.0
    sample: int = 0
    expect_gpus: int | None = None
    psu_watts: float | None = None
    facts: list[Fact] = []

    def of(self, kind: str) -> list[Fact]:
        """The facts of a kind seen so far."""
        return [fact for fact in self.facts if fact.kind == kind]


class Seen(msgspec.Struct):
    """What a look brings: facts; texts (path as shown, bytes) for the recogniser, which finds facts and signals in them; gaps."""

    facts: list[Fact] = []
    texts: list[tuple[str, bytes]] = []
    gaps: list[Gap] = []

    def fact(self, kind: str, key: str, fields: dict[str, Scalar], source: str, **lines: str) -> None:
        """Adds a fact. lines: for a field the text that shows it (default: "field = value" under the source)."""
        given = {name: value for name, value in fields.items() if value is not None}
        places = {name: Where(source, None, f"{key} {name} = {value}") for name, value in given.items()}
        places |= {name: Where(source, None, text) for name, text in lines.items()}
        places[""] = places.get("", Where(source, None, f"{kind} {key}"))
        self.facts.append(Fact(kind, key, dict(given), places, source))

    def text(self, shown: str, answer: Answer, look: str, *, absent: bool = True) -> bool:
        """Adds a text where the answer has one, else a gap; absent: a missing file or program is no gap."""
        if answer.ok:
            if answer.data:
                self.texts.append((shown, answer.data))
            return bool(answer.data)
        if not (absent and is_absent(answer)):
            self.gaps.append(Gap(look, f"{shown}: {answer.why}"))
        return False


def is_absent(answer: Answer) -> bool:
    """The thing asked about does not exist here, which is an answer of its own."""
    return not answer.ok and (answer.code in (2, 20) or (answer.why or "").endswith("is not installed"))


def in_sight(host: Asked, *folders: str) -> bool:
    """That something is missing below these folders says something: a snapshot made by hand tells it only of folders that it holds."""
    return host.live or any(host.listing(folder).ok for folder in folders)


def first_line(host: Asked, path: str) -> str | None:
    """The first line of a small file; None where it cannot be read."""
    answer = host.file(path, 4096)
    return answer.line if answer.ok else None


_MOST_NUMBER = 1e30
"""No file of a machine holds a larger number, nor an infinite one."""


def as_number(text: Any) -> float | None:
    """A number at the beginning of a text ("16.0 GT/s PCIe"); None where there is none, or no sensible one."""
    found = re.match(r"\s*(-?\d+(?:\.\d+)?)", str(text)) if text is not None else None
    number = float(found[1]) if found else None
    return number if number is not None and abs(number) < _MOST_NUMBER else None


def tells_time(host: Asked) -> bool:
    """False for a snapshot in which nothing says when it was made; its clock then is the reader's, and no time may be told by it."""
    return getattr(host, "dated", 0.0) is not None


def zone_of(host: Asked, at: float) -> float:
    """Local time less UTC on the examined machine, in seconds; 0 where it does not tell."""
    import zoneinfo

    link = host.link("/etc/localtime")
    name = link.text.partition("zoneinfo/")[2] if link.ok else first_line(host, "/etc/timezone")
    if not name or name in ("UTC", "Etc/UTC"):
        return 0.0
    import datetime as dt

    try:
        offset = dt.datetime.fromtimestamp(at, zoneinfo.ZoneInfo(name.strip())).utcoffset()
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError, OverflowError):
        return 0.0
    return offset.total_seconds() if offset is not None else 0.0
