"""Reads what `compat --want` names: files, pipes, standard input, and the requirement files that those name with -r."""

from __future__ import annotations

import errno
import os
import re
import select
import stat
import sys
import time
from pathlib import Path

from gpuclinic.model import UserError

MOST_BYTES = 8 << 20
MOST_FILES = 32
MOST_SECONDS = 15.0
"""How long a pipe may be silent: `pip freeze` takes seconds."""
_NAMED = re.compile(r"^[ \t]*(?:-r[= \t]*|--requirement[= \t]+)(?P<file>[^\s#]+)[ \t]*(?:\s#.*)?$", re.MULTILINE)


def text_of_input() -> str:
    """Standard input."""
    if sys.stdin is None:
        raise UserError("-: standard input is closed")
    try:
        text = sys.stdin.read(MOST_BYTES + 1)
    except (OSError, ValueError) as problem:
        raise UserError(f"-: {problem}") from problem
    if len(text) > MOST_BYTES:
        raise UserError(_too_large("-"))
    return text


def text_of_file(name: str) -> str:
    """A file, the requirement files beside it that it names put in place of their names. UserError: it cannot be read."""
    if not name:
        raise UserError("--want @: names no file")
    path = Path(name)
    try:
        text = _read(path, pipes=True)
        folder = path.resolve().parent
        return _followed(text, folder, folder, {path.resolve()}, [MOST_BYTES]) or "\n"
    except OSError as problem:
        raise UserError(f"{name}: {problem.strerror or problem}") from problem


def _followed(text: str, folder: Path, root: Path, read: set[Path], left: list[int]) -> str:
    """The text with other files in place of "-r FILE"; one that is elsewhere, not there, or too much keeps its line, which is then "not read"."""

    def content(found: re.Match[str]) -> str:
        try:
            path = (folder / found["file"]).resolve()
            inside = path.is_relative_to(root) and not Path(found["file"]).is_absolute()
            if path in read and inside:
                return ""  # pip, too, reads it once
            if not inside or len(read) >= MOST_FILES:
                return found[0]
            inner = _read(path, pipes=False)
        except (OSError, UserError, RuntimeError, ValueError):  # RuntimeError: a loop of links
            return found[0]
        read.add(path)
        left[0] -= len(inner)
        return _followed(inner, path.parent, root, read, left) if left[0] >= 0 else found[0]

    return _NAMED.sub(content, text)


def _read(path: Path, *, pipes: bool) -> str:
    """A regular file; with `pipes` also what a shell puts in place of <(...), for as long as something comes."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        kind = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(kind):
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
        if stat.S_ISREG(kind):
            with os.fdopen(os.dup(descriptor), "rb") as file:
                data = file.read(MOST_BYTES + 1)
        elif stat.S_ISFIFO(kind) and pipes:
            data = _piped(descriptor, path)
        else:
            raise UserError(f"{path}: not read, because it is no file")
    finally:
        os.close(descriptor)
    if len(data) > MOST_BYTES:
        raise UserError(_too_large(str(path)))
    return data.decode("utf-8", "replace")


def _piped(descriptor: int, path: Path) -> bytes:
    data = bytearray()
    ends = time.monotonic() + MOST_SECONDS
    while len(data) <= MOST_BYTES:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        if not poll.poll(max(0.0, ends - time.monotonic()) * 1000):
            raise UserError(f"{path}: not read, because nothing came for {MOST_SECONDS:.0f} s")
        try:
            chunk = os.read(descriptor, 1 << 16)
        except BlockingIOError:
            continue
        if not chunk:
            break
        data += chunk
        ends = time.monotonic() + MOST_SECONDS
    return bytes(data)


def _too_large(name: str) -> str:
    return f"{name}: not read, because it is larger than {MOST_BYTES >> 20} MiB"
