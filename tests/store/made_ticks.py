"""Ticks for the history's tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpuclinic.model import Event, Fact, Finding, Tick

if TYPE_CHECKING:
    from collections.abc import Iterator

START = 1_790_000_000 // 3600 * 3600.0


def gpu(key: str = "0000:1a:00.0", **fields: Any) -> Fact:
    return Fact("gpu", key, fields, {}, "nvml")


def tick(
    second: float,
    *facts: Fact,
    events: list[Event] | None = None,
    ages: dict[str, float] | None = None,
    mono: float | None = None,
) -> Tick:
    """A sample so many seconds after START."""
    return Tick(START + second, 100.0 + (second if mono is None else mono), list(facts), events or [], ages=ages or {})


def xid(
    second: float, code: int = 79, serial: str | None = "S1", slot: str | None = "0000:1a:00.0", text: str = ""
) -> Event:
    return Event(START + second, "xid", slot or "", text or f"Xid {code}", {"code": code}, serial, slot)


def finding(identity: str = "gpu.ecc.uncorrectable", subject: str = "0000:1a:00.0") -> Finding:
    return Finding(identity, "critical", "gpu", subject, "title", "detail", None, "none", [], None, None, [])


def steady(seconds: int, *, first: int = 0) -> Iterator[Tick]:
    """One GPU whose values tell the second that they were taken at."""
    for second in range(first, first + seconds):
        yield tick(
            second,
            gpu(
                index=0, utilization_pct=second % 101, power_w=second / 8, energy_j=second * 700.5, memory_used_mib=1000
            ),
        )
