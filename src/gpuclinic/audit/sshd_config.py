"""sshd_config as sshd reads it: first value wins, Include in its place, Match ends what holds for all. Pure but for what is read through the scene."""

from __future__ import annotations

import fnmatch
import re
import shlex
from typing import TYPE_CHECKING

import msgspec

from gpuclinic.model import Where

if TYPE_CHECKING:
    from gpuclinic.audit.scene import Scene, Text

MAIN = "/etc/ssh/sshd_config"
_VENDOR = "/usr/etc/ssh/sshd_config"
_MANY = frozenset(
    ["port", "listenaddress", "hostkey", "acceptenv", "allowusers", "denyusers", "allowgroups", "denygroups", "setenv"]
)
"""Keywords whose later lines add to the first (sshd_config(5))."""
_MOST_FILES = 64


class Setting(msgspec.Struct, frozen=True):
    """A value with the line that sets it."""

    value: str
    where: Where


class SshdConfig(msgspec.Struct):
    """settings: of everybody, keywords in small letters; of those that may be repeated, all values and the first line. matched: inside of Match blocks. found: there is a file."""

    settings: dict[str, Setting] = {}
    matched: list[tuple[str, str, Setting]] = []
    found: bool = False

    def get(self, keyword: str, default: str) -> str:
        """The value in small letters, or sshd's default."""
        setting = self.settings.get(keyword.lower())
        return setting.value.lower() if setting else default

    def where(self, keyword: str) -> Where | None:
        """The line that decides; None where the default does."""
        setting = self.settings.get(keyword.lower())
        return setting.where if setting else None


def read_config(scene: Scene) -> SshdConfig:
    """The configuration of the scene's SSH server."""
    out = SshdConfig()
    text = scene.text(MAIN, "audit.sshd") or scene.text(_VENDOR, "audit.sshd")
    if text is not None:
        out.found = True
        _take(scene, text, out, None, [0])
    return out


def _take(scene: Scene, text: Text, out: SshdConfig, match: str | None, files: list[int]) -> None:
    for index, raw in enumerate(text.lines()[:5000]):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        found = re.match(r"^(\w+)(?:\s*=\s*|\s+)(.*)$", line)
        if not found:
            continue
        keyword, value = found[1].lower(), _plain(found[2])
        if keyword == "match":
            match = None if value.lower() == "all" else value
        elif keyword == "include":
            for pattern in value.split():
                path = pattern if pattern.startswith("/") else f"/etc/ssh/{pattern}"
                for one in _included(scene, path):
                    files[0] += 1
                    if files[0] <= _MOST_FILES:
                        _take(scene, one, out, match, files)
        elif match is not None:
            out.matched.append((match, keyword, Setting(value, text.at(index))))
        elif keyword in _MANY and keyword in out.settings:
            known = out.settings[keyword]
            out.settings[keyword] = Setting(f"{known.value} {value}"[:4096], known.where)
        elif keyword not in out.settings:
            out.settings[keyword] = Setting(value, text.at(index))


def _included(scene: Scene, pattern: str) -> list[Text]:
    if any(sign in pattern for sign in "*?["):
        folder, _, name = pattern.rpartition("/")
        if any(sign in folder for sign in "*?["):
            return scene.texts(pattern, "audit.sshd")
        names = [
            n
            for n in sorted(scene.names(folder, "audit.sshd"))
            if fnmatch.fnmatchcase(n, name) and not (n.startswith(".") and not name.startswith("."))
        ]
        return [t for n in names if (t := scene.text(f"{folder}/{n}", "audit.sshd")) is not None]
    text = scene.text(pattern, "audit.sshd")
    return [text] if text is not None else []


def _plain(value: str) -> str:
    value = re.sub(r"\s+#.*$", "", value).strip()
    try:
        return " ".join(shlex.split(value)) if '"' in value else value
    except ValueError:
        return value
