"""Processes: who holds the GPUs, what states processes are in, and which are stuck in the kernel."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from gpuclinic.clinic.looks._look import Seen, Wanted, as_number, first_line, is_absent
from gpuclinic.model import Gap, digits
from gpuclinic.recognise import process_table as table
from gpuclinic.recognise.cgroup_paths import owner_of
from gpuclinic.recognise.holders import NOT_JOBS, Machine, Raw, holder_fields, program_names, use_fields, visible_fields
from gpuclinic.recognise.host_state import busy_programs
from gpuclinic.recognise.wait_channels import waits_for

if TYPE_CHECKING:
    from gpuclinic.model import Fact, Scalar
    from gpuclinic.observe.asking import Asked

LOOK = "process.gpu"
STUCK = "process.stuck"
_MOST_HOLDERS = 256
_MOST_STUCK = 64
_MOST_TIMED = 8
_MOST_SEARCHED = 4000
_TELLING_MIB = 1024
"""Memory without an owner from which on all processes are searched for it; what is a finding the rows say."""
_ASKED_AGAIN = 1000
"""Added to the number of a sample where NVML is asked once more within it."""


def look_at_processes(host: Asked, wanted: Wanted) -> Seen:
    """Facts `process_count`, `daemon`, `gpu_holder`, `gpu_use`, and `stuck_task` of what is in uninterruptible sleep now."""
    seen = Seen()
    tasks = read_tasks(host)
    if not tasks:
        why = f"/proc: {host.listing('/proc').why or 'it lists no process'}"
        seen.gaps.append(Gap(LOOK, why if host.live else "not in the snapshot"))
        return seen
    machine = _machine(host, wanted, tasks)
    seen.fact(
        "process_count", "host", {**table.counts(tasks.values()), "whole_view": machine.whole_view}, "/proc/*/stat"
    )
    seen.facts += busy_programs(tasks.values(), as_number(first_line(host, "/proc/uptime")))
    _daemons(host, tasks, seen)
    _sleeping(host, tasks, machine, seen)
    _holders(host, wanted, machine, seen)
    if wanted.deep and _has_gpus(wanted):
        _visible_devices(host, machine, seen)
    else:
        _visible_of_holders(seen)
    return seen


def look_at_holders(host: Asked, wanted: Wanted, tasks: dict[int, table.Task], up_s: float | None) -> Seen:
    """Facts `gpu_holder` and `gpu_use` once more, where a text told who is on the GPUs after the processes were looked at."""
    seen = Seen()
    machine = msgspec.structs.replace(_machine(host, wanted, tasks), up_s=up_s)
    _holders(host, wanted, machine, seen)
    _visible_of_holders(seen)
    return seen


_OF_VISIBLE = (
    "pid",
    "program",
    "age_s",
    "visible_asked",
    "visible_seen",
    "visible_none_meant",
    "visible_bad",
    "visible_repeated",
)


def _visible_of_holders(seen: Seen) -> None:
    for fact in [f for f in seen.facts if f.kind == "gpu_holder" and f.fields.get("visible_devices") is not None]:
        shown = {name: fact.fields.get(name) for name in _OF_VISIBLE}
        value = {"value": fact.fields["visible_devices"], "holds_gpu": fact.fields.get("named_by_nvml")}
        seen.fact("visible_devices", fact.key, {**shown, **value}, f"/proc/{fact.key}/environ")


def read_tasks(host: Asked) -> dict[int, table.Task]:
    """Every process that listing /proc shows."""
    out: dict[int, table.Task] = {}
    for path, answer in host.files("/proc/[0-9]*/stat", 1024).items():
        task = table.parse_stat(answer.text) if answer.ok else None
        if task is not None and path == f"/proc/{task.pid}/stat":
            out[task.pid] = task
    return out


def _machine(host: Asked, wanted: Wanted, tasks: dict[int, table.Task]) -> Machine:
    whole = table.shows_all(tasks)
    sessions = host.listing("/run/systemd/sessions")
    gpus = wanted.of("gpu")
    uuids = [str(f.fields["uuid"]) for f in [*gpus, *wanted.of("mig_device")] if f.fields.get("uuid")]
    return Machine(
        tasks, as_number(first_line(host, "/proc/uptime")), len(gpus) or None, uuids, whole,
        {name for name in sessions.lines() if not name.endswith(".ref")} if sessions.ok else None,
    )  # fmt: skip


DAEMONS = {
    "nvidia-persiste": "nvidia-persistenced", "nv-fabricmanage": "nv-fabricmanager", "nv-hostengine": "nv-hostengine", "slurmd": "slurmd",
    "kubelet": "kubelet", "k3s-server": "kubelet", "k3s-agent": "kubelet", "rke2": "kubelet", "dockerd": "dockerd", "containerd": "containerd",
    "crio": "crio", "nvidia-imex": "nvidia-imex",
}  # fmt: skip
"""The first 15 characters of a program's name, which is all that /proc/PID/stat keeps, to the program."""


