"""What a person has chosen on the screen, and which processes and findings that leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from gpuclinic.top.view import Holder, View
    from gpuclinic.watch.alerts import Alert

ZONES = ("gpus", "findings", "processes")
SORTS = ("gpu", "vram", "gpu_pct", "cpu_pct", "rss", "age", "user", "pid", "command")
_DOWNWARDS = frozenset(("vram", "gpu_pct", "cpu_pct", "rss", "age"))
SECONDS_A_DOT = (1, 2, 5, 15, 30)


class Choices(msgspec.Struct):
    """State of the screen. only_gpus, only_user: from the command line, or chosen. at: the chosen row of each zone; first: its first shown.

    asking: "" or what is typed at the bottom (filter, search). overlay: "" or help, alert, process, kill, nice, sort, beside.
    """

    lang: str = "en"
    zone: str = "processes"
    at: dict[str, int] = {}
    first: dict[str, int] = {}
    sort: str = "gpu"
    inverted: bool = False
    tree: bool = False
    filter: str = ""
    search: str = ""
    only_gpus: list[int] = []
    only_user: str = ""
    graphs: bool = True
    zoom: int = 1
    paused: bool = False
    asking: str = ""
    overlay: str = ""
    overlay_first: int = 0
    pid: int = 0
    start: int | None = None
    subject: str = ""
    signal: int = 15
    nice: int = 0
    said: str = ""
    theme: int = 0

    def row(self, zone: str) -> int:
        """The chosen row of a zone."""
        return self.at.get(zone, 0)


def shown_alerts(view: View) -> list[Alert]:
    """What is told: an alert that another explains is not."""
    return [alert for alert in view.alerts if alert.explained_by is None]


def _value(holder: Holder, sort: str) -> tuple[int, object]:
    value: object = {
        "gpu": holder.gpus, "vram": holder.mib, "gpu_pct": holder.gpu_pct, "cpu_pct": holder.cpu_pct, "rss": holder.rss_mib, "age": holder.age_s,
        "user": holder.user, "pid": holder.pid, "command": holder.command,
    }[sort]  # fmt: skip
    return (0, 0) if value is None else (1, value)


def shown_holders(view: View, choices: Choices) -> list[tuple[int, Holder]]:
    """Processes in their order, each with its depth in the tree (0 without it)."""
    words = choices.filter.lower().split()
    found = [
        holder
        for holder in view.holders
        if (not choices.only_gpus or any(index in choices.only_gpus for index in holder.gpus))
        and (not choices.only_user or holder.user == choices.only_user)
        and all(word in _haystack(holder) for word in words)
    ]
    found.sort(key=lambda holder: holder.pid)
    found.sort(
        key=lambda holder: _value(holder, choices.sort), reverse=(choices.sort in _DOWNWARDS) != choices.inverted
    )
    if not choices.tree:
        return [(0, holder) for holder in found]
    return _as_tree(found)


def _haystack(holder: Holder) -> str:
    return f"{holder.pid} {holder.user} {holder.where} {holder.command} {' '.join(holder.marks)}".lower()


def _as_tree(holders: list[Holder]) -> list[tuple[int, Holder]]:
    here = {holder.pid for holder in holders}
    below: dict[int, list[Holder]] = {}
    for holder in holders:
        parent = holder.ppid if holder.ppid in here and holder.ppid != holder.pid else 0
        below.setdefault(parent, []).append(holder)
    out: list[tuple[int, Holder]] = []
    seen: set[int] = set()

    def put(parent: int, depth: int) -> None:
        for holder in below.get(parent, []):
            if id(holder) not in seen:
                seen.add(id(holder))
                out.append((depth, holder))
                if holder.pid and depth < 20:
                    put(holder.pid, depth + 1)

    put(0, 0)
    return out + [(0, holder) for holder in holders if id(holder) not in seen]


def matches(holder: Holder, choices: Choices) -> bool:
    """Whether the search finds this process."""
    return bool(choices.search) and choices.search.lower() in _haystack(holder)
