"""Who holds the GPUs: what NVML says of processes joined with what /proc says of them. Pure."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Any

import msgspec

from gpuclinic.model import digits
from gpuclinic.recognise.cgroup_paths import Owner, owner_of
from gpuclinic.recognise.parsers.gpu_tables import read_table
from gpuclinic.recognise.process_table import Task, program_root
from gpuclinic.recognise.visible_devices import visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gpuclinic.model import Scalar

NOT_JOBS = frozenset(["monitor", "display", "daemon"])
"""Roles of programs that stand on a GPU without being anybody's job."""
_WORKER = re.compile(
    r"multiprocessing[.-](?:spawn|forkserver|fork)\b|--multiprocessing-fork|\bspawn_main\b|^ray::|^VLLM::(?:Worker|EngineCore)|"
    r"^sglang::(?:scheduler|detokenizer)|^vllm::(?:worker|engine)|pt_data_worker|pt_data_pin",
    re.IGNORECASE,
)


class Raw(msgspec.Struct):
    """What was read of one process. listed: by listing /proc; opens: by opening /proc/PID/status directly. Absent parts are None.

    files: devices that it has open or mapped ("/dev/nvidia3"); None where that was not looked at or not allowed.
    """

    pid: int
    task: Task | None = None
    status: dict[str, str] = {}
    command: str = ""
    cgroup: str = ""
    environ: dict[str, str] | None = None
    exe: str = ""
    cwd: str = ""
    user: str | None = None
    uid: int | None = None
    listed: bool = True
    opens: bool = True
    files: list[str] | None = None


class Machine(msgspec.Struct):
    """What stands around the processes. whole_view: /proc shows every process of the machine. sessions: login sessions that still are."""

    tasks: dict[int, Task] = {}
    up_s: float | None = None
    gpus: int | None = None
    uuids: list[str] = []
    whole_view: bool = False
    sessions: set[str] | None = None


@functools.cache
def _programs() -> list[tuple[re.Pattern[str], str]]:
    return [(re.compile(row["pattern"]), row["role"]) for row in read_table("gpu_programs.tsv")]


def role_of(names: Iterable[str]) -> str:
    """What kind of program it is by any of its names: monitor, display, daemon, server or job."""
    for name in names:
        short = name.rsplit("/", 1)[-1]
        role = next((role for pattern, role in _programs() if pattern.match(short)), None)
        if role is not None:
            return role
    return "job"


def program_names(raw: Raw) -> list[str]:
    """Names a process goes by: of its command line, its executable, its task; of a Python program the script or module first."""
    words = raw.command.split()
    names = [words[0]] if words else []
    if words and re.fullmatch(r"(?:\S*/)?python[\d.]*\w?", words[0]):
        rest = [word for word in words[1:] if not word.startswith("-") or word == "-m"]
        names = [*(rest[1:2] if rest[:1] == ["-m"] else rest[:1]), *names]
    return [n for n in [*names, raw.exe.removesuffix(" (deleted)"), raw.task.comm if raw.task else ""] if n]


def job_of(raw: Raw, owner: Owner, tasks: Mapping[int, Task]) -> str:
    """The run that a process belongs to, in words that are the same for all its processes."""
    if owner.slurm_job:
        return f"slurm job {owner.slurm_job}"
    if owner.batch_job:
        return f"{owner.batch_system} job {owner.batch_job}"
    if owner.pod_uid:
        return f"pod {owner.pod_uid}"
    if owner.container:
        return f"container {owner.container[:12]}"
    if raw.environ and raw.environ.get("SLURM_JOB_ID", "").isdecimal():
        return f"slurm job {raw.environ['SLURM_JOB_ID']}"
    if owner.is_service and owner.unit and not owner.unit.startswith(("user@", "ssh")):
        return f"unit {owner.unit}"
    return f"{raw.user or raw.uid or 'user'} pid {program_root(raw.pid, tasks)}"


