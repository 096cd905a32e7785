"""What the rules cost a tick: eight GPUs at 1 Hz with every row of check: python benchmarks/rules.py [SECONDS] [--profile]."""

from __future__ import annotations

import resource
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from gpuclinic.diagnose.sliding import Sliding
from gpuclinic.knowledge import load_checks, watched_rows
from simulated_machine import Simulated


def main() -> None:
    """Prints milliseconds a tick."""
    numbers = [a for a in sys.argv[1:] if a.isdecimal()]
    seconds = int(numbers[0]) if numbers else 3600
    machine = Simulated(1)
    machine.plan_day()
    rows = watched_rows(load_checks().checks)
    sliding = Sliding(rows)
    took: list[float] = []
    begun = time.process_time()
    for now in range(seconds):
        tick = machine.tick(float(now))
        before = time.thread_time()
        sliding.take(tick)
        took.append((time.thread_time() - before) * 1000)
    took.sort()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{len(rows)} rows, {len(tick.facts)} facts, {seconds} ticks")
    worst = f"99 % {took[int(len(took) * 0.99)]:.3f}, most {took[-1]:.2f} ms"
    print(f"take: mean {statistics.mean(took):.3f} ms, median {took[len(took) // 2]:.3f}, {worst}")
    print(f"whole run {time.process_time() - begun:.1f} s of CPU with the simulated machine; peak {peak:.0f} MiB")


if __name__ == "__main__":
    if "--profile" in sys.argv:
        import cProfile

        cProfile.run("main()", sort="tottime")
    else:
        main()
