"""What slow or stuck storage does to processes: saves that never end, and the user's task among the blocked ones."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpuclinic.diagnose.candidates import Candidate, Pool, Support
from gpuclinic.model import LEVEL_CONFIDENCE, Signal

if TYPE_CHECKING:
    from gpuclinic.diagnose.evidence import Reading

_GOES_ON = frozenset(
    [
        "run.checkpoint_saved", "run.step", "run.epoch",
        "run.tqdm", "run.megatron", "run.meters", "run.meters_reversed",
        "run.hf_log", "run.completed", "run.exit_zero", "tf.epoch", "tf.progbar",
    ]
)  # fmt: skip
_GAVE_UP = frozenset(
    [
        "c10d.watchdog_timeout", "c10d.watchdog_timeout_no_rank",
        "c10d.blocking_wait_timeout", "c10d.monitored_barrier",
        "jax.barrier_timeout", "c10d.store_barrier",
    ]
)  # fmt: skip
_SAVING = ("run.checkpoint_saving", "ckpt.writing")
_SLOW_SAVE_S = 300.0
_KERNEL_THREAD = re.compile(
    r"(?:kworker|jbd2|md\d+_|xfsaild|xfs-|kswapd|khugepaged|kcompactd|flush-|kjournald|ksmd|rcu_|migration|ptlrpcd|ldlm_|loop\d"
    r"|nvme|txg_sync|z_|dm[-_]|nfsv4|nfsd|khungtaskd|scsi_eh|kdmflush|writeback|btrfs-|bcache|nvidia-modeset|nv_queue)"
)

_NOT_THE_USERS = re.compile(rf"{_KERNEL_THREAD.pattern}|gpuclinic")
"""Helpers of ours that looked where others hang do not come before these."""


def add_stalled_saves(pool: Pool, reading: Reading) -> None:
    """A rank that starts to save and says nothing more until the others' collective runs out of time."""
    open_save: dict[str, Signal] = {}
    slow: dict[str, Signal] = {}
    last: dict[str, Signal] = {}
    done: set[str] = set()
    timeouts: dict[str, Signal] = {}
    for signal in reading.signals:
        source = signal.where.source
        if signal.signature in _SAVING:
            open_save.setdefault(source, signal)
            last[source] = signal
        elif signal.signature == "ckpt.save_time" and save_seconds(signal.groups) >= _SLOW_SAVE_S:
            slow[source] = signal
        elif signal.signature in _GOES_ON:
            open_save.pop(source, None)
        elif signal.signature in _GAVE_UP:
            timeouts.setdefault(source, signal)
            if source in open_save and source not in done:
                done.add(source)
                _add(pool, open_save[source], signal, slow.get(source))
    if not done and timeouts:  # each rank has a log of its own: one still saves at its end, the others gave up
        for source, saving in open_save.items():
            if source not in timeouts:
                _add(pool, saving, next(iter(timeouts.values())), last[source] if last[source] is not saving else None)
                break


def save_seconds(groups: dict[str, str]) -> float:
    """How long a save took, from milliseconds or seconds.

    >>> save_seconds({"ms": "1921002.11"})
    1921.00211
    """
    if groups.get("ms"):
        return float(groups["ms"]) / 1000.0
    return float(groups.get("seconds") or groups.get("seconds2") or 0.0)


def _add(pool: Pool, saving: Signal, timeout: Signal, slow: Signal | None) -> None:
    shown = [saving, timeout] if slow is None else [saving, slow, timeout]
    support = Support(
        id="checkpoint.stalled_save", worth=LEVEL_CONFIDENCE["strong" if slow else "likely"],
        places=[s.where for s in shown],
        moment=pool.timeline.clock(saving), order=saving.order, rank=saving.rank, pid=saving.pid,
        texts={
            "title_en": "Saving the checkpoint took longer than the collectives' time-out",
            "title_zh": "保存检查点的时间超过了集合通信的超时",
            "advice_en": "Look at the storage the checkpoint goes to; save asynchronously or raise the time-out.",
            "advice_zh": "检查检查点所在存储；临时可改为异步保存或调大进程组超时。",
        },
    )  # fmt: skip
    pool.add("storage.checkpoint", support, host=saving.host, source=saving.where.source, subject={})


def prefer_user_tasks(candidates: list[Candidate]) -> None:
    """Of several blocked tasks the one that somebody started is named, not a kernel thread that waits for it."""
    for candidate in candidates:
        if candidate.cause != "kernel.hung_task":
            continue
        mine = [s for s in candidate.supports if s.pid is not None and s.groups.get("name")]
        users = [s for s in mine if not _NOT_THE_USERS.match(s.groups["name"])]
        current = next((s for s in mine if s.pid == candidate.pid), None)
        if users and current is not None and _NOT_THE_USERS.match(current.groups["name"]):
            candidate.pid = users[0].pid
            candidate.rank = users[0].rank
            candidate.supports.sort(key=lambda s: (s not in users, s.order))