def holder_fields(raw: Raw, uses: Sequence[Mapping[str, Any]], machine: Machine) -> dict[str, Scalar]:
    """Fields of `gpu_holder` (docs/facts.md). uses: fields of the `gpu_process` facts of this pid."""
    owner = owner_of(raw.cgroup)
    task = raw.task
    names = program_names(raw)
    orphan = bool(task and task.ppid == 1 and not owner.is_service and not owner.container and not owner.pod_uid)
    sizes = [use.get("memory_mib") for use in uses]
    places = {str(use["bus_id"]) for use in uses if use.get("bus_id")}
    gpus = sorted({int(g) for use in uses if isinstance(g := use.get("gpu_index"), int)})
    return {
        "pid": raw.pid,
        "user": raw.user,
        "uid": raw.uid,
        "program": names[0].rsplit("/", 1)[-1][:80] if names else next((str(u["name"])[:80] for u in uses if u.get("name")), None),
        "command": raw.command[:300] or None,
        "role": role_of(names),
        "state": task.state if task else None,
        "ppid": task.ppid if task else None,
        "threads": task.threads if task else None,
        "age_s": task.age_s(machine.up_s) if task else None,
        "gpus": ",".join(map(str, gpus)) or None,
        "gpu_count": len(gpus),
        "bus_id": places.pop() if len(places) == 1 else None,
        "memory_mib": sum(s for s in sizes if isinstance(s, (int, float))) if any(s is not None for s in sizes) else None,
        "memory_known": bool(sizes) and all(s is not None for s in sizes),
        "types": "".join(sorted({c for use in uses for c in str(use.get("type") or "") if c in "CGM"})) or None,
        "named_by_nvml": bool(uses),
        "devices": ",".join(sorted(set(raw.files))) if raw.files else None,
        "listed": raw.listed,
        "opens": raw.opens,
        "whole_view": machine.whole_view,
        "zombie": bool(task and task.state in "ZX"),
        "stopped": bool(task and task.state == "T"),
        "orphan": orphan,
        "leftover_worker": orphan and bool(_WORKER.search(raw.command)),
        "session_closed": bool(owner.session and machine.sessions is not None and owner.session not in machine.sessions),
        "exe_deleted": raw.exe.endswith(" (deleted)"),
        "cwd_deleted": raw.cwd.endswith(" (deleted)"),
        "job": job_of(raw, owner, machine.tasks) if task or raw.cgroup else None,
        **_owner_fields(owner),
        **_environment_fields(raw, owner, machine),
    }  # fmt: skip


def _owner_fields(owner: Owner) -> dict[str, Scalar]:
    return {
        "cgroup": owner.path[:300] or None,
        "runtime": owner.runtime,
        "container": owner.container[:12] if owner.container else None,
        "container_id": owner.container,
        "pod_uid": owner.pod_uid,
        "slurm_job": owner.slurm_job,
        "slurm_step": owner.slurm_step,
        "unit": owner.unit,
        "session": owner.session,
    }


def _environment_fields(raw: Raw, owner: Owner, machine: Machine) -> dict[str, Scalar]:
    if raw.environ is None:
        return {"environment_known": False}
    env = raw.environ
    local = next(
        (env[n] for n in ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "PMI_LOCAL_RANK", "SLURM_LOCALID") if n in env),
        None,
    )
    world = env.get("WORLD_SIZE")
    out: dict[str, Scalar] = {
        "environment_known": True,
        "visible_devices": env.get("CUDA_VISIBLE_DEVICES"),
        "local_rank": digits(local),
        "world_size": digits(world),
        "mps_pipe": env.get("CUDA_MPS_PIPE_DIRECTORY"),
        "allocator": allocator_settings(env),
    }
    if "CUDA_VISIBLE_DEVICES" in env:
        out |= visible_fields(
            env["CUDA_VISIBLE_DEVICES"], inside=bool(owner.container or owner.pod_uid), machine=machine
        )
    return out


def visible_fields(value: str, *, inside: bool, machine: Machine) -> dict[str, Scalar]:
    """CUDA_VISIBLE_DEVICES judged; in a container ordinals count within it, so only repetition can be told from outside."""
    seen = visible(value, None if inside else machine.gpus, () if inside else machine.uuids)
    return {
        "visible_asked": seen.asked,
        "visible_seen": seen.seen,
        "visible_none_meant": seen.none_meant,
        "visible_bad": ",".join(seen.bad) or None,
        "visible_repeated": ",".join(seen.repeated) or None,
    }


def allocator_settings(env: Mapping[str, str]) -> str | None:
    """The variables that say how a framework takes GPU memory, as NAME=value."""
    names = [
        n
        for n in env
        if re.match(
            r"PYTORCH_(?:CUDA_)?ALLOC_CONF|PYTORCH_NO_CUDA|TF_FORCE_GPU|TF_GPU_ALLOC|XLA_(?:PYTHON_)?CLIENT_", n
        )
    ]
    return " ".join(f"{name}={env[name]}" for name in sorted(names))[:500] or None