def _daemons(host: Asked, tasks: dict[int, table.Task], seen: Seen) -> None:
    """Facts `daemon` of services that matter to GPUs and run here."""
    for pid, task in tasks.items():
        name = DAEMONS.get(task.comm)
        if task.comm == "nvidia-cuda-mps":
            command = table.command_line(host.file(f"/proc/{pid}/cmdline", 4096).data)
            name = "nvidia-cuda-mps-server" if "mps-server" in command else "nvidia-cuda-mps-control"
        if name is not None:
            status = table.parse_status(host.file(f"/proc/{pid}/status", 8192).text)
            seen.fact(
                "daemon", f"{name}/{pid}", {"name": name, "pid": pid, "uid": table.uid_of(status), "state": task.state, "ppid": task.ppid},
                f"/proc/{pid}/stat",
            )  # fmt: skip


# ---- who holds the GPUs


def _holders(host: Asked, wanted: Wanted, machine: Machine, seen: Seen) -> None:
    uses: dict[int, list[dict[str, Any]]] = {}
    for fact in wanted.of("gpu_process"):
        if isinstance(pid := fact.fields.get("pid"), int):
            uses.setdefault(pid, []).append(dict(fact.fields))
    users = table.user_names(host.file("/etc/passwd", 1 << 20).text) if uses or wanted.deep else {}
    holders = {pid: _raw(host, pid, machine, users) for pid in sorted(uses)[:_MOST_HOLDERS]}
    gone = [pid for pid, raw in holders.items() if not raw.listed]
    if gone and machine.whole_view:
        _confirm(host, wanted, holders, gone)
    elif gone:
        why = "NVML names processes that this /proc does not show (a pid namespace, or hidepid); as root on the host itself they can be told"
        seen.gaps.append(Gap(LOOK, f"{len(gone)} of {len(holders)} GPU processes: {why}"))
        for pid in gone:
            del holders[pid]
    fields = {pid: holder_fields(raw, uses[pid], machine) for pid, raw in holders.items()}
    every = [dict(f.fields) for f in wanted.of("gpu_process")]
    on = {
        gpu.key: {
            **use_fields(gpu.fields, [u for u in every if u.get("gpu_key") == gpu.key or u.get("gpu_index") == gpu.fields.get("index")], fields),
            "whole_view": machine.whole_view, "utilization_pct": gpu.fields.get("utilization_pct"),
        }
        for gpu in wanted.of("gpu")
    }  # fmt: skip
    if (wanted.deep and _has_gpus(wanted)) or _needs_search(wanted, on):
        _search(host, wanted, machine, users, fields, seen)
    for key, use in on.items():
        use["opened_by"] = _opened_by(use, fields)
        seen.fact("gpu_use", key, use, "nvml and /proc")
    for pid, given in fields.items():
        seen.fact("gpu_holder", str(pid), given, f"/proc/{pid}")


