"""Libraries, kernel modules and the first file system of the boot: what was put in place of, or under, everything else."""

from __future__ import annotations

import hashlib
import posixpath
import re
from typing import TYPE_CHECKING

from gpuclinic.audit.hits import Hit
from gpuclinic.audit.mining import refs_of
from gpuclinic.audit.places import in_system_place, odd_place
from gpuclinic.audit.refs import file_ref, unit_ref
from gpuclinic.audit.units import exec_lines, unit_texts
from gpuclinic.knowledge.audit_words import words

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuclinic.audit.scene import Scene, Text

_LIBRARY = "libnvidia-ml.so"
_FOLDERS = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib64",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib",
    "/lib/x86_64-linux-gnu",
    "/lib64",
    "/usr/lib/wsl/lib",
    "/usr/local/lib",
    "/usr/local/lib64",
    "/opt/lib",
)
_MOST_LIBRARY = 32 << 20
_PRELOADING = ("LD_PRELOAD", "LD_AUDIT")
_PRELOAD = re.compile(r"(?:LD_PRELOAD|LD_AUDIT)=[\"']?([^\s\"':]{1,500})")
_VERSION = re.compile(r"(?:Kernel Module|NVRM version:.*?)\s+(\d{3}\.\d{1,3}(?:\.\d{1,3})?)")
_TARGET = re.compile(r"^(?:[\w./-]{0,200}/)?libnvidia-ml\.so\.(\d{3}\.\d{1,3}(?:\.\d{1,3})?)$")
_HONEST_MODULES = re.compile(
    r"^(?:nvidia\w*|nv_peer_mem|nvidia_peermem|gdrdrv|nvidia_fs|ib_\w+|mlx\w*|rdma_\w+|iw_\w+|irdma|bnxt_\w+|qed\w*|hfi1|opa_\w+|mlnx\w*|mst_\w+|knem|xpmem|iser|isert|rds\w*|svcrdma|rpcrdma|xprtrdma|nvme\w*|efa|ena|gve|"
    r"lustre|lnet|lnet_selftest|ptlrpc|osc|mdc|lov|lmv|mgc|fid|fld|obdclass|obdecho|ksocklnd|ko2iblnd|kkfilnd|libcfs|osd_\w+|zfs|spl|znvpair|zunicode|zavl|icp|zcommon|zlua|zzstd|beegfs|weka\w*|mmfs\w*|tracedev|scini|"
    r"px|pxd|openafs|kafs|vbox\w*|vmmon|vmnet|vmw\w*|falcon\w*|pinnedhook\w*|sysdig\w*|falco\w*|scap|dattobd|veeam\w*|blksnap|snumbd\w*|bmhook\w*|dsa_filter\w*|amdgpu|amdkcl|amdttm\w*|amddrm\w*|amd-sched|amdxcp|amd_sched|i915\w*|"
    r"i40e|iavf|ice|ixgbe|ixgbevf|igb|intel_auxiliary|auxiliary|e1000e|r8125|r8168|tg3|megaraid_sas|mpt3sas|aacraid|hpsa|smartpqi|wireguard|v4l2loopback|kvdo|uds|drbd\w*|dm_\w+|"
    r"evdi|digimend\w*|rtl\w+|wl|acpi_call|ipmi_\w+|hpilo|dcdbas|dell_rbu|openvswitch|vport_\w+|cachefiles|ceph|rbd|exfat|ntfs3?|apfs|xe|habanalabs|metax|ascend\w*|drv_\w+|iommufd|cray_\w+|kgnilnd|sgx|msr_safe|likwid\w*|pf_ring|bcache\w*|"
    r"lttng_\w+|virtio_\w+|hv_\w+|mana\w*|mlxfw|ofed\w*|compat|mlx_compat|memtrack|ecryptfs|nct\w+|it87|asus\w*|system76\w*|tuxedo\w*|clevo\w*|framework\w*|corefreqk|kernelcare|kpatch\w*|livepatch\w*)$"
)
"""Modules of drivers, file systems and security agents that are built outside of the kernel: what their vendors and DKMS packages call them."""
_LOADS = re.compile(
    r"\b(?:insmod|modprobe|depmod|finit_module|kmod)\b|\.ko\b|\bmanual_add_modules\b|\bforce_load\b|copy_exec|add_drivers"
)


