"""OpenTelemetry's protocol in its JSON form (OTLP 1.x over HTTP): a snapshot as metrics, events and findings as logs. Pure.

JSON needs no SDK: the messages are those of opentelemetry-proto's collector services, 64-bit numbers written as texts (protobuf's JSON).
"""

from __future__ import annotations

import os
import platform
from typing import TYPE_CHECKING, Any

from gpuclinic import __version__
from gpuclinic.knowledge.metrics import metrics
from gpuclinic.knowledge.otel import otel_names
from gpuclinic.watch.exporter.devices import Gpus, labels_of
from gpuclinic.watch.exporter.families import own_families

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuclinic.model import Event, Fact
    from gpuclinic.watch.alerts import Alert
    from gpuclinic.watch.exporter.assignments import Assignments
    from gpuclinic.watch.exporter.snapshot import Snapshot

_SCOPE = {"name": "gpuclinic", "version": __version__}
_CUMULATIVE = 2
_SEVERITY = {"info": (9, "INFO"), "warning": (13, "WARN"), "critical": (17, "ERROR")}
"""SeverityNumber of logs.proto."""
_EVENTS = {
    "gpu_hung": "critical",
    "gpu_lost": "critical",
    **dict.fromkeys(("oom_kill", "xid", "sxid", "ecc", "link"), "warning"),
}


def resource(boot: str = "") -> dict[str, Any]:
    """Who sends (semantic conventions: service, host)."""
    pairs = (
        ("service.name", "gpuclinic"), ("service.version", __version__), ("service.instance.id", platform.node()),
        ("host.name", platform.node()), ("host.arch", platform.machine()), ("os.type", "linux"), ("host.boot_id", boot),
        ("process.pid", os.getpid()),
    )  # fmt: skip
    return {"attributes": attributes(pairs)}


def attributes(pairs: Iterable[tuple[str, object]]) -> list[dict[str, Any]]:
    """Key and value pairs as OTLP has them; None and "" are left out."""
    return [{"key": key, "value": _any(value)} for key, value in pairs if value is not None and value != ""]


def _any(value: object) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    return {"doubleValue": value} if isinstance(value, float) else {"stringValue": str(value)}


def metrics_request(shot: Snapshot, given: Assignments, boot: str = "") -> dict[str, Any]:
    """ExportMetricsServiceRequest: numbers that OpenTelemetry has a name for under that name, all others under ours."""
    at, began = _nanos(shot.tick.at), _nanos(shot.started)
    named = _named(shot, at, began)
    known = {metric.name for metric in metrics() if (metric.kind, metric.field) in otel_names()}
    ours = [
        _metric(
            family.name, family.help, "", "gauge" if family.type == "info" else family.type,
            [_point(attributes(sample.labels.pairs), sample.value, at, began, counts=family.type == "counter") for sample in family.samples],
        )
        for family in own_families(shot, given) if family.samples and family.name not in known
    ]  # fmt: skip
    return {
        "resourceMetrics": [
            {"resource": resource(boot), "scopeMetrics": [{"scope": _SCOPE, "metrics": [*named, *ours]}]}
        ]
    }


def _named(shot: Snapshot, at: str, began: str) -> list[dict[str, Any]]:
    facts = shot.tick.facts
    gpus = Gpus(facts)
    driver = next((f.fields.get("version") for f in facts if f.kind == "driver" and f.fields.get("version")), None)
    points: dict[str, list[dict[str, Any]]] = {}
    about: dict[str, tuple[str, str]] = {}
    for (kind, field), name in otel_names().items():
        for fact in facts:
            value = fact.fields.get(field) if fact.kind == kind else None
            if isinstance(value, bool) or not isinstance(value, int | float):
                continue
            own = attributes((*_hardware(fact, driver), *name.attributes, *labels_of(fact, gpus).pairs))
            point = _point(own, value * name.factor, at, began, counts=name.instrument != "gauge")
            points.setdefault(name.name, []).append(point)
            about[name.name] = (name.unit, name.instrument)
    status = [_status(fact, at, driver) for fact in gpus.facts]
    made = [_metric(name, "", *about[name], found) for name, found in points.items()]
    if status:
        made.append(_metric("hw.status", "", "1", "updown", [point for pair in status for point in pair]))
    return made


