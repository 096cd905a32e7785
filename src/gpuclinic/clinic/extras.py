"""What a person wants beside the cause: numbers of an out-of-memory, the last good checkpoint, a resubmit line, what changed before."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any

from gpuclinic.diagnose.memory import Numbers, processes_on
from gpuclinic.model import digits

if TYPE_CHECKING:
    from gpuclinic.diagnose.candidates import Candidate
    from gpuclinic.diagnose.evidence import Reading
    from gpuclinic.diagnose.timeline import Timeline
    from gpuclinic.model import Fact, Signal

_PROGRESS = ("run.step", "run.epoch", "run.tqdm", "run.megatron", "run.meters", "run.hf_log")
_CHANGES_BEFORE = 14 * 86400.0
_MOST_CHANGES = 6
_NODE_FAULTS = ("hw.", "kernel.", "driver.", "host.unexpected", "storage.io_error", "net.ib_port", "net.ib_errors")
_RELEVANT = (
    "nvidia", "cuda", "linux-image", "linux-headers", "linux-modules", "kernel", "torch", "nccl", "cudnn", "docker", "containerd", "dkms",
    "mlnx", "ofed", "driver", "fabricmanager", "firmware", "systemd", "slurm", "tensorflow", "jax", "triton", "vllm",
)  # fmt: skip
_TEXTS = {
    "en": {
        "comma": ", ",
        "oom": "GPU memory at the failure: {parts}.",
        "need": "{v} asked for", "free": "{v} free", "total": "{v} on the card", "allocated": "{v} held by the framework",
        "unallocated": "{v} reserved by it but unused", "used": "{v} in use by this process", "others": "{v} held by other processes",
        "holders": "On that card: {parts}.", "holder": "pid {pid} ({name}) {v}",
        "checkpoint": "Last checkpoint saved: {what}.", "lost": "Work since then is lost: about {v}.", "steps": "{v} steps",
        "resubmit": "Resubmit without what is broken: {line}",
        "changed": "Changed before it: {parts}.", "between": "; ", "removed": " removed",
    },
    "zh": {
        "comma": "、",
        "oom": "出错时的显存：{parts}。",
        "need": "申请 {v}", "free": "空闲 {v}", "total": "整卡 {v}", "allocated": "框架已占用 {v}",
        "unallocated": "框架保留但未使用 {v}", "used": "本进程占用 {v}", "others": "其他进程占用 {v}",
        "holders": "该卡上的进程：{parts}。", "holder": "进程 {pid}（{name}）{v}",
        "checkpoint": "最后保存的检查点：{what}。", "lost": "之后的训练进度丢失：约 {v}。", "steps": "{v} 步",
        "resubmit": "避开故障部件重新提交：{line}",
        "changed": "故障前的变更：{parts}。", "between": "；", "removed": " 已卸载",
    },
}  # fmt: skip


def extras(root: Candidate, reading: Reading, timeline: Timeline, lang: str) -> tuple[list[str], dict[str, Any]]:
    """(sentences for people, fields for programs) about the case at hand."""
    words = _TEXTS["zh" if lang == "zh" else "en"]
    notes: list[str] = []
    fields: dict[str, Any] = {}
    if root.cause.startswith("app.cuda_oom") or root.cause in ("process.orphan_vram", "app.vram_leak"):
        _memory(root, reading, words, notes, fields)
    _checkpoint(root, reading, timeline, words, notes, fields)
    _resubmit(root, reading, words, notes, fields)
    _changes(root, reading.facts, timeline, words, notes, fields)
    return notes, fields


def human_size(size: float) -> str:
    """Bytes as people read them.

    >>> human_size(1536 * 1024 * 1024)
    '1.50 GiB'
    """
    for unit, factor in (("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024)):
        if size >= factor:
            return f"{size / factor:.2f} {unit}" if unit == "GiB" else f"{size / factor:.0f} {unit}"
    return f"{size:.0f} B"


def _memory(root: Candidate, reading: Reading, words: dict[str, str], notes: list[str], fields: dict[str, Any]) -> None:
    first = min((s.order for s in root.supports), default=0)
    near = [s for s in reading.signals if abs(s.order - first) < 60 and ("need" in s.groups or "oom" in s.signature)]
    values = Numbers(near[:12]).values
    parts = [
        words[k].format(v=human_size(values[k]))
        for k in ("need", "free", "total", "used", "allocated", "unallocated", "others")
        if k in values
    ]
    if parts:
        notes.append(words["oom"].format(parts=words["comma"].join(parts)))
        fields["memory_bytes"] = {k: int(v) for k, v in values.items()}
    holders = [
        f
        for f in processes_on(reading, root.gpu_index, root.gpu if root.gpu_index is None else None)
        if isinstance(f.fields.get("memory_mib"), (int, float))
    ]
    holders.sort(key=lambda f: -float(f.fields["memory_mib"] or 0))
    if holders:
        shown = [
            words["holder"].format(
                pid=f.fields.get("pid"),
                name=str(f.fields.get("name"))[-30:],
                v=human_size(float(f.fields["memory_mib"] or 0) * 1024**2),
            )
            for f in holders[:4]
        ]
        notes.append(words["holders"].format(parts=words["comma"].join(shown)))


def _checkpoint(
    root: Candidate,
    reading: Reading,
    timeline: Timeline,
    words: dict[str, str],
    notes: list[str],
    fields: dict[str, Any],
) -> None:
    """The last checkpoint that a log reports as saved, and what ran after it."""
    saved = [
        s
        for s in reading.signals
        if s.signature == "run.checkpoint_saved" and s.where.source in _job_sources(root, reading)
    ]
    if not saved:
        return
    last = saved[-1]
    what = last.groups.get("path") or last.groups.get("step") or last.where.text[-120:]
    notes.append(words["checkpoint"].format(what=f"{what} ({last.where.source}:{last.where.line})"))
    fields["last_checkpoint"] = {"what": what, "source": last.where.source, "line": last.where.line}
    after = [
        s
        for s in reading.signals
        if s.where.source == last.where.source and s.order > last.order and s.signature in _PROGRESS
    ]
    lost = _span(last, after[-1] if after else None, root, timeline)
    if lost:
        notes.append(words["lost"].format(v=lost))
        fields["lost"] = lost


def _job_sources(root: Candidate, reading: Reading) -> set[str]:
    """The logs of the job: those of the cause, or all where the cause stands in another kind of log."""
    return {s.where.source for s in reading.signals if s.signature in _PROGRESS} | root.sources


def _span(saved: Signal, last: Signal | None, root: Candidate, timeline: Timeline) -> str:
    """The time, else the steps, between a checkpoint and the last sign of work."""
    first = timeline.clock(saved)
    end = timeline.clock(last) if last is not None else root.moment
    if (
        first is not None
        and end is not None
        and first.clock == end.clock
        and 0 < end.seconds - first.seconds < 30 * 86400
    ):
        return str(datetime.timedelta(seconds=round(end.seconds - first.seconds)))
    begin, stop = digits(saved.groups.get("step")), digits(last.groups.get("step") if last is not None else None)
    if begin is not None and stop is not None and stop > begin:
        return f"{stop - begin} steps"
    return ""


def _resubmit(
    root: Candidate, reading: Reading, words: dict[str, str], notes: list[str], fields: dict[str, Any]
) -> None:
    """A line to paste that keeps the next run off the broken node or card."""
    if not root.cause.startswith(_NODE_FAULTS) or root.strength < 0.5:
        return
    line = ""
    host = root.host.split(".")[0] if root.host else ""
    named = bool(host) and host.replace("-", "").isalnum()
    if named and any(s.signature.startswith("slurm.") for s in reading.signals):
        line = f"sbatch --exclude={host} ..."
    elif named and any(s.signature.startswith("k8s.") for s in reading.signals):
        line = f"kubectl cordon {host}"
    elif root.gpu_index is not None and root.cause.startswith("hw.gpu."):
        indices = sorted({i for f in reading.facts if f.kind == "gpu" and isinstance(i := f.fields.get("index"), int)})
        healthy = [str(i) for i in indices if i != root.gpu_index]
        line = f"CUDA_VISIBLE_DEVICES={','.join(healthy)} ..." if healthy else ""
    if line:
        notes.append(words["resubmit"].format(line=line))
        fields["resubmit"] = line


def _changes(
    root: Candidate,
    facts: list[Fact],
    timeline: Timeline,
    words: dict[str, str],
    notes: list[str],
    fields: dict[str, Any],
) -> None:
    """Packages and settings that changed in the two weeks before the failure, newest first; none where somebody ended the process."""
    if root.cause == "process.killed":
        return
    end = root.moment.seconds if root.moment is not None and root.moment.clock == "wall" else None
    found: list[tuple[float, Fact]] = []
    for fact in facts:
        if fact.kind != "change" or not any(word in f"{fact.key} {fact.fields}".lower() for word in _RELEVANT):
            continue
        when = fact.time.seconds if fact.time is not None and not fact.time.uptime else 0.0
        if (
            end is None
            or not when
            or (timeline.year_known and 0 <= end - when <= _CHANGES_BEFORE)
            or not timeline.year_known
        ):
            found.append((when, fact))
    if not found:
        return
    found.sort(key=lambda pair: -pair[0])
    shown: dict[str, str] = {}
    for _, fact in found:  # apt and dpkg tell of the same change, each in its own log
        old, new = fact.fields.get("from"), fact.fields.get("to")
        gone = fact.fields.get("what") == "remove"
        version = (old or new) if gone else (new or old)
        versions = f" {old} -> {new}" if old and new and not gone else f" {version}" if version else ""
        what = f"{fact.key}{versions}{words['removed'] if gone else ''}"
        if len(shown) < _MOST_CHANGES:
            shown.setdefault(what, f"{what} ({fact.where().source}:{fact.where().line})")
    notes.append(words["changed"].format(parts=words["between"].join(shown.values())))
    fields["changes"] = list(shown.values())
