"""The history for programs: JSON as docs/contract.md says, and CSV."""

from __future__ import annotations

import csv
import datetime as dt
import io
from typing import TYPE_CHECKING, Any

import msgspec

from gpuclinic.report.masking import clean, cleaned

if TYPE_CHECKING:
    from gpuclinic.model import Event
    from gpuclinic.watch.history_view import Listed, Picture, Told


def _iso(at: float) -> str:
    return dt.datetime.fromtimestamp(at, dt.timezone.utc).isoformat(timespec="milliseconds")


def picture_body(picture: Picture, lang: str) -> dict[str, Any]:
    """Fields of the JSON of plotted metrics."""
    return {
        "since": _iso(picture.since),
        "until": _iso(picture.until),
        "metrics": [
            {
                "metric": f"{panel.metric.kind}.{panel.metric.field}", "title": panel.metric.title(lang), "unit": panel.unit,
                "type": panel.metric.type,
                "series": [
                    {
                        "label": clean(line.label), "key": clean(line.series.key),
                        "points": [
                            {"time": _iso(b.at), "n": b.n, "min": b.low, "max": b.high, "mean": b.mean, "last": b.last} for b in line.buckets
                        ],
                    }
                    for line in panel.lines
                ],
            }
            for panel in picture.panels
        ],
        "events": [_event(event) for event in picture.marks],
    }  # fmt: skip


def events_body(told: list[Told]) -> dict[str, Any]:
    """Fields of the JSON of events."""
    return {"events": [{**_event(one.event), "repeats": clean(one.repeats) or None} for one in told]}


def list_body(listed: list[Listed], lang: str) -> dict[str, Any]:
    """Fields of the JSON of what there is."""
    return {
        "metrics": [
            {"metric": f"{one.metric.kind}.{one.metric.field}", "title": one.metric.title(lang), "unit": one.metric.unit,
             "type": one.metric.type, "series": one.things}
            for one in listed
        ]
    }  # fmt: skip


def _event(event: Event) -> dict[str, Any]:
    whole = msgspec.to_builtins(event)
    whole["time"] = _iso(whole.pop("at"))
    return dict(cleaned(whole))  # type: ignore[call-overload,no-any-return]


def picture_csv(picture: Picture) -> str:
    """One line for each stretch of each thing."""
    out = io.StringIO()
    rows = csv.writer(out, lineterminator="\n")
    rows.writerow(("time", "metric", "unit", "thing", "samples", "min", "max", "mean", "last"))
    for panel in picture.panels:
        name = f"{panel.metric.kind}.{panel.metric.field}"
        for line in panel.lines:
            thing = _cell(line.label or line.series.key)
            for b in line.buckets:
                rows.writerow((_iso(b.at), name, panel.unit, thing, b.n, b.low, b.high, b.mean, b.last))
    return out.getvalue()


def events_csv(told: list[Told]) -> str:
    """One line for each event."""
    out = io.StringIO()
    rows = csv.writer(out, lineterminator="\n")
    rows.writerow(("time", "kind", "subject", "code", "serial", "slot", "text", "repeats"))
    for one in told:
        event = one.event
        code = event.fields.get("code")
        rows.writerow(
            (_iso(event.at), event.kind, _cell(event.subject), "" if code is None else code, _cell(event.serial or ""), _cell(event.slot or ""),
             _cell(event.text), _cell(one.repeats))
        )  # fmt: skip
    return out.getvalue()


def _cell(text: str) -> str:
    """A text that no spreadsheet takes for a formula."""
    text = clean(text)
    return f"'{text}" if text[:1] in ("=", "+", "-", "@") else text
