"""What brings back a program that was found bad: schedules, units and start files that name it, however honest they look themselves."""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING

from gpuclinic.audit import hiding, mining
from gpuclinic.audit.commands import deeds
from gpuclinic.audit.hits import Hit
from gpuclinic.audit.miner_config import miner_config
from gpuclinic.audit.mining import first_sign
from gpuclinic.audit.places import odd_place
from gpuclinic.audit.refs import file_ref, unit_ref
from gpuclinic.audit.schedules import cron_jobs, script_deeds
from gpuclinic.audit.shells import start_files
from gpuclinic.audit.units import exec_lines, unit_texts
from gpuclinic.audit.verdict import grade_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuclinic.audit.scene import Scene, Text
    from gpuclinic.model import Scalar

_SCRIPTS = ("/etc/rc.local", "/etc/rc.d/rc.local", "/etc/init.d/*", "/etc/rc.d/init.d/*", "/etc/update-motd.d/*", "/etc/NetworkManager/dispatcher.d/*", "/etc/network/if-up.d/*", "/etc/X11/Xsession.d/*", "/lib/systemd/system-sleep/*")  # fmt: skip
_LINES = ("/etc/udev/rules.d/*.rules", "/run/udev/rules.d/*.rules", "/etc/apt/apt.conf.d/*", "/etc/modprobe.d/*.conf", "/etc/inittab", "/etc/logrotate.d/*", "/home/*/.config/autostart/*.desktop", "/root/.config/autostart/*.desktop", "/etc/xdg/autostart/*.desktop")  # fmt: skip
_STARTS = re.compile(r"\b(?:RUN\+?=|PROGRAM=|Pre-Invoke|Post-Invoke|Pre-Install-Pkgs|Exec=|^install\s|respawn:|once:)")


def bad_programs(scene: Scene) -> dict[str, int]:
    """Paths of programs that other checks call a miner or hidden, with the pid; what packages own is left out."""
    found = [
        *mining.command_lines(scene),
        *mining.odd_programs(scene),
        *hiding.hidden(scene),
        *hiding.masquerade(scene),
    ]
    out: dict[str, int] = {}
    for hit in found:
        process = scene.processes.get(hit.pid if hit.pid is not None else -1)
        if process is None or grade_of(hit) not in ("strong", "conclusive"):
            continue
        for ref in hit.refs:
            kind, _, path = ref.partition(":")
            if kind == "file" and not scene.packages.owner(path):
                out.setdefault(path, process.pid)
    return out


def carriers(scene: Scene) -> list[Hit]:
    """cron_backdoor, systemd_backdoor, shell_rc_exec: of those that name such a program."""
    bad = bad_programs(scene)
    if not bad:
        return []
    out = []
    for job in cron_jobs(scene):
        path = _named(job.command, bad)
        if path:
            out.append(_hit("cron_backdoor", f"{job.text.path}:{job.index + 1}", job.text, job.index, path, job.user))
    for text, user in unit_texts(scene):
        name = text.path.rpartition("/")[2]
        for index, key, value in exec_lines(text):
            path = _named(value, bad) if key.startswith("Exec") else None
            if path:
                out.append(_hit("systemd_backdoor", name, text, index, path, user))
                break
    for text, user in start_files(scene):
        for index, line in enumerate(text.lines()[:2000]):
            path = _named(line, bad) if not line.lstrip().startswith("#") else None
            if path:
                out.append(_hit("shell_rc_exec", f"{text.path}:{index + 1}", text, index, path, user))
                break
    return out


_PROGRAM = re.compile(r"(?<![\w.=])((?:~|\$HOME)?/[\w./@+%-]{3,300})")
_TEXT_NAMES = (".json", ".txt", ".conf", ".ini", ".cfg", ".yaml", ".yml", ".toml")
_MOST_BESIDE = 40


