"""Where the processes of a job that stands are: what /proc says, Python's stacks, and NCCL's flight recorder where the job has set it up."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import subprocess
import sys
import time
from pathlib import Path

from gpuclinic.watch.flight.sampling import read

_MOST_PROCESSES, _MOST_THREADS, _MOST_PYTHON = 64, 64, 16
_DUMP_S = 5.0
"""py-spy needs 10-60 ms; with --nonblocking it never stops the process that it reads."""
_NCCL_WAIT_S = 3.0
_LARGEST_DUMP = 8 << 20
_FILES = ("wchan", "syscall", "stack")


def of_kernel(pids: list[int]) -> str:
    """State, wait channel, system call and kernel stack of each process and thread, as far as we may read them."""
    out: list[str] = []
    for pid in pids[:_MOST_PROCESSES]:
        command = read(f"/proc/{pid}/cmdline", 1000).replace(b"\0", b" ").decode("utf-8", "replace").strip()
        out.append(f"==> process {pid} {command[:300]}")
        out += _told(f"/proc/{pid}")
        with contextlib.suppress(OSError):
            for thread in sorted(os.listdir(f"/proc/{pid}/task"))[:_MOST_THREADS]:  # noqa: PTH208
                if thread != str(pid):
                    out += _told(f"/proc/{pid}/task/{thread}")
    return "\n".join(out) + "\n"


def _told(folder: str) -> list[str]:
    status = read(f"{folder}/status", 4096).decode("utf-8", "replace")
    wanted = re.findall(
        r"^(?:Name|State|VmRSS|Threads|voluntary_ctxt_switches|SigPnd|ShdPnd):.*$", status, re.MULTILINE
    )
    out = [f"--- {folder}", *(line.replace("\t", " ") for line in wanted)]
    for name in _FILES:
        text = read(f"{folder}/{name}", 8192).decode("utf-8", "replace").strip()
        if text and text != "0":
            out.append(f"{name}: " + text.replace("\n", "\n  "))
    return out


def of_python(pids: list[int]) -> dict[int, str]:
    """py-spy's dumps, where it is installed and permitted; else why not, under the pid."""
    program = shutil.which("py-spy", path=os.environ.get("PATH", "") + os.pathsep + str(Path(sys.executable).parent))
    found: dict[int, str] = {}
    for pid in [p for p in pids if b"python" in read(f"/proc/{p}/cmdline", 4096).lower()][:_MOST_PYTHON]:
        if program is None:
            found[pid] = "py-spy is not installed (pip install py-spy)\n"
            continue
        try:
            done = subprocess.run(
                [program, "dump", "--nonblocking", "--pid", str(pid)], stdin=subprocess.DEVNULL, capture_output=True, timeout=_DUMP_S, check=False
            )  # fmt: skip
            found[pid] = (done.stdout or done.stderr).decode("utf-8", "replace")[: 1 << 20]
        except (OSError, subprocess.TimeoutExpired) as problem:
            found[pid] = f"py-spy: {problem}\n"
    return found


def _environment(pid: int) -> dict[str, str]:
    pairs = (
        item.partition("=") for item in read(f"/proc/{pid}/environ", 1 << 20).decode("utf-8", "replace").split("\0")
    )
    return {name: value for name, _, value in pairs if name}


def ask_nccl(pids: list[int]) -> dict[str, bytes]:
    """Asks PyTorch's NCCL flight recorder for its dumps through the named pipe that the job itself has set up; file name -> dump.

    PyTorch, ProcessGroupNCCL.hpp DumpPipe: TORCH_NCCL_DEBUG_INFO_PIPE_FILE and the rank and ".pipe" name a pipe that it reads.
    """
    asked, began = False, time.time()
    for pid in pids[:_MOST_PROCESSES]:
        told = _environment(pid)
        stem, rank = told.get("TORCH_NCCL_DEBUG_INFO_PIPE_FILE"), told.get("RANK", "0")
        if stem and rank.isdecimal():
            asked = _poke(f"{stem}{rank}.pipe") or asked
    if asked:
        time.sleep(_NCCL_WAIT_S)
    return dumps_of(pids, began - 1.0) if asked else {}


def _poke(path: str) -> bool:
    try:
        handle = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return stat.S_ISFIFO(os.fstat(handle).st_mode) and os.write(handle, b"1\n") > 0
    except OSError:
        return False
    finally:
        os.close(handle)


def dump_places(pids: list[int]) -> set[str]:
    """Files that the flight recorders of these processes write to (TORCH_FR_DUMP_TEMP_FILE, older TORCH_NCCL_DEBUG_INFO_TEMP_FILE, and rank)."""
    out: set[str] = set()
    for pid in pids[:_MOST_PROCESSES]:
        told = _environment(pid)
        stem = told.get("TORCH_FR_DUMP_TEMP_FILE") or told.get("TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
        size = told.get("TORCH_FR_BUFFER_SIZE") or told.get("TORCH_NCCL_TRACE_BUFFER_SIZE") or "0"
        rank = told.get("RANK", "0")
        if not (size.isdecimal() and int(size) > 0 and rank.isdecimal()):
            continue
        if not stem:
            cache = told.get("XDG_CACHE_HOME") or told.get("HOME", "") + "/.cache"
            out |= {f"{cache}/torch/nccl_trace_rank_{rank}", f"/tmp/nccl_trace_rank_{rank}"}  # noqa: S108 - PyTorch's default
        else:
            out.add(f"{stem}{rank}")
    return out


def dumps_of(pids: list[int], since: float) -> dict[str, bytes]:
    """The dumps of these processes that were written after the moment."""
    return taken(dump_places(pids), since)


def taken(places: set[str], since: float) -> dict[str, bytes]:
    """Those of the files that are of our user and were written after the moment."""
    found: dict[str, bytes] = {}
    for place in sorted(places):
        with contextlib.suppress(OSError):
            handle = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            with os.fdopen(handle, "rb") as file:
                about = os.fstat(file.fileno())
                if stat.S_ISREG(about.st_mode) and about.st_mtime >= since and about.st_uid == os.geteuid():
                    found[place.rpartition("/")[2]] = file.read(_LARGEST_DUMP)
    return found
