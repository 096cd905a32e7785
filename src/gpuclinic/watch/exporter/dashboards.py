"""Grafana dashboards over our metrics, as JSON to be imported. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpuclinic.knowledge.dashboards import Dashboard, Panel

_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_SCHEMA = 39
"""Grafana 10.4; newer ones read it."""
_VARIABLES = {
    "instance": "label_values(gpuclinic_agent_up, instance)",
    "gpu": 'label_values(gpuclinic_gpu_up{instance=~"$instance"}, gpu)',
}


def as_grafana(board: Dashboard, lang: str = "en") -> dict[str, Any]:
    """The dashboard's JSON model."""
    panels = []
    x = y = row = 0
    for number, panel in enumerate(board.panel, 1):
        if x + panel.width > 24:
            x, y, row = 0, y + row, 0
        panels.append(_panel(number, panel, x, y, lang))
        x, row = x + panel.width, max(row, panel.height)
    source = {"name": "datasource", "type": "datasource", "query": "prometheus", "current": {}, "hide": 0}
    return {
        "uid": board.name if lang == "en" else f"{board.name}-{lang}", "title": board.zh if lang == "zh" else board.en,
        "tags": ["gpuclinic", "gpu"], "schemaVersion": _SCHEMA, "version": 1, "editable": True, "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"}, "templating": {"list": [source, *map(_variable, board.variables)]},
        "annotations": {"list": []}, "panels": panels,
    }  # fmt: skip


def _variable(name: str) -> dict[str, Any]:
    query = _VARIABLES[name]
    return {
        "name": name, "type": "query", "datasource": _SOURCE, "query": {"query": query, "refId": name}, "definition": query, "refresh": 2,
        "sort": 3, "multi": True, "includeAll": True, "current": {}, "hide": 0,
    }  # fmt: skip


def _panel(number: int, panel: Panel, x: int, y: int, lang: str) -> dict[str, Any]:
    table, instant = panel.kind == "table", panel.kind in ("table", "stat")
    targets = [
        {
            "refId": chr(65 + place), "datasource": _SOURCE, "expr": query.promql(), "legendFormat": query.legend, "instant": instant,
            "range": not instant, "format": "table" if table else "time_series",
        }
        for place, query in enumerate(panel.queries)
    ]  # fmt: skip
    defaults: dict[str, Any] = {"unit": panel.unit, "min": 0}
    if panel.most is not None:
        defaults["max"] = panel.most
    return {
        "id": number, "title": panel.title(lang), "type": panel.kind, "datasource": _SOURCE,
        "gridPos": {"x": x, "y": y, "w": panel.width, "h": panel.height}, "targets": targets,
        "fieldConfig": {"defaults": defaults, "overrides": []}, "options": {},
    }  # fmt: skip
