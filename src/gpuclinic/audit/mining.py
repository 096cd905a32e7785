"""Mining: command lines, programs in odd places, configuration files, connections to pools."""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING

from gpuclinic.audit.hits import Hit
from gpuclinic.audit.miner_words import ENOUGH, Score, base_name, miner_config, score_arguments
from gpuclinic.audit.places import in_system_place, odd_place
from gpuclinic.audit.refs import file_ref, pid_ref, unit_ref
from gpuclinic.audit.sockets import ESTABLISHED, is_own, is_private
from gpuclinic.knowledge.audit_words import is_pool, words

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuclinic.audit.scene import Process, Scene
    from gpuclinic.model import Scalar, Where

_MOST_CONFIG = 1 << 16
_MANY_IN = re.compile(
    r"^(?:cron|crond|ssh|sshd|atd|user@\d+|x|docker|containerd|slurmd|getty@\w+|session-\w+|dbus|init|rc-local|supervisor|kubelet)\.service$"
)
"""Units that start programs of many; to be in one of them links nobody."""
_CONFIG_OPTION = re.compile(r"^(?:-c|--config|-config|--conf|-f|--config-file)$")
_CONFIG_NAMES = (
    "config.json",
    "config.txt",
    "pools.txt",
    "config.ini",
    "xmrig.json",
    "miner.conf",
    "cpu.txt",
    "start.sh",
    "mine.sh",
    ".env",
)
_SEARCHED = (
    "/tmp",
    "/var/tmp",
    "/dev/shm",
    "/root",
    "/home",
    "/opt",
    "/usr/local",
    "/var/lib",
    "/srv",
    "/etc",
    "/usr/lib",
    "/var/www",
)
"""Where files of miners are looked for by name; nothing is opened but small text files of the names below."""
_NAMED_FILES = [
    "xmrig",
    "xmrig.json",
    "config.json",
    "pools.txt",
    "t-rex",
    "lolMiner",
    "nbminer",
    "gminer",
    "rigel",
    "SRBMiner-MULTI",
    "nanominer",
    "PhoenixMiner",
    "teamredminer",
    "bzminer",
    "onezerominer",
    "kdevtmpfsi",
    "kinsing",
]


def subject_of(process: Process) -> str:
    """How a person names a process."""
    return f"pid {process.pid} ({process.comm or base_name(process.argv[0] if process.argv else '') or '?'})"


def refs_of(process: Process) -> frozenset[str]:
    """Links of a process: itself, its program, a script or program that its command line names by path."""
    paths = [process.exe] if process.exe and not _shared_program(process.exe) else []
    cwd = process.cwd or ""
    for word in process.argv[:4]:
        if word.startswith("/"):
            paths.append(word)
        elif word.startswith("./") and cwd.startswith("/"):
            paths.append(posixpath.join(cwd, word))
    unit = re.search(r"/([\w@.:-]+\.service)(?:/|$)", process.cgroup or "")
    units = [unit_ref(unit[1])] if unit and not _MANY_IN.match(unit[1]) else []
    return frozenset({pid_ref(process.pid), *units, *(file_ref(p) for p in paths if not _shared_program(p))})


def _shared_program(path: str) -> bool:
    """What a package ships for all links nobody to anybody."""
    return in_system_place(path)


def in_a_job(process: Process) -> bool:
    """A scheduler or a container runtime started it."""
    group = process.cgroup or ""
    return bool(
        any(name in (process.variables or {}) for name in words().job_variables)
        or re.search(r"/slurm|/job_\d|kubepods|/docker[-/]|libpod|cri-containerd|/lxc|htcondor|/pbs", group)
    )


def command_lines(scene: Scene) -> list[Hit]:
    """miner_cmdline, miner_process, miner_config of a process, pool_connection."""
    out: list[Hit] = []
    for process in scene.processes.values():
        if process.kernel_thread and not process.argv:
            continue
        score = score_arguments(process.argv, process.exe or "")
        for line in _handed_over(process):
            more = score_arguments(line, "")
            score = more if more.points > score.points else score
        config = _config_of(scene, process)
        named = _known(process, score)
        refs = refs_of(process)
        if score.points >= ENOUGH:
            out.append(
                Hit(id="miner_cmdline", subject=subject_of(process), refs=refs, pid=process.pid, kind="argv",
                    evidence=[process.at("cmdline", process.shown())], values={"pid": process.pid, "why": ", ".join(score.why)})
            )  # fmt: skip
        if config is not None:
            path, why, text = config
            out.append(
                Hit(id="miner_config", subject=path, refs=refs | {file_ref(path)}, pid=process.pid,
                    evidence=[text], values={"path": path, "why": ", ".join(why)})
            )  # fmt: skip
        if score.points >= ENOUGH or config is not None or named:
            reason = named or (
                ", ".join(score.why) if score.points >= ENOUGH else f"its configuration {config[0]}" if config else ""
            )
            kind = "argv" if score.points >= ENOUGH or named else "config"
            evidence = [process.at("cmdline", process.shown() or process.comm)]
            if process.exe:
                evidence.append(process.at("exe", process.exe + (" (deleted)" if process.deleted else "")))
            out.append(
                Hit(id="miner_process", subject=subject_of(process), refs=refs, pid=process.pid, kind=kind, evidence=evidence,
                    values={"pid": process.pid, "why": reason, "user": _user(scene, process)})
            )  # fmt: skip
            if config is not None:
                score.ports += _ports(scene, config[0])
            out += _connections(scene, process, score, refs)
    return out


