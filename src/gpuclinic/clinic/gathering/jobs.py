"""A job by its name: what Slurm, systemd, the container runtime or Kubernetes recorded of it, if they answer in time."""

from __future__ import annotations

import datetime as dt
import json
import re
from typing import TYPE_CHECKING

import msgspec

from gpuclinic.clinic.gathering._gathered import MOST_TEXT, absent
from gpuclinic.model import Stamp, UserError, Where, digits
from gpuclinic.recognise.one_process import death_fact

if TYPE_CHECKING:
    from gpuclinic.clinic.gathering._gathered import Gathered
    from gpuclinic.clinic.gathering._question import Job, Question
    from gpuclinic.observe.asking import Answer, Asked

DEADLINE = 4.0
_SACCT = "JobID,JobName,User,Partition,State,ExitCode,Reason,Elapsed,Timelimit,MaxRSS,ReqMem,Start,End,NodeList"
_UNIT_FIELDS = (
    "Id,LoadState,ActiveState,SubState,Result,ExecMainCode,ExecMainStatus,ExecMainPID,MainPID,NRestarts,MemoryPeak,MemoryMax,MemoryCurrent,"
    "ControlGroup,ExecMainStartTimestamp,ExecMainExitTimestamp,OOMPolicy"
)  # fmt: skip
_SLURM_LOGS = (
    "/var/log/slurm/slurmd.log",
    "/var/log/slurmd.log",
    "/var/log/slurm/slurmctld.log",
    "/var/log/slurm-llnl/slurmd.log",
    "/var/log/slurmctld.log",
)
_SLURM_CGROUPS = (
    "/sys/fs/cgroup/system.slice/slurmstepd.scope/job_{id}", "/sys/fs/cgroup/system.slice/*_slurmstepd.scope/job_{id}",
    "/sys/fs/cgroup/memory/slurm/uid_*/job_{id}", "/sys/fs/cgroup/memory/slurm_*/uid_*/job_{id}",
)  # fmt: skip
_CONTAINER = re.compile(r"(?:docker|libpod|cri-containerd|crio|containerd)[-/:]([0-9a-f]{64})")


def commands(question: Question, since: float) -> list[tuple[str, ...]]:
    """The programs that will be asked."""
    job = question.job
    if job is None:
        return (
            [_failed_units()]
            if question.pid is not None
            else [_failed_units(), _docker_events(since, question.until), *_recent_jobs(question, since)]
        )
    return [argv for argv, _, _ in _asked(job, since, question.until)]


def _failed_units() -> tuple[str, ...]:
    return ("systemctl", "show", "*", "--type=service", "--state=failed", "--no-pager", "-p", _UNIT_FIELDS)


def _docker_events(since: float, until: float | None, *more: str) -> tuple[str, ...]:
    stop = ("--until", f"{until:.0f}") if until is not None else ("--until", "0s")
    return ("docker", "events", "--since", f"{since:.0f}", *stop, *more)


def _recent_jobs(question: Question, since: float) -> list[tuple[str, ...]]:
    start = dt.datetime.fromtimestamp(since).strftime("%Y-%m-%dT%H:%M:%S")  # noqa: DTZ006 - sacct takes local time
    who = ("-u", str(question.uid)) if question.uid is not None else ("-a",)
    return [("sacct", "-X", "-p", *who, "-S", start, "-s", "F,TO,OOM,NF,PR,CA", "-o", _SACCT)]


