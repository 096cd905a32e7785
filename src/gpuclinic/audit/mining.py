"""Mining: command lines, programs in odd places, configuration files, connections to pools."""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING

from gpuclinic.audit.hits import Hit
from gpuclinic.audit.miner_config import best_line, miner_config
from gpuclinic.audit.miner_words import (
    ENOUGH,
    Score,
    base_name,
    decoded,
    is_miner_url,
    only_mentions,
    pieces,
    score_arguments,
)
from gpuclinic.audit.places import in_system_place, odd_place
from gpuclinic.audit.refs import file_ref, pid_ref, unit_ref
from gpuclinic.audit.scene import Text
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
_CONFIG_ENDS = (".json", ".txt", ".conf", ".ini", ".cfg", ".config", ".yaml", ".yml", ".env", ".jsonc")
_MOST_BESIDE = 24
_CODE = (".py", ".pl", ".rb", ".js", ".php", ".lua")
_SPAWNS = re.compile(
    r"(?:\b(?:Popen|system|call|check_call|check_output|run|spawn\w{0,10}|exec\w{0,10}|popen|create_subprocess_\w{4,5})|=)\s{0,3}[(\[]|^[^#]{0,200}`"
)
"""A line of another language than the shell's that starts a program; a line that only holds words is a test's or a rule's."""
_FIRST_PERSON = 1000
"""UID_MIN of login.defs: from here on accounts are people's, who compile in /tmp what they run and compile anew."""
_INTERPRETERS = re.compile(r"(?:^|/)(?:python|pypy|perl|ruby|node|lua|php|(?:ba|da|z|k|a|fi)?sh|busybox)[\d.]*$")


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
        if not (process.kernel_thread and not process.argv):
            out += _of_process(scene, process)
    return out


def _of_process(scene: Scene, process: Process) -> list[Hit]:
    score = _score(process)
    config = _config_of(scene, process)
    named = _known(process, score)
    told = [v for v in (process.variables or {}).values() if is_miner_url(v)] if _own(process) else []
    refs = refs_of(process)
    out: list[Hit] = []
    if score.points >= ENOUGH:
        out.append(
            Hit(id="miner_cmdline", subject=subject_of(process), refs=refs, pid=process.pid, kind="argv",
                evidence=[process.at("cmdline", process.shown())], values={"pid": process.pid, "why": ", ".join(score.why)})
        )  # fmt: skip
    if config is not None:
        path, why, place = config
        out.append(
            Hit(id="miner_config", subject=path, refs=refs | {file_ref(path)}, pid=process.pid,
                evidence=[place], values={"path": path, "why": ", ".join(why)})
        )  # fmt: skip
        score.ports += _ports(place.text)
    if not (score.points >= ENOUGH or config is not None or named or told):
        return out
    by_argv = score.points >= ENOUGH or named is not None
    reason = named or (
        ", ".join(score.why)
        if by_argv
        else f"its configuration {config[0]}"
        if config
        else f"its environment, {told[0][:60]}"
    )
    evidence = [process.at("cmdline", process.shown() or process.comm)]
    if told:
        evidence.append(process.at("environ", told[0]))
        score.ports += _ports(told[0])
    if process.exe:
        evidence.append(process.at("exe", process.exe + (" (deleted)" if process.deleted else "")))
    kind = "argv" if by_argv else "config" if config else "environment"
    out.append(
        Hit(id="miner_process", subject=subject_of(process), refs=refs, pid=process.pid, kind=kind, evidence=evidence,
            values={"pid": process.pid, "why": reason, "user": _user(scene, process)})
    )  # fmt: skip
    if config is not None:
        score.ports += _ports_in(scene, config[0])
    return [*out, *_connections(scene, process, score, refs)]


def _own(process: Process) -> bool:
    """A program of its own, not a shell or tool that only inherited an environment."""
    return bool(process.exe) and not _shared_program(process.exe or "")


def _score(process: Process) -> Score:
    """The best of a command line and of the lines that it hands to an interpreter, coded or not."""
    score = score_arguments(process.argv, process.exe or "")
    for word in process.argv[1:12]:
        if len(word) > _MOST_CONFIG:
            continue
        if word.lstrip()[:1] == "{" and (why := miner_config(word)):
            return Score(ENOUGH, why)
        for line in pieces(word) if " " in word else [piece for text in decoded(word) for piece in pieces(text)]:
            more = score_arguments(["x", *line])
            score = more if more.points > score.points else score
    return score


def _ports(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"[\w.-]{3,200}:(\d{2,5})(?=[\"'/\s,]|$)", text)[:50]]


def _ports_in(scene: Scene, path: str) -> list[int]:
    """Ports of the pools that a configuration names."""
    text = small_text(scene, path)
    return _ports(text.text) if text is not None else []


def small_text(scene: Scene, path: str) -> Text | None:
    """A small file of somebody's, that leads nowhere its owner could not read; None for what is large, or no text."""
    answer = scene.host.untrusted([path], _MOST_CONFIG).get(path)
    if answer is None or not answer.ok or answer.cut or b"\0" in answer.data[:512]:
        return None
    return Text(path, answer.data)


