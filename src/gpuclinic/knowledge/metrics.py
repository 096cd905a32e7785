"""Which numbers of the facts are kept in the history and exported, under which names (knowledge/data/metrics.tsv)."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import msgspec

from gpuclinic.knowledge._load import DATA

if TYPE_CHECKING:
    from collections.abc import Mapping

_COLUMNS = (
    "kind", "field", "unit", "type", "name", "factor", "dcgm_name", "dcgm_factor", "tier", "digits", "title_en", "title_zh", "source",
)  # fmt: skip


class Metric(msgspec.Struct, frozen=True):
    """One number.

    kind, field: of the facts (docs/facts.md). unit: of the field, as people write it; "" where it is a count or a state.
    type: gauge, or counter (it only grows, until what counts begins anew). name: for Prometheus, in base units; the field times `factor`.
    dcgm_name: what dcgm-exporter calls it, in its unit; the field times `dcgm_factor`. None where it has no such metric.
    tier: seconds between samples. digits: decimals that the source has (None: as it is told).
    """

    kind: str
    field: str
    unit: str
    type: str
    name: str
    factor: float
    dcgm_name: str | None
    dcgm_factor: float | None
    tier: int
    digits: int | None
    title_en: str
    title_zh: str
    source: str

    def title(self, lang: str) -> str:
        """What it is, in words."""
        return self.title_zh if lang == "zh" else self.title_en


@functools.cache
def metrics() -> tuple[Metric, ...]:
    """All of them, in the file's order."""
    lines = (DATA / "metrics.tsv").read_text(encoding="utf-8").splitlines()[1:]
    return tuple(_metric(line.split("\t")) for line in lines if line)


def _metric(cells: list[str]) -> Metric:
    row = dict(zip(_COLUMNS, cells, strict=True))
    return Metric(
        row["kind"], row["field"], row["unit"], row["type"], row["name"], float(row["factor"]), row["dcgm_name"] or None,
        float(row["dcgm_factor"]) if row["dcgm_factor"] else None, int(row["tier"]), int(row["digits"]) if row["digits"] else None,
        row["title_en"], row["title_zh"], row["source"],
    )  # fmt: skip


@functools.cache
def kept_fields() -> Mapping[str, Mapping[str, int | None]]:
    """By kind of fact, the fields that the history keeps, each with its decimals: what store.History.open takes as `kept`."""
    kept: dict[str, dict[str, int | None]] = {}
    for metric in metrics():
        kept.setdefault(metric.kind, {})[metric.field] = metric.digits
    return kept


@functools.cache
def metric_of(kind: str, field: str) -> Metric | None:
    """The row of a field; None where it is not kept."""
    return next((metric for metric in metrics() if (metric.kind, metric.field) == (kind, field)), None)
