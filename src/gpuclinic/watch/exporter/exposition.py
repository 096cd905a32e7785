"""Metrics as text: Prometheus' format 0.0.4, and OpenMetrics 1.0.0. Pure."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
_LONGEST = 256
"""Characters of a label's value; what other programs tell us may be of any length."""
_UNITS = ("bytes", "seconds", "celsius", "watts", "joules", "hertz", "ratio")

Number = float | int


class Labels(NamedTuple):
    """Names and values of a series, and the same as it is written: made once for all series of a device."""

    pairs: tuple[tuple[str, str], ...]
    text: str

    def plus(self, *more: tuple[str, object]) -> Labels:
        """These and further ones; empty values are left out."""
        return labels(*self.pairs, *more)


class Sample(NamedTuple):
    """One series' value."""

    labels: Labels
    value: Number


@dataclass
class Family:
    """One metric with its series. type: gauge, counter or info. name: as Prometheus' older format has it ("_total", "_info" included)."""

    name: str
    type: str
    help: str
    samples: list[Sample] = field(default_factory=list)


@functools.lru_cache(maxsize=8192)
def labels(*pairs: tuple[str, object]) -> Labels:
    """Labels of values of any kind; None and "" are left out, which to Prometheus is the same as "": control characters and length are bounded."""
    kept = tuple((name, clean(value)) for name, value in pairs if value is not None and value != "")
    text = ",".join(f'{name}="{_escaped(value)}"' for name, value in kept)
    return Labels(kept, f"{{{text}}}" if text else "")


def clean(value: object) -> str:
    """A value that others wrote, as a label may carry it."""
    text = value if isinstance(value, str) else str(value)
    if not text.isprintable():
        text = "".join(c if c.isprintable() else "?" for c in text[: _LONGEST + 1])
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def number(value: Number) -> str:
    """A value as both formats take it."""
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, int):
        return str(value)
    if math.isfinite(value):
        return format(value, ".15g")
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"


def in_text(families: Iterable[Family]) -> str:
    """Prometheus' format 0.0.4."""
    out: list[str] = []
    for family in families:
        if not family.samples:
            continue
        kind = "gauge" if family.type == "info" else family.type
        out += (f"# HELP {family.name} {_help(family.help)}", f"# TYPE {family.name} {kind}")
        out += [f"{family.name}{sample.labels.text} {number(sample.value)}" for sample in family.samples]
    out.append("")
    return "\n".join(out)


def in_openmetrics(families: Iterable[Family]) -> str:
    """OpenMetrics 1.0.0: counters and infos are called without their ending, the end is marked."""
    out: list[str] = []
    for family in families:
        if not family.samples:
            continue
        name = family.name.removesuffix({"counter": "_total", "info": "_info"}.get(family.type, ""))
        kind = family.type
        if kind in ("counter", "info") and name == family.name:
            kind = "unknown"  # a name that others gave; OpenMetrics wants an ending that it has not
        out.append(f"# TYPE {name} {kind}")
        unit = next((unit for unit in _UNITS if name.endswith(f"_{unit}")), None)
        if unit is not None and kind != "info":
            out.append(f"# UNIT {name} {unit}")
        out.append(f"# HELP {name} {_help(family.help, quotes=True)}")
        out += [f"{family.name}{sample.labels.text} {number(sample.value)}" for sample in family.samples]
    out.append("# EOF\n")
    return "\n".join(out)


def _help(text: str, *, quotes: bool = False) -> str:
    text = text.replace("\\", "\\\\").replace("\n", " ")
    return text.replace('"', '\\"') if quotes else text


def wants_openmetrics(accept: str) -> bool:
    """Whether an Accept header asks for OpenMetrics rather than plain text (RFC 9110, 12.5.1: the greater q; the first of equals)."""
    best, chosen = 0.0, False
    for part in accept[:2048].split(","):
        name, *parameters = (piece.strip().lower() for piece in part.split(";"))
        weight = 1.0
        for parameter in parameters:
            if parameter.startswith("q="):
                try:
                    weight = float(parameter[2:])
                except ValueError:
                    weight = 0.0
        if name == "application/openmetrics-text" and any(p.startswith("version=1.") for p in parameters):
            found = True
        elif name in ("text/plain", "text/*", "*/*"):
            found = False
        else:
            continue
        if weight > best:
            best, chosen = weight, found
    return chosen
