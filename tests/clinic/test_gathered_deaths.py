"""Deaths on a running machine, from recorded answers: each recorder's own words lead to the right cause and process, and to nobody else's."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from clinic.asked_fake import NOW, UP, FakeAsked, kmsg
from gpuclinic.clinic import Answer, examine
from gpuclinic.clinic.gathering import Question, gather, parse_job, parse_moment
from gpuclinic.model import UserError
from gpuclinic.observe import Places
from gpuclinic.observe.asking import Answer as GivenAnswer
from gpuclinic.observe.snapshot import Snapshot

if TYPE_CHECKING:
    from pathlib import Path

PID = 41822
MINUTES_AGO = "2026-03-02T03:58:00"


def ask(host: FakeAsked, lang: str = "en", **question: object) -> Answer:
    return examine(Places([]), lang, None, gather(host, Question(**question)))  # type: ignore[arg-type]


OOM = (
    "python3 invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
    "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0-1,global_oom,task_memcg=/user.slice/user-1007.slice/session-41.scope,task=python3,pid={pid},uid=1007",
    "Out of memory: Killed process {pid} (python3) total-vm:81233412kB, anon-rss:41021884kB, file-rss:71234kB, shmem-rss:16kB, UID:1007 pgtables:82043kB oom_score_adj:0",
)
MEMCG = (
    "python3 invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
    "memory: usage 33554432kB, limit 33554432kB, failcnt 4812",
    "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0-1,oom_memcg=/slurm/uid_1007/job_771204,task_memcg=/slurm/uid_1007/job_771204/step_0,task=python3,pid={pid},uid=1007",
    "Memory cgroup out of memory: Killed process {pid} (python3) total-vm:201220144kB, anon-rss:188120204kB, file-rss:210044kB, shmem-rss:9120kB, UID:1007 pgtables:381200kB oom_score_adj:0",
)
SEGFAULT = (
    "python3[{pid}]: segfault at 0 ip 00007f1c2f0a1b2c sp 00007ffc1b2c3d40 error 4 in libnccl.so.2.19.3[7f1c2e000000+8000000]",
)
XID_31 = (
    "NVRM: Xid (PCI:0000:9a:00): 31, pid={pid}, name=python3, Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_0 faulted @ 0x7f2b_00000000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ",
)
XID_79 = ("NVRM: Xid (PCI:0000:9a:00): 79, pid={pid}, name=python3, GPU has fallen off the bus.",)
DEATHS = {
    "kernel OOM": (OOM, "host.oom_killer"),
    "cgroup OOM": (MEMCG, "host.cgroup_oom"),
    "segfault": (SEGFAULT, "process.segfault"),
    "Xid of that process": (XID_31, "app.illegal_access"),
    "fallen off the bus": (XID_79, "hw.gpu.fallen_off_bus"),
}


def lines_about(pid: int, lines: tuple[str, ...]) -> list[str]:
    return [line.format(pid=pid) for line in lines]


@pytest.mark.parametrize("name", DEATHS)
def test_what_the_kernel_says_of_the_process(name: str) -> None:
    lines, cause = DEATHS[name]
    answer = ask(FakeAsked({"/dev/kmsg": kmsg(*lines_about(PID, lines))}), pid=PID)
    root = answer.causes[0]
    assert (answer.outcome, root.id, root.pid) == ("cause", cause, PID)
    assert root.time is not None
    assert root.time.startswith(MINUTES_AGO)
    assert root.time.endswith("+00:00")


@pytest.mark.parametrize("name", ["kernel OOM", "cgroup OOM", "segfault", "Xid of that process"])
def test_what_befell_another_process_is_not_its_cause(name: str) -> None:
    lines, _ = DEATHS[name]
    answer = ask(FakeAsked({"/dev/kmsg": kmsg(*lines_about(PID + 7, lines))}), pid=PID)
    assert answer.outcome == "hint"
    assert [c.id for c in answer.causes] == ["process.killed"]
    assert "not recorded" in answer.causes[0].title


@pytest.mark.parametrize("name", ["kernel OOM", "cgroup OOM", "segfault"])
def test_the_right_one_of_two_deaths(name: str) -> None:
    lines, cause = DEATHS[name]
    text = kmsg(*lines_about(PID + 7, OOM), *lines_about(PID, lines), *lines_about(PID + 9, SEGFAULT))
    answer = ask(FakeAsked({"/dev/kmsg": text}), pid=PID)
    assert (answer.causes[0].id, answer.causes[0].pid) == (cause, PID)
    assert not [c for c in answer.causes if c.role == "alternative"]


def test_an_earlier_owner_of_the_pid_is_not_the_one() -> None:
    text = kmsg(*lines_about(PID, OOM), before=400_000) + kmsg(*lines_about(PID, SEGFAULT))
    answer = ask(FakeAsked({"/dev/kmsg": text}), pid=PID)
    assert [c.id for c in answer.causes if c.role != "consequence"] == ["process.segfault"]


def test_events_outside_the_span_are_not_it() -> None:
    host = FakeAsked({"/dev/kmsg": kmsg(*lines_about(PID, OOM), before=7200)})
    assert ask(host, since=NOW - 3600).outcome == "nothing_wrong"
    assert ask(host, since=NOW - 10800).causes[0].id == "host.oom_killer"
    assert ask(host, since=NOW - 10800, until=NOW - 9000).outcome == "nothing_wrong"


def test_the_latest_death_of_this_user() -> None:
    others = [line.replace("UID:1007", "UID:2000").replace("uid=1007", "uid=2000") for line in lines_about(7, OOM)]
    text = kmsg(*lines_about(PID, MEMCG), before=9000) + kmsg(*others)
    answer = ask(FakeAsked({"/dev/kmsg": text}), uid=1007)
    assert (answer.causes[0].id, answer.causes[0].pid) == ("host.cgroup_oom", PID)
    answer = ask(FakeAsked({"/dev/kmsg": text}))
    assert (answer.causes[0].id, answer.causes[0].pid) == ("host.oom_killer", 7)


def journal(*lines: str) -> dict[str, str]:
    return {
        "journalctl -o short-iso-precise": "\n".join(f"{MINUTES_AGO}.123456+00:00 node17 {line}" for line in lines)
        + "\n"
    }


def test_earlyoom() -> None:
    line = f'earlyoom[812]: sending SIGTERM to process {PID} uid 1000 "python3": oom_score 1301, oom_score_adj 0, VmRSS 401221 MiB, cmdline "python3 train.py"'
    answer = ask(FakeAsked(commands=journal(line)), pid=PID)
    assert (answer.causes[0].id, answer.causes[0].pid) == ("host.memory_pressure", PID)
    assert ask(FakeAsked(commands=journal(line)), pid=PID + 1).causes[0].id == "process.killed"


OOMD = "systemd-oomd[690]: Killed /user.slice/user-1000.slice/train.scope due to memory pressure for /user.slice being 71.22% > 50.00% for > 20s with reclaim activity"


def test_systemd_oomd() -> None:
    host = FakeAsked(
        commands=journal(OOMD, "systemd[1]: train.scope: systemd-oomd killed 41 process(es) in this unit.")
    )
    assert ask(host, job=parse_job("train.scope")).causes[0].id == "host.memory_pressure"
    assert ask(host).causes[0].id == "host.memory_pressure"
    assert "host.memory_pressure" not in [c.id for c in ask(host, job=parse_job("other.scope")).causes]


SACCT = """\
JobID|JobName|User|Partition|State|ExitCode|Reason|Elapsed|Timelimit|MaxRSS|ReqMem|Start|End|NodeList|
771204|train|marta|gpu|{state}|{code}|None|1-00:00:12|1-00:00:00||64G|2026-03-01T03:57:48|2026-03-02T03:58:00|node17|
771204.batch|batch|||{state2}|{code}||1-00:00:13||61234567K||2026-03-01T03:57:48|2026-03-02T03:58:01|node17|
"""


@pytest.mark.parametrize(
    ("state", "batch", "code", "cause"),
    [
        ("TIMEOUT", "CANCELLED", "0:15", "sched.slurm_limit"),
        ("OUT_OF_MEMORY", "OUT_OF_MEMORY", "0:125", "host.cgroup_oom"),
    ],
)
def test_slurm(state: str, batch: str, code: str, cause: str) -> None:
    host = FakeAsked(commands={"sacct -j 771204": SACCT.format(state=state, state2=batch, code=code)})
    answer = ask(host, job=parse_job("771204"))
    assert answer.causes[0].id == cause
    assert answer.outcome == "cause"


def inspected(**state: object) -> str:
    about = {
        "Status": "exited", "Running": False, "Paused": False, "OOMKilled": False, "Dead": False, "Pid": 0, "ExitCode": 0, "Error": "",
        "StartedAt": "2026-03-01T02:00:00.1Z", "FinishedAt": "2026-03-02T03:58:00.5Z", **state,
    }  # fmt: skip
    limits = {"Memory": 34359738368, "ShmSize": 67108864, "IpcMode": "private", "NetworkMode": "bridge"}
    return json.dumps([{"Id": "3f1cf3c0" * 8, "Name": "/train1", "State": about, "HostConfig": limits}], indent=4)


def test_docker() -> None:
    killed = FakeAsked(commands={"docker inspect --type=container train1": inspected(OOMKilled=True, ExitCode=137)})
    answer = ask(killed, job=parse_job("train1"))
    assert (answer.outcome, answer.causes[0].id) == ("cause", "host.cgroup_oom")
    outside = FakeAsked(commands={"docker inspect --type=container train1": inspected(ExitCode=137)})
    answer = ask(outside, job=parse_job("container train1"))
    assert answer.causes[0].id == "process.killed"


POD = """\
Name:             train-0
Namespace:        ml
Node:             node17/10.0.0.17
Start Time:       Mon, 02 Mar 2026 02:00:00 +0000
Status:           Failed
Reason:           Evicted
Message:          The node was low on resource: memory. Threshold quantity: 100Mi, available: 42Mi. Container train was using 61Gi, request is 0, has larger consumption of memory.
Containers:
  train:
    Image:          registry.local/train:1
    State:          Terminated
      Reason:       Error
      Exit Code:    137
