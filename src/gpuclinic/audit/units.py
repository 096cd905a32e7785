"""systemd: units, timers, drop-ins and generators of the system and of users."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpuclinic.audit.commands import Deed, deeds
from gpuclinic.audit.hits import Hit
from gpuclinic.audit.miner_words import ENOUGH, base_name, score_arguments
from gpuclinic.audit.places import odd_place
from gpuclinic.audit.refs import file_ref, unit_ref
from gpuclinic.audit.schedules import mined, script_deeds
from gpuclinic.knowledge.audit_words import words

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuclinic.audit.scene import Scene, Text

_FOLDERS = (
    "/etc/systemd/system", "/etc/systemd/user", "/run/systemd/system", "/run/systemd/transient", "/usr/lib/systemd/system", "/lib/systemd/system",
    "/usr/local/lib/systemd/system", "/usr/lib/systemd/user", "/etc/xdg/systemd/user",
)  # fmt: skip
_OF_USERS = (".config/systemd/user", ".local/share/systemd/user")
_GENERATORS = (
    "/etc/systemd/system-generators/*",
    "/usr/local/lib/systemd/system-generators/*",
    "/usr/lib/systemd/system-generators/*",
    "/etc/systemd/user-generators/*",
    "/run/systemd/system-generators/*",
)
_EXEC = re.compile(r"^(Exec(?:Start|StartPre|StartPost|Stop|StopPost|Reload|Condition))$")
_MOST_UNITS = 3000


def exec_lines(text: Text) -> list[tuple[int, str, str]]:
    """(index, key, value) of all Exec lines and of Environment, continued lines joined; a repeated key is kept each time."""
    out = []
    lines = text.lines()
    n = 0
    while n < len(lines) and n < 2000:
        start, line = n, lines[n].strip()
        while line.endswith("\\") and n + 1 < len(lines):
            n += 1
            line = f"{line[:-1]} {lines[n].strip()}"
        n += 1
        key, equals, value = line.partition("=")
        key = key.strip()
        if (
            equals
            and not line.startswith(("#", ";"))
            and (_EXEC.match(key) or key in ("Environment", "WorkingDirectory", "User", "Description"))
        ):
            out.append((start, key, value.strip()))
    return out


def unit_texts(scene: Scene) -> list[tuple[Text, str]]:
    """Units of the system and of users, with whose they are; files of packages are left out."""
    out: list[tuple[Text, str]] = []
    for folder in _FOLDERS:
        for pattern in ("*.service", "*.service.d/*.conf", "*.timer.d/*.conf"):
            for text in scene.texts(f"{folder}/{pattern}", "audit.units")[:_MOST_UNITS]:
                if not scene.packages.owner(text.path):
                    out.append((text, "root"))
    for account, home in scene.homes():
        for folder in _OF_USERS:
            for pattern in ("*.service", "*.service.d/*.conf"):
                out += [(text, account.name) for text in scene.texts(f"{home}/{folder}/{pattern}", "audit.units")]
    return [pair for n, pair in enumerate(out) if pair[0].path not in {p[0].path for p in out[:n]}]


def units(scene: Scene) -> list[Hit]:
    """systemd_backdoor: a unit of no package starts what hides, brings foreign code, or mines."""
    out = []
    for text, user in unit_texts(scene):
        name = (
            text.path.rpartition("/")[2]
            if not text.path.endswith(".conf")
            else text.path.split("/")[-2].removesuffix(".d")
        )
        found: list[tuple[int, Deed]] = []
        home = next((a.home for a in scene.accounts if a.name == user and text.path.startswith(f"{a.home}/")), None)
        for index, key, value in exec_lines(text):
            if home is not None:
                value = value.replace("%h", home).replace("%u", user)
            if _EXEC.match(key):
                found += [(index, deed) for deed in _of_command(scene, value.lstrip("@-:+!|"))]
            elif key == "Environment":
                preload = re.search(r"LD_PRELOAD=\"?([^\s\"]+)", value)
                if preload and odd_place(preload[1]) and not scene.packages.owner(preload[1]):
                    found.append((index, Deed("odd_program", True, preload[0], preload[1])))
        if not found:
            continue
        strong = any(deed.strong for _, deed in found)
        refs = frozenset(
            {
                unit_ref(name),
                file_ref(text.path),
                *(file_ref(d.path) for _, d in found if d.path and d.path.startswith("/")),
            }
        )
        out.append(
            Hit(id="systemd_backdoor", subject=name, refs=refs, grade=None if strong else "medium", evidence=[text.at(i) for i, _ in found[:3]],
                values={"what": found[0][1].what, "about": found[0][1].about, "user": user, "path": text.path})
        )  # fmt: skip
        out += mined(out[-1], [deed for _, deed in found])
    for pattern in _GENERATORS:
        for text in scene.texts(pattern, "audit.units", 1 << 16):
            script = None if scene.packages.owner(text.path) or b"\0" in text.data[:512] else script_deeds(text)
            if script is not None:
                out.append(
                    Hit(id="systemd_backdoor", subject=text.path, refs=frozenset({file_ref(text.path)}), evidence=[text.at(script[0])],
                        values={"what": script[1][0].what, "about": script[1][0].about, "user": "root", "path": text.path})
                )  # fmt: skip
    return out


def _of_command(scene: Scene, command: str) -> list[Deed]:
    """Deeds of a command of a unit: its own, of a script that it names, and mining."""
    out = deeds(command)
    program = (command.split() or [""])[0].strip("\"'")
    score = score_arguments([program, *command.split()[1:]], program)
    if score.points >= ENOUGH:
        out.append(Deed("miner", True, ", ".join(score.why), program))
    elif base_name(program) in words().programs:
        out.append(Deed("miner", True, program, program))
    if not out:
        for path in re.findall(r"(?<![\w.=-])(/[\w./@+-]{2,200})", command)[:4]:
            if scene.packages.owner(path) or path.startswith(
                ("/dev/", "/proc/", "/usr/bin/", "/bin/", "/usr/sbin/", "/sbin/")
            ):
                continue
            text = scene.text(path, "audit.units", 1 << 16)
            script = script_deeds(text) if text is not None and b"\0" not in text.data[:512] else None
            if script is not None:
                out += [Deed(d.what, d.strong, d.about, path) for d in script[1]]
    return out


CHECKS: tuple[tuple[str, Callable[[Scene], list[Hit]]], ...] = (("audit.units", units),)
