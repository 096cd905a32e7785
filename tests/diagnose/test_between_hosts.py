"""Faults that only two runs, two hosts or two logs tell together."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, BinaryIO, cast

import pytest

from gpuclinic.clinic import Answer, examine
from gpuclinic.diagnose.storage import save_seconds
from gpuclinic.knowledge.library_bugs import FEATURE_SWITCH, bugs, numbers
from gpuclinic.observe import Item

if TYPE_CHECKING:
    from collections.abc import Iterator


class Texts:
    """A Host made of texts."""

    def __init__(self, texts: dict[str, str]) -> None:
        self.label = "texts"
        self._texts = texts

    def items(self) -> Iterator[Item]:
        for name, text in self._texts.items():
            data = text.encode()
            yield Item(name, len(data), lambda data=data: cast("BinaryIO", io.BufferedReader(io.BytesIO(data))))  # type: ignore[arg-type]


def why(**texts: str) -> Answer:
    return examine(Texts(texts))


VERSION = "h1:10:10 [0] NCCL INFO NCCL version 2.26.5+cuda12.8\n"
TIMEOUT = (
    "[rank{0}]:[E101 10:00:00.000000000 ProcessGroupNCCL.cpp:616] [Rank {0}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=8, NumelOut=8, Timeout(ms)=600000) ran for 600012 milliseconds before timing out.\n"
)
WELL = "".join(f"step {n}/400 | loss 2.1 | 300 ms/it\n" for n in range(100, 401, 100)) + "Training completed.\n"


def test_a_switch_of_one_feature_accuses_the_library() -> None:
    good = VERSION + "h1:10:10 [0] NCCL INFO NCCL_PROTO set by environment to Simple\n" + WELL
    answer = why(bad=VERSION + TIMEOUT.format(0) + TIMEOUT.format(1), good=good)
    assert answer.causes[0].id == "net.nccl_bug"
    assert answer.causes[0].confidence >= 0.9


def test_a_switch_of_peer_access_accuses_the_way_between_the_cards() -> None:
    good = VERSION + "h1:10:10 [0] NCCL INFO NCCL_P2P_DISABLE set by environment to 1\n" + WELL
    answer = why(bad=VERSION + TIMEOUT.format(0) + TIMEOUT.format(1), good=good)
    assert answer.causes[0].id == "kernel.iommu_acs"


def test_a_switch_that_does_not_help_accuses_nobody() -> None:
    answer = why(bad=VERSION + TIMEOUT.format(0), note="NCCL_PROTO=Simple does not help, still hangs\n")
    assert all(c.id != "net.nccl_bug" for c in answer.causes)


def test_one_rank_still_saves_while_the_others_give_up() -> None:
    saving = "step 50/400 | loss 2.1\n[rank0] ckpt: saving step 50 to /gpfs/ckpt/50\n"
    answer = why(rank0=saving, rank1="step 50/400 | loss 2.1\n" + TIMEOUT.format(1))
    assert (answer.causes[0].id, answer.causes[0].rank) == ("storage.checkpoint", 0)


def test_a_save_that_ended_is_not_to_blame() -> None:
    log = "Saving checkpoint to /c/1\nCheckpoint saved in 4.1 s\nstep 60/400 | loss 2.1\n" + TIMEOUT.format(1)
    assert all(c.id != "storage.checkpoint" for c in why(log=log).causes)


def test_hosts_with_another_mtu() -> None:
    line = "{0}:1:2 [0] NCCL INFO NET/IB: Dev 0 Port 1 qpn 12 mtu {1} GID 3 (0/14D000AFFFF0000)\n"
    failed = "n1:1:3 [0] transport/net_ib.cc:1295 NCCL WARN NET/IB : Got completion from peer 10.0.0.2<41120> with error 12, opcode 0, len 0, vendor err 129\n"
    answer = why(n1=line.format("n1", 5) + failed, n2=line.format("n2", 3))
    assert answer.causes[0].id == "net.roce_config"


def test_table_and_switches() -> None:
    assert all(b.lowest < b.below for b in bugs())
    assert numbers("2.9.8") < numbers("2.10.3")
    assert FEATURE_SWITCH.match("NCCL_NVLS_ENABLE")
    assert not FEATURE_SWITCH.match("NCCL_IB_HCA")
    assert save_seconds({"ms": "2000"}) == pytest.approx(2.0)
