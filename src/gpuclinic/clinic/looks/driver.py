"""The driver on this machine: what is loaded, what lies on disk, which nodes and rights there are. NVML is not asked here."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpuclinic.clinic.looks._look import Seen, Wanted, first_line, in_sight, is_absent, tells_time
from gpuclinic.knowledge.drivers import architecture_of, branch_of
from gpuclinic.model import Document, Gap, digits
from gpuclinic.recognise.parsers.modules import parse_driver_version, parse_modinfo
from gpuclinic.recognise.parsers.system import parse_cmdline, parse_modprobe

if TYPE_CHECKING:
    from gpuclinic.model import Fact, Scalar
    from gpuclinic.observe.asking import Asked

LOOK = "driver"
RIVALS = ("nouveau", "nova_core", "nova_drm")
_BOUND_AS = {"novacore": "nova_core", "nova": "nova_core"}
"""How drivers call themselves on the bus, where that is not their module's name."""
_OURS = re.compile(r"nvidia|nouveau|nova_|gdrdrv|nv_peer_mem|mlx5_ib|ib_core|vfio_pci")
_MODPROBE = ("/etc/modprobe.d", "/run/modprobe.d", "/usr/lib/modprobe.d", "/lib/modprobe.d")
_LIBRARIES = re.compile(r"lib(?P<name>nvidia-ml|cuda)\.so\.(?P<version>\d{3}(?:\.\d+){1,2})$")
_LIBRARY_FOLDERS = ("/usr/lib64", "/usr/lib", "/usr/lib/*-linux-gnu", "/run/opengl-driver/lib", "/usr/lib/wsl/lib")
_SECURE = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
_NODE = re.compile(r"nvidia(?:\d{1,3}|ctl|-uvm|-uvm-tools|-modeset|-nvswitch(?:ctl|\d+))$")
_MODINFO = ("modinfo", "nvidia")
_SMI = ("nvidia-smi", "--version")


def look_at_driver(host: Asked, wanted: Wanted) -> Seen:
    """Facts of the driver's modules, libraries, settings and nodes, and their sum in `driver_state`."""
    seen = Seen()
    state: dict[str, Scalar] = {"container": in_container(host)}
    _bus(wanted, state)
    _kernel(host, seen, state)
    _modules(host, seen, state)
    _loaded(host, seen, state)
    _settings(host, seen, state)
    _libraries(host, seen, state)
    _nodes(host, seen, state)
    if not state["container"]:
        _on_disk(host, seen, state)
        _secure_boot(host, seen, state)
    _support(wanted, seen, state)
    _branch(host, seen, state)
    seen.fact("driver_state", "host", state, "/sys/module/nvidia")
    return seen


def look_at_smi(host: Asked, wanted: Wanted) -> Seen:  # noqa: ARG001 - all looks are called alike
    """Of which release nvidia-smi itself is."""
    seen = Seen()
    answer = host.command(*_SMI, deadline=2.0, most=1 << 16)
    seen.text(answer.named(" ".join(_SMI)), answer, "driver.smi")
    return seen


def in_container(host: Asked) -> bool:
    """The asked file tree is that of a container, whose /lib/modules and /boot say nothing of the kernel."""
    if host.stat("/.dockerenv").ok or host.stat("/run/.containerenv").ok:
        # a machine whose root was made from a container image has the file, too; it has a kernel's modules, or its own init at work
        return not host.listing("/lib/modules").ok or not host.listing("/boot/grub").ok
    if (first_line(host, "/run/systemd/container") or "").strip():
        return True
    start = host.file("/proc/1/environ", 1 << 16)
    return start.ok and b"container=" in start.data


def _bus(wanted: Wanted, state: dict[str, Scalar]) -> None:
    gpus = [f for f in wanted.of("pci_device") if f.fields.get("is_gpu")]
    drivers = [str(f.fields.get("driver") or "none").replace("-", "_").lower() for f in gpus]
    drivers = [_BOUND_AS.get(driver, driver) for driver in drivers]
    state["on_bus"] = len(gpus)
    state["bound"] = drivers.count("nvidia")
    state["bound_vfio"] = drivers.count("vfio_pci")
    rivals = sorted({d for d in drivers if d in RIVALS})
    state["bound_rival"] = ", ".join(rivals) or None
    state["rival_gpus"] = ", ".join(f.key for f, driver in zip(gpus, drivers, strict=True) if driver in RIVALS) or None


