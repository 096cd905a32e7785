"""PyTorch's NCCL flight recorder: dumps as pickle (read without executing anything) or JSON."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from gpuclinic.model import Document, Fact, Where
from gpuclinic.recognise.parsers.pickle_reader import NotPlainError, load_plain

if TYPE_CHECKING:
    from gpuclinic.recognise.parsers.gpu_text import Scalar

_RANK = re.compile(r"(?:rank[_-]?|dump[_-]?|trace[_-]?)(\d{1,6})(?:\.\w+)?$", re.IGNORECASE)
_ENDING = re.compile(r"[_-](\d{1,6})$")
_MOST_OPEN = 40


def is_dump(head: bytes) -> bool:
    """The first bytes of a file look like a flight recorder's pickle."""
    pickled = head[:1] == b"\x80" and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05")
    return pickled and (b"pg_config" in head[:4096] or (b"version" in head[:256] and b"entries" in head[:65536]))


def parse_dump(source: str, data: bytes, host: str | None = None) -> list[Fact]:
    """Facts collective_group and collective of a dump given as bytes; none where it is no plain dump."""
    try:
        value = load_plain(data) if data[:1] == b"\x80" else json.loads(data)
    except (NotPlainError, ValueError, RecursionError):
        return []
    return _facts(source, value, host)


def parse_flight_recorder(document: Document) -> list[Fact]:
    """The same of a document: JSON, or a pickle decoded as Latin-1."""
    text = document.text
    if text[:1] == "\x80":
        try:
            return parse_dump(document.source, text.encode("latin-1"), document.host)
        except UnicodeEncodeError:
            return []
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return []
    return _facts(document.source, value, document.host)


def _rank(source: str, value: dict[str, Any]) -> int | None:
    told = value.get("rank")
    if isinstance(told, int) and 0 <= told < 1 << 31:
        return int(told)
    stem = source.rsplit("/", 1)[-1].removesuffix(".json").removesuffix(".pkl").removesuffix(".pickle")
    found = _RANK.search(stem) or _ENDING.search(stem)
    return int(found.group(1)) if found else None


def _facts(source: str, value: object, host: str | None) -> list[Fact]:
    if not isinstance(value, dict) or not isinstance(value.get("entries"), list):
        return []
    entries = [e for e in value["entries"] if isinstance(e, dict)]
    rank = _rank(source, value)
    groups = _groups(value)
    facts: list[Fact] = []
    by_group: dict[str, list[dict[str, Any]]] = {}
    for entry in entries:
        by_group.setdefault(_group_name(entry), []).append(entry)
    status = value.get("pg_status") if isinstance(value.get("pg_status"), dict) else {}
    for name, own in by_group.items():
        facts.append(_group(source, host, rank, name, groups.get(name, {}), own, status))
    still = [
        e for e in entries if e.get("state") in ("scheduled", "started") and not e.get("time_discovered_completed_ns")
    ]
    firsts: dict[str, dict[str, Any]] = {}
    for entry in still:
        firsts.setdefault(_group_name(entry), entry)
    facts += [_collective(source, host, rank, groups, e) for e in list(firsts.values())[:_MOST_OPEN]]
    return facts


def _groups(value: dict[str, Any]) -> dict[str, dict[str, Any]]:
    config = value.get("pg_config")
    return {str(k): v for k, v in config.items() if isinstance(v, dict)} if isinstance(config, dict) else {}


def _group_name(entry: dict[str, Any]) -> str:
    group = entry.get("process_group")
    if isinstance(group, (list, tuple)) and group:
        return str(group[0])
    return str(entry.get("pg_name", entry.get("pg_id", "?")))


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _ranks(info: dict[str, Any]) -> str | None:
    ranks = info.get("ranks")
    if isinstance(ranks, str):
        return ",".join(re.findall(r"\d+", ranks)) or None
    return ",".join(str(r) for r in ranks) if isinstance(ranks, list) else None


def _group(
    source: str,
    host: str | None,
    rank: int | None,
    name: str,
    info: dict[str, Any],
    own: list[dict[str, Any]],
    status: object,
) -> Fact:
    collectives = [e for e in own if not e.get("is_p2p")]
    sequence = [n for e in collectives if (n := _number(e.get("collective_seq_id", e.get("seq_id")))) is not None]
    done = [
        n
        for e in collectives
        if (e.get("state") == "completed" or e.get("time_discovered_completed_ns"))
        and (n := _number(e.get("collective_seq_id", e.get("seq_id")))) is not None
    ]
    number = str(own[0].get("pg_id", ""))
    mine = status.get(number, status.get(name, {})) if isinstance(status, dict) else {}
    mine = mine if isinstance(mine, dict) else {}
    last = _number(mine.get("last_enqueued_collective"))
    completed = _number(mine.get("last_completed_collective"))
    ranks = _ranks(info)
    fields: dict[str, Scalar] = {
        "rank": rank,
        "group": name,
        "description": str(info.get("desc", _description(own[0])))[:80],
        "ranks": ranks,
        "size": len(ranks.split(",")) if ranks else None,
        "last_enqueued": last if last is not None else max(sequence, default=None),
        "last_completed": completed if completed is not None else max(done, default=None),
        "last_op": str(collectives[-1].get("profiling_name", ""))[:60] if collectives else None,
    }
    behind = fields["last_enqueued"], fields["last_completed"]
    fields["open"] = behind[0] - behind[1] if isinstance(behind[0], int) and isinstance(behind[1], int) else None
    text = (
        f"rank {rank}: group {name} ({fields['description']}): last enqueued {fields['last_enqueued']}, "
        f"last completed {fields['last_completed']}, last {fields['last_op']}"
    )
    return Fact("collective_group", f"{name}/{rank}", fields, {"": Where(source, None, text)}, source, host)


def _description(entry: dict[str, Any]) -> str:
    group = entry.get("process_group")
    return str(group[1]) if isinstance(group, (list, tuple)) and len(group) > 1 else ""


def _collective(
    source: str, host: str | None, rank: int | None, groups: dict[str, dict[str, Any]], entry: dict[str, Any]
) -> Fact:
    name = _group_name(entry)
    frames = entry.get("frames")
    top = next((f for f in frames if isinstance(f, dict)), None) if isinstance(frames, list) else None
    fields: dict[str, Scalar] = {
        "rank": rank,
        "group": name,
        "description": str(groups.get(name, {}).get("desc", _description(entry)))[:80],
        "seq": _number(entry.get("collective_seq_id", entry.get("seq_id"))),
        "op": str(entry.get("profiling_name", ""))[:60],
        "state": str(entry.get("state", "")),
        "p2p": bool(entry.get("is_p2p")),
        "input_sizes": str(entry.get("input_sizes", ""))[:200],
        "output_sizes": str(entry.get("output_sizes", ""))[:200],
        "dtype": str((entry.get("input_dtypes") or [""])[0])[:40]
        if isinstance(entry.get("input_dtypes"), list)
        else None,
        "timeout_ms": _number(entry.get("timeout_ms")),
        "created_ns": _number(entry.get("time_created_ns")),
        "frame": f"{top.get('filename')}:{top.get('line')} {top.get('name')}"[:300] if top else None,
    }
    text = (
        f"rank {rank}: group {name} ({fields['description']}): {fields['op']} seq {fields['seq']} "
        f"is {fields['state']}, not completed"
    )
    return Fact("collective", f"{name}/{rank}/{fields['seq']}", fields, {"": Where(source, None, text)}, source, host)
