"""What `gpuclinic check` takes on a server with 8 GPUs, and what it says beside others: python benchmarks/check.py [--peers FOLDER ...].

The server is the tests' fake one, whose NVML spends the time that a driver takes (cost=1). Aims: 2 s, 0.5 s of processor time, 80 MB.
CPU: of the command and of all its children, those included that it gave up. Memory: the greatest sum of the Pss of all its processes,
looked at every few milliseconds in runs of their own, since looking costs time. Peers: virtual environments (bin/ of each is searched).
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from fakes.server import build_server

if TYPE_CHECKING:
    from fakes.server import Server

TURNS = 5
SKU = "h100-sxm"
CODE = "import sys; from gpuclinic.cli.main import entry; sys.argv[0] = 'gpuclinic'; entry()"
CASES = {
    "healthy": [], "GPU 3 lost": ["lost:3"], "GPU 3 hangs": ["hang:temp:3"], "no driver": ["no_driver"],
    "library mismatch": ["module_mismatch"], "row remapping failed": ["remap_failed:1"],
}  # fmt: skip
_SMI_CHECKS = ("gpu_num", "gpu_temperature", "ecc_uncorrected_volatile_total", "row_remap_pending", "row_remap_failed")
PEERS = {
    "gpumedic": ["scan", "--json", "--expect-gpus", "8"],
    "health_checks": [
        "check-nvidia-smi", "fake", "app", "--gpu_num", "8", "--gpu_temperature_threshold", "85",
        *(word for check in _SMI_CHECKS for word in ("-c", check)),
    ],
}  # fmt: skip
_SUBREAPER = 36


def environment(server: Server, folder: str) -> dict[str, str]:
    """With a cache of byte code, as after an installation, and folders of its own."""
    kept = {name: value for name, value in server.env.items() if name != "PYTHONDONTWRITEBYTECODE"}
    own = {
        "XDG_CACHE_HOME": f"{folder}/cache",
        "XDG_RUNTIME_DIR": f"{folder}/run",
        "PYTHONPYCACHEPREFIX": f"{folder}/code",
    }
    for path in own.values():
        Path(path).mkdir(exist_ok=True, mode=0o700)
    return {**kept, **own}


def all_collected() -> None:
    """Waits for what the command left behind: this process inherits it."""
    while True:
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def cost(command: list[str], env: dict[str, str]) -> tuple[float, float]:
    """Seconds by the clock and of the processor."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=False, env=env)
    wall = time.monotonic() - started
    all_collected()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def tree(pid: int) -> list[int]:
    """A process and all below it."""
    out, new = [], [pid]
    while new:
        one = new.pop()
        out.append(one)
        try:
            for path in Path(f"/proc/{one}/task").glob("*/children"):
                new += [int(child) for child in path.read_text("ascii").split()]
        except OSError:  # it, or one of its threads, has ended meanwhile
            continue
    return out


def pss(pid: int) -> float:
    """MB of a process, shared pages by their share; 0 where it is gone."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text("ascii")
    except OSError:
        return 0.0
    line = next((row for row in text.splitlines() if row.startswith("Pss:")), "Pss: 0 kB")
    return int(line.split()[1]) * 1024 / 1e6


def memory(command: list[str], env: dict[str, str]) -> float:
    """The most that the whole tree had at once, in MB."""
    most = 0.0
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, env=env) as running:
        while running.poll() is None:
            most = max(most, sum(pss(pid) for pid in tree(running.pid)))
            time.sleep(0.004)
    all_collected()
    return most


def measured(env: dict[str, str], name: str, arguments: list[str]) -> str:
    """A row of the table."""
    command = [sys.executable, "-c", CODE, "check", *arguments]
    cost(command, env)  # fills the caches
    runs = [cost(command, env) for _ in range(TURNS)]
    wall, processor = (statistics.median(column) for column in zip(*runs, strict=True))
    size = statistics.median(memory(command, env) for _ in range(3))
    return f"| {name} | {wall:.2f} | {processor:.2f} | {size:.0f} |"


def says(command: list[str], env: dict[str, str]) -> tuple[int | None, float, str]:
    """Exit status (None: not within a minute), seconds, and what it printed, shortened."""
    started = time.monotonic()
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=env, timeout=60)
    except subprocess.TimeoutExpired:
        return None, time.monotonic() - started, "nothing within 60 s"
    taken = time.monotonic() - started
    try:
        text = _verdict(json.loads(done.stdout))
    except (ValueError, KeyError, TypeError):
        lines = [line for line in (done.stdout + done.stderr).strip().splitlines() if line.strip()]
        text = lines[-1] if "Traceback" in done.stderr else " / ".join(lines[:2])
    return done.returncode, taken, " ".join(text.split())[:200]


def _verdict(told: dict[str, Any]) -> str:
    """Of our JSON or of a peer's: the verdict and what is above info."""
    shown = [
        f"{f.get('severity')} {f.get('id') or f.get('code')} {f.get('gpu') or f.get('subject') or f.get('gpu_index', '')}"
        for f in told["findings"]
        if f.get("severity") != "info"
    ]
    return f"{told.get('verdict') or told['node_verdict']}: {'; '.join(shown) or 'nothing'}"


def beside_others(server: Server, env: dict[str, str], folders: list[str]) -> None:
    """Who says what of a few faults."""
    programs = {"gpuclinic": [sys.executable, "-c", CODE, "check", "--json"]}
    for folder in folders:
        for name, arguments in PEERS.items():
            program = Path(folder) / "bin" / name
            if program.exists():
                programs[name] = [str(program), *arguments]
    print("\n| fault | program | exit | s | says |\n| --- | --- | --- | --- | --- |")
    for case, faults in CASES.items():
        server.reset()
        if faults:
            server.inject(*faults)
        for name, command in programs.items():
            code, taken, text = says(command, env)
            shown = text.replace("|", "/")
            print(f"| {case} | {name} | {code} | {taken:.1f} | {shown} |", flush=True)
        all_collected()


def main() -> None:
    """Both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--peers", nargs="*", default=[], metavar="FOLDER", help="virtual environments of other programs"
    )
    options = parser.parse_args()
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    with tempfile.TemporaryDirectory() as folder:
        server = build_server(Path(folder) / "server", SKU, 8, cost=1)
        env = environment(server, folder)
        print("| command | wall s | CPU s | PSS MB |\n| --- | --- | --- | --- |")
        print(measured(env, "check --json, healthy", ["--json"]), flush=True)
        print(measured(env, "check, healthy", []), flush=True)
        server.inject("lost:3")
        print(measured(env, "check --json, GPU 3 lost", ["--json"]), flush=True)
        if options.peers:
            beside_others(server, env, options.peers)


if __name__ == "__main__":
    main()
