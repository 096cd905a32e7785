"""What a person asks of the history: numbers as pictures, events as lists, and whether a fault has come before."""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from gpuclinic.knowledge.metrics import Metric, kept_fields, metric_of, metrics
from gpuclinic.model import Event, UserError
from gpuclinic.store import state_folder
from gpuclinic.store.history import FILE_NAME, Bucket, History, Past, Series
from gpuclinic.watch.config import Storing

if TYPE_CHECKING:
    from collections.abc import Sequence

_UNIT = re.compile(r"_(?:pct|mib|c|w|j|mhz|us|kbs|gbs|s|ms)$")
_MOST_LINES = 32
_LARGEST = {
    "MiB": ((1 << 20, "TiB"), (1 << 10, "GiB")),
    "kB/s": ((1e6, "GB/s"), (1e3, "MB/s")),
    "J": ((3.6e9, "MWh"), (3.6e6, "kWh")),
}
_OF_GPU = frozenset({"gpu", "mig_device", "nvlink", "nvlink_gpu"})
REPEAT_DAYS = 14.0


class Line(msgspec.Struct, frozen=True):
    """One thing's values. buckets: in the panel's unit. label: what the thing is called; no words for the machine itself."""

    label: str
    series: Series
    buckets: list[Bucket]


class Panel(msgspec.Struct, frozen=True):
    """One metric of several things. unit: of the buckets, which may be a larger one than the field's."""

    metric: Metric
    unit: str
    lines: list[Line]


class Picture(msgspec.Struct, frozen=True):
    """What was asked for. step_s: width of a bucket. left_out: lines that were too many."""

    panels: list[Panel]
    marks: list[Event]
    since: float
    until: float
    left_out: int = 0


def open_history(storing: Storing | None = None, *, read_only: bool = False, path: str | None = None) -> History:
    """The history of this machine, keeping what metrics.tsv names. path: another file, or a folder with one. CouldNotError as History.open."""
    storing = storing or Storing()
    place = Path(path) if path else state_folder(storing.folder or None, make=not read_only) / FILE_NAME
    if path and place.is_dir():
        place /= FILE_NAME
    return History.open(
        place, read_only=read_only, most_mib=storing.most_mib, kept=kept_fields(), raw_days=storing.raw_days, days=storing.days
    )  # fmt: skip


def find_metric(word: str) -> Metric:
    """The metric of that name: a field, with or without its unit, kind.field, or a name as Prometheus or dcgm-exporter has it. UserError: none."""
    asked = word.strip().lower().replace("-", "_")
    by_name: dict[str, Metric] = {}
    for metric in metrics():
        fields = (metric.field, _UNIT.sub("", metric.field))
        names = [
            metric.name,
            metric.name.removeprefix("gpuclinic_"),
            *(f"{metric.kind}.{name}" for name in fields),
            *fields,
        ]
        if metric.dcgm_name:
            names.append(metric.dcgm_name.lower())
        for name in names:
            by_name.setdefault(name, metric)
    found = by_name.get(asked)
    if found is None:
        near = difflib.get_close_matches(asked, list(by_name), 3)
        hint = f"; did you mean {', '.join(near)}" if near else ""
        raise UserError(f"no metric of the name {word[:60]}{hint} (gpuclinic history --list)")
    return found


def find_series(history: History, metric: Metric, gpus: Sequence[int]) -> list[Series]:
    """The series of a metric; gpus: only those of these indices (none: all). By GPU index, else by name."""
    numbers = gpu_numbers(history)
    found = history.series(metric.kind, None, metric.field)
    if gpus and metric.kind in _OF_GPU:
        found = [one for one in found if _number(one.key, numbers) in gpus]
    return sorted(found, key=lambda one: (_number(one.key, numbers) if metric.kind in _OF_GPU else 0, one.key))


def gpu_numbers(history: History) -> dict[str, int]:
    """By a GPU's key its index, the newest that is known."""
    return {
        subject.key: index
        for subject in history.subjects("gpu")
        if isinstance(index := subject.fields.get("index"), int)
    }


def _number(key: str, numbers: dict[str, int]) -> int:
    if key in numbers:
        return numbers[key]
    first = key.partition("/")[0]
    return int(first) if first.isdecimal() else 1 << 30


def label(series: Series, numbers: dict[str, int]) -> str:
    """What a thing is called in a picture."""
    if series.kind == "gpu":
        return f"GPU {numbers[series.key]}" if series.key in numbers else f"GPU {series.key}"
    if series.kind in _OF_GPU:
        gpu, _, rest = series.key.partition("/")
        return f"GPU {gpu}" + (f" {'MIG' if series.kind == 'mig_device' else 'link'} {rest}" if rest else "")
    return "" if series.key in ("host", "all") else series.key


