"""What a snapshot made by hand does not tell: for each look whose facts neither files nor texts gave, a gap that says what would."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gpuclinic.model import Gap

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gpuclinic.diagnose.judge import Judged
    from gpuclinic.knowledge import Check
    from gpuclinic.model import Fact
    from gpuclinic.observe.asking import Asked


class _Telling(NamedTuple):
    """kinds: any fact of these shows that the look had something to judge. by: files and outputs that would tell."""

    kinds: tuple[str, ...]
    by: str


_LOOKS: dict[str, _Telling] = {
    "host.memory": _Telling(("memory",), "root/proc/meminfo or commands/free.txt"),
    "host.cpu": _Telling(("cpu_times", "cpu"), "root/proc/stat and root/proc/loadavg"),
    "host.cgroup": _Telling(("cgroup",), "memory.* of root/sys/fs/cgroup"),
    "host.time": _Telling(("time_sync",), "commands/timedatectl.txt, chronyc-tracking.txt or ntpq-p.txt"),
    "host.limits": _Telling(("limit", "kernel_table"), "root/proc/self/limits, root/proc/sys/fs/file-nr"),
    "host.settings": _Telling(("sysctl", "cpu_frequency", "clock_source"), "root/proc/sys and root/sys/devices/system/cpu"),
    "storage.mounts": _Telling(("fs",), "commands/df.txt and df-i.txt"),
    "storage.devices": _Telling(("block_device", "raid", "nvme"), "root/proc/diskstats, root/sys/block"),
    "network.interfaces": _Telling(("net_interface",), "root/sys/class/net or commands/ip-s-link.txt"),
    "network.names": _Telling(("own_name",), "root/etc/hosts and root/etc/hostname"),
    "kernel.boots": _Telling(("restart",), "root/var/log/wtmp, commands/last-x.txt or who-b.txt"),
    "kernel.state": _Telling(("kernel_taint",), "root/proc/sys/kernel/tainted"),
    "driver.next_boot": _Telling(("next_kernel",), "root/boot, root/lib/modules, root/etc/default/grub"),
    "process.gpu": _Telling(("process_count",), "root/proc/PID/stat or commands/ps-aux.txt"),
}  # fmt: skip
"""Looks that find something on every server. The others are silent where their subject does not exist, which a snapshot cannot prove."""


def untold(host: Asked, looks: Iterable[str], facts: Sequence[Fact], gaps: Sequence[Gap]) -> list[Gap]:
    """A gap for each such look of a snapshot made by hand, unless it has one already."""
    if host.live:  # a capture of a running machine is, too: there each look was answered, or said why not
        return []
    known = {fact.kind for fact in facts}
    said = {gap.check for gap in gaps}
    out: list[Gap] = []
    for look in looks:
        telling = _LOOKS.get(look)
        if telling is not None and look not in said and not known.intersection(telling.kinds):
            out.append(Gap(look, "not in the snapshot", fix=f"add {telling.by}"))
    return out


def unjudged(
    required: Iterable[str], rows: Iterable[Check], judged: Sequence[Judged], gaps: Sequence[Gap]
) -> list[Gap]:
    """What --require names and could not be judged, since its look was not answered or a field was not told: that makes it unknown."""
    done = {one.row.id for one in judged if one.state in ("holds", "no")}
    partly = {one.row.id for one in judged if one.state == "unseen"}
    reasons = {gap.check: gap.why for gap in gaps}
    out: list[Gap] = []
    for name in required:
        named = [row for row in rows if row.id == name or row.id.startswith(name.rstrip(".") + ".")]
        if not named or any(row.id in done for row in named):
            continue
        why = next((f"{row.look}: {reasons[row.look]}" for row in named if row.look in reasons), None)
        if why is None and any(row.id in partly for row in named):
            why = "what it needs was not told"
        if why is not None:
            out.append(Gap(name, f"could not be judged ({why})", required=True))
    return out
