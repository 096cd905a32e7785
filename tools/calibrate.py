"""How often answers of each confidence are right: python tools/calibrate.py CASES... prints the table of docs/confidence.md."""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from scoring import answer_for, judge

BINS = ((0.9, 1.01), (0.8, 0.9), (0.7, 0.8), (0.6, 0.7), (0.5, 0.6), (0.0, 0.5))


def main() -> None:
    marks = []
    for root in sys.argv[1:]:
        for path in sorted(Path(root).glob("*/case.json")):
            case = json.loads(path.read_text())
            marks.append((judge(case, answer_for(path.parent)), case))
    print("| confidence | answers | right | share |\n| --- | --- | --- | --- |")
    for low, high in BINS:
        mine = [(m, c) for m, c in marks if low <= m["confidence"] < high and m["named"] != "unknown"]
        right = sum(m["named"] in {c["cause"], *c.get("also_ok", [])} for m, c in mine)
        share = f"{100 * right / len(mine):.0f} %" if mine else "-"
        print(f"| {low:.1f} – {min(high, 1.0):.1f} | {len(mine)} | {right} | {share} |")
    print(f"\n{len(marks)} incidents, {sum(m['named'] == 'unknown' for m, _ in marks)} without any named cause")


if __name__ == "__main__":
    main()
