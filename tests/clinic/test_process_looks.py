"""The looks at processes, containers and schedulers, on root trees made by hand and on this machine."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from gpuclinic.clinic.looks import Seen, Wanted
from gpuclinic.clinic.looks.containers import look_at_containers
from gpuclinic.clinic.looks.processes import look_at_processes, look_at_stuck, read_tasks
from gpuclinic.clinic.looks.schedulers import look_at_schedulers
from gpuclinic.diagnose.judge import Sample, judge
from gpuclinic.knowledge import load_checks
from gpuclinic.model import Fact
from gpuclinic.observe.live import LiveHost
from gpuclinic.observe.snapshot import Snapshot

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

HEX = "0123456789abcdef" * 4
UUID = "GPU-0000000{}-1111-2222-3333-444444444444"


class Machine:
    """A root tree and what NVML says."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.facts: list[Fact] = []
        self.again: list[int] | None = None
        self.put("proc/uptime", "100000.0 90000.0\n")
        self.process(1, "systemd", ppid=0, cgroup="/init.scope")
        self.process(2, "kthreadd", ppid=0, cgroup="/")

    def put(self, path: str, text: str | bytes) -> None:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(text.encode() if isinstance(text, str) else text)

    def process(self, pid: int, command: str, *, ppid: int = 1, state: str = "S", cgroup: str = "/user.slice/user-1001.slice/session-4.scope",
                environ: str = "", threads: int = 1, uid: int = 1001, switches: int = 5) -> None:  # fmt: skip
        comm = command.split()[0].rsplit("/", 1)[-1][:15]
        self.put(
            f"proc/{pid}/stat",
            f"{pid} ({comm}) {state} {ppid} {pid} {pid} 0 -1 4194304 9 0 0 0 80 20 0 0 20 0 {threads} 0 5000 0 0 "
            + "0 " * 26,
        )
        self.put(
            f"proc/{pid}/status",
            f"Name:\t{comm}\nState:\t{state} (x)\nTgid:\t{pid}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\nvoluntary_ctxt_switches:\t{switches}\nnonvoluntary_ctxt_switches:\t0\n",
        )
        self.put(f"proc/{pid}/cmdline", command.replace(" ", "\0") + "\0")
        self.put(f"proc/{pid}/cgroup", f"0::{cgroup}\n")
        self.put(f"proc/{pid}/environ", environ.replace(" ", "\0") + "\0")

    def opens(self, pid: int, *targets: str) -> None:
        (self.root / f"proc/{pid}/fd").mkdir(parents=True, exist_ok=True)
        for number, target in enumerate(targets):
            (self.root / f"proc/{pid}/fd/{number}").symlink_to(target)

    def gpus(self, count: int, **fields: Any) -> None:
        for index in range(count):
            address = f"0000:{index + 16:02x}:00.0"
            given = {"bus_id": address, "index": index, "minor_number": index, "uuid": UUID.format(index), "utilization_pct": 0, "memory_total_mib": 81559,
                     "memory_used_mib": 4, "memory_free_mib": 81004, "memory_reserved_mib": 551, "tool": "nvml", **fields}  # fmt: skip
            self.facts.append(Fact("gpu", address, given, {}, "nvml"))
            self.facts.append(Fact("pci_device", address, {"is_gpu": True, "driver": "nvidia"}, {}, "pci"))

    def used(self, index: int, mib: int) -> None:
        gpu = [f for f in self.facts if f.kind == "gpu"][index]
        gpu.fields["memory_used_mib"] = mib

    def uses(self, pid: int, index: int, mib: int | None = 900, kind: str = "C") -> None:
        key = [f for f in self.facts if f.kind == "gpu"][index].key
        given = {"pid": pid, "gpu_index": index, "gpu_key": key, "memory_mib": mib, "type": kind}
        self.facts.append(Fact("gpu_process", f"{key}/{pid}", given, {}, "nvml"))
        if mib is not None:
            self.used(index, int(str(next(f for f in self.facts if f.key == key).fields["memory_used_mib"])) + mib)

    def host(self) -> LiveHost:
        pids = (
            self.again if self.again is not None else [f.fields["pid"] for f in self.facts if f.kind == "gpu_process"]
        )
        return LiveHost(str(self.root), lambda deep, sample: {"devices": [{"processes": [{"pid": p} for p in pids]}]})

    def seen(self, *looks: Callable[..., Seen], deep: bool = False) -> Seen:
        host = self.host()
        wanted = Wanted(deep=deep, facts=list(self.facts))
        out = Seen(facts=list(self.facts))
        try:
            for look in looks:
                got = look(host, wanted)
                wanted.facts += got.facts
                out.facts += got.facts
                out.gaps += got.gaps
                out.texts += got.texts
        finally:
            host.close()
        return out

    def findings(self, *looks: Callable[..., Seen], deep: bool = False) -> dict[str, str]:
        seen = self.seen(
            *(looks or (look_at_processes, look_at_containers, look_at_schedulers, look_at_stuck)), deep=deep
        )
        rows = [
            r
            for r in load_checks().checks
            if r.look in ("process.gpu", "process.stuck", "container.runtime", "scheduler.node")
        ]
        return {
            one.row.id: one.severity or "" for one in judge(rows, [Sample(0.0, seen.facts)]) if one.state == "holds"
        }


