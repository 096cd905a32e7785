"""A process by its number: still there (what it waits for, whether it gets on) or gone (since when, and who recorded its end)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpuclinic.clinic.gathering._gathered import MOST_TEXT, absent
from gpuclinic.clinic.gathering._numbers import numbers_of
from gpuclinic.clinic.gathering._two_looks import IO, STATS, TICKS, Seen, add_progress, look
from gpuclinic.model import NotRead, Scalar, Where, digits
from gpuclinic.observe.replay import NOT_ASKED
from gpuclinic.recognise.one_process import (
    STATES,
    View,
    command_line,
    death_fact,
    parse_call,
    parse_status,
    process_fact,
    signal_name,
)  # fmt: skip
from gpuclinic.recognise.proc_files import Stat, cgroup_paths, parse_stat
from gpuclinic.recognise.process_table import hides_others

if TYPE_CHECKING:
    from gpuclinic.clinic.gathering._gathered import Gathered
    from gpuclinic.diagnose.subject import Subject
    from gpuclinic.model import Fact
    from gpuclinic.observe.asking import Asked

SAMPLE_S = 1.0
"""Between two looks at counters, to tell a process that gets on from one that stands."""
_PY_SPY_DEADLINE = 6.0
_MOST_THREADS = 2000
_KERNEL_THREAD = 0x200000
"""PF_KTHREAD of Linux include/linux/sched.h."""
_OF_THE_DRIVER = re.compile(r"nvidia|^nv_|UVM|^irq/\d+-nv")
"""Names of the GPU driver's own kernel threads."""
_DEVICE = re.compile(r"/dev/nvidia(\d+|ctl|-uvm)$")
_MOST_LOOKED_INTO = 32
_MAY_USE_GPUS = re.compile(r"python|nvidia|cuda|torch|vllm|ray|pt_|triton|dcgm|nv-", re.IGNORECASE)
_NO_REFUSAL = frozenset({None, "ok", "no_devices", "no_device_nodes", "library_missing", "bindings_missing"})
"""Reasons of the fact `nvml` for which there is nothing to be seen, rather than something that was kept from us."""


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
            gathered.refused(f"/proc/{pid}", answer.why or "no answer", _who_may(gathered))
        return
    subject.alive = stat.state not in ("Z", "X")
    subject.gone = not subject.alive
    if subject.boot is not None:
        subject.began = subject.boot + stat.start / TICKS
    status = _read(host, gathered, pid, "status")
    tgid = digits(parse_status(status).get("Tgid"))
    if tgid is not None and tgid != pid:  # a thread's number: the process is asked about
        gathered.words.append(("thread", {"pid": pid, "process": tgid}))
        gather_process(host, tgid, gathered)
        subject.pids.add(pid)
        return
    if not subject.alive:
        _zombie(host, stat, answer.text, gathered)
        _parent(host, stat, gathered)
        return
    _living(host, stat, status, gathered)


def _read(host: Asked, gathered: Gathered, pid: int, name: str) -> str:
    """A file of /proc/PID; a refusal is noted once."""
    answer = host.file(f"/proc/{pid}/{name}", 1 << 16)
    if not answer.ok and not absent(answer):
        gathered.refused(
            f"/proc/{pid}/{name}",
            answer.why or "no answer",
            _who_may(gathered) if name in ("stack", "syscall", "io") else "",
        )
    return answer.text if answer.ok else ""


# --- gone


def _gone(host: Asked, pid: int, gathered: Gathered) -> None:
    """The process is no more, was never, or is hidden from us."""
    subject = gathered.subject
    subject.gone = True
    fields: dict[str, Scalar] = {"pid": pid, "gone": True}
    place = {"": f"/proc/{pid} does not exist"}
    hidden = _hidden(host, pid, gathered)
    numbers = numbers_of(host)
    if numbers.most is not None and pid > numbers.most:
        fields["unused"] = place["unused"] = f"pid_max is {numbers.most}"
        gathered.words.append(("impossible", {"pid": pid, "most": numbers.most}))
    elif numbers.never_given(pid) and not hidden:
        fields["unused"] = place["unused"] = f"the newest pid of this boot is {numbers.newest}"
        gathered.words.append(("unused", {"pid": pid, "newest": numbers.newest}))
    elif (why := numbers.given(pid)) or hidden:
        fields["existed"] = bool(why)
        place[""] += f"; {why}" if why else ""
        gathered.words.append(("gone", {"pid": pid}) if why else ("not_seen", {"pid": pid}))
    else:
        gathered.words.append(("not_there", {"pid": pid}))
    subject.pid_unused, subject.existed = "unused" in fields, bool(fields.get("existed"))
    if hidden:
        fields["hidden"] = True
    gathered.fact("asked_process", str(pid), fields, "/proc", place)


