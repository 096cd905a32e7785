"""Records of ended processes: the kernel's accounting file."""

from __future__ import annotations

import math
import struct

import msgspec

from gpuclinic.model import Fact, Stamp, Where
from gpuclinic.recognise.one_process import death_fact

_RECORD = struct.Struct("=BBHIIIIIIf8H16s")
"""struct acct_v3 (torvalds/linux include/uapi/linux/acct.h): 64 bytes."""
_KILLED, _CORE = 0x10, 0x08
_MOST_DEATHS = 200


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
