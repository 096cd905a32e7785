"""The table that plain `nvidia-smi` prints, any driver, also as pasted into a forum: borders lost, blanks collapsed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpuclinic.recognise.parsers.gpu_text import Draft, make, pci_address, stamp, trouble, whole
from gpuclinic.recognise.parsers.nvidia_smi_fields import assign, finish

if TYPE_CHECKING:
    from gpuclinic.model import Document, Fact, Stamp

_HEADER = re.compile(
    r"NVIDIA-SMI\s+(?P<smi>\d[\d.]*)\s+(?:Driver|KMD) Version:\s*(?P<driver>\d[\d.]*|N/A|ERR!)"
    r"(?:\s+CUDA(?: UMD)? Version:\s*(?P<cuda>\d[\d.]*|N/A|ERR!))?"
)
_BUS = re.compile(r"[0-9A-F]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-F]\s")
_VALUE = r"N/A|ERR!|\[?Unknown Error\]?|\[?GPU is lost\]?|\[N/A\]"
_FIRST = re.compile(
    r"(?:^|[\s|>])(?P<index>\d{1,3})\s+(?P<name>[^|\s][^|]{0,60}?)\s*(?:\|\s*)?"
    rf"(?P<persistence>\b(?:On|Off|WDDM|TCC|MCDM)\b|{_VALUE})?\s*\|?\s*"
    r"(?P<bus>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])\s+"
    rf"(?P<display>On|Off|{_VALUE})\s*\|?\s*(?P<ecc>On|Off|\d+|{_VALUE})?\s*\|?\s*$"
)
_SECOND = re.compile(
    rf"(?:^|[\s|>])(?P<fan>\d{{1,3}}\s?%|{_VALUE})\s+(?P<temp>\d{{1,3}}\s?C|{_VALUE})\s+(?:(?P<perf>P\d{{1,2}}|{_VALUE})\s+)?"
    rf"(?P<draw>\d+(?:\.\d+)?\s?W|{_VALUE})\s*/\s*(?P<cap>\d+(?:\.\d+)?\s?W|{_VALUE})\s*\|?\s*"
    rf"(?P<used>\d+\s?Mi?B|{_VALUE})\s*/\s*(?P<total>\d+\s?Mi?B|{_VALUE})\s*\|?\s*"
    rf"(?:(?P<util>\d{{1,3}}\s?%|{_VALUE})\s*)?"
    rf"(?P<mode>Default|E\. ?Process|E\. ?Thread|Prohibited|{_VALUE})?\s*\|?\s*$"
)
_THIRD = re.compile(r"^[\s|>]*(?P<mig>Enabled\*?|Disabled\*?|N/A|ERR!)\s*\|?\s*$")
_PROCESS = re.compile(
    r"(?:^|[\s|>])(?P<gpu>\d{1,3})\s+(?:(?P<gi>N/A|\d{1,4})\s+(?P<ci>N/A|\d{1,4})\s+)?(?P<pid>\d+)\s+(?P<type>M?\+?C\+G|M"
    r"\+C|[CG])\s+"
    r"(?:(?P<name>[^|]*?)\s+)?(?P<memory>\d+\s?Mi?B|N/A|ERR!)\s*\|?\s*$"
)
_PROCESSES = re.compile(r"^[\s|>+]*Processes:")
_NONE = re.compile(r"No running (?:compute )?processes found")
_MIG = re.compile(
    r"(?:^|[\s|>])(?P<gpu>\d{1,3})\s+(?P<gi>\d{1,4})\s+(?P<ci>\d{1,4})\s+(?P<dev>\d{1,4})\s*\|?\s*(?P<used>\d+\s?MiB)\s*/\s*(?"
    r"P<total>\d+\s?MiB)"
    r"\s*\|?\s*(?P<sm>\d{1,6})\s+(?P<ecc>\d+|N/A|ERR!)\b"
)
_COMPUTE_MODE = {"E. Process": "Exclusive_Process", "E. Thread": "Exclusive_Thread"}


class _Snapshot:
    """One table: its GPUs, processes and MIG devices until the next one begins."""

    def __init__(self, document: Document, time: Stamp | None = None) -> None:
        self.document = document
        self.time = time
        self.driver: Draft | None = None
        self.gpus: dict[str, Draft] = {}
        self.others: list[Draft] = []
        self.processes: list[Draft] = []
        self.listed: tuple[int, str] | None = None

    def close(self) -> list[Fact]:
        """The facts of this table."""
        listed = self.listed is not None
        for index, gpu in self.gpus.items():
            own = [p for p in self.processes if str(p.fields["gpu_index"]) == index]
            if listed and self.listed:
                gpu.put("processes", len(own), *self.listed)
                gpu.put("compute_processes", sum("C" in str(p.fields.get("type")) for p in own), *self.listed)
                sizes = [p.fields.get("memory_mib") for p in own]
                gpu.put("process_memory_mib", sum(s for s in sizes if isinstance(s, int)), *self.listed)
                gpu.put("process_memory_known", all(isinstance(s, int) for s in sizes))
            for process in own:
                process.fields["bus_id"] = gpu.fields.get("bus_id")
                process.fields["gpu_key"] = gpu.key
            finish(gpu)
        drafts = [*([self.driver] if self.driver else []), *self.gpus.values(), *self.processes, *self.others]
        if self.gpus:
            first = next(iter(self.gpus.values()))
            count = Draft(self.document, "gpu_count", "nvidia-smi")
            count.fields.update(value=len(self.gpus), tool="nvidia-smi")
            count.lines[""] = first.lines[""]
            drafts.append(count)
        for draft in drafts:
            draft.time = draft.time or self.time
        return [draft.fact() for draft in drafts]


def parse_table(document: Document) -> list[Fact]:
    """Facts gpu, gpu_process, gpu_count, driver and mig_device of every nvidia-smi table in the text."""
    facts: list[Fact] = []
    current = _Snapshot(document)
    last: tuple[str, int, str] | None = None
    lines = document.lines()
    active = 0
    for index, line in enumerate(lines):
        if len(line) > 2000:
            continue
        header = _HEADER.search(line) if "NVIDIA-SMI" in line else None
        if header:
            facts += current.close()
            moment = next((m for before in lines[max(0, index - 3) : index] if (m := stamp(before[:200]))), None)
            current = _Snapshot(document, moment)
            current.driver = _driver(document, header, index, line)
            last = None
            active = index + 60
        elif index <= active or _BUS.search(line) or "Processes:" in line:
            before = len(current.gpus) + len(current.processes)
            last = _row(current, last, index, line)
            if len(current.gpus) + len(current.processes) > before or current.listed:
                active = max(active, index + 30)
    return facts + current.close()


def _driver(document: Document, header: re.Match[str], index: int, line: str) -> Draft:
    draft = Draft(document, "driver", "nvidia-smi", index, line)
    draft.put("tool", "nvidia-smi")
    draft.put("smi_version", header["smi"])
    if header["driver"][0].isdecimal():
        draft.put("version", header["driver"], index, line)
    cuda = header["cuda"]
    if cuda and cuda[0].isdecimal():
        draft.put("cuda_version", cuda, index, line)
    elif cuda:
        draft.put("cuda_missing", True, index, line)
    return draft


def _row(current: _Snapshot, last: tuple[str, int, str] | None, index: int, line: str) -> tuple[str, int, str] | None:
    """Takes one line of a table into the snapshot; last: the GPU whose rows go on, and which row and line came "
    "before."""
    first = _FIRST.search(line)
    if first:
        current.gpus[first["index"]] = _first(current.document, first, index, line)
        return (first["index"], index, "first")
    if last and last[2] == "first" and index - last[1] <= 3:
        second = _SECOND.search(line)
        if second:
            _second(current.gpus[last[0]], second, index, line)
            return (last[0], index, "second")
    if last and last[2] == "second" and index - last[1] <= 2:
        third = _THIRD.match(line)
        if third:
            assign(current.gpus[last[0]], "mig_mode", third["mig"].rstrip("*"), index, line)
            if third["mig"].endswith("*"):
                current.gpus[last[0]].put("mig_change_pending", True, index, line)
            return (last[0], index, "third")
    if _PROCESSES.match(line) or _NONE.search(line):
        current.listed = (index, line)
    process = _PROCESS.search(line)
    if process:
        current.listed = current.listed or (index, line)
        current.processes.append(_process(current.document, process, index, line))
    mig = _MIG.search(line)
    if mig:
        current.others.append(_mig(current.document, mig, index, line))
    return last


