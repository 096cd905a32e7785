"""Whether the driver will come up after the next reboot: which kernel boots then, and whether it has a module that fits."""

from __future__ import annotations

import fnmatch
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from gpuclinic.clinic.looks._look import Seen, Wanted, in_sight, is_absent
from gpuclinic.knowledge.drivers import bad_pair
from gpuclinic.model import Document, Gap, Where
from gpuclinic.recognise.kernel_modules import (
    grub_default,
    grub_environment,
    kernel_in_entry,
    kernel_of_entry,
    kernel_order,
    kernels_in,
    loader_entry,
    module_info,
    unpacked,
)
from gpuclinic.recognise.parsers.modules import parse_modinfo

if TYPE_CHECKING:
    from gpuclinic.model import Scalar
    from gpuclinic.observe.asking import Asked

LOOK = "driver.next_boot"
_PLACES = (
    "updates/dkms", "updates", "updates/*", "extra", "extra/*", "weak-updates", "weak-updates/*", "extramodules", "misc",
    "kernel/drivers/video", "kernel/drivers/video/nvidia", "kernel/drivers/char/drm", "kernel/nvidia-*", "kernel/drivers/gpu/drm/nvidia",
)  # fmt: skip
_FILE = re.compile(r"/modules/(?P<kernel>[^/]+)/.*/(?P<name>nvidia(?:[-_]current)?)\.ko(?:\.\w+)?$")
_LOGGED = re.compile(r"DKMS.{0,60}make\.log for (?P<module>nvidia\S*?)-(?P<version>[\d.]+) for kernel (?P<kernel>\S+)")
_FAILED = re.compile(r"\berror:|Error \d+|bad exit status|No rule to make|cannot find|needs? .*headers", re.IGNORECASE)
_MOST_MODULE = 160 << 20


class _Choice(NamedTuple):
    kernel: str
    how: str
    place: str


def look_at_next_boot(host: Asked, wanted: Wanted) -> Seen:
    """Facts module_file, dkms and next_kernel; nothing in a container, or where no kernel is installed."""
    seen = Seen()
    state: dict[str, Any] = next((f.fields for f in wanted.of("driver_state")), {})
    if state.get("container"):
        return seen
    listing = host.listing("/boot")
    if not listing.ok:
        if not is_absent(listing):
            seen.gaps.append(Gap(LOOK, f"/boot: {listing.why}"))
        return seen
    running = str(state.get("kernel") or "")
    installed = kernels_in(listing.lines())
    entries = _entries(host)
    known = sorted({*installed, *(k for k in entries.values() if k)}, key=kernel_order)
    choice = _chosen(host, known, entries)
    files = _module_files(host, seen)
    built = _dkms(host, seen, files)
    if running and in_sight(host, f"/lib/modules/{running}"):
        seen.fact("modules_folder", running, {"kernel": running}, f"/lib/modules/{running}")
    if choice is None:
        return seen
    fields: dict[str, Scalar] = {
        "version": choice.kernel,
        "how": choice.how,
        "running": running or None,
        "differs": bool(running) and choice.kernel != running,
        "nvidia": choice.kernel in files if in_sight(host, f"/lib/modules/{choice.kernel}") else None,
        "running_nvidia": running in files if running else None,
        "headers": host.stat(f"/lib/modules/{choice.kernel}/build").ok
        or (False if in_sight(host, f"/lib/modules/{choice.kernel}") else None),
        "dkms_failed": built[choice.kernel].text if choice.kernel in built else None,
        "library": state.get("library_version"),
    }
    if choice.kernel in files:
        fields |= _of_module(host, seen, choice.kernel, files[choice.kernel], state, whole=wanted.deep or not host.live)
    driver = str(fields.get("module_version") or state.get("version") or "")
    pair = bad_pair(driver, choice.kernel) if driver else None
    if pair is not None:
        fields |= {
            "known_bad_en": pair.what_en,
            "known_bad_zh": pair.what_zh,
            "known_fix": pair.fixed_in,
            "driver": driver,
        }
    seen.fact("next_kernel", choice.kernel, fields, choice.place, **{"": f"{choice.how}: {choice.kernel}"})
    if choice.kernel in built:
        seen.facts[-1].lines["dkms_failed"] = built[choice.kernel]
    return seen


def _entries(host: Asked) -> dict[str, str | None]:
    """Boot loader entries (name without .conf) and their kernels, in the order of their names."""
    out: dict[str, str | None] = {}
    for folder in ("/boot/loader/entries", "/efi/loader/entries", "/boot/efi/loader/entries"):
        for path, answer in host.files(f"{folder}/*.conf", 8192).items():
            name = path.rsplit("/", 1)[1].removesuffix(".conf")
            if answer.ok and "rescue" not in name:
                out.setdefault(name, kernel_of_entry(loader_entry(answer.text)))
    return out


