"""A process by its number: still there (what it waits for, whether it gets on) or gone (since when, and who recorded its end)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from gpuclinic.clinic.gathering._gathered import MOST_TEXT, absent
from gpuclinic.model import NotRead, Scalar, Where
from gpuclinic.recognise.one_process import (
    STATES,
    Stat,
    View,
    cgroup_paths,
    command_line,
    death_fact,
    families,
    parse_call,
    parse_stat,
    parse_status,
    process_fact,
    signal_name,
)  # fmt: skip

if TYPE_CHECKING:
    from gpuclinic.clinic.gathering._gathered import Gathered
    from gpuclinic.model import Fact
    from gpuclinic.observe.asking import Asked

SAMPLE_S = 1.0
"""Between two looks at counters, to tell a process that gets on from one that stands."""
_PY_SPY_DEADLINE = 6.0
_TICKS = 100
"""Clock ticks a second in /proc (USER_HZ), the same on all Linux machines of today."""
_MOST_THREADS = 2000
_GPU_BUSY = 5.0
_NO_REFUSAL = frozenset({None, "ok", "no_devices", "no_device_nodes", "library_missing", "bindings_missing"})
"""Reasons of the fact `nvml` for which there is nothing to be seen, rather than something that was kept from us."""


class _Seen(msgspec.Struct):
    """One look at a process and its descendants."""

    family: list[int]
    stats: dict[int, Stat]
    moved: int

    def ticks(self) -> int:
        """CPU time of them all."""
        return sum(s.user_ticks + s.system_ticks for pid in self.family if (s := self.stats.get(pid)) is not None)


def gather_process(host: Asked, pid: int, gathered: Gathered) -> None:
    """Facts about the process; the subject learns its family, its cgroups and when it began."""
    subject = gathered.subject
    answer = host.file(f"/proc/{pid}/stat", 4096)
    stat = parse_stat(answer.text) if answer.ok else None
    subject.pid = pid
    subject.pids = {pid}
    if stat is None:
        if answer.ok or absent(answer):
            _gone(host, pid, gathered)
        else:
            gathered.refused(f"/proc/{pid}", answer.why or "no answer", "other_user")
        return
    subject.alive = stat.state not in ("Z", "X")
    subject.gone = not subject.alive
    if subject.boot is not None:
        subject.began = subject.boot + stat.start / _TICKS
    status = _read(host, gathered, pid, "status")
    tgid = parse_status(status).get("Tgid", str(pid))
    if tgid != str(pid) and tgid.isdecimal():  # a thread's number: the process is asked about
        gathered.words.append(("thread", {"pid": pid, "process": int(tgid)}))
        gather_process(host, int(tgid), gathered)
        subject.pids.add(pid)
        return
    if not subject.alive:
        _zombie(pid, stat, answer.text, gathered)
        _parent(host, stat, gathered)
        return
    _living(host, stat, status, gathered)


def _read(host: Asked, gathered: Gathered, pid: int, name: str) -> str:
    """A file of /proc/PID; a refusal is noted once."""
    answer = host.file(f"/proc/{pid}/{name}", 1 << 16)
    if not answer.ok and not absent(answer):
        gathered.refused(
            f"/proc/{pid}/{name}", answer.why or "no answer", "other_user" if name in ("stack", "syscall", "io") else ""
        )
    return answer.text if answer.ok else ""


# --- gone


def _gone(host: Asked, pid: int, gathered: Gathered) -> None:
    """The process is no more, was never, or is hidden from us."""
    gathered.subject.gone = True
    fields: dict[str, Scalar] = {"pid": pid, "gone": True}
    last = host.file("/proc/loadavg", 256).line.split()
    newest = int(last[4]) if len(last) > 4 and last[4].isdecimal() else None
    most = host.file("/proc/sys/kernel/pid_max", 64).line
    if most.isdecimal() and pid > int(most):
        fields["unused"] = f"pid_max is {most}"
        gathered.words.append(("impossible", {"pid": pid, "most": most}))
    elif newest is not None and pid > newest and _never_wrapped(host, newest):
        fields["unused"] = f"the newest pid of this boot is {newest}"
        gathered.words.append(("unused", {"pid": pid, "newest": newest}))
    gathered.subject.pid_unused = "unused" in fields
    if not gathered.subject.pid_unused:
        gathered.words.append(("gone", {"pid": pid}))
    mounts = host.file("/proc/mounts", 1 << 18).text
    if (
        re.search(r"^proc /proc proc \S*hidepid=(?:[124]|invisible|noaccess|ptraceable)", mounts, re.MULTILINE)
        and not host.file("/proc/1/stat", 64).ok
    ):
        gathered.refused(
            f"/proc/{pid}", "/proc is mounted with hidepid: processes of other users are hidden", "other_user"
        )
        fields["hidden"] = True
    place = {"": f"/proc/{pid} does not exist", **({"unused": str(fields["unused"])} if "unused" in fields else {})}
    gathered.fact("asked_process", str(pid), fields, "/proc", place)


def _never_wrapped(host: Asked, newest: int) -> bool:
    """Pids were given out in order since boot, as far as can be seen: no living process has a higher one."""
    names = [name for name in host.listing("/proc").lines() if name.isdecimal()]
    started = re.search(r"^processes (\d+)", host.file("/proc/stat", 1 << 20).text, re.MULTILINE)
    most = host.file("/proc/sys/kernel/pid_max", 64).line
    if started is None or not most.isdecimal() or int(started[1]) >= int(most) - 1:
        return False
    return max(map(int, names), default=0) <= newest + 1


def _zombie(pid: int, stat: Stat, text: str, gathered: Gathered) -> None:
    place = Where(
        f"/proc/{pid}/stat", 1, f"pid {pid} ({stat.name}) state Z, wait status {stat.wait_status}: {text.strip()[-60:]}"
    )
    fact = death_fact(pid, stat.wait_status, "/proc", place, name=stat.name, zombie=True)
    gathered.facts.append(fact)
    number = fact.fields.get("signal")
    how = signal_name(number) if isinstance(number, int) else f"exit code {fact.fields.get('exit_code')}"
    gathered.words.append(("zombie", {"pid": pid, "name": stat.name, "how": how, "parent": stat.ppid}))


def _parent(host: Asked, stat: Stat, gathered: Gathered) -> None:
    """Whose cgroup the dead process shared, as far as the living tell: a zombie's own is the root's."""
    paths = cgroup_paths(host.file(f"/proc/{stat.ppid}/cgroup", 1 << 16).text)
    gathered.subject.cgroups |= {path.lower() for path in paths.values() if len(path) > 1}


# --- alive


def _living(host: Asked, stat: Stat, status: str, gathered: Gathered) -> None:
    pid, subject = stat.pid, gathered.subject
    before = _look(host, pid)
    now, boot = host.clock(), subject.boot if subject.boot is not None else 0.0
    view = View(
        stat, f"/proc/{pid}/stat", "", parse_status(status), command_line(host.file(f"/proc/{pid}/cmdline", 1 << 16).data),
        _read(host, gathered, pid, "wchan").strip(), parse_status(status).get("Uid", "").split("\t")[0] or None,
    )  # fmt: skip
    paths = cgroup_paths(_read(host, gathered, pid, "cgroup"))
    view.cgroup = paths.get("", "") if len(paths.get("", "")) > 1 else paths.get("memory", "")
    subject.cgroups |= {path.lower() for path in paths.values() if len(path) > 1}
    subject.units |= {
        u.lower() for path in paths.values() for u in re.findall(r"([\w@.:\\-]+\.(?:service|scope))(?:/|$)", path)
    }
    gathered.facts.append(process_fact(view, now=now, boot=boot, ticks=_TICKS))
    _files_of_process(host, pid, gathered)
    _threads(host, view, gathered, now=now, boot=boot)
    call, on = parse_call(_read(host, gathered, pid, "syscall"), _machine(host))
    fields, places = _waiting(host, view, call, on)
    if host.live:
        host.wait(SAMPLE_S)
    after = _look(host, pid) if host.live else before
    subject.pids |= set(before.family) | set(after.family)
    _relatives(host, before, gathered, now=now, boot=boot)
    _gpus(host, gathered, fields, places)
    _progress(before, after, host.clock() - now if host.live else 0.0, fields, places)
    frozen = _frozen(host, paths)
    if frozen:
        fields["frozen"] = True
        places["frozen"] = frozen
    answer = host.command("py-spy", "dump", "--pid", str(pid), deadline=_PY_SPY_DEADLINE, most=1 << 20)
    gathered.text(f"py-spy dump --pid {pid}", answer, "stacks")
    if absent(answer) and view.command and "python" in view.command:
        gathered.want("stacks")
    gathered.fact("asked_process", str(pid), fields, f"/proc/{pid}", places)
    _say(view, fields, gathered)


def _look(host: Asked, pid: int) -> _Seen:
    """CPU ticks of the process and its descendants, and bytes that they moved."""
    stats = {
        s.pid: s
        for a in host.files("/proc/[0-9]*/stat", 2048).values()
        if a.ok and (s := parse_stat(a.text)) is not None
    }
    family = families(stats.values(), pid)
    moved = 0
    for member in family[:64]:
        found = parse_status(host.file(f"/proc/{member}/io", 1024).text)
        moved += sum(int(found[k]) for k in ("rchar", "wchar") if found.get(k, "").isdecimal())
    return _Seen(family, stats, moved)


def _machine(host: Asked) -> str:
    """x86_64 or aarch64, by what the kernel says of itself."""
    told = host.file("/proc/sys/kernel/arch", 64)
    if told.ok and told.line:
        return told.line
    return (
        "x86_64"
        if "GenuineIntel" in (cpus := host.file("/proc/cpuinfo", 4096).text) or "AuthenticAMD" in cpus
        else "aarch64"
    )


def _files_of_process(host: Asked, pid: int, gathered: Gathered) -> None:
    """Limits and kernel stack for the parsers, and the logs that the process writes to."""
    limits = host.file(f"/proc/{pid}/limits", 1 << 14)
    if limits.ok and limits.data:
        gathered.texts.append((f"/proc/{pid}/limits", limits.data))
    stack = _read(host, gathered, pid, "stack")
    if stack.strip():
        gathered.texts.append((f"/proc/{pid}/stack", f"/proc/{pid}/stack\n{stack}".encode()))
    for number in ("1", "2"):
        target = host.link(f"/proc/{pid}/fd/{number}")
        path = target.text
        if not target.ok or not path.startswith("/") or path.startswith(("/dev/", "/proc/")):
            continue
        if path not in gathered.subject.mine and gathered.text(path, host.file(path, MOST_TEXT, end=True)):
            gathered.subject.mine.add(path)


def _threads(host: Asked, view: View, gathered: Gathered, *, now: float, boot: float) -> None:
    """Threads in uninterruptible sleep, where the first thread is not: each kind of wait once."""
    pid = view.stat.pid
    if view.stat.threads <= 1 or view.stat.state == "D":
        return
    waits: set[str] = set()
    for path, answer in list(host.files(f"/proc/{pid}/task/*/stat", 2048).items())[:_MOST_THREADS]:
        stat = parse_stat(answer.text) if answer.ok else None
        if stat is None or stat.state != "D" or stat.pid == pid:
            continue
        wchan = host.file(path.removesuffix("stat") + "wchan", 256).line
        if wchan not in waits:
            waits.add(wchan)
            thread = View(
                msgspec.structs.replace(stat, pid=pid), path, "", command=view.command, wchan=wchan, user=view.user
            )
            gathered.facts.append(process_fact(thread, now=now, boot=boot, ticks=_TICKS))


def _relatives(host: Asked, seen: _Seen, gathered: Gathered, *, now: float, boot: float) -> None:
    """Descendants that wait uninterruptibly, are stopped, or are dead and not collected."""
    for member in seen.family[1:200]:
        stat = seen.stats.get(member)
        if stat is None or stat.state not in ("D", "T", "t", "Z"):
            continue
        if stat.state == "Z":
            place = Where(
                f"/proc/{member}/stat", 1, f"child {member} ({stat.name}) state Z, wait status {stat.wait_status}"
            )
            if stat.wait_status:
                gathered.facts.append(death_fact(member, stat.wait_status, "/proc", place, name=stat.name, child=True))
            continue
        wchan = host.file(f"/proc/{member}/wchan", 256).line
        command = command_line(host.file(f"/proc/{member}/cmdline", 1 << 14).data)
        gathered.facts.append(
            process_fact(
                View(stat, f"/proc/{member}/stat", "", command=command, wchan=wchan), now=now, boot=boot, ticks=_TICKS
            )
        )


def _waiting(host: Asked, view: View, call: str | None, on: int | None) -> tuple[dict[str, Scalar], dict[str, str]]:
    """What the process waits for, each with the line of /proc that shows it."""
    stat, pid = view.stat, view.stat.pid
    wchan = view.wchan if view.wchan not in ("", "0") else None
    tracer = view.status.get("TracerPid", "0")
    fields: dict[str, Scalar] = {
        "pid": pid, "name": stat.name, "state": stat.state, "wchan": wchan, "call": call, "threads": stat.threads,
        "stopped": stat.state == "T", "traced": stat.state == "t", "tracer": int(tracer) if tracer.isdecimal() and tracer != "0" else None,
        "zombie": False, "gone": False, "python": "python" in view.command, "command": view.command[:200] or stat.name,
    }  # fmt: skip
    state = view.status.get("State") or f"{stat.state} ({STATES.get(stat.state, '?')})"
    places = {
        "": f"pid {pid} ({stat.name}): state {state}" + (f", wchan {wchan}" if wchan else ""),
        "state": f"State: {state}",
    }
    if wchan:
        places["wchan"] = f"/proc/{pid}/wchan: {wchan}"
    if call:
        places["call"] = f"/proc/{pid}/syscall: {call}" + (f" on descriptor {on}" if on is not None else "")
    if on is not None and call in ("read", "write", "readv", "writev", "recvfrom", "recvmsg", "splice"):
        target = host.link(f"/proc/{pid}/fd/{on}")
        if target.ok:
            fields["waits_on"] = target.text[:300]
            fields["fifo"] = target.text.startswith("/") and host.stat(target.text).json().get("kind") == "fifo"
            places["waits_on"] = f"/proc/{pid}/fd/{on} -> {target.text[:300]}"
    return fields, places


def _progress(before: _Seen, after: _Seen, seconds: float, fields: dict[str, Scalar], places: dict[str, str]) -> None:
    """Whether the family used the CPU, moved bytes or kept a GPU busy between the two looks."""
    if seconds <= 0:
        return
    share = max(0, after.ticks() - before.ticks()) / _TICKS / seconds
    moved = max(0, after.moved - before.moved)
    busy = fields.get("gpu_utilization_pct")
    idle_gpu = not isinstance(busy, (int, float)) or busy < _GPU_BUSY
    fields |= {
        "cpu_share": round(share, 3),
        "moved_bytes": moved,
        "sampled_s": round(seconds, 2),
        "children": len(after.family) - 1,
    }
    fields["idle"] = share < 0.02 and moved < 4096 and idle_gpu
    places["cpu_share"] = (
        f"CPU time over {seconds:.1f} s: {100 * share:.0f} % of one core, {moved} bytes moved, with {len(after.family) - 1} children"
    )
    places["idle"] = places["cpu_share"]


def _gpus(host: Asked, gathered: Gathered, fields: dict[str, Scalar], places: dict[str, str]) -> None:
    """The GPUs that the family holds: how busy, and how much of their power they draw."""
    facts = gpu_facts(host, gathered)
    mine = [f for f in facts if f.kind == "gpu_process" and f.fields.get("pid") in gathered.subject.pids]
    if not mine:
        return
    keys = {str(f.fields.get("gpu_key") or f.fields.get("bus_id") or f.fields.get("gpu_index")) for f in mine}
    cards = [
        f
        for f in facts
        if f.kind == "gpu"
        and (f.key in keys or str(f.fields.get("index")) in keys or str(f.fields.get("bus_id")) in keys)
    ]
    gathered.facts.extend([*mine, *cards])
    fields["gpus"] = len(cards)
    numbers: list[tuple[float, float, Fact]] = []
    for card in cards:
        busy, power, limit = (card.fields.get(k) for k in ("utilization_pct", "power_w", "power_limit_w"))
        if isinstance(busy, (int, float)):
            share = (
                power / limit
                if isinstance(power, (int, float)) and isinstance(limit, (int, float)) and limit > 0
                else -1.0
            )
            numbers.append((float(busy), share, card))
    if not numbers:
        return
    busy, share, card = max(numbers, key=lambda n: n[0])
    bus, index = card.fields.get("bus_id"), card.fields.get("index")
    fields |= {"gpu_utilization_pct": busy, "bus_id": bus, "gpu_index": index}
    text = f"GPU {index if index is not None else bus}: {busy:.0f} % busy"
    if share >= 0:
        fields["gpu_power_share"] = round(share, 3)
        text += f", {card.fields.get('power_w'):.0f} W of {card.fields.get('power_limit_w'):.0f} W"
    places["gpu_utilization_pct"] = text


def gpu_facts(host: Asked, gathered: Gathered, *, deep: bool = False) -> list[Fact]:
    """What NVML tells, else nothing; a machine without it is no refusal. deep: with its accounting of ended processes."""
    from gpuclinic.model import Document

    answer = host.nvml(deep=deep)
    if not answer.ok or not answer.data:
        return []
    from gpuclinic.recognise.parsers.nvml import parse_nvml

    facts = parse_nvml(Document("nvml", answer.text, name_hint="nvml.json"))
    told = next((f for f in facts if f.kind == "nvml"), None)
    if told is not None and told.fields.get("reason") not in _NO_REFUSAL:
        gathered.not_read.append(NotRead("NVML", str(told.fields.get("error") or told.fields.get("reason"))))
    return facts


def _frozen(host: Asked, paths: dict[str, str]) -> str:
    """The line that shows the cgroup frozen (docker pause, systemctl freeze, checkpointing); nothing where it is not."""
    for controller, folder in (
        ("", "/sys/fs/cgroup"),
        ("", "/sys/fs/cgroup/unified"),
        ("freezer", "/sys/fs/cgroup/freezer"),
    ):
        path = paths.get(controller, "/")
        if len(path) < 2:
            continue
        for name, pattern in (("cgroup.events", r"^frozen 1$"), ("freezer.state", r"^FROZEN$")):
            text = host.file(f"{folder}{path}/{name}", 4096).text
            if re.search(pattern, text, re.MULTILINE):
                return f"{folder}{path}/{name}: {'frozen 1' if name == 'cgroup.events' else 'FROZEN'}"
    return ""


def _say(view: View, fields: dict[str, Scalar], gathered: Gathered) -> None:
    """The state in a sentence."""
    stat, subject = view.stat, gathered.subject
    share, busy = fields.get("cpu_share"), fields.get("gpu_utilization_pct")
    subject.progresses = fields.get("idle") is False and stat.state not in ("T", "t", "D") and not fields.get("frozen")
    values: dict[str, Scalar] = {
        "pid": stat.pid, "name": stat.name, "state": view.status.get("State") or stat.state,
        "cpu": f"{100 * share:.0f}" if isinstance(share, float) else "?",
        "wait": str(fields.get("wchan") or fields.get("call") or "-"),
    }  # fmt: skip
    if isinstance(busy, (int, float)):
        values |= {"gpu": f"{busy:.0f}"}
    gathered.words.append(("running_gpu" if isinstance(busy, (int, float)) else "running", values))
