"""What `gpuclinic --help`, and `why` on a small case, take beyond a bare interpreter: python benchmarks/startup.py.

Byte code is cached, as after an installation.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

TURNS = 15
CODE = "import sys; from gpuclinic.cli.main import entry; sys.argv[0] = 'gpuclinic'; entry()"
LOG = (
    "Mar  2 04:11:09 n1 kernel: NVRM: Xid (PCI:0000:9a:00): 79, pid=41822, GPU has fallen off the bus.\n"
    "Mar  2 04:11:10 n1 systemd[1]: Started Session 77 of User ml.\n"
)


def cost(command: list[str], cache: str) -> float:
    """Median CPU milliseconds of a command, the first run left out: it fills the caches."""
    times = []
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"} | {
        "PYTHONPYCACHEPREFIX": cache
    }
    for _ in range(TURNS + 1):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, stdout=subprocess.DEVNULL, check=False, env=environment)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return 1000 * statistics.median(times[1:])


def main() -> None:
    """The table."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "kern.log"
        log.write_text(LOG * 50)
        bare = cost([sys.executable, "-c", "pass"], folder)
        print("| command | CPU ms | beyond a bare interpreter |\n| --- | --- | --- |")
        print(f"| python -c pass | {bare:.0f} | |")
        for name, arguments in (("--help", ["--help"]), ("why FILE", ["why", str(log)])):
            taken = cost([sys.executable, "-c", CODE, *arguments], folder)
            print(f"| gpuclinic {name} | {taken:.0f} | {taken - bare:.0f} |")


if __name__ == "__main__":
    main()
