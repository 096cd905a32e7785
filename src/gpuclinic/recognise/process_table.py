"""The files of /proc/PID: stat, status, cmdline, environ, and what the whole table tells. Pure; the looks read the files."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from gpuclinic.model import digits
from gpuclinic.recognise.secrets import masked_cmdline

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

TICKS_PER_SECOND = 100
"""USER_HZ, the unit of times in /proc/PID/stat on every Linux architecture that GPUs run on (proc_pid_stat(5))."""
_KERNEL_THREAD = 0x00200000
"""PF_KTHREAD of include/linux/sched.h."""
_WANTED = re.compile(
    r"^(?:CUDA_VISIBLE_DEVICES|CUDA_DEVICE_ORDER|CUDA_MPS_\w+|NVIDIA_VISIBLE_DEVICES|GPU_DEVICE_ORDINAL|ROCR_VISIBLE_DEVICES|"
    r"PYTORCH_CUDA_ALLOC_CONF|PYTORCH_ALLOC_CONF|PYTORCH_NO_CUDA_MEMORY_CACHING|TF_FORCE_GPU_ALLOW_GROWTH|TF_GPU_ALLOCATOR|"
    r"XLA_PYTHON_CLIENT_\w+|XLA_CLIENT_MEM_FRACTION|SLURM_JOB_ID|SLURM_STEP_ID|SLURM_JOB_GPUS|SLURM_STEP_GPUS|"
    r"RANK|LOCAL_RANK|WORLD_SIZE|OMPI_COMM_WORLD_LOCAL_RANK|PMI_LOCAL_RANK|SLURM_LOCALID|LSB_JOBID|PBS_JOBID)$"
)


class Task(NamedTuple):
    """One process as /proc/PID/stat tells it. state: one letter of proc_pid_stat(5). cpu_ticks, start_ticks: in USER_HZ.

    processor: on which it last ran, -1 where that is not told.
    """

    pid: int
    comm: str
    state: str
    ppid: int
    session: int
    kernel_thread: bool
    cpu_ticks: int
    threads: int
    start_ticks: int
    processor: int = -1

    def age_s(self, up_s: float | None) -> float | None:
        """Seconds since it started; up_s: of the machine."""
        return None if up_s is None else max(0.0, up_s - self.start_ticks / TICKS_PER_SECOND)


_LONGEST_CELL = 20


def parse_stat(text: str) -> Task | None:
    """/proc/PID/stat; the name may hold blanks and brackets, so the last bracket counts. None where it is something else."""
    head, bracket, rest = text.rpartition(")")
    pid, opening, comm = head.partition("(")
    cells = [pid, *rest.split()]
    if not bracket or not opening or len(cells) < 21 or not pid.strip().isdecimal():
        return None
    if max(map(len, cells[:38])) > _LONGEST_CELL:
        return None
    try:
        number, parent, session = int(pid), int(cells[2]), int(cells[4])
        in_kernel = bool(int(cells[7]) & _KERNEL_THREAD) or parent == 2 or (number == 2 and comm == "kthreadd")
        ticks, threads, start = int(cells[12]) + int(cells[13]), int(cells[18]), int(cells[20])
        processor = int(cells[37]) if len(cells) > 37 else -1
    except ValueError:
        return None
    return Task(number, comm[:64], cells[1][:1], parent, session, in_kernel, ticks, threads, start, processor)


def parse_status(text: str) -> dict[str, str]:
    """/proc/PID/status as name and value ("Uid" keeps all four numbers)."""
    out: dict[str, str] = {}
    for line in text.splitlines()[:200]:
        name, colon, value = line.partition(":")
        if colon:
            out.setdefault(name.strip(), value.strip())
    return out


def uid_of(status: Mapping[str, str]) -> int | None:
    """The real user's number."""
    first = (status.get("Uid") or "").split()
    return digits(first[0]) if first else None


def switches_of(status: Mapping[str, str]) -> int | None:
    """How often the task has been taken off the processor, of its own will or not; it stands still while the task is stuck."""
    both = [digits(status.get(f"{name}_ctxt_switches")) for name in ("voluntary", "nonvoluntary")]
    known = [number for number in both if number is not None]
    return sum(known) if len(known) == len(both) else None


def command_line(data: bytes) -> str:
    """/proc/PID/cmdline in one line, secrets hidden; a program that wrote its own title there may have no zeros at all."""
    text = masked_cmdline(data).decode("utf-8", "replace").replace("\0", " ").strip()
    return " ".join(text.split())[:1000]