def _opened_by(use: dict[str, Any], fields: dict[int, dict[str, Any]]) -> str | None:
    """Processes that have the GPU open though NVML does not name them on it, monitors and services of the driver left out."""
    index = str(use.get("gpu_index"))
    others = [f for f in fields.values() if not f["named_by_nvml"] and index in str(f.get("gpus") or "").split(",")]
    return ", ".join(f"{f['program']} (pid {f['pid']})" for f in others if f["role"] not in NOT_JOBS)[:200] or None


def _raw(host: Asked, pid: int, machine: Machine, users: dict[int, str]) -> Raw:
    """Reads what /proc tells of one process."""
    place = f"/proc/{pid}"
    status = host.file(f"{place}/status", 8192)
    told = table.parse_status(status.text) if status.ok else {}
    task = machine.tasks.get(pid)
    if task is None and status.ok:
        task = table.parse_stat(host.file(f"{place}/stat", 1024).text)
    environ = host.file(f"{place}/environ", 1 << 18)
    uid = table.uid_of(told)
    return Raw(
        pid, task, told, table.command_line(host.file(f"{place}/cmdline", 8192).data), host.file(f"{place}/cgroup", 16384).text,
        table.chosen_environment(environ.data) if environ.ok and (environ.data or not status.ok) else None,
        _target(host, f"{place}/exe"), _target(host, f"{place}/cwd"), users.get(uid, str(uid)) if uid is not None else None, uid,
        pid in machine.tasks, status.ok and told.get("Tgid", str(pid)) == str(pid),
    )  # fmt: skip


def _target(host: Asked, path: str) -> str:
    answer = host.link(path)
    return answer.text[:4096] if answer.ok else ""


def _confirm(host: Asked, wanted: Wanted, holders: dict[int, Raw], gone: list[int]) -> None:
    """Processes that NVML named and /proc has not may have ended in between: both are asked once more, and what is settled is dropped."""
    again = host.nvml(deep=False, sample=wanted.sample + _ASKED_AGAIN)
    if again.ok:
        still = {int(pid) for pid in re.findall(r'"pid":\s*(\d{1,10})\b', again.text)}
        for pid in [pid for pid in gone if pid not in still]:
            del holders[pid]
    listed = {digits(name) for name in host.listing("/proc").lines()}
    for pid in [pid for pid in gone if pid in holders]:
        if pid in listed:
            del holders[pid]  # it was only just starting
        else:
            holders[pid].opens = host.file(f"/proc/{pid}/status", 8192).ok and holders[pid].opens


def _has_gpus(wanted: Wanted) -> bool:
    return bool(wanted.of("gpu")) or any(f.fields.get("is_gpu") for f in wanted.of("pci_device"))


def _needs_search(wanted: Wanted, on: dict[str, dict[str, Any]]) -> bool:
    """Memory that nobody accounts for, or GPUs without NVML's word on their processes: then the open devices tell."""
    if any((as_number(use.get("unaccounted_mib")) or 0) > _TELLING_MIB for use in on.values()):
        return True
    return not on and any(
        f.fields.get("is_gpu") and f.fields.get("driver") == "nvidia" for f in wanted.of("pci_device")
    )