def _asked(job: Job, since: float, until: float | None) -> list[tuple[tuple[str, ...], str, str]]:
    """(command, text as shown or "" for those whose answer is taken apart here, record that a refusal hides)."""
    name = job.name
    if job.kind == "slurm":
        return [
            (("sacct", "-j", name, "-p", "-o", _SACCT), f"sacct -j {name}", "scheduler"),
            (("scontrol", "show", "job", job.slurm_id), f"scontrol show job {job.slurm_id}", "scheduler"),
            (("scontrol", "listpids", job.slurm_id), "", ""),
        ]
    if job.kind == "pod":
        at = ("-n", job.namespace, "--request-timeout=3s")
        return [
            (("kubectl", "describe", "pod", name, *at), f"kubectl describe pod {name}", "kubernetes"),
            (
                ("kubectl", "logs", name, *at, "--all-containers", "--tail=3000", "--previous"),
                f"kubectl logs {name} --previous",
                "",
            ),
            (("kubectl", "logs", name, *at, "--all-containers", "--tail=3000"), f"kubectl logs {name}", ""),
            (("crictl", "ps", "-a"), "crictl ps -a", ""),
        ]
    found: list[tuple[tuple[str, ...], str, str]] = []
    if job.kind in ("unit", "name"):
        unit = name if "." in name else f"{name}.service"
        found += [
            (("systemctl", "show", unit, "--no-pager", "-p", _UNIT_FIELDS), "", ""),
            (("systemctl", "--user", "show", unit, "--no-pager", "-p", _UNIT_FIELDS), "", ""),
        ]
    if job.kind in ("container", "name"):
        found += [
            (("docker", "inspect", "--type=container", name), "", "containers"),
            (("podman", "inspect", "--type=container", name), "", ""),
            (("docker", "logs", "--tail", "3000", name), f"docker logs {name}", ""),
            (("podman", "logs", "--tail", "3000", name), f"podman logs {name}", ""),
            (_docker_events(since, until, "--filter", f"container={name}"), f"docker events container={name}", ""),
        ]
        if job.kind == "container":
            found.append((("crictl", "inspect", name), "", ""))
    return found


def gather_job(host: Asked, job: Job, gathered: Gathered, since: float, until: float | None) -> None:
    """Everything that the job's keeper tells; the subject learns its pids, cgroups, units and times."""
    subject = gathered.subject
    known = False
    for argv, shown, record in _asked(job, since, until):
        answer = host.command(*argv, deadline=DEADLINE, most=MOST_TEXT)
        if not answer.ok:
            if _unknown(answer):
                continue
            if not absent(answer):
                gathered.refused(" ".join(argv[:3]), answer.why or "no answer", record)
            continue
        known = _take(host, job, argv, answer, gathered, since) or known
        if shown:
            gathered.text(shown, answer)
    if job.kind == "slurm":
        subject.jobs.add(job.slurm_id.lower())
        _slurm_files(host, job, gathered)
    elif job.kind in ("container", "pod"):
        subject.containers.add(job.name.lower())
    elif job.kind == "unit":
        subject.units.add((job.name if "." in job.name else f"{job.name}.service").lower())
    if not known and job.kind == "name":
        subject.units.add(f"{job.name}.service".lower())
        subject.containers.add(job.name.lower())
    subject.job_known = known or bool(subject.cgroups)
    if not known:
        gathered.words.append(("job_unknown", {"job": job.shown}))
        gathered.want({"slurm": "scheduler", "pod": "kubernetes"}.get(job.kind, "containers"))


def gather_recent_jobs(host: Asked, question: Question, gathered: Gathered, since: float) -> None:
    """Units that failed, containers that died, jobs that ended badly, within the time that is asked about."""
    _units(host, gathered, since)
    for argv in [_docker_events(since, question.until), *_recent_jobs(question, since)]:
        answer = host.command(*argv, deadline=DEADLINE, most=MOST_TEXT)
        if answer.ok and answer.data.strip():
            gathered.texts.append((" ".join(argv[:2]), answer.data))
        elif not answer.ok and "answer within" in (answer.why or ""):
            gathered.refused(" ".join(argv[:2]), answer.why or "")


def gather_owner(host: Asked, gathered: Gathered, since: float) -> None:
    """What keeps the process that is asked about: its container or unit by its cgroup, or the failed unit whose main process it was."""
    subject = gathered.subject
    containers = {found[1] for path in subject.cgroups if (found := _CONTAINER.search(path))}
    subject.containers |= containers
    subject.jobs |= {found[1] for path in subject.cgroups if (found := re.search(r"/job_(\d+)(?:/|$)", path))}
    for name in sorted(containers)[:1]:
        for argv in (
            ("docker", "inspect", "--type=container", name),
            ("podman", "inspect", "--type=container", name),
            ("crictl", "inspect", name),
        ):
            answer = host.command(*argv, deadline=DEADLINE, most=MOST_TEXT)
            if answer.ok and _inspected(answer, gathered, " ".join(argv[:2])):
                break
    for number in sorted(subject.jobs)[:1]:
        answer = host.command("sacct", "-j", number, "-p", "-o", _SACCT, deadline=DEADLINE)
        if answer.ok:
            gathered.text(f"sacct -j {number}", answer)
    if subject.gone:
        _units(host, gathered, since)


