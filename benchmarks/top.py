"""What `gpuclinic top` costs beside nvitop and gpustat: 8 GPUs at 1 Hz on the fault-injecting NVML, each in a terminal of its own.

python benchmarks/top.py --seconds 60 [--peers FOLDER ...]     FOLDER: bin of an environment with nvitop or gpustat
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pty
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "tests"), str(HERE.parent / "src")]

from fakes.machine import Process  # noqa: E402
from fakes.server import build_server  # noqa: E402
from gpuclinic.watch._own_cost import cost  # noqa: E402

WARM_S = 20.0


def commands(peers: list[Path]) -> dict[str, list[str]]:
    """The programs that are compared."""
    out = {"gpuclinic top": [sys.executable, "-m", "gpuclinic", "top"]}
    for folder in peers:
        if (folder / "nvitop").exists():
            out["nvitop"] = [str(folder / "nvitop"), "--monitor", "full", "--interval", "1"]
        if (folder / "gpustat").exists():
            out["gpustat"] = [str(folder / "gpustat"), "--interval", "1", "-cup"]
    return out


def in_terminal(
    argv: list[str], env: dict[str, str], rows: int, columns: int
) -> tuple[subprocess.Popen[bytes], list[int]]:
    """Starts a program in a terminal; counts the bytes that it writes."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    program = subprocess.Popen(argv, stdin=theirs, stdout=theirs, stderr=theirs, env=env, start_new_session=True)
    os.close(theirs)
    count = [0]

    def drain() -> None:
        while True:
            try:
                count[0] += len(os.read(ours, 1 << 16))
            except OSError:
                return

    threading.Thread(target=drain, daemon=True).start()
    return program, count


def main() -> None:
    """Starts all, measures them together, prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--peers", type=Path, nargs="*", default=[])
    parser.add_argument("--size", default="120x40")
    options = parser.parse_args()
    columns, rows = map(int, options.size.split("x"))
    with tempfile.TemporaryDirectory() as name:
        server = build_server(Path(name) / "server", "h100-sxm", cost=1)
        ranks = [subprocess.Popen(["sleep", "100000"]) for _ in range(8)]
        for gpu, rank in enumerate(ranks):
            server.add_process(Process(rank.pid, "python train.py"), {gpu: 61_000}, in_proc=False)
        server.gpu("all", {"util.gpu": 97, "util.memory": 61, "power": 640_000, "power.average": 640_000})
        server.write()
        kept = ("GPUCLINIC_NVML", "FAKE_NVML_SCENARIO", "LD_LIBRARY_PATH")
        env = {
            **os.environ,
            **{key: server.env[key] for key in kept},
            "TERM": "xterm-256color",
            "COLORTERM": "truecolor",
        }
        started = {label: in_terminal(argv, env, rows, columns) for label, argv in commands(options.peers).items()}
        try:
            measure(started, options.seconds)
        finally:
            for process in (*(program for program, _ in started.values()), *ranks):
                process.terminate()
            for program, _ in started.values():
                program.wait(20)


def measure(started: dict[str, tuple[subprocess.Popen[bytes], list[int]]], seconds: float) -> None:
    """Processor share, memory and bytes written of each."""
    time.sleep(WARM_S)
    begun = time.monotonic()
    first = {label: (cost(program.pid), count[0]) for label, (program, count) in started.items()}
    time.sleep(seconds)
    took = time.monotonic() - begun
    print(f"{took:.0f} s, 8 GPUs at 1 Hz; load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    print(f"{'program':16} {'CPU % of a core':>16} {'PSS MiB':>8} {'bytes/s':>8}")
    for label, (program, count) in started.items():
        if program.poll() is not None:
            print(f"{label:16} ended by itself, code {program.returncode}")
            continue
        now = cost(program.pid)
        share = 100 * (now.cpu_s - first[label][0].cpu_s) / took
        print(f"{label:16} {share:16.2f} {now.pss_mib or 0:8.1f} {(count[0] - first[label][1]) / took:8.0f}")


if __name__ == "__main__":
    main()