def nvml_library(scene: Scene) -> list[Hit]:
    """nvml_lib_tampered: libnvidia-ml.so.1 is not the link to its package's file, or that file is not the package's."""
    out: list[Hit] = []
    version = _driver(scene)
    for folder in _FOLDERS:
        names = [name for name in scene.names(folder, "audit.libraries") if name.startswith(_LIBRARY)]
        if not names:
            continue
        link = f"{folder}/{_LIBRARY}.1"
        owned = [name for name in names if scene.packages.owner(f"{folder}/{name}")]
        if f"{_LIBRARY}.1" in names:
            why = _wrong(scene, folder, link, version)
            if why is None and folder in _FOLDERS[7:] and scene.packages.known and not owned:
                why = (f"no package owns it, and the dynamic loader prefers {folder}", "strong")
            if why is not None:
                out.append(_tampered(scene, link, *why))
        beside = [
            n
            for n in names
            if re.search(r"(?:orig|real|bak|old|true|vendor|\.so\.\d+~|_$|\.s$)", n.removeprefix(_LIBRARY))
            or n.removeprefix(_LIBRARY).startswith(("-", "_"))
        ]
        if beside and not out:
            out.append(_tampered(scene, f"{folder}/{beside[0]}", "a copy of the library was put aside", "strong"))
    return out


def _tampered(scene: Scene, path: str, why: str, grade: str | None) -> Hit:
    return Hit(
        id="nvml_lib_tampered", subject=path, refs=frozenset({file_ref(path), "telemetry"}), grade=grade,
        evidence=[scene.where(path, why)], values={"path": path, "why": why},
    )  # fmt: skip


def _driver(scene: Scene) -> str | None:
    text = scene.text("/proc/driver/nvidia/version", "audit.libraries") or scene.text(
        "/sys/module/nvidia/version", "audit.libraries"
    )
    found = (
        (_VERSION.search(text.text) or re.search(r"^(\d{3}\.\d{1,3}(?:\.\d{1,3})?)$", text.text.strip()))
        if text
        else None
    )
    return found[1] if found else None


def _wrong(scene: Scene, folder: str, link: str, version: str | None) -> tuple[str, str | None] | None:
    """What is wrong with the link or with what it leads to, and how much that proves."""
    target = scene.host.link(link).text if scene.host.link(link).ok else ""
    if not target and not scene.host.live:
        small = scene.text(link, "audit.libraries", 4096)
        target = (
            small.text.strip()
            if small is not None and len(small.data) < 300 and _TARGET.match(small.text.strip())
            else ""
        )
    if not target:
        packaged = any(
            scene.packages.owner(f"{folder}/{n}") for n in scene.names(folder) if n.startswith(f"{_LIBRARY}.")
        )
        return "it is a file of its own, not the link to the driver's library", None if packaged else "strong"
    found = _TARGET.match(target)
    if not found:
        return f"it leads to {target[:100]}", None if scene.packages.known else "strong"
    if version and found[1] != version and not _two_versions(scene, folder, version):
        return f"it leads to version {found[1]}, the loaded driver is {version}", "weak"
    path = posixpath.normpath(target if target.startswith("/") else f"{folder}/{target}")
    told = scene.packages.md5(path)
    if told is not None:
        content = scene.host.file(path, _MOST_LIBRARY)
        if content.ok and not content.cut and hashlib.md5(content.data, usedforsecurity=False).hexdigest() != told:
            return f"{path} is not what its package {scene.packages.owner(path) or ''} installed (MD5 differs)", None
    elif scene.packages.known and not scene.packages.owner(path):
        scene.gap(
            "audit.libraries",
            f"{path}: no package owns it, so it could not be verified (a runfile or container install)",
        )
    return None


def _two_versions(scene: Scene, folder: str, version: str) -> bool:
    return f"{_LIBRARY}.{version}" not in scene.names(folder)  # the driver was upgraded and not yet loaded anew


def nvidia_smi(scene: Scene) -> list[Hit]:
    """nvidia_smi_replaced: the program is not its package's; a script that filters is worse than one that does not."""
    out = []
    for path in ("/usr/bin/nvidia-smi", "/usr/local/bin/nvidia-smi", "/usr/local/sbin/nvidia-smi"):
        content = scene.host.file(path, 4 << 20)
        if not content.ok:
            continue
        told = scene.packages.md5(path)
        script = content.data[:2] == b"#!"
        filters = script and re.search(r"grep\s{1,3}-\w{0,3}v|\bsed\b|\bawk\b|/dev/null\s*$", content.text) is not None
        differs = (
            told is not None
            and not content.cut
            and hashlib.md5(content.data, usedforsecurity=False).hexdigest() != told
        )
        if filters or (differs and not script):
            why = (
                "a script in its place filters what it prints"
                if filters
                else "it is not what its package installed (MD5 differs)"
            )
            out.append(
                Hit(id="nvidia_smi_replaced", subject=path, refs=frozenset({file_ref(path), "telemetry"}), grade="strong" if filters or differs else "medium",
                    evidence=[scene.where(path, why)], values={"path": path, "why": why})
            )  # fmt: skip
    return out


