"""How storage and CPU keep up: iostat, nfsiostat, mountstats, vmstat, mpstat and sar."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpuclinic.recognise.parsers._host_util import MAX_FACTS, clipped_lines, fact, number, whole

if TYPE_CHECKING:
    from gpuclinic.model import Document, Fact
    from gpuclinic.model._types import Scalar

_CPU_NAMES = {
    "%user": "user_pct",
    "%usr": "user_pct",
    "us": "user_pct",
    "%system": "system_pct",
    "%sys": "system_pct",
    "sy": "system_pct",
    "%iowait": "iowait_pct",
    "wa": "iowait_pct",
    "%steal": "steal_pct",
    "st": "steal_pct",
    "%idle": "idle_pct",
    "id": "idle_pct",
    "%soft": "softirq_pct",
    "%nice": "nice_pct",
    "r": "running",
    "b": "blocked",
    "si": "swap_in",
    "so": "swap_out",
    "bi": "blocks_in",
    "bo": "blocks_out",
}
_DISK_NAMES = {
    "%util": "util_pct",
    "r_await": "read_await_ms",
    "w_await": "write_await_ms",
    "await": "await_ms",
    "r/s": "reads_s",
    "w/s": "writes_s",
    "rkb/s": "read_kib_s",
    "wkb/s": "write_kib_s",
    "rmb/s": "read_mib_s",
    "wmb/s": "write_mib_s",
    "aqu-sz": "queue",
    "avgqu-sz": "queue",
    "svctm": "service_ms",
}
_NFS_MOUNT = re.compile(r"^(?P<device>\S+:\S+) mounted on (?P<mount>/.*?)(?: with fstype \S+.*)?:?\s*$")
_NFS_STATS = re.compile(r"^device (?P<device>\S+) mounted on (?P<mount>\S+) with fstype nfs")
_NFS_OP = re.compile(r"^\s*(?P<op>READ|WRITE|GETATTR|COMMIT|OPEN|LOOKUP):\s+(?P<values>\d[\d ]+)$")


def parse_iostat(document: Document) -> list[Fact]:
    """iostat -x: "disk_io" for each device with its highest utilisation, and "cpu" for its avg-cpu rows."""
    disks: dict[str, Fact] = {}
    facts: list[Fact] = []
    header: list[str] = []
    cpu_header: list[str] = []
    for index, line in enumerate(clipped_lines(document)):
        words = line[:1000].split()
        if not words:
            header = []
            continue
        if words[0].rstrip(":") in ("Device", "设备") and len(words) > 4:
            header = [word.lower() for word in words[1:]]
            continue
        if words[0] in ("avg-cpu:", "平均CPU:"):
            cpu_header = words[1:]
            continue
        if cpu_header:
            values = dict(zip(cpu_header, words, strict=False))
            cpu_header = []
            fields: dict[str, Scalar] = {_CPU_NAMES[k]: number(v) for k, v in values.items() if k in _CPU_NAMES}
            facts.append(fact(document, "cpu", "all", fields, index, line))
            continue
        if header and len(words) == len(header) + 1:
            fields = {"device": words[0]}
            fields.update(
                {_DISK_NAMES[k]: number(v) for k, v in zip(header, words[1:], strict=True) if k in _DISK_NAMES}
            )
            old = disks.get(words[0])
            if old is None or float(fields.get("util_pct") or 0) >= float(old.fields.get("util_pct") or 0):
                disks[words[0]] = fact(document, "disk_io", words[0], fields, index, line)
    return [*disks.values(), *facts][:MAX_FACTS]


def parse_cpu_samples(document: Document) -> list[Fact]:
    """vmstat, mpstat, sar -u: the sample of each block with the most waiting or stealing, as "cpu"."""
    facts: list[Fact] = []
    header: list[str] = []
    best: Fact | None = None
    samples: list[Fact] = []

    def close() -> None:
        nonlocal best
        if best is not None:
            best.fields["samples"] = len(samples)
            facts.append(best)
        best = None
        samples.clear()

    for index, line in enumerate(clipped_lines(document)):
        words = line[:600].split()
        known = [word for word in words if word in _CPU_NAMES]
        if ("%idle" in words or {"us", "sy", "id", "wa"} <= set(words)) and len(known) >= 4 and words[0] != "avg-cpu:":
            close()
            header = words
            continue
        values = [word for word in words if re.fullmatch(r"-?\d+(?:[.,]\d+)?", word)]
        if not header or len(values) < 4:
            continue
        if "CPU" in header and "all" not in words:
            continue
        names = header[-len(values) :] if "%idle" in header else header
        if "%idle" not in header and len(values) != len(header):
            continue
        fields: dict[str, Scalar] = {
            _CPU_NAMES[k]: number(v) for k, v in zip(names, values, strict=False) if k in _CPU_NAMES
        }
        sample = fact(document, "cpu", "all", fields, index, line)
        samples.append(sample)
        if best is None or _badness(fields) > _badness(best.fields):
            best = sample
    close()
    return facts[:200]


def _badness(fields: dict[str, Scalar]) -> float:
    return sum(float(fields.get(name) or 0) for name in ("iowait_pct", "steal_pct", "system_pct"))


def parse_nfsiostat(document: Document) -> list[Fact]:
    """nfsiostat and mountstats: "nfs_io" for each mount with read_rtt_ms, read_exe_ms, write_..., retrans."""
    found: dict[str, dict[str, Scalar]] = {}
    start: dict[str, tuple[int, str]] = {}
    mount, side, names = "", "", []
    for index, line in enumerate(clipped_lines(document)):
        line = line[:600]
        match = _NFS_STATS.match(line) or _NFS_MOUNT.match(line)
        if match:
            mount, side = match["mount"].rstrip(":"), ""
            found.setdefault(mount, {"mount": mount, "device": match["device"]})
            start.setdefault(mount, (index, line))
            continue
        if not mount:
            continue
        head = re.match(r"^\s*(read|write)\s*:", line)
        if head:
            side, names = (
                head.group(1),
                re.findall(r"ops/s|kB/s|kB/op|retrans|avg RTT \(ms\)|avg exe \(ms\)|avg queue \(ms\)|errors", line),
            )
            continue
        operation = _NFS_OP.match(line)
        if operation:
            _operation(found[mount], operation)
            continue
        values = re.findall(r"\d+(?:\.\d+)?(?!\s*%?\))", re.sub(r"\([^)]*\)", "", line))
        if side and values and len(values) >= len(names) - 1:
            for name, value in zip(names, values, strict=False):
                short = {
                    "avg RTT (ms)": "rtt_ms",
                    "avg exe (ms)": "exe_ms",
                    "avg queue (ms)": "queue_ms",
                    "retrans": "retrans",
                    "kB/s": "kib_s",
                    "ops/s": "ops_s",
                }.get(name)
                if short:
                    found[mount][f"{side}_{short}"] = number(value)
                    if short == "rtt_ms":
                        start[mount] = (index, line)
            side = ""
    return [
        fact(document, "nfs_io", where, fields, *start[where]) for where, fields in found.items() if len(fields) > 2
    ][:500]


def _operation(fields: dict[str, Scalar], match: re.Match[str]) -> None:
    """mountstats: ops, transmissions, timeouts, bytes sent, received, queue, rtt and total milliseconds."""
    values = [whole(part) or 0 for part in match["values"].split()]
    if len(values) < 8 or values[0] == 0:
        return
    name = match["op"].lower()
    fields[f"{name}_rtt_ms"] = round(values[6] / values[0], 3)
    fields[f"{name}_exe_ms"] = round(values[7] / values[0], 3)
    fields[f"{name}_retrans"] = values[1] - values[0]
    fields[f"{name}_timeouts"] = values[2]