def _kernel(host: Asked, seen: Seen, state: dict[str, Scalar]) -> None:
    path = "/proc/sys/kernel/osrelease"
    release = (
        first_line(host, path)
        or (first_line(host, "/proc/version") or "").removeprefix("Linux version ").partition(" ")[0]
    )
    if not release:
        answer = host.command("uname", "-r")
        release = answer.line if answer.ok else ""
    if not release:
        return
    name = first_line(host, "/proc/sys/kernel/hostname")
    seen.fact("kernel", release, {"version": release, "host": name}, path)
    state["kernel"] = release


def _modules(host: Asked, seen: Seen, state: dict[str, Scalar]) -> None:
    """Loaded modules that matter; those of nvidia with loaded = False where the list could be read."""
    path = "/proc/modules"
    answer = host.file(path)
    names: dict[str, str] = {}
    if answer.ok and answer.data.strip():
        for line in answer.lines():
            names[line.split(" ", 1)[0]] = line.strip()
    else:
        listing = host.listing("/sys/module")
        if not listing.ok:
            if not is_absent(listing) or not is_absent(answer):
                seen.gaps.append(Gap(LOOK, f"{path}: {answer.why or listing.why}"))
            return
        path = "/sys/module"
        names = {name: name for name in listing.lines()}
    whole = host.live or path != "/sys/module"  # of that folder people take what they think of
    state["modules_known"] = whole or None
    for name, line in names.items():
        if _OURS.match(name):
            parts = line.split()
            users = parts[3].strip(",").replace("-", "") if len(parts) > 3 else None
            uses = int(parts[2]) if len(parts) > 2 and re.fullmatch(r"\d{1,18}", parts[2]) else None
            seen.fact(
                "module", name, {"name": name, "loaded": True, "uses": uses, "used_by": users}, path, **{"": line[:300]}
            )
    for name in ("nvidia", "nvidia_uvm", "nvidia_modeset", "nvidia_drm", "nvidia_peermem"):
        state[name.removeprefix("nvidia_") if name != "nvidia" else "loaded"] = name in names or (
            False if whole else None
        )
    state["peermem"] = "nvidia_peermem" in names or "nv_peer_mem" in names or (False if whole else None)
    state["rival"] = ", ".join(r for r in RIVALS if r in names) or None
    if "nvidia" not in names and whole:
        seen.fact("module", "nvidia", {"name": "nvidia", "loaded": False}, path, **{"": "no module nvidia"})


def _loaded(host: Asked, seen: Seen, state: dict[str, Scalar]) -> None:
    """Version and flavour of the loaded module, and how it was loaded."""
    path = "/proc/driver/nvidia/version"
    answer = host.file(path, 4096)
    facts = parse_driver_version(Document(path, answer.text)) if answer.ok else []
    seen.facts.extend(facts)
    version = next((f.fields["version"] for f in facts if f.kind == "driver"), None)
    state["flavour"] = next((f.fields["flavour"] for f in facts if f.kind == "driver"), None)
    if version is None:
        version = first_line(host, "/sys/module/nvidia/version")
        if version:
            seen.fact(
                "driver_component",
                "kernel module",
                {"component": "kernel module", "version": version},
                "/sys/module/nvidia/version",
            )
    state["version"] = version
    if version:
        state["loaded"] = True
    params = host.file("/proc/driver/nvidia/params", 1 << 16)
    if params.ok and params.data:
        rows = (line.partition(":") for line in params.lines())
        fields: dict[str, Scalar] = {name.strip(): _value(value) for name, colon, value in rows if colon}
        seen.fact("driver_params", "nvidia", fields, "/proc/driver/nvidia/params")


def _value(text: str) -> Scalar:
    text = text.strip().strip('"')
    return int(text) if re.fullmatch(r"-?\d{1,18}", text) else text


def _settings(host: Asked, seen: Seen, state: dict[str, Scalar]) -> None:
    """modprobe.d and the kernel's command line."""
    blacklisted: list[str] = []
    if not state["container"]:
        done: set[str] = set()
        for folder in _MODPROBE:
            for path, answer in host.files(f"{folder}/*.conf").items():
                name = path.rsplit("/", 1)[1]
                if name in done or not answer.ok or not re.search(rb"nvidia|nouveau|nova_|vfio", answer.data):
                    continue  # a file of the same name in an earlier folder stands for it
                done.add(name)
                facts = [
                    f for f in parse_modprobe(Document(path, answer.text)) if _OURS.match(str(f.fields.get("module")))
                ]
                seen.facts.extend(facts)
                blacklisted += [str(f.fields["module"]) for f in facts if _forbids(f)]
    path = "/proc/cmdline"
    answer = host.file(path, 8192)
    if answer.ok:
        options = parse_cmdline(Document(path, answer.text))
        seen.facts.extend(options)
        for option in answer.text.split():
            name, _, value = option.partition("=")
            if name in ("modprobe.blacklist", "module_blacklist", "rd.driver.blacklist"):
                blacklisted += [m.replace("-", "_") for m in value.split(",")]
    state["nvidia_blacklisted"] = "nvidia" in blacklisted
    state["rival_blacklisted"] = "nouveau" in blacklisted


