"""Makes the agent a service of this machine: what would be written and run, and doing it. The plan is made first, so that it can be shown."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from gpuclinic.knowledge import DATA
from gpuclinic.model import CouldNotError
from gpuclinic.store import whole_file

UNIT = "gpuclinic-agent.service"
_UNIT_FOLDER, _CONFIG = "/etc/systemd/system", "/etc/gpuclinic/agent.toml"
_DEADLINE_S = 60.0


class Step(NamedTuple):
    """One thing to do. path and content: a file to write; content None: a file to take away. command: what to run. keep: leave what is there."""

    path: Path | None = None
    content: str | None = None
    command: tuple[str, ...] = ()
    keep: bool = False


def unit_text(command: str) -> str:
    """The systemd unit. command: the program that it starts."""
    text = (DATA / "service" / UNIT).read_text(encoding="utf-8")
    return text.replace("@COMMAND@", command)


def example_config() -> str:
    """A configuration in which every key has its default, with what it means."""
    return (DATA / "service" / "agent.toml").read_text(encoding="utf-8")


def own_command() -> str:
    """How this program is started, as a unit must name it: an absolute path, and without anything that a unit would read otherwise."""
    found = shutil.which("gpuclinic", path=str(Path(sys.executable).parent)) or shutil.which("gpuclinic")
    words = [found] if found else [sys.executable, "-m", "gpuclinic"]
    return " ".join(_unit_word(word) for word in words)


def _unit_word(word: str) -> str:
    """systemd.service(5), command lines: % and $ mean something, blanks separate."""
    word = word.replace("%", "%%").replace("$", "$$")
    return '"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"' if any(c in word for c in " \t\"'\\") else word


def install_plan(prefix: str = "", command: str | None = None) -> list[Step]:
    """Everything that installing does. prefix: a folder that stands for /, as packagers want it; then nothing is run."""
    steps = [
        Step(Path(prefix + _UNIT_FOLDER) / UNIT, unit_text(command or own_command())),
        Step(Path(prefix + _CONFIG), example_config(), keep=True),
    ]
    if not prefix:
        steps += [Step(command=("systemctl", "daemon-reload")), Step(command=("systemctl", "enable", "--now", UNIT))]
    return steps


def uninstall_plan(prefix: str = "") -> list[Step]:
    """Everything that taking it away does. Configuration and history stay."""
    away = Step(Path(prefix + _UNIT_FOLDER) / UNIT, None)
    if prefix:
        return [away]
    return [Step(command=("systemctl", "disable", "--now", UNIT)), away, Step(command=("systemctl", "daemon-reload"))]


def shown(steps: list[Step], lang: str) -> str:
    """The plan, for people."""
    zh = lang == "zh"
    out = []
    for step in steps:
        if step.command:
            out.append(f"{'运行' if zh else 'run'}    {' '.join(step.command)}")
        elif step.content is None:
            out.append(f"{'删除' if zh else 'remove'} {step.path}")
        elif step.keep and step.path is not None and step.path.exists():
            out.append(f"{'保留' if zh else 'keep'}   {step.path}")
        else:
            size = len(step.content.encode())
            out.append(f"{'写入' if zh else 'write'}  {step.path} ({size} B)")
    return "\n".join(out) + "\n"


def carry_out(steps: list[Step]) -> None:
    """Does it, in order; ends with the first thing that is not possible. Raises CouldNotError."""
    for step in steps:
        if step.command:
            _run(step.command)
        elif step.path is not None:
            try:
                _write(step.path, step)
            except OSError as problem:
                raise CouldNotError(f"{step.path}: {problem.strerror or problem}") from problem


def _write(path: Path, step: Step) -> None:
    if step.content is None:
        path.unlink(missing_ok=True)
        return
    if step.keep and path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path, 0o644) as file:
        file.write(step.content.encode())


def _run(command: tuple[str, ...]) -> None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_DEADLINE_S, check=False, stdin=subprocess.DEVNULL
        )
    except FileNotFoundError:
        raise CouldNotError(f"{command[0]}: not found; is this machine run by systemd?") from None
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise CouldNotError(f"{' '.join(command)}: {problem}") from problem
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise CouldNotError(f"{' '.join(command)}: {said[-1][:300] if said else f'exit {done.returncode}'}")


def may_install() -> bool:
    """Whether this user may write where the service's files lie."""
    return os.geteuid() == 0
