"""Makes a log of mixed syslog, trainer and NCCL lines with a chosen share of lines that signatures match."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_QUIET = (
    "{d} n{h:02d} systemd[1]: Started Session {n} of User ml{u}.",
    "{d} n{h:02d} sshd[{p}]: Accepted publickey for ml{u} from 10.20.{u}.{h} port {n} ssh2: ED25519 SHA256:{x}",
    "{d} n{h:02d} kernel: [{t:12.6f}] docker0: port {u}(veth{x:.7}) entered forwarding state",
    "{d} n{h:02d} CRON[{p}]: (root) CMD (   cd / && run-parts --report /etc/cron.hourly)",
    '{d} n{h:02d} containerd[{p}]: time="{i}Z" level=info msg="cleaning up dead shim" id={x}',
    "[rank{r}]:{i},{m:03d} - root - INFO - step: {n}  loss:  {l:.4f}  memory: 61.{m}GiB(77.31%)  tps: 6,{m}  mfu: 40.{u}%",
    "{i}.{m:03d} | INFO | trainer:step:{u} - epoch {u} step {n} loss {l:.4f} lr 1.0e-05 grad_norm {l:.3f} tokens/s {p}",
    "  {u}%|###       | {n}/400000 [0:07:{u:02d}<4:33:00,  {l:.2f}it/s, loss={l:.4f}]",
    "n{h:02d}:{p}:{p} [{r}] NCCL INFO Channel {u:02d}/16 : {r}[{r}] -> {u}[{u}] via P2P/CUMEM/read",
    "n{h:02d}:{p}:{p} [{r}] NCCL INFO NET/IB : GPU Direct RDMA Enabled for HCA {r} 'mlx5_{r}' distance 4 <= 5, read 1",
    "n{h:02d}:{p}:{p} [{r}] NCCL INFO comm 0x{x:.12} rank {r} nranks 64 cudaDev {u} nvmlDev {u} busId 9{u}000 - Init COMPLETE",
    "INFO {g} [loggers.py:123] Engine 000: Avg prompt throughput: {n}.0 tokens/s, Running: {r} reqs, Waiting: 0 reqs",
    "(RayWorkerWrapper pid={p}, ip=10.0.0.{h}) INFO {g} worker.py:{n}] # GPU blocks: {p}, # CPU blocks: 2048",
)
_LOUD = (
    "{d} n{h:02d} kernel: [{t:12.6f}] NVRM: Xid (PCI:0000:9{u}:00): 31, pid={p}, name=python, Ch 00000010, intr 00000000. MMU Fault",
    (
        "[rank{r}]:[E1130 11:22:33.{m:03d}000000 ProcessGroupNCCL.cpp:632] [Rank {r}] Watchdog caught collective operation "
        "timeout: WorkNCCL(SeqNum={n}, OpType=ALLREDUCE, NumelIn=1, Timeout(ms)=600000) ran for 600{m:03d} milliseconds"
    ),
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {u}.00 GiB. GPU {r} has a total capacity of 79.11 GiB of which 1.{m} GiB is free.",
    "{d} n{h:02d} kernel: [{t:12.6f}] Out of memory: Killed process {p} (python) total-vm:1{n}kB, anon-rss:1{n}kB, file-rss:0kB",
    "n{h:02d}:{p}:{p} [{r}] misc/socket.cc:484 NCCL WARN socketStartConnect: Connect to 10.0.0.{h}<{n}> failed : Software caused connection abort",
)


def line(random_: random.Random, forms: tuple[str, ...]) -> str:
    """One random line."""
    second = random_.randrange(60)
    clock = f"{random_.randrange(24):02d}:{random_.randrange(60):02d}:{second:02d}"
    return random_.choice(forms).format(
        d=f"Nov 30 {clock}", i=f"2026-11-30T{clock}", g=f"11-30 {clock}", h=random_.randrange(64), n=random_.randrange(1000, 99999),
        p=random_.randrange(1000, 4000000), u=random_.randrange(8), r=random_.randrange(64), t=random_.random() * 1e6,
        m=random_.randrange(1000), l=random_.random() * 4, x=f"{random_.getrandbits(160):040x}",
    )  # fmt: skip


def make(path: Path, size: int, share: float, seed: int = 7) -> None:
    """Writes the log, where it is not there yet: blocks of lines in random order, so that making it stays quick."""
    if path.exists() and path.stat().st_size >= size:
        return
    random_ = random.Random(seed)
    blocks = ["\n".join(line(random_, _QUIET) for _ in range(100)) + "\n" for _ in range(2000)]
    loud = [line(random_, _LOUD) + "\n" for _ in range(500)]
    expected = share * 100
    written = 0
    with path.open("w") as file:
        while written < size:
            block = random_.choice(blocks)
            count = int(expected) + (random_.random() < expected % 1)
            if count:
                block += "".join(random_.choice(loud) for _ in range(count))
            written += file.write(block)
