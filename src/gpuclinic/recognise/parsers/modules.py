"""The NVIDIA kernel module and its rivals: lsmod, modinfo, dkms, /proc/driver/nvidia/version, mokutil, device nodes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpuclinic.recognise.parsers.gpu_text import Draft, Scalar, make

if TYPE_CHECKING:
    from gpuclinic.model import Document, Fact

_LSMOD_HEAD = re.compile(r"^\s*Module\s+Size\s+Used by")
_LSMOD = re.compile(
    r"^(?P<name>[a-z][\w-]{1,60})\s+(?P<size>\d{4,10})\s+(?P<uses>-?\d{1,6})(?:\s+(?P<by>[\w,-]*))?(?:\s+\[permane"
    r"nt\]|\s*\([A-Z]+\))?\s*$"
)
_LSMOD_COMMAND = re.compile(r"(?:^|[$#>])\s*(?:sudo )?lsmod(?P<rest>.*)$")
_PROMPT = re.compile(r"^\S{0,60}[$#>]\s|^\[[^\]]{3,60}\][$#]|^\$ ")
_OURS = (
    "nvidia",
    "nouveau",
    "nova",
    "gdrdrv",
    "ib_",
    "mlx",
    "rdma",
    "amdgpu",
    "vfio",
    "nv_peer_mem",
    "i915",
    "xe",
    "lustre",
    "nvme_fabrics",
)
_EXPECTED = ("nvidia", "nvidia_uvm")

_PROC = re.compile(
    r"NVRM version:\s+NVIDIA UNIX (?P<open>Open )?(?:(?P<arch>x86_64|aarch64|\S+) )?Kernel Module"
    r"(?: for \S+)?\s+(?P<version>\d{3}(?:\.\d+){1,2})"
)
_DKMS = re.compile(
    r"^\s*(?P<name>[\w.+-]{2,60})[/,] ?(?P<version>\d[\w.+~-]*)(?:, (?P<kernel>[\w.+~-]+), (?P<arch>[\w-]+))?\s*: "
    r"(?P<state>installed(?:-weak)?|built|added|broken|failed)(?P<note>.{0,200})$"
)
_MODINFO = re.compile(
    r"^(?P<key>filename|version|license|vermagic|signer|srcversion|firmware|name):\s+(?P<value>\S.*)$"
)
_SECURE = re.compile(r"^\s*Secure ?Boot(?: is)?:? (?P<state>enabled|disabled)", re.IGNORECASE)
_NODE = re.compile(
    r"^(?P<mode>[cb][rwxsStT-]{9})[.+]?\s+\d+\s+(?P<owner>\S+)\s+(?P<group>\S+)\s+(?P<major>\d{1,9}),\s*(?P<minor>\d{1,9})"
    r"\s+.*?"
    r"(?P<path>/dev/\S+|nvidia\S*)$"
)
_NO_NODE = re.compile(r"(?:cannot access|No such file).*?(?P<path>/dev/(?:nvidia|infiniband)[^\s'’\":]*)")
_KO = re.compile(
    r"^(?P<path>/lib/modules/(?P<kernel>[^/\s]+)/\S*?/(?P<name>nvidia(?:[-_]uvm|[-_]drm|[-_]modeset|[-_]peermem|_c"
    r"urrent|-current)?)\.ko(?:\.\w+)?)\s*$"
)


def parse_lsmod(document: Document) -> list[Fact]:
    """Facts module; where a listing is complete or asked for nvidia, also the modules that are not loaded."""
    facts: list[Fact] = []
    listing: _Listing | None = None
    for index, line in enumerate(document.lines()):
        if len(line) > 600:
            continue
        command = _LSMOD_COMMAND.search(line)
        if command and ("|" in command["rest"] or not command["rest"].strip()):
            facts += listing.close() if listing else []
            listing = _Listing(document, index, line, _asked(command["rest"]))
            continue
        if _LSMOD_HEAD.match(line):
            if listing is None or listing.names:
                facts += listing.close() if listing else []
                listing = _Listing(document, index, line, "")
            listing.whole = listing.asked == ""
            continue
        row = _LSMOD.match(line)
        if row:
            listing = listing or _Listing(document, index, line, None)
            listing.add(row, index, line)
        elif listing is not None and line.strip():
            facts += listing.close()
            listing = None
    return facts + (listing.close() if listing else [])


def _asked(rest: str) -> str | None:
    if not rest.strip():
        return ""
    found = re.search(r"grep\s+(?:-\w+\s+)*['\"]?(\w+)", rest)
    return found.group(1).lower() if found else None


class _Listing:
    """One run of lsmod. asked: the word it was grepped for, "" for none, None where unknown."""

    def __init__(self, document: Document, index: int, line: str, asked: str | None) -> None:
        self.document = document
        self.start = (index, line)
        self.asked = asked
        self.whole = False
        self.names: set[str] = set()
        self.facts: list[Fact] = []

    def add(self, row: re.Match[str], index: int, line: str) -> None:
        """One loaded module."""
        name = row["name"].replace("-", "_")
        self.names.add(name)
        if name.startswith(_OURS):
            fields: dict[str, Scalar] = {
                "name": name,
                "loaded": True,
                "uses": int(row["uses"]),
                "used_by": (row["by"] or "").strip(","),
                "size": int(row["size"]),
            }
            self.facts.append(make(self.document, "module", name, fields, index, line))

    def close(self) -> list[Fact]:
        """The facts, with those of absent modules."""
        complete = (self.whole and self.names) or (self.asked and "nvidia".startswith(self.asked))
        if complete:
            for name in _EXPECTED:
                if name not in self.names:
                    fields: dict[str, Scalar] = {"name": name, "loaded": False}
                    self.facts.append(make(self.document, "module", name, fields, *self.start))
        return self.facts


def parse_driver_version(document: Document) -> list[Fact]:
    """Facts driver (flavour open or proprietary) and driver_component "kernel module" of "
    "/proc/driver/nvidia/version."""
    facts: list[Fact] = []
    for index, line in enumerate(document.lines()):
        found = _PROC.search(line) if "NVRM version" in line else None
        if found:
            flavour = "open" if found["open"] else "proprietary"
            fields: dict[str, Scalar] = {
                "version": found["version"],
                "flavour": flavour,
                "tool": "/proc/driver/nvidia/version",
            }
            facts.append(make(document, "driver", "/proc/driver/nvidia/version", fields, index, line))
            part: dict[str, Scalar] = {"component": "kernel module", "version": found["version"], "flavour": flavour}
            facts.append(make(document, "driver_component", "kernel module", part, index, line))
    return facts


