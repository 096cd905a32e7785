"""Disks: df in any locale and unit, ls -l, du, mount tables."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpuclinic.recognise.parsers._host_util import (
    GIB,
    KIB,
    MAX_FACTS,
    MIB,
    clipped_lines,
    command_of,
    fact,
    number,
    size_mib,
    stamp,
    whole,
)

if TYPE_CHECKING:
    from gpuclinic.model import Document, Fact
    from gpuclinic.model._types import Scalar

_SIZE = r"(?:\d[\d.,]*\s?[KMGTPEkmgtpe]?i?B?|-)"
_ROW = re.compile(
    rf"^(?P<device>\S(?:.*?\S)?)?\s+(?:(?P<type>[a-z][\w.+-]*)\s+)?(?P<size>{_SIZE})\s+(?P<used>{_SIZE})\s+"
    rf"(?P<free>-?{_SIZE})"
    r"\s+(?P<pct>\d{1,3}\s?%|-)\s+(?P<mount>/(?:\S.{0,300})?)$"
)
_INODES = re.compile(r"IUse%|Inodes|I-?nodos|Inoder|\(I\)|IUti%|IBen", re.IGNORECASE)
_BLOCKS = re.compile(r"(\d{1,9})?(?P<unit>[KMG])?-?(?:blocks|块|區段|Blöcke|blocs|block|bloques)", re.IGNORECASE)
_LISTED = re.compile(
    r"^\s*(?:\d+\s+)?(?P<mode>[-dlbcps][-rwxsStT]{9}[.+@]?)\s+\d+\s+(?P<owner>\S+)\s+(?P<group>\S+)\s+"
    r"(?P<size>\d+,\s*\d+|[\d.,]+[KMGTP]?)\s+(?P<time>\d{4}-\d\d-\d\d(?:\s+\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:\s+"
    r"[+-]\d{4})?)?"
    r"|[A-Z][a-z]{2}\s+\d+\s+(?:\d\d:\d\d|\d{4})|\d+月\s+\d+\s+(?:\d\d:\d\d|\d{4}))\s+(?P<path>\S.*)$"
)
_DU = re.compile(r"^(?P<size>\d[\d.,]*[KMGTP])\t(?P<path>\S.*)$|^(?P<size2>\d[\d.,]*[KMGTP])\s+(?P<path2>[/.]\S*)$")
_MOUNT = re.compile(r"^(?P<device>\S+) on (?P<mount>/.*?) type (?P<type>[\w.-]+) \((?P<options>[^)]*)\)")
_PROC_MOUNT = re.compile(
    r"^(?P<device>\S+) (?P<mount>/\S*) (?P<type>[a-z][\w.]*) (?P<options>(?:rw|ro|defaults|noauto|_netdev)"
    r"\b[\w=,.:/%+-]*) \d \d\s*$"
)
_FINDMNT = re.compile(
    r"^(?P<lead>[\s│├└─|`-]*)(?P<mount>/\S*)\s+(?P<device>\S+)\s+(?P<type>[a-z][\w.]*)\s+(?P<options>(?:rw|ro)\b\S*)"
    r"\s*$"
)


def _df_unit(header: str) -> float:
    found = _BLOCKS.search(header)
    if not found:
        return KIB
    count = float(found.group(1) or 1)
    unit = (found.group("unit") or "").upper()
    if not unit:
        return count / 1048576
    return count * {"K": KIB, "M": MIB, "G": GIB}[unit]


def parse_df(document: Document) -> list[Fact]:
    """df -h, -i, -T, -k, -m, busybox and localised: one "fs" for each row."""
    facts: list[Fact] = []
    unit, inodes, pending = KIB, False, ""
    for index, line in enumerate(clipped_lines(document)):
        if len(line) > 1000:
            continue
        match = _ROW.match(pending + line if line[:1] in " \t" and pending else line)
        if not match:
            if line.strip():
                pending = line.strip() if re.match(r"^\S+$", line) else ""
                command = command_of(line)
                if command or ("%" in line and not re.search(r"\d%", line)):
                    inodes = bool(_INODES.search(line)) or bool(re.match(r"df\s.*-\w*i\b", command))
                    unit = _df_unit(line)
            continue
        pending = ""
        facts.append(_df_fact(document, index, line, match, unit, inodes))
        if len(facts) >= MAX_FACTS:
            break
    return facts


def _df_fact(document: Document, index: int, line: str, match: re.Match[str], unit: float, inodes: bool) -> Fact:
    percent = number(match.group("pct"))
    mount = match.group("mount").strip()
    fields: dict[str, Scalar] = {
        "mount": mount,
        "device": (match.group("device") or "").strip(),
        "type": match.group("type"),
    }
    if inodes:
        fields["inode_use_pct"] = percent
        fields["inodes_free"] = number(match.group("free"))
    else:
        fields["size_mib"] = size_mib(match.group("size"), unit)
        fields["used_mib"] = size_mib(match.group("used"), unit)
        fields["available_mib"] = size_mib(match.group("free").lstrip("-"), unit)
        fields["use_pct"] = percent
    network = bool(re.match(r"^(?:[\w.-]+:/|//|\[?[0-9a-f:.]+\]?@?\w*:/)", str(fields["device"])))
    fields["network"] = network or match.group("type") in ("nfs", "nfs4", "lustre", "ceph", "cifs", "beegfs", "gpfs")
    return fact(document, "fs", mount, fields, index, line)


def parse_listing(document: Document) -> list[Fact]:
    """ls -l: one "file" for each row, with the bytes (or device numbers) and the time as written."""
    facts: list[Fact] = []
    for index, line in enumerate(clipped_lines(document)):
        match = _LISTED.match(line) if len(line) < 1000 else None
        if not match:
            continue
        path, _, target = match.group("path").partition(" -> ")
        size = match.group("size")
        device = "," in size and match.group("mode")[0] in "bc"
        mib = None if device else size_mib(size, 1 / 1048576)
        fields: dict[str, Scalar] = {
            "path": path.strip(),
            "name": path.strip().rsplit("/", 1)[-1],
            "mode": match.group("mode"),
            "owner": match.group("owner"),
            "group": match.group("group"),
            "directory": match.group("mode")[0] == "d",
            "size": None if mib is None else round(mib * 1048576),
            "time": match.group("time"),
            "device": device,
            "target": target.strip() or None,
            "temporary": bool(
                re.search(r"(?:\.tmp|\.part|\.partial|\.incomplete|\.temp|~)$|/?tmp_|^tmp", path.strip())
            ),
            "checkpoint": bool(
                re.search(r"ckpt|checkpoint|\.pt$|\.pth$|\.safetensors|\.bin$|\.distcp|\.tar$|step[_-]?\d+|\.h5$", path)
            ),
        }
        time = stamp(match.group("time"), "%Y-%m-%d %H:%M", "%Y-%m-%d %H:%M:%S")
        facts.append(fact(document, "file", path.strip(), fields, index, line, time=time))
        if len(facts) >= MAX_FACTS:
            break
    return facts


def parse_du(document: Document) -> list[Fact]:
    """du -sh: "disk_use" with path and size_mib."""
    facts: list[Fact] = []
    for index, line in enumerate(clipped_lines(document)):
        match = _DU.match(line) if len(line) < 1000 else None
        if match:
            path = (match.group("path") or match.group("path2")).strip()
            size = size_mib(match.group("size") or match.group("size2"))
            facts.append(fact(document, "disk_use", path, {"path": path, "size_mib": size}, index, line))
    return facts[:MAX_FACTS]


def parse_mounts(document: Document) -> list[Fact]:
    """mount, /proc/mounts, fstab lines and findmnt: one "mount" each."""
    facts: list[Fact] = []
    for index, line in enumerate(clipped_lines(document)):
        text = line.strip()
        if len(text) > 3000:
            continue
        match = _MOUNT.match(text) or _PROC_MOUNT.match(text) or _FINDMNT.match(line)
        if not match:
            continue
        options = match.group("options").split(",")
        named = dict(option.split("=", 1) for option in options if "=" in option)
        mount = match.group("mount")
        kind = match.group("type")
        fields: dict[str, Scalar] = {
            "mount": mount,
            "device": match.group("device"),
            "type": kind,
            "options": match.group("options")[:500],
            "read_only": "ro" in options,
            "soft": "soft" in options,
            "hard": "hard" in options,
            "size_mib": size_mib(named.get("size", "").upper() or None, 1 / 1048576),
            "timeo": whole(named.get("timeo")),
            "retrans": whole(named.get("retrans")),
            "network": kind.startswith(
                ("nfs", "lustre", "ceph", "cifs", "smb", "beegfs", "gpfs", "fuse.s3", "fuse.juicefs")
            ),
        }
        facts.append(fact(document, "mount", mount, fields, index, line))
        if len(facts) >= MAX_FACTS:
            break
    return facts
