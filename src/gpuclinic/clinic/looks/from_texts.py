"""After the texts were read: what programs printed completes what looks could not ask for, so that the same rows judge it.

On a running machine this matters where a look had to fall back to a program's text; of a snapshot made by hand it is most of what there is.
What a look brought itself stands; texts only fill what is not there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from gpuclinic.clinic.looks._look import Seen, Wanted, as_number, first_line, zone_of
from gpuclinic.clinic.looks.containers import look_at_containers
from gpuclinic.clinic.looks.fabric import look_at_fabric
from gpuclinic.clinic.looks.processes import DAEMONS, look_at_holders, read_tasks
from gpuclinic.clinic.looks.schedulers import look_at_schedulers
from gpuclinic.clinic.looks.software import look_at_environments
from gpuclinic.model import Fact, Gap, digits
from gpuclinic.recognise import process_table, restart_reasons, told

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gpuclinic.model import Scalar, Signal
    from gpuclinic.observe.asking import Asked

_OF_HOLDERS = ("gpu_holder", "gpu_use", "holder_search", "visible_devices")
_DRIVER_FIELDS = {
    "nvidia": "loaded",
    "nvidia_uvm": "uvm",
    "nvidia_modeset": "modeset",
    "nvidia_drm": "drm",
    "nvidia_peermem": "peermem",
}
_RIVALS = ("nouveau", "nova_core", "nova_drm")
_ON_BUS = ("rev_ff", "unknown_header", "driver", "name", "bar_unassigned", "bar_disabled")
"""What lspci tells of a function that sysfs, as a snapshot holds it, may leave out."""
_MOST_COMPLAINT = 1 << 14
_COMPLAINTS = (
    ("Driver/library version mismatch", "mismatch", 18),
    ("couldn't communicate with the NVIDIA driver", "driver_not_loaded", 9),
    ("Failed to initialize NVML: Insufficient Permissions", "no_permission", 4),
    ("Failed to initialize NVML: Driver Not Loaded", "driver_not_loaded", 9),
    ("couldn't find libnvidia-ml.so", "library_missing", 12),
    ("Failed to initialize NVML: Unknown Error", "failed", 999),
    ("No devices were found", "no_devices", 0),
)
"""What nvidia-smi prints where NVML cannot be used, to the reason that docs/facts.md has for it and nvmlReturn_t's number (nvml.h)."""
_CLOCK_KEEPERS = ("chrony", "ntpd", "timesyncd")


class _Facts:
    """Facts of looks and of texts, by kind."""

    def __init__(self, seen: Seen, steady: list[Fact]) -> None:
        self.seen = seen
        self.texts = told.merged(steady)

    def looked(self, *kinds: str) -> list[Fact]:
        return [fact for fact in self.seen.facts if fact.kind in kinds]

    def told(self, *kinds: str) -> list[Fact]:
        return [fact for fact in self.texts if fact.kind in kinds]

    def replace(self, kinds: Iterable[str], facts: list[Fact]) -> None:
        """The texts' facts of some kinds give way to others."""
        gone = set(kinds)
        self.texts = [fact for fact in self.texts if fact.kind not in gone] + facts

    def all_of(self, *kinds: str) -> list[Fact]:
        return [*self.looked(*kinds), *self.told(*kinds)]


def complete_from_texts(
    host: Asked, wanted: Wanted, seen: Seen, steady: list[Fact], signals: list[Signal]
) -> list[Fact]:  # fmt: skip
    """The texts' facts with the fields that rows need; what several told is one, what a look saw itself is left out. Adds to `seen`."""
    facts = _Facts(seen, steady)
    up_s = as_number(first_line(host, "/proc/uptime"))
    if up_s is None:
        up_s = next((as_number(f.fields.get("up_s")) for f in facts.told("uptime")), None)
    _smi_failed(facts)
    _memory(facts)
    _bus(facts, up_s)
    _storage(host, facts)
    _boots(host, facts, up_s, signals)
    _clock(facts)
    _ports(facts)
    _driver(facts)
    _again(host, wanted, facts)
    _processes(host, wanted, facts, up_s)
    _containers(facts)
    _stuck(facts, signals)
    return facts.texts