def _first(document: Document, row: re.Match[str], index: int, line: str) -> Draft:
    bus = pci_address(row["bus"]) or row["bus"]
    draft = Draft(document, "gpu", bus, index, line)
    draft.put("tool", "nvidia-smi")
    draft.put("index", int(row["index"]), index, line)
    draft.put("bus_id", bus, index, line)
    assign(draft, "name", row["name"].strip(), index, line)
    if row["persistence"] in ("On", "Off"):
        draft.put("persistence", row["persistence"] == "On", index, line)
    elif row["persistence"] and trouble(row["persistence"]):
        assign(draft, "persistence", row["persistence"], index, line)
    ecc = row["ecc"] or ""
    if ecc in ("On", "Off"):
        draft.put("ecc_mode", "Enabled" if ecc == "On" else "Disabled", index, line)
    elif ecc:
        assign(draft, "ecc_uncorrected_volatile", ecc, index, line)
    return draft


def _second(draft: Draft, row: re.Match[str], index: int, line: str) -> None:
    draft.lines["row"] = draft.document.at(index, line)
    for field, group in (
        ("fan_pct", "fan"),
        ("temperature_c", "temp"),
        ("performance_state", "perf"),
        ("power_w", "draw"),
        ("power_limit_w", "cap"),
        ("memory_used_mib", "used"),
        ("memory_total_mib", "total"),
        ("utilization_pct", "util"),
    ):
        if row[group]:
            assign(draft, field, row[group], index, line)
    mode = row["mode"]
    if mode:
        assign(draft, "compute_mode", _COMPUTE_MODE.get(mode, mode), index, line)


