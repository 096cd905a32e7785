"""Where a program's time goes: torch profiler tables, nsys stats, nvprof summaries. One "profile" for each text."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from gpuclinic.model import Fact, Where
from gpuclinic.recognise.parsers._host_util import number, unstamped_lines

if TYPE_CHECKING:
    from gpuclinic.model import Document
    from gpuclinic.model._types import Scalar

_COLUMNS = re.compile(r"\s{2,}|\t+")
_TIME = re.compile(r"^(\d{1,15}(?:\.\d{1,15})?)(s|ms|us|ns|μs)?$")
_UNIT = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "μs": 1e-6, "ns": 1e-9}
_TOTAL = re.compile(
    r"(?:Self )?(?P<what>CPU|CUDA|XPU|HIP|Device|PrivateUse1) time total: +(?P<value>\d{1,15}(?:\.\d{0,15})?)(?P<unit>s|ms|us|ns)"
)
_NCCL = re.compile(
    r"nccl(?:Dev)?Kernel|rccl|mscclKernel|^ncclSymk|^ncclLocalOp|hcom_|HcclAi|void all_reduce_kernel|"
    r"cross_device_reduce",
    re.IGNORECASE,
)
_NCCL_OP = re.compile(r"^(?:nccl|c10d|record_param_comms|gloo|hccl):?:?\w*", re.IGNORECASE)
_COPY = re.compile(
    r"memcpy.{0,4}(?:HtoD|DtoH|H2D|D2H|Host-to-Device|Device-to-Host|Unified Host|Unified Device)", re.IGNORECASE
)
_ANY_COPY = re.compile(r"^\[?(?:CUDA )?(?:memcpy|memset|Unified)", re.IGNORECASE)
_LAUNCH = re.compile(r"^(?:cuda|hip|cu)(?:Graph)?Launch(?:Kernel\w*)?(?:_v\d+|_ptsz)?$")
_SYNC = re.compile(r"^(?:cuda|hip|cu)\w*Synchronize\w*$")
_COPY_CALL = re.compile(r"^(?:cuda|hip|cu)Memcpy\w*$")
_LOADER = re.compile(
    r"enumerate\(DataLoader\)|DataLoader.*__next__|train_dataloader_next|Iterator::|get_batch|data_loader",
    re.IGNORECASE,
)
_NSYS_HEAD = re.compile(r"^\s*Time ?\(%\)[ ,]+(?:Total Time|Time)[ ,]*(?:\(ns\))?")
_NVPROF = re.compile(
    r"^\s*(?P<part>GPU activities|API calls)?:?\s+(?P<share>\d{1,15}\.\d{1,15})%\s+(?P<time>\d{1,15}(?:\.\d{0,15})?(?:s|ms|us|"
    r"ns))\s+(?P<calls>\d{1,15})\s+\S+\s+\S+\s+\S+\s+(?P<name>\S.*)$"
)
_PAGEABLE = re.compile(r"use PAGEABLE memory|Pageable\s+Device|Pageable Memory")


class _Row(NamedTuple):
    table: str
    name: str
    seconds: float
    calls: float
    place: Where
    host_seconds: float = 0.0


def _seconds(text: str) -> float | None:
    found = _TIME.match(text.strip())
    return float(found[1]) * _UNIT.get(found[2] or "ns", 1e-9) if found else None


def parse_profile(document: Document) -> list[Fact]:
    """The shares of collectives, copies, kernels, launches and data loading."""
    lines = unstamped_lines(document)
    rows = [*_torch_rows(document, lines), *_nsys_rows(document, lines), *_nvprof_rows(document, lines)]
    if not rows:
        return []
    totals = {m["what"]: float(m["value"]) * _UNIT[m["unit"]] for line in lines for m in _TOTAL.finditer(line[:300])}
    device = next((v for k, v in totals.items() if k != "CPU"), None)
    return [_fact(document, rows, device, totals.get("CPU"), lines)]


def _torch_rows(document: Document, lines: list[str]) -> list[_Row]:
    """Rows of `key_averages().table()`: device time for kernels and copies, host time for calls and operators."""
    rows: list[_Row] = []
    header: list[str] = []
    for index, line in enumerate(lines):
        cells = [c for c in _COLUMNS.split(line.strip()) if c]
        if len(cells) > 3 and cells[0] == "Name" and any(c.startswith("Self C") or "time avg" in c for c in cells):
            header = cells
            continue
        if not header or len(cells) < 4 or set(line.strip()) <= set("- ="):
            continue
        values = dict(
            zip(header[::-1], cells[::-1], strict=False)
        )  # a long name may hold double spaces: count from the right
        name = " ".join(cells[: len(cells) - len(header) + 1]) if len(cells) >= len(header) else cells[0]
        device = next(
            (
                s
                for k, v in values.items()
                if re.match(r"Self (?:CUDA|XPU|HIP|Device|PrivateUse1)$|CUDA total$|CUDA time total$", k)
                and (s := _seconds(v)) is not None
            ),
            0.0,
        )
        device = next(
            (
                s
                for k, v in values.items()
                if re.match(r"Self (?:CUDA|XPU|HIP|Device|PrivateUse1)$", k) and (s := _seconds(v)) is not None
            ),
            device,
        )
        host = next((s for k, v in values.items() if k == "Self CPU" and (s := _seconds(v)) is not None), 0.0)
        calls = number(values.get("# of Calls")) or 0.0
        rows.append(_Row("torch", name, device, calls, document.at(index, line), host))
    return rows


def _nsys_rows(document: Document, lines: list[str]) -> list[_Row]:
    """Rows of the summaries of `nsys stats`, as columns or CSV, old and new headings."""
    rows: list[_Row] = []
    table = ""
    comma = False
    for index, line in enumerate(lines):
        if _NSYS_HEAD.match(line):
            comma = line.count(",") >= 4
            table = (
                "api"
                if "Num Calls" in line
                else "kernel"
                if "Instances" in line
                else "memory"
                if "Operation" in line and "Count" in line
                else ""
            )
            continue
        cells = (
            [c.strip().strip('"') for c in line.split(",")] if comma else [c for c in _COLUMNS.split(line.strip()) if c]
        )
        if (
            not table
            or len(cells) < 5
            or not re.fullmatch(r"(?:100|\d{1,2})(?:\.\d+)?%?", cells[0])
            or not re.fullmatch(r"[\d,]+(?:\.\d+)?", cells[1])
        ):
            table = "" if line.lstrip().startswith(("Processing", "[", "**", "Duration")) else table
            continue
        name = ",".join(cells[8:]) if comma and len(cells) > 8 else cells[-1]
        total = number(cells[1].replace(",", "")) or 0.0
        rows.append(_Row(table, name, total / 1e9, number(cells[2].replace(",", "")) or 0.0, document.at(index, line)))
    return rows


def _nvprof_rows(document: Document, lines: list[str]) -> list[_Row]:
    rows: list[_Row] = []
    part = ""
    for index, line in enumerate(lines):
        found = _NVPROF.match(line[:400])
        if not found:
            continue
        part = found["part"] or part
        if part:
            name = found["name"]
            table = "api" if part == "API calls" else "memory" if _ANY_COPY.match(name) else "kernel"
            rows.append(
                _Row(table, name, _seconds(found["time"]) or 0.0, float(found["calls"]), document.at(index, line))
            )
    return rows


def _sum(rows: list[_Row], pattern: re.Pattern[str], *, host: bool = False) -> tuple[float, float, Where | None]:
    mine = [r for r in rows if pattern.search(r.name)]
    best = max(mine, key=lambda r: r.host_seconds if host else r.seconds, default=None)
    return (
        sum(r.host_seconds if host else r.seconds for r in mine),
        sum(r.calls for r in mine),
        best.place if best else None,
    )


def _fact(document: Document, rows: list[_Row], device_s: float | None, host_s: float | None, lines: list[str]) -> Fact:
    torch = rows[0].table == "torch"
    gpu = [r for r in rows if r.table in ("torch", "kernel", "memory")]
    nccl, _, nccl_place = _sum(gpu, _NCCL)
    if not nccl:
        nccl, _, nccl_place = _sum(gpu, _NCCL_OP)
    copies, copy_calls, copy_place = _sum(gpu, _COPY)
    if torch:
        launch, launches, launch_place = _sum(rows, _LAUNCH, host=True)
        sync, _, _ = _sum(rows, _SYNC, host=True)
        loader, _, loader_place = _sum(rows, _LOADER, host=True)
        copy_call, _, _ = _sum(rows, _COPY_CALL, host=True)
        busy, host = device_s, host_s
    else:
        calls = [r for r in rows if r.table == "api"]
        launch, launches, launch_place = _sum(calls, _LAUNCH)
        sync, _, _ = _sum(calls, _SYNC)
        copy_call, _, _ = _sum(calls, _COPY_CALL)
        loader, loader_place = 0.0, None
        busy = sum(r.seconds for r in gpu) or None
        host = sum(r.seconds for r in calls) or None
    kernels = [r for r in rows if r.table == "kernel"]
    kernel_s = sum(r.seconds for r in kernels) if kernels else (busy - copies if torch and busy else None)
    instances = sum(r.calls for r in kernels) or launches
    pageable = next((i for i, line in enumerate(lines) if _PAGEABLE.search(line[:300])), None)
    fields: dict[str, Scalar] = {
        "tool": "torch profiler" if torch else "nsys",
        "gpu_seconds": busy,
        "cpu_seconds": host,
        "nccl_share": _share(nccl, busy),
        "copy_share": _share(copies, busy),
        "copy_seconds": round(copies, 4),
        "copies": copy_calls,
        "kernel_seconds": round(kernel_s, 4) if kernel_s is not None else None,
        "launches": launches,
        "launch_share": _share(launch, host),
        "sync_share": _share(sync, host),
        "copy_call_share": _share(copy_call, host),
        "loader_share": _share(loader, host),
        "gpu_busy_share": _share(busy, host) if torch and busy and host else None,
        "kernel_us": round(1e6 * kernel_s / instances, 2) if kernel_s and instances else None,
        "pageable": pageable is not None,
    }
    shown = {
        "nccl_share": nccl_place,
        "copy_share": copy_place,
        "launch_share": launch_place,
        "loader_share": loader_place,
    }
    places = {"": rows[0].place, **{name: place for name, place in shown.items() if place is not None}}
    places |= _further_places(document, gpu, pageable, lines)
    return Fact("profile", document.source, fields, places, document.source, document.host)


def _further_places(document: Document, gpu: list[_Row], pageable: int | None, lines: list[str]) -> dict[str, Where]:
    """The second collective, the words about pageable memory, and the totals."""
    places: dict[str, Where] = {}
    second = sorted((r for r in gpu if _NCCL.search(r.name)), key=lambda r: -r.seconds)[1:2]
    if second:
        places["nccl2"] = second[0].place
    if pageable is not None:
        places["pageable"] = document.at(pageable, lines[pageable])
    places |= {
        "cpu_seconds" if "CPU" in line else "gpu_seconds": document.at(index, line)
        for index, line in enumerate(lines)
        if _TOTAL.search(line[:300])
    }
    return places


def _share(part: float | None, whole: float | None) -> float | None:
    return round(min(part / whole, 1.0), 4) if part is not None and whole else None
