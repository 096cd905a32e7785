"""Combinations of software, GPU and driver from public reports and documents: those of this folder and, where it is there, the shared ones.

The rows of this folder were written and committed before the rules first saw them. First runs:
combinations.jsonl 250 of 265, 3 false "works" (a cuDNN put before the bundled one, twice, and a driver that does not build on 6.15),
12 others, of which 9 are NOT_GIVEN below; combinations-second.jsonl 55 of 60, 1 false "works" (bitsandbytes without a library for CUDA 11.6);
combinations-third.jsonl 45 of 50, 1 false "works" (ctranslate2 beside a torch with another cuDNN); combinations-fourth.jsonl
30 of 32, 2 false "works" (an older CUDA 11 in LD_LIBRARY_PATH, twice).
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from gpuclinic.compat import Answer, Question, judge

HERE = Path(__file__).parent
OURS = ("combinations.jsonl", "combinations-second.jsonl", "combinations-third.jsonl", "combinations-fourth.jsonl")
SHARED = Path(os.environ.get("GPUCLINIC_SHARED", Path(__file__).parents[3] / "shared")) / "cases-compat.jsonl"

# These rows call it unknown when the GPU or the driver is left out. The contract lets anything be left out and then judges by what is given
# (its own case torch 2.3.0 with NumPy 2.0.0, neither GPU nor driver: works), so "works" is expected here, with a note of what would be needed.
NOT_GIVEN = {"bc-208", "bc-209", "bc-210", "bc-211", "bc-214", "bc-215", "bc-218", "bc-262", "bc-265"}


def rows_of(path: Path) -> list[dict]:
    if not path.is_file():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def asked(row: dict) -> Question:
    return Question(
        gpu=row["gpu"], driver=row["driver"], python=row["python"], kernel=row["kernel"], glibc=row["glibc"], cuda=row["cuda_toolkit"],
        cudnn=row["cudnn"], container_cuda=row["container_cuda"], machine=row["machine"], module=row["module"], env=row["env"] or [],
        want=row["want"],
    )  # fmt: skip


def check(row: dict) -> None:
    answer: Answer = judge(asked(row))
    ids = [problem.id for problem in answer.problems]
    expected = "works" if row["id"] in NOT_GIVEN else row["verdict"]
    assert answer.verdict == expected, (ids, answer.unknown, row["why"])
    if row["id"] in NOT_GIVEN:
        assert answer.notes
    if expected == "fails":
        assert ids[0] in {*row["problems"], *row.get("also_ok", [])}, ids


@pytest.mark.parametrize("row", [pytest.param(row, id=row["id"]) for name in OURS for row in rows_of(HERE / name)])
def test_combination(row: dict) -> None:
    check(row)


@pytest.mark.skipif(not SHARED.is_file(), reason="no shared combinations here")
@pytest.mark.parametrize("row", [pytest.param(row, id=row["id"]) for row in rows_of(SHARED)])
def test_shared_combination(row: dict) -> None:
    check(row)


@pytest.mark.parametrize("row", [pytest.param(row, id=row["id"]) for name in OURS for row in rows_of(HERE / name)])
def test_the_line_to_install_works_by_the_same_rules(row: dict) -> None:
    line = judge(asked(row)).install
    if line is None:
        return
    words = re.split(r" (?:--extra-index-url|-f) ", line.removeprefix("pip install "))[0]
    wants = [word.strip("'") for word in words.split(" ")]
    question = asked({**row, "want": wants})
    assert judge(question).verdict == "works", line
