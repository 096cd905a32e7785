"""Fuzzes the readers: python benchmarks/fuzz.py [SECONDS-EACH] [READER ...]. What breaks one is kept and named."""

from __future__ import annotations

import random
import sys
import tempfile
import time
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from fuzzing import damaged, seeds, targets


def main() -> None:
    """Runs each reader for its time; the exit status counts the readers that broke."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 600.0
    everyone = targets()
    broken = 0
    for name in sys.argv[2:] or sorted(everyone):
        random_ = random.Random()
        pool = seeds()
        ended = time.monotonic() + seconds
        runs = slowest = 0.0
        faults: dict[str, Path] = {}
        while time.monotonic() < ended:
            data = damaged(random_, pool)
            started = time.monotonic()
            try:
                everyone[name](data)
            except Exception as problem:  # noqa: BLE001 - every exception is what is sought
                place = traceback.extract_tb(problem.__traceback__)[-1]
                key = f"{type(problem).__name__} at {Path(place.filename).name}:{place.lineno}"
                if key not in faults:
                    with tempfile.NamedTemporaryFile(prefix=f"fuzz-{name}-", delete=False) as file:
                        file.write(data)
                    faults[key] = Path(file.name)
            slowest = max(slowest, time.monotonic() - started)
            runs += 1
            if runs % 50 == 0:
                pool.append(data)
                del pool[200:]
        broken += bool(faults)
        print(f"{name}: {runs:.0f} runs, slowest {slowest:.2f} s, {len(faults)} faults")
        for key, path in faults.items():
            print(f"  {key}: {path}")
    sys.exit(broken)


if __name__ == "__main__":
    main()
