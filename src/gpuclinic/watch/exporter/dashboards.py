"""Grafana dashboards over our metrics: a server, one GPU, a fleet. Pure; one description, both languages."""

from __future__ import annotations

from typing import Any, NamedTuple

_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_SCHEMA = 39
"""Grafana 10.4; newer ones read it."""


class Panel(NamedTuple):
    """A panel. queries: expression and legend. kind: timeseries, stat, table, bargauge. width: of 24."""

    en: str
    zh: str
    queries: tuple[tuple[str, str], ...]
    unit: str = "short"
    kind: str = "timeseries"
    width: int = 8
    height: int = 7
    most: float | None = None

    def title(self, lang: str) -> str:
        return self.zh if lang == "zh" else self.en


class Dashboard(NamedTuple):
    """A dashboard. variables: name and the query of its values."""

    name: str
    en: str
    zh: str
    variables: tuple[tuple[str, str], ...]
    panels: tuple[Panel, ...]


_NODE = ("instance", "label_values(gpuclinic_agent_up, instance)")
_CARD = ("gpu", 'label_values(gpuclinic_gpu_up{instance=~"$instance"}, gpu)')
_AT = '{instance=~"$instance"}'
_OF = '{instance=~"$instance",gpu=~"$gpu"}'
_LEGEND = "GPU {{gpu}}"


def _each(name: str, of: str = _AT, legend: str = _LEGEND) -> tuple[tuple[str, str], ...]:
    return ((f"{name}{of}", legend),)