def configurations(scene: Scene) -> list[Hit]:
    """miner_config: of a program that a schedule, a unit or a start file names in a hidden or temporary place; nothing of it need run."""
    lines = [(job.command, job.user) for job in cron_jobs(scene)]
    lines += [
        (value, user)
        for text, user in unit_texts(scene)
        for _, key, value in exec_lines(text)
        if key.startswith("Exec")
    ]
    lines += [
        (line, user)
        for text, user in start_files(scene)
        for line in text.lines()[:500]
        if not line.lstrip().startswith("#")
    ]
    homes = {account.name: home for account, home in scene.homes()}
    looked: dict[str, str] = {}
    for line, user in lines:
        home = homes.get(user, "/root")
        for found in _PROGRAM.findall(line)[:8]:
            path = posixpath.normpath(re.sub(r"^(?:~|\$HOME)", home, found).replace("%h", home))
            if not odd_place(path):
                continue
            folder = posixpath.dirname(path)
            if path.endswith(_TEXT_NAMES):
                looked.setdefault(path, path)
            for name in scene.names(folder, "audit.mining")[:_MOST_BESIDE] if f"{folder}/" not in looked else ():
                if name.endswith(_TEXT_NAMES):
                    looked.setdefault(f"{folder}/{name}", path)
            looked.setdefault(f"{folder}/", path)
    out = []
    for path, program in list(looked.items())[:200]:
        text = None if path.endswith("/") else scene.text(path, "audit.mining", 1 << 16)
        why = miner_config(text.text) if text is not None and not text.cut else []
        if text is not None and why:
            refs = frozenset({file_ref(path), file_ref(program)})
            out.append(
                Hit(
                    id="miner_config",
                    subject=path,
                    refs=refs,
                    evidence=[text.at(first_sign(text.lines()))],
                    values={"path": path, "why": ", ".join(why)},
                )
            )
    return out


def _named(line: str, bad: dict[str, int]) -> str | None:
    return next((path for path in bad if re.search(rf"(?<![\w/.-]){re.escape(path)}(?![\w-])", line)), None)


def _hit(identity: str, subject: str, text: Text, index: int, path: str, user: str) -> Hit:
    refs = {file_ref(path), file_ref(text.path)} | ({unit_ref(subject)} if identity == "systemd_backdoor" else set())
    values: dict[str, Scalar] = {"what": "odd_program", "about": path, "user": user, "path": text.path}
    return Hit(id=identity, subject=subject, refs=frozenset(refs), evidence=[text.at(index)], values=values)


def boot_scripts(scene: Scene) -> list[Hit]:
    """boot_script: what runs at boot, at login or with a device, of no package, and does what a careful person would not let it do."""
    out = []
    for pattern in _SCRIPTS:
        for text in scene.texts(pattern, "audit.boot", 1 << 16):
            found = None if scene.packages.owner(text.path) or b"\0" in text.data[:512] else script_deeds(text)
            if found:
                out.append(_script(text, found[0], found[1][0].what, found[1][0].about))
    for pattern in _LINES:
        for text in scene.texts(pattern, "audit.boot", 1 << 16):
            for index, line in enumerate(text.lines()[:2000]):
                start = (
                    None if line.lstrip().startswith("#") or scene.packages.owner(text.path) else _STARTS.search(line)
                )
                inner = line[start.end() :].strip(" =\"'{;}") if start else ""
                told = [d for d in deeds(inner) if d.strong]
                if told:
                    out.append(_script(text, index, told[0].what, told[0].about))
                    break
    return out


def _script(text: Text, index: int, what: str, about: str) -> Hit:
    values: dict[str, Scalar] = {"what": what, "about": about, "path": text.path}
    return Hit(
        id="boot_script",
        subject=f"{text.path}:{index + 1}",
        refs=frozenset({file_ref(text.path)}),
        evidence=[text.at(index)],
        values=values,
    )


CHECKS: tuple[tuple[str, Callable[[Scene], list[Hit]]], ...] = (
    ("audit.carriers", carriers),
    ("audit.mining", configurations),
    ("audit.boot", boot_scripts),
)
