"""Builds the fake libnvidia-ml.so.1 with the system compiler, once for each state of its sources."""

from __future__ import annotations

import csv
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
SONAME = "libnvidia-ml.so.1"


class NoCompilerError(RuntimeError):
    """No C compiler here: tests that need the fake library skip with this message."""


def compiler() -> str:
    """The path of the C compiler; raises NoCompilerError where there is none."""
    for name in (os.environ.get("CC", ""), "cc", "gcc", "clang"):
        if name and (found := shutil.which(name)):
            return found
    raise NoCompilerError("no C compiler on PATH (cc, gcc, clang), the fake NVML cannot be built")


def symbols(driver: int | None = None) -> list[str]:
    """Names that a driver of that branch (450, 535, ...) exports; None: all known."""
    with (HERE / "nvml_symbols.tsv").open(encoding="utf-8", newline="") as table:
        rows = list(csv.DictReader(table, delimiter="\t"))
    return [row["symbol"] for row in rows if driver is None or int(row["since"]) <= driver]


def _sources() -> list[Path]:
    return sorted([*HERE.glob("*.c"), *HERE.glob("*.h"), HERE / "nvml_symbols.tsv", Path(__file__)])


def build_library(driver: int | None = None, cache: Path | None = None) -> Path:
    """The path of the built library, in a folder of its own so that LD_LIBRARY_PATH can name it.

    ``driver`` hides the symbols that a driver of that branch does not have. Raises NoCompilerError.
    """
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in _sources())).hexdigest()[:16]
    base = cache or Path(tempfile.gettempdir()) / f"gpuclinic-fake-nvml-{os.getuid()}"
    folder = base / f"{digest}-{driver or 'newest'}"
    library = folder / SONAME
    if library.exists():
        return library
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.TemporaryDirectory(dir=folder) as work:
        built = _compile(Path(work), symbols(driver))
        built.replace(library)  # whole or not at all, also with several test processes
    return library


def _compile(work: Path, names: list[str]) -> Path:
    stubs = work / "stubs.c"
    stubs.write_text("\n".join([
        '#include "nvml_stub.h"', *(f"STUB({name})" for name in symbols()), "",
    ]), encoding="ascii")  # fmt: skip
    versions = work / "exports.map"
    versions.write_text("{ global:\n" + "".join(f"{name};\n" for name in names) + "local: *; };\n", encoding="ascii")
    target = work / SONAME
    command = [
        compiler(), "-shared", "-fPIC", "-O1", f"-I{HERE}", f"-Wl,-soname,{SONAME}", f"-Wl,--version-script={versions}",
        "-o", str(target), str(HERE / "libnvml.c"), str(stubs), "-lpthread",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the fake NVML does not compile: {done.stderr[-2000:]}")
    return target
