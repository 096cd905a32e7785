"""Prometheus' alert and recording rules: those of the agent's own findings, and those that are made from the check rows. Pure."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from gpuclinic.knowledge import load_checks, watched_rows
from gpuclinic.knowledge.causes import cause_info
from gpuclinic.knowledge.metrics import metric_of
from gpuclinic.watch.exporter.devices import OF_A_GPU, label_of_field, label_of_key
from gpuclinic.watch.exporter.families import STATES
from gpuclinic.watch.exporter.promql import Untranslated, translated

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuclinic.knowledge import Check

SEVERITIES = ("critical", "warning", "info")
_EVERY = "30s"
_GPU = "GPU {{ $labels.gpu }} ({{ $labels.pci_bus_id }})"
_YAML_WORDS = frozenset(("y", "n", "yes", "no", "on", "off", "true", "false", "null"))
_KEY_LABELS = {"gpu": "pci_bus_id", "nvlink_gpu": "pci_bus_id", "nvlink": "pci_bus_id", "mig_device": "mig_uuid"}


class Left(NamedTuple):
    """A condition of a row that Prometheus cannot be asked; the agent judges it, and its finding is an alert all the same."""

    row: str
    severity: str
    why: str


def alert_name(row: str) -> str:
    """gpu.ecc.uncorrectable is GpuclinicGpuEccUncorrectable."""
    return "Gpuclinic" + "".join(word.capitalize() for word in re.split(r"[._]", row))


def recording_rules() -> dict[str, Any]:
    """What dashboards of many servers ask for, counted once."""
    by_node = "by (job, instance)"
    rows = (
        ("instance:gpuclinic_gpu_utilization:avg", f"avg {by_node} (gpuclinic_gpu_utilization_ratio)"),
        ("instance:gpuclinic_gpu_memory_used:ratio",
         f"sum {by_node} (gpuclinic_gpu_memory_used_bytes) / sum {by_node} (gpuclinic_gpu_memory_size_bytes)"),
        ("instance:gpuclinic_gpu_power_watts:sum", f"sum {by_node} (gpuclinic_gpu_power_watts)"),
        ("instance:gpuclinic_gpu_temperature_celsius:max", f"max {by_node} (gpuclinic_gpu_temperature_celsius)"),
        ("instance:gpuclinic_gpus_idle_held:count",
         (f"count {by_node} (avg_over_time(gpuclinic_gpu_utilization_ratio[10m]) < 0.01 and gpuclinic_gpu_memory_used_bytes > 1073741824)"
         " or 0 * gpuclinic_gpus_present")),
        ("instance:gpuclinic_gpus_throttled:count",
         (f'count {by_node} (max without (reason) (gpuclinic_gpu_throttled{{reason=~"hw_.*|sw_thermal.*"}}) == 1)'
         " or 0 * gpuclinic_gpus_present")),
        ("instance:gpuclinic_xids:increase1h", f"sum {by_node} (increase(gpuclinic_xids_total[1h]))"),
    )  # fmt: skip
    return {"groups": [_group("gpuclinic-recording", [{"record": name, "expr": expr} for name, expr in rows])]}


def finding_rules() -> dict[str, Any]:
    """The agent judges, Prometheus tells: one rule for each severity of its findings, and rules about the agent itself."""
    told = [
        {
            "alert": "GpuclinicFinding", "expr": f'gpuclinic_alert_active{{severity="{severity}",explained_by=""}}',
            "labels": {"severity": severity},
            "annotations": {
                "summary": "{{ $labels.rule }} on {{ $labels.instance }}: {{ $labels.subject }}",
                "description": "gpuclinic alert show {{ $labels.alert_id }} on that server tells cause, evidence and what to do.",
            },
        }
        for severity in SEVERITIES
    ]  # fmt: skip
    return {"groups": [_group("gpuclinic-findings", told), _group("gpuclinic-agent", _about_the_agent())]}


def _group(name: str, rules: list[dict[str, Any]]) -> dict[str, Any]:
    return {"name": name, "interval": _EVERY, "rules": rules}


def _about_the_agent() -> list[dict[str, Any]]:
    return [
        _rule("GpuclinicAgentGone", "gpuclinic_agent_up offset 15m unless gpuclinic_agent_up", 120, "warning",
              "The agent on {{ $labels.instance }} does not answer any more",
              "Nothing is known of this server's GPUs: systemctl status gpuclinic-agent."),
        _rule("GpuclinicSampleOld", "gpuclinic_sample_age_seconds > 60", 60, "critical",
              "The agent on {{ $labels.instance }} has taken no sample for {{ $value | humanizeDuration }}", "Its values are of the past."),
        _rule("GpuclinicSampleSlow", "gpuclinic_sample_duration_seconds > 5", 600, "warning",
              "Samples on {{ $labels.instance }} take {{ $value | humanizeDuration }}", "Slow answers often come before a wedged driver."),
        _rule("GpuclinicGpuMissing", "gpuclinic_gpus_present < gpuclinic_gpus_expected", 60, "critical",
              "{{ $labels.instance }} shows {{ $value }} GPUs, fewer than it should have",
              "gpuclinic check on that server says which one is missing, and why."),
        _rule("GpuclinicGpuDoesNotAnswer", "gpuclinic_gpu_up == 0", 60, "critical",
              f"{_GPU} on {{{{ $labels.instance }}}} hangs, is lost or cannot be read", "gpuclinic check on that server says why."),
        _rule("GpuclinicNotLookedAt", 'gpuclinic_not_looked_at{look=~"gpu.*"} > 0', 900, "warning",
              "{{ $labels.look }} cannot be looked at on {{ $labels.instance }}", "No values is not the same as healthy."),
    ]  # fmt: skip


def _rule(name: str, expr: str, seconds: float, severity: str, summary: str, description: str) -> dict[str, Any]:
    out: dict[str, Any] = {"alert": name, "expr": expr}
    if seconds:
        out["for"] = f"{seconds:.0f}s"
    return {**out, "labels": {"severity": severity}, "annotations": {"summary": summary, "description": description}}


def xid_rules() -> list[dict[str, Any]]:
    """An Xid is told when its counter grows; which code costs what says the catalogue."""
    text = "Xid {{ $labels.xid }} on " + _GPU + " of {{ $labels.instance }}"
    how = "gpuclinic explain xid {{ $labels.xid }}"
    return [
        _rule(
            "GpuclinicXid",
            f'increase(gpuclinic_gpu_xids_total{{severity="{severity}"}}[5m]) > 0',
            0,
            severity,
            text,
            how,
        )
        for severity in ("critical", "warning")
    ]


def row_rules(lang: str = "en") -> tuple[dict[str, Any], list[Left]]:
    """The rows of `check` as Prometheus' own alerts, by component; and what of them it cannot be asked."""
    groups: dict[str, list[dict[str, Any]]] = {}
    left: list[Left] = []
    for row in watched_rows(load_checks().checks):
        for severity in SEVERITIES:
            condition = getattr(row, severity)
            if not condition:
                continue
            try:
                expr = translated(row, condition)
            except Untranslated as problem:
                left.append(Left(row.id, severity, str(problem)))
                continue
            groups.setdefault(row.component, []).append(_of_row(row, severity, expr, lang))
    named = [_group(f"gpuclinic-rows-{name}", rules) for name, rules in groups.items()]
    return {"groups": [_group("gpuclinic-xids", xid_rules()), *named]}, left


