"""Where time goes and where programs stand: stacks, profiles, timers across ranks, throughput of servers, pressure."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuclinic.model import Document, Fact
from gpuclinic.recognise.parsers import pressure, profiles, rank_times, serving, stacks, steps

PARSERS = (
    stacks.parse_stacks, profiles.parse_profile, serving.parse_throughput, rank_times.parse_rank_times, steps.parse_steps,
    pressure.parse_pressure, pressure.parse_quota,
)  # fmt: skip


def doc(text: str, name: str = "x.txt") -> Document:
    return Document(name, text, name_hint=name)


def one(facts: list[Fact]) -> Fact:
    assert len(facts) == 1, facts
    return facts[0]


def test_py_spy_names_pid_rank_and_the_frame_of_the_program() -> None:
    text = """== rank 2 ==
Process 4711: python train.py
Python v3.10.1 (/usr/bin/python3.10)

Thread 4711 (idle): "MainThread"
    wait (threading.py:320)
    get (queue.py:171)
    __next__ (mine/prefetch.py:12)
Thread 4801 (idle): "refill"
    acquire (mine/prefetch.py:52)
"""
    fact = one(stacks.parse_stacks(doc(text)))
    assert (fact.fields["pid"], fact.fields["rank"], fact.fields["in_collective"]) == (4711, 2, False)
    assert fact.lines["where"].text == "    __next__ (mine/prefetch.py:12)"
    assert fact.lines["where"].line == 8
    assert fact.fields["locked_threads"] == 1


@pytest.mark.parametrize(
    "frames",
    [
        'Thread 7 (active): "MainThread"\n    all_reduce (torch/distributed/distributed_c10d.py:2501)\n    step (a.py:3)',
        'Thread 0x00007f3d (most recent call first):\n  File "/v/site-packages/torch/distributed/distributed_c10d.py", line 9 in barrier\n  File "a.py", line 3 in step',
        (
            "Traceback for thread 7 (python) [] (most recent call last):\n"
            '    (Python) File "a.py", line 3, in step\n    (Python) File "/v/torch/distributed/distributed_c10d.py", line 9, in all_gather'
        ),
        'Thread 1 (Thread 0x7f00 (LWP 7) "python"):\n#0  0x00 in ncclAllReduce () from /v/libnccl.so.2\n#1  0x01 in step () from /srv/a.so',
    ],
)
def test_a_collective_is_seen_whatever_tool_printed_it(frames: str) -> None:
    assert one(stacks.parse_stacks(doc(frames + "\n", "rank3.txt"))).fields["in_collective"] is True


def test_torch_profiler_table() -> None:
    text = """
   Name    Self CPU %      Self CPU   Self CUDA   Self CUDA %    # of Calls
-----------  ------------  ------------  ------------  ------------  ------------
  cudaLaunchKernel        40.00%        4.000s       0.000us         0.00%        90000
  ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevK...         0.00%       0.000us        1.000s        50.00%          10
  Memcpy HtoD (Pageable -> Device)         0.00%       0.000us     200.000ms        10.00%          10
