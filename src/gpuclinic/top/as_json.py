"""The body of `gpuclinic top --once --json`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from gpuclinic.top.choices import shown_holders

if TYPE_CHECKING:
    from gpuclinic.top.choices import Choices
    from gpuclinic.top.view import Gpu, View


def body(view: View, choices: Choices) -> dict[str, Any]:
    """What stands in it beside the envelope. Fields have the names and units of docs/facts.md."""
    return {
        "at": view.at,
        "agent": view.agent,
        "took_s": view.took_s,
        "machine": msgspec.to_builtins(view.host),
        "gpus": [
            _gpu(gpu, choices.lang) for gpu in view.gpus if not choices.only_gpus or gpu.index in choices.only_gpus
        ],
        "processes": [msgspec.to_builtins(holder) for _, holder in shown_holders(view, choices)],
        "findings": [
            {**msgspec.to_builtins(a.text(choices.lang)), "alert": a.id, "since": a.since} for a in view.alerts
        ],
        "not_looked_at": [msgspec.to_builtins(gap) for gap in view.gaps],
    }


def _gpu(gpu: Gpu, lang: str) -> dict[str, Any]:
    limit = gpu.limit
    return {
        "gpu": gpu.key,
        "gpu_index": gpu.index,
        "name": gpu.name,
        "trouble": gpu.trouble,
        "heat_limit_c": gpu.heat_limit_c,
        "throttled_by": gpu.slowed,
        "runs_into": None
        if limit is None
        else {"id": limit.id, "severity": limit.severity, "text": limit.zh if lang == "zh" else limit.en},
        "fields": dict(gpu.fields),
        "mig_devices": [dict(fields) for fields in gpu.mig],
    }