def _of_row(row: Check, severity: str, expr: str, lang: str) -> dict[str, Any]:
    rule: dict[str, Any] = {"alert": alert_name(row.id), "expr": expr}
    if row.for_s:
        rule["for"] = f"{row.for_s:.0f}s"
    labels = {"severity": severity, "rule": row.id, "component": row.component}
    if row.cause:
        labels["cause"] = row.cause
    zh = lang == "zh"
    title, detail = (row.title_zh, row.detail_zh) if zh else (row.title_en, row.detail_en)
    summary = _templated(row, title) + " ({{ $labels.instance }})"
    notes = {"summary": summary, "description": _templated(row, detail), "action": _first_step(row, lang)}
    return {**rule, "labels": labels, "annotations": {name: text for name, text in notes.items() if text}}


def _first_step(row: Check, lang: str) -> str:
    steps = row.steps or (cause_info(row.cause).steps if row.cause else [])
    if not steps:
        return ""
    return _templated(row, steps[0].zh if lang == "zh" else steps[0].en)


def _templated(row: Check, text: str) -> str:
    """A row's text with labels in place of fields, and with queries in place of numbers; of what is no series only its place is left."""

    def one(found: re.Match[str]) -> str:
        field = found[1]
        if field in ("index", "gpu_index"):
            return "{{ $labels.gpu }}"
        label = _KEY_LABELS.get(row.over) if field in ("key", "gpu") else label_of_field(row.over, field)
        if label is None and field == "key":
            label = label_of_key(row.over)
        if label is not None:
            return f"{{{{ $labels.{label} }}}}"
        return _asked(row, field) or "…"

    return re.sub(r"\{([a-z_0-9]+)[^}]*\}", one, text)


