"""How long a scrape of a real agent takes with eight GPUs, one of which hangs, and what a thousand scrapes leave behind.

python benchmarks/exporter.py --scrapes 1000
"""

from __future__ import annotations

import argparse
import http.client
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "tests"), str(HERE.parent / "src")]

from fakes.server import build_server  # noqa: E402

MODERN = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"


def scrape(port: int) -> tuple[float, int]:
    """Seconds and bytes of one answer, as Prometheus asks."""
    began = time.perf_counter()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", "/metrics", headers={"Accept": MODERN})
    body = connection.getresponse().read()
    connection.close()
    return time.perf_counter() - began, len(body)


def left_behind(pid: int) -> tuple[int, int, float]:
    """Descriptors, threads, and proportional set size in MiB of the agent itself."""
    pss = next(line for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines() if line.startswith("Pss:"))
    return (
        len(list(Path(f"/proc/{pid}/fd").iterdir())),
        len(list(Path(f"/proc/{pid}/task").iterdir())),
        int(pss.split()[1]) / 1024,
    )


def main() -> None:
    """Runs an agent, hangs a GPU, scrapes, prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scrapes", type=int, default=1000)
    parser.add_argument("--between", type=float, default=0.05, help="seconds between two scrapes")
    parser.add_argument("--dcgm", action="store_true", help="dcgm-exporter's names, too")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name, socket.create_server(("127.0.0.1", 0)) as free:
        folder, port = Path(name), free.getsockname()[1]
        free.close()
        server = build_server(folder / "server", "h100-sxm", cost=1)
        config = folder / "agent.toml"
        config.write_text(f'[exporter]\nlisten = "127.0.0.1:{port}"\ndcgm_names = {str(options.dcgm).lower()}\n')
        env = {
            **os.environ,
            **server.env,
            "RUNTIME_DIRECTORY": str(folder / "run"),
            "STATE_DIRECTORY": str(folder / "state"),
        }
        agent = subprocess.Popen([sys.executable, "-m", "gpuclinic", "agent", "--config", str(config)], env=env)
        try:
            time.sleep(25)
            measure(agent.pid, port, options, "healthy")
            server.set({"3.hang.any": "inf"})
            time.sleep(5)
            measure(agent.pid, port, options, "GPU 3 hangs")
        finally:
            agent.terminate()
            agent.wait(30)


def measure(pid: int, port: int, options: argparse.Namespace, what: str) -> None:
    """Scrapes and prints a line."""
    for _ in range(20):
        scrape(port)
    before = left_behind(pid)
    took = []
    size = 0
    for _ in range(options.scrapes):
        seconds, size = scrape(port)
        took.append(seconds * 1000)
        time.sleep(options.between)
    time.sleep(1)
    after = left_behind(pid)
    took.sort()
    print(
        f"{what}: {options.scrapes} scrapes of {size / 1024:.0f} KiB: median {statistics.median(took):.1f} ms, "
        f"99 of 100 within {took[int(len(took) * 0.99)]:.1f} ms, slowest {took[-1]:.1f} ms; "
        f"descriptors {before[0]} -> {after[0]}, threads {before[1]} -> {after[1]}, PSS {before[2]:.1f} -> {after[2]:.1f} MiB"
    )


if __name__ == "__main__":
    main()
