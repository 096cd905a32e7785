"""`nvidia-smi -L`, `--version`, `mig -lgi`, `mig -lgip`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpuclinic.recognise.parsers.gpu_text import Draft, Scalar, make, pci_address, trouble
from gpuclinic.recognise.parsers.nvidia_smi_fields import finish

if TYPE_CHECKING:
    from gpuclinic.model import Document, Fact

_GPU = re.compile(r"^[\s>|]*GPU\s+(?P<index>\d{1,3}): (?P<name>.{1,80}?) \(UUID: (?P<uuid>GPU-[\w-]+|[^)]{1,60})\)")
_COMMAND = re.compile(r"nvidia-smi\b.*(?:-L|--list-gpus|nvlink|\s-i[ =])|--gpus ")
_PART = re.compile(r"\|\s*(?:head|tail|grep|sed|awk)|\s-i[ =]?\S|--id=|--gpus .?.?device=")
_MIG = re.compile(
    r"^[\s>|]*MIG (?P<profile>\d+[gc][\w.+]*)\s+Device\s+(?P<device>\d{1,6}): \(UUID: (?P<uuid>MIG-[\w/-]+)\)"
)
_VERSION = re.compile(
    r"^(?P<what>NVIDIA-SMI|NVML|DRIVER|KMD|CUDA|CUDA UMD) version\s*:\s*(?P<value>\d[\d.]*)\s*$", re.IGNORECASE
)
_INSTANCE = re.compile(
    r"^\|\s+(?P<gpu>\d{1,6})\s+(?P<name>MIG \d+[gc][\w.+]*)\s+(?P<profile>\d+)\s+(?P<instance>\d{1,6})\s+(?P<start>\d{1,6}):(?"
    r"P<size>\d{1,6})\s+\|"
)
_PROFILE = re.compile(
    r"^\|\s+(?P<gpu>\d{1,6})\s+(?P<name>MIG \d+[gc][\w.+]*)\s+(?P<profile>\d+)\s+(?P<free>\d{1,6})/(?P<total>\d{1,6})\s"
)


def parse_list(document: Document) -> list[Fact]:
    """Facts gpu, mig_device, gpu_count of `nvidia-smi -L`."""
    facts: list[Fact] = []
    run: list[Draft] = []
    gpu: Draft | None = None
    last = -10
    whole = True
    for index, line in enumerate(document.lines()):
        found = _GPU.match(line)
        if _COMMAND.search(line):
            whole = _PART.search(line) is None
        if found:
            if found["index"] == "0" or index - last > 40:
                facts += _close(document, run, whole)
                run = []
            last = index
            gpu = Draft(document, "gpu", found["index"], index, line)
            gpu.put("tool", "nvidia-smi -L")
            gpu.put("index", int(found["index"]), index, line)
            wrong = trouble(found["name"])
            gpu.put("error" if wrong else "name", wrong or found["name"], index, line)
            if found["uuid"].startswith("GPU-"):
                gpu.put("uuid", found["uuid"])
            finish(gpu)
            run.append(gpu)
            continue
        mig = _MIG.match(line)
        if mig and gpu is not None:
            last = index
            fields: dict[str, Scalar] = {
                "gpu_index": gpu.fields["index"],
                "device": int(mig["device"]),
                "profile": mig["profile"],
                "uuid": mig["uuid"],
            }
            facts.append(make(document, "mig_device", f"{gpu.key}/{mig['device']}", fields, index, line))
            count = gpu.fields.get("mig_devices")
            gpu.put("mig_devices", (count if isinstance(count, int) else 0) + 1, index, line)
            gpu.put("mig_mode", "Enabled")
    return facts + _close(document, run, whole)


def _close(document: Document, run: list[Draft], whole: bool) -> list[Fact]:
    facts = [gpu.fact() for gpu in run]
    # the head lines of `nvidia-smi nvlink` are the same: they list GPUs too, so the count holds
    if run and whole:
        draft = Draft(document, "gpu_count", "nvidia-smi -L")
        draft.lines[""] = run[-1].lines[""]
        draft.fields.update(value=len(run), tool="nvidia-smi -L", highest_index=run[-1].fields.get("index"))
        facts.append(draft.fact())
    return facts


def parse_versions(document: Document) -> list[Fact]:
    """Facts driver and driver_component of `nvidia-smi --version` and of "NVML library version:"."""
    facts: list[Fact] = []
    for index, line in enumerate(document.lines()):
        found = _VERSION.match(line)
        if found:
            what = found["what"].upper()
            if what in ("DRIVER", "KMD"):
                facts.append(make(document, "driver", "nvidia-smi --version", {"version": found["value"]}, index, line))
            elif what.startswith("CUDA"):
                facts.append(
                    make(document, "driver", "nvidia-smi --version", {"cuda_version": found["value"]}, index, line)
                )
            else:
                fields: dict[str, Scalar] = {"component": what.lower(), "version": found["value"]}
                facts.append(make(document, "driver_component", what.lower(), fields, index, line))
        nvml = re.search(r"NVML library version: (\d[\d.]*\d)", line)
        if nvml:
            fields = {"component": "nvml", "version": nvml.group(1)}
            facts.append(make(document, "driver_component", "nvml", fields, index, line))
    return facts


def parse_mig(document: Document) -> list[Fact]:
    """Facts mig_instance (lgi) and mig_profile (lgip)."""
    facts: list[Fact] = []
    for index, line in enumerate(document.lines()):
        found = _INSTANCE.match(line)
        if found:
            fields: dict[str, Scalar] = {
                "gpu_index": int(found["gpu"]),
                "profile": found["name"][4:],
                "instance": int(found["instance"]),
                "start": int(found["start"]),
                "size": int(found["size"]),
            }
            facts.append(make(document, "mig_instance", f"{found['gpu']}/{found['instance']}", fields, index, line))
            continue
        found = _PROFILE.match(line)
        if found:
            fields = {
                "gpu_index": int(found["gpu"]),
                "profile": found["name"][4:],
                "free": int(found["free"]),
                "total": int(found["total"]),
            }
            facts.append(make(document, "mig_profile", f"{found['gpu']}/{found['name'][4:]}", fields, index, line))
    return facts


_PERSISTENCE = re.compile(
    r"(?P<what>Enabled|Disabled) (?:Legacy )?persistence mode for GPU (?P<gpu>[0-9A-Fa-f:.]{7,})|"
    r"Persistence mode is already (?P<already>Enabled|Disabled) for GPU (?P<gpu2>[0-9A-Fa-f:.]{7,})",
    re.IGNORECASE,
)


def parse_settings(document: Document) -> list[Fact]:
    """Facts gpu_setting: what `nvidia-smi -pm` said it changed."""
    facts: list[Fact] = []
    for index, line in enumerate(document.lines()):
        found = _PERSISTENCE.search(line)
        if found:
            bus = pci_address(found["gpu"] or found["gpu2"]) or ""
            fields: dict[str, Scalar] = {
                "setting": "persistence",
                "value": (found["what"] or found["already"]).lower() == "enabled",
                "changed": found["what"] is not None,
                "bus_id": bus,
            }
            facts.append(make(document, "gpu_setting", f"persistence/{bus}", fields, index, line))
    return facts
