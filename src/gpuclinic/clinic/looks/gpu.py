"""The GPUs as the driver tells them: NVML, else nvidia-smi, else /proc/driver/nvidia."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from gpuclinic.clinic.looks._look import Seen, Wanted
from gpuclinic.model import Document, Gap

if TYPE_CHECKING:
    from gpuclinic.observe.asking import Asked

LOOK = "gpu.nvml"
_SMI = ("nvidia-smi", "-q", "-x")


def look_at_gpus(host: Asked, wanted: Wanted) -> Seen:
    """Facts of `gpu`, `gpu_process`, `nvlink`, `driver`, `nvml` ... (docs/facts.md)."""
    from gpuclinic.recognise.parsers.nvml import parse_nvml

    seen = Seen()
    answer = host.nvml(deep=wanted.deep, sample=wanted.sample)
    if answer.ok:
        seen.facts.extend(parse_nvml(Document("nvml", answer.text, name_hint="nvml.json")))
    if any(fact.kind == "gpu" for fact in seen.facts):
        _placed(seen, wanted)
        _tell_gaps(seen)
        return seen
    told = next((f.fields for f in seen.facts if f.kind == "nvml"), {})
    why = _FIXES.get(str(told.get("reason")))
    reason = answer.why or str(told.get("error") or told.get("reason") or "no answer") + (f"; {why}" if why else "")
    if wanted.sample == 0:
        _fall_back(host, seen)
    on_bus = next((f.fields.get("value") for f in wanted.of("gpu_count") if f.key == "pci"), None)
    if on_bus != 0 and not any(fact.kind == "gpu" for fact in seen.facts):
        seen.gaps.append(Gap(LOOK, f"NVML: {reason}", required=True))
    return seen


def _tell_gaps(seen: Seen) -> None:
    """What NVML did not tell of a GPU: all behind a call that hung, everything of one that is lost, what there was no time for."""
    for fact in seen.facts:
        if fact.kind != "gpu":
            continue
        why = fact.fields.get("not_asked")
        if fact.fields.get("hung"):
            why = f"{fact.fields.get('hung_call') or 'a call'} hung; not read from here on"
        elif fact.fields.get("unreachable"):
            why = str(fact.fields.get("error") or "NVML gives no handle")
        if why:
            seen.gaps.append(Gap(LOOK, f"GPU {fact.key}: {why}", required=True))


def _placed(seen: Seen, wanted: Wanted) -> None:
    """Gives a GPU that did not tell its PCI address (a lost one) that of the only function on the bus which no other has."""
    known = {fact.key for fact in seen.facts if fact.kind == "gpu"}
    free = [fact.key for fact in wanted.of("pci_device") if fact.fields.get("is_gpu") and fact.key not in known]
    nameless = [
        place for place, fact in enumerate(seen.facts) if fact.kind == "gpu" and fact.fields.get("bus_id") is None
    ]
    on_bus = sum(bool(fact.fields.get("is_gpu")) for fact in wanted.of("pci_device"))
    if len(free) != len(nameless) or len(known) != on_bus:
        return
    nameless.sort(key=lambda place: str(seen.facts[place].key).zfill(4))  # NVML counts in the order of the bus
    for place, address in zip(nameless, sorted(free), strict=True):
        fact = seen.facts[place]
        fields = {**fact.fields, "bus_id": address}
        seen.facts[place] = msgspec.structs.replace(fact, key=address, fields=fields)


_FIXES = {
    "no_permission": "this user may not open /dev/nvidia*; run as root, or as a user (group) that owns them",
    "device_denied": "this container's or job's cgroup denies /dev/nvidia*; start it with GPUs (docker run --gpus, --gres=gpu)",
    "library_missing": "libnvidia-ml.so.1 is not here; on the host install the driver's libraries, in a container ask for the capability utility",
    "library_unreadable": "libnvidia-ml.so.1 cannot be read",
    "library_foreign": "libnvidia-ml.so.1 is no NVML of this machine; look at LD_LIBRARY_PATH and GPUCLINIC_NVML",
    "bindings_missing": "the Python package nvidia-ml-py is missing",
    "driver_not_loaded": "the kernel driver is not loaded; modprobe nvidia tells why",
    "hung": "the driver does not answer; see dmesg",
}


def _fall_back(host: Asked, seen: Seen) -> None:
    """nvidia-smi -q -x (not where NVML hangs: it asks the same), and what the kernel module itself tells."""
    hung = any(fact.kind == "nvml" and fact.fields.get("reason") == "hung" for fact in seen.facts)
    answer = None if hung else host.command(*_SMI, deadline=2.5, most=8 << 20)
    if answer is not None and answer.ok and answer.data:
        seen.texts.append((answer.named("nvidia-smi -q -x"), answer.data))
    for path, found in host.files("/proc/driver/nvidia/gpus/*/information").items():
        if found.ok:
            seen.texts.append((path, found.data))