def _ports(scene: Scene, path: str) -> list[int]:
    """Ports of the pools that a configuration names."""
    text = scene.text(path, "audit.mining", _MOST_CONFIG)
    found = re.findall(r"[\w.-]{3,200}:(\d{2,5})(?=[\"'/\s,]|$)", text.text) if text is not None else []
    return [int(number) for number in found[:50]]


def _handed_over(process: Process) -> list[list[str]]:
    """Command lines inside of one: `sh -c "..."`, and a value that holds a whole line."""
    lines = [word for word in process.argv[1:12] if " " in word and len(word) < 4000]
    return [piece.split() for line in lines for piece in re.split(r"[;&|]{1,2}", line)]


def _known(process: Process, score: Score) -> str | None:
    """The name of a program that does nothing but mine, where file, name and arguments do not speak against it."""
    if base_name(process.argv[0] if process.argv else "") in words().mentions:
        return None
    exe = base_name(process.exe or "")
    first = base_name(process.argv[0]) if process.argv else ""
    comm = process.comm.lower()
    script = (
        base_name(process.argv[1])
        if len(process.argv) > 1 and re.match(r"^(?:python|perl|bash|sh|node)", exe or first)
        else ""
    )
    for name in (
        exe,
        first,
        score.known,
        comm if comm == exe or not exe else "",
        script if "/" in (process.argv[1:2] or [""])[0] else "",
    ):
        if name and name in words().programs:
            return name
    return None


def _user(scene: Scene, process: Process) -> str:
    return next(
        (a.name for a in scene.accounts if a.uid == process.uid),
        f"uid {process.uid}" if process.uid is not None else "?",
    )


def _config_of(scene: Scene, process: Process) -> tuple[str, list[str], Where] | None:
    """A miner's configuration that a process names, has open, or that lies beside its program."""
    paths = [v for o, v in zip(process.argv, process.argv[1:], strict=False) if _CONFIG_OPTION.match(o)]
    paths += [w.partition("=")[2] for w in process.argv if w.startswith(("--config=", "-c="))]
    paths += [
        t
        for t in (process.files or {}).values()
        if t.startswith("/") and t.endswith((".json", ".txt", ".conf", ".ini"))
    ]
    exe = process.exe or ""
    if (
        exe.startswith("/")
        and not in_system_place(exe)
        and not re.search(r"/(?:python|node|java|ruby|perl)[\d.]*$", exe)
    ):
        paths += [posixpath.join(posixpath.dirname(exe), name) for name in _CONFIG_NAMES]
    cwd = process.cwd or ""
    for path in dict.fromkeys(paths[:24]):
        full = path if path.startswith("/") else posixpath.join(cwd, path) if cwd.startswith("/") else ""
        text = scene.text(posixpath.normpath(full), "audit.mining", _MOST_CONFIG) if full else None
        if text is not None and not text.cut and (why := miner_config(text.text)):
            return text.path, why, text.at(first_sign(text.lines()))
    return None


def first_sign(lines: list[str]) -> int:
    """The index of the first telling line of a configuration."""
    return next((n for n, line in enumerate(lines) if re.search(r"\"?(?:url|pool|algo)\"?\s*[:=]|stratum", line)), 0)


def _connections(scene: Scene, process: Process, score: Score, refs: frozenset[str]) -> list[Hit]:
    """Connections of a process that mines; strong where the port is the one that its command line names."""
    own = [s for s in scene.sockets if s.state == ESTABLISHED and s.pid == process.pid and not is_own(s.remote[0])]
    fits = [s for s in own if s.remote[1] in score.ports] or [s for s in own if not is_private(s.remote[0])]
    if not fits:
        return []
    first = fits[0]
    return [
        Hit(id="pool_connection", subject=subject_of(process), refs=refs, pid=process.pid, kind="socket",
            grade=None if first.remote[1] in score.ports else "medium", evidence=[s.where for s in fits[:3]],
            values={"pid": process.pid, "remote": f"{first.remote[0]}:{first.remote[1]}"})
    ]  # fmt: skip