Self CPU time total: 10.000s
Self CUDA time total: 2.000s
"""
    fields = one(profiles.parse_profile(doc(text))).fields
    assert (fields["launch_share"], fields["nccl_share"], fields["copy_share"], fields["gpu_busy_share"]) == (
        0.4,
        0.5,
        0.1,
        0.2,
    )


def test_nsys_columns_and_csv_agree() -> None:
    rows = [("60.0", "6000000000", "3", "2000000000", "x", "x", "x", "x", "[CUDA memcpy Host-to-Device]")]
    head = (
        "Time (%)",
        "Total Time (ns)",
        "Count",
        "Avg (ns)",
        "Med (ns)",
        "Min (ns)",
        "Max (ns)",
        "StdDev (ns)",
        "Operation",
    )
    columns = "  ".join(head) + "\n" + "\n".join("  ".join(r) for r in rows)
    comma = ",".join(head) + "\n" + "\n".join(",".join(r) for r in rows)
    assert one(profiles.parse_profile(doc(columns))).fields == one(profiles.parse_profile(doc(comma))).fields


def test_megatron_times_across_ranks_name_the_slow_one() -> None:
    rows = "\n".join(f"     rank {r:2d}: {300.5 if r == 5 else 100.25}" for r in range(8))
    facts = rank_times.parse_rank_times(doc(f"times across ranks (ms):\n  forward-compute:\n{rows}\n"))
    assert [(f.fields["rank"], f.fields["alone"], f.fields["computes"]) for f in facts] == [(5, True, True)]


def test_megatron_detector_with_even_ranks_is_close_to_one() -> None:
    line = "| MnClk/Rnk: 1950MHz/28 | MxClk/Rnk: 1980MHz/0 | MnEtpt/Rnk: 296.02TF/0 | MxEtpt/Rnk: 297.32TF/8"
    assert one(rank_times.parse_rank_times(doc(line))).fields["factor"] == pytest.approx(1.004)


def test_a_server_that_is_idle_is_not_stalled() -> None:
    line = "Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 0.0 tokens/s, Running: {} reqs, Waiting: {} reqs, KV"
    assert one(serving.parse_throughput(doc("\n".join([line.format(0, 0)] * 9)))).fields["stalled"] is False
    assert one(serving.parse_throughput(doc("\n".join([line.format(4, 2)] * 9)))).fields["stalled"] is True


def test_pressure_takes_its_names_from_the_command() -> None:
    text = "$ cat /proc/pressure/io\nsome avg10=88.11 avg60=87.20 avg300=1 total=8\nfull avg10=74.20 avg60=73.91 avg300=1 total=7\n"
    fields = one(pressure.parse_pressure(doc(text))).fields
    assert (fields["resource"], fields["full_avg10"]) == ("io", 74.2)


def test_quota() -> None:
    assert one(pressure.parse_quota(doc("nr_periods 100\nnr_throttled 97\n"))).fields["throttled_share"] == 0.97


def test_timers_of_steps() -> None:
    ds = "[Rank 0] time (ms) | fwd_microstep: 200.0 | bwd_microstep: 700.0 | bwd_inner_microstep: 1.0 | bwd_allreduce_microstep: 500.0 | step_microstep: 100.0\n"
    assert one(steps.parse_steps(doc(ds * 5))).fields["wait_share"] == 0.5
    json_line = '{"iter": 1, "data_time": 4.5, "iter_time": 5.0}\n'
    assert one(steps.parse_steps(doc(json_line * 5))).fields["data_share"] == 0.9
    gpu_number = "step 10 loss 1.69 tokens/s/gpu 292 data_wait 3 ms\n"
    assert one(steps.parse_steps(doc(gpu_number * 5))).fields.get("compute_seconds") is None
    copies = "batch 1 cpu->gpu 16.9 ms  infer 2.0 ms  gpu->cpu 4.3 ms\n"
    assert one(steps.parse_steps(doc(copies * 5))).fields["copy_share"] == pytest.approx(0.9138)


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet='Thread 0123456789()[]:#|%.,\n"rankcpudt-><ms=FileNameSelf', max_size=400))
def test_no_text_makes_a_parser_fail(text: str) -> None:
    for parse in PARSERS:
        parse(doc(text))


@pytest.mark.parametrize(
    "piece", ["a", " ", "rank ", "Thread 1 (", "#0 a(", "1,", "data ", "cpu->gpu ", "fwd: 1 | bwd: "]
)
def test_long_lines_cost_little(piece: str) -> None:
    text = 'Thread 1 (idle): "MainThread"\n' + piece * 6000 + "\n"
    start = time.perf_counter()
    for parse in PARSERS:
        parse(doc(text))
    assert time.perf_counter() - start < 2
