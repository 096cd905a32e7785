"""The audit log: who sent a deadly signal to whom, and which of its lines tell of a death."""

from __future__ import annotations

import re

from gpuclinic.model import Document, Fact, Scalar, Stamp, Where, digits
from gpuclinic.recognise.one_process import signal_name

_EVENT = re.compile(r"msg=audit\((\d{1,11}\.\d{1,9}:\d{1,20})\)")
_CALL = re.compile(
    r"^type=SYSCALL .*\bsyscall=(?P<call>62|129|130|131|200|234|424|kill|tkill|tgkill|pidfd_send_signal)\b"
    r".*\bsuccess=yes\b.*\ba0=(?P<a0>[0-9a-f]{1,16}) a1=(?P<a1>[0-9a-f]{1,16}) a2=(?P<a2>[0-9a-f]{1,16})"
)
"""kill, tkill, tgkill and pidfd_send_signal on x86-64 and arm64 (Linux arch/x86/entry/syscalls, include/uapi/asm-generic/unistd.h)."""
_THIRD = frozenset({"131", "234", "tgkill"})
"""tgkill(2) takes the signal as its third argument, the others as their second."""
_OBJECT = re.compile(r"^type=OBJ_PID .*\bopid=(\d{1,10})\b")
_ABEND = re.compile(r"^type=ANOM_ABEND .*\bpid=(\d{1,10})\b")
_OURS = re.compile(r'\bcomm="gpuclinic')
"""Helpers of our own that were given up: nobody's death."""
_FIELD = re.compile(r'\b(\w+)=("[^"]*"|\S+)')
_NO_LOGIN = 4294967295
_DEADLY = frozenset({1, 2, 3, 6, 9, 11, 15})
_MOST = 200


def audit_lines(text: str, pids: set[int]) -> str:
    """The audit log's lines about deadly signals that reached the processes (any, where none is named), whole events together."""
    lines = [line for line in text.splitlines() if line.startswith(("type=SYSCALL", "type=OBJ_PID", "type=ANOM_ABEND"))]
    told: dict[str, set[int]] = {}
    deadly: set[str] = set()
    for line in lines:
        found = _EVENT.search(line)
        if found is None:
            continue
        call = _CALL.match(line)
        named = _OBJECT.match(line) or _ABEND.match(line)
        if call and _deadly(call) and not _OURS.search(line):
            deadly.add(found[1])
            told.setdefault(found[1], set()).add(int(call["a0"], 16))
        elif named:
            told.setdefault(found[1], set()).add(int(named[1]))
        if _ABEND.match(line):
            deadly.add(found[1])
    wanted = {event for event in deadly if not pids or told.get(event, set()) & pids}
    kept = [line for line in lines if (e := _EVENT.search(line)) and e[1] in wanted]
    return "\n".join(kept) + "\n" if kept else ""


def names_senders(text: str) -> bool:
    """The audit log, or the list of its rules (auditctl -l), shows that calls of kill are recorded."""
    return re.search(r"^type=OBJ_PID |^-a .*\bS (?:\w+,)*kill\b", text, re.MULTILINE) is not None


def parse_audit(document: Document) -> list[Fact]:
    """Facts `kill`: who sent which deadly signal to whom, one for each process that it reached.

    Source: Linux kernel/auditsc.c, records SYSCALL and OBJ_PID; auid 4294967295 is "no login".
    """
    calls: dict[str, dict[str, str]] = {}
    facts: list[Fact] = []
    for index, line in enumerate(document.lines()):
        line = line[:4000]
        event = _EVENT.search(line) if line.startswith("type=") else None
        if event is None:
            continue
        call = _CALL.match(line)
        if call and (number := _deadly(call)) and not _OURS.search(line):
            calls[event[1]] = {**dict(_FIELD.findall(line)), "signal": str(number), "text": line}
        reached = _OBJECT.match(line)
        if reached and event[1] in calls and len(facts) < _MOST:
            facts.append(_kill(calls[event[1]], dict(_FIELD.findall(line)), event[1], document.at(index, line)))
    return facts


def _kill(call: dict[str, str], target: dict[str, str], event: str, place: Where) -> Fact:
    number = int(call["signal"])
    login = _number(call.get("auid"))
    fields: dict[str, Scalar | None] = {
        "pid": _number(target.get("opid")), "name": target.get("ocomm", "").strip('"')[:40] or None, "uid": _number(target.get("ouid")),
        "signal": number, "signal_name": signal_name(number), "sender": call.get("comm", "").strip('"')[:40] or None,
        "sender_pid": _number(call.get("pid")), "sender_uid": _number(call.get("uid")),
        "sender_login": login if login is not None and login < _NO_LOGIN else None,
    }  # fmt: skip
    told = Where(place.source, place.line, f"{place.text.strip()} <- {call['text'].strip()}"[:500])
    return Fact(
        "kill", target.get("opid", ""), {k: v for k, v in fields.items() if v is not None}, {"": told}, place.source,
        time=Stamp(float(event.partition(":")[0]), zoned=True),
    )  # fmt: skip


def _deadly(call: re.Match[str]) -> int:
    """The signal that was sent, where it is one that ends processes; else 0."""
    number = int(call["a2" if call["call"] in _THIRD else "a1"], 16)
    return number if number in _DEADLY else 0


def _number(text: str | None) -> int | None:
    return digits(text)