def _forbids(fact: Fact) -> bool:
    if fact.fields.get("what") == "blacklist":
        return True
    value = str(fact.fields.get("value") or "")
    return (
        fact.fields.get("what") == "install" and re.match(r"(?:/usr)?(?:/bin/)?(?:true|false)\b|:", value) is not None
    )


def _libraries(host: Asked, seen: Seen, state: dict[str, Scalar]) -> None:
    """Releases of libnvidia-ml and libcuda that the dynamic loader's usual folders hold."""
    found: dict[str, dict[str, str]] = {}
    for folder in _LIBRARY_FOLDERS:
        for name in ("nvidia-ml", "cuda"):
            for path, target in host.links(f"{folder}/lib{name}.so.1").items():
                match = _LIBRARIES.search(target)
                if match:
                    found.setdefault(match["name"], {}).setdefault(match["version"], f"{path} -> {target}")
    for name, versions in found.items():
        for version, shown in versions.items():
            component = f"lib{name}"
            seen.fact(
                "driver_component",
                f"{component} {version}",
                {"component": component, "version": version},
                shown.partition(" ")[0],
                version=shown,
            )
    releases = sorted(found.get("nvidia-ml") or found.get("cuda") or {})
    state["library_version"] = releases[0] if len(releases) == 1 else None
    state["library_versions"] = ", ".join(releases) or None
    loaded = state.get("version")
    state["library_fits"] = loaded in releases if releases and loaded else None


def _nodes(host: Asked, seen: Seen, state: dict[str, Scalar]) -> None:
    """The device nodes, and which of them should be there."""
    listing = host.listing("/dev")
    if not listing.ok:
        return
    majors = _majors(host)
    names = [name for name in listing.lines() if _NODE.match(name)][:300]
    if not host.live and not names and "null" not in listing.lines():
        return  # kmsg and the like were taken along; of nodes nothing is told
    for name in names:
        path = f"/dev/{name}"
        answer = host.stat(path)
        node = answer.json() if answer.ok else {}
        mode = str(node.get("mode") or "")
        wanted_major = (
            majors.get("nvidia-uvm")
            if name.startswith("nvidia-uvm")
            else 195
            if re.match(r"nvidia(\d|ctl|-modeset)", name)
            else None
        )
        fields: dict[str, Scalar] = {
            "path": path, "present": True, "kind": node.get("kind"), "major": node.get("major"), "minor": node.get("minor"), "mode": mode,
            "owner": _text(node.get("uid")), "group": _text(node.get("gid")),
            "expected_major": wanted_major if node.get("major") is not None else None,
            "others_may_write": bool(int(mode, 8) & 0o002) if re.fullmatch(r"[0-7]{3,4}", mode) else None,
        }  # fmt: skip
        seen.fact("device_node", path, fields, path)
    numbers = sorted(n for name in names if (n := digits(name[6:])) is not None)
    state["nodes"] = len(numbers)
    state["control_node"] = "nvidiactl" in names
    state["uvm_node"] = "nvidia-uvm" in names
    shown = host.files("/proc/driver/nvidia/gpus/*/information", 4096)
    minors = [int(m[1]) for a in shown.values() if a.ok and (m := re.search(r"Device Minor:\s*(\d{1,6})", a.text))]
    for path, a in shown.items():
        if a.ok and (line := re.search(r"^GPU Excluded:\s*Yes", a.text, re.MULTILINE)):
            address = path.split("/")[-2]
            seen.fact("gpu_excluded", address, {"gpu": address}, path, gpu=line[0])
    missing = [f"/dev/nvidia{n}" for n in sorted(minors) if n not in numbers]
    state["nodes_missing"] = ", ".join(missing) or None
    helper = host.stat("/usr/bin/nvidia-modprobe")
    mode = str(helper.json().get("mode") or "")
    if helper.ok and re.fullmatch(r"[0-7]{3,4}", mode):
        state["modprobe_helper"] = bool(int(mode, 8) & 0o4000)
    elif not helper.ok and in_sight(host, "/usr/bin"):
        state["modprobe_helper"] = False


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _majors(host: Asked) -> dict[str, int]:
    answer = host.file("/proc/devices", 1 << 16)
    rows = (
        re.findall(r"^\s*(\d{1,9})\s+(\S+)\s*$", answer.text.partition("Block devices")[0], re.MULTILINE)
        if answer.ok
        else []
    )
    return {name: int(number) for number, name in rows}