DASHBOARDS = (
    Dashboard("gpuclinic-server", "GPU server", "GPU 服务器", (_NODE,), (
        Panel("GPUs: present", "GPU：在线", _each("gpuclinic_gpus_present", legend="present"), kind="stat", width=4, height=4),
        Panel("GPUs: expected", "GPU：应有", _each("gpuclinic_gpus_expected", legend="expected"), kind="stat", width=4, height=4),
        Panel("GPUs: readable", "GPU：可读取", _each("gpuclinic_gpus_readable", legend="readable"), kind="stat", width=4, height=4),
        Panel("Findings that hold", "当前问题", _each("gpuclinic_alerts", legend="{{severity}}"), kind="stat", width=6, height=4),
        Panel("Age of the newest sample", "最新采样距今", _each("gpuclinic_sample_age_seconds", legend="age"), "s", "stat", 3, 4),
        Panel("Power of all GPUs", "GPU 总功耗", (("sum by (instance) (gpuclinic_gpu_power_watts" + _AT + ")", "power"),), "watt", "stat", 3, 4),
        Panel("Findings", "问题列表", (("gpuclinic_alert_active" + _AT + " or gpuclinic_alerts" + _AT, ""),), kind="table", width=24, height=6),
        Panel("Utilisation", "利用率", _each("gpuclinic_gpu_utilization_ratio"), "percentunit", most=1),
        Panel("Memory in use", "已用显存", _each("gpuclinic_gpu_memory_used_bytes"), "bytes"),
        Panel("Temperature", "温度", _each("gpuclinic_gpu_temperature_celsius"), "celsius"),
        Panel("Power", "功耗", _each("gpuclinic_gpu_power_watts"), "watt"),
        Panel("SM clock", "SM 频率", _each("gpuclinic_gpu_sm_clock_hertz"), "hertz"),
        Panel("Clocks held down by", "降频原因", (('max by (gpu, reason) (gpuclinic_gpu_throttled{instance=~"$instance",reason!="idle"})', "GPU {{gpu}} {{reason}}"),)),
        Panel("PCIe received", "PCIe 接收", _each("gpuclinic_gpu_pcie_received_bytes_per_second"), "Bps"),
        Panel("NVLink received", "NVLink 接收", (("gpuclinic_gpu_nvlink_received_bytes_per_second" + _AT + " or gpuclinic_gpu_pcie_received_bytes_per_second" + _AT + " * 0", _LEGEND),), "Bps"),
        Panel("Xids (growth in 5 min)", "Xid（5 分钟增量）", (('sum by (gpu, xid) (increase(gpuclinic_gpu_xids_total{instance=~"$instance"}[5m]))', "GPU {{gpu}} Xid {{xid}}"),)),
        Panel("Memory errors not corrected", "不可纠正的显存错误", _each("gpuclinic_gpu_ecc_uncorrected_volatile_errors_total")),
        Panel("Host memory usable", "主机可用内存", _each("gpuclinic_memory_usable_bytes", legend="usable"), "bytes"),
        Panel("Pressure", "资源压力 (PSI)", _each("gpuclinic_pressure_some_avg60_ratio", legend="{{resource}}"), "percentunit"),
    )),
    Dashboard("gpuclinic-gpu", "One GPU", "单块 GPU", (_NODE, _CARD), (
        Panel("The card", "显卡信息", (("gpuclinic_gpu_info" + _OF, ""),), kind="table", width=24, height=4),
        Panel("Given to", "分配给", (("gpuclinic_gpu_job_info" + _OF + " or gpuclinic_gpu_pod_info" + _OF + " or gpuclinic_gpu_up" + _OF, ""),), kind="table", width=24, height=4),
        Panel("Utilisation", "利用率", (("gpuclinic_gpu_utilization_ratio" + _OF, "busy"), ("gpuclinic_gpu_memory_busy_ratio" + _OF, "memory busy")), "percentunit", most=1),
        Panel("Memory", "显存", (("gpuclinic_gpu_memory_used_bytes" + _OF, "used"), ("gpuclinic_gpu_memory_size_bytes" + _OF, "size")), "bytes"),
        Panel("Power and its limit", "功耗与上限", (("gpuclinic_gpu_power_watts" + _OF, "power"), ("gpuclinic_gpu_power_limit_watts" + _OF, "limit")), "watt"),
        Panel("Temperature", "温度", (("gpuclinic_gpu_temperature_celsius" + _OF, "GPU"), ("gpuclinic_gpu_memory_temperature_celsius" + _OF, "memory")), "celsius"),
        Panel("Degrees left to its own limit", "距自身温度上限", (("gpuclinic_gpu_temperature_margin_celsius" + _OF + " or gpuclinic_gpu_temperature_slowdown_celsius" + _OF + " - gpuclinic_gpu_temperature_celsius" + _OF, "left"),), "celsius"),
        Panel("Clocks", "频率", (("gpuclinic_gpu_sm_clock_hertz" + _OF, "SM"), ("gpuclinic_gpu_sm_clock_highest_hertz" + _OF, "SM, highest"), ("gpuclinic_gpu_memory_clock_hertz" + _OF, "memory")), "hertz"),
        Panel("Clocks held down by", "降频原因", (('gpuclinic_gpu_throttled{instance=~"$instance",gpu=~"$gpu",reason!="idle"}', "{{reason}}"),)),
        Panel("PCIe", "PCIe 流量", (("gpuclinic_gpu_pcie_received_bytes_per_second" + _OF, "received"), ("gpuclinic_gpu_pcie_sent_bytes_per_second" + _OF, "sent")), "Bps"),
        Panel("PCIe link", "PCIe 链路", (("gpuclinic_gpu_pcie_generation" + _OF, "generation"), ("gpuclinic_gpu_pcie_lanes" + _OF, "lanes"))),
        Panel("Memory errors", "显存错误", (("gpuclinic_gpu_ecc_corrected_volatile_errors_total" + _OF, "corrected"), ("gpuclinic_gpu_ecc_uncorrected_volatile_errors_total" + _OF, "not corrected"))),
        Panel("Rows remapped", "重映射的行", (("gpuclinic_gpu_remapped_rows_corrected_total" + _OF, "corrected"), ("gpuclinic_gpu_remapped_rows_uncorrected_total" + _OF, "not corrected"))),
        Panel("Xids of this boot", "本次启动以来的 Xid", (('gpuclinic_gpu_xids_total{instance=~"$instance",gpu=~"$gpu"} > 0 or gpuclinic_gpu_xids_total{instance=~"$instance",gpu=~"$gpu",xid="79"}', "Xid {{xid}}"),)),
        Panel("Energy", "能耗", (("increase(gpuclinic_gpu_energy_joules_total" + _OF + "[1h])", "an hour"),), "joule"),
    )),
    Dashboard("gpuclinic-fleet", "GPU fleet", "GPU 集群", (), (
        Panel("Servers", "服务器", (("count(gpuclinic_agent_up)", "servers"),), kind="stat", width=4, height=4),
        Panel("GPUs", "GPU", (("sum(gpuclinic_gpus_present)", "GPUs"),), kind="stat", width=4, height=4),
        Panel("GPUs missing", "缺失的 GPU", (("sum(gpuclinic_gpus_expected - gpuclinic_gpus_present)", "missing"),), kind="stat", width=4, height=4),
        Panel("GPUs that do not answer", "无应答的 GPU", (("sum(gpuclinic_gpus_present - gpuclinic_gpus_readable)", "no answer"),), kind="stat", width=4, height=4),
        Panel("Critical findings", "严重问题", (('sum(gpuclinic_alerts{severity="critical"})', "critical"),), kind="stat", width=4, height=4),
        Panel("Power", "总功耗", (("sum(gpuclinic_gpu_power_watts)", "power"),), "watt", "stat", 4, 4),
        Panel("Utilisation by server", "各服务器利用率", (("instance:gpuclinic_gpu_utilization:avg", "{{instance}}"),), "percentunit", most=1, width=12),
        Panel("GPUs held and idle", "占用但空闲的 GPU", (("instance:gpuclinic_gpus_idle_held:count", "{{instance}}"),), width=12),
        Panel("GPUs held down by heat or power", "因过热或供电降频的 GPU", (("instance:gpuclinic_gpus_throttled:count", "{{instance}}"),), width=12),
        Panel("Hottest GPU", "最热的 GPU", (("instance:gpuclinic_gpu_temperature_celsius:max", "{{instance}}"),), "celsius", width=12),
        Panel("Xids in an hour", "每小时 Xid", (("instance:gpuclinic_xids:increase1h", "{{instance}}"),), width=12),
        Panel("Findings by rule", "按规则统计的问题", (("sum by (rule, severity) (gpuclinic_alert_active) or sum by (severity) (gpuclinic_alerts)", ""),), kind="table", width=12),
        Panel("Models and drivers", "型号与驱动", (("count by (model, driver) (gpuclinic_gpu_info)", ""),), kind="table", width=12),
        Panel("What the agents cost", "采集代理开销", (("rate(gpuclinic_agent_cpu_seconds_total[5m]) or gpuclinic_agent_up * 0", "{{instance}}"),), "percentunit", width=12),
    )),
)  # fmt: skip