def preloads(scene: Scene) -> list[Hit]:
    """ld_preload: a library that every program has to load, or a long-lived one, and no package owns."""
    out = []
    text = scene.text("/etc/ld.so.preload", "audit.libraries")
    for index, line in enumerate(text.lines() if text else ()):
        for path in re.split(r"[\s:]+", line.partition("#")[0].strip()):
            slipped = scene.packages.known and in_system_place(path)
            if text is None or not path or scene.packages.owner(path) or (_honest(path) and not slipped):
                continue
            users = [p for p in scene.processes.values() if path in (p.mapped or [])]
            evidence = [text.at(index), *(p.at("maps", f"{p.comm} (pid {p.pid}) maps {path}") for p in users[:3])]
            grade = None if (scene.packages.known or odd_place(path)) and not _honest(path) else "medium"
            out.append(
                Hit(id="ld_preload", subject="/etc/ld.so.preload", refs=frozenset({file_ref(path)}), grade=grade, evidence=evidence, values={"path": path})
            )  # fmt: skip
    return [*out, *_preloads_of_processes(scene), *_preloads_of_units(scene)]


def _preloads_of_processes(scene: Scene) -> list[Hit]:
    """One hit a library: a daemon's children inherit its environment."""
    out: dict[str, Hit] = {}
    for process in scene.processes.values():
        daemon = process.uid == 0 and (process.task is None or process.task.ppid == 1)
        packaged = bool(process.exe and scene.packages.owner(process.exe))
        for name in _PRELOADING:
            for path in re.split(r"[\s:]+", (process.variables or {}).get(name, "")[:4000]):
                grade = _grade(scene, path, for_root=daemon, packaged=packaged)
                if grade is None or (path in out and out[path].grade == "strong"):
                    continue
                out[path] = Hit(
                    id="ld_preload", subject=f"pid {process.pid} ({process.comm})", refs=refs_of(process) | {file_ref(path)}, pid=process.pid,
                    grade=grade, evidence=[process.at("environ", f"{name}={path}")], values={"path": path},
                )  # fmt: skip
    return list(out.values())


def _preloads_of_units(scene: Scene) -> list[Hit]:
    out = []
    for text, user in unit_texts(scene):
        for index, key, value in exec_lines(text):
            found = _PRELOAD.search(value) if key == "Environment" else None
            grade = _grade(scene, found[1], for_root=user == "root") if found else None
            if found and grade is not None:
                name = text.path.rpartition("/")[2]
                out.append(
                    Hit(id="ld_preload", subject=name, refs=frozenset({file_ref(found[1]), file_ref(text.path), unit_ref(name)}), grade=grade,
                        evidence=[text.at(index)], values={"path": found[1]})
                )  # fmt: skip
    return out


def _grade(scene: Scene, path: str, *, for_root: bool, packaged: bool = False) -> str | None:
    """How much a preloaded library proves: one of no package in a hidden place, or under a packaged daemon of root among the packages' own, is strong."""
    if not path.startswith("/") or scene.packages.owner(path) or _honest(path):
        return None
    place = odd_place(path)
    if place is not None:
        return "strong" if place == "hidden" or for_root else "medium"
    if not (for_root and scene.packages.known and in_system_place(path)):
        return None
    return "strong" if packaged else "medium"


def _honest(path: str) -> bool:
    """A library that is preloaded for good reasons, by its name."""
    name = path.rpartition("/")[2]
    return odd_place(path) is None and any(name.startswith(known) for known in words().honest_preloads)