def parse_dkms(document: Document) -> list[Fact]:
    """Facts dkms: module, version, kernel and state of each build."""
    facts: list[Fact] = []
    for index, line in enumerate(document.lines()):
        found = _DKMS.match(line) if len(line) < 400 else None
        if found:
            fields: dict[str, Scalar] = {
                "module": found["name"],
                "version": found["version"],
                "kernel": found["kernel"],
                "state": found["state"],
                "nvidia": "nvidia" in found["name"],
                "differs": "Diff between built and installed" in found["note"],
            }
            facts.append(
                make(document, "dkms", f"{found['name']}/{found['version']}/{found['kernel']}", fields, index, line)
            )
    return facts


def parse_modinfo(document: Document) -> list[Fact]:
    """Facts modinfo: file, version, licence (which tells open from proprietary) and the kernel it was built for."""
    facts: list[Fact] = []
    draft: Draft | None = None
    for index, line in enumerate(document.lines()):
        if "modinfo" in line and "not found" in line:
            name = re.search(r"Module (\S+) not found", line)
            if name:
                facts.append(
                    make(document, "modinfo", name.group(1), {"name": name.group(1), "missing": True}, index, line)
                )
        found = _MODINFO.match(line) if len(line) < 1000 else None
        if not found:
            continue
        if found["key"] == "filename":
            facts += [draft.fact()] if draft else []
            name_in_path = re.search(r"/([\w-]+)\.ko", found["value"])
            draft = Draft(document, "modinfo", name_in_path.group(1) if name_in_path else found["value"], index, line)
            draft.put("name", draft.key, index, line)
            kernel = re.search(r"/lib/modules/([^/]+)/", found["value"])
            if kernel:
                draft.put("kernel", kernel.group(1), index, line)
        elif draft is not None and found["key"] in ("version", "license", "vermagic", "signer"):
            draft.put(found["key"], found["value"].strip(), index, line)
            if found["key"] == "license" and draft.key.startswith("nvidia"):
                draft.put(
                    "flavour",
                    "open" if "MIT" in found["value"] or "GPL" in found["value"] else "proprietary",
                    index,
                    line,
                )
            if found["key"] == "vermagic":
                draft.put("built_for", found["value"].split()[0], index, line)
    return facts + ([draft.fact()] if draft else [])


def parse_module_files(document: Document) -> list[Fact]:
    """Facts module_file: nvidia.ko files of a listing, with the kernel each belongs to."""
    facts: list[Fact] = []
    for index, line in enumerate(document.lines()):
        found = _KO.match(line) if line.startswith("/lib/modules/") else None
        if found:
            fields: dict[str, Scalar] = {
                "path": found["path"],
                "kernel": found["kernel"],
                "name": found["name"].replace("-", "_"),
            }
            facts.append(make(document, "module_file", found["path"], fields, index, line))
    return facts


def parse_secure_boot(document: Document) -> list[Fact]:
    """Fact secure_boot of `mokutil --sb-state` and `bootctl`."""
    facts: list[Fact] = []
    for index, line in enumerate(document.lines()):
        found = _SECURE.match(line)
        if found:
            fields: dict[str, Scalar] = {"enabled": found["state"].lower() == "enabled"}
            facts.append(make(document, "secure_boot", "firmware", fields, index, line))
    return facts


def parse_device_nodes(document: Document) -> list[Fact]:
    """Facts device_node of `ls -l /dev/nvidia*` and /dev/infiniband; absent ones where ls said so, or the "
    "others are there."""
    facts: list[Fact] = []
    seen: dict[str, tuple[int, str]] = {}
    for index, line in enumerate(document.lines()):
        if len(line) > 400 or ("nvidia" not in line and "infiniband" not in line):
            continue
        found = _NODE.match(line.strip())
        if found:
            path = found["path"] if found["path"].startswith("/dev/") else f"/dev/{found['path']}"
            seen[path] = (index, line)
            fields: dict[str, Scalar] = {
                "path": path,
                "present": True,
                "major": int(found["major"]),
                "minor": int(found["minor"]),
                "mode": found["mode"],
                "owner": found["owner"],
                "group": found["group"],
                "others_may_write": found["mode"][8] == "w",
            }
            facts.append(make(document, "device_node", path, fields, index, line))
            continue
        none = _NO_NODE.search(line)
        if none:
            path = none["path"].rstrip("*?'’")
            facts.append(make(document, "device_node", path, {"path": path, "present": False}, index, line))
    if "/dev/nvidiactl" in seen and "/dev/nvidia-uvm" not in seen and "/dev/nvidia0" in seen:
        place = seen["/dev/nvidiactl"]
        facts.append(
            make(document, "device_node", "/dev/nvidia-uvm", {"path": "/dev/nvidia-uvm", "present": False}, *place)
        )
    return facts
