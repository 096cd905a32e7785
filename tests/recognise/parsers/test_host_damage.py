"""Damaged, cut and hostile input: parsers return what they understood, quickly, and never raise."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

import pytest
import test_cluster_tools
from host_tools import SHARED, damage

from gpuclinic.model import Document
from gpuclinic.recognise.parsers import _table_cluster, _table_host, parse

if TYPE_CHECKING:
    from gpuclinic.recognise.parsers._entry import Entry

ENTRIES = [*_table_host.ENTRIES, *_table_cluster.ENTRIES]
TEXTS = [
    test_cluster_tools.SACCT,
    test_cluster_tools.POD,
    test_cluster_tools.YAML_POD,
    "Filesystem Size Used Avail Use% Mounted on\nshm 64M 64M 0 100% /dev/shm\n",
    "   4 | 12/20/2018 | 02:48:33 | Power Supply #0xc4 | Failure detected | Asserted\n",
    '[{"Id": "5b1e07c4d2aa", "State": {"OOMKilled": true, "ExitCode": 137}}]',
    "USER PID %CPU %MEM VSZ RSS TTY STAT START TIME COMMAND\nroot 9 99.0 0.1 1 1 ? Sl May02 1:00 python x\n",
    "NodeName=n1 Arch=x86_64\n   State=IDLE+DRAIN Reason=x [a@2024]\n   Gres=gpu:4\n",
    "rank  step_ms  data_ms\n0     310.0    3.1\n",
]
HOSTILE = [
    "",
    "\n" * 1000,
    "\x00" * 5000,
    "a" * 300_000,
    " " * 50_000,
    "|" * 20_000,
    "- " * 20_000,
    "[" * 20_000,
    "{" * 20_000,
    '{"kind": "Pod", "a": ' * 3000,
    "9 " * 30_000,
    "1:" * 20_000,
    "(" * 20_000,
    "=" * 20_000,
    "A=" * 20_000,
    "Mem: " + "1 " * 20_000,
    "kind: Pod\n" + "".join(" " * i + f"a{i}:\n" for i in range(3000)),
    "step " * 10_000,
    "r0=1 " * 10_000,
    "x" * 50 + "\t" * 50_000 + "5%  /",
    "docker run " + "-e 'A " * 10_000,
    "99999999999999999999999999999 " * 3000,
    "curl " * 20_000,
    "* * * * * " + "curl x;" * 3000,
    "ssh-rsa AAAA " * 3000,
    '"OOMKilled": ' * 20_000,
]


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_never_raises(entry: Entry) -> None:
    for number, text in enumerate(TEXTS):
        for variant in [text, *damage(text, number)]:
            parse(entry, Document("x", variant))


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_hostile_text_is_quick(entry: Entry) -> None:
    for text in HOSTILE:
        start = time.process_time()
        parse(entry, Document("x", text))
        assert time.process_time() - start < 2.0, text[:40]


def test_all_parsers_over_all_real_inputs() -> None:
    files = [path for path in SHARED.glob("cases/*/input/*") if path.is_file() and path.stat().st_size < 20_000]
    if not files:
        pytest.skip(f"no shared data at {SHARED}")
    for path in files:
        text = path.read_text(errors="replace")
        for entry in ENTRIES:
            parse(entry, Document(str(path), text))


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_marks_are_quick(entry: Entry) -> None:
    for mark in entry.marks:
        pattern = re.compile(mark, re.MULTILINE)
        for text in HOSTILE:
            start = time.process_time()
            pattern.search(text)
            assert time.process_time() - start < 2.0, (mark, text[:40])
