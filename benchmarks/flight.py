"""What `gpuclinic run` costs: CPU of all its processes beside a job of some seconds, delay of the start, throughput of a pipe, memory.

python benchmarks/flight.py [SECONDS]
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RUN = [sys.executable, "-m", "gpuclinic", "run"]
JOB = (
    "import time\nend = time.time() + {seconds}\nwhile time.time() < end:\n"
    "    sum(i * i for i in range(20000)); print('step', flush=True); time.sleep(0.05)"
)
TICKS = os.sysconf("SC_CLK_TCK")


def family(pid: int) -> dict[int, tuple[str, float, int]]:
    """Children of a process and itself -> name, CPU seconds with those of children that they reaped, resident KiB (proportional)."""
    found: dict[int, tuple[str, float, int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            head, _, rest = path.read_text().rpartition(")")
            parts = rest.split()
            number = int(head.split()[0])
            if number == pid or int(parts[1]) == pid:
                rollup = (path.parent / "smaps_rollup").read_text()
                pss = next(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:"))
                found[number] = (head.partition("(")[2], sum(map(int, parts[11:15])) / TICKS, pss)
        except (OSError, StopIteration):
            continue
    return found


def cost(seconds: float) -> None:
    """CPU and memory of our processes while a job runs."""
    with tempfile.TemporaryDirectory() as folder:
        text = JOB.format(seconds=seconds)
        begun = time.monotonic()
        front = subprocess.Popen([*RUN, "--bundle-dir", folder, sys.executable, "-c", text], stdout=subprocess.PIPE)
        assert front.stdout is not None
        last: dict[int, tuple[str, float, int]] = {}
        while front.stdout.readline():
            if time.monotonic() - begun > seconds - 2:
                last = family(front.pid)
                break
        wall = time.monotonic() - begun
        front.stdout.read()
        front.wait()
    ours = {pid: one for pid, one in last.items() if not one[0].startswith("python") or pid == front.pid}
    for name, cpu, pss in ours.values():
        print(f"  {name:16} {cpu:6.2f} s CPU  {pss / 1024:5.1f} MiB PSS")
    total = sum(one[1] for one in ours.values())
    print(
        f"cost of a job of {wall:.0f} s: {total:.2f} s CPU = {100 * total / wall:.2f} % of its wall time, "
        f"{sum(o[2] for o in ours.values()) / 1024:.1f} MiB PSS"
    )


def start() -> None:
    """Delay until the job runs."""
    script = "import time; print(time.clock_gettime(time.CLOCK_MONOTONIC))"
    both: dict[str, list[float]] = {"alone": [], "run": []}
    for _ in range(15):
        for name, words in (("alone", []), ("run", RUN)):
            begun = time.monotonic()
            done = subprocess.run([*words, sys.executable, "-c", script], capture_output=True, check=True)
            both[name].append(float(done.stdout) - begun)
    delays = [sorted(times)[len(times) // 2] for times in both.values()]
    print(f"start: {1000 * (delays[1] - delays[0]):.0f} ms later than without (median of 15)")


def throughput(size: int = 4 << 30) -> None:
    """Bytes a second through a pipe, with us and without."""
    for name, words in (("without", []), ("with run", RUN)) * 2:
        begun = time.monotonic()
        job = subprocess.Popen([*words, "head", "-c", str(size), "/dev/zero"], stdout=subprocess.PIPE)
        assert job.stdout is not None
        handle = job.stdout.fileno()
        while os.read(handle, 1 << 20):
            pass
        job.wait()
        print(f"pipe {name}: {size / 1e6 / (time.monotonic() - begun):.0f} MB/s")


if __name__ == "__main__":
    start()
    throughput()
    cost(float(sys.argv[1]) if len(sys.argv) > 1 else 60.0)
    print("load average:", os.getloadavg()[0])
