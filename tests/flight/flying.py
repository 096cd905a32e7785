"""Starts jobs under `gpuclinic run`, as people do."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import select
import struct
import subprocess
import sys
import tarfile
import termios
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

GPUCLINIC = [sys.executable, "-m", "gpuclinic"]
PYTHON = sys.executable


def fly(
    folder: Path, *words: str, env: dict[str, str] | None = None, **more: Any
) -> subprocess.CompletedProcess[bytes]:
    """Runs `gpuclinic run` with these words; records go to the folder."""
    more.setdefault("capture_output", True)
    more.setdefault("timeout", 120)
    return subprocess.run(command(folder, *words), env=environment(env), check=False, **more)


STARTED: list[subprocess.Popen[bytes]] = []


def started(words: Sequence[str], **more: Any) -> subprocess.Popen[bytes]:
    """A job that runs; its pipes are closed when the test ends (conftest.py)."""
    more.setdefault("env", environment())
    job = subprocess.Popen(words, **more)
    STARTED.append(job)
    return job


def command(folder: Path, *words: str) -> list[str]:
    return [*GPUCLINIC, "run", "--lang", "en", "--bundle-dir", str(folder), *words]


def environment(more: dict[str, str] | None = None) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM", "RANK", "OMPI", "PMI", "GPUCLINIC_ROOT"))}
    return {**kept, **(more or {})}


def bundles(folder: Path) -> list[Path]:
    return sorted(folder.glob("gpuclinic-run-*.tar.gz"))


def member(bundle: Path, name: str) -> bytes:
    with tarfile.open(bundle) as archive:
        found = next((m for m in archive.getmembers() if m.name.partition("/")[2] == name), None)
        file = archive.extractfile(found) if found is not None else None
        return file.read() if file is not None else b""


def record(bundle: Path) -> dict[str, Any]:
    told = json.loads(member(bundle, "run.json"))
    assert isinstance(told, dict)
    return told


def why(path: Path) -> dict[str, Any]:
    """What `gpuclinic why` says of a bundle."""
    done = subprocess.run([*GPUCLINIC, "why", "--json", str(path)], capture_output=True, check=True, timeout=120)
    told = json.loads(done.stdout)
    assert isinstance(told, dict)
    return told


def on_a_terminal(
    words: Sequence[str],
    script: Sequence[tuple[bytes, Callable[[int], None]]],
    env: dict[str, str] | None = None,
    timeout: float = 60,
) -> tuple[bytes, int]:
    """Runs words on a terminal of 30 x 100; for each text that appears something is done with the terminal. What it showed, wait status."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvpe(words[0], list(words), environment(env))
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
    shown, left, until = b"", list(script), time.monotonic() + timeout
    looked = 0
    while time.monotonic() < until:
        if select.select([terminal], [], [], 0.1)[0]:
            with contextlib.suppress(OSError):
                piece = os.read(terminal, 1 << 16)
                shown += piece
                if piece:
                    while left and left[0][0] in shown[looked:]:
                        looked += shown[looked:].index(left[0][0]) + len(left[0][0])
                        left.pop(0)[1](terminal)
                    continue
            break
    else:
        os.kill(pid, 9)
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    assert not left, (left, shown)
    return shown, status


def types(text: bytes) -> Callable[[int], None]:
    return lambda terminal: (os.write(terminal, text), None)[1]


def until(condition: Callable[[], Any], seconds: float = 60.0) -> Any:
    """Waits for something that will come."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.05)
    raise AssertionError("it did not come")