def _unknown(answer: Answer) -> bool:
    """The keeper answered that it has no such thing."""
    return (
        re.search(
            r"[Nn]o such (?:object|container|pod)|not found|could not be found|[Ii]nvalid job id|NotFound|No such container",
            answer.why or "",
        )
        is not None
    )


def _take(host: Asked, job: Job, argv: tuple[str, ...], answer: Answer, gathered: Gathered, since: float) -> bool:
    """Takes an answer apart; True where it knows the job."""
    program = argv[0]
    if program == "systemctl":
        known = [_unit(block, " ".join(argv[:3]), gathered, since=None) for block in _blocks(answer.text)]
        return any(known)
    if argv[1:2] == ("inspect",):
        return _inspected(answer, gathered, " ".join(argv[:2]))
    if program == "sacct":
        return _accounted(answer.text, gathered)
    if argv[1:2] == ("listpids",):
        gathered.subject.pids |= {n for line in answer.lines()[1:] if (n := digits(line.split()[0])) is not None}
        return False
    del host, since
    return job.kind in ("slurm", "pod") and bool(answer.data.strip()) and argv[1] in ("show", "describe")


# --- systemd


def _units(host: Asked, gathered: Gathered, since: float) -> None:
    answer = host.command(*_failed_units(), deadline=DEADLINE)
    if answer.ok:
        for block in _blocks(answer.text):
            _unit(block, "systemctl show", gathered, since=since)
    elif "answer within" in (answer.why or ""):
        gathered.refused("systemctl show", answer.why or "")


def _blocks(text: str) -> list[dict[str, str]]:
    """`systemctl show` separates units by empty lines."""
    blocks = [
        dict(line.partition("=")[::2] for line in part.splitlines() if "=" in line)
        for part in re.split(r"\n\s*\n", text)
    ]
    return [block for block in blocks if block.get("Id")]


def _unit(block: dict[str, str], source: str, gathered: Gathered, since: float | None) -> bool:
    """The main process's end as a fact. since: take only what ended later, and of an asked process only its own unit; None: take it all."""
    subject = gathered.subject
    if block.get("LoadState") == "not-found":
        return False
    pid = digits(block.get("ExecMainPID")) or 0
    ended = _unit_time(block.get("ExecMainExitTimestamp", ""), subject.offset)
    if since is not None and (
        (subject.pid is not None and pid not in subject.pids) or (ended is not None and ended < since)
    ):
        return False
    subject.units.add(block["Id"].lower())
    if len(block.get("ControlGroup", "")) > 1:
        subject.cgroups.add(block["ControlGroup"].lower())
    running = block.get("MainPID", "0")
    code, status = block.get("ExecMainCode", "0"), block.get("ExecMainStatus", "")
    subject.pids |= {n for n in (digits(running),) if n}
    if since is None and subject.asked == "job":
        subject.began = _unit_time(block.get("ExecMainStartTimestamp", ""), subject.offset)
        subject.ended = ended if running == "0" else None
    number = digits(status)
    if pid and code in ("1", "2", "3") and number is not None and running == "0":
        if subject.asked == "job":
            subject.pids.add(pid)
        peak, most = digits(block.get("MemoryPeak")), digits(block.get("MemoryMax"))
        text = " ".join(
            f"{k}={block[k]}"
            for k in (
                "Id",
                "Result",
                "ExecMainCode",
                "ExecMainStatus",
                "ExecMainPID",
                "MemoryPeak",
                "MemoryMax",
                "ExecMainExitTimestamp",
            )
            if k in block
        )
        fact = death_fact(
            pid, None, "systemd", Where(source, None, text[:500]), signal=number if code in ("2", "3") else None,
            exit_code=number if code == "1" else None, unit=block["Id"], result=block.get("Result"),
            memory_peak_mib=None if peak is None else peak / 1048576, memory_limit_mib=None if most is None else most / 1048576,
        )  # fmt: skip
        gathered.facts.append(
            msgspec.structs.replace(fact, time=Stamp(ended, zoned=True)) if ended is not None else fact
        )
    return True


