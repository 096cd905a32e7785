"""Processes that hide: from the listing of /proc, behind mounts, behind the names of kernel threads."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpuclinic.audit.hits import Hit
from gpuclinic.audit.mining import refs_of, subject_of
from gpuclinic.audit.places import odd_place
from gpuclinic.audit.processes import probed
from gpuclinic.audit.refs import pid_ref
from gpuclinic.model import Where
from gpuclinic.recognise.process_table import hides_others

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuclinic.audit.scene import Process, Scene

_KERNEL_NAME = re.compile(
    r"^(?:kworker(?:/[\w:+-]+)?|kthreadd|ksoftirqd(?:/\d+)?|migration(?:/\d+)?|rcu_\w+(?:/\d+)?|rcuo[a-z]?/\d+|kswapd\d*|khugepaged|kdevtmpfs\w*|netns|kauditd|khungtaskd|oom_reaper|"
    r"writeback|kcompactd\d*|ksmd|kintegrityd|kblockd|watchdogd?(?:/\d+)?|jbd2(?:/[\w-]+)?|scsi_eh_\d+|kdmflush(?:/[\d:]+)?|cpuhp/\d+|idle_inject/\d+|irq/[\w-]+|xfsaild(?:/\S+)?|"
    r"edac-poller|kthrotld|kstrp|zswap-shrink|bioset|crypto|ext4-rsv-conver|nfsd|lockd|md\d+_raid\d+|mm_percpu_wq|pool_workqueue|slub_flushwq|inet_frag_wq|ata_sff|kpsmoused|ipv6_addrconf|events?/\d+|flush-[\d:]+)$"
)
_MOUNT = re.compile(r"^/proc/(\d+)(?:/.*)?$")


_WORDS = frozenset(
    ["migration", "watchdog", "watchdogd", "crypto", "bioset", "writeback", "netns", "nfsd", "lockd", "events", "md"]
)
"""Of these names, those that people and packages give their programs, too."""
_BRACKETS = re.compile(r"^\[([^\]\s]{2,40})\]$")
_LIKE_ONE = re.compile(r"^k[a-z\d_]{3,20}(?:/[\w:+-]{1,20})?$|^[\w-]{2,30}/[\d:]{1,6}[\w:+-]{0,14}$|^[\w-]{3,30}_?wq$")
"""What could be a kernel thread's name, though none is known: "[kcached]", "[rcu_x/3]", "[slub_wq]"."""


def masquerade(scene: Scene) -> list[Hit]:
    """kthread_masquerade: the name of a kernel thread, and a program of its own."""
    out = []
    for process in scene.processes.values():
        grade, shown = _as_thread(scene, process)
        if process.kernel_thread or grade is None or not (process.exe or process.mapped):
            continue  # of a zombie, or of another's process without rights, nothing may be read
        task = process.task
        text = f"{shown}: flags without PF_KTHREAD, parent {task.ppid if task else '?'}, program {process.exe or 'not told'}"
        out.append(
            Hit(id="kthread_masquerade", subject=subject_of(process), refs=refs_of(process), pid=process.pid, grade=grade,
                evidence=[process.at("stat", text), process.at("cmdline", process.shown() or shown)],
                values={"pid": process.pid, "name": shown, "path": process.exe or "?"})
        )  # fmt: skip
    return out


def _as_thread(scene: Scene, process: Process) -> tuple[str | None, str]:
    """How surely a process bears a kernel thread's name to be overlooked, and that name."""
    whole = " ".join(process.argv).strip()
    bracketed = _BRACKETS.match(whole) or re.match(r"^\[([^\]\s]{2,40})$", whole)
    shown = bracketed[1] if bracketed else process.comm.strip()
    known = _KERNEL_NAME.match(shown) is not None
    odd = odd_place(process.exe or "") is not None
    owner = scene.packages.owner(process.exe) if process.exe else None
    common = shown.partition("/")[0] in _WORDS and not (bracketed and "/" in shown)
    if known and not common:
        if owner is not None and not bracketed:
            return None, shown
        return "conclusive" if bracketed or odd or scene.packages.known else "strong", shown
    if bracketed and (known or _LIKE_ONE.match(shown)) and owner is None:
        return "conclusive" if odd else "strong", shown
    if known and odd:
        return "strong", shown
    return None, shown