def use_fields(
    gpu: Mapping[str, Any], uses: Sequence[Mapping[str, Any]], holders: Mapping[int, Mapping[str, Any]]
) -> dict[str, Scalar]:
    """Fields of `gpu_use`, one GPU and all who are on it. gpu: fields of its `gpu` fact; uses: of its `gpu_process` facts."""
    here = [holders[pid] for use in uses if isinstance(pid := use.get("pid"), int) and pid in holders]
    here = list({h["pid"]: h for h in here}.values())
    workers = [h for h in here if h.get("role") not in NOT_JOBS and h.get("types") != "G"]
    mps = any("M" in str(use.get("type") or "") for use in uses) or any(
        "mps-server" in str(h.get("program")) for h in here
    )
    places: dict[Any, set[str]] = {}
    for use in uses:
        holder = holders.get(use.get("pid") or 0)
        if holder is not None and holder in workers and holder.get("job"):
            places.setdefault(use.get("gi"), set()).add(str(holder["job"]))
    shared = max((jobs for jobs in places.values()), key=len, default=set())
    ranks = [h for h in workers if h.get("local_rank") is not None and h.get("gpu_count") == 1]
    return {
        "gpu": gpu.get("bus_id"),
        "gpu_index": gpu.get("index"),
        "holders": len(here),
        "workers": len(workers),
        "pids": ",".join(str(h["pid"]) for h in workers[:16]) or None,
        "users": _several(h.get("user") for h in workers),
        "jobs": ", ".join(sorted(shared)[:8]) or None,
        "job_count": len(shared),
        "user_count": len({h.get("user") for h in workers if h.get("job") in shared}),
        "slurm_jobs": len({h["slurm_job"] for h in workers if h.get("slurm_job") and h.get("job") in shared}),
        "outside_slurm": sum(
            not h.get("slurm_job") and (h.get("uid") or 0) >= 1000 and not h.get("container") for h in workers
        ),
        "servers_only": bool(workers) and all(h.get("role") == "server" for h in workers),
        "mps": mps,
        "mig": gpu.get("mig_mode") == "Enabled",
        "ranks_here": len({h["local_rank"] for h in ranks}),
        "youngest_s": min((h["age_s"] for h in workers if h.get("age_s") is not None), default=None),
        "compute_mode": gpu.get("compute_mode"),
        "all_known": bool(uses) and all(use.get("pid") in holders for use in uses),
        **unaccounted_fields(gpu, uses),
    }


def _several(values: Iterable[Any]) -> str | None:
    return ", ".join(sorted({str(v) for v in values if v is not None})[:8]) or None


def unaccounted_fields(gpu: Mapping[str, Any], uses: Sequence[Mapping[str, Any]]) -> dict[str, Scalar]:
    """Memory that is in use and no process accounts for, in MiB; absent where it cannot be told.

    Drivers from 510 on leave what they reserve out of "used" (total = used + free + reserved), older ones count it in. Not told: where a
    process's size is unknown, with MIG, vGPU hosts, a display, WDDM, or where the GPU's memory also is the machine's (ATS, Grace).
    """
    total, used, free = (_number(gpu.get(f"memory_{name}_mib")) for name in ("total", "used", "free"))
    reserved = _number(gpu.get("memory_reserved_mib"))
    out: dict[str, Scalar] = {"memory_used_mib": used, "memory_total_mib": total}
    sizes = [_number(use.get("memory_mib")) for use in uses]
    out["process_mib"] = sum(size for size in sizes if size is not None)
    if used is None or not total or any(size is None for size in sizes) or not _countable(gpu):
        return out
    counted_in = reserved is not None and free is not None and abs(total - used - free) <= 2 < reserved
    out["unaccounted_mib"] = used - (reserved or 0.0 if counted_in else 0.0) - float(out["process_mib"] or 0.0)
    out["reserved_known"] = reserved is not None
    return out


def _countable(gpu: Mapping[str, Any]) -> bool:
    virtual = str(gpu.get("virtualization_mode") or "none").lower()
    return (
        gpu.get("mig_mode") != "Enabled"
        and virtual in ("none", "pass-through", "passthrough", "n/a")
        and gpu.get("display_active") not in ("Enabled", True)
        and str(gpu.get("addressing_mode") or "").upper() != "ATS"
        and not gpu.get("error")
        and not gpu.get("hung")
    )


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
