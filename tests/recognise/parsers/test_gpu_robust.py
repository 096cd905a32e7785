"""No GPU parser raises, whatever it is given; and none needs long for it."""

from __future__ import annotations

import importlib
import random
import re
import time
from pathlib import Path

import pytest
from gpu_helpers import SHARED
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuclinic.model import Document
from gpuclinic.recognise.parsers._table_gpu import ENTRIES

WORDS = [
    "NVIDIA-SMI 525.60.13 Driver Version: 525.60.13 CUDA Version: 12.0",
    "GPU 00000000:1B:00.0",
    "   0  NVIDIA A30  On  00000000:1A:00.0 Off  0",
    "Link 1: <inactive>",
    "GPU 0: A (UUID: GPU-1)",
    "CA 'mlx5_0'",
    "Port 1:",
    "State: Active",
    '<gpu id="0:1:2">',
    "</gpu>",
    "<a><b>1</b>",
    "Processes:",
    "41:00.0 3D controller: NVIDIA Corporation X (rev ff)",
    "LnkSta: Speed 2.5GT/s, Width x4",
    "Package Version",
    "---",
    "torch 2.0",
    "torch==2.1.0+cu121",
    "PyTorch version: 2.0",
    "GPU 0: X",
    '{"DCGM Diagnostic": {"tests": [{"results": [{"status": "FAIL", "gpu_ids": "1"}]}]}}',
    '{"entries": [{}, 3, {"state": "started"}]}',
    "index, name, uuid",
    "0, A, B",
    "# gpu pid type",
    "0 12 C",
    "nvidia 123456 1",
    "Volatile",
    "Single Bit",
    "Total : 3",
    "FB Memory Usage",
    "Used : 1 MiB",
    "GPU0 GPU1 CPU Affinity",
    "GPU0 X NV1",
    'DCGM_FI_DEV_GPU_TEMP{gpu="0"} 1e9',
    "NIC statistics:",
    "  a_err: 5",
]


def functions() -> list[str]:
    return sorted({e.function for e in ENTRIES})


def call(function: str, text: str) -> None:
    module, _, name = function.partition(":")
    getattr(importlib.import_module(f"gpuclinic.recognise.parsers.{module}"), name)(Document("x", text))


@pytest.mark.parametrize("function", functions())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.one_of(st.sampled_from(WORDS), st.text(max_size=40)), max_size=25))
def test_never_raises(function: str, lines: list[str]) -> None:
    call(function, "\n".join(lines))


@pytest.mark.parametrize("function", functions())
def test_long_hostile_lines_take_no_time(function: str) -> None:
    texts = [
        " " * 200_000,
        "0 " * 100_000,
        "a" * 200_000,
        "[" * 100_000,
        "{" * 50_000,
        "<a>" * 50_000,
        "1, " * 60_000,
        "| " * 100_000,
        "GPU 0: " * 30_000,
    ]
    started = time.monotonic()
    for text in texts:
        call(function, text)
    assert time.monotonic() - started < 4.0


def test_marks_take_no_time() -> None:
    texts = [
        " " * 200_000,
        "a" * 200_000,
        "a, " * 60_000,
        "0 " * 100_000,
        "-" * 200_000,
        "\n" * 100_000,
        " \n" * 50_000,
        "a.b" * 60_000,
        "00:00.0 A" * 20_000,
        "GPU " * 50_000,
        "lsmod | " * 20_000,
        "python -c '" * 20_000,
    ]
    for entry in ENTRIES:
        for mark in entry.marks:
            started = time.monotonic()
            for text in texts:
                re.search(mark, text, re.MULTILINE)
            assert time.monotonic() - started < 1.5, (entry.name, mark)


def test_damaged_real_samples() -> None:
    if not SHARED.is_dir():
        pytest.skip(f"no real samples at {SHARED} (set GPUCLINIC_SHARED)")
    chance = random.Random(7)
    files = [
        p
        for p in sorted((SHARED / "data").rglob("*"))
        if p.is_file() and p.stat().st_size < 60_000 and p.suffix not in (".gz", ".tgz")
    ]
    for path in chance.sample(files, min(30, len(files))):
        text = Path(path).read_bytes().decode("latin-1")
        for _ in range(2):
            at = chance.randrange(len(text) + 1)
            damaged = (
                text[:at] + chr(chance.randrange(1, 255)) * chance.randrange(4) + text[at + chance.randrange(60) :]
            )
            damaged = damaged[: chance.randrange(len(damaged) + 1)] if chance.random() < 0.5 else damaged
            for entry in ENTRIES:
                if any(re.search(m, damaged, re.MULTILINE) for m in entry.marks):
                    call(entry.function, damaged)