def overmounts(scene: Scene) -> list[Hit]:
    """proc_overmount: something is mounted over the folder of a process."""
    out = []
    for path in ("/proc/self/mountinfo", "/proc/1/mountinfo", "/proc/mounts"):
        text = scene.text(path, "audit.hiding", 1 << 20)
        for index, line in enumerate(text.lines() if text else ()):
            cells = line.split()
            at = 1 if path == "/proc/mounts" else 4
            found = _MOUNT.match(cells[at]) if len(cells) > at else None
            if text is not None and found:
                pid = int(found[1])
                process = scene.processes.get(pid)
                refs = refs_of(process) if process else frozenset({pid_ref(pid)})
                out.append(
                    Hit(id="proc_overmount", subject=f"/proc/{pid}", refs=refs, pid=pid, evidence=[text.at(index)], values={"pid": pid})
                )  # fmt: skip
        if out:
            break
    return out


def hidden(scene: Scene) -> list[Hit]:
    """hidden_gpu_process, hidden_process: there by number, not in the listing; root looked, in the first pid namespace."""
    told = probed(scene)
    mounts = scene.text("/proc/mounts", "audit.hiding") or scene.text("/proc/self/mounts", "audit.hiding")
    first = told.get("in_initial_pid_ns", scene.whole_view)
    limited = scene.as_root is False or first is False or (mounts is not None and hides_others(mounts.text))
    rows = [row for row in told.get("alive", []) if isinstance(row, dict)]
    known = {row.get("pid"): row for row in rows}
    on_gpu = {one.pid for one in scene.gpu_processes}
    namespace = _nvml_namespace(scene)
    out = []
    for pid, row in known.items():
        alone = row.get("tgid") == pid and row.get("kill0") and row.get("direct_open") and row.get("listed") is False
        if not isinstance(pid, int) or not alone or limited:
            continue
        if row.get("seen_again") is False or row.get("rechecked") is False:
            continue
        process = scene.processes.get(pid)
        gpu = pid in on_gpu and namespace != "container"
        out.append(_hidden(pid, process, gpu))
    if limited and any(p not in scene.processes for p in on_gpu):
        scene.gap(
            "audit.hiding",
            "NVML names processes that this view of /proc cannot show (not root, hidepid, or a container)",
        )
    return out


def _nvml_namespace(scene: Scene) -> str:
    from gpuclinic.audit.gpus import told

    return str(told(scene).get("nvml_pid_namespace", "host"))


def _hidden(pid: int, process: Process | None, gpu: bool) -> Hit:
    refs = refs_of(process) if process else frozenset({pid_ref(pid)})
    text = (
        f"pid {pid}: signal 0 reaches it, /proc/{pid}/status opens and says Tgid {pid}; listing /proc does not show it"
    )
    evidence = [Where("pid_probe.json", None, text)]
    if process is not None and process.exe:
        evidence.append(process.at("exe", process.exe))
    if gpu:
        evidence.append(Where("gpu_processes.json", None, f"NVML lists pid {pid} on a GPU"))
    return Hit(
        id="hidden_gpu_process" if gpu else "hidden_process", subject=subject_of(process) if process else f"pid {pid}", refs=refs, pid=pid,
        evidence=evidence, values={"pid": pid, "path": (process.exe if process else None) or "?"},
    )  # fmt: skip


CHECKS: tuple[tuple[str, Callable[[Scene], list[Hit]]], ...] = (
    ("audit.hiding", masquerade),
    ("audit.hiding", overmounts),
    ("audit.hiding", hidden),
)