def _smi_failed(facts: _Facts) -> None:
    """nvidia-smi that printed why it failed tells what NVML would have answered."""
    if facts.all_of("nvml", "gpu"):
        return
    for shown, data in facts.seen.texts:
        if "nvidia-smi" not in shown or len(data) > _MOST_COMPLAINT:
            continue
        text = data.decode("utf-8", "replace")
        for words, reason, code in _COMPLAINTS:
            if words in text:
                line = next(line.strip() for line in text.splitlines() if words in line)
                facts.seen.fact(
                    "nvml", "nvml", {"reason": reason, "code": code, "error": line[:200]}, shown, reason=line[:300]
                )
                return


def _memory(facts: _Facts) -> None:
    made = [] if facts.looked("memory") else [m for f in facts.told("memory") if (m := told.memory(f)) is not None]
    if made or facts.looked("memory"):
        facts.replace(("memory",), made[:1])


def _bus(facts: _Facts, up_s: float | None) -> None:
    """lspci in the place of sysfs; beside it, what only lspci told of a function."""
    listed = facts.told("pci_device")
    if not listed and facts.told("gpu") and any(f.fields.get("limited") for f in facts.looked("view")):
        _not_required(
            facts.seen, "pci.bus"
        )  # in a container the bus shows more GPUs than were given to it: nothing is counted by it
    if not listed:
        return
    if facts.looked("pci_device"):
        others = {fact.key: fact for fact in listed}
        for place, fact in enumerate(facts.seen.facts):
            if fact.kind == "pci_device" and fact.key in others:
                facts.seen.facts[place] = told.with_fields(fact, others[fact.key], _ON_BUS)
        facts.replace(("pci_device",), [])
        return
    if any(fact.key == "pci" for fact in facts.looked("gpu_count")):
        facts.replace(("pci_device",), [])  # sysfs shows the bus, and no NVIDIA device on it
        return
    made = told.bus(listed, up_s)
    facts.replace(("pci_device",), made)
    gpus = [fact for fact in made if fact.fields.get("is_gpu")]
    if not gpus:
        return
    handed = sum(str(fact.fields.get("driver")) in ("vfio-pci", "pci-stub") for fact in gpus)
    source = gpus[0].source
    facts.seen.fact(
        "gpu_count", "pci", {"value": len(gpus) - handed, "tool": "pci", "handed_over": handed or None}, source
    )
    switches = sum(bool(fact.fields.get("is_nvswitch")) for fact in made)
    if switches:
        facts.seen.fact("nvswitch_count", "pci", {"value": switches, "tool": "pci"}, source)
    _not_required(facts.seen, "pci.bus")


def _not_required(seen: Seen, look: str) -> None:
    seen.gaps[:] = [msgspec.structs.replace(g, required=False) if g.check == look else g for g in seen.gaps]


def _storage(host: Asked, facts: _Facts) -> None:
    listed = facts.looked("mount")
    if not listed and facts.told("mount"):
        fstab = host.file("/etc/fstab", 1 << 18)
        facts.replace(("mount",), told.mounts(facts.told("mount"), fstab.text if fstab.ok else ""))
        listed = facts.told("mount")
    else:
        facts.replace(("mount",), [])
    if facts.looked("fs"):
        facts.replace(("fs",), [])
        return
    total = next((as_number(f.fields.get("total_mib")) for f in facts.all_of("memory")), None)
    made = told.file_systems(facts.told("fs"), {fact.key: fact for fact in listed}, total)
    facts.replace(("fs",), made)


