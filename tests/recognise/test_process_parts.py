"""The pure parts of the process looks: /proc files, cgroup paths, wait channels, CUDA_VISIBLE_DEVICES, who holds what."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from gpuclinic.diagnose.judge import Sample, judge
from gpuclinic.knowledge import load_checks
from gpuclinic.model import Document, Fact
from gpuclinic.recognise.cgroup_paths import Owner, owner_of
from gpuclinic.recognise.holders import Machine, Raw, holder_fields, role_of, unaccounted_fields, use_fields
from gpuclinic.recognise.parsers.nvidia_smi_xml import parse_xml
from gpuclinic.recognise.process_table import (
    Task,
    chosen_environment,
    command_line,
    counts,
    hides_others,
    last_ran_s,
    parse_stat,
    parse_status,
    program_root,
    shows_all,
    switches_of,
)
from gpuclinic.recognise.visible_devices import visible
from gpuclinic.recognise.wait_channels import waits_for

HEX = "0123456789abcdef" * 4
POD = "1b4c7e90-8a2f-4d8e-9c39-0a1b2c3d4e5f"


def stat_line(pid: int, comm: str, state: str = "S", ppid: int = 1, threads: int = 1, flags: int = 4194304) -> str:
    return (
        f"{pid} ({comm}) {state} {ppid} {pid} {pid} 0 -1 {flags} 9 0 0 0 80 20 0 0 20 0 {threads} 0 5000 0 0 "
        + "0 " * 26
    )


def task(pid: int, comm: str, ppid: int = 1, state: str = "S", threads: int = 1) -> Task:
    found = parse_stat(stat_line(pid, comm, state, ppid, threads))
    assert found is not None
    return found


def test_stat_with_brackets_and_blanks_in_the_name() -> None:
    found = parse_stat(stat_line(12, "tmux: (server) 1", "D"))
    assert found is not None
    assert (found.pid, found.comm, found.state, found.start_ticks, found.cpu_ticks) == (
        12,
        "tmux: (server) 1",
        "D",
        5000,
        100,
    )
    assert found.age_s(150.0) == 100.0
    assert not found.kernel_thread
    assert parse_stat(stat_line(44, "kworker/0:1", ppid=2)).kernel_thread  # type: ignore[union-attr]
    assert parse_stat(stat_line(44, "x", flags=0x208040)).kernel_thread  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "text", ["", "12", "12 (x", "12 (x) S 1", "x (y) S " + "1 " * 40, ") S (", "9 (a) S " + "z " * 40]
)
def test_stat_of_something_else_is_none(text: str) -> None:
    assert parse_stat(text) is None


def test_status_and_switches() -> None:
    told = parse_status(
        "Name:\tx\nUid:\t1001\t1001\t1001\t1001\nvoluntary_ctxt_switches:\t7\nnonvoluntary_ctxt_switches:\t2\n"
    )
    assert switches_of(told) == 9
    assert switches_of({}) is None


def test_only_chosen_variables_are_kept() -> None:
    kept = chosen_environment(
        b"PATH=/bin\0AWS_SECRET_ACCESS_KEY=x\0CUDA_VISIBLE_DEVICES=0,1\0LOCAL_RANK=3\0=\0broken\0"
    )
    assert kept == {"CUDA_VISIBLE_DEVICES": "0,1", "LOCAL_RANK": "3"}


def test_command_line_of_a_program_with_a_title_of_its_own() -> None:
    assert command_line(b"VLLM::Worker_TP0") == "VLLM::Worker_TP0"
    assert command_line(b"python3\0train.py\0--a\nb\0") == "python3 train.py --a b"


def test_whole_view_by_kthreadd_and_hidepid() -> None:
    assert shows_all({2: task(2, "kthreadd", 0)})
    assert not shows_all({2: task(2, "python3", 1)})
    assert not shows_all({1: task(1, "bash", 0)})
    assert hides_others("proc /proc proc rw,nosuid,hidepid=invisible 0 0\n")
    assert not hides_others("proc /proc proc rw,nosuid,hidepid=0 0 0\n")


def test_last_run_time() -> None:
    assert last_ran_s(
        "python3 (12, #threads: 1)\n-----\nse.exec_start                 :     1234567.891\n"
    ) == pytest.approx(1234.567891)
    assert last_ran_s("") is None


def test_ranks_of_one_launcher_are_one_run_and_shells_are_not_climbed() -> None:
    tasks = {
        t.pid: t
        for t in (
            task(1, "systemd", 0),
            task(10, "sshd"),
            task(11, "bash", 10),
            task(20, "torchrun", 11),
            task(21, "python3", 20),
            task(22, "python3", 20),
            task(30, "python3", 11),
        )
    }
    assert program_root(21, tasks) == program_root(22, tasks) == 20
    assert program_root(30, tasks) == 30
    assert program_root(999, tasks) == 999


def test_a_loop_of_parents_ends() -> None:
    tasks = {5: task(5, "a", 6), 6: task(6, "b", 5)}
    assert program_root(5, tasks) in (5, 6)


def test_counts_name_the_parent_of_most_zombies() -> None:
    found = counts([task(5, "a", 3, "Z"), task(6, "b", 3, "Z"), task(7, "c", 4, "Z"), task(3, "parent")])
    assert (found["zombies"], found["zombie_parent"], found["zombie_parent_count"]) == (3, 3, 2)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (f"0::/system.slice/docker-{HEX}.scope", {"runtime": "docker", "container": HEX}),
        (f"4:memory:/docker/{HEX}\n1:name=systemd:/docker/{HEX}", {"runtime": "docker", "container": HEX}),
        (f"0::/machine.slice/libpod-{HEX}.scope/container", {"runtime": "podman", "container": HEX}),
        (f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{POD.replace('-', '_')}.slice/cri-containerd-{HEX}.scope", {"runtime": "containerd", "container": HEX, "pod_uid": POD}),
        (f"9:devices:/kubepods/besteffort/pod{POD}/{HEX}", {"runtime": "containerd", "container": HEX, "pod_uid": POD}),
        (f"0::/kubepods.slice/kubepods-pod{POD.replace('-', '_')}.slice/crio-{HEX}.scope", {"runtime": "cri-o", "container": HEX, "pod_uid": POD}),
        (f"0::/system.slice/containerd.service/kubepods-burstable-pod{POD.replace('-', '_')}.slice:cri-containerd:{HEX}", {"runtime": "containerd", "container": HEX, "pod_uid": POD}),
        ("0::/system.slice/slurmstepd.scope/job_123/step_0/user/task_0", {"slurm_job": "123", "slurm_step": "0"}),
        ("5:devices:/slurm/uid_1001/job_77/step_batch/task_0\n1:cpu:/", {"slurm_job": "77", "slurm_step": "batch"}),
        ("0::/system.slice/gpu01_slurmstepd.scope/job_5/step_extern", {"slurm_job": "5", "slurm_step": "extern"}),
        ("0::/system.slice/vllm.service", {"unit": "vllm.service", "is_service": True}),
        ("0::/user.slice/user-1001.slice/session-4.scope", {"unit": "session-4.scope", "session": "4", "login_uid": 1001, "is_service": False}),
        ("0::/user.slice/user-1001.slice/user@1001.service/app.slice/run-r1.scope", {"unit": "run-r1.scope", "login_uid": 1001, "is_service": False}),
        ("0::/lxc.payload.gpu-ct/system.slice/x.service", {"runtime": "lxc", "container": "gpu-ct"}),
        ("7:memory:/pbs_jobs.service/jobid/123.server", {"batch_system": "pbs", "batch_job": "123.server"}),
        ("0::/", {"path": "", "container": None, "unit": None}),
        ("garbage", {"path": ""}),
    ],
)  # fmt: skip
def test_owner_of_a_cgroup(text: str, wanted: dict[str, Any]) -> None:
    found = owner_of(text)
    assert {name: getattr(found, name) for name in wanted} == wanted


def test_owner_is_whole_for_a_job_of_a_service() -> None:
    assert owner_of("") == Owner()


@pytest.mark.parametrize(
    ("value", "gpus", "seen", "bad", "repeated"),
    [
        ("0,1", 4, 2, (), ()),
        ("3", 4, 1, (), ()),
        ("0,1,8,2", 4, 2, ("8",), ()),
        ("8,9", 8, 0, ("8", "9"), ()),
        ("0,0", 4, 0, (), ("0",)),
        ("GPU-aaaa", 4, 1, (), ()),
        ("GPU-ffff", 4, 0, ("GPU-ffff",), ()),
        ("0,x", 4, 1, ("x",), ()),
        ("5", None, 1, (), ()),
    ],
)
def test_visible_devices(
    value: str, gpus: int | None, seen: int, bad: tuple[str, ...], repeated: tuple[str, ...]
) -> None:
    found = visible(value, gpus, ["GPU-aaaa-bb", "GPU-cccc"])
    assert (found.seen, found.bad, found.repeated, found.none_meant) == (seen, bad, repeated, False)


@pytest.mark.parametrize("value", ["", "-1", "NoDevFiles", "none", " "])
def test_no_gpu_is_meant(value: str) -> None:
    assert visible(value, 4).none_meant


@pytest.mark.parametrize(
    ("wchan", "stack", "kind"),
    [
        ("nvidia_open", "", "gpu_driver"),
        ("rwsem_down_write_slowpath", "[<0>] rwsem_down_write_slowpath+0x1/0x2\n[<0>] os_acquire_rwlock_write+0x10/0x20 [nvidia]\n[<0>] nvidia_unlocked_ioctl+0x1/0x9 [nvidia]", "gpu_driver"),
        ("rpc_wait_bit_killable", "", "network_fs"),
        ("io_schedule", "[<0>] folio_wait_bit_common+0x1/0x2\n[<0>] nfs_readahead+0x1/0x2 [nfs]", "network_fs"),
        ("ptlrpc_set_wait", "", "network_fs"),
        ("jbd2_log_wait_commit", "", "disk"),
        ("io_schedule", "", "disk"),
        ("__refrigerator", "", "paused"),
        ("kernel_clone", "", "child"),
        ("coredump_task_exit", "", "core_dump"),
        ("mlx5_cmd_exec", "", "rdma"),
        ("msleep.constprop.0", "", "other"),
        ("0", "", "other"),
    ],
)  # fmt: skip
def test_wait_channels(wchan: str, stack: str, kind: str) -> None:
    assert waits_for(wchan, stack).kind == kind


# ---- who holds what

GPU = {
    "bus_id": "0000:3b:00.0",
    "index": 1,
    "memory_total_mib": 81559,
    "memory_used_mib": 40000,
    "memory_free_mib": 41008,
    "memory_reserved_mib": 551,
}


@pytest.mark.parametrize(
    ("gpu", "uses", "wanted"),
    [
        ({}, [{"memory_mib": 39900}], 100.0),
        ({}, [], 40000.0),
        ({}, [{"memory_mib": None}], None),
        ({"mig_mode": "Enabled"}, [], None),
        ({"display_active": True}, [], None),
        ({"addressing_mode": "ATS"}, [], None),
        ({"virtualization_mode": "Host VGPU"}, [], None),
        ({"virtualization_mode": "Pass-Through"}, [], 40000.0),
        ({"error": "GPU is lost"}, [], None),
        ({"memory_free_mib": 41559}, [], 39449.0),  # an old driver counts what it reserves as used
        ({"memory_used_mib": None}, [], None),
    ],
)  # fmt: skip
def test_memory_without_an_owner(gpu: dict[str, Any], uses: list[dict[str, Any]], wanted: float | None) -> None:
    assert unaccounted_fields({**GPU, **gpu}, uses).get("unaccounted_mib") == wanted


def raw(
    pid: int,
    command: str = "python3 train.py",
    cgroup: str = "0::/user.slice/user-1001.slice/session-4.scope",
    **more: Any,
) -> Raw:
    given = {
        "task": task(pid, "python3", more.pop("ppid", 10), more.pop("state", "S")),
        "user": "alice",
        "uid": 1001,
        **more,
    }
    return Raw(pid, command=command, cgroup=cgroup, **given)


def holder(
    one: Raw, *, machine: Machine | None = None, gpu: int = 1, mib: int | None = 900, kind: str = "C"
) -> dict[str, Any]:
    uses = [{"pid": one.pid, "gpu_index": gpu, "memory_mib": mib, "type": kind}]
    return dict(holder_fields(one, uses, machine or Machine(up_s=1000.0, gpus=4, whole_view=True)))


def test_holder_of_a_container_job() -> None:
    found = holder(
        raw(
            12,
            cgroup=f"0::/system.slice/docker-{HEX}.scope",
            environ={"CUDA_VISIBLE_DEVICES": "7", "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
        )
    )
    assert found["container"] == HEX[:12]
    assert found["job"] == f"container {HEX[:12]}"
    assert found["program"] == "train.py"
    assert found["visible_bad"] is None, "ordinals in a container count within it"
    assert found["allocator"] == "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
    assert not found["orphan"]


def test_a_service_with_parent_1_is_no_orphan_and_nohup_is() -> None:
    assert not holder(raw(12, cgroup="0::/system.slice/vllm.service", ppid=1))["orphan"]
    assert holder(raw(12, ppid=1))["orphan"]
    assert not holder(raw(12, ppid=1))["leftover_worker"]
    assert holder(raw(12, "python3 -c from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=5)", ppid=1))[
        "leftover_worker"
    ]
    assert not holder(
        raw(12, "python3 -c from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=5)", ppid=77)
    )["leftover_worker"]


def test_holder_without_a_process() -> None:
    found = holder(Raw(12, listed=False, opens=False))
    assert (found["listed"], found["opens"], found["job"], found["memory_mib"]) == (False, False, None, 900)


@pytest.mark.parametrize(
    ("names", "role"),
    [(["/usr/lib/xorg/Xorg"], "display"), (["nvidia-smi"], "monitor"), (["/usr/bin/nvidia-cuda-mps-server"], "daemon"), (["vllm.entrypoints.openai.api_server", "python3"], "server"), (["train.py", "python3"], "job"), ([], "job")],
)  # fmt: skip
def test_roles(names: list[str], role: str) -> None:
    assert role_of(names) == role


def use_of(*holders: dict[str, Any], gi: int | None = None, **gpu: Any) -> dict[str, Any]:
    uses = [
        {
            "pid": h["pid"],
            "gpu_index": 1,
            "memory_mib": h["memory_mib"],
            "type": h["types"],
            "gi": gi if gi is None else gi + n,
        }
        for n, h in enumerate(holders)
    ]
    return dict(use_fields({**GPU, **gpu}, uses, {h["pid"]: h for h in holders}))


def test_sharing_is_told_by_jobs_not_by_processes() -> None:
    tasks = {
        t.pid: t
        for t in (
            task(11, "bash", 10),
            task(20, "torchrun", 11),
            task(21, "python3", 20),
            task(22, "python3", 20),
            task(30, "python3", 11),
        )
    }
    machine = Machine(tasks=tasks, whole_view=True)
    ranks = [holder(raw(pid), machine=machine) for pid in (21, 22)]
    assert use_of(*ranks)["job_count"] == 1
    other = holder(raw(30, user="bob"), machine=machine)
    found = use_of(*ranks, other)
    assert (found["job_count"], found["users"], found["workers"]) == (2, "alice, bob", 3)
    slurm = holder(raw(40, cgroup="0::/system.slice/slurmstepd.scope/job_9/step_0"), machine=machine)
    found = use_of(slurm, other)
    assert (found["slurm_jobs"], found["outside_slurm"]) == (1, 1)


def test_monitors_displays_and_mig_instances_do_not_share() -> None:
    mine = holder(raw(12))
    monitor = holder(raw(13, "/usr/bin/nv-hostengine", cgroup="0::/system.slice/nvidia-dcgm.service"))
    display = holder(raw(14, "/usr/lib/xorg/Xorg :0", cgroup="0::/system.slice/gdm.service"), kind="G")
    found = use_of(mine, monitor, display)
    assert (found["job_count"], found["workers"], found["holders"]) == (1, 1, 3)
    apart = use_of(mine, holder(raw(15, user="bob")), gi=1, mig_mode="Enabled")
    assert apart["job_count"] == 1


def test_ranks_on_one_gpu() -> None:
    ranks = [holder(raw(20 + n, environ={"LOCAL_RANK": str(n)})) for n in range(4)]
    assert use_of(*ranks)["ranks_here"] == 4


@pytest.mark.parametrize(
    "text", ["\x00" * 50, "a" * 5000, "0::/" + "docker-" * 500, "0::/slurm" + "/job_" * 800, "0::/" + "pod" * 3000]
)
def test_hostile_texts_are_survived(text: str) -> None:
    owner_of(text)
    parse_status(text)
    parse_stat(text)
    visible(text, 4)
    waits_for(text[:100], text)


def captures() -> list[Path]:
    shared = Path(os.environ.get("GPUCLINIC_SHARED", "../shared"))
    return sorted((shared / "data").rglob("*.xml"))


def test_real_captures_have_no_memory_without_an_owner() -> None:
    """Idle GPUs of the public captures: what no process accounts for stays below the row's limits."""
    if not captures():
        pytest.skip("no captures (GPUCLINIC_SHARED)")
    row = next(r for r in load_checks().checks if r.id == "process.gpu.unaccounted_memory")
    seen = 0
    for path in captures():
        facts = parse_xml(Document(path.name, path.read_text(encoding="utf-8", errors="replace")))
        every = [dict(f.fields) for f in facts if f.kind == "gpu_process"]
        for gpu in (f for f in facts if f.kind == "gpu"):
            here = [use for use in every if use.get("gpu_key") == gpu.key]
            more = {"whole_view": True, "utilization_pct": gpu.fields.get("utilization_pct")}
            fields = {**unaccounted_fields(gpu.fields, here), **more}
            seen += "unaccounted_mib" in fields
            window = [Sample(0.0, [Fact("gpu_use", gpu.key, fields, {}, path.name)])]
            assert [j for j in judge([row], window) if j.state == "holds"] == [], f"{path.name} {gpu.key}: {fields}"
    assert seen > 20