def _search(
    host: Asked, wanted: Wanted, machine: Machine, users: dict[int, str], fields: dict[int, dict[str, Any]], seen: Seen
) -> None:  # fmt: skip
    """Every process with a GPU's device open, as fuser finds them: also those whose main thread is dead, and mapped devices."""
    minors = {f.fields.get("minor_number"): f for f in wanted.of("gpu")}
    searched = [pid for pid, task in machine.tasks.items() if not task.kernel_thread][:_MOST_SEARCHED]
    readable = 0
    for pid in searched:
        links = host.links(f"/proc/{pid}/fd/*")
        task = machine.tasks[pid]
        if not links and task.state == "Z" and task.threads > 1:
            links = host.links(f"/proc/{pid}/task/[0-9]*/fd/*")
        readable += bool(links)
        files = sorted({target for target in links.values() if re.match(r"/dev/nvidia\d", target)})
        if not files and not _target_matters(links):
            continue
        if pid in fields:
            fields[pid]["devices"] = ",".join(files) or None
            continue
        if files:
            raw = _raw(host, pid, machine, users)
            raw.files = files
            found = holder_fields(raw, [], machine)
            indices = {
                minors[m].fields.get("index") for f in files if (m := digits(re.sub(r"\D", "", f[11:]))) in minors
            }
            found["gpus"] = ",".join(str(i) for i in sorted(i for i in indices if i is not None)) or None
            fields[pid] = found
    if searched and readable < len(searched) / 2 and host.live:
        why = f"the open files of {len(searched) - readable} of {len(searched)} processes cannot be read; as root they can"
        seen.gaps.append(Gap(LOOK, why))
    seen.fact("holder_search", "host", {"searched": len(searched), "readable": readable}, "/proc/*/fd")


def _target_matters(links: dict[str, str]) -> bool:
    return any(target.startswith(("/dev/nvidiactl", "/dev/nvidia-uvm")) for target in links.values())


def _visible_devices(host: Asked, machine: Machine, seen: Seen) -> None:
    """Facts `visible_devices` of processes that name GPUs, whether they hold one or not."""
    holding = {f.fields["pid"] for f in seen.facts if f.kind == "gpu_holder" and f.fields.get("named_by_nvml")}
    refused = 0
    for path, answer in host.files("/proc/[0-9]*/environ", 1 << 17).items():
        env = table.chosen_environment(answer.data) if answer.ok else {}
        pid = digits(path.split("/")[2])
        if pid is None:
            continue
        task = machine.tasks.get(pid)
        refused += task is not None and not task.kernel_thread and not answer.ok and not is_absent(answer)
        if "CUDA_VISIBLE_DEVICES" not in env or task is None:
            continue
        owner = owner_of(host.file(f"/proc/{pid}/cgroup", 16384).text)
        inside = not machine.whole_view or bool(owner.container or owner.pod_uid)
        raw = Raw(pid, task, command=table.command_line(host.file(f"/proc/{pid}/cmdline", 8192).data))
        names = program_names(raw)
        value = env["CUDA_VISIBLE_DEVICES"]
        about: dict[str, Scalar] = {
            "pid": pid,
            "value": value,
            "program": names[0].rsplit("/", 1)[-1][:80] if names else None,
        }
        when: dict[str, Scalar] = {"age_s": task.age_s(machine.up_s), "holds_gpu": pid in holding}
        given = visible_fields(value, inside=inside, machine=machine)
        seen.fact("visible_devices", str(pid), {**about, **when, **given}, f"/proc/{pid}/environ")
    if refused:
        seen.gaps.append(
            Gap(LOOK, f"the environment of {refused} processes of other users cannot be read; as root it can")
        )


# ---- what is stuck


def _sleeping(host: Asked, tasks: dict[int, table.Task], machine: Machine, seen: Seen) -> None:
    """Facts `sleeping_task`: what is in uninterruptible sleep at this moment, with what tells whether it moves until the second look."""
    at = host.clock()
    for pid, task in tasks.items():
        if task.state == "D":
            moved = _moved(host, pid)
            seen.fact(
                "sleeping_task",
                str(pid),
                {"pid": pid, "switches": moved[0], "at": at, "up_s": machine.up_s},
                f"/proc/{pid}/stat",
            )
            if sum(f.kind == "sleeping_task" for f in seen.facts) >= _MOST_STUCK:
                return


def _moved(host: Asked, pid: int) -> tuple[int | None, int, str]:
    """Context switches, number of the answer, and state letter of a task now."""
    answer = host.file(f"/proc/{pid}/status", 8192)
    told = table.parse_status(answer.text) if answer.ok else {}
    return table.switches_of(told), answer.sample, told.get("State", "?")[:1]