def _asked(row: Check, field: str) -> str | None:
    """A field's value now, asked of Prometheus when the alert is written."""
    about = ["instance"]
    if row.over in OF_A_GPU:
        about.append("pci_bus_id")
    elif (label := label_of_key(row.over)) is not None:
        about.append(label)
    chosen = ",".join(f"{label}=%q" for label in about)
    given = " ".join(f"$labels.{label}" for label in about)
    metric = metric_of(row.over, field)
    if metric is not None:
        scale = "" if metric.factor == 1.0 else f" / {metric.factor:.10g}"
        return f'{{{{ with query (printf "{metric.name}{{{chosen}}}{scale}" {given}) }}}}{{{{ . | first | value | printf "%.4g" }}}}{{{{ end }}}}'
    if row.over == "gpu" and field in STATES:
        series = f"gpuclinic_gpu_state_info{{field='{field}',{chosen}}}"
        return f'{{{{ with query (printf "{series}" {given}) }}}}{{{{ . | first | label "value" }}}}{{{{ end }}}}'
    return None


def as_yaml(content: dict[str, Any], head: Iterable[str] = ()) -> str:
    """The rules as a file. Texts are quoted as JSON does, which is YAML, too."""
    lines = [f"# {line}".rstrip() for line in head] + ["groups:"]
    for group in content["groups"]:
        lines += [f"- name: {group['name']}", f"  interval: {group['interval']}", "  rules:"]
        for rule in group["rules"]:
            lead = "  - "
            for name, value in rule.items():
                if isinstance(value, dict):
                    lines.append(f"{lead}{name}:")
                    lines += [f"      {key}: {_text(inner)}" for key, inner in value.items()]
                else:
                    lines.append(f"{lead}{name}: {_text(value)}")
                lead = "    "
    return "\n".join(lines) + "\n"


def _text(value: str) -> str:
    plain = re.fullmatch(r"[A-Za-z][\w-]*|\d+[smh]", value) is not None and value.lower() not in _YAML_WORDS
    return value if plain else json.dumps(value, ensure_ascii=False)


def left_as_comments(left: list[Left]) -> list[str]:
    """What the file says of rows that are not in it."""
    whys: dict[str, list[str]] = {}
    for one in left:
        whys.setdefault(one.why, []).append(f"{one.row} ({one.severity})")
    out = [f"{len(left)} conditions ask for what is no series; the agent judges them, and GpuclinicFinding tells:"]
    return out + [f"  {why}: {', '.join(rows)}" for why, rows in sorted(whys.items())]
