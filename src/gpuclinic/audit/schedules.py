"""What runs by itself: cron and at."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from gpuclinic.audit.commands import Deed, deeds
from gpuclinic.audit.hits import Hit
from gpuclinic.audit.miner_words import ENOUGH, score_arguments
from gpuclinic.audit.places import odd_place
from gpuclinic.audit.refs import file_ref
from gpuclinic.audit.scene import Text

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuclinic.audit.scene import Scene
    from gpuclinic.model import Where

_SYSTEM = ("/etc/crontab", "/etc/cron.d/*", "/etc/anacrontab")
_USERS = (
    "/var/spool/cron/crontabs/*",
    "/var/spool/cron/*",
    "/var/spool/cron/tabs/*",
    "/etc/crontabs/*",
    "/var/cron/tabs/*",
    "/var/spool/incron/*",
)
_PARTS = ("/etc/cron.hourly/*", "/etc/cron.daily/*", "/etc/cron.weekly/*", "/etc/cron.monthly/*", "/etc/periodic/*/*")
_JOBS = ("/var/spool/cron/atjobs/*", "/var/spool/at/*", "/var/spool/atjobs/*", "/var/spool/atd/*")
_TIME = re.compile(
    r"^(?:@\w+|(?:[\d*/,LW#?~-]|jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec|mon|tue|wed|thu|fri|sat|sun)+)$",
    re.IGNORECASE,
)
_INSTALLERS = r"https://(?:sh\.rustup\.rs|get\.docker\.com|get\.k3s\.io|ollama\.com|astral\.sh|get\.helm\.sh|tailscale\.com|get\.netdata\.cloud|deb\.nodesource\.com|install\.python-poetry\.org|repo\.anaconda\.com)/?"
"""Installers that their makers tell people to pipe to a shell; root's schedule of one is bad habit, not more."""
_OFTEN = 2000
"""Lines of a crontab that are looked at."""


class Job(msgspec.Struct, frozen=True):
    """A line of a crontab. user: whose rights it has."""

    text: Text
    index: int
    user: str
    command: str


def cron_jobs(scene: Scene) -> list[Job]:
    """All jobs of all crontabs; scripts of cron.daily and its like come as one job each, with their text as the command."""
    out: list[Job] = []
    for pattern in _SYSTEM:
        for text in scene.texts(pattern, "audit.cron"):
            out += _lines(text, None)
    for pattern in _USERS:
        for text in scene.texts(pattern, "audit.cron"):
            name = text.path.rpartition("/")[2]
            if not name.startswith(".") and text.path.count("/") == pattern.count("/"):
                out += _lines(text, name)
    return out


def _lines(text: Text, user: str | None) -> list[Job]:
    out = []
    for index, raw in enumerate(text.lines()[:_OFTEN]):
        line = raw.strip()
        if not line or line.startswith("#") or re.match(r"^[A-Za-z_]\w*\s*=", line):
            continue
        cells = line.split()
        fields = 1 if cells[0].startswith("@") else 4 if text.path.endswith("anacrontab") else 5
        if text.path.endswith("anacrontab"):
            fields = 3
        elif len(cells) <= fields or not all(_TIME.match(cell) for cell in cells[:fields]):
            continue
        rest = line.split(None, fields)[fields:] or [""]
        who = user
        command = rest[0]
        if who is None and not text.path.endswith("anacrontab"):
            who, _, command = command.partition(" ") if "\t" not in command.split(" ")[0] else command.partition("\t")
            command = command.strip()
        out.append(
            Job(text, index, who or "root", re.sub(r"(?<!\\)%.*", "", command, flags=re.DOTALL).replace("\\%", "%"))
        )
    return out


def cron(scene: Scene) -> list[Hit]:
    """cron_backdoor: a job that brings foreign code, starts what hides, or mines; also by a script of the disk that it names."""
    out: list[Hit] = []
    for job in cron_jobs(scene):
        if scene.packages.owner(job.text.path) and not job.text.path.startswith("/var/"):
            pass  # a configuration file may have been changed: its lines are judged, too
        found = deeds(job.command)
        where = [job.text.at(job.index)]
        score = score_arguments(["sh", *job.command.split()])
        if not found:
            found, where = _of_scripts(scene, job, where)
        if score.points >= ENOUGH:
            found = [*found, Deed("miner", True, ", ".join(score.why))]
        if found:
            out.append(hit_of("cron_backdoor", f"{job.text.path}:{job.index + 1}", found, where, job.user))
            out += mined(out[-1], found)
    for pattern in _PARTS:
        for text in scene.texts(pattern, "audit.cron"):
            if not scene.packages.owner(text.path):
                found_in = script_deeds(text)
                if found_in:
                    index, script = found_in
                    out.append(hit_of("cron_backdoor", text.path, script, [text.at(index)], "root"))
                    out += mined(out[-1], script)
    return out