def look_at_stuck(host: Asked, wanted: Wanted) -> Seen:
    """Facts `stuck_task`: what was in uninterruptible sleep and, a second later, has not run in between."""
    seen = Seen()
    sleeping = [fact for fact in wanted.of("sleeping_task") if _still(host, fact) is not None]
    if not sleeping:
        return seen  # what moved since is not worth a second
    first_at = min(float(as_number(f.fields.get("at")) or 0.0) for f in sleeping)
    host.wait(min(1.0, max(0.0, first_at + 1.0 - host.clock())))
    still = {
        int(as_number(fact.key) or 0): confirmed for fact in sleeping if (confirmed := _still(host, fact)) is not None
    }
    tasks = read_tasks(host) if any(still.values()) else {}
    seconds = max(0.0, host.clock() - first_at)
    for pid, confirmed in still.items():
        _stuck(host, pid, wanted, seen, tasks, seconds if confirmed else 0.0)
    return seen


def _still(host: Asked, fact: Fact) -> bool | None:
    """A task still sleeps: True it has not run in between, False there is but one sample (a snapshot made by hand); None it does not."""
    switches, sample, state = _moved(host, int(as_number(fact.key) or 0))
    if state != "D":
        return None
    if sample == 0:
        return False
    return True if switches is not None and switches == fact.fields.get("switches") else None


def _stuck(host: Asked, pid: int, wanted: Wanted, seen: Seen, tasks: dict[int, table.Task], seconds: float) -> None:
    """One such task. seconds: for how long it was watched without running, 0 where that is not known."""
    task = table.parse_stat(host.file(f"/proc/{pid}/stat", 1024).text)
    if task is None:
        return
    wchan = first_line(host, f"/proc/{pid}/wchan") or ""
    stack = host.file(f"/proc/{pid}/stack", 16384)
    if seconds and wchan in ("", "0") and not stack.ok:
        seen.gaps.append(Gap(STUCK, "what processes in state D wait for cannot be read; as root it can"))
    waits = waits_for(wchan, stack.text if stack.ok else "")
    known = len([f for f in seen.facts if f.kind == "stuck_task"]) < _MOST_TIMED
    since = _since_it_ran(host, pid, tasks) if seconds and known else None
    holders = {f.fields.get("pid") for f in wanted.of("gpu_holder")}
    command = table.command_line(host.file(f"/proc/{pid}/cmdline", 4096).data)
    seen.fact(
        "stuck_task",
        str(pid),
        {
            "pid": pid,
            "program": task.comm,
            "command": command[:300] or None,
            "kernel_thread": task.kernel_thread,
            "state": task.state,
            "waits_for": waits.kind,
            "waits_en": waits.en,
            "waits_zh": waits.zh,
            "function": waits.function or "?",
            "wchan": wchan if wchan != "0" else None,
            "stack_known": stack.ok and bool(stack.data),
            "confirmed": seconds > 0,
            "watched_s": round(seconds, 1),
            "stuck_s": round(max(since or 0.0, seconds), 1),
            "holds_gpu": pid in holders,
        },
        f"/proc/{pid}/wchan",
        waits_for=f"{task.comm} ({pid}) state D in {waits.function or wchan or '?'}",
    )


def _since_it_ran(host: Asked, pid: int, tasks: dict[int, table.Task]) -> float | None:
    """At least so many seconds since the task last had a processor: others have run on that processor so much later."""
    ran = table.last_ran_s(host.file(f"/proc/{pid}/sched", 8192).text)
    if ran is None:
        return None
    others = (table.last_ran_s(host.file(f"/proc/{peer}/sched", 8192).text) for peer in table.peers_of(pid, tasks))
    return max((other - ran for other in others if other is not None), default=None)
