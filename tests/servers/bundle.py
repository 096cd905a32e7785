"""A server on disk as one text: python bundle.py pack FOLDER > server.txt; `unpacked` lays it out again for a test.

Thousands of files of one line each would be a burden in a repository. A line "==== path" begins a file, "==== path -> target" is a link.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

_MARK = "==== "
_MOST_CPUS = 2
_NEEDLESS = re.compile(r"/(?:subsystem_vendor|subsystem_device|revision|numa_node)$")
_COUNTERS = re.compile(r"/(?:statistics|counters|hw_counters)/")


def packed(folder: Path) -> str:
    """All files of a folder but expect.json; of /proc/cpuinfo the first processors, of XML neither indentation nor N/A, of counters those above 0."""
    out: list[str] = []
    for place in sorted(folder.rglob("*")):
        name = place.relative_to(folder).as_posix()
        if place.is_symlink():
            out.append(f"{_MARK}{name} -> {place.readlink()}\n")
        elif place.is_file() and name != "expect.json":
            text = place.read_bytes().decode("utf-8", "surrogateescape")
            if name.startswith("root/sys/") and (
                _NEEDLESS.search(name) or (_COUNTERS.search(name) and text.strip() == "0")
            ):
                continue
            if name == "root/proc/cpuinfo":
                text = "\n\n".join(text.split("\n\n")[:_MOST_CPUS]) + "\n"
            if name.endswith(".xml"):
                text = "\n".join(line.strip() for line in text.splitlines() if ">N/A<" not in line) + "\n"
            text = text.replace("\0", "\\0")
            out.append(f"{_MARK}{name}\n{text}" + ("" if text.endswith("\n") or not text else "\n"))
        elif place.is_dir() and not any(place.iterdir()):
            out.append(f"{_MARK}{name}/\n")
    return "".join(out)


def unpacked(text: str, folder: Path) -> Path:
    """Lays out a packed server under a folder, which is returned."""
    name, lines = "", [""]
    for line in [*text.removesuffix("\n").split("\n"), _MARK]:
        if not line.startswith(_MARK):
            lines.append(line)
            continue
        if name:
            _write(folder, name, lines)
        name, lines = line.removeprefix(_MARK), []
    return folder


def _write(folder: Path, name: str, lines: list[str]) -> None:
    name, arrow, target = name.partition(" -> ")
    place = folder / name
    if name.endswith("/"):
        place.mkdir(parents=True, exist_ok=True)
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    if arrow:
        place.symlink_to(target)
        return
    text = "".join(f"{line}\n" for line in lines)
    place.write_bytes(text.replace("\\0", "\0").encode("utf-8", "surrogateescape"))


if __name__ == "__main__":
    sys.stdout.buffer.write(packed(Path(sys.argv[2])).encode("utf-8", "surrogateescape"))