def picture(
    history: History, words: Sequence[str], gpus: Sequence[int], since: float, until: float, points: int
) -> Picture:
    """The metrics of these names over that time, with the events that fell into it. UserError: unknown names."""
    numbers = gpu_numbers(history)
    panels, left_out = [], 0
    for metric in dict.fromkeys(map(find_metric, words)):
        lines: list[Line] = []
        for series in find_series(history, metric, gpus):
            if len(lines) >= _MOST_LINES:
                left_out += 1
                continue
            buckets = history.query(series, since, until, points)
            if buckets:
                lines.append(Line(label(series, numbers), series, buckets))
        panels.append(_in_readable_unit(metric, lines))
    keys = {key for key, number in numbers.items() if number in gpus} if gpus else None
    marks = [
        event
        for event in history.events(since, until)
        if event.kind != "kernel" and (keys is None or not event.subject or event.subject in keys)
    ]
    return Picture(panels, marks, since, until, left_out)


def _in_readable_unit(metric: Metric, lines: list[Line]) -> Panel:
    highest = max((abs(bucket.high) for line in lines for bucket in line.buckets), default=0.0)
    for parts, unit in _LARGEST.get(metric.unit, ()):
        if highest >= 8 * parts:
            return Panel(
                metric,
                unit,
                [Line(line.label, line.series, [_divided(b, parts) for b in line.buckets]) for line in lines],
            )
    return Panel(metric, metric.unit, lines)


def _divided(bucket: Bucket, parts: float) -> Bucket:
    return Bucket(
        bucket.at, bucket.n, bucket.low / parts, bucket.high / parts, bucket.mean / parts, bucket.last / parts
    )


class Listed(msgspec.Struct, frozen=True):
    """A metric that the history has. things: how many have it."""

    metric: Metric
    things: int


def listed(history: History) -> list[Listed]:
    """Metrics of which there is something, in the order of metrics.tsv."""
    counts: dict[tuple[str, str], int] = {}
    for series in history.series():
        counts[series.kind, series.field] = counts.get((series.kind, series.field), 0) + 1
    return [
        Listed(metric, counts[metric.kind, metric.field])
        for metric in metrics()
        if (metric.kind, metric.field) in counts
    ]


def known(series: Series) -> Metric | None:
    """The metric of a series; None where metrics.tsv has it no longer."""
    return metric_of(series.kind, series.field)


class Told(msgspec.Struct, frozen=True):
    """An event, and where it repeats one, a sentence that says so."""

    event: Event
    repeats: str


def told_events(
    history: History, since: float, until: float, gpus: Sequence[int], kinds: Sequence[str], lang: str
) -> list[Told]:
    """Events of that time, oldest first; the last of each fault of a card with how often it has come before."""
    numbers = gpu_numbers(history)
    keys = {key for key, number in numbers.items() if number in gpus}
    events = [event for event in history.events(since, until, kinds or None) if not gpus or event.subject in keys]
    latest: dict[tuple[str | None, str | None, int], int] = {}
    for place, event in enumerate(events):
        code = event.fields.get("code")
        if event.kind in ("xid", "sxid") and isinstance(code, int) and (event.serial or event.slot):
            latest[event.serial, None if event.serial else event.slot, code] = place
    spoken = {}
    for (_, _, code), place in latest.items():
        event = events[place]
        past = history.repeated(event.serial, event.slot, code, REPEAT_DAYS, now=event.at, kind=event.kind)
        spoken[place] = repeated_sentence(past, lang, event.kind)
    return [Told(event, spoken.get(place, "")) for place, event in enumerate(events)]


_ORDINALS = ("", "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
_KIND_NAMES = {"xid": "Xid", "sxid": "SXid"}


def repeated_sentence(past: Past, lang: str, kind: str = "xid") -> str:
    """ "third Xid 79 of this card in 14 days; it moved with the card"; "" where nothing repeats."""
    name = f"{_KIND_NAMES.get(kind, kind)} {past.code}"
    card, slot = len(past.by_serial), len(past.by_slot)
    if card > 1:
        said = _nth(card, name, "of this card", "该卡", past.days, lang)
        if len(past.slots) > 1:
            way = " → ".join(past.slots)
            said += f"; it moved with the card ({way})" if lang != "zh" else f"；故障随卡移动（{way}）"
        elif len(past.serials) > 1:
            said += _others(len(past.serials) - 1, lang)
        return said
    if slot > 1:
        said = _nth(slot, name, "in this slot", "该插槽", past.days, lang)
        return said + (_others(len(past.serials) - 1, lang) if len(past.serials) > 1 else "")
    return ""


def _nth(count: int, name: str, where_en: str, where_zh: str, days: float, lang: str) -> str:
    if lang == "zh":
        return f"{where_zh} {days:g} 天内第 {count} 次出现 {name}"
    ordinal = _ORDINALS[count] if count < len(_ORDINALS) else f"{count}{_suffix(count)}"
    return f"{ordinal} {name} {where_en} in {days:g} days"


def _suffix(count: int) -> str:
    return "th" if count % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(count % 10, "th")


def _others(count: int, lang: str) -> str:
    if lang == "zh":
        return f"；同一插槽中另有 {count} 张卡出现过：问题更可能在插槽、供电或主板"
    cards = "another card" if count == 1 else f"{count} other cards"
    return f"; {cards} had it in the same slot: rather the slot, its power or the board"