def _who_may(gathered: Gathered) -> str:
    """The record of what was refused: root has nobody to ask for more rights here."""
    return "refused_to_root" if gathered.subject.uid is None else "other_user"


def _hidden(host: Asked, pid: int, gathered: Gathered) -> bool:
    """The kernel shows us only our own processes; that is noted."""
    mounts = host.file("/proc/mounts", 1 << 18).text
    if not hides_others(mounts) or host.file("/proc/1/stat", 64).ok:
        return False
    gathered.refused(
        f"/proc/{pid}", "/proc is mounted with hidepid: processes of other users are hidden", _who_may(gathered)
    )
    return True


def _zombie(host: Asked, stat: Stat, text: str, gathered: Gathered) -> None:
    """How the dead process ended. To whom the kernel would not show that, it says 0 in place of the wait status."""
    pid = stat.pid
    if not stat.wait_status and _hides_the_end(host, pid):
        gathered.refused(f"/proc/{pid}/stat", "how it ended is shown to its owner and root alone", "other_user")
        gathered.words.append(("zombie_hidden", {"pid": pid, "name": stat.name, "parent": stat.ppid}))
        shown = {"": f"pid {pid} ({stat.name}) state Z"}
        fields: dict[str, Scalar] = {"pid": pid, "gone": True, "existed": True, "hidden": True}
        gathered.fact("asked_process", str(pid), fields, f"/proc/{pid}/stat", shown)
        return
    place = Where(
        f"/proc/{pid}/stat", 1, f"pid {pid} ({stat.name}) state Z, wait status {stat.wait_status}: {text.strip()[-60:]}"
    )
    fact = death_fact(pid, stat.wait_status, "/proc", place, name=stat.name, zombie=True)
    gathered.facts.append(fact)
    number = fact.fields.get("signal")
    how = signal_name(number) if isinstance(number, int) else f"exit code {fact.fields.get('exit_code')}"
    gathered.words.append(("zombie", {"pid": pid, "name": stat.name, "how": how, "parent": stat.ppid}))


def _hides_the_end(host: Asked, pid: int) -> bool:
    """/proc/PID/io is refused to the same users as the wait status (ptrace_may_access; Linux fs/proc/array.c, fs/proc/base.c)."""
    answer = host.file(f"/proc/{pid}/io", 1024)
    return not answer.ok and not absent(answer)


def _parent(host: Asked, stat: Stat, gathered: Gathered) -> None:
    """Whose cgroup the dead process shared, as far as the living tell: a zombie's own is the root's."""
    paths = cgroup_paths(host.file(f"/proc/{stat.ppid}/cgroup", 1 << 16).text)
    gathered.subject.cgroups |= {path.lower() for path in paths.values() if len(path) > 1}


# --- alive


def _living(host: Asked, stat: Stat, status: str, gathered: Gathered) -> None:
    pid, subject = stat.pid, gathered.subject
    before = look(host, pid)
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
    subject.python = "python" in view.command
    _files_of_process(host, pid, gathered)
    threads = _waiting_threads(host, stat)
    call, on = parse_call(_read(host, gathered, pid, "syscall"), _machine(host))
    fields, places = _waiting(host, view, call, on)
    if host.live:
        host.wait(SAMPLE_S)
    after = look(host, pid) if host.live else before
    twice = host.live and not (before.at and before.at == after.at)  # a recording may hold one look only
    if twice and _ended_meanwhile(host, stat, after, gathered):
        return
    subject.pids |= set(before.family) | set(after.family)
    gathered.facts.append(process_fact(view, now=now, boot=boot, ticks=TICKS))
    still = _waiting_threads(host, stat) if twice and threads else threads
    _threads(host, view, {p: s for p, s in threads.items() if p in still}, gathered, now=now, boot=boot)
    _relatives(host, before, after, gathered, now=now, boot=boot)
    _gpus(host, gathered, before.family, fields, places, kernel_thread=bool(stat.flags & _KERNEL_THREAD))
    if twice:
        add_progress(before, after, after.at - before.at if before.at else host.clock() - now, fields, places)
    frozen = _frozen(host, paths)
    if frozen:
        fields["frozen"] = True
        places["frozen"] = frozen
    reading = ("py-spy", "dump", "--nonblocking", "--pid", str(pid))  # else it would stop the process while it reads
    answer = host.command(*reading, deadline=_PY_SPY_DEADLINE, most=1 << 20)
    gathered.text(" ".join(reading), answer, "stacks")
    if (absent(answer) or answer.why == NOT_ASKED) and view.command and "python" in view.command:
        gathered.want("stacks")
    gathered.fact("asked_process", str(pid), fields, f"/proc/{pid}", places)
    _say(view, fields, gathered)


