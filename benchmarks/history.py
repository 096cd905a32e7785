"""What the history costs: bytes a sample, a tick, an hour's packing, a 30-day question.

    python benchmarks/history.py [--days 30] [--hours 24] [--folder DIR]

Eight GPUs with 30 numbers each, one sample a second, as training makes them: phases of work, checkpoint pauses, idle nights, power told in
milliwatts with noise in every digit, counters that grow by noise. One part lives `--hours` distinct hours through the whole path (append,
flush, pack) in accelerated time; the 30 days are then filled with bundles of these hours under other dates, since packing costs the same
each time. Nothing in it is constant but what is constant on real servers (limits, error counts).
"""

from __future__ import annotations

import argparse
import random
import resource
import statistics
import sys
import tempfile
import time
from array import array
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))

from gpuclinic.model import Fact, Tick
from gpuclinic.store import history as store
from gpuclinic.store._history_codec import decode_times, encode_times
from gpuclinic.store._history_pack import bytes_used
from gpuclinic.store.history import History

GPUS = [f"0000:{bus:02x}:00.0" for bus in (0x1A, 0x3B, 0x4C, 0x5D, 0x9A, 0xBB, 0xCA, 0xDA)]
START = 1_790_000_000 // 86400 * 86400


class Gpu:
    """One card at work. The noise is that of real ones: percent and degrees in whole numbers, power in milliwatts, counters of bytes."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.temperature = 35.0
        self.memory_temperature = 40.0
        self.energy = self.random.randrange(10**9, 10**10) / 1000
        self.tx = self.random.randrange(10**12, 10**14)
        self.rx = self.random.randrange(10**12, 10**14)
        self.nvlink = [self.random.randrange(10**12, 10**14) for _ in range(2)]
        self.average = 90.0
        self.corrected = 3
        self.held = 0
        self.throttled = 0

    def sample(self, second: int) -> dict[str, int | float]:
        """The 30 numbers of one second."""
        noise = self.random
        day = second % 86400
        working = 7200 < day < 80000 and (second // 5400) % 9 != 4
        pausing = working and second % 1800 < 45
        busy = working and not pausing
        if working and self.held == 0:
            self.held = 61_000 * (1 << 20) + noise.randrange(0, 2000) * (1 << 21)
        elif not working:
            self.held = 0
        elif noise.random() < 0.02:
            self.held += noise.randrange(-3, 4) * (1 << 21)
        power = max(62.0, noise.gauss(612, 31) if busy else noise.gauss(140, 9) if working else noise.gauss(71, 0.8))
        self.average += (power - self.average) * 0.5
        self.temperature += ((28 + power * 0.058) - self.temperature) * 0.03 + noise.gauss(0, 0.12)
        self.memory_temperature += ((34 + power * 0.07) - self.memory_temperature) * 0.02 + noise.gauss(0, 0.12)
        self.energy += power + noise.gauss(0, 1.5)
        self.tx += max(0, int(noise.gauss(2.1e9, 8e8))) if busy else noise.randrange(0, 90_000)
        self.rx += max(0, int(noise.gauss(1.4e9, 6e8))) if busy else noise.randrange(0, 60_000)
        for link in range(2):
            self.nvlink[link] += max(0, int(noise.gauss(1.6e8, 3e7))) if busy else 0
        if noise.random() < 1e-5:
            self.corrected += 1
        hot = busy and power > 665
        self.throttled += noise.randrange(50_000, 400_000) if hot else 0
        clock = 1980 - 15 * min(25, int(abs(noise.gauss(0, 4)))) if busy else 1980 if working else 345
        total, reserved = 81559 * (1 << 20), 551 * (1 << 20)
        used = self.held + (noise.randrange(1, 5) << 16 if working else 0)
        return {
            "utilization_pct": min(100, max(0, int(noise.gauss(96, 4)))) if busy else 0,
            "memory_utilization_pct": min(100, max(0, int(noise.gauss(48, 9)))) if busy else 0,
            "memory_used_mib": used / (1 << 20),
            "memory_free_mib": (total - reserved - used) / (1 << 20),
            "temperature_c": int(self.temperature),
            "memory_temperature_c": int(self.memory_temperature),
            "t_limit_c": 87 - int(self.temperature),
            "power_w": int(power * 1000) / 1000,
            "power_average_w": int(self.average * 1000) / 1000,
            "power_limit_w": 700.0,
            "sm_clock_mhz": clock,
            "graphics_clock_mhz": clock,
            "memory_clock_mhz": 2619 if working else 2619 - 0,
            "throttle_mask": 4 if hot else 1 if not working else 0,
            "throttle_sw_power_us": self.throttled,
            "throttle_hw_thermal_us": 0,
            "energy_j": int(self.energy * 1000) / 1000,
            "pcie_tx_bytes": self.tx,
            "pcie_rx_bytes": self.rx,
            "pcie_replays": 2,
            "pcie_gen": 5 if working else 1,
            "ecc_corrected_volatile": self.corrected,
            "ecc_uncorrected_volatile": 0,
            "remapped_correctable": 0,
            "remapped_uncorrectable": 0,
            "nvlink_tx_kib": self.nvlink[0],
            "nvlink_rx_kib": self.nvlink[1],
            "nvlink_crc_errors": 0,
            "encoder_pct": 0,
            "decoder_pct": 0,
        }


def tick_of(gpus: list[Gpu], second: int) -> Tick:
    """All cards at one second, with the jitter of a loop that sleeps."""
    facts = [Fact("gpu", key, gpu.sample(second), {}, "nvml") for key, gpu in zip(GPUS, gpus, strict=True)]
    return Tick(START + second + gpus[0].random.uniform(0, 0.004), 1000.0 + second, facts)


Taken = list[tuple[float, float]]


def live(history: History, hours: int) -> tuple[Taken, Taken, int]:
    """Appends hour after hour in accelerated time. Wall and CPU time of appends that wrote nothing, of those that flushed, and samples."""
    gpus = [Gpu(seed) for seed in range(len(GPUS))]
    plain: Taken = []
    flushed: Taken = []
    samples = 0
    for second in range(hours * 3600):
        tick = tick_of(gpus, second)
        samples += sum(len(fact.fields) for fact in tick.facts)
        if second % 4 == 0:
            history._flushed = -1e9
        begun, cpu = time.perf_counter(), time.thread_time()
        history.append(tick)
        taken = (time.perf_counter() - begun, time.thread_time() - cpu)
        (flushed if second % 4 == 0 else plain).append(taken)
    return plain, flushed, samples


def told(plain: Taken, flushed: Taken, hours: int) -> None:
    """What appends took."""
    both = plain + flushed
    walls, cpus = (sorted(1000 * taken[which] for taken in both) for which in (0, 1))
    share = sum(cpus) / 1000 / (hours * 3600)
    print(
        f"  append: median {1000 * statistics.median(t[0] for t in plain):.3f} ms, flushing {1000 * statistics.median(t[0] for t in flushed):.2f} ms"
    )
    print(f"  append and packing, CPU: {100 * share:.3f} % of a core, longest {cpus[-1]:.1f} ms")
    late = sum(wall > 50 for wall in walls)
    print(
        f"  wall time: p99.9 {walls[-len(walls) // 1000]:.1f} ms, longest {walls[-1]:.1f} ms, {late} of {len(walls):,} over 50 ms"
    )


def fill(history: History, hours: int, days: int) -> int:
    """The packed hours again under other dates until the days are full; returns how many samples there are."""
    db = history._files.connection
    db.execute("BEGIN")
    rows = db.execute("SELECT part, opened, ended, times, cells FROM bundle").fetchall()
    rollups: dict[int, list[tuple[float, ...]]] = {}
    for row in db.execute("SELECT * FROM rollup").fetchall():
        rollups.setdefault(row[2], []).append(row)
    number = max(row[0] for row in rows) + 1
    span = hours * 3_600_000
    for again in range(1, -(-days * 24 // hours)):
        for part, opened, ended, times, cells in rows:
            shift = again * span
            moments = encode_times(array("q", [moment + shift for moment in decode_times(times)]))
            db.execute("INSERT INTO bundle VALUES (?,?,?,?,?)", (number, opened + shift, ended + shift, moments, cells))
            db.executemany(
                "INSERT INTO rollup VALUES (?,?,?,?,?,?,?,?,?,?,?,?)",
                [(r[0], r[1] + shift, number, r[3] + shift, *r[4:]) for r in rollups[part]],
            )
            number += 1
    db.execute("COMMIT")
    return int(db.execute("SELECT sum(n) FROM rollup").fetchone()[0])


def asked(path: Path, end: float) -> None:
    """Questions of a reader that opens the file."""
    questions = (("30 days", 30 * 86400), ("7 days", 7 * 86400), ("one day", 86400), ("one hour", 3600))
    for what, length in questions:
        times = []
        for field in ("power_w", "temperature_c", "pcie_tx_bytes"):
            begun = time.perf_counter()
            with History.open(path, read_only=True) as reader:
                series = reader.series("gpu", GPUS[3], field)[0]
                found = reader.query(series, end - length, end, 1000)
            times.append(time.perf_counter() - begun)
        print(f"  {what:8} of one metric, file opened: {1000 * max(times):6.1f} ms, {len(found)} stretches")


def main() -> None:
    """Runs it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--hours", type=int, default=24)
    parser.add_argument("--folder")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        path = Path(folder) / store.FILE_NAME
        history = History.open(path)
        cpu = time.process_time()
        plain, flushed, samples = live(history, options.hours)
        print(
            f"{samples:,} samples in {options.hours} h of accelerated time, {time.process_time() - cpu:.0f} s of CPU with the generator"
        )
        told(plain, flushed, options.hours)
        history.pack_all(START + (options.hours + 24) * 3600.0)
        history._files.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        history.append(tick_of([Gpu(9)] * len(GPUS), (options.hours + 24) * 3600))
        history.pack_all(START + (options.hours + 48) * 3600.0)
        total = fill(history, options.hours, options.days)
        end = START + options.days * 86400.0
        used = bytes_used(history._files.connection)
        print(f"  {options.days} days: {total:,} samples, {used / 1e6:.0f} MB, {used / total:.3f} bytes a sample")
        history.close()
        asked(path, end)
        print(f"  resident at most {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")


if __name__ == "__main__":
    main()
