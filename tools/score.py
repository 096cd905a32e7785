"""Scores `why` on folders of cases, in one process: python tools/score.py CASES... [--only TEXT] [-v]."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from scoring import FIGURES, answer_for, figures, judge


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", type=Path, nargs="+")
    parser.add_argument("--only", default="")
    parser.add_argument("-v", action="store_true")
    options = parser.parse_args()
    marks = []
    for folder in sorted(
        p.parent for root in options.cases for p in root.glob("*/case.json") if options.only in p.parent.name
    ):
        case = json.loads((folder / "case.json").read_text())
        answer = answer_for(folder)
        mark = judge(case, answer)
        marks.append(mark)
        wrong = [k for k in FIGURES if mark[k] is False and k != "top3"]
        if wrong or options.v:
            first = (answer["causes"] or [{}])[0]
            others = [f"{c['id']}:{c['role'][:1]}:{c['confidence']:.2f}" for c in answer["causes"][1:5]]
            mark_text = "MISS" if not mark["top1"] else "part" if wrong else "ok  "
            who = f"gpu {first.get('gpu')} pid {first.get('pid')} rank {first.get('rank')} act {first.get('action')}"
            print(f"{mark_text} {folder.name}: {mark['named']} {mark['confidence']:.2f} want {case['cause']}", end="")
            print(f" | wrong {','.join(wrong)} | {who} | {' '.join(others)}")
    for key, value in figures(marks).items():
        print(f"{key} {value:.1f}", end="  ")
    print(f"({len(marks)} cases)")


if __name__ == "__main__":
    main()
