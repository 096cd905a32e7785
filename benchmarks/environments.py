"""Time and memory of the scan of environments: 30 of 300 packages each.

    python benchmarks/environments.py [--environments 30] [--packages 300] [--runs 5]

The tree is made in a temporary folder; each run is a process of its own. Must hold: 2 s and 80 MB, its reading child included.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "src"))
sys.path.insert(0, str(HERE.parent / "tests"))


def make(root: Path, environments: int, packages: int) -> None:
    from made_environments import conda, filled, interpreter, package, put, torch, venv

    interpreter(root)
    put(root / "etc/passwd", "".join(f"user{n}:x:{1000 + n}:{1000 + n}::/home/user{n}:/bin/bash\n" for n in range(10)))
    for number in range(environments):
        home = root / f"home/user{number % 10}"
        if number % 5 == 4:
            rows = [(f"lib{n}", "1.0.0", "h0_0") for n in range(packages // 2)]
            site = conda(home / f"miniforge3/envs/e{number}", ("pytorch", "2.5.1", "py3.10_cuda12.4_0"), *rows)
        else:
            site = venv(home / f"projects/p{number}/.venv")
            torch(site, "2.5.1+cu124", "12.4")
        for name in (
            "vllm",
            "xformers",
            "triton",
            "numpy",
            "flash-attn",
            "bitsandbytes",
            "torchvision",
            "nvidia-cudnn-cu12",
        ):
            package(site, name, "1.0.0")
        filled(site, packages - 9)


def once(root: str) -> None:
    """Scans, and prints seconds, processor seconds and the peak of memory in MB, of this process and its child."""
    import threading

    peak = 0

    def watch() -> None:
        nonlocal peak
        while not over.is_set():
            total = 0
            children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
            for pid in ["self", *children]:
                try:
                    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
                except OSError:
                    continue
                total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
            peak = max(peak, total)
            over.wait(0.02)

    over = threading.Event()
    from gpuclinic.clinic.environment_places import thorough
    from gpuclinic.clinic.environments import scan
    from gpuclinic.observe.live import LiveHost

    thread = threading.Thread(target=watch)
    begun = time.perf_counter()
    host = LiveHost(root)
    host.file("/etc/passwd")  # the child is forked while there is one thread
    thread.start()
    found = scan(host, thorough())
    seconds = time.perf_counter() - begun
    over.set()
    thread.join()
    host.close()
    used = resource.getrusage(resource.RUSAGE_SELF)
    child = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = used.ru_utime + used.ru_stime + child.ru_utime + child.ru_stime
    print(
        len(found.environments),
        sum(one.count for one in found.environments),
        f"{seconds:.3f}",
        f"{cpu:.3f}",
        f"{max(peak, 0) / 1024:.1f}",
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--environments", type=int, default=30)
    parser.add_argument("--packages", type=int, default=300)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--once", metavar="ROOT", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.once:
        once(options.once)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        make(Path(folder), options.environments, options.packages)
        print("environments packages seconds cpu_seconds peak_mb")
        for _ in range(options.runs):
            command = [sys.executable, __file__, "--once", folder]
            print(subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip())
    return 0


if __name__ == "__main__":
    sys.exit(main())