@pytest.fixture(autouse=True)
def _no_scontrol(monkeypatch: pytest.MonkeyPatch) -> None:
    """No scheduler of the machine that runs the tests is asked."""
    monkeypatch.setattr("gpuclinic.clinic.looks.schedulers._scontrol", lambda *given: None)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def facts_of(seen: Seen, kind: str) -> dict[str, dict[str, Any]]:
    return {f.key: dict(f.fields) for f in seen.facts if f.kind == kind}


# ---- who holds the GPUs


def test_an_idle_machine_and_a_busy_one_are_well(machine: Machine) -> None:
    machine.gpus(2)
    assert machine.findings() == {}
    for n in range(2):
        machine.process(
            100 + n,
            "/usr/bin/python3 train.py",
            cgroup="/system.slice/slurmstepd.scope/job_7/step_0",
            environ=f"LOCAL_RANK={n} CUDA_VISIBLE_DEVICES=0,1",
        )
        machine.uses(100 + n, n)
    assert machine.findings(deep=True) == {}


def test_holder_is_named_with_user_job_and_gpus(machine: Machine) -> None:
    machine.gpus(2)
    machine.put("etc/passwd", "root:x:0:0::/root:/bin/sh\nalice:x:1001:1001::/home/alice:/bin/sh\n")
    machine.process(100, "/usr/bin/python3 train.py", cgroup=f"/system.slice/docker-{HEX}.scope")
    machine.uses(100, 0, 900)
    machine.uses(100, 1, 1100)
    found = facts_of(machine.seen(look_at_processes), "gpu_holder")["100"]
    wanted = {
        "user": "alice",
        "gpus": "0,1",
        "memory_mib": 2000,
        "program": "train.py",
        "runtime": "docker",
        "container": HEX[:12],
        "listed": True,
    }
    assert {name: found[name] for name in wanted} == wanted


def test_a_dead_holder(machine: Machine) -> None:
    machine.gpus(1)
    machine.uses(4711, 0, 40000)
    assert machine.findings() == {"process.gpu.dead_holder": "warning"}


def test_a_process_that_just_ended_is_no_dead_holder(machine: Machine) -> None:
    machine.gpus(1)
    machine.uses(4711, 0, 900)
    machine.again = []
    assert machine.findings() == {}


def test_in_a_pid_namespace_nothing_is_called_dead_or_hidden(machine: Machine) -> None:
    machine.gpus(1)
    machine.process(2, "python3", ppid=1)
    machine.uses(4711, 0, 40000)
    seen = machine.seen(look_at_processes)
    assert machine.findings() == {}
    assert any("pid namespace" in gap.why for gap in seen.gaps)
    assert not facts_of(seen, "gpu_holder")


