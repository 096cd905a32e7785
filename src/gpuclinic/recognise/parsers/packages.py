"""What changed on the host: apt history, dpkg.log, yum/dnf logs and history, pacman.log, zypper: "change"."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpuclinic.recognise.parsers._host_util import fact, iso_stamp, stamp

if TYPE_CHECKING:
    from gpuclinic.model import Document, Fact
    from gpuclinic.model._types import Scalar

_INTERESTING = re.compile(
    r"nvidia|cuda|nvml|cudnn|nccl|fabric|linux-(?:image|headers|modules|generic|signed)|^kernel|^linux$|docker|"
    r"containerd|podman|runc|"
    r"systemd|glibc|libc6|ofed|mlnx|rdma|ucx|slurm|kube|dcgm|dkms|gcc|torch|firmware|shim|grub|lustre|nfs|ceph|"
    r"nouveau|enroot|cri-o|munge",
    re.IGNORECASE,
)
_APT_START = re.compile(r"^Start-Date:\s*(?P<date>\d{4}-\d\d-\d\d)\s+(?P<time>\d\d:\d\d:\d\d)")
_APT_ACTION = re.compile(r"^(?P<what>Install|Upgrade|Remove|Purge|Downgrade|Reinstall):\s*(?P<list>.*)$")
_APT_VERSIONS = re.compile(r" \(([^)]{0,400})\)")
_APT_NAME = re.compile(r"([\w.+-]{1,200})(?::\w{1,20})?$")
_DPKG = re.compile(
    r"^(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (?P<what>install|upgrade|remove|purge) (?P<name>[\w.+-]+)(?::\w+)? "
    r"(?P<from>\S+) (?P<to>\S+)"
)
_YUM = re.compile(
    r"^(?P<time>[A-Z][a-z]{2} \d\d \d\d:\d\d:\d\d) (?P<what>Updated|Installed|Erased|Dep-Installed|Obsoleted): "
    r"(?:\d+:)?(?P<package>\S+)"
)
_DNF = re.compile(
    r"^(?P<time>\d{4}-\d\d-\d\dT[\d:]+[Z+-]?\d*) (?:SUBDEBUG|INFO|DEBUG|DDEBUG) (?P<what>Upgraded?|Installed?|"
    r"Removed?|Erased?|Downgraded?|Reinstalled): (?P<package>\S+)"
)
_DNF_INFO = re.compile(
    r"^\s+(?P<what>Upgraded?|Installed?|Install|Removed|Erase|Obsoleted|Dep-Install|Update)"
    r" {1,10}(?P<package>[\w.+:-]+-\d\S*)"
)
_PACMAN = re.compile(
    r"^\[(?P<time>\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?(?:[+-]\d{4})?)\] \[ALPM\] (?P<what>upgraded|installed|"
    r"removed|downgraded|reinstalled) (?P<name>\S+) \((?P<versions>[^)]*)\)"
)
_ZYPP = re.compile(
    r"^(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\|(?P<what>install|remove)\s*\|(?P<name>[^|]+)\|(?P<version>[^|]+)\|"
)
_VERBS = {
    "dep-installed": "install",
    "updated": "upgrade",
    "update": "upgrade",
    "erased": "remove",
    "erase": "remove",
    "dep-install": "install",
    "purge": "remove",
}


def _verb(text: str) -> str:
    lower = text.lower()
    if lower in _VERBS:
        return _VERBS[lower]
    for verb in ("upgrade", "downgrade", "remove", "install", "reinstall", "obsolete"):
        if lower in (verb, f"{verb}d", f"{verb}ed"):
            return verb
    return lower


def _change(
    document: Document,
    index: int,
    line: str,
    what: str,
    name: str,
    old: str | None,
    new: str | None,
    when: str,
    by: str | None = None,
) -> Fact | None:
    if not _INTERESTING.search(name):
        return None
    place = line.find(name)
    shown = line if len(line) < 400 or place < 0 else line[max(0, place - 60) : place + 200]
    fields: dict[str, Scalar] = {
        "what": _verb(what),
        "name": name,
        "from": old or None,
        "to": new or None,
        "time": when or None,
        "by": by,
        "driver": bool(re.search(r"nvidia|cuda-drivers", name)) and "container" not in name,
        "kernel": bool(re.search(r"^linux-(?:image|modules|signed)|^kernel(?:-core)?(?:-\d|$)|^linux$", name)),
    }
    time = iso_stamp(when) or stamp(when, "%b %d %H:%M:%S")
    return fact(document, "change", name, fields, index, shown, time=time if time and time.seconds > 0 else None)


def _package(text: str) -> tuple[str, str]:
    match = re.match(r"^(?P<name>.+?)-(?P<version>(?:\d+:)?\d[^-]*(?:-[^-]+)?)$", text)
    return (match["name"], match["version"]) if match else (text, "")


def parse_changes(document: Document) -> list[Fact]:
    """Packages that were installed, upgraded or removed, of those that matter to GPUs, kernels and schedulers."""
    facts: list[Fact] = []
    when, command = "", None
    for index, line in enumerate(document.lines()):
        line = line[:200_000]
        match = _APT_START.match(line)
        if match:
            when, command = f"{match['date']} {match['time']}", None
            continue
        if line.startswith("Commandline:"):
            command = line.partition(":")[2].strip()[:200]
            continue
        match = _APT_ACTION.match(line)
        if match:
            for item in _APT_VERSIONS.finditer(match["list"]):
                before = match["list"][max(0, item.start() - 240) : item.start()]
                named = _APT_NAME.match(before.rpartition(" ")[2])
                if named is None:
                    continue
                versions = [part.strip() for part in item[1].split(",") if part.strip() != "automatic"]
                old, new = (
                    (versions[0], versions[1]) if len(versions) > 1 else (None, versions[0] if versions else None)
                )
                if match["what"] in ("Remove", "Purge"):
                    old, new = new, None
                found = _change(document, index, line, match["what"], named[1], old, new, when, command)
                facts.extend([found] if found else [])
            continue
        found = _other(document, index, line[:2000])
        facts.extend([found] if found else [])
        if len(facts) > 600:
            break
    return facts[:600]


def _other(document: Document, index: int, line: str) -> Fact | None:
    match = _DPKG.match(line)
    if match:
        old, new = (None if match[part] == "<none>" else match[part] for part in ("from", "to"))
        return _change(document, index, line, match["what"], match["name"], old, new, match["time"])
    match = _YUM.match(line) or _DNF.match(line)
    if match:
        name, version = _package(match["package"])
        return _change(document, index, line, match["what"], name, None, version, match["time"])
    match = _PACMAN.match(line)
    if match:
        old, _, new = match["versions"].partition(" -> ")
        return _change(
            document, index, line, match["what"], match["name"], old if new else None, new or old, match["time"]
        )
    match = _ZYPP.match(line)
    if match:
        return _change(document, index, line, match["what"], match["name"], None, match["version"], match["time"])
    match = _DNF_INFO.match(line)
    if match:
        name, version = _package(match["package"])
        return _change(document, index, line, match["what"], name, None, version, "")
    return None
