"""Scans a made log with ripgrep and `gpuclinic why`, on one and on two cores: python benchmarks/scan_log.py [GiB].

ripgrep gets the expressions of all signatures that name a cause, as simplified for searching; we do all that `why`
does. Prints seconds (wall and CPU), ratios, throughput, and our peak memory.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from make_log import make

from gpuclinic.knowledge import load
from gpuclinic.recognise.patterns import for_hyperscan

TURNS = int(os.environ.get("BENCH_TURNS", "5"))
FOLDER = Path(os.environ.get("BENCH_FOLDER") or tempfile.gettempdir())


def run(command: list[str], cores: str) -> tuple[float, float, float]:
    """Wall seconds, CPU seconds and peak memory in MiB of a command on these cores."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    environment.setdefault("PYTHONPYCACHEPREFIX", str(FOLDER / "bytecode"))  # cached, as after an installation
    started = time.monotonic()
    process = subprocess.Popen(
        ["taskset", "-c", cores, *command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment
    )
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.monotonic() - started
    errors = process.stderr.read().decode() if process.stderr else ""
    assert os.waitstatus_to_exitcode(status) in (0, 1), errors[-500:]
    return wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def main() -> None:
    """The table."""
    size = int(float(sys.argv[1] if len(sys.argv) > 1 else 1) * (1 << 30))
    patterns = FOLDER / "patterns.txt"
    wanted = [s for s in load().signatures if s.level != "context"]
    rows = [f"(?{'i' if s.ignore_case else ''}-u:{for_hyperscan(s.pattern)})" for s in wanted]
    patterns.write_text("\n".join(rows) + "\n")
    ours = [sys.executable, "-c", "from gpuclinic.cli.main import entry; entry()", "why", "--json"]
    print(f"{len(rows)} expressions, {size / (1 << 30):g} GiB, median of {TURNS}")
    print("| matching lines | cores | ripgrep s (CPU) | why s (CPU) | by wall | by CPU | why MB/s | peak MiB |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for share in (0.0001, 0.01):
        log = FOLDER / f"bench_{share:g}.log"
        make(log, size, share)
        run([*ours, str(log)], "0,1")  # fills the caches: ours, and the page cache
        for cores in ("0", "0,1"):
            search = ["rg", "-c", "--no-unicode", "--regex-size-limit", "4G", "-f", str(patterns), str(log)]
            theirs = [run(search, cores) for _ in range(TURNS)]
            mine = [run([*ours, str(log)], cores) for _ in range(TURNS)]
            wall, cpu = (statistics.median(t[i] for t in theirs) for i in (0, 1))
            my_wall, my_cpu = (statistics.median(m[i] for m in mine) for i in (0, 1))
            peak = max(m[2] for m in mine)
            print(
                f"| {share:.2%} | {len(cores.split(','))} | {wall:.2f} ({cpu:.2f}) | {my_wall:.2f} ({my_cpu:.2f}) "
                f"| {wall / my_wall:.2f} | {cpu / my_cpu:.2f} | {size / my_wall / 1e6:.0f} | {peak:.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
