"""What the neighbours of a hardware or driver line add: whose process, which card behind which port, what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuclinic.diagnose.containment import prefer_contained
from gpuclinic.diagnose.kernel_reports import refine_kernel_reports
from gpuclinic.knowledge.xids import recovery_action

if TYPE_CHECKING:
    from gpuclinic.diagnose.candidates import Candidate, Support
    from gpuclinic.diagnose.evidence import Reading
    from gpuclinic.model import Signal

_NOT_OURS = 0.1
_HINT = 0.36
_LIKELY = 0.7
_FEW = 30
_STORM = 300
_XIDS_OF_LINKS = frozenset({"74", *(str(code) for code in range(144, 151))})


def refine_hardware(candidates: list[Candidate], reading: Reading) -> None:
    """All of this module's refinements."""
    by_id = reading.by_id()
    xids = by_id.get("nvrm.xid", [])
    _withdrawn_events(candidates, reading)
    _echoes(candidates)
    _own_verdict(candidates, xids)
    _tool_verdict(candidates)
    _replace_failed_memory(candidates)
    prefer_contained(candidates, xids)
    refine_kernel_reports(candidates, by_id)
    _gpu_of_switch(candidates, xids)
    _address_of_bmc(candidates)
    _foreign_devices(candidates, reading)
    _noise_of_links(candidates, reading)
    _gpu_behind_port(candidates, reading)
    _gpu_of_pid(candidates, xids)
    _missing_card(candidates, reading)
    _mismatch_by_hand(candidates, by_id.get("nvrm.api_mismatch_versions", []))


def _withdrawn_events(candidates: list[Candidate], reading: Reading) -> None:
    """An event of the BMC that a later line of its log takes back is history, unless something else failed then."""
    gone = {
        (f.source, p.line)
        for f in reading.facts
        if f.kind == "sel_event" and f.fields.get("cleared")
        for p in f.lines.values()
    }
    for candidate in candidates:
        if not gone or not candidate.cause.startswith("hw."):
            continue
        old = [s for s in candidate.supports if s.places and all((p.source, p.line) in gone for p in s.places)]
        others = [c for c in candidates if c is not candidate and not c.cause.startswith(("hw.power", "hw.thermal"))]
        if any(_together(support, other) for support in old for other in others):
            continue
        for support in old:
            support.worth *= 0.3
            support.fatal = False
        if old:
            candidate.settle()


def _together(support: Support, other: Candidate) -> bool:
    """Something believed happened within the hour; a board's clock may be whole half hours off the system's."""
    mine, its = support.moment, other.moment
    if mine is None or its is None or mine.clock != "wall" or its.clock != "wall" or other.strength < 0.5:
        return False
    lag = abs(its.seconds - mine.seconds)
    return lag <= 3600 or (lag <= 14 * 3600 and abs(lag - round(lag / 1800) * 1800) <= 300)


_FROM_KERNEL = ("xid.", "sxid.", "nvrm.", "aer.", "kernel.", "gpu.", "nvlink.", "pcie.", "mce.", "edac.")


def _echoes(candidates: list[Candidate]) -> None:
    """What a program or a tool says of a broken card is the echo of what the driver says of it, and less exact."""
    told = [
        c
        for c in candidates
        if c.cause.startswith("hw.gpu.")
        and c.strength >= 0.8
        and any(s.id.startswith(_FROM_KERNEL) for s in c.supports)
    ]
    for candidate in candidates:
        if not candidate.cause.startswith("hw.gpu.") or any(s.id.startswith(_FROM_KERNEL) for s in candidate.supports):
            continue
        same = [c for c in told if c is not candidate and (candidate.gpu is None or c.gpu in (None, candidate.gpu))]
        if same and candidate.explained_by is None:
            candidate.explained_by = min(same, key=lambda c: c.order)
            candidate.explained_by.rank = (
                candidate.explained_by.rank if candidate.explained_by.rank is not None else candidate.rank
            )


def _own_verdict(candidates: list[Candidate], xids: list[Signal]) -> None:
    """Xid 154 tells the driver's own verdict; the last one for a GPU outranks our tables."""
    verdicts: dict[str | None, str] = {}
    for signal in xids:
        if signal.groups.get("code") == "154":
            action = recovery_action(signal.where.text)
            if action and action != "none":
                verdicts[signal.gpu] = action
    for candidate in candidates:
        if candidate.cause.startswith("hw.gpu.") and candidate.gpu in verdicts:
            candidate.action = verdicts[candidate.gpu]


def _tool_verdict(candidates: list[Candidate]) -> None:
    """Where only nvidia-smi speaks of a lost card, what it asks for in its own words is to be done."""
    for candidate in candidates:
        if (
            candidate.cause != "hw.gpu.fallen_off_bus"
            or candidate.action
            or any(s.id.startswith(_FROM_KERNEL) for s in candidate.supports)
        ):
            continue
        if any("eboot the system to recover" in p.text for s in candidate.supports for p in s.places):
            candidate.action = "reboot"


def _replace_failed_memory(candidates: list[Candidate]) -> None:
    """Memory that cannot be retired or remapped any more is not cured by a reset."""
    failed = {c.gpu for c in candidates if c.cause == "hw.gpu.row_remap_failed" and c.strength >= 0.8}
    for candidate in candidates:
        if candidate.cause in ("hw.gpu.ecc_uncorrectable", "hw.gpu.row_remap_failed") and candidate.gpu in failed:
            candidate.action = "rma"


def _gpu_of_switch(candidates: list[Candidate], xids: list[Signal]) -> None:
    """An SXid names the switch; the GPU on the far side of the link is named by the link's Xid."""
    for candidate in candidates:
        if candidate.cause == "hw.gpu.nvswitch_error":
            linked = next((s for s in xids if s.groups.get("code") in _XIDS_OF_LINKS and s.gpu), None)
            if linked is not None:
                candidate.gpu = linked.gpu
                candidate.gpus = [linked.gpu] if linked.gpu else []


