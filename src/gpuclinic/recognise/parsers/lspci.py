"""`lspci` in every degree of wordiness: -nn, -k, -vvv, and its output for single devices."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpuclinic.recognise.parsers.gpu_text import Draft, pci_address

if TYPE_CHECKING:
    from gpuclinic.model import Document, Fact

_DEVICE = re.compile(
    r"^(?P<lead>[\s>|]*)(?P<address>(?:[0-9a-f]{4,5}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) "
    r"(?P<cls>[A-Z0-9][A-Za-z0-9 /()-]{2,50}?)(?: \[(?P<code>[0-9a-f]{4})\])?: (?P<name>.{1,200})$"
)
_IDS = re.compile(r"\[(?P<vendor>[0-9a-f]{4}):(?P<device>[0-9a-f]{4})\]")
_REV = re.compile(r"\(rev (?P<rev>[0-9a-f]{2})\)")
_LINK = re.compile(
    r"Lnk(?P<what>Cap|Sta):.*?Speed (?P<speed>\d{1,4}(?:\.\d{1,3})?GT/s|unknown)(?P<snote> \((?:ok|downgraded|strange|overdriven)\))?"
    r", Width (?P<width>x\d{1,3})(?P<wnote> \((?:ok|downgraded|strange|overdriven)\))?"
)
_BUS = re.compile(r"Bus: primary=(?P<p>[0-9a-f]{2}), secondary=(?P<s>[0-9a-f]{2}), subordinate=(?P<u>[0-9a-f]{2})")
_ACS = re.compile(r"ACSCtl:\s*(?P<flags>.*)")
_REGION = re.compile(
    r"Region (?P<n>\d): Memory at (?P<at>\S+).*?(?:\[(?P<state>disabled|virtual)\])?.*?(?:\[size=(?P<size>\d+[KMGT"
    r"]?)\])?\s*$"
)
_SIZES = {"K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1048576.0, "": 1 / 1048576}
_GPU_CLASSES = ("3D controller", "VGA compatible controller", "Display controller", "Processing accelerators")
_WANTED = (*_GPU_CLASSES, "PCI bridge", "Bridge", "Infiniband controller", "Ethernet controller", "Network controller")
_AER = re.compile(r"(?P<reg>[UC]E)Sta:\s*(?P<flags>\S.*)")


def parse_lspci(document: Document) -> list[Fact]:
    """Facts pci_device for GPUs, bridges and network cards, and gpu_count of NVIDIA GPUs on the bus."""
    drafts: list[Draft] = []
    current: Draft | None = None
    for index, line in enumerate(document.lines()):
        if len(line) > 1000:
            continue
        found = _DEVICE.match(line)
        if found:
            current = _device(document, found, index, line) if found["cls"].startswith(_WANTED) else None
            if current:
                drafts.append(current)
            continue
        if current is None:
            continue
        if not line.strip():
            continue
        if line[:1] not in (" ", "\t", ">", "|", "!"):
            current = None
            continue
        _detail(current, line, index)
    _place(drafts)
    kept = [d for d in drafts if d.fields["is_gpu"] or d.fields["pci_class"] != "PCI bridge" or len(d.fields) > 8]
    return [*(d.fact() for d in kept), *_count(document, drafts)]


def _device(document: Document, found: re.Match[str], index: int, line: str) -> Draft:
    address = pci_address(found["address"]) or found["address"]
    draft = Draft(document, "pci_device", address, index, line)
    name = found["name"]
    ids = _IDS.search(name)
    rev = _REV.search(name)
    vendor = ids["vendor"] if ids else ""
    nvidia = vendor == "10de" or "nvidia" in name.lower()
    draft.fields.update(
        address=address,
        name=_REV.sub("", _IDS.sub("", name)).strip()[:120],
        vendor="nvidia" if nvidia else vendor or None,
        is_gpu=nvidia and found["cls"].startswith(_GPU_CLASSES),
        is_nvswitch=nvidia and found["cls"] == "Bridge",
    )
    draft.fields["pci_class"] = found["cls"]
    if draft.fields["is_gpu"]:
        draft.fields["gpu"] = address
    if ids:
        draft.fields["id"] = f"{ids['vendor']}:{ids['device']}"
    if rev:
        draft.put("rev_ff", rev["rev"] == "ff", index, line)
    return draft


def _detail(draft: Draft, line: str, index: int) -> None:
    text = line.strip().lstrip("|> ")
    link = _LINK.search(text)
    if link:
        _link(draft, link, index, line)
        return
    if text.startswith("Kernel driver in use:"):
        draft.put("driver", text.split(":", 1)[1].strip(), index, line)
    elif text.startswith("Kernel modules:"):
        draft.put("modules", text.split(":", 1)[1].strip(), index, line)
    elif "!!! Unknown header type" in text:
        draft.put("unknown_header", True, index, line)
    elif text.startswith("Region"):
        _region(draft, text, index, line)
    elif text.startswith("NUMA node:"):
        draft.put("numa", text.split(":", 1)[1].strip(), index, line)
    elif text.startswith("Control:") and draft.fields["is_gpu"]:
        draft.put("bus_master", "BusMaster+" in text, index, line)
    acs = _ACS.search(text)
    if acs:
        on = "ReqRedir+" in acs["flags"] or "CmpltRedir+" in acs["flags"]
        draft.put("acs_redirect", on, index, line)
    bus = _BUS.search(text)
    if bus:
        draft.put("secondary", bus["s"], index, line)
        draft.put("subordinate", bus["u"])
    aer = _AER.search(text)
    if aer:
        flags = [f[:-1] for f in aer["flags"].split() if f.endswith("+")]
        if flags:
            draft.put("aer_uncorrected" if aer["reg"] == "UE" else "aer_corrected", ", ".join(flags), index, line)


def _link(draft: Draft, link: re.Match[str], index: int, line: str) -> None:
    what = "_max" if link["what"] == "Cap" else ""
    if link["speed"] != "unknown":
        draft.put(f"speed{what}_gts", float(link["speed"][:-4]), index, line)
    draft.put(f"width{what}", int(link["width"][1:]), index, line)
    if not what:
        draft.put("speed_downgraded", "downgraded" in (link["snote"] or ""), index, line)
        draft.put("width_downgraded", "downgraded" in (link["wnote"] or ""), index, line)


def _region(draft: Draft, text: str, index: int, line: str) -> None:
    found = _REGION.match(text)
    if not found:
        return
    if found["at"] in ("<unassigned>", "<ignored>") or found["state"] == "virtual":
        draft.put("bar_unassigned", True, index, line)
        draft.put("bar_unassigned_index", int(found["n"]))
    size = found["size"]
    if size:
        unit = size[-1] if size[-1] in _SIZES else ""
        mib = int(size.rstrip("KMGT")) * _SIZES[unit]
        known = draft.fields.get("largest_bar_mib")
        if not isinstance(known, float) or mib > known:
            draft.put("largest_bar_mib", float(mib), index, line)
    if "[disabled]" in text:
        draft.put("bar_disabled", True, index, line)


def _place(drafts: list[Draft]) -> None:
    """Tells each bridge whether a GPU of the same listing lies below it."""
    gpus = [(d.key.split(":")[0], int(d.key.split(":")[1], 16)) for d in drafts if d.fields["is_gpu"]]
    for draft in drafts:
        low, high = draft.fields.get("secondary"), draft.fields.get("subordinate")
        if isinstance(low, str) and isinstance(high, str) and gpus:
            domain = draft.key.split(":")[0]
            draft.fields["above_gpu"] = any(d == domain and int(low, 16) <= bus <= int(high, 16) for d, bus in gpus)


def _count(document: Document, drafts: list[Draft]) -> list[Fact]:
    gpus = [d for d in drafts if d.fields["is_gpu"]]
    if not gpus:
        return []
    count = Draft(document, "gpu_count", "lspci")
    count.fields.update(
        value=len(gpus),
        tool="lspci",
        usable=sum(d.fields.get("driver") in (None, "nvidia") for d in gpus),
        names=len({d.fields.get("name") for d in gpus}),
    )
    count.lines[""] = gpus[-1].lines[""]
    return [count.fact()]
