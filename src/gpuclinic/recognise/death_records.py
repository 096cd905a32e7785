"""Records of ended processes: the kernel's accounting file, the audit log's kill calls."""

from __future__ import annotations

import math
import re
import struct

import msgspec

from gpuclinic.model import Fact, Stamp, Where
from gpuclinic.recognise.one_process import death_fact

_RECORD = struct.Struct("=BBHIIIIIIf8H16s")
"""struct acct_v3 (torvalds/linux include/uapi/linux/acct.h): 64 bytes."""
_KILLED, _CORE = 0x10, 0x08
_MOST_DEATHS = 200
_EVENT = re.compile(r"msg=audit\((\d+\.\d+:\d+)\)")
_CALL = re.compile(
    r"^type=SYSCALL .*\bsyscall=(?:62|129|131|200|234|424|kill|tkill|tgkill|pidfd_send_signal)\b.*\ba0=([0-9a-f]{1,16}) a1=([0-9a-f]{1,16})\b"
)
_OBJECT = re.compile(r"^type=OBJ_PID .*\bopid=(\d{1,10})\b")
_ABEND = re.compile(r"^type=ANOM_ABEND .*\bpid=(\d{1,10})\b")
_DEADLY = frozenset({1, 2, 3, 6, 9, 11, 15})


def parse_accounting(source: str, data: bytes, pids: set[int], since: float) -> list[Fact]:
    """Facts `death` of processes that ended by a signal or with an error since then; of the pids where there are any.

    Records of versions other than 3 have no pid and are passed over. Source: acct(5).
    """
    facts: list[Fact] = []
    start = len(data) % _RECORD.size
    for at in range(len(data) - _RECORD.size, start - 1, -_RECORD.size):
        flag, version, _, code, uid, _, pid, _, began, lasted, *_, name = _RECORD.unpack_from(data, at)
        if version & 0x7F != 3 or (pids and pid not in pids):
            continue
        ended = began + lasted / 100 if math.isfinite(lasted) and 0 <= lasted < 1e11 else float(began)
        if ended < since or (not pids and not code):
            continue
        told = name.split(b"\0")[0].decode("utf-8", "replace")
        flags = (" X (killed by a signal)" if flag & _KILLED else "") + (" D (dumped core)" if flag & _CORE else "")
        text = f"{told} pid {pid} uid {uid} wait status {code}{flags}"
        fact = death_fact(pid, code, "process accounting", Where(source, None, text), name=told, uid=uid)
        facts.append(msgspec.structs.replace(fact, time=Stamp(ended, zoned=True)))
        if len(facts) >= _MOST_DEATHS:
            break
    return facts


def audit_lines(text: str, pids: set[int]) -> str:
    """The audit log's lines about deadly signals sent to the processes (to any, where none is named), whole events together."""
    events: set[str] = set()
    for line in text.splitlines():
        if not line.startswith(("type=SYSCALL", "type=OBJ_PID", "type=ANOM_ABEND")):
            continue
        call = _CALL.match(line)
        named = _OBJECT.match(line) or _ABEND.match(line)
        told = int(named[1]) if named else int(call[1], 16) if call and int(call[2], 16) in _DEADLY else None
        event = _EVENT.search(line)
        if told is not None and event is not None and (not pids or told in pids):
            events.add(event[1])
    deadly = {
        e[1]
        for line in text.splitlines()
        if (c := _CALL.match(line)) and int(c[2], 16) in _DEADLY and (e := _EVENT.search(line))
    }
    abends = {e[1] for line in text.splitlines() if _ABEND.match(line) and (e := _EVENT.search(line))}
    kept = [
        line for line in text.splitlines() if (e := _EVENT.search(line)) and e[1] in events and e[1] in deadly | abends
    ]
    return "\n".join(kept) + "\n" if kept else ""