def _on_disk(host: Asked, seen: Seen, state: dict[str, Scalar]) -> None:
    """What modprobe would load for the running kernel, and the firmware of the GPU's own processor."""
    answer = host.command(*_MODINFO, deadline=1.5, most=1 << 18)
    facts = parse_modinfo(Document(answer.named("modinfo nvidia"), answer.text)) if answer.ok else []
    seen.facts.extend(facts)
    for fact in facts[:1]:
        state["disk_version"] = fact.fields.get("version")
        state["disk_flavour"] = fact.fields.get("flavour")
        state["disk_signed"] = "signer" in fact.fields
        state["on_disk"] = True
    version = state.get("version")
    if version and re.fullmatch(r"[\d.]+", str(version)) and in_sight(host, "/lib/firmware"):
        files = [
            n
            for folder in ("/lib/firmware", "/lib/firmware/updates")
            for n in host.listing(f"{folder}/nvidia/{version}").lines()
        ]
        state["gsp_files"] = sum(name.startswith("gsp") for name in files)


def _secure_boot(host: Asked, seen: Seen, state: dict[str, Scalar]) -> None:
    """The firmware's variable: four bytes of attributes, one of value."""
    answer = host.file(_SECURE, 16)
    if answer.ok and len(answer.data) >= 5:
        enabled = answer.data[4] == 1
        state["secure_boot"] = enabled
        seen.fact("secure_boot", "firmware", {"enabled": enabled}, _SECURE)


def _support(wanted: Wanted, seen: Seen, state: dict[str, Scalar]) -> None:
    """For each GPU on the bus: does this driver, in this flavour, drive its architecture?"""
    mine: list[dict[str, Scalar]] = []
    version = str(state.get("version") or state.get("disk_version") or "")
    branch = digits(version.partition(".")[0])
    flavour = state.get("flavour") or state.get("disk_flavour")
    for device in wanted.of("pci_device"):
        found = (
            architecture_of(str(device.fields.get("id") or "").rpartition(":")[2])
            if device.fields.get("is_gpu")
            else None
        )
        if found is None or branch is None:
            continue
        too_old = found.first_branch is not None and branch < found.first_branch
        too_new = found.last_branch is not None and branch > found.last_branch
        wrong = flavour in ("open", "proprietary") and found.module not in ("either", flavour)
        fields: dict[str, Scalar] = {
            "gpu": device.key, "id": device.fields.get("id"), "architecture": found.name, "driver": version, "flavour": flavour,
            "needs": found.module if found.module != "either" else None, "too_old": too_old, "too_new": too_new, "wrong_flavour": wrong,
            "first_branch": found.first_branch, "last_branch": found.last_branch, "bound": device.fields.get("driver") == "nvidia",
        }  # fmt: skip
        seen.fact("gpu_support", device.key, fields, device.source)
        mine.append(fields)
    state["gpus_judged"] = len(mine)
    for name in ("wrong_flavour", "too_old", "too_new"):
        state[f"gpus_{name}"] = sum(bool(fields[name]) for fields in mine)
    worst = next((f for f in mine if f["wrong_flavour"] or f["too_old"] or f["too_new"]), None)
    if worst is not None:
        state["architecture"], state["needs"] = worst["architecture"], worst["needs"]


def _branch(host: Asked, seen: Seen, state: dict[str, Scalar]) -> None:
    """How long the branch of the loaded driver is kept up, by the machine's clock; today where a snapshot does not tell its date."""
    version = str(state.get("version") or "")
    branch = branch_of(version)
    if branch is not None:
        import time

        told = tells_time(host)
        now = host.clock() if told else time.time()
        over = branch.end is not None and now > branch.end
        end = time.strftime("%Y-%m", time.gmtime(branch.end - 1)) if branch.end is not None else None
        day = time.strftime("%Y-%m-%d", time.gmtime(now))
        known = (
            f"{'over by' if branch.latest else 'end of life'} {end}, judged by {'the date' if told else 'today,'} {day}"
        )
        seen.fact(
            "driver_branch",
            branch.name,
            {"branch": branch.name, "type": branch.kind, "version": version, "ended": over, "end": end},
            "/sys/module/nvidia/version",
            ended=f"{branch.name}: {known}",
        )
