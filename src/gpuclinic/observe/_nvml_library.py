"""Loading NVML as the dynamic loader finds it, and why it did not load or start. Runs in the child: any of it may hang."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import struct
from pathlib import Path
from typing import Any

SONAME = "libnvidia-ml.so.1"
_FOLDERS = (
    "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib", "/lib64",
    "/usr/local/nvidia/lib64", "/usr/lib/wsl/lib", "/run/nvidia/driver/usr/lib64", "/run/opengl-driver/lib",
    "/usr/lib64/nvidia", "/usr/lib/nvidia",
)  # fmt: skip
"""Where distributions, containers, WSL and the GPU operator put the library."""

_MACHINES = {3: "x86", 62: "x86-64", 40: "arm", 183: "aarch64", 21: "ppc64le", 243: "riscv64"}


class LibraryError(Exception):
    """NVML could not be loaded. kind: missing, unreadable or foreign."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


def load(asked: str) -> ctypes.CDLL:
    """Loads the library by soname or path. Raises LibraryError."""
    try:
        library = ctypes.CDLL(asked)
    except (OSError, ValueError) as problem:
        raise LibraryError(_kind(asked, str(problem)), str(problem)[:300]) from problem
    if not any(hasattr(library, name) for name in ("nvmlInitWithFlags", "nvmlInit_v2", "nvmlInit")):
        raise LibraryError("foreign", f"{asked}: has no nvmlInit_v2, it is no NVML")
    return library


def _kind(asked: str, text: str) -> str:
    if "Permission denied" in text:
        return "unreadable"
    own = text.startswith(asked)  # else a library that this one needs
    if "/" in asked:
        return "missing" if own and not os.path.lexists(asked) else "foreign"
    return "missing" if own and "No such file" in text else "foreign"


def mapped(library: ctypes.CDLL) -> str | None:
    """The file whose code really answers: the mapping of /proc/self/maps that holds its functions."""
    for name in ("nvmlInitWithFlags", "nvmlInit_v2", "nvmlInit"):
        if not hasattr(library, name):
            continue
        place = ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0
        with (
            contextlib.suppress(OSError, ValueError),
            Path("/proc/self/maps").open(encoding="utf-8", errors="replace") as lines,
        ):
            for line in lines:
                parts = line.rstrip("\n").split(maxsplit=5)
                start, _, end = parts[0].partition("-")
                if int(start, 16) <= place < int(end, 16):
                    return parts[5] if len(parts) > 5 else None
    return None


def elsewhere() -> list[dict[str, str]]:
    """Files of that name where the loader does not look, or for another processor."""
    folders = [f for f in os.environ.get("LD_LIBRARY_PATH", "").split(":") if f.startswith("/")][:32]
    found: dict[str, str] = {}
    for folder in (*folders, *_FOLDERS):
        path = os.path.join(folder, SONAME)  # noqa: PTH118 - kept as it was written
        if path not in found and os.path.isfile(path):  # noqa: PTH113
            found[path] = elf(path)
    return [{"path": path, "machine": machine} for path, machine in found.items()][:8]


def elf(path: str) -> str:
    """What a file is built for, as "64-bit x86-64"; why not where that cannot be told."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as problem:
        return os.strerror(problem.errno or 0)
    try:
        head = os.read(handle, 20)
    except OSError as problem:
        return os.strerror(problem.errno or 0)
    finally:
        os.close(handle)
    if len(head) < 20 or head[:4] != b"\x7fELF":
        return "no ELF file"
    bits = {1: "32-bit", 2: "64-bit"}.get(head[4], "ELF")
    machine = struct.unpack_from("<H" if head[5] != 2 else ">H", head, 18)[0]
    return f"{bits} {_MACHINES.get(machine, machine)}"


def surroundings(root: str) -> dict[str, Any]:
    """What stands around an NVML that did not start: the loaded module, and whether its control device opens."""
    told: dict[str, Any] = {}
    for path, name in (("proc/driver/nvidia/version", "module_text"), ("sys/module/nvidia/version", "module_version")):
        with contextlib.suppress(OSError), Path(f"{root}/{path}").open("rb") as file:
            told[name] = file.read(400).decode("utf-8", "replace").split("\n", 1)[0].strip()
    told["control_device"] = _opens(f"{root}/dev/nvidiactl")
    return told


def _opens(path: str) -> str:
    """ "opens", "missing", or the name of the error."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return "missing"
    except OSError as problem:
        return errno.errorcode.get(problem.errno or 0, "error")
    os.close(handle)
    return "opens"
