"""Reads files for the check in a process of its own, so that a file system that hangs takes only this process with it.

A request is one JSON line; an answer is a JSON line with the length of the bytes that follow it.
"""

from __future__ import annotations

import errno
import glob
import json
import os
import stat
from typing import Any

from gpuclinic.observe._walk import walk

MOST_FILES = 20_000
MOST_NAMES = 200_000
_KINDS = (
    (stat.S_ISREG, "file"),
    (stat.S_ISDIR, "folder"),
    (stat.S_ISLNK, "link"),
    (stat.S_ISCHR, "character"),
    (stat.S_ISBLK, "block"),
    (stat.S_ISFIFO, "fifo"),
    (stat.S_ISSOCK, "socket"),
)


def serve(requests: int, replies: int, root: str) -> None:
    """Answers until the pipe closes."""
    with open(requests, "rb", closefd=False) as asked, open(replies, "wb", closefd=False) as out:
        for line in asked:
            question = json.loads(line)
            out.writelines(
                json.dumps({**head, "size": len(data)}).encode() + b"\n" + data
                for head, data in answers(question, root)
            )
            out.write(b'{"end":1}\n')
            out.flush()


def answers(question: dict[str, Any], root: str) -> list[tuple[dict[str, Any], bytes]]:
    """The answers to one request, each its head and its bytes; errors of the file system are answers, too."""
    what, path = question["ask"], question["path"]
    if what == "untrusted":
        return [_untrusted(root, one, question["most"]) for one in question["paths"]]
    if what in ("files", "links"):
        return _many(what, root, path, question.get("most", 1 << 16))
    try:
        return [_one_answer(what, root, path, question)]
    except OSError as problem:
        return [({"path": path, "errno": problem.errno, "why": problem.strerror or str(problem)}, b"")]
    except ValueError as problem:
        return [({"path": path, "errno": errno.EINVAL, "why": str(problem)}, b"")]


def _one_answer(what: str, root: str, path: str, question: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
    full = root + path
    if what == "file":
        data, cut = read_regular(full, question["most"], end=question.get("end", False))
        return {"path": path, "cut": cut}, data
    if what == "listing":
        return {"path": path}, "\n".join(sorted(os.listdir(full))[:MOST_NAMES]).encode("utf-8", "surrogateescape")
    if what == "link":
        return {"path": path}, os.readlink(full).encode("utf-8", "surrogateescape")
    if what == "find":
        limits = {name: question[name] for name in ("depth", "most", "seconds", "skip")}
        starts = [path]
        if any(sign in path for sign in "*?["):
            starts = [full[len(root) :] for full in sorted(glob.iglob(root + path))[:MOST_FILES]]
        return {"path": path}, json.dumps(walk(root, starts, question["names"], **limits)).encode()
    if what == "stat":
        return {"path": path}, json.dumps(stat_of(full)).encode()
    if what == "space":
        found = os.statvfs(full)
        shown = {
            "size": found.f_blocks * found.f_frsize, "free": found.f_bfree * found.f_frsize,
            "available": found.f_bavail * found.f_frsize, "files": found.f_files, "files_free": found.f_ffree,
            "read_only": bool(found.f_flag & os.ST_RDONLY),
        }  # fmt: skip
        return {"path": path}, json.dumps(shown).encode()
    raise ValueError(f"no such question: {what}")


def _many(what: str, root: str, pattern: str, most: int) -> list[tuple[dict[str, Any], bytes]]:
    out: list[tuple[dict[str, Any], bytes]] = []
    for full in sorted(glob.iglob(root + pattern) if "\0" not in pattern else ())[:MOST_FILES]:
        path = full[len(root) :]
        try:
            if what == "links":
                out.append(({"path": path}, os.readlink(full).encode("utf-8", "surrogateescape")))
                continue
            data, cut = read_regular(full, most)
            out.append(({"path": path, "cut": cut}, data))
        except ValueError:
            continue  # a name that no file can have
        except OSError as problem:
            if what == "files" and problem.errno != errno.EISDIR:
                out.append(({"path": path, "errno": problem.errno, "why": problem.strerror or str(problem)}, b""))
    return out


def _untrusted(root: str, path: str, most: int) -> tuple[dict[str, Any], bytes]:
    try:
        owner = os.lstat(root + path).st_uid
        data, cut = read_regular(root + path, most, owner=owner)
    except OSError as problem:
        return {"path": path, "errno": problem.errno, "why": problem.strerror or str(problem)}, b""
    except ValueError as problem:
        return {"path": path, "errno": errno.EINVAL, "why": str(problem)}, b""
    return {"path": path, "cut": cut}, data


def read_regular(path: str, most: int, *, end: bool = False, owner: int | None = None) -> tuple[bytes, bool]:
    """That many bytes of a regular file (or of the kernel's message device), and whether there is more. Never blocks on a pipe.

    owner: whose file it has to be where not everybody may read it.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        status = os.fstat(handle)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, "a folder", path)
        if stat.S_ISCHR(status.st_mode) and path.endswith("/dev/kmsg"):
            return _messages(handle, most)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a file", path)
        if owner is not None and status.st_uid != owner and not status.st_mode & stat.S_IROTH:
            raise OSError(errno.EPERM, "a link to what its owner may not read", path)
        if end and status.st_size > most:
            os.lseek(handle, -most, os.SEEK_END)
        pieces: list[bytes] = []
        left = most
        while left > 0:
            piece = os.read(handle, min(left, 1 << 20))
            if not piece:
                break
            pieces.append(piece)
            left -= len(piece)
        data = b"".join(pieces)
        return data, (end and status.st_size > most) or (left == 0 and bool(os.read(handle, 1)))
    finally:
        os.close(handle)


def _messages(handle: int, most: int) -> tuple[bytes, bool]:
    """The kernel's ring buffer, a record a read; the newest where there are more than fit."""
    pieces: list[bytes] = []
    size = 0
    cut = False
    while True:
        try:
            piece = os.read(handle, 8192)
        except BlockingIOError:
            break
        except BrokenPipeError:  # a record was overwritten while we read: go on with the next
            continue
        if not piece:
            break
        pieces.append(piece)
        size += len(piece)
    while size > most and pieces:
        size -= len(pieces.pop(0))
        cut = True
    return b"".join(pieces), cut


def stat_of(path: str) -> dict[str, Any]:
    """Kind, rights, owner, size and time of a path; links are not followed."""
    found = os.lstat(path)
    kind = next((name for test, name in _KINDS if test(found.st_mode)), "other")
    out: dict[str, Any] = {
        "kind": kind, "mode": f"{stat.S_IMODE(found.st_mode):04o}", "uid": found.st_uid, "gid": found.st_gid,
        "size": found.st_size, "mtime": found.st_mtime,
    }  # fmt: skip
    if kind in ("character", "block"):
        out |= {"major": os.major(found.st_rdev), "minor": os.minor(found.st_rdev)}
    return out
