"""What node-problem-detector is told: one short line and an exit code from the agent's state; its configuration, made from what we know. Pure."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from gpuclinic.knowledge.npd import kernel_rules
from gpuclinic.model import SEVERITIES

OK, NON_OK, UNKNOWN = 0, 1, 2
"""Exit codes of its custom plugins (kubernetes/node-problem-detector, docs/custom_plugin_monitor.md)."""
MOST_BYTES = 80
STALE_S = 60.0
"""A state is written every five seconds; one so old was written by an agent that is gone or stuck."""


class Group(NamedTuple):
    """One condition of a node. components: of the findings that make it so; empty: all that no other condition has."""

    name: str
    condition: str
    reason: str
    well: str
    well_reason: str
    components: tuple[str, ...]


GROUPS = (
    Group("gpu", "GPUProblem", "GPUUnhealthy", "GPUs are healthy", "GPUsAreHealthy", ("gpu", "pcie", "nvlink", "thermal", "power")),
    Group("driver", "GPUSoftwareProblem", "GPUSoftwareUnhealthy", "GPU driver and runtime are healthy", "GPUSoftwareIsHealthy",
          ("driver", "software", "container", "scheduler")),
    Group("host", "GPUHostProblem", "GPUHostUnhealthy", "host is healthy", "GPUHostIsHealthy",
          ("host", "kernel", "storage", "network", "process", "security")),
)  # fmt: skip


class Said(NamedTuple):
    """One line of at most 80 bytes, and the exit code."""

    line: str
    code: int


def said(state: dict[str, Any], group: str | None, least: str, now: float | None = None) -> Said:
    """What holds in a state (state.json). group: of GROUPS, by name; None: all. least: mildest severity that makes the node not well."""
    at = state.get("at")
    age = (time.time() if now is None else now) - at if isinstance(at, int | float) else None
    if age is None or age > STALE_S or age < -STALE_S:
        what = "no sample yet" if age is None else f"newest sample is {age:.0f} s old"
        return Said(shortened(f"agent.stale {what}"), UNKNOWN)
    components = next((one.components for one in GROUPS if one.name == group), None)
    worst = [
        alert for alert in _alerts(state)
        if SEVERITIES.index(alert["severity"]) >= SEVERITIES.index(least) and (components is None or alert["component"] in components)
    ]  # fmt: skip
    if not worst:
        blind = _blind(state) if group in (None, "gpu") else None
        return Said(shortened(blind), UNKNOWN) if blind else Said(shortened(_well(state, group)), OK)
    first = worst[0]
    more = f" +{len(worst) - 1}" if len(worst) > 1 else ""
    where = f" GPU {first['gpu']}" if first["gpu"] is not None else f" {first['subject']}" if first["subject"] else ""
    return Said(shortened(f"{first['rule']}{where}{more}: {first['title']}"), NON_OK)


def _alerts(state: dict[str, Any]) -> list[dict[str, Any]]:
    """The alerts that no other explains, worst first. What is not as it should be is passed over: a damaged one hides none."""
    found = []
    told = state.get("alerts")
    for alert in told if isinstance(told, list) else []:
        finding = alert.get("finding") if isinstance(alert, dict) else None
        if not isinstance(finding, dict) or alert.get("severity") not in SEVERITIES or alert.get("explained_by"):
            continue
        found.append({
            "rule": str(alert.get("rule")), "severity": alert["severity"], "component": str(finding.get("component")),
            "subject": str(alert.get("subject") or ""), "gpu": finding.get("gpu_index"), "title": str(finding.get("title") or ""),
            "at": alert.get("fired_at") or 0,
        })  # fmt: skip
    return sorted(found, key=lambda one: (-SEVERITIES.index(one["severity"]), one["at"], one["rule"], one["subject"]))


def _blind(state: dict[str, Any]) -> str | None:
    """Why GPUs could not be looked at, where a required look was not possible: that is not well."""
    gaps = state.get("gaps")
    for gap in gaps if isinstance(gaps, list) else []:
        if isinstance(gap, dict) and gap.get("required"):
            return f"agent.blind {gap.get('check')}: {gap.get('why')}"
    return None


def _well(state: dict[str, Any], group: str | None) -> str:
    gpus = state.get("gpus")
    count = (
        f" ({gpus.get('readable')}/{gpus.get('expected')} GPUs)"
        if isinstance(gpus, dict) and group in (None, "gpu")
        else ""
    )
    return "ok " + next((one.well for one in GROUPS if one.name == group), "nothing found") + count


def shortened(text: str) -> str:
    """One printable line of at most 80 bytes, cut between characters."""
    line = "".join(c if c.isprintable() else " " for c in text)
    data = line.encode("utf-8", "replace")
    return line if len(data) <= MOST_BYTES else data[: MOST_BYTES - 3].decode("utf-8", "ignore") + "..."


def plugin_config(path: str = "/usr/bin/gpuclinic") -> dict[str, Any]:
    """A custom plugin monitor: a condition for criticals of each group, an event for warnings."""
    rules: list[dict[str, Any]] = []
    for group in GROUPS:
        base = {"path": path, "timeout": "4s"}
        rules += [
            {
                "type": "permanent",
                "condition": group.condition,
                "reason": group.reason,
                "args": ["npd", "--about", group.name],
                **base,
            },
            {
                "type": "temporary",
                "reason": f"{group.reason}Warning",
                "args": ["npd", "--about", group.name, "--least", "warning"],
                **base,
            },
        ]
    return {
        "plugin": "custom",
        "pluginConfig": {
            "invoke_interval": "30s", "timeout": "5s", "max_output_length": MOST_BYTES, "concurrency": 3,
            "enable_message_change_based_condition_update": True,
        },
        "source": "gpuclinic", "metricsReporting": True,
        "conditions": [{"type": group.condition, "reason": group.well_reason, "message": group.well} for group in GROUPS],
        "rules": rules,
    }  # fmt: skip


def kernel_config() -> dict[str, Any]:
    """A log monitor over the kernel's log, for nodes without the agent: Xids by class, SXids, AER, machine checks."""
    condition = "GPUKernelProblem"
    return {
        "plugin": "kmsg", "logPath": "/dev/kmsg", "lookback": "5m", "bufferSize": 10, "source": "gpuclinic-kernel-log", "metricsReporting": True,
        "conditions": [{"type": condition, "reason": "NoGPUFaultInKernelLog", "message": "kernel log shows no fatal GPU fault"}],
        "rules": [
            {"type": rule.kind, "reason": rule.reason, "pattern": rule.pattern} | ({"condition": condition} if rule.kind == "permanent" else {})
            for rule in kernel_rules()
        ],
    }  # fmt: skip