def _unit_time(text: str, offset: float) -> float | None:
    """Unix seconds of "Mon 2026-03-02 04:11:09 UTC"; the zone's name is the machine's own, whose offset is known."""
    found = re.search(r"(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d)", text)
    if found is None:
        return None
    return dt.datetime.fromisoformat(f"{found[1]}T{found[2]}+00:00").timestamp() - (
        0.0 if text.endswith(("UTC", "GMT")) else offset
    )


# --- containers


def _inspected(answer: Answer, gathered: Gathered, source: str) -> bool:
    """The container's own record as a text for its parser; the subject learns its id and when it ended."""
    try:
        rows = json.loads(answer.data)
    except (ValueError, RecursionError):
        return False
    row = rows[0] if isinstance(rows, list) and rows else rows
    if not isinstance(row, dict) or not (row.get("Id") or row.get("status")):
        return False
    subject = gathered.subject
    told = row.get("State")
    state: dict[str, object] = told if isinstance(told, dict) else {}
    for name in (row.get("Id"), row.get("Name")):
        if isinstance(name, str) and name:
            subject.containers.add(name.lower().lstrip("/"))
    pid = state.get("Pid")
    if isinstance(pid, int) and pid > 0 and subject.asked == "job":
        subject.pids.add(pid)
    if subject.asked == "job":
        subject.began, ended = _iso(state.get("StartedAt")), _iso(state.get("FinishedAt"))
        subject.ended = ended if not state.get("Running") else None
    gathered.texts.append((source, answer.data))
    return True


def _iso(text: object) -> float | None:
    """Unix seconds of a container runtime's time; None for the zero time of those that never ended."""
    found = (
        re.match(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.\d+)?(Z|[+-]\d\d:\d\d)", text)
        if isinstance(text, str)
        else None
    )
    if found is None or found[1].startswith("0001"):
        return None
    return dt.datetime.fromisoformat(found[1] + found[2].replace("Z", "+00:00")).timestamp()


# --- Slurm


def _accounted(text: str, gathered: Gathered) -> bool:
    """Start and end of the job from `sacct -p`; its times are local."""
    lines = text.splitlines()
    head = lines[0].split("|") if lines else []
    known = False
    for line in lines[1:]:
        row = dict(zip(head, line.split("|"), strict=False))
        if not row.get("JobID"):
            continue
        known = True
        subject = gathered.subject
        if "." not in row["JobID"]:
            subject.began, subject.ended = (
                _local(row.get("Start"), subject.offset),
                _local(row.get("End"), subject.offset),
            )
    return known


def _local(text: str | None, offset: float) -> float | None:
    try:
        return dt.datetime.fromisoformat(f"{text}+00:00").timestamp() - offset
    except ValueError:
        return None


def _slurm_files(host: Asked, job: Job, gathered: Gathered) -> None:
    """The daemons' logs about the job, the job's own output, and its cgroup's files."""
    number = re.match(r"\d+", job.slurm_id)
    if number is None:
        raise UserError(f"--job: no Slurm id: {job.name}")
    for path in _SLURM_LOGS:
        answer = host.file(path, MOST_TEXT, end=True)
        if answer.ok and answer.data:
            kept = [
                line
                for line in answer.text.splitlines()
                if re.search(rf"(?<!\d){number[0]}(?!\d)", line) or "error" in line
            ]
            gathered.texts.append((path, ("\n".join(kept[-4000:]) + "\n").encode()))
        elif not absent(answer):
            gathered.refused(path, answer.why or "no answer", "scheduler")
    told = next(
        (data.decode("utf-8", "replace") for name, data in gathered.texts if name.startswith("scontrol show job")), ""
    )
    for path in dict.fromkeys(re.findall(r"^\s*Std(?:Out|Err)=(/\S+)", told, re.MULTILINE)):
        if gathered.text(path, host.file(path, MOST_TEXT, end=True)):
            gathered.subject.mine.add(path)
    for pattern in _SLURM_CGROUPS:
        for path, answer in host.files(pattern.format(id=number[0]) + "/cgroup.procs").items():
            if not answer.ok:
                continue
            gathered.subject.cgroups.add(re.sub(r"^/sys/fs/cgroup(?:/memory)?", "", path.removesuffix("/cgroup.procs")))
