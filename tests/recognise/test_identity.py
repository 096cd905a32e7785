from __future__ import annotations

import pytest

from gpuclinic.recognise.identity import file_identity, pci_address, prefix_identity

LINES = [
    ("[rank3]: Traceback", {"rank": 3}),
    ("[rank3]:[E1130 11:22:33.123 ProcessGroupNCCL.cpp:1] [PG ID 0 PG GUID 0(default_pg) Rank 3] x", {"rank": 3}),
    ("[E ProcessGroupNCCL.cpp:828] [Rank 5] Watchdog caught", {"rank": 5}),
    ("[default2]:Traceback", {"rank": 2}),
    ("[1,7]<stderr>:boom", {"rank": 7}),
    ("[prterun-n1-4711@1,7]<stderr>: boom", {"rank": 7}),
    ("3: RuntimeError: x", {"rank": 3}),
    (" 12: RuntimeError: x", {"rank": 12}),
    ("[2024-02-27T21:05:10.141100Z] c0ffee12 [rank=2] || INFO: x", {"rank": 2}),
    ("[rank: 2] Global seed set to 1", {"rank": 2}),
    ("(TrainWorker(rank=3) pid=77) x", {"rank": 3, "pid": 77}),
    ("(VllmWorker rank=1 pid=123) ERROR 11-30 11:22:33 x", {"rank": 1, "pid": 123}),
    ("(Worker_TP1 pid=88) ERROR x", {"rank": 1, "pid": 88}),
    ("(EngineCore_DP0 pid=99) ERROR x", {"rank": None, "pid": 99}),
    ("(RayWorkerWrapper pid=71, ip=10.0.0.2) boom", {"pid": 71, "host": "10.0.0.2"}),
    ("[2026-11-30 11:22:33 TP3] Scheduler hit an exception", {"rank": 3}),
    ("n01:55111:55111 [1] NCCL INFO x", {"host": "n01", "pid": 55111, "gpu_index": 1}),
    ("[node17:41822] *** Process received signal ***", {"host": "node17", "pid": 41822}),
    ("[pod/train-worker-0/pytorch] boom", {"host": "train-worker-0"}),
    ("worker-1  | boom", {"host": "worker-1"}),
    ("node17: boom", {"host": "node17"}),
    ("Mar  2 04:11:09 gpu-07 kernel: x", {"host": "gpu-07", "on_node": True}),
    ("Mär  2 04:11:09 gpu-07 kernel: x", {"host": "gpu-07", "on_node": True}),
    ("3月 02 04:11:09 gpu-07 kernel: x", {"host": "gpu-07", "on_node": True}),
    ("2026-03-02T04:11:09.123456+01:00 gpu-07 sshd[12]: x", {"host": "gpu-07", "on_node": True}),
    ("<34>1 2003-10-11T22:14:15.003Z gpu-07 su 12 ID47 - x", {"host": "gpu-07", "on_node": True}),
    ("2: eth0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500", {"rank": None}),
    ("  0:   0%|          | 0/63", {"rank": None}),
    ("[   12.345678] usb 1-6: new high-speed USB device", {"host": None}),
    ("2026-11-30T11:22:33Z Loading model: x", {"host": None}),
    ("nvme0: I/O timeout", {"host": None}),
]  # fmt: skip


@pytest.mark.parametrize(("line", "expected"), LINES)
def test_prefixes(line: str, expected: dict[str, object]) -> None:
    found = prefix_identity(line)
    assert {name: getattr(found, name) for name in expected} == expected


def test_two_ranks_on_one_line() -> None:
    line = "[rank0]: loss 1.0[rank5]: RuntimeError: boom"
    assert prefix_identity(line, line.index("RuntimeError")).rank == 5
    assert prefix_identity(line).rank == 0


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("logs/rank_3.log", {"rank": 3}),
        ("out/1/rank.7/stderr", {"rank": 7}),
        ("run/attempt_0/3/stderr.log", {"rank": 3}),
        ("node17/dmesg.txt", {"host": "node17"}),
        ("dmesg-cn-a100-31.txt", {"host": "cn-a100-31"}),
        ("nccl.n01.4711.log", {"host": "n01", "pid": 4711}),
        ("session/worker-28fa3b6a2f6d1c0a9d8e7f6a5b4c3d2e1f0a9b8c7d6e5f4a3b2c1d0e-01000000-4711.err", {"pid": 4711}),
        ("train.log", {"rank": None, "host": None, "pid": None}),
        ("slurm-123_4.out", {"rank": None}),
        ("nvidia-smi.txt", {"host": None}),
    ],
)
def test_file_names(path: str, expected: dict[str, object]) -> None:
    found = file_identity(path)
    assert {name: getattr(found, name) for name in expected} == expected


@pytest.mark.parametrize("text", ["00000000:9A:00.0", "PCI:0000:9a:00", "9a:00", "0000:9A:00"])
def test_pci_addresses(text: str) -> None:
    assert pci_address(text) == "0000:9a:00.0"