def _ended_meanwhile(host: Asked, stat: Stat, after: Seen, gathered: Gathered) -> bool:
    """The process died between the two looks: then that is told, and nothing of how it lived."""
    pid, subject, now = stat.pid, gathered.subject, after.stats.get(stat.pid)
    if after.unread or (now is not None and now.start == stat.start and now.state not in ("Z", "X")):
        return False
    subject.alive, subject.gone, subject.existed = False, True, True
    subject.ended = host.clock()
    if now is not None and now.start == stat.start:
        _zombie(host, now, "", gathered)
        return True
    gathered.words.append(("ended_now", {"pid": pid, "name": stat.name}))
    place = {"": f"/proc/{pid} ({stat.name}) was there, and a second later it was not"}
    gathered.fact("asked_process", str(pid), {"pid": pid, "gone": True, "existed": True}, "/proc", place)
    return True


def record_processes(host: Asked) -> None:
    """Asks for what a question about any process needs, twice where counters are compared; so that a recording can answer it."""
    if not host.live:
        return
    answers = host.files(STATS, 2048)
    host.files(IO, 1024)
    stats = [s for a in answers.values() if a.ok and (s := parse_stat(a.text)) is not None]
    for name in ("status", "wchan", "cgroup", "cmdline"):
        host.files(f"/proc/[0-9]*/{name}", 1 << 14)
    told = [s for s in stats if not s.flags & _KERNEL_THREAD and (s.state in "DTt" or _MAY_USE_GPUS.search(s.name))]
    for stat in told[:_MOST_LOOKED_INTO]:
        host.links(f"/proc/{stat.pid}/fd/*")
        _waiting_threads(host, stat)
        for name in ("limits", "stack", "syscall"):
            host.file(f"/proc/{stat.pid}/{name}", 1 << 16)
    host.files("/proc/driver/nvidia/gpus/*/information", 4096)
    host.wait(SAMPLE_S)
    host.files(STATS, 2048)
    host.files(IO, 1024)


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


def _waiting_threads(host: Asked, stat: Stat) -> dict[str, Stat]:
    """Path -> stat of the threads in uninterruptible sleep, where the first thread is not."""
    if stat.threads <= 1 or stat.state == "D":
        return {}
    answers = list(host.files(f"/proc/{stat.pid}/task/*/stat", 2048).items())[:_MOST_THREADS]
    found = {path: told for path, answer in answers if answer.ok and (told := parse_stat(answer.text)) is not None}
    return {path: told for path, told in found.items() if told.state == "D" and told.pid != stat.pid}


def _threads(host: Asked, view: View, threads: dict[str, Stat], gathered: Gathered, *, now: float, boot: float) -> None:
    """Threads that waited uninterruptibly in both looks: each kind of wait once."""
    waits: set[str] = set()
    for path, stat in threads.items():
        wchan = host.file(path.removesuffix("stat") + "wchan", 256).line
        if wchan not in waits:
            waits.add(wchan)
            own = stat._replace(pid=view.stat.pid)
            thread = View(own, path, "", command=view.command, wchan=wchan, user=view.user)
            gathered.facts.append(process_fact(thread, now=now, boot=boot, ticks=TICKS))