def _address_of_bmc(candidates: list[Candidate]) -> None:
    """A BMC names a device by bus, device and function, in hexadecimal or (Dell) in decimal numbers."""
    for candidate in candidates:
        if candidate.gpu is not None or not candidate.cause.startswith("hw.pcie."):
            continue
        for support in candidate.supports:
            for suffix, base in (("", 16), ("_decimal", 10)):
                parts = [support.groups.get(f"pci_{name}{suffix}", "") for name in ("bus", "device", "function")]
                if all(parts):
                    bus, device, function = (int(part, base) for part in parts)
                    candidate.gpu = f"0000:{bus & 0xFF:02x}:{device & 0x1F:02x}.{function & 7}"
                    candidate.gpus = [candidate.gpu]


def _noise_of_links(candidates: list[Candidate], reading: Reading) -> None:
    """A few corrected errors of a link or of host memory are nothing; a storm of them is a bad link."""
    for candidate in candidates:
        of_link = candidate.cause == "hw.pcie.bus_error" and all(s.id.startswith("aer.") for s in candidate.supports)
        of_host = candidate.cause == "hw.host.machine_check"
        if not (of_link or of_host) or any(s.fatal for s in candidate.supports):
            continue
        most = max((reading.counts.get(s.id, s.count) for s in candidate.supports), default=0)
        if most < _FEW:
            candidate.strength = min(candidate.strength, _HINT)
        elif of_link and most >= _STORM and candidate.strength > _HINT / 2:
            candidate.strength = max(candidate.strength, _LIKELY)


def _foreign_devices(candidates: list[Candidate], reading: Reading) -> None:
    """PCIe errors of a network card or a disk are not the GPU's."""
    others = {s.groups["device"][-12:].lower() for s in reading.signals if s.signature == "aer.other_device"}
    for fact in reading.facts:
        if (
            fact.kind == "pci_device"
            and fact.fields.get("is_gpu") is False
            and "ridge" not in str(fact.fields.get("pci_class"))
        ):
            others.add(str(fact.fields.get("address")))
    for candidate in candidates:
        if candidate.cause.startswith("hw.pcie.") and candidate.gpu in others:
            candidate.strength = min(candidate.strength, _NOT_OURS)


def _gpu_behind_port(candidates: list[Candidate], reading: Reading) -> None:
    """PCIe lines name the port above the card; the card is the one whose bus the port leads to, or the only one with trouble."""
    behind: dict[str, str] = {}
    gpus: set[str] = set()
    for fact in reading.facts:
        if fact.kind == "gpu" and isinstance(fact.fields.get("bus_id"), str):
            gpus.add(str(fact.fields["bus_id"]))
        elif fact.kind == "pci_device":
            address = str(fact.fields.get("address") or fact.key)
            if fact.fields.get("is_gpu") or str(fact.fields.get("vendor", "")).startswith("10de"):
                gpus.add(address)
            if fact.fields.get("secondary_bus") is not None:
                behind[f"{address[:5]}{fact.fields['secondary_bus']}:"] = address
    lost = {s.gpu for s in reading.signals if s.gpu and s.signature.startswith("nvrm.")}
    for candidate in candidates:
        if not candidate.cause.startswith("hw.pcie.") or candidate.gpu is None or candidate.gpu in gpus | lost:
            continue
        port = candidate.gpu
        below = [g for g in gpus | lost if g and behind.get(g[:8]) == port]
        near = below or [g for g in lost if g] or [g for g in gpus if len(gpus) == 1]
        if len(set(near)) == 1:
            candidate.gpu = near[0]
            candidate.gpu_index = None
            candidate.gpus = [near[0] or ""]


def _gpu_of_pid(candidates: list[Candidate], xids: list[Signal]) -> None:
    """A process that was killed or crashed is named with its GPU by the driver's clean-up lines."""
    by_pid = {s.pid: s.gpu for s in reversed(xids) if s.pid and s.gpu}
    for candidate in candidates:
        if candidate.gpu is None and candidate.gpu_index is None and candidate.pid in by_pid:
            candidate.gpu = by_pid[candidate.pid]


def _mismatch_by_hand(candidates: list[Candidate], versions: list[Signal]) -> None:
    """Library and module of one branch but another build: an installation by hand, which a reboot does not cure."""
    found: set[str] = set()
    for signal in versions:
        found |= {v for k, v in signal.groups.items() if k.endswith("version") and v}
    branches = {v.rsplit(".", 1)[0] for v in found}
    if len(found) == 2 and len(branches) == 1:
        for candidate in candidates:
            if candidate.cause == "driver.library_mismatch":
                candidate.action = "reinstall_driver"


def _missing_card(candidates: list[Candidate], reading: Reading) -> None:
    """The card that nvidia-smi does not show: the one on the bus alone, or the one that the driver would not take."""
    seen = {str(f.fields["bus_id"]) for f in reading.facts if f.kind == "gpu" and f.fields.get("bus_id")}
    on_bus = {str(f.fields["address"]) for f in reading.facts if f.kind == "pci_device" and f.fields.get("is_gpu")}
    refused = {s.gpu for s in reading.signals if s.gpu and s.signature in ("nvrm.block_gpu", "nvrm.probe_failed")}
    left = on_bus - seen if seen and on_bus else refused
    for candidate in candidates:
        if candidate.cause == "hw.gpu.missing" and candidate.gpu is None and len(left) == 1:
            candidate.gpu = next(iter(left))
            candidate.gpus = [candidate.gpu]