def _process(document: Document, row: re.Match[str], index: int, line: str) -> Draft:
    draft = Draft(document, "gpu_process", f"{row['gpu']}/{row['pid']}", index, line)
    draft.put("gpu_index", int(row["gpu"]))
    draft.put("pid", int(row["pid"][:18]))
    draft.put("type", row["type"])
    draft.put("name", (row["name"] or "").strip())
    draft.put("memory_mib", whole(row["memory"]), index, line)
    if (row["gi"] or "N/A") != "N/A":
        draft.put("gi", int(row["gi"]))
    draft.put("name_missing", (row["name"] or "").strip() in ("", "[Not Found]", "-", "[Unknown]"))
    return draft


def _mig(document: Document, row: re.Match[str], index: int, line: str) -> Draft:
    draft = Draft(document, "mig_device", f"{row['gpu']}/{row['dev']}", index, line)
    for field, group in (("gpu_index", "gpu"), ("gi", "gi"), ("ci", "ci"), ("device", "dev"), ("sm_count", "sm")):
        draft.put(field, int(row[group]))
    draft.put("memory_used_mib", whole(row["used"]))
    draft.put("memory_total_mib", whole(row["total"]))
    draft.put("ecc_uncorrected_volatile", whole(row["ecc"]))
    return draft


_HANDLE = re.compile(
    r"Unable to determine the device handle for (?:GPU|gpu)\s*\d*:?\s*(?P<gpu>[0-9A-Fa-f:.]{7,}\d)\s*:\s*(?P<what>"
    r"[^.\n]{3,80})"
)


def parse_handles(document: Document) -> list[Fact]:
    """Facts gpu for the devices whose handle nvidia-smi could not get."""
    facts = []
    for index, line in enumerate(document.lines()):
        found = _HANDLE.search(line)
        address = pci_address(found["gpu"]) if found else None
        if found and address:
            fields = {"bus_id": address, "error": trouble(found["what"]) or found["what"].strip(), "unreachable": True}
            facts.append(make(document, "gpu", address, dict(fields), index, line))
    return facts