Events:
  Type     Reason               Age   From     Message
  ----     ------               ----  ----     -------
  Warning  Evicted              2m    kubelet  The node was low on resource: memory. Threshold quantity: 100Mi, available: 42Mi.
  Normal   Killing              2m    kubelet  Stopping container train
"""


def test_kubernetes_eviction() -> None:
    answer = ask(FakeAsked(commands={"kubectl describe pod train-0 -n ml": POD}), job=parse_job("pod ml/train-0"))
    assert (answer.outcome, answer.causes[0].id) == ("cause", "sched.k8s_evicted")


COREDUMP = f"""\
           PID: {PID} (python3)
           UID: 1000 (marta)
           GID: 1000 (marta)
        Signal: 11 (SEGV)
     Timestamp: Mon 2026-03-02 03:58:00 UTC (2min ago)
  Command Line: python3 train.py
    Executable: /usr/bin/python3.10
 Control Group: /user.slice/user-1000.slice/session-3.scope
          Unit: session-3.scope
       Storage: /var/lib/systemd/coredump/core.python3.1000.zst (present)
       Message: Process {PID} (python3) of user 1000 dumped core.

                Stack trace of thread {PID}:
                #0  0x00007f1c2f0a1b2c n/a (libnccl.so.2.19.3 + 0xa1b2c)