def _relatives(host: Asked, before: Seen, after: Seen, gathered: Gathered, *, now: float, boot: float) -> None:
    """Descendants that waited uninterruptibly or were stopped in both looks, or are dead and not collected."""
    for member in before.family[1:200]:
        stat, later = before.stats.get(member), after.stats.get(member)
        if stat is None or stat.state not in ("D", "T", "t", "Z"):
            continue
        if stat.state == "Z":
            place = Where(
                f"/proc/{member}/stat", 1, f"child {member} ({stat.name}) state Z, wait status {stat.wait_status}"
            )
            if stat.wait_status:
                gathered.facts.append(death_fact(member, stat.wait_status, "/proc", place, name=stat.name, child=True))
            continue
        if later is None or (later.state, later.start) != (stat.state, stat.start):
            continue  # every disk access is such a wait for a moment
        wchan = host.file(f"/proc/{member}/wchan", 256).line
        command = command_line(host.file(f"/proc/{member}/cmdline", 1 << 14).data)
        view = View(stat, f"/proc/{member}/stat", "", command=command, wchan=wchan)
        gathered.facts.append(process_fact(view, now=now, boot=boot, ticks=TICKS))


def _waiting(host: Asked, view: View, call: str | None, on: int | None) -> tuple[dict[str, Scalar], dict[str, str]]:
    """What the process waits for, each with the line of /proc that shows it."""
    stat, pid = view.stat, view.stat.pid
    wchan = view.wchan if view.wchan not in ("", "0") else None
    tracer = view.status.get("TracerPid", "0")
    fields: dict[str, Scalar] = {
        "pid": pid, "name": stat.name, "state": stat.state, "wchan": wchan, "call": call, "threads": stat.threads,
        "stopped": stat.state == "T", "traced": stat.state == "t", "tracer": digits(tracer) or None,
        "zombie": False, "gone": False, "python": "python" in view.command, "command": view.command[:200] or stat.name,
    }  # fmt: skip
    state = f"{stat.state} ({STATES.get(stat.state, '?')})"
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


def _gpus(
    host: Asked, gathered: Gathered, family: list[int], fields: dict[str, Scalar], places: dict[str, str], *, kernel_thread: bool
) -> None:  # fmt: skip
    """The GPUs that the family holds: how busy, and how much of their power they draw."""
    if kernel_thread:
        gathered.subject.uses_gpu = None if _OF_THE_DRIVER.search(str(fields.get("name"))) else False
        return
    facts = gpu_facts(host, gathered)
    mine = [f for f in facts if f.kind == "gpu_process" and f.fields.get("pid") in gathered.subject.pids]
    _holds(host, gathered.subject, family, facts, mine)
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


def _holds(host: Asked, subject: Subject, family: list[int], facts: list[Fact], mine: list[Fact]) -> None:
    """Whether the family holds GPUs and which: by NVML, and by the device files that it has open."""
    subject.gpus |= {str(f.fields["bus_id"]) for f in mine if f.fields.get("bus_id")}
    minors: set[str] = set()
    opened = unseen = False
    for member in family[:_MOST_LOOKED_INTO]:
        targets = set(host.links(f"/proc/{member}/fd/*").values())
        unseen = unseen or not targets
        opened = opened or any(_DEVICE.match(target) for target in targets)
        minors |= {found[1] for target in targets if (found := _DEVICE.match(target)) and found[1].isdecimal()}
    if minors:
        for path, answer in host.files("/proc/driver/nvidia/gpus/*/information", 4096).items():
            minor = re.search(r"^Device Minor:\s*(\d+)", answer.text, re.MULTILINE)
            if minor is not None and minor[1] in minors:
                subject.gpus.add(path.split("/")[5].lower())
    told = any(f.kind == "nvml" and f.fields.get("reason") == "ok" for f in facts)
    subject.uses_gpu = True if mine or opened else None if unseen and not told else False


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
        "pid": stat.pid, "name": stat.name, "state": f"{stat.state} ({STATES.get(stat.state, '?')})",
        "cpu": f"{100 * share:.0f}" if isinstance(share, float) else "?",
    }  # fmt: skip
    sentence = "running"
    if isinstance(busy, (int, float)):
        sentence = "running_gpu"
        values |= {"gpu": f"{busy:.0f}"}
    if wait := fields.get("wchan") or fields.get("call"):
        sentence += "_waits"
        values |= {"wait": str(wait)}
    gathered.words.append((sentence, values))