def test_a_hidden_holder(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.gpus(1)
    machine.process(4711, "/tmp/.x/worker")
    machine.uses(4711, 0, 890)

    class Filtered(LiveHost):
        """Listing /proc leaves the process out, as a preloaded library does it."""

        def files(self, pattern: str, most: int = 1 << 16) -> dict[str, Any]:
            return {
                path: a for path, a in super().files(pattern, most).items() if "4711" not in path or "[" not in pattern
            }

        def listing(self, path: str) -> Any:
            answer = super().listing(path)
            return (
                type(answer)(answer.question, answer.data.replace(b"4711\n", b"").replace(b"4711", b""))
                if path == "/proc"
                else answer
            )

    monkeypatch.setattr(
        machine, "host", lambda: Filtered(str(machine.root), lambda deep, sample: {"processes": [{"pid": 4711}]})
    )
    assert machine.findings() == {"process.gpu.hidden_holder": "critical"}


def test_zombie_stopped_and_leftover_holders(machine: Machine) -> None:
    machine.gpus(3)
    machine.process(100, "/usr/bin/python3 a.py", state="Z", ppid=50)
    machine.process(101, "/usr/bin/python3 b.py", state="T", ppid=50)
    machine.process(102, "/usr/bin/python3 -c from multiprocessing.spawn import spawn_main", ppid=1)
    for n in range(3):
        machine.uses(100 + n, n)
    assert machine.findings() == {
        "process.gpu.zombie_holder": "warning",
        "process.gpu.stopped_holder": "warning",
        "process.gpu.leftover_worker": "warning",
    }


def test_memory_that_nobody_holds_and_who_has_the_device_open(machine: Machine) -> None:
    machine.gpus(2)
    machine.used(1, 30000)
    machine.process(100, "/usr/bin/python3 notebook.py", ppid=50)
    machine.opens(100, "/dev/null", "/dev/nvidiactl", "/dev/nvidia1")
    seen = machine.seen(look_at_processes)
    assert machine.findings() == {"process.gpu.unaccounted_memory": "warning"}
    assert facts_of(seen, "gpu_use")["0000:11:00.0"]["opened_by"] == "notebook.py (pid 100)"
    assert facts_of(seen, "gpu_holder")["100"]["named_by_nvml"] is False


def test_threads_of_a_zombie_leader_are_searched(machine: Machine) -> None:
    machine.gpus(1)
    machine.used(0, 30000)
    machine.process(100, "python3", state="Z", threads=3)
    (machine.root / "proc/100/task/101/fd").mkdir(parents=True)
    (machine.root / "proc/100/task/101/fd/9").symlink_to("/dev/nvidia0")
    assert "100" in facts_of(machine.seen(look_at_processes), "gpu_holder")


def test_eight_ranks_on_the_first_gpu(machine: Machine) -> None:
    machine.gpus(8)
    for n in range(8):
        machine.process(100 + n, "/usr/bin/python3 train.py", ppid=99, environ=f"LOCAL_RANK={n}")
        machine.uses(100 + n, 0)
    machine.process(99, "/usr/bin/torchrun train.py", ppid=50)
    assert machine.findings() == {"process.gpu.all_on_one": "warning"}


def test_two_slurm_jobs_on_one_gpu_but_not_with_mps(machine: Machine) -> None:
    machine.gpus(1)
    for n in range(2):
        machine.process(
            100 + n, "/usr/bin/python3 train.py", cgroup=f"/system.slice/slurmstepd.scope/job_{n + 1}/step_0"
        )
        machine.uses(100 + n, 0)
    assert machine.findings() == {"process.gpu.shared": "warning"}
    machine.process(90, "nvidia-cuda-mps-control -d")
    machine.process(91, "nvidia-cuda-mps-server", ppid=90)
    machine.uses(91, 0, 30, "C")
    assert machine.findings() == {"scheduler.mps.running": "info"}


def test_an_mps_server_without_its_daemon(machine: Machine) -> None:
    machine.gpus(1)
    machine.process(91, "nvidia-cuda-mps-server")
    assert machine.findings() == {"scheduler.mps.server_without_control": "warning"}


def test_visible_devices_of_a_process_that_got_no_gpu(machine: Machine) -> None:
    machine.gpus(4)
    machine.process(100, "/usr/bin/python3 train.py", environ="CUDA_VISIBLE_DEVICES=4,5")
    machine.process(101, "/usr/bin/python3 other.py", environ="CUDA_VISIBLE_DEVICES=")
    machine.process(102, "/usr/bin/python3 third.py", environ="CUDA_VISIBLE_DEVICES=9", cgroup=f"/docker/{HEX}")
    assert machine.findings(deep=True) == {"process.visible_devices.absent": "warning"}


def test_environment_keeps_no_secrets(machine: Machine) -> None:
    machine.gpus(1)
    machine.process(100, "/usr/bin/python3 train.py", environ="HF_TOKEN=hf_secretsecretsecret LOCAL_RANK=0")
    machine.uses(100, 0)
    assert "hf_secret" not in repr(machine.seen(look_at_processes, deep=True).facts)


def test_without_gpus_no_process_is_searched(machine: Machine) -> None:
    machine.process(100, "/usr/bin/python3 train.py", environ="CUDA_VISIBLE_DEVICES=4,5")
    seen = machine.seen(look_at_processes, deep=True)
    assert not facts_of(seen, "holder_search")
    assert not facts_of(seen, "visible_devices")
    assert not seen.gaps


# ---- stuck in the kernel


def test_a_task_that_waits_in_the_driver_and_one_that_moves(machine: Machine) -> None:
    machine.gpus(1)
    machine.process(100, "/usr/bin/python3 train.py", state="D")
    machine.put("proc/100/wchan", "nvidia_unlocked_ioctl")
    assert machine.findings() == {"process.stuck.gpu_driver": "warning"}
    # interrupts and stolen time make the scheduling clock lag: the uptime of 100,000 s says nothing, another task of that processor does
    machine.put("proc/100/sched", "python3 (100, #threads: 1)\nse.exec_start : 90000000.0\n")
    machine.put("proc/1/sched", "systemd (1, #threads: 1)\nse.exec_start : 90000900.0\n")
    assert machine.findings() == {"process.stuck.gpu_driver": "warning"}
    machine.put("proc/1/sched", "systemd (1, #threads: 1)\nse.exec_start : 90400000.0\n")
    assert machine.findings() == {"process.stuck.gpu_driver": "critical"}

    host = machine.host()
    wanted = Wanted(facts=list(machine.facts))
    wanted.facts += look_at_processes(host, wanted).facts
    machine.process(100, "/usr/bin/python3 train.py", state="D", switches=6)
    assert not facts_of(look_at_stuck(host, wanted), "stuck_task"), "it has run in between"
    host.close()


def test_a_snapshot_with_one_sample_confirms_nothing(machine: Machine) -> None:
    machine.process(100, "/usr/bin/python3 train.py", state="D")
    host = Snapshot(machine.root)
    wanted = Wanted()
    wanted.facts += look_at_processes(host, wanted).facts
    found = facts_of(look_at_stuck(host, wanted), "stuck_task")
    assert found["100"]["confirmed"] is False


def test_this_machine(tmp_path: Path) -> None:
    """Real processes: one stopped, one in uninterruptible sleep (a parent of vfork), are seen as such and are no faults."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    host = LiveHost()
    try:
        os.kill(child.pid, 19)
        time.sleep(0.2)
        tasks = read_tasks(host)
        assert tasks[child.pid].state == "T"
        assert tasks[os.getpid()].comm
        wanted = Wanted(deep=True)
        seen = look_at_processes(host, wanted)
        assert facts_of(seen, "process_count")["host"]["stopped"] >= 1
        rows = [r for r in load_checks().checks if r.look in ("process.gpu", "process.stuck")]
        held = [
            one.row.id
            for one in judge(rows, [Sample(0.0, seen.facts)])
            if one.state == "holds" and one.severity != "info"
        ]
        assert held == []
    finally:
        child.kill()
        child.wait()
        host.close()


def test_vfork_parent_is_in_uninterruptible_sleep_and_waits_for_its_child() -> None:
    """A parent of vfork sleeps in state D for real: the second look confirms it and says why, and no row calls it a fault."""
    program = (
        "import ctypes,os,time\nlibc=ctypes.CDLL(None)\npid=libc.vfork()\nif pid==0:\n time.sleep(30)\n os._exit(0)\n"
    )
    if not hasattr(ctypes.CDLL(None), "vfork"):
        pytest.skip("the C library has no vfork")
    parent = subprocess.Popen([sys.executable, "-c", program], start_new_session=True)
    host = LiveHost()
    try:
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline and read_tasks(host)[parent.pid].state != "D":
            time.sleep(0.05)
        if read_tasks(host)[parent.pid].state != "D":
            pytest.skip("vfork does not sleep uninterruptibly here")
        wanted = Wanted()
        wanted.facts += look_at_processes(host, wanted).facts
        seen = look_at_stuck(host, wanted)
        found = facts_of(seen, "stuck_task")[str(parent.pid)]
        assert found["confirmed"] is True
        assert found["stuck_s"] >= 1
        rows = [r for r in load_checks().checks if r.look == "process.stuck"]
        assert [
            o.row.id for o in judge(rows, [Sample(0.0, seen.facts)]) if o.state == "holds" and o.severity != "info"
        ] == []
    finally:
        os.killpg(parent.pid, 9)
        parent.wait()
        host.close()


# ---- containers

SPEC = """cdiVersion: 0.5.0
kind: nvidia.com/gpu
devices:
- name: "0"
  containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
- name: "1"
  containerEdits:
    deviceNodes:
    - path: /dev/nvidia1
containerEdits:
  deviceNodes:
  - path: /dev/nvidiactl
  mounts:
  - containerPath: /usr/lib/x86_64-linux-gnu/libcuda.so.VERSION
    hostPath: /usr/lib/x86_64-linux-gnu/libcuda.so.VERSION
"""


def docker(machine: Machine, *, version: str = "550.54.15", gpus: int = 2) -> None:
    machine.gpus(gpus)
    machine.put("sys/module/nvidia/version", "550.54.15\n")
    machine.put("sys/fs/cgroup/cgroup.controllers", "cpu memory\n")
    machine.put(
        "lib/udev/rules.d/71-nvidia-dev-char.rules",
        'ACTION=="add", RUN+="/usr/bin/nvidia-ctk system create-dev-char-symlinks --create-all"\n',
    )
    machine.put("etc/docker/daemon.json", '{"runtimes": {"nvidia": {"path": "nvidia-container-runtime", "args": []}}}')
    machine.put(
        "etc/nvidia-container-runtime/config.toml", '#no-cgroups = true\n[nvidia-container-runtime]\nmode = "auto"\n'
    )
    machine.put("usr/bin/nvidia-container-runtime", "")
    machine.put("etc/cdi/nvidia.yaml", SPEC.replace("VERSION", version))
    for name in ("nvidiactl", "nvidia0", "nvidia1"):
        machine.put(f"dev/{name}", "")


def test_a_sound_docker_set_up_and_none_at_all(machine: Machine) -> None:
    docker(machine)
    assert machine.findings() == {}


def test_without_gpus_docker_is_not_looked_at(machine: Machine) -> None:
    docker(machine, gpus=0)
    assert machine.findings() == {}
    assert not facts_of(machine.seen(look_at_containers), "container_runtime")


@pytest.mark.parametrize(
    ("path", "text", "wanted"),
    [
        ("etc/cdi/nvidia.yaml", SPEC.replace("VERSION", "535.129.03"), {"container.cdi.stale": "warning"}),
        ("etc/cdi/nvidia.yaml", SPEC.replace("VERSION", "550.54.15").replace("nvidia1", "nvidia7"), {"container.cdi.devices": "warning"}),
        ("etc/cdi/nvidia.yaml", json.dumps({"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": [{"name": "0", "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia0"}]}}]}), {"container.cdi.devices": "info"}),
        ("etc/cdi/other.yaml", "cdiVersion: 0.5.0\nkind: intel.com/gpu\n", {}),
        ("etc/docker/daemon.json", '{"runtimes": {', {"container.runtime.broken_config": "warning"}),
        ("etc/docker/daemon.json", "{}", {}),
        ("lib/udev/rules.d/71-nvidia-dev-char.rules", "", {"container.reload_loses_gpus": "info"}),
        ("etc/nvidia-container-runtime/config.toml", "[nvidia-container-cli]\nno-cgroups = true\n", {"container.toolkit.no_cgroups": "info"}),
    ],
)  # fmt: skip
def test_container_set_ups(machine: Machine, path: str, text: str, wanted: dict[str, str]) -> None:
    docker(machine)
    machine.put(path, text)
    assert machine.findings() == wanted


def container(machine: Machine, host_config: dict[str, Any], **config: Any) -> None:
    machine.put(f"var/lib/docker/containers/{HEX}/hostconfig.json", json.dumps(host_config))
    given = {
        "ID": HEX,
        "Name": "/train",
        "State": {"Running": True, "Pid": 100},
        "Config": {"Env": ["SECRET=x"]},
        **config,
    }
    machine.put(f"var/lib/docker/containers/{HEX}/config.v2.json", json.dumps(given))


def request(*ids: str) -> dict[str, Any]:
    return {
        "DeviceRequests": [
            {"Driver": "", "Count": 0 if ids else -1, "DeviceIDs": list(ids) or None, "Capabilities": [["gpu"]]}
        ]
    }


def test_containers_and_their_gpus(machine: Machine) -> None:
    docker(machine)
    container(machine, request())
    assert machine.findings() == {}
    container(machine, request("1", "5"))
    assert machine.findings() == {"container.gpus.gone": "warning"}
    container(machine, request(UUID.format(1)))
    assert machine.findings() == {}
    container(machine, request("GPU-77777777-1111-2222-3333-444444444444"))
    assert machine.findings() == {"container.gpus.gone": "warning"}
    container(machine, request("5"), State={"Running": False})
    assert machine.findings() == {}


def test_a_container_that_lost_its_gpus(machine: Machine) -> None:
    docker(machine)
    container(machine, request())
    rules = f"sys/fs/cgroup/devices/docker/{HEX}/devices.list"
    machine.put(rules, "c *:* m\nc 1:3 rwm\nc 195:0 rw\nc 195:255 rw\n")
    assert machine.findings() == {}
    machine.put(rules, "c *:* m\nc 1:3 rwm\n")
    assert machine.findings() == {"container.gpus.lost": "warning"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        "{" * 3000,
        '{"ID": 5}',
        '{"DeviceRequests": 7}',
        '{"DeviceRequests": [7, {"DeviceIDs": 7, "Capabilities": 9}]}',
        "\xff\x00",
    ],
)
def test_hostile_files_of_container_software(machine: Machine, text: str) -> None:
    docker(machine)
    for path in (f"var/lib/docker/containers/{HEX}/hostconfig.json", f"var/lib/docker/containers/{HEX}/config.v2.json", "etc/docker/daemon.json", "etc/cdi/nvidia.yaml",
                 "var/lib/kubelet/device-plugins/kubelet_internal_checkpoint", "etc/slurm/slurm.conf", "etc/slurm/gres.conf", "etc/nvidia-container-runtime/config.toml"):  # fmt: skip
        machine.put(path, text)
    machine.findings()


# ---- schedulers


def slurm(
    machine: Machine, *, gpus: int = 2, gres: str = "gpu:a100:2", slurmd: bool = True, files: str = "/dev/nvidia[0-1]"
) -> None:
    machine.gpus(gpus)
    machine.facts.append(Fact("gpu_count", "pci", {"value": gpus, "tool": "pci"}, {}, "pci"))
    machine.put("proc/sys/kernel/hostname", "gpu07.example\n")
    machine.put(
        "etc/slurm/slurm.conf",
        f"NodeName=DEFAULT State=UNKNOWN\nNodeName=gpu[01-16] \\\n  CPUs=8 Gres={gres}  # all alike\nPartitionName=all Nodes=ALL\n",
    )
    machine.put("etc/slurm/gres.conf", f"NodeName=gpu[01-16] Name=gpu Type=a100 File={files}\n")
    machine.put("etc/slurm/cgroup.conf", "ConstrainDevices=yes\n")
    for index in range(gpus):
        machine.put(f"dev/nvidia{index}", "")
    if slurmd:
        machine.process(90, "/usr/sbin/slurmd -D", cgroup="/system.slice/slurmd.service")


def test_a_sound_slurm_node(machine: Machine) -> None:
    slurm(machine)
    assert machine.findings() == {}


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"gres": "gpu:a100:8"}, {"scheduler.slurm.gpus": "warning"}),
        ({"gpus": 4}, {"scheduler.slurm.gpus": "info"}),
        ({"gpus": 0}, {"scheduler.slurm.gpus": "critical"}),
        ({"slurmd": False}, {"scheduler.slurm.slurmd_down": "warning"}),
        ({"files": "/dev/nvidia[0-7]"}, {"scheduler.slurm.gres_files": "warning"}),
        ({"gres": "shard:16"}, {}),
    ],
)
def test_slurm_nodes(machine: Machine, options: dict[str, Any], wanted: dict[str, str]) -> None:
    slurm(machine, **options)
    assert machine.findings() == wanted


def test_a_login_node_says_nothing(machine: Machine) -> None:
    slurm(machine, slurmd=False)
    machine.put("proc/sys/kernel/hostname", "login1\n")
    assert machine.findings() == {}
    assert not facts_of(machine.seen(look_at_schedulers), "slurm_node")


def test_a_drained_node_by_scontrol(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    from gpuclinic.model import Document
    from gpuclinic.recognise.parsers.slurm import parse_scontrol

    slurm(machine)
    text = "NodeName=gpu07 Arch=x86_64 CPUTot=8 Gres=gpu:a100:2 State=IDLE+DRAIN ThreadsPerCore=1 Reason=Xid 79 [root@2026-03-02T04:11:09]\n"
    machine.facts += parse_scontrol(Document("scontrol", text))
    assert machine.findings() == {"scheduler.slurm.drained": "warning"}


def kubelet(machine: Machine, registered: list[str], *, gpus: int = 2, resource: str = "nvidia.com/gpu") -> None:
    machine.gpus(gpus)
    machine.process(90, "/usr/bin/kubelet", cgroup="/system.slice/kubelet.service")
    body = {
        "Data": {"PodDeviceEntries": None, "RegisteredDevices": {resource: registered, "rdma/hca": ["x"]}},
        "Checksum": 1,
    }
    machine.put("var/lib/kubelet/device-plugins/kubelet_internal_checkpoint", json.dumps(body))
    machine.put("var/lib/kubelet/device-plugins/kubelet.sock", "")
    machine.put("var/lib/kubelet/device-plugins/nvidia-gpu.sock", "")


@pytest.mark.parametrize(
    ("registered", "wanted"),
    [
        ([UUID.format(0), UUID.format(1)], {}),
        ([f"{UUID.format(n)}::{k}" for n in range(2) for k in range(4)], {}),
        ([UUID.format(0)], {"scheduler.kubernetes.devices": "warning"}),
        ([UUID.format(0), UUID.format(1), UUID.format(7)], {"scheduler.kubernetes.devices": "warning"}),
        ([], {"scheduler.kubernetes.no_gpu": "warning"}),
    ],
)
def test_kubelets(machine: Machine, registered: list[str], wanted: dict[str, str]) -> None:
    kubelet(machine, registered)
    assert machine.findings() == wanted


def test_persistence_daemon_that_ended(machine: Machine) -> None:
    machine.gpus(1, persistence=False)
    wants = machine.root / "etc/systemd/system/multi-user.target.wants"
    wants.mkdir(parents=True)
    (wants / "nvidia-persistenced.service").symlink_to("/lib/systemd/system/nvidia-persistenced.service")
    assert machine.findings() == {"scheduler.persistence_daemon": "info"}
    machine.process(90, "/usr/bin/nvidia-persistenced --user nvidia-persistenced")
    assert machine.findings() == {}