def _boots(host: Asked, facts: _Facts, up_s: float | None, signals: list[Signal]) -> None:
    """Restarts that only texts told of; and of all of them why they came about, by what logs and the board's controller say."""
    now = host.clock()
    zone = zone_of(host, now)
    if not facts.looked("restart") and facts.told("boot"):
        facts.replace(("restart",), told.restarts(facts.told("boot"), now, up_s, zone))
    restarts = facts.all_of("restart")
    if not restarts:
        return
    clock = next((as_number(f.fields.get("ahead_s")) for f in facts.looked("board_clock")), None)
    past = frozenset(f.key for f in facts.looked("crash_record"))
    heard = restart_reasons.Heard(signals, facts.all_of("sel_event", "chassis", "watchdog"), past, zone, clock)
    better = dict(zip(map(id, restarts), restart_reasons.explained(restarts, heard), strict=True))
    facts.seen.facts[:] = [better.get(id(fact), fact) for fact in facts.seen.facts]
    facts.texts = [better.get(id(fact), fact) for fact in facts.texts]


def _clock(facts: _Facts) -> None:
    """One word on the clock: the look's own, else that of the program which keeps it; timedatectl only repeats what the kernel says."""
    heard = facts.told("time_sync")
    keepers = [fact for fact in heard if fact.key in _CLOCK_KEEPERS]
    facts.replace(("time_sync",), [] if facts.looked("time_sync") else keepers or heard)


def _ports(facts: _Facts) -> None:
    if facts.looked("ib_port"):
        facts.replace(("ib_port",), [])
    else:
        facts.replace(("ib_port",), told.ports(facts.told("ib_port"), facts.told("ib_counters")))


def _driver(facts: _Facts) -> None:
    """Completes `driver_state` by lsmod, modinfo, mokutil, nvidia-smi and lspci."""
    place = next((n for n, fact in enumerate(facts.seen.facts) if fact.kind == "driver_state"), None)
    if place is None:
        return
    state = facts.seen.facts[place]
    fields: dict[str, Any] = {}
    modules = {str(f.fields.get("name")): f for f in facts.told("module")}
    if not state.fields.get("modules_known") and modules:
        fields["modules_known"] = True
        for name, field in _DRIVER_FIELDS.items():
            fields[field] = name in modules and modules[name].fields.get("loaded") is not False
        fields["rival"] = ", ".join(name for name in _RIVALS if name in modules) or None
    gpus = [f for f in facts.told("pci_device") if f.fields.get("is_gpu")]
    if gpus:
        drivers = [str(f.fields.get("driver") or "none").replace("-", "_") for f in gpus]
        fields |= {"on_bus": len(gpus), "bound": drivers.count("nvidia"), "bound_vfio": drivers.count("vfio_pci")}
        fields["bound_rival"] = ", ".join(sorted({d for d in drivers if d in _RIVALS})) or None
        fields["rival_gpus"] = (
            ", ".join(f.key for f, driver in zip(gpus, drivers, strict=True) if driver in _RIVALS) or None
        )
    version = next((f.fields.get("version") for f in facts.told("driver") if f.fields.get("version")), None)
    if (
        state.fields.get("version") is None
        and version
        and fields.get("loaded", state.fields.get("loaded")) is not False
    ):
        fields |= {"version": version, "loaded": True}
    modinfo = next((f for f in facts.told("modinfo") if f.fields.get("name") == "nvidia"), None)
    if not state.fields.get("on_disk") and modinfo is not None and not modinfo.fields.get("missing"):
        shown = modinfo.fields
        fields |= {
            "on_disk": True,
            "disk_version": shown.get("version"),
            "disk_flavour": shown.get("flavour"),
            "disk_signed": "signer" in shown,
        }
    firmware = next((f.fields.get("enabled") for f in facts.told("secure_boot")), None)
    if state.fields.get("secure_boot") is None and firmware is not None:
        fields["secure_boot"] = firmware
    given: dict[str, Scalar] = {name: value for name, value in fields.items() if value is not None}
    facts.seen.facts[place] = msgspec.structs.replace(state, fields={**state.fields, **given})


