"""Reads a made log in compressed forms, beside the program that unpacks each: python benchmarks/scan_compressed.py [MiB]."""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys

from make_log import make
from scan_log import FOLDER, TURNS, run

FORMS = {"gz": "gzip", "zst": "zstd", "xz": "xz", "bz2": "bzip2"}


def main() -> None:
    """The table: seconds by wall of the unpacking program, and of `why` on one core and on two."""
    size = int(sys.argv[1] if len(sys.argv) > 1 else 512) << 20
    log = FOLDER / "bench_packed.log"
    make(log, size, 0.0001)
    ours = [sys.executable, "-c", "from gpuclinic.cli.main import entry; entry()", "why", "--json"]
    print(f"{size >> 20} MiB unpacked, median of {TURNS}")
    print("| form | unpacking program s | why, one core s (CPU) | why, two cores s (CPU) | peak MiB |")
    print("| --- | --- | --- | --- | --- |")
    for ending, program in FORMS.items():
        if shutil.which(program) is None:
            continue
        packed = log.with_name(f"{log.name}.{ending}")
        if not packed.exists() or packed.stat().st_mtime < log.stat().st_mtime:
            level = ["-1"] if program == "xz" else []
            with packed.open("wb") as file:
                subprocess.run([program, *level, "-c", str(log)], stdout=file, check=True)
        run([*ours, str(packed)], "0,1")
        theirs = statistics.median(run([program, "-dc", str(packed)], "0,1")[0] for _ in range(TURNS))
        one = [run([*ours, str(packed)], "0") for _ in range(TURNS)]
        two = [run([*ours, str(packed)], "0,1") for _ in range(TURNS)]
        shown = [
            f"{statistics.median(m[0] for m in part):.2f} ({statistics.median(m[1] for m in part):.2f})"
            for part in (one, two)
        ]
        print(
            f"| .{ending} | {theirs:.2f} | {shown[0]} | {shown[1]} | {max(m[2] for m in one + two):.0f} |", flush=True
        )


if __name__ == "__main__":
    main()
