"""The dashboards that are shipped, as data (knowledge/data/dashboards.toml)."""

from __future__ import annotations

import functools

import msgspec

from gpuclinic.knowledge._load import DATA, read_toml

SERVER, CARD = '{instance=~"$instance"}', '{instance=~"$instance",gpu=~"$gpu"}'


class Query(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """expr: PromQL. legend: of its lines."""

    expr: str
    legend: str = ""

    def promql(self) -> str:
        """With what @server and @card stand for."""
        return self.expr.replace("@server", SERVER).replace("@card", CARD)


class Panel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A panel. kind: timeseries, stat or table. unit: Grafana's name. width: of 24. most: upper end of the axis."""

    en: str
    zh: str
    queries: list[Query]
    unit: str = "short"
    kind: str = "timeseries"
    width: int = 8
    height: int = 7
    most: float | None = None

    def title(self, lang: str) -> str:
        """In a language."""
        return self.zh if lang == "zh" else self.en


class Dashboard(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A dashboard. variables: instance, gpu."""

    name: str
    en: str
    zh: str
    variables: list[str]
    panel: list[Panel]


@functools.cache
def dashboards() -> tuple[Dashboard, ...]:
    """All of them, in the file's order."""
    return tuple(msgspec.convert(read_toml(DATA / "dashboards.toml")["dashboard"], list[Dashboard]))
