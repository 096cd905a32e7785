"""What may change the driver behind everybody's back: automatic upgrades, and a reboot that is asked for."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from gpuclinic.clinic.looks._look import Seen, Wanted
from gpuclinic.model import Gap

if TYPE_CHECKING:
    from gpuclinic.model import Scalar
    from gpuclinic.observe.asking import Asked

LOOK = "driver.upgrades"
_ON = re.compile(r'^\s*APT::Periodic::Unattended-Upgrade\s+"([1-9]\d*|always)"', re.MULTILINE)
_OFF = re.compile(r'^\s*APT::Periodic::Unattended-Upgrade\s+"0"', re.MULTILINE)
_KEPT = re.compile(r"Package-Blacklist\s*\{([^}]*)\}")
_DRIVER_PACKAGE = re.compile(
    r"^Package: (?P<name>libnvidia-compute-\d\S*|nvidia-driver-\S+)\nStatus: (?P<want>install|hold) ok installed$",
    re.MULTILINE,
)
_MOST_STATUS = 16 << 20
_WHO = re.compile(r"^(?:Start-Date|Commandline|Requested-By): .*$", re.MULTILINE)
_CHANGED = re.compile(
    r"(libnvidia-compute-[\w-]+|nvidia-driver-[\w-]+)(?::\w+)? \((?P<was>\d[\w.~+-]*), (?P<now>\d[\w.~+-]*)"
)


def look_at_upgrades(host: Asked, wanted: Wanted) -> Seen:
    """Facts automatic_upgrade (of packages of the driver) and reboot_pending."""
    seen = Seen()
    state: dict[str, Any] = next((f.fields for f in wanted.of("driver_state")), {})
    if state.get("container"):
        return seen
    _automatic(host, seen)
    _pending(host, seen)
    if state.get("library_fits") is False:
        _history(host, seen)
    return seen


def _automatic(host: Asked, seen: Seen) -> None:
    on: str | None = None
    kept = ""
    for path, answer in host.files("/etc/apt/apt.conf.d/*", 1 << 16).items():
        if not answer.ok:
            continue
        text = "\n".join(line for line in answer.text.splitlines() if not line.lstrip().startswith(("//", "#")))
        on = path if _ON.search(text) else None if _OFF.search(text) else on
        kept += " ".join(_KEPT.findall(text))
    place, manager = on, "unattended-upgrades"
    if on is None:
        answer = host.file("/etc/dnf/automatic.conf", 1 << 16)
        if answer.ok and re.search(
            r"^\s*apply_updates\s*=\s*(?:yes|true|1)\b", answer.text, re.MULTILINE | re.IGNORECASE
        ):
            timers = host.links("/etc/systemd/system/timers.target.wants/dnf-automatic*.timer")
            place, manager = ("/etc/dnf/automatic.conf", "dnf-automatic") if timers else (None, manager)
    if place is None:
        return
    status = host.file("/var/lib/dpkg/status", _MOST_STATUS)
    found = {m["name"]: m["want"] for m in _DRIVER_PACKAGE.finditer(status.text)} if status.ok else {}
    held = bool(found) and all(want == "hold" for want in found.values())
    fields: dict[str, Scalar] = {
        "manager": manager,
        "package": min(found, default=None),
        "kept_back": held or bool(re.search(r"nvidia|\.\*", kept)),
    }
    seen.fact("automatic_upgrade", manager, fields, place, **{"": f"{manager} is on"})


def _pending(host: Asked, seen: Seen) -> None:
    for folder in ("/run", "/var/run"):
        flag = host.stat(f"{folder}/reboot-required")
        if flag.ok:
            answer = host.file(f"{folder}/reboot-required.pkgs", 1 << 16)
            names = sorted(set(answer.text.split())) if answer.ok else []
            fields: dict[str, Scalar] = {
                "packages": ", ".join(names[:20]) or None,
                "driver": any("nvidia" in name for name in names),
                "kernel": any(re.match(r"linux-(?:image|modules|base)", name) for name in names),
            }
            seen.fact("reboot_pending", "host", fields, f"{folder}/reboot-required" + (".pkgs" if names else ""))
            return


def _history(host: Asked, seen: Seen) -> None:
    """The last change of the driver's packages that apt remembers, and whose it was."""
    path = "/var/log/apt/history.log"
    answer = host.file(path, 1 << 18, end=True)
    if not answer.ok:
        if answer.code == 13:
            seen.gaps.append(Gap(LOOK, f"{path}: {answer.why}"))
        return
    for block in reversed(answer.text.split("\n\n")):
        found = _CHANGED.search(block)
        if found:
            told = dict(line.split(": ", 1) for line in _WHO.findall(block))
            by = told.get("Commandline", "")
            fields: dict[str, Scalar] = {
                "package": found[1],
                "was": found["was"],
                "now": found["now"],
                "time": told.get("Start-Date"),
                "by": by[:200] or None,
                "unattended": "unattended" in by,
            }
            seen.fact(
                "driver_upgrade",
                "apt",
                fields,
                path,
                **{"": f"{found[0][:200]}) {told.get('Start-Date', '')} {by[:100]}"},
            )
            return
