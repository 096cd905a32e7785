"""What `gpuclinic agent` costs beside others, on the fault-injecting NVML with realistic call times: 8 GPUs at 1 Hz.

python benchmarks/agent.py --minutes 10 [--peers FOLDER ...]     FOLDER: bin of an environment with nvitop-exporter or gpucm (they do not share one)
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "tests"), str(HERE.parent / "src")]

from fakes.machine import Process  # noqa: E402
from fakes.server import build_server  # noqa: E402
from gpuclinic.watch._own_cost import cost  # noqa: E402

WARM_S = 25.0
STEP_S = 5.0


def commands(peers: list[Path], logs: Path) -> dict[str, list[str]]:
    """The programs that are compared, each sampling once a second."""
    out = {"gpuclinic agent": [sys.executable, "-m", "gpuclinic", "agent"]}
    for program in (folder / "nvitop-exporter" for folder in peers if (folder / "nvitop-exporter").exists()):
        out["nvitop-exporter"] = [str(program), "--interval", "1", "--port", "19417"]
    for program in (folder / "gcm" for folder in peers if (folder / "gcm").exists()):
        out["gcm nvml_monitor"] = [
            str(program), "nvml_monitor", "--sink", "do_nothing", "--push-interval", "60", "--collect-interval", "1",
            "--interval", "60", "--cluster", "bench",
            "--log-folder", str(logs),
        ]  # fmt: skip
    return out


def main() -> None:
    """Starts all, measures them together, prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--peers", type=Path, nargs="*", default=[])
    options = parser.parse_args()
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None  # as /run, where state.json lies
    with tempfile.TemporaryDirectory(dir=memory) as name:
        folder = Path(name)
        server = build_server(folder / "server", "h100-sxm", cost=1)
        ranks = [subprocess.Popen(["sleep", "100000"]) for _ in range(8)]
        for gpu, rank in enumerate(ranks):
            server.add_process(Process(rank.pid, "python train.py"), {gpu: 61_000}, in_proc=False)
        server.gpu("all", {"util.gpu": 97, "util.memory": 61, "power": 640_000, "power.average": 640_000})
        server.write()
        kept = ("GPUCLINIC_NVML", "FAKE_NVML_SCENARIO", "LD_LIBRARY_PATH")
        env = {
            **os.environ,
            **{key: server.env[key] for key in kept},
            "RUNTIME_DIRECTORY": str(folder / "run"),
            "STATE_DIRECTORY": str(folder / "state"),
        }
        (folder / "run").mkdir()
        (folder / "state").mkdir()
        running = {
            label: subprocess.Popen(argv, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
            for label, argv in commands(options.peers, folder).items()
        }  # fmt: skip
        try:
            measure(running, options.minutes * 60)
        finally:
            for process in (*running.values(), *ranks):
                process.terminate()
            for process in running.values():
                process.wait(20)


def measure(running: dict[str, subprocess.Popen[bytes]], seconds: float) -> None:
    """Processor share and memory of each tree over so many seconds."""
    time.sleep(WARM_S)
    begun = time.monotonic()
    first = {label: cost(process.pid) for label, process in running.items()}
    pss: dict[str, list[float]] = {label: [] for label in running}
    while time.monotonic() - begun < seconds:
        time.sleep(STEP_S)
        for label, process in running.items():
            pss[label].append(cost(process.pid).pss_mib or 0.0)
    took = time.monotonic() - begun
    print(f"{took:.0f} s, 8 GPUs at 1 Hz; load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    print(f"{'program':20} {'CPU % of a core':>16} {'PSS MiB median':>15} {'most':>7} {'processes':>10}")
    for label, process in running.items():
        if process.poll() is not None:
            print(f"{label:20} ended by itself, code {process.returncode}")
            continue
        now = cost(process.pid)
        share = 100 * (now.cpu_s - first[label].cpu_s) / took
        values = sorted(pss[label])
        print(f"{label:20} {share:16.2f} {values[len(values) // 2]:15.1f} {values[-1]:7.1f} {now.processes:10}")


if __name__ == "__main__":
    main()