def _chosen(host: Asked, known: list[str], entries: dict[str, str | None]) -> _Choice | None:
    """The kernel that the boot loader will start, as far as its files tell; None where they do not."""
    for folder in ("/boot/grub2", "/boot/grub"):
        place = f"{folder}/grubenv"
        answer = host.file(place, 4096)
        environment = grub_environment(answer.text) if answer.ok else {}
        config = host.file("/etc/default/grub", 1 << 16)
        default = grub_default(config.text) if config.ok else None
        if not answer.ok and (default is None or not host.listing(folder).ok):
            continue
        entry = environment.get("next_entry") or ""
        if not entry and (default == "saved" or (entries and default in (None, "saved"))):
            entry = environment.get("saved_entry") or ""
        if not entry and default not in (None, "", "saved", "0"):
            entry, place = default or "", "/etc/default/grub"
        if entry:
            kernel = entries.get(entry) or kernel_in_entry(entry, known)
            return _Choice(kernel, f"entry {entry} of GRUB", place) if kernel else None
        if known:
            return _Choice(known[-1], "newest kernel, GRUB's first entry", place)
    for place in ("/boot/loader/loader.conf", "/efi/loader/loader.conf"):
        answer = host.file(place, 8192)
        default = loader_entry(answer.text).get("default") if answer.ok else None
        if default:
            fits = [n for n in entries if fnmatch.fnmatchcase(n, default.removesuffix(".conf"))]
            kernels = [k for n in fits if (k := entries[n])]
            return (
                _Choice(max(kernels, key=kernel_order), f"default of systemd-boot: {default}", place)
                if kernels
                else None
            )
    for place in ("/boot/vmlinuz", "/vmlinuz"):
        link = host.link(place)
        kernel = kernel_in_entry(link.text, known) if link.ok else None
        if kernel:
            return _Choice(kernel, f"{place} leads to it", place)
    return _Choice(known[-1], "newest kernel in /boot", "/boot") if known else None


def _module_files(host: Asked, seen: Seen) -> dict[str, str]:
    """nvidia.ko of each kernel: its path."""
    out: dict[str, str] = {}
    for place in _PLACES:
        for path in host.files(f"/lib/modules/*/{place}/nvidia*.ko*", 1):
            match = _FILE.search(path)
            if match and match["kernel"] not in out:
                out[match["kernel"]] = path
                seen.fact("module_file", path, {"path": path, "kernel": match["kernel"], "name": "nvidia"}, path)
    return out


def _dkms(host: Asked, seen: Seen, files: dict[str, str]) -> dict[str, Where]:
    """DKMS builds by its tree; for kernels whose last build failed, the line of the log that says so."""
    for path in host.files("/var/lib/dkms/nvidia*/*/*/*/module/nvidia*.ko*", 1):
        parts = path.split("/")
        module, version, kernel = parts[4], parts[5], parts[6]
        key = f"{module}/{version}/{kernel}"
        if any(f.key == key for f in seen.facts):
            continue
        state = "installed" if kernel in files else "built"
        seen.fact(
            "dkms", key, {"module": module, "version": version, "kernel": kernel, "state": state, "nvidia": True}, path
        )
    failed: dict[str, Where] = {}
    for path, answer in host.files("/var/lib/dkms/nvidia*/*/build/make.log", 4 << 20).items():
        head = _LOGGED.search(answer.text[:500]) if answer.ok else None
        if head is None or head["kernel"] in files:
            continue
        lines = [line.strip() for line in answer.text.splitlines() if _FAILED.search(line)]
        if lines:
            failed[head["kernel"]] = Where(path, None, lines[0][:300])
            key = f"{head['module']}/{head['version']}/{head['kernel']}"
            fields: dict[str, Scalar] = {
                "module": head["module"],
                "version": head["version"],
                "kernel": head["kernel"],
                "state": "failed",
                "nvidia": True,
            }
            seen.fact("dkms", key, fields, path, **{"": lines[0][:300]})
    return failed


def _of_module(
    host: Asked, seen: Seen, kernel: str, path: str, state: dict[str, Any], *, whole: bool
) -> dict[str, Scalar]:
    """Version and signature of the module that will be loaded: by modinfo, else out of the file itself.

    whole: the file may be read; its 100 MB are too much for the quick path.
    """
    if kernel == state.get("kernel") and state.get("disk_version"):
        return {"module_version": state.get("disk_version"), "module_signed": state.get("disk_signed")}
    answer = host.command("modinfo", "-k", kernel, "nvidia", deadline=1.5, most=1 << 18)
    facts = parse_modinfo(Document(f"modinfo -k {kernel} nvidia", answer.text)) if answer.ok else []
    if facts:
        seen.facts.extend(facts[:1])
        return {"module_version": facts[0].fields.get("version"), "module_signed": "signer" in facts[0].fields}
    if not whole:
        return {}
    answer = host.file(path, _MOST_MODULE)
    data = unpacked(answer.data, path) if answer.ok and not answer.cut else None
    info = module_info(data) if data else {}
    if info.get("version"):
        seen.fact(
            "modinfo",
            f"nvidia {kernel}",
            {
                "name": "nvidia",
                "version": info["version"],
                "license": info.get("license"),
                "vermagic": info.get("vermagic"),
                "kernel": kernel,
            },
            path,
        )
        return {"module_version": info["version"], "module_signed": info.get("signed") == "yes"}
    if not answer.ok and not is_absent(answer):
        seen.gaps.append(Gap(LOOK, f"{path}: {answer.why}"))
    return {}