def _again(host: Asked, wanted: Wanted, facts: _Facts) -> None:
    """Looks that had no GPU to look for, though texts tell of some, are taken again."""
    if facts.looked("gpu") or not facts.told("gpu", "pci_device") or host.live:
        return
    more = msgspec.structs.replace(wanted, facts=[*facts.seen.facts, *facts.texts])
    todo: list[tuple[Callable[[Asked, Wanted], Seen], tuple[str, ...]]] = [
        (look_at_schedulers, ("slurm_node", "device_plugin", "mps", "persistence_daemon"))
    ]
    if not facts.looked("fabric_need"):
        todo.append((look_at_fabric, ("fabric_need", "nvswitch_count", "imex_nodes", "driver_component")))
    if not facts.looked("pci_device"):
        todo.append((look_at_containers, ("cdi_spec", "container_runtime", "container_toolkit", "container")))
    if not facts.looked("environment_search"):
        todo.append((look_at_environments, ("environment", "env_package")))
    for look, kinds in todo:
        had = {
            (fact.kind, fact.key) for fact in facts.seen.facts if fact.kind in ("nvswitch_count", "driver_component")
        }
        got: Seen = look(host, more)
        facts.seen.facts[:] = [f for f in facts.seen.facts if f.kind not in kinds or (f.kind, f.key) in had]
        facts.seen.facts += [f for f in got.facts if (f.kind, f.key) not in had]
        facts.seen.gaps += [gap for gap in got.gaps if gap not in facts.seen.gaps]


def _containers(facts: _Facts) -> None:
    """docker info knows the runtimes that the daemon really took up, whichever file named them."""
    said = {str(f.fields.get("name")): f for f in facts.told("runtime_setting")}
    runtimes = said.get("runtimes")
    if runtimes is None or not facts.all_of("gpu"):
        return
    place = next(
        (n for n, f in enumerate(facts.seen.facts) if f.kind == "container_runtime" and f.key == "docker"), None
    )
    driver, default = said.get("cgroup_driver"), said.get("default_runtime")
    fields: dict[str, Scalar] = {
        "name": "docker",
        "nvidia_runtime": "nvidia" in str(runtimes.fields.get("value")).split(),
        "running": True,
    }
    fields["cgroup_driver"] = driver.fields.get("value") if driver else None
    fields["default_runtime"] = default.fields.get("value") if default else None
    if place is None:
        facts.seen.fact("container_runtime", "docker", fields, runtimes.source)
        return
    held = facts.seen.facts[place]
    given = {
        n: v
        for n, v in fields.items()
        if v is not None and (held.fields.get(n) is None or (n == "nvidia_runtime" and v))
    }
    facts.seen.facts[place] = msgspec.structs.replace(held, fields={**held.fields, **given})


# ---- processes


class _WithProcesses:
    """A host whose /proc/PID also shows what ps told of a process; everything else is asked of the host itself."""

    def __init__(self, host: Asked, processes: dict[int, Fact]) -> None:
        self._host, self._processes = host, processes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._host, name)

    def file(self, path: str, most: int = 1 << 20, *, end: bool = False) -> Any:
        answer = self._host.file(path, most, end=end)
        parts = path.split("/")
        fact = (
            self._processes.get(digits(parts[2]) or 0)
            if len(parts) == 4 and parts[1] == "proc" and parts[2].isdecimal()
            else None
        )
        if answer.ok or fact is None:
            return answer
        text = {
            "cmdline": str(fact.fields.get("command") or "").replace(" ", "\0"),
            "status": f"State:\t{_letter(fact)}\n",
        }.get(parts[3])
        return answer if text is None else msgspec.structs.replace(answer, data=text.encode(), why=None, code=None)


