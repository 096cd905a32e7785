"""Tables of times, a line a node or rank."""

from __future__ import annotations

import pytest

from gpuclinic.model import Document
from gpuclinic.recognise.parsers.peer_times import parse_peer_times

NODES = "mean forward-backward (ms)\n" + "".join(
    f"node {n:02d} (ranks {8 * n}-{8 * n + 7}): {8102.7 if n == 5 else 4040 + n}\n" for n in range(8)
)


def test_the_slow_node_is_named() -> None:
    (fact,) = parse_peer_times(Document("times.txt", NODES))
    assert (fact.key, fact.fields["factor"], fact.fields["members"]) == ("node 05", 2.0, 8)
    assert fact.where().line == 7


def test_a_rank_is_told_by_its_label() -> None:
    rows = "step time per rank\n" + "".join(f"rank {n}: {2.4 if n == 3 else 1.0}s\n" for n in range(4))
    assert [f.fields["rank"] for f in parse_peer_times(Document("t", rows))] == [3]


@pytest.mark.parametrize(
    "text",
    [
        "",
        NODES.replace("8102.7", "4100.0"),
        "scores\nnode 1: 4\nnode 2: 5\nnode 3: 40\nnode 4: 5\n",
        "time\nnode 1: 4\nnode 2: 50\n",
        "time\n" + "node 1: 4\n" * 9 + "node 1: 40\n",
    ],
)
def test_no_outlier_no_fact(text: str) -> None:
    assert parse_peer_times(Document("t", text)) == []