def kernel_modules(scene: Scene) -> list[Hit]:
    """kernel_module_unowned: built outside of the kernel, of no known vendor, of no package; or loaded and not listed."""
    text = scene.text("/proc/modules", "audit.modules")
    out: list[Hit] = []
    listed = set()
    taints = {p.split("/")[3]: a.line for p, a in scene.host.files("/sys/module/*/taint", 64).items() if a.ok}
    for index, line in enumerate(text.lines() if text else ()):
        cells = line.split()
        if len(cells) < 5 or text is None:
            continue
        listed.add(cells[0])
        taint = re.search(r"\(([A-Z+-]+)\)\s*$", line)
        letters = taint[1] if taint else taints.get(cells[0], "")
        if "O" not in letters or _HONEST_MODULES.match(cells[0]):
            continue
        owner, path = _module_file(scene, cells[0])
        if owner is None:
            grade = None if scene.packages.known else "weak"
            out.append(
                Hit(id="kernel_module_unowned", subject=cells[0], refs=frozenset({f"module:{cells[0]}", *([file_ref(path)] if path else [])}),
                    grade=grade, evidence=[text.at(index), *([scene.where(path, "no package owns it")] if path else [])], values={"name": cells[0]})
            )  # fmt: skip
    if listed:
        live = {
            p.split("/")[3]: p
            for p, a in scene.host.files("/sys/module/*/initstate", 64).items()
            if a.ok and a.line == "live"
        }
        live |= {name: f"/sys/module/{name}/taint" for name, letters in taints.items() if letters and name not in live}
        for name, path in live.items():
            if name not in listed:
                out.append(
                    Hit(id="kernel_module_unowned", subject=name, refs=frozenset({f"module:{name}"}), grade="conclusive", kind="hidden module",
                        evidence=[scene.where(path, "live, and not in /proc/modules")], values={"name": name})
                )  # fmt: skip
    return out


def _module_file(scene: Scene, name: str) -> tuple[str | None, str | None]:
    """Who owns the file of a module, and where that lies, by the names of the package lists and of DKMS."""
    plain = name.replace("-", "_")
    for path, package in scene.packages.modules.items():
        if re.sub(r"\.ko(?:\.(?:xz|zst|gz))?$", "", path.rpartition("/")[2]).replace("-", "_") == plain:
            return package, path
    told = scene.host.find(
        "/lib/modules",
        [f"{name}.ko", f"{plain}.ko", f"{name}.ko.zst", f"{name}.ko.xz"],
        depth=6,
        most=20_000,
        seconds=0.3,
    ).json()
    found = [p for p in told.get("found", []) if isinstance(p, str)]
    source = next(
        (
            p
            for p in scene.names("/usr/src")
            if p.replace("-", "_").startswith(f"{plain}_") and scene.packages.owner(f"/usr/src/{p}/dkms.conf")
        ),
        None,
    )
    if source is not None:
        return scene.packages.owner(f"/usr/src/{source}/dkms.conf"), found[0] if found else None
    return None, found[0] if found else None


_INITRAMFS = (
    "/etc/initramfs-tools/hooks/*",
    "/etc/initramfs-tools/scripts/*/*",
    "/usr/share/initramfs-tools/hooks/*",
    "/usr/share/initramfs-tools/scripts/*/*",
    "/usr/lib/dracut/modules.d/*/*.sh",
    "/etc/dracut.conf.d/*.conf",
    "/usr/lib/initcpio/hooks/*",
    "/usr/lib/initcpio/install/*",
)


def initramfs(scene: Scene) -> list[Hit]:
    """initramfs_hook: a script of the boot's first file system, of no package, that loads a module or starts something."""
    out = []
    unowned = {hit.subject for hit in kernel_modules(scene)}
    for pattern in _INITRAMFS:
        for text in scene.texts(pattern, "audit.initramfs", 1 << 16):
            if scene.packages.owner(text.path) or text.path.endswith(("/README", ".placeholder")):
                continue
            index, line = _loaded(text) or (0, "")
            names = [name for name in unowned if re.search(rf"\b{re.escape(name)}\b", text.text)]
            bad = (
                bool(names)
                or re.search(r"/dev/tcp/|\bcurl\b|\bwget\b|base64\s+-d|/\.[\w-]+/|memfd", text.text) is not None
            )
            refs = frozenset({file_ref(text.path), *(f"module:{n}" for n in names)})
            grade = "medium" if line else "weak"
            if bad or (scene.packages.known and re.search(r"\b(?:insmod|finit_module)\b", line)):
                grade = "strong"
            out.append(
                Hit(
                    id="initramfs_hook",
                    subject=text.path,
                    refs=refs,
                    grade=grade,
                    evidence=[text.at(index)],
                    values={"path": text.path},
                )
            )
    return out


def _loaded(text: Text) -> tuple[int, str] | None:
    for index, line in enumerate(text.lines()):
        if _LOADS.search(line) and not line.lstrip().startswith("#"):
            return index, line
    return None


CHECKS: tuple[tuple[str, Callable[[Scene], list[Hit]]], ...] = (
    ("audit.libraries", nvml_library),
    ("audit.libraries", nvidia_smi),
    ("audit.libraries", preloads),
    ("audit.modules", kernel_modules),
    ("audit.initramfs", initramfs),
)
