"""What to collect next where what was read is not enough: the looks that decide most and are not there yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuclinic.clinic.answer import Answer

_LOOKS: tuple[tuple[str, str, str, str, str, str], ...] = (
    (
        "kernel",
        "kernel log of the node, from before the failure on (if it has rebooted since: -b -1)",
        "tells a hardware fault or the OOM killer from a fault of the job",
        "节点内核日志（从故障之前开始；若已重启过用 -b -1）",
        "区分硬件故障、OOM killer 与任务自身问题",
        "journalctl -k -b > kernel.log",
    ),
    (
        "job",
        "logs of all ranks, from the first line to the last",
        "the rank that failed first has the reason, the others only follow",
        "所有 rank 的完整日志（从第一行到最后一行）",
        "最先出错的 rank 才有真正原因，其他只是后果",
        "torchrun --redirects 3 --log-dir logs ...   |   srun --output=logs/%j-%t.log ...",
    ),
    (
        "gpu",
        "state of the GPUs on that node",
        "shows ECC errors, throttling, links and who holds memory",
        "该节点的 GPU 状态",
        "可看出 ECC、降频、链路以及显存被谁占用",
        "nvidia-smi -q > nvidia-smi-q.txt; nvidia-smi > nvidia-smi.txt",
    ),
    (
        "scheduler",
        "what the scheduler says of the job",
        "shows limits, preemption, node failures and exit codes",
        "调度器对该任务的记录",
        "可看出限额、抢占、节点失败与退出码",
        "sacct -j JOBID -o JobID,State,ExitCode,Reason,MaxRSS > sacct.txt   |   kubectl describe pod POD > pod.txt",
    ),
)
_MARKS = {
    "kernel": ("kernel log", "dmesg", "kmsg", "system log"),
    "job": ("training", "nccl", "step times", "elastic"),
    "gpu": ("nvidia", "dcgm", "gpu"),
    "scheduler": ("slurm", "sacct", "scontrol", "sinfo", "kubectl", "kube"),
}


def next_looks(kinds: Iterable[str], lang: str) -> list[dict[str, str]]:
    """The looks that none of these kinds of text stands for; never empty."""
    have = {name for kind in kinds for name, marks in _MARKS.items() if any(mark in kind.lower() for mark in marks)}
    chosen = [look for look in _LOOKS if look[0] not in have] or list(_LOOKS[:2])
    return [
        {"what": zh if lang == "zh" else en, "why": why_zh if lang == "zh" else why_en, "command": command}
        for _, en, why_en, zh, why_zh, command in chosen
    ]


def still_missing(answer: Answer) -> list[dict[str, str]]:
    """What the answer itself says is missing, or the general looks where it names no cause."""
    if answer.missing or answer.outcome == "cause" or answer.live:
        return answer.missing
    return next_looks([item.kind for item in answer.read], answer.lang)