def _hardware(fact: Fact, driver: object) -> tuple[tuple[str, object], ...]:
    fields = fact.fields
    return (
        ("hw.id", fields.get("uuid") or fact.key), ("hw.name", f"GPU {fields.get('index')}"), ("hw.model", fields.get("name")),
        ("hw.serial_number", fields.get("serial")), ("hw.vendor", "NVIDIA"), ("hw.driver_version", driver),
        ("hw.firmware_version", fields.get("vbios_version")),
    )  # fmt: skip


def _status(fact: Fact, at: str, driver: object) -> list[dict[str, Any]]:
    """hw.status: 1 for the state that it is in, 0 for the others."""
    from gpuclinic.watch.state import trouble_of

    now = "ok" if trouble_of(fact) is None else "failed"
    base = (*_hardware(fact, driver), ("hw.type", "gpu"))
    return [
        {"attributes": attributes((*base, ("hw.state", state))), "timeUnixNano": at, "asInt": str(int(state == now))}
        for state in ("ok", "degraded", "failed")
    ]


def _point(own: list[dict[str, Any]], value: float, at: str, began: str, *, counts: bool) -> dict[str, Any]:
    point: dict[str, Any] = {"attributes": own, "timeUnixNano": at, "asDouble": float(value)}
    if counts:
        point["startTimeUnixNano"] = began
    return point


def _metric(name: str, text: str, unit: str, instrument: str, points: list[dict[str, Any]]) -> dict[str, Any]:
    made: dict[str, Any] = {"name": name, "description": text, "unit": unit}
    if instrument == "gauge":
        made["gauge"] = {"dataPoints": points}
    else:
        made["sum"] = {
            "dataPoints": points,
            "aggregationTemporality": _CUMULATIVE,
            "isMonotonic": instrument == "counter",
        }
    return made


def logs_request(records: list[dict[str, Any]], boot: str = "") -> dict[str, Any]:
    """ExportLogsServiceRequest."""
    return {"resourceLogs": [{"resource": resource(boot), "scopeLogs": [{"scope": _SCOPE, "logRecords": records}]}]}


def of_event(event: Event) -> dict[str, Any]:
    """A log record of something that happened."""
    severity = _EVENTS.get(event.kind, "info")
    pairs = (
        ("gpuclinic.subject", event.subject), ("hw.serial_number", event.serial), ("gpuclinic.slot", event.slot),
        *((f"gpuclinic.{name}", value) for name, value in event.fields.items()),
    )  # fmt: skip
    return _record(f"gpuclinic.{event.kind}", event.at, severity, event.text, pairs)


def of_alert(alert: Alert, what: str, at: float) -> dict[str, Any]:
    """A log record of a finding that began or ended. what: fired, worsened, eased, resolved."""
    finding = alert.finding
    step = finding.steps[0].get("text") if finding.steps else None
    pairs = (
        ("gpuclinic.rule", alert.rule), ("gpuclinic.what", what), ("gpuclinic.severity", alert.severity), ("gpuclinic.alert_id", alert.id),
        ("gpuclinic.subject", alert.subject), ("gpuclinic.component", finding.component), ("gpuclinic.cause", finding.cause),
        ("gpuclinic.action", finding.action), ("gpuclinic.step", step), ("gpuclinic.explained_by", alert.explained_by),
        ("gpuclinic.gpu", finding.gpu_index), ("gpuclinic.pci_bus_id", finding.gpu), ("hw.serial_number", alert.serial),
        ("gpuclinic.evidence", "\n".join(where.text for where in finding.evidence[:4] if where.text)),
    )  # fmt: skip
    return _record("gpuclinic.finding", at, "info" if what == "resolved" else alert.severity, finding.title, pairs)


def _record(name: str, at: float, severity: str, text: str, pairs: Iterable[tuple[str, object]]) -> dict[str, Any]:
    number, word = _SEVERITY.get(severity, _SEVERITY["info"])
    return {
        "timeUnixNano": _nanos(at), "observedTimeUnixNano": _nanos(at), "severityNumber": number, "severityText": word,
        "eventName": name, "body": {"stringValue": text[:4096]}, "attributes": attributes((("event.name", name), *pairs)),
    }  # fmt: skip


def _nanos(at: float) -> str:
    return str(int(at * 1_000_000) * 1000)
