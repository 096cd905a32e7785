"""How a process of ours died is never why somebody's work did; the same line about another process is."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, BinaryIO, cast

import pytest

from gpuclinic.clinic import Answer, examine
from gpuclinic.diagnose.evidence import Reading
from gpuclinic.diagnose.own import without_own_deaths
from gpuclinic.model import Where
from gpuclinic.observe import Item
from gpuclinic.recognise.one_process import death_fact

if TYPE_CHECKING:
    from collections.abc import Iterator

LINES = {
    "segfault": "[ 6928.323071] {name}[2609]: segfault at 0 ip 00007f922fc562a8 sp 00007ffd2af5fac0 error 6 in libnvidia-ml.so.1[12a8,7f922fc56000+1000] likely on CPU 1 (core 1, socket 0)",
    "journal": "Nov 30 22:16:44 vm kernel: {name}[2609]: segfault at 0 ip 00007f922fc562a8 sp 00007ffd2af5fac0 error 6 in libc.so.6[12a8,7f922fc56000+1000]",
    "trap": "[ 6928.3] traps: {name}[2609] general protection fault ip:7f922fc562a8 sp:7ffd2af5fac0 error:0 in libnvidia-ml.so.1[7f922fc56000+1000]",
    "abend": 'type=ANOM_ABEND msg=audit(1795976896.1:22): auid=0 uid=0 gid=0 ses=1 subj=x pid=2609 comm="{name}" exe="/usr/bin/python3.11" sig=11 res=1',
    "coredump": "Nov 30 22:16:44 vm systemd-coredump[2610]: Process 2609 ({name}) of user 0 dumped core.",
}  # fmt: skip


class _Text:
    label = "text"

    def __init__(self, text: str) -> None:
        self._text = text.encode()

    def items(self) -> Iterator[Item]:
        yield Item("dmesg", len(self._text), lambda: cast("BinaryIO", io.BufferedReader(io.BytesIO(self._text))))  # type: ignore[arg-type]


def _why(text: str) -> Answer:
    return examine(_Text(text + "\n"))


@pytest.mark.parametrize("kind", LINES)
@pytest.mark.parametrize("ours", ["gpuclinic-nvml", "gpuclinic-child", "gpuclinic"])
def test_a_death_of_ours_is_no_cause(kind: str, ours: str) -> None:
    assert _why(LINES[kind].format(name="python3")).causes
    assert not _why(LINES[kind].format(name=ours)).causes


def test_what_the_driver_says_of_the_gpu_counts_whoever_asked() -> None:
    line = "[ 1567.7] NVRM: Xid (PCI:0000:9c:00): 79, pid=2609, name=gpuclinic-nvml, GPU has fallen off the bus."
    assert _why(line).causes[0].id == "hw.gpu.fallen_off_bus"


def test_records_of_our_deaths_are_left_out() -> None:
    facts = [
        death_fact(pid, None, "process accounting", Where("pacct", None, name), name=name, signal=11)
        for pid, name in ((5, "gpuclinic-nvml"), (6, "train"))
    ]
    left = without_own_deaths(Reading([], facts, {}, {}), {})
    assert [fact.key for fact in left.facts] == ["6"]