def as_grafana(board: Dashboard, lang: str = "en") -> dict[str, Any]:
    """The dashboard's JSON, to be imported."""
    panels = []
    x = y = row = 0
    for number, panel in enumerate(board.panels, 1):
        if x + panel.width > 24:
            x, y, row = 0, y + row, 0
        panels.append(_panel(number, panel, x, y, lang))
        x, row = x + panel.width, max(row, panel.height)
    source = {"name": "datasource", "type": "datasource", "query": "prometheus", "current": {}, "hide": 0}
    variables = [
        {
            "name": name, "type": "query", "datasource": _SOURCE, "query": {"query": query, "refId": name}, "definition": query, "refresh": 2,
            "sort": 3, "multi": True, "includeAll": True, "current": {}, "hide": 0,
        }
        for name, query in board.variables
    ]  # fmt: skip
    return {
        "uid": board.name if lang == "en" else f"{board.name}-{lang}", "title": board.zh if lang == "zh" else board.en,
        "tags": ["gpuclinic", "gpu"], "schemaVersion": _SCHEMA, "version": 1, "editable": True, "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"}, "templating": {"list": [source, *variables]}, "annotations": {"list": []}, "panels": panels,
    }  # fmt: skip


def _panel(number: int, panel: Panel, x: int, y: int, lang: str) -> dict[str, Any]:
    table = panel.kind == "table"
    targets = [
        {"refId": chr(65 + place), "datasource": _SOURCE, "expr": expr, "legendFormat": legend, "instant": table or panel.kind == "stat",
         "range": not table and panel.kind != "stat", "format": "table" if table else "time_series"}
        for place, (expr, legend) in enumerate(panel.queries)
    ]  # fmt: skip
    defaults: dict[str, Any] = {"unit": panel.unit, "min": 0}
    if panel.most is not None:
        defaults["max"] = panel.most
    return {
        "id": number, "title": panel.title(lang), "type": panel.kind, "datasource": _SOURCE, "gridPos": {"x": x, "y": y, "w": panel.width, "h": panel.height},
        "targets": targets, "fieldConfig": {"defaults": defaults, "overrides": []}, "options": {},
    }  # fmt: skip
