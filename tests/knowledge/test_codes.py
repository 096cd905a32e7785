"""The tables of codes."""

from __future__ import annotations

import pytest

from gpuclinic.knowledge import DATA
from gpuclinic.knowledge.causes import cause_ids
from gpuclinic.knowledge.codes import TOPICS, CodeInfo, all_names, by_code, by_name, codes
from gpuclinic.model import ACTIONS

ROWS = [row for topic in TOPICS for row in codes(topic)]


def test_every_table_is_a_topic() -> None:
    assert {path.stem for path in (DATA / "codes").glob("*.tsv")} <= set(TOPICS)


@pytest.mark.parametrize("row", ROWS, ids=lambda r: f"{r.topic}-{r.code}-{r.name}")
def test_each_row_is_sound(row: CodeInfo) -> None:
    assert row.severity in {"critical", "warning", "info"}
    assert row.action in ACTIONS
    assert not row.cause or row.cause in cause_ids()
    assert row.text_en
    assert row.text_zh
    assert row.source


def test_lookups() -> None:
    assert by_name("sigkill")[0].code == 9
    assert by_name("CUDA_ERROR_SYSTEM_NOT_READY")[0].code == 802
    assert by_name("cudaErrorSystemNotReady")[0].code == 802
    assert by_name("NF", "slurm")[0].code == "NODE_FAIL"
    assert by_code("errno", 28)[0].name == "ENOSPC"
    assert by_code("nccl", 2)[0].name == "ncclSystemError"
    assert by_code("cuda", 999999) == []
    assert by_name("no such thing") == []
    assert codes("no such table") == ()
    assert "ENOSPC" in all_names()


def test_names_of_old_versions_come_last() -> None:
    assert by_code("cuda", 4)[0].name == by_code("cuda", 4)[0].plain_name
    assert by_name("cudaErrorLaunchFailure")[0].code == 719