def named_pools(scene: Scene) -> list[Hit]:
    """Connections to an address that /etc/hosts calls a pool."""
    hosts = scene.text("/etc/hosts")
    out = []
    for index, line in enumerate(hosts.lines() if hosts else ()):
        cells = line.partition("#")[0].split()
        pool = next((name for name in cells[1:] if is_pool(name)), None)
        if pool is None or is_own(cells[0]) or cells[0] == "0.0.0.0":
            continue
        for one in scene.sockets:
            if one.state == ESTABLISHED and one.remote[0] == cells[0]:
                process = scene.processes.get(one.pid or -1)
                refs = refs_of(process) if process else frozenset[str]()
                out.append(
                    Hit(id="pool_connection", subject=subject_of(process) if process else pool, refs=refs, pid=one.pid, kind="socket",
                        evidence=[one.where, hosts.at(index)] if hosts else [one.where],
                        values={"pid": one.pid, "remote": f"{pool}:{one.remote[1]}"})
                )  # fmt: skip
    return out


def odd_programs(scene: Scene) -> list[Hit]:
    """exe_deleted_tmp, exe_hidden_path."""
    out = []
    gpu_pids = {one.pid for one in scene.gpu_processes}
    for process in scene.processes.values():
        exe = process.exe
        place = odd_place(exe) if exe else None
        if (
            exe
            and exe.startswith("/memfd:")
            and process.pid in gpu_pids
            and not re.search(r"runc|crun|youki|systemd", exe)
        ):
            place = "hidden"  # a program that never was a file, and computes on a GPU
        if not exe or place is None or in_a_job(process) or scene.packages.owner(exe):
            continue
        refs = refs_of(process)
        evidence = [
            process.at("exe", exe + (" (deleted)" if process.deleted else "")),
            process.at("cmdline", process.shown() or process.comm),
        ]
        values: dict[str, Scalar] = {"pid": process.pid, "path": exe, "user": _user(scene, process)}
        lives_on = process.task is None or process.task.ppid == 1 or process.pid in gpu_pids
        if process.deleted:
            out.append(
                Hit(id="exe_deleted_tmp", subject=subject_of(process), refs=refs, pid=process.pid, kind="place", evidence=evidence, values=values,
                    grade=None if place == "hidden" or lives_on else "medium")
            )  # fmt: skip
        elif place == "hidden" or process.pid in gpu_pids or lives_on:
            out.append(
                Hit(id="exe_hidden_path", subject=subject_of(process), refs=refs, pid=process.pid, kind="place", evidence=evidence, values=values,
                    grade="strong" if place == "hidden" and process.pid in gpu_pids else None)
            )  # fmt: skip
    return out


def files_left(scene: Scene) -> list[Hit]:
    """Miners' programs and configurations on the disk, in places where programs are not kept; nobody need run them."""
    out: list[Hit] = []
    for start in _SEARCHED:
        told = scene.host.find(start, _NAMED_FILES, depth=4, most=3000, seconds=0.15).json()
        for path in [p for p in told.get("found", []) if isinstance(p, str)][:200]:
            name = path.rpartition("/")[2]
            if scene.packages.owner(path):
                continue
            if name.endswith((".json", ".txt")):
                text = scene.text(path, "audit.mining", _MOST_CONFIG)
                why = miner_config(text.text) if text is not None and not text.cut else []
                if text is not None and why:
                    out.append(
                        Hit(id="miner_config", subject=path, refs=frozenset({file_ref(path), file_ref(posixpath.dirname(path))}),
                            evidence=[text.at(first_sign(text.lines()))], values={"path": path, "why": ", ".join(why)})
                    )  # fmt: skip
            elif odd_place(path):
                out.append(
                    Hit(id="miner_process", subject=path, refs=frozenset({file_ref(path)}), kind="file", grade="strong" if odd_place(path) == "hidden" else "medium",
                        evidence=[scene.where(path, name)], values={"pid": None, "why": name, "user": "-"})
                )  # fmt: skip
    return _without_running(out, scene)


def _without_running(hits: list[Hit], scene: Scene) -> list[Hit]:
    """Files of programs that run are told with these already."""
    running = {ref for process in scene.processes.values() if process.exe for ref in refs_of(process)}
    return [hit for hit in hits if hit.id == "miner_config" or not hit.refs & running]


CHECKS: tuple[tuple[str, Callable[[Scene], list[Hit]]], ...] = (
    ("audit.mining", command_lines),
    ("audit.mining", named_pools),
    ("audit.programs", odd_programs),
    ("audit.mining", files_left),
)