def _known(process: Process, score: Score) -> str | None:
    """The name of a program that does nothing but mine, where file, name and arguments do not speak against it."""
    if only_mentions(process.argv[:1], process.exe or ""):
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
        if name and name in words().programs and (name not in words().ambiguous_programs or score.points):
            return name
    return None


def _user(scene: Scene, process: Process) -> str:
    return next(
        (a.name for a in scene.accounts if a.uid == process.uid),
        f"uid {process.uid}" if process.uid is not None else "?",
    )


def _config_of(scene: Scene, process: Process) -> tuple[str, list[str], Where] | None:
    """A miner's configuration that a process names, has open, or that lies beside its program."""
    named = [v for o, v in zip(process.argv, process.argv[1:], strict=False) if _CONFIG_OPTION.match(o)]
    named += [w.partition("=")[2] for w in process.argv if w.startswith(("--config=", "-c="))]
    named += [w for w in process.argv[1:8] if w.endswith(_CONFIG_ENDS)]
    named += [t for t in (process.files or {}).values() if t.startswith("/") and t.endswith(_CONFIG_ENDS)]
    exe = process.exe or ""
    if exe.startswith("/") and not in_system_place(exe) and not _INTERPRETERS.search(exe):
        named += _beside(scene, posixpath.dirname(exe))
    for path in dict.fromkeys(named[:40]):
        text = _named_text(scene, process, path)
        if text is not None and not text.path.endswith(_CODE) and (why := miner_config(text.text)):
            return text.path, why, text.at(first_sign(text.lines()))
    return None


def scripts(scene: Scene) -> list[Hit]:
    """miner_config: a script that an interpreter runs, and in which a line starts a miner."""
    out: dict[str, Hit] = {}
    for process in scene.processes.values():
        program = process.exe or (process.argv[0] if process.argv else "")
        if not _INTERPRETERS.search(program):
            continue
        shell = re.search(r"(?:sh|busybox)[\d.]*$", program) is not None
        for word in [w for w in process.argv[1:4] if not w.startswith("-") and " " not in w][:1]:
            text = _named_text(scene, process, word)
            told = miner_config(text.text) if shell and text is not None else []
            if text is not None and told:
                out.setdefault(text.path, _script(process, text, first_sign(text.lines()), told))
            for index, line in enumerate(text.lines()[:2000] if text is not None and text.path not in out else ()):
                bare = line.strip()
                if bare.startswith(("#", "//")) or len(bare) > 4000 or not (shell or _SPAWNS.search(bare)):
                    continue
                found = best_line(bare)
                if found is not None and text is not None:
                    out[text.path] = _script(process, text, index, found.why)
                    break
    return list(out.values())


def _script(process: Process, text: Text, index: int, why: list[str]) -> Hit:
    return Hit(
        id="miner_config", subject=text.path, refs=refs_of(process) | {file_ref(text.path)}, pid=process.pid,
        evidence=[text.at(index)], values={"path": text.path, "why": ", ".join(why)},
    )  # fmt: skip


def _named_text(scene: Scene, process: Process, path: str) -> Text | None:
    """A small file as a process names it, from its own folder."""
    cwd = process.cwd or ""
    full = path if path.startswith("/") else posixpath.join(cwd, path) if cwd.startswith("/") else ""
    return small_text(scene, posixpath.normpath(full)) if full and len(full) < 4096 else None


def _beside(scene: Scene, folder: str) -> list[str]:
    """Small files that may configure a program in its folder, the usual names first."""
    if len(folder.split("/")) < 3 and folder != "/tmp" and odd_place(f"{folder}/x") is None:
        return []
    names = [name for name in scene.names(folder)[:300] if name.endswith(_CONFIG_ENDS) or name == ".env"]
    names.sort(key=lambda name: not re.search(r"config|pool|miner|start|run|set", name))
    return [f"{folder}/{name}" for name in names[:_MOST_BESIDE]]


def first_sign(lines: list[str]) -> int:
    """Index of the line that shows best what a miner's configuration is."""
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
        by_hand = process.task is not None and process.task.ppid > 1 and (process.uid or 0) >= _FIRST_PERSON
        lives_on = process.task is None or process.task.ppid == 1 or process.pid in gpu_pids
        if process.deleted:
            out.append(
                Hit(id="exe_deleted_tmp", subject=subject_of(process), refs=refs, pid=process.pid, kind="place", evidence=evidence, values=values,
                    grade=None if place == "hidden" or (lives_on and not by_hand) else "medium")
            )  # fmt: skip
        elif place == "hidden" or process.pid in gpu_pids or lives_on:
            out.append(
                Hit(id="exe_hidden_path", subject=subject_of(process), refs=refs, pid=process.pid, kind="place", evidence=evidence, values=values,
                    grade="strong" if place == "hidden" and process.pid in gpu_pids else None)
            )  # fmt: skip
    return out


CHECKS: tuple[tuple[str, Callable[[Scene], list[Hit]]], ...] = (
    ("audit.mining", command_lines),
    ("audit.mining", scripts),
    ("audit.mining", named_pools),
    ("audit.programs", odd_programs),
)
