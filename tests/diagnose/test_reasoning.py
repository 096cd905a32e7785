"""Roots before consequences: small incidents written here, judged end to end without files."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, BinaryIO, cast

import pytest

from gpuclinic.clinic import Answer, examine
from gpuclinic.diagnose.deaths import signal_number
from gpuclinic.diagnose.generic import rises
from gpuclinic.diagnose.memory import size_in_bytes
from gpuclinic.observe import Item

if TYPE_CHECKING:
    from collections.abc import Iterator


class Texts:
    """A Host made of texts."""

    def __init__(self, **texts: str) -> None:
        self.label = "texts"
        self._texts = texts

    def items(self) -> Iterator[Item]:
        for name, text in self._texts.items():
            data = text.encode()
            yield Item(name, len(data), lambda data=data: cast("BinaryIO", io.BufferedReader(io.BytesIO(data))))  # type: ignore[arg-type]


def why(**texts: str) -> Answer:
    return examine(Texts(**texts))


def root(answer: Answer) -> str:
    return answer.causes[0].id if answer.causes and answer.causes[0].confidence >= 0.5 else "none"


WATCHDOG = (
    "[rank{r}]:[E0312 04:02:1{r}.5 ProcessGroupNCCL.cpp:685] [Rank {r}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={seq}, "
    "OpType={op}, NumelIn=64, NumelOut=64, Timeout(ms)=600000) ran for 600042 milliseconds before timing out.\n"
)
OOM_KERNEL = (
    "[Thu Jun 18 03:17:43 2026] oom-kill:constraint={kind},nodemask=(null),cpuset=/,mems_allowed=0,task_memcg=/a,task=python3,pid={pid},uid=0\n"
    "[Thu Jun 18 03:17:43 2026] {text}: Killed process {pid} (python3) total-vm:9kB, anon-rss:8kB, file-rss:1kB, shmem-rss:0kB\n"
)
WORKER_KILLED = "E0618 03:17:45.372000 2210 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: -9) local_rank: 1 (pid: 2302) of binary: python\n"


@pytest.mark.parametrize(
    ("kind", "text", "cause"),
    [
        ("CONSTRAINT_NONE", "Out of memory", "host.oom_killer"),
        ("CONSTRAINT_MEMCG", "Memory cgroup out of memory", "host.cgroup_oom"),
    ],
)
def test_the_kernels_constraint_tells_host_from_cgroup(kind: str, text: str, cause: str) -> None:
    answer = why(train=WORKER_KILLED, dmesg=OOM_KERNEL.format(kind=kind, text=text, pid=2302))
    assert root(answer) == cause
    assert (answer.causes[0].pid, answer.causes[0].rank) == (2302, 1)


def test_a_sigkill_alone_is_no_verdict() -> None:
    answer = why(train=WORKER_KILLED)
    assert root(answer) == "none"
    assert answer.outcome in ("hint", "not_enough_evidence")
    assert any("kernel" in m["what"] for m in answer.missing)


def test_watchdogs_are_consequences_of_the_rank_that_raised() -> None:
    waiting = "".join(WATCHDOG.format(r=r, seq=7, op="ALLREDUCE") for r in (0, 1, 3))
    failed = (
        "[rank2]: Traceback (most recent call last):\n"
        '[rank2]:   File "/srv/train.py", line 3, in <module>\n'
        "[rank2]: KeyError: 'labels'\n"
    )
    answer = why(log=failed + waiting)
    assert root(answer) == "app.exception"
    assert answer.causes[0].rank == 2
    assert "net.collective_timeout" in [c.id for c in answer.causes if c.role == "consequence"]


def test_the_odd_operation_is_to_blame() -> None:
    lines = "".join(WATCHDOG.format(r=r, seq=9, op="BROADCAST" if r == 2 else "ALLREDUCE") for r in range(5))
    answer = why(log=lines)
    assert root(answer) in ("net.collective_timeout", "app.hang")
    assert answer.causes[0].rank == 2


def test_the_drivers_own_verdict_outranks_the_table() -> None:
    kernel = (
        "[  10.000001] NVRM: Xid (PCI:0000:9a:00): 119, pid=7, name=python, Timeout after 6s of waiting for RPC response from GPU0 GSP!\n"
        "[  10.000002] NVRM: Xid (PCI:0000:9a:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)\n"
    )
    answer = why(dmesg=kernel)
    assert root(answer) == "hw.gpu.gsp_failure"
    assert answer.causes[0].action == "reboot"


def test_an_unknown_xid_is_reported_as_unknown_not_dropped() -> None:
    answer = why(dmesg="[  10.000001] NVRM: Xid (PCI:0000:9a:00): 987, pid=7, name=python, something new\n")
    assert answer.outcome != "nothing_wrong"


def test_a_good_end_takes_the_alarm_out() -> None:
    noisy = "NCCL WARN Call to connect returned Connection refused, retrying\nstep 10/10 loss 0.1\nTraining finished. Model saved to /out/m.pt\n"
    assert root(why(log=noisy)) == "none"


def test_nothing_read_and_nothing_wrong_are_told_apart() -> None:
    assert examine(Texts()).outcome == "nothing_read"
    assert why(log="hello\n").outcome in ("nothing_wrong", "not_enough_evidence")


def test_texts_of_both_languages() -> None:
    texts = Texts(dmesg="[  10.000001] NVRM: Xid (PCI:0000:9a:00): 79, GPU has fallen off the bus.\n")
    chinese = examine(texts, "zh").causes[0]
    assert chinese.id == examine(texts, "en").causes[0].id
    assert any("\u4e00" <= c <= "\u9fff" for c in chinese.title + chinese.explanation)


@pytest.mark.parametrize(
    ("groups", "number"),
    [
        ({"exit": "-9"}, 9),
        ({"exit": "137"}, 9),
        ({"signal": "SIGSEGV"}, 11),
        ({"signal": "Killed"}, 9),
        ({"exit": "1"}, None),
        ({"signal": "段错误"}, 11),
    ],
)
def test_signal_number(groups: dict[str, str], number: int | None) -> None:
    assert signal_number(groups) == number


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1.50 GiB", 1.5 * 1024**3),
        ("64.00 MiB", 64 * 1024**2),
        ("123", 123.0),
        ("0 bytes", 0.0),
        ("?", None),
        (None, None),
    ],
)
def test_size_in_bytes(text: str | None, size: float | None) -> None:
    assert size_in_bytes(text) == size


def test_a_plateau_is_no_leak() -> None:
    assert rises([1.0, 1.2, 1.4, 1.6, 1.8, 2.0, 2.2, 2.4, 2.6])
    assert not rises([1.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0])
    assert not rises([1.0, 2.0])