def _of_scripts(scene: Scene, job: Job, where: list[Where]) -> tuple[list[Deed], list[Where]]:
    """The same of a script that the job names by its full path, where no package owns it."""
    for path in re.findall(r"(?<![\w.=-])(/[\w./@+-]{2,200})", job.command)[:4]:
        if scene.packages.owner(path) or path.startswith(
            ("/dev/", "/proc/", "/usr/bin/", "/bin/", "/sbin/", "/usr/sbin/")
        ):
            continue
        text = scene.text(path, "audit.cron", 1 << 16)
        if text is None or b"\0" in text.data[:512]:
            continue
        found = script_deeds(text)
        if found:
            return found[1], [*where, text.at(found[0])]
    return [], where


def script_deeds(text: Text) -> tuple[int, list[Deed]] | None:
    """The first line of a script that does such a thing, and the deeds; of the whole, where it takes several lines."""
    lines = text.lines()[:_OFTEN]
    for index, line in enumerate(lines):
        found = [d for d in deeds(line) if d.strong]
        score = score_arguments(["sh", *line.split()])
        if score.points >= ENOUGH and not line.lstrip().startswith("#"):
            found.append(Deed("miner", True, ", ".join(score.why)))
        if found:
            return index, found
    body = "\n".join(line for line in lines if not line.lstrip().startswith("#"))
    whole = [d for d in deeds(body[:8000]) if d.what == "download_run"]
    if whole and whole[0].path:
        index = next((n for n, line in enumerate(lines) if whole[0].path in line), 0)
        return index, whole
    return None


def mined(hit: Hit, found: list[Deed]) -> list[Hit]:
    """The command line of a miner is a sign of its own, beside that of what starts it."""
    why = next((deed.about for deed in found if deed.what == "miner"), None)
    if why is None:
        return []
    return [
        Hit(
            id="miner_cmdline",
            subject=hit.subject,
            refs=hit.refs,
            evidence=hit.evidence,
            values={"why": why},
            kind="argv",
        )
    ]


def hit_of(
    identity: str, subject: str, found: list[Deed], where: list[Where], user: str, refs: frozenset[str] = frozenset()
) -> Hit:
    """A hit for deeds of a command. What only one user's installer could be, or a well-known one, is medium."""
    installer = re.search(_INSTALLERS, " ".join(deed.about for deed in found))
    strong = any(deed.strong or (user == "root" and deed.what == "remote_code" and not installer) for deed in found)
    paths = frozenset(file_ref(d.path) for d in found if d.path and d.path.startswith("/"))
    return Hit(
        id=identity, subject=subject, refs=refs | paths | {f"place:{subject.rpartition(':')[0] or subject}"}, grade=None if strong else "medium",
        evidence=where, values={"what": found[0].what, "about": found[0].about, "user": user},
    )  # fmt: skip


def at_jobs(scene: Scene) -> list[Hit]:
    """at_job_backdoor: the same of jobs of at(1), whose files hold the environment before the commands."""
    out = []
    for pattern in _JOBS:
        for text in scene.texts(pattern, "audit.at"):
            if text.path.rpartition("/")[2] in (".SEQ", "spool"):
                continue
            found = script_deeds(text)
            if found:
                out.append(
                    hit_of("at_job_backdoor", text.path, found[1], [text.at(found[0])], _owner(scene, text.path))
                )
    return out


def _owner(scene: Scene, path: str) -> str:
    state = scene.state(path)
    return next((a.name for a in scene.accounts if state is not None and a.uid == state.uid), "root")


def writable(scene: Scene) -> list[Hit]:
    """cron_writable_script: root's job runs a file that others may write, or that lies where they may."""
    out = []
    for job in cron_jobs(scene):
        if job.user != "root":
            continue
        for path in dict.fromkeys(re.findall(r"(?<![\w.=>-])(/[\w./@+-]{2,200})", job.command)[:6]):
            state = scene.state(path)
            if state is None or state.kind != "file" or odd_place(path):
                continue
            folder = scene.state(path.rpartition("/")[0] or "/")
            others = [
                s
                for s in (state, folder)
                if s is not None
                and s.kind in ("file", "folder")
                and s.mode is not None
                and s.mode & 0o002
                and not s.mode & 0o1000
            ]
            foreign = state.uid not in (None, 0)
            if others or foreign:
                who = "everybody" if others else f"uid {state.uid}"
                shown = (
                    f"mode {others[0].mode:04o}" if others and others[0].mode is not None else f"owner uid {state.uid}"
                )
                out.append(
                    Hit(id="cron_writable_script", subject=path, evidence=[job.text.at(job.index), scene.where(path, shown)], values={"path": path, "who": who})
                )  # fmt: skip
    return out


CHECKS: tuple[tuple[str, Callable[[Scene], list[Hit]]], ...] = (
    ("audit.cron", cron),
    ("audit.at", at_jobs),
    ("audit.cron", writable),
)