"""


def test_core_dump() -> None:
    answer = ask(FakeAsked(commands={f"coredumpctl info --no-pager {PID}": COREDUMP}), pid=PID)
    root = answer.causes[0]
    assert (answer.outcome, root.id, root.pid) == ("cause", "process.segfault", PID)
    assert root.time is not None
    assert root.time.startswith(MINUTES_AGO)


def audit(pid: int, number: int) -> str:
    stamp = f"msg=audit({NOW - 120:.3f}:{number})"
    return (
        f"type=SYSCALL {stamp}: arch=c000003e syscall=62 success=yes exit=0 a0={pid:x} a1=9 a2=0 a3=1 items=0 ppid=1 pid=77 auid=1000 uid=0 "
        f'comm="kill" exe="/usr/bin/kill" key="kills"\n'
        f'type=OBJ_PID {stamp}: opid={pid} oauid=1001 ouid=1001 oses=3 ocomm="python3"\n'
        f"type=PROCTITLE {stamp}: proctitle=6B696C6C\n"
    )


def test_the_audit_log_names_the_sender() -> None:
    host = FakeAsked({"/var/log/audit/audit.log": audit(5555, 76) + audit(PID, 77)})
    answer = ask(host, pid=PID)
    root = answer.causes[0]
    assert (answer.outcome, root.id, root.pid) == ("cause", "process.killed", PID)
    assert "audit log" in root.title
    assert any('comm="kill"' in place.text for place in root.evidence)
    assert root.time is not None
    assert root.time.startswith(MINUTES_AGO)
    assert all("5555" not in place.text and ":76)" not in place.text for place in root.evidence)


UNIT = """\
Id=train.service
LoadState=loaded
ActiveState=failed
SubState=failed
Result={result}
ExecMainCode={code}
ExecMainStatus={status}
ExecMainPID=41822
MainPID=0
NRestarts=0
MemoryPeak=536870912
MemoryMax={most}
ControlGroup=
ExecMainStartTimestamp=Mon 2026-03-02 03:00:00 UTC
ExecMainExitTimestamp=Mon 2026-03-02 03:58:00 UTC
"""


@pytest.mark.parametrize(
    ("result", "code", "status", "most", "cause"),
    [
        ("oom-kill", 2, 9, "536870912", "host.cgroup_oom"),
        ("oom-kill", 2, 9, "infinity", "host.oom_killer"),
        ("signal", 2, 9, "infinity", "process.killed"),
        ("core-dump", 3, 11, "infinity", "process.segfault"),
        ("watchdog", 2, 6, "infinity", "app.hang"),
        ("timeout", 2, 9, "infinity", "process.killed"),
    ],
)
def test_systemd_units(result: str, code: int, status: int, most: str, cause: str) -> None:
    text = UNIT.format(result=result, code=code, status=status, most=most)
    answer = ask(FakeAsked(commands={"systemctl show train.service": text}), job=parse_job("train.service"))
    root = answer.causes[0]
    assert (root.id, root.pid) == (cause, PID)
    assert root.time is not None
    assert root.time.startswith(MINUTES_AGO)
    by_pid = ask(FakeAsked(commands={"systemctl show *": text}), pid=PID)
    assert (by_pid.causes[0].id, by_pid.causes[0].pid) == (cause, PID)


def test_a_pid_that_was_never_given_out() -> None:
    host = FakeAsked({"/proc/stat": "processes 99000\n"})
    answer = ask(host, pid=120_000)
    assert answer.outcome == "not_enough_evidence"
    assert not answer.causes
    assert "the newest is 99000" in answer.notes[0]
    assert "99000" in ask(host, "zh", pid=120_000).notes[0]


def test_refusals_are_told_with_what_would_help() -> None:
    host = FakeAsked(
        {"/dev/kmsg": 1, "/var/log/audit/audit.log": 13},
        {"dmesg": "!dmesg: read kernel buffer failed: Operation not permitted"},
    )
    answer = ask(host, pid=PID)
    assert answer.outcome == "not_enough_evidence"
    assert {gap.path for gap in answer.not_read} >= {"kernel log", "/var/log/audit/audit.log"}
    assert {"the kernel log", "how it ends the next time: start it under a recorder"} <= {
        m["what"] for m in answer.missing
    }


STAT = "{pid} (python3) {state} 1 1 1 0 -1 4194304 9 0 0 0 {ticks} 0 0 0 20 0 1 0 86300000 16961536 2443 1 1 1 1 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n"


def living(state: str = "S", **more: object) -> dict[str, object]:
    folder = f"/proc/{PID}"
    files = {
        f"{folder}/stat": STAT.format(pid=PID, state=state, ticks=5),
        f"{folder}/status": f"Name:\tpython3\nState:\t{state} (x)\nTgid:\t{PID}\nPid:\t{PID}\nTracerPid:\t0\nUid:\t1000\t1000\t1000\t1000\n",
        f"{folder}/cmdline": b"python3\0train.py\0",
        f"{folder}/cgroup": "0::/user.slice/train.scope\n",
    }
    return {**files, **{f"{folder}/{name}": text for name, text in more.items()}}


@pytest.mark.parametrize(
    ("state", "wchan", "cause"),
    [
        ("D", "rpc_wait_bit_killable", "storage.network_fs"),
        ("D", "ptlrpc_set_wait", "storage.network_fs"),
        ("D", "uvm_va_block_wait", "driver.bug"),
        ("T", "do_signal_stop", "app.hang"),
        ("S", "wait_for_partner", "app.hang"),
    ],
)
def test_hung(state: str, wchan: str, cause: str) -> None:
    answer = ask(FakeAsked(living(state, wchan=wchan)), pid=PID)
    root = answer.causes[0]
    assert (root.id, root.pid) == (cause, PID)
    assert any(f"/proc/{PID}" in place.source for place in root.evidence)


def test_kernel_stack_where_wchan_is_hidden() -> None:
    stack = "[<0>] rpc_wait_bit_killable+0x1e/0xa0\n[<0>] __rpc_execute+0xf3/0x3a0\n[<0>] nfs4_call_sync_sequence+0x6d/0xb0\n"
    answer = ask(FakeAsked(living("D", wchan="0", stack=stack)), pid=PID)
    assert (answer.causes[0].id, answer.causes[0].pid) == ("storage.network_fs", PID)


def test_a_death_of_another_does_not_trouble_a_living_process() -> None:
    files = living("S", wchan="do_epoll_wait")
    answer = ask(FakeAsked({**files, "/dev/kmsg": kmsg(*lines_about(7, OOM))}), pid=PID)
    assert not answer.causes


def test_words_for_jobs_and_times() -> None:
    assert parse_job("ml/train-0").kind == "pod"
    assert parse_job("3f1cf3c06864").kind == "container"
    assert parse_job("12_4").slurm_id == "12_4"
    for text in ("", "-rf", "a b", "x;y", "$(id)", "../etc", "--all"):
        with pytest.raises(UserError):
            parse_job(text)
    for text in ("", "soon", "25:00", "2026-13-01", "-1"):
        with pytest.raises(UserError):
            parse_moment(text, NOW)


def nvml(power_w: float, busy: int) -> GivenAnswer:
    """One H100 that the process holds, and its record of another that ended."""
    device = {
        "index": 0, "name": "NVIDIA H100 80GB HBM3", "bus_id": "0000:9a:00.0", "uuid": "GPU-1",
        "values": {"utilization_pct": busy, "power_w": power_w, "power_limit_w": 700.0}, "errors": {}, "hung": None,
        "processes": [{"pid": PID, "type": "C", "memory_mib": 61000}],
        "accounting": [{"pid": PID + 1, "running": False, "memory_peak_mib": 70123, "time_ms": 5000}],
    }  # fmt: skip
    document = {
        "gpuclinic_nvml": 1, "library": "libnvidia-ml.so.1", "init": {"code": 0}, "system": {"driver_version": "550.90.07"}, "count": 1,
        "devices": [device], "calls": {}, "stuck": [],
    }  # fmt: skip
    return GivenAnswer("nvml", json.dumps(document).encode())


class Working(FakeAsked):
    """A machine on which the process uses the CPU between two looks."""

    def wait(self, seconds: float) -> None:
        self._files[f"/proc/{PID}/stat"] = STAT.format(pid=PID, state="R", ticks=5 + round(100 * seconds))
        self.now += seconds


@pytest.mark.parametrize(
    ("power_w", "outcome", "cause"), [(118.0, "cause", "net.collective_timeout"), (640.0, "nothing_wrong", None)]
)
def test_progress_of_the_gpu_against_its_power(power_w: float, outcome: str, cause: str | None) -> None:
    host = Working(living("R"))
    host.nvml_answer = nvml(power_w, 100)
    answer = ask(host, pid=PID)
    assert (answer.outcome, answer.causes[0].id if answer.causes else None) == (outcome, cause)
    assert "GPU 100 % busy" in answer.notes[0]


def test_the_drivers_record_of_a_dead_process() -> None:
    host = FakeAsked()
    host.nvml_answer = nvml(90.0, 0)
    answer = ask(host, pid=PID + 1)
    assert any("70123 MiB" in note for note in answer.notes)
    assert any("nvidia-smi -am 1" in item["command"] for item in ask(host, pid=PID + 2).missing)


def test_a_snapshot_answers_the_same_question(tmp_path: Path) -> None:
    (tmp_path / "root/proc").mkdir(parents=True)
    (tmp_path / "root/proc/uptime").write_text(f"{UP} 1.0\n")
    (tmp_path / "root/proc/loadavg").write_text("0.1 0.1 0.1 1/900 99000\n")
    (tmp_path / "commands").mkdir()
    wall = "".join(
        f"2026-03-02T03:58:00,000000+00:00 {line}\n" for line in lines_about(PID, OOM) + lines_about(PID + 1, SEGFAULT)
    )
    (tmp_path / "commands/dmesg-time-format-iso.txt").write_text(wall)
    (tmp_path / "snapshot.json").write_text(json.dumps({"time": "2026-03-02T04:00:00Z"}))
    for pid, cause in ((PID, "host.oom_killer"), (PID + 1, "process.segfault"), (PID + 2, "process.killed")):
        gathered = gather(Snapshot(tmp_path), Question(pid=pid))
        gathered.snapshot = True
        answer = examine(Places([str(tmp_path)]), "en", None, gathered)
        assert [(c.id, c.pid) for c in answer.causes][:1] == [(cause, pid)], [r.kind for r in answer.read]


def test_stacks_are_read_without_stopping_the_process() -> None:
    host = FakeAsked(living("S", wchan="wait_for_partner"))
    ask(host, pid=PID)
    asked = [line for line in host.asked if line.startswith("py-spy")]
    assert asked
    assert all("--nonblocking" in line for line in asked)
