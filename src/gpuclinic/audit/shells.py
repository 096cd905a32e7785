"""Start files of shells: what they start, and which commands they put themselves before."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpuclinic.audit.commands import Deed, deeds
from gpuclinic.audit.hits import Hit
from gpuclinic.audit.miner_words import ENOUGH, score_arguments
from gpuclinic.audit.places import odd_place
from gpuclinic.audit.refs import file_ref
from gpuclinic.audit.schedules import mined, script_deeds
from gpuclinic.knowledge.audit_words import words

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuclinic.audit.scene import Scene, Text

_SYSTEM = (
    "/etc/profile", "/etc/profile.d/*.sh", "/etc/profile.d/*.csh", "/etc/bash.bashrc", "/etc/bashrc", "/etc/bash.bash_logout", "/etc/environment", "/etc/zsh/*", "/etc/zshrc",
    "/etc/zshenv", "/etc/zprofile", "/etc/csh.cshrc", "/etc/csh.login", "/etc/fish/config.fish", "/etc/fish/conf.d/*.fish", "/etc/ssh/sshrc", "/etc/skel/.*rc", "/etc/skel/.profile",
)  # fmt: skip
_OWN = (
    ".bashrc", ".profile", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".zshrc", ".zshenv", ".zprofile", ".zlogin", ".kshrc", ".cshrc", ".tcshrc", ".login",
    ".xprofile", ".xinitrc", ".xsessionrc", ".pam_environment", ".ssh/rc", ".ssh/environment", ".config/fish/config.fish", ".aliases", ".functions",
)  # fmt: skip
_ALIAS = re.compile(r"^\s*(?:builtin\s+)?alias\s+(?:-\w\s+)?([\w.-]{1,40})(?:=|\s+)(.{1,2000})$")
_FUNCTION = re.compile(r"^\s*(?:function\s+([\w.-]{1,40})\s*(?:\(\s*\))?|([\w.-]{1,40})\s*\(\s*\))\s*\{?(.{0,4000})$")
_FILTERS = re.compile(
    r"\|\s*(?:/\S*/|command\s+|\\)?(?:[ef]?grep\s+(?:-\w+\s+)*-?\w*v|sed\b|awk\b|head\b|tail\b|perl\b|python)|\bgrep\s+(?:-\w+\s+)*-\w*v"
)
_DROPS = re.compile(r">\s*/dev/null\s*(?:2>&1)?\s*[;\"')]*\s*$")
_STEALS = re.compile(r"\bread\s+(?:-\w+\s+)*-\w*s|\btee\s|/dev/tcp/|\bcurl\b|\bwget\b|\bscript\s+-|\bstrace\b")
_ASKED_FOR = frozenset(["sudo", "su", "ssh", "passwd", "scp"])


def start_files(scene: Scene) -> list[tuple[Text, str]]:
    """Start files of the system and of every home, with whose they are."""
    out: dict[str, tuple[Text, str]] = {}
    for pattern in _SYSTEM:
        for text in scene.texts(pattern, "audit.shells"):
            out.setdefault(text.path, (text, "everybody"))
    for account, home in scene.homes():
        if home == "/":
            continue
        for name in _OWN:
            own = scene.text(f"{home}/{name}", "audit.shells")
            if own is not None:
                out.setdefault(own.path, (own, account.name))
    return list(out.values())


def started(scene: Scene) -> list[Hit]:
    """shell_rc_exec: a start file starts what hides or brings foreign code, in the background or not."""
    out = []
    for text, user in start_files(scene):
        script = script_deeds(text)
        for index, line in enumerate(text.lines()[:2000]):
            bare = line.strip()
            preload = re.match(r"^(?:export\s+)?LD_PRELOAD=[\"']?(/[^\s\"':]+)", bare)
            if (
                preload
                and not scene.packages.owner(preload[1])
                and (odd_place(preload[1]) or _for_all(scene, text, preload[1]))
            ):
                out.append(
                    Hit(id="ld_preload", subject=f"{text.path}:{index + 1}", refs=frozenset({file_ref(preload[1])}), evidence=[text.at(index)], values={"path": preload[1]})
                )  # fmt: skip
            found = [] if bare.startswith("#") or _ALIAS.match(line) else [d for d in deeds(bare) if d.strong]
            if script is not None and script[0] == index and not found:
                found = script[1]
            score = score_arguments(["sh", *bare.split()])
            if not found and score.points < ENOUGH:
                continue
            what, about = (found[0].what, found[0].about) if found else ("miner", ", ".join(score.why))
            paths = frozenset(file_ref(_home(d.path, scene, user)) for d in found if d.path)
            out.append(
                Hit(id="shell_rc_exec", subject=f"{text.path}:{index + 1}", refs=paths, evidence=[text.at(index)],
                    values={"what": what, "about": about, "user": user})
            )  # fmt: skip
            if not found and score.points >= ENOUGH:
                out += mined(out[-1], [Deed("miner", True, about)])
            break
    return out


def _for_all(scene: Scene, text: Text, path: str) -> bool:
    """A library of no package that everybody has to load, as by /etc/ld.so.preload."""
    return (
        text.path.startswith("/etc/")
        and scene.packages.known
        and not any(path.rpartition("/")[2].startswith(n) for n in words().honest_preloads)
    )


def _home(path: str, scene: Scene, user: str) -> str:
    home = next((a.home for a in scene.accounts if a.name == user), "")
    return re.sub(r"^(?:~|\$\{?HOME\}?)(?=/)", home, path)


def bodies(text: Text) -> list[tuple[int, str, str]]:
    """(index, name, body) of aliases and functions."""
    out = []
    lines = text.lines()[:3000]
    for index, line in enumerate(lines):
        alias = _ALIAS.match(line)
        if alias:
            out.append((index, alias[1], alias[2].strip().strip("\"'")))
            continue
        function = _FUNCTION.match(line)
        if function and (name := function[1] or function[2]):
            body = [function[3]]
            depth = line.count("{") - line.count("}")
            for more in lines[index + 1 : index + 60]:
                if depth <= 0 and "{" in "".join([line, *body]):
                    break
                body.append(more)
                depth += more.count("{") - more.count("}")
            out.append((index, name, "\n".join(body)))
    return out


def tampered(scene: Scene) -> list[Hit]:
    """alias_tamper: a command that shows what runs is filtered, silenced, or replaced; one that asks for a password is overheard."""
    out = []
    for text, user in start_files(scene):
        found: list[tuple[int, str, str]] = []
        for index, name, body in bodies(text):
            if name in words().watched and _hides(name, body):
                found.append((index, name, "hides"))
            elif name in _ASKED_FOR and (_STEALS.search(body) or odd_place(body.split()[0] if body.split() else "")):
                found.append((index, name, "overhears"))
        if not found:
            continue
        names = sorted({name for _, name, _ in found})
        strong = (
            len(names) >= 2
            or bool({"nvidia-smi", "crontab", "ps", "top"} & set(names))
            or any(how == "overhears" for *_, how in found)
        )
        paths = frozenset(
            file_ref(p) for _, _, b in bodies(text) for p in re.findall(r"(/[\w./-]{3,200})", b) if odd_place(p)
        )
        out.append(
            Hit(id="alias_tamper", subject=text.path, refs=paths, grade=None if strong else "medium", evidence=[text.at(i) for i, _, _ in found[:4]],
                values={"names": ", ".join(names), "user": user})
        )  # fmt: skip
    return out


def _hides(name: str, body: str) -> bool:
    called = re.search(rf"(?:^|[\s|;(\\/]){re.escape(name)}(?:\s|$|\||\")", body) is not None
    if called and (_FILTERS.search(body) or _DROPS.search(body)):
        return not re.search(r"grep\s+(?:-\w+\s+)*-\w*v\w*\s+[\"']?(?:grep|\^#|\^\$|\^\s*\$)[\"']?\s*[;\"']*\s*$", body)
    first = re.match(r"^\s*(?:exec\s+|command\s+)?[\"']?([~/$][\w./$\{\}-]{2,200})", body)
    if first and odd_place(first[1].replace("~", "/home/x", 1).replace("$HOME", "/home/x")):
        return True
    silent = re.match(r"^\s*(?::|true|/bin/true|(?:echo|printf)\b[^|;&]{0,200})\s*;?\s*\}?\s*$", body)
    return silent is not None and name not in ("history", "cat", "id", "du")


CHECKS: tuple[tuple[str, Callable[[Scene], list[Hit]]], ...] = (
    ("audit.shells", started),
    ("audit.shells", tampered),
)
