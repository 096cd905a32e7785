"""What miners leave on a disk, whether or not one runs: programs by name, configurations, lines in histories of shells."""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING

from gpuclinic.audit.hits import Hit
from gpuclinic.audit.miner_config import best_line, firm, miner_config
from gpuclinic.audit.miner_words import base_name
from gpuclinic.audit.mining import first_sign, refs_of, small_text
from gpuclinic.audit.places import odd_place
from gpuclinic.audit.refs import file_ref
from gpuclinic.knowledge.audit_words import words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gpuclinic.audit.scene import Scene

_SEARCHED = ("/tmp", "/var/tmp", "/dev/shm", "/root", "/home", "/opt", "/usr/local", "/var/lib", "/srv", "/etc", "/usr/lib", "/var/www")  # fmt: skip
"""Where files of miners are looked for by name; nothing is opened but small text files of the names below."""
_NAMED_FILES = ["xmrig", "xmrig.json", "config.json", "pools.txt", "epools.txt", "t-rex", "lolMiner", "nbminer", "gminer", "miner.conf", "rigel", "SRBMiner-MULTI", "nanominer", "PhoenixMiner", "teamredminer", "bzminer", "onezerominer", "kdevtmpfsi", "kinsing"]  # fmt: skip
_TEXTS = (".json", ".txt", ".conf", ".ini", ".cfg", ".sh")
_ODD_PARENTS = ("/tmp", "/var/tmp", "/dev/shm", "/opt", "/usr/lib", "/usr/bin", "/usr/sbin", "/usr/local", "/usr/local/bin", "/usr/local/lib", "/etc", "/var/lib", "/var", "/srv", "/usr/share", "/lib", "/")  # fmt: skip
"""Folders whose hidden folders hold nothing of a package."""
_HOME_PARENTS = ("", "/.cache", "/.config", "/.local", "/.local/share", "/.ssh", "/.gnupg", "/.dbus")
_MOST_HOMES, _MOST_HIDDEN, _MOST_TEXTS = 60, 20, 200
_HISTORIES = (".bash_history", ".zsh_history", ".sh_history", ".ash_history", ".local/share/fish/fish_history")
_PROMPT = re.compile(r"^(?::\s{0,3}\d{1,12}:\d{1,9};|-\s{0,3}cmd:\s{0,3})")


def files_left(scene: Scene) -> list[Hit]:
    """miner_config, miner_process: configurations and programs in places where programs are not kept; nobody need run them."""
    out: list[Hit] = []
    paths: dict[str, None] = {}
    for start in _SEARCHED:
        told = scene.host.find(start, _NAMED_FILES, depth=4, most=3000, seconds=0.15).json()
        paths |= dict.fromkeys([p for p in told.get("found", []) if isinstance(p, str)][:200])
    paths |= dict.fromkeys(_hidden_texts(scene))
    for path in paths:
        name = path.rpartition("/")[2]
        if scene.packages.owner(path):
            continue
        if name.endswith(_TEXTS):
            text = small_text(scene, path)
            why = miner_config(text.text) if text is not None else []
            if text is not None and why:
                out.append(
                    Hit(id="miner_config", subject=path, refs=frozenset({file_ref(path), file_ref(posixpath.dirname(path))}),
                        evidence=[text.at(first_sign(text.lines()))], values={"path": path, "why": ", ".join(why)})
                )  # fmt: skip
        elif odd_place(path) and name in _NAMED_FILES:
            out.append(
                Hit(id="miner_process", subject=path, refs=frozenset({file_ref(path)}), kind="file", grade="strong" if odd_place(path) == "hidden" else "medium",
                    evidence=[scene.where(path, name)], values={"pid": None, "why": name, "user": "-"})
            )  # fmt: skip
    return _without_running(out, scene)


def _hidden_texts(scene: Scene) -> list[str]:
    """Small text files in hidden folders of places that have none, and right in temporary ones."""
    folders = ["/tmp", "/var/tmp", "/dev/shm"]
    homes = list(dict.fromkeys(home for _, home in scene.homes() if home not in ("/", "/nonexistent", "/dev", "/bin")))
    parents = [*_ODD_PARENTS, *(f"{home}{below}" for home in homes[:_MOST_HOMES] for below in _HOME_PARENTS)]
    for parent in dict.fromkeys(parents):
        hidden = [name for name in _listed(scene, parent) if odd_place(f"{parent.rstrip('/')}/{name}/x") == "hidden"]
        folders += [f"{parent.rstrip('/')}/{name}" for name in hidden[:_MOST_HIDDEN]]
    found = [f"{folder}/{name}" for folder in folders for name in _listed(scene, folder)[:300] if name.endswith(_TEXTS)]
    return found[:_MOST_TEXTS]


def _listed(scene: Scene, folder: str) -> list[str]:
    """Names in a folder. That one may not be listed is told by the search for names already."""
    answer = scene.host.listing(folder)
    return answer.lines() if answer.ok else []


def _without_running(hits: list[Hit], scene: Scene) -> list[Hit]:
    """Files of programs that run are told with these already."""
    running = {ref for process in scene.processes.values() if process.exe for ref in refs_of(process)}
    return [hit for hit in hits if hit.id == "miner_config" or not hit.refs & running]


def histories(scene: Scene) -> list[Hit]:
    """miner_cmdline, of medium strength: somebody once typed it. A history alone accuses nobody."""
    out = []
    homes = dict.fromkeys(home for _, home in scene.homes())
    for path in [f"{home.rstrip('/')}/{name}" for home in list(homes)[:_MOST_HOMES] for name in _HISTORIES]:
        text = scene.text(path, "audit.mining", 1 << 20)
        for index, line in enumerate(text.lines()[-20_000:] if text else ()):
            bare = _PROMPT.sub("", line)
            if len(bare) > 4000 or not _worth(bare):
                continue
            found = best_line(bare)
            if text is None or found is None or not firm(found):
                continue
            index += max(0, len(text.lines()) - 20_000)
            programs = [word for word in bare.split()[:6] if word.startswith("/")]
            out.append(
                Hit(id="miner_cmdline", subject=f"{path}:{index + 1}", refs=frozenset({file_ref(path), *map(file_ref, programs)}), grade="medium", kind="history",
                    evidence=[text.at(index)], values={"pid": None, "why": ", ".join(found.why)})
            )  # fmt: skip
            break
    return out


def _worth(line: str) -> bool:
    """Cheap: has an option, and a colon, or the name of a miner."""
    return " -" in line and ("://" in line or ":" in line or _names_miner(line.split()[:4]))


def _names_miner(cells: Iterable[str]) -> bool:
    return any(base_name(word) in words().programs for word in cells)


CHECKS: tuple[tuple[str, Callable[[Scene], list[Hit]]], ...] = (
    ("audit.mining", files_left),
    ("audit.mining", histories),
)
