"""Records of ended processes, and what /proc tells of one: right, and safe on whatever bytes."""

from __future__ import annotations

import random
import struct

from gpuclinic.model import Document
from gpuclinic.recognise.death_records import parse_accounting
from gpuclinic.recognise.one_process import families, parse_call, signal_name
from gpuclinic.recognise.parsers.audit import audit_lines
from gpuclinic.recognise.parsers.core_dumps import parse_core_dumps
from gpuclinic.recognise.proc_files import cgroup_paths, parse_stat

_ACCT = struct.Struct("=BBHIIIIIIf8H16s")


def record(
    pid: int, code: int, *, began: int = 1_000_000, version: int = 3, flag: int = 0, lasted: float = 500.0
) -> bytes:
    return _ACCT.pack(flag, version, 0, code, 1000, 1000, pid, 1, began, lasted, *[0] * 8, b"python3")


def test_the_kernels_accounting() -> None:
    data = record(7, 0) + record(8, 9, flag=0x10) + record(9, 11, flag=0x18) + record(8, 256, version=2)
    (killed,) = parse_accounting("pacct", data, {8}, 0.0)
    assert killed.fields["signal"] == 9
    assert killed.time is not None
    assert killed.time.seconds == 1_000_005.0
    assert [f.fields["pid"] for f in parse_accounting("pacct", data, set(), 0.0)] == [9, 8]
    assert parse_accounting("pacct", data, {8}, 1_000_010.0) == []
    assert parse_accounting("pacct", b"x" * 37 + data, {8}, 0.0)[0].fields["signal"] == 9


def test_an_audit_event_is_kept_whole_and_no_other() -> None:
    call = 'type=SYSCALL msg=audit(1.5:{n}): arch=c000003e syscall=62 success=yes exit=0 a0={pid:x} a1={sig:x} a2=0 a3=0 comm="kill"\n'
    target = "type=OBJ_PID msg=audit(1.5:{n}): opid={pid} oauid=1 ouid=1\n"
    text = "".join(
        call.format(n=n, pid=p, sig=s) + target.format(n=n, pid=p) for n, p, s in ((1, 7, 9), (2, 8, 9), (3, 7, 0))
    )
    assert audit_lines(text, {7}).count("audit(1.5:1)") == 2
    assert "1.5:2" not in audit_lines(text, {7})
    assert "1.5:3" not in audit_lines(text, {7})
    assert audit_lines(text, set()).count("\n") == 4


def test_core_dumps_as_list_and_as_info() -> None:
    text = (
        "TIME                         PID  UID  GID SIG     COREFILE EXE                 SIZE\n"
        "Mon 2026-03-02 03:58:00 UTC 4711 1000 1000 SIGSEGV present  /usr/bin/python3.10 1.2M\n"
    )
    (fact,) = parse_core_dumps(Document("coredumpctl list", text))
    assert (fact.fields["pid"], fact.fields["signal"], fact.fields["executable"]) == (4711, 11, "/usr/bin/python3.10")
    assert fact.time is not None
    assert fact.time.zoned


def test_families_and_names() -> None:
    line = "{} (a) S {} 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 5 0 0"
    stats = [
        s for text in ((1, 0), (5, 1), (6, 5), (7, 6), (9, 1)) if (s := parse_stat(line.format(*text))) is not None
    ]
    assert families(stats, 5) == [5, 6, 7]
    assert signal_name(9) == "SIGKILL"
    assert cgroup_paths("4:memory:/a\n1:cpu,cpuacct:/b\n0::/c\n") == {
        "memory": "/a",
        "cpu": "/b",
        "cpuacct": "/b",
        "": "/c",
    }


def test_any_bytes_are_survived() -> None:
    chance = random.Random(7)
    for _ in range(300):
        data = bytes(chance.randrange(256) for _ in range(chance.randrange(400)))
        text = data.decode("utf-8", "replace")
        parse_accounting("x", data, set(), 0.0)
        audit_lines("type=SYSCALL " + text, {1})
        parse_core_dumps(Document("x", "  PID: 5 (x)\n Signal: " + text))
        parse_stat("5 (x) S " + text)
        parse_call(text, "x86_64")
        cgroup_paths(text)
    parse_accounting("x", record(5, 9, lasted=float("nan")), {5}, 0.0)
    parse_accounting("x", record(5, 9, lasted=float("inf")), {5}, 0.0)