def chosen_environment(data: bytes) -> dict[str, str]:
    """Of /proc/PID/environ only the variables that say which GPUs a process uses and how it takes memory; nothing else is kept."""
    out: dict[str, str] = {}
    for piece in data.split(b"\0"):
        name, equals, value = piece.partition(b"=")
        key = name.decode("ascii", "replace")
        if equals and _WANTED.match(key):
            out.setdefault(key, value.decode("utf-8", "replace")[:500])
    return out


def user_names(passwd: str) -> dict[int, str]:
    """/etc/passwd: number to name. 0 is root where it does not tell."""
    out: dict[int, str] = {}
    for line in passwd.splitlines()[:50_000]:
        cells = line.split(":")
        number = digits(cells[2]) if len(cells) >= 4 else None
        if number is not None:
            out.setdefault(number, cells[0][:64])
    out.setdefault(0, "root")
    return out


def shows_all(tasks: Mapping[int, Task]) -> bool:
    """This /proc is that of the first pid namespace: kthreadd is process 2 there and nowhere else."""
    second = tasks.get(2)
    return second is not None and second.comm == "kthreadd"


def hides_others(mounts: str) -> bool:
    """/proc is mounted so that users see only their own processes (hidepid of proc(5))."""
    for line in mounts.splitlines()[:10_000]:
        cells = line.split()
        if len(cells) >= 4 and cells[1] == "/proc" and cells[2] == "proc":
            return bool(re.search(r"\bhidepid=(?:1|2|4|noaccess|invisible|ptraceable)\b", cells[3]))
    return False


def last_ran_s(sched: str) -> float | None:
    """When the task last had a processor (/proc/PID/sched, se.exec_start), in seconds of that processor's own scheduling clock.

    Interrupts and stolen time are left out of that clock, so it stands behind the uptime by an unknown amount: compare it only with
    the clock of other tasks of the same processor.
    """
    found = re.search(r"^se\.exec_start\s*:\s*(\d+(?:\.\d+)?)", sched[:4000], re.MULTILINE)
    return float(found[1]) / 1000.0 if found else None


def peers_of(pid: int, tasks: Mapping[int, Task], most: int = 48) -> list[int]:
    """Tasks that last ran on the same processor, the kernel's own first: they run again and again."""
    mine = tasks.get(pid)
    if mine is None or mine.processor < 0:
        return []
    found = [t for t in tasks.values() if t.processor == mine.processor and t.pid != pid]
    return [t.pid for t in sorted(found, key=lambda t: (not t.kernel_thread, -t.cpu_ticks))][:most]


_STARTERS = frozenset(
    ["init", "systemd", "sshd", "login", "su", "sudo", "bash", "sh", "zsh", "fish", "dash", "ksh", "tcsh", "csh", "tmux: server", "tmux",
     "screen", "node", "code", "code-server", "jupyter-lab", "jupyter-noteboo", "jupyter-server", "jupyterhub", "jupyterhub-sing",
     "containerd-shim", "containerd-shim-runc-v2", "conmon", "docker-init", "tini", "dumb-init", "slurmstepd", "cron", "crond",
     "supervisord", "nohup", "sshd-session"]
)  # fmt: skip


def program_root(pid: int, tasks: Mapping[int, Task]) -> int:
    """The highest ancestor that belongs to the same run: the launcher, not the shell, terminal or supervisor that started it."""
    current = pid
    for _ in range(64):
        task = tasks.get(current)
        parent = tasks.get(task.ppid) if task is not None else None
        if parent is None or parent.pid <= 1 or parent.comm in _STARTERS or parent.kernel_thread:
            return current
        current = parent.pid
    return current


def counts(tasks: Iterable[Task]) -> dict[str, int]:
    """How many processes there are in each state that matters; zombies by what their parent is."""
    every = list(tasks)
    parents: dict[int, int] = {}
    for task in every:
        if task.state == "Z":
            parents[task.ppid] = parents.get(task.ppid, 0) + 1
    worst = max(parents, key=lambda pid: parents[pid], default=0)
    return {
        "total": len(every),
        "user_processes": sum(not t.kernel_thread for t in every),
        "threads": sum(t.threads for t in every),
        "zombies": sum(t.state == "Z" for t in every),
        "zombie_parent": worst,
        "zombie_parent_count": parents.get(worst, 0),
        "uninterruptible": sum(t.state == "D" for t in every),
        "stopped": sum(t.state == "T" for t in every),
        "running": sum(t.state == "R" for t in every),
    }