def _letter(fact: Fact) -> str:
    return str(fact.fields.get("state") or "S")[:1]


def _tasks(listed: dict[int, Fact]) -> dict[int, process_table.Task]:
    return {
        pid: process_table.Task(
            pid, str(f.fields.get("program") or "?")[:64], _letter(f), int(as_number(f.fields.get("ppid")) or 0), 0,
            bool(f.fields.get("kernel_thread")), 0, int(as_number(f.fields.get("threads")) or 1), 0,
        )
        for pid, f in listed.items()
    }  # fmt: skip


def _processes(host: Asked, wanted: Wanted, facts: _Facts, up_s: float | None) -> None:
    """Who holds the GPUs, from nvidia-smi's list and /proc or ps; and what runs here, where only ps tells."""
    listed = (
        {int(f.key): f for f in facts.told("process") if f.key.isdecimal() and len(f.key) < 10} if not host.live else {}
    )
    if not facts.looked("process_count") and listed:
        tasks = _tasks(listed)
        whole = process_table.shows_all(tasks)
        facts.seen.gaps[:] = [
            g
            for g in facts.seen.gaps
            if not (g.check == "process.gpu" and g.why.startswith(("/proc: ", "not in the snapshot")))
        ]
        source = next(iter(listed.values())).source
        facts.seen.fact("process_count", "host", {**process_table.counts(tasks.values()), "whole_view": whole}, source)
        for pid, task in tasks.items():
            name = DAEMONS.get(task.comm[:15])
            if name is not None:
                facts.seen.fact(
                    "daemon",
                    f"{name}/{pid}",
                    {"name": name, "pid": pid, "state": task.state, "ppid": task.ppid},
                    source,
                )
    if facts.looked("gpu_process", "gpu") or not facts.told("gpu"):
        return
    own = read_tasks(host)
    tasks = {**_tasks(listed), **own}
    if not tasks:
        if facts.told("gpu_process"):
            facts.seen.gaps.append(
                Gap(
                    "process.gpu",
                    "whether the processes that nvidia-smi lists still run: neither /proc nor ps shows processes",
                )
            )
        return
    uses = [f for f in facts.told("gpu_process") if _may_be_judged(f, tasks)]
    left = len(facts.told("gpu_process")) - len(uses)
    if left and not host.live:
        facts.seen.gaps.append(
            Gap("process.gpu", f"{left} processes that nvidia-smi names are not among those that /proc and ps show")
        )
    others = [f for f in facts.texts if f.kind != "gpu_process"]
    more = msgspec.structs.replace(wanted, facts=[*facts.seen.facts, *others, *uses])
    shown: Any = _WithProcesses(host, {pid: f for pid, f in listed.items() if pid not in own})
    got = look_at_holders(shown, more, tasks, None if not own and up_s is None else up_s)
    for place, fact in enumerate(got.facts):
        user = (
            listed[int(fact.key)].fields.get("user") if fact.kind == "gpu_holder" and int(fact.key) in listed else None
        )
        if user is not None and fact.fields.get("user") is None:
            got.facts[place] = msgspec.structs.replace(fact, fields={**fact.fields, "user": user})
    facts.seen.facts[:] = [f for f in facts.seen.facts if f.kind not in _OF_HOLDERS] + got.facts
    facts.seen.gaps += got.gaps


def _may_be_judged(use: Fact, tasks: dict[int, process_table.Task]) -> bool:
    """A pid that is nowhere is a dead holder only where the driver could not name its program either: what it names did run then."""
    return use.fields.get("pid") in tasks or bool(use.fields.get("name_missing"))


def _stuck(facts: _Facts, signals: list[Signal]) -> None:
    hung = told.hung_pids(signals)
    if not hung:
        return
    for place, fact in enumerate(facts.seen.facts):
        if fact.kind == "stuck_task":
            facts.seen.facts[place] = told.confirmed(fact, hung)
