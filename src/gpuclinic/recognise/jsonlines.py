"""Logs wrapped in JSON (docker json-file, journalctl -o json, structured loggers), unwrapped to lines.

The unwrapped text has exactly one line for each line of the file, so that line numbers stay true.
"""

from __future__ import annotations

import datetime as dt
import json
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from gpuclinic.recognise.scan import ReadInto

_TIMES = ("time", "timestamp", "ts", "@timestamp", "asctime", "Timestamp", "eventTime", "datetime")
_TEXTS = ("message", "msg", "log", "text", "Message", "event", "body")
_EXTRAS = (
    "level", "levelname", "severity", "rank", "local_rank", "pid", "host", "hostname", "pod", "error", "err",
    "exc_info", "exception", "stack_trace", "traceback",
)  # fmt: skip
_DECODER = msgspec.json.Decoder()
_MOST_PRETTY = 4 << 20


_MOST_FIELDS, _LONGEST_FIELD = 24, 300
"""How many further fields of a record are kept behind its message, as key=value, and how much of each."""


def unwrap(text: str) -> str | None:
    """The plain text of a log wrapped in JSON, or None where the text is no such log."""
    start = text.lstrip()[:1]
    if start == "[" or (start == "{" and not _is_object(text.lstrip().split("\n", 1)[0])):
        pretty = _unwrap_pretty(text)
        if pretty is not None or start == "[":
            return pretty
    if "{" not in text[:4096]:
        return None
    lines = text.split("\n")
    head = [line for line in lines[:200] if line.strip()]
    if sum(line.lstrip().startswith("{") for line in head) < 0.5 * len(head):
        return None
    out: list[str] = []
    good = 0
    for line in lines:
        plain = unwrap_line(line)
        good += plain is not None
        out.append(line if plain is None else plain)
    return "\n".join(out) if good and good >= 0.5 * sum(1 for line in lines if line.strip()) else None


def unwrap_line(line: str) -> str | None:
    """The plain text of one JSON line, on one line; None where it is no log record."""
    stripped = line.strip()
    if not stripped.startswith("{"):
        return None
    try:
        row = _DECODER.decode(stripped.encode("utf-8", "replace"))
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    plain = _plain(row) if isinstance(row, dict) else None
    return None if plain is None else plain.replace("\r\n", "\n").replace("\n", " #012 ").replace("\x00", "")


def unwrapped(read_into: ReadInto) -> ReadInto:
    """A stream of JSON lines, unwrapped line by line."""
    raw = bytearray(1 << 18)
    rest = b""
    pending = b""
    ended = False

    def read(buffer: memoryview) -> int:
        nonlocal rest, pending, ended
        while not pending and not ended:
            got = read_into(memoryview(raw))
            ended = not got
            data = rest + bytes(raw[:got])
            cut = len(data) if ended or len(data) > 16 << 20 else data.rfind(b"\n") + 1
            rest = data[cut:]
            lines = data[:cut].decode("utf-8", "replace").split("\n")
            pending = "\n".join(unwrap_line(line) or line for line in lines).encode("utf-8", "replace")
        size = min(len(buffer), len(pending))
        buffer[:size] = pending[:size]
        pending = pending[size:]
        return size

    return read


def _is_object(line: str) -> bool:
    try:
        return isinstance(_DECODER.decode(line.strip().encode("utf-8", "replace")), dict)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return False


def _unwrap_pretty(text: str) -> str | None:
    """Records that span lines, alone or in one array: each on the line where it begins, then empty lines."""
    if len(text) > _MOST_PRETTY:
        return None
    decoder = json.JSONDecoder()
    out: list[str] = []
    at = good = 0
    try:
        while True:
            begin = text.find("{", at)
            if begin < 0:
                break
            if text[at:begin].strip(" \t\r\n,[]\x1e"):
                return None
            row, end = decoder.raw_decode(text, begin)
            plain = _plain(row) if isinstance(row, dict) else None
            if plain is None:
                return None
            good += 1
            out.append("\n" * text.count("\n", at, begin) + plain.replace("\n", " #012 "))
            out.append("\n" * text.count("\n", begin, end))
            at = end
    except (ValueError, RecursionError):
        if not good:
            return None
    return "".join(out) + text[at:] if good else None


def _plain(row: dict[str, Any]) -> str | None:
    if isinstance(row.get("log"), str) and ("stream" in row or "time" in row):
        return f"{row.get('time', '')} {row['log'].rstrip()}".strip()
    if "MESSAGE" in row:
        return _journal(row)
    message = next((row[k] for k in _TEXTS if isinstance(row.get(k), str)), None)
    if message is None:
        return None
    when = next((str(row[k]) for k in _TIMES if isinstance(row.get(k), (str, int, float))), "")
    known = {key for key in row if row[key] is message or key in _EXTRAS or str(row[key]) == when}
    extra = " ".join(f"{k}={row[k]}" for k in _EXTRAS if isinstance(row.get(k), (str, int, float)))
    rest = [f"{k}={row[k]}" for k in row if k not in known and isinstance(row[k], (str, int, float))][:_MOST_FIELDS]
    message = f"{message} {' '.join(r[:_LONGEST_FIELD] for r in rest)}".rstrip()
    return f"{when} {extra} {message}".strip()


def _journal(row: dict[str, Any]) -> str:
    message = row["MESSAGE"]
    if isinstance(message, list):  # journald writes unprintable text as byte values
        message = bytes(b for b in message if isinstance(b, int) and 0 <= b < 256).decode("utf-8", "replace")
    when = ""
    stamp = row.get("__REALTIME_TIMESTAMP") or row.get("_SOURCE_REALTIME_TIMESTAMP")
    if isinstance(stamp, str) and stamp.isdecimal() and len(stamp) < 18:
        when = dt.datetime.fromtimestamp(int(stamp) / 1e6, dt.timezone.utc).isoformat()
    kernel = row.get("_TRANSPORT") == "kernel"
    tag = row.get("SYSLOG_IDENTIFIER") or row.get("_COMM") or ("kernel" if kernel else "journal")
    pid = row.get("_PID") or row.get("SYSLOG_PID")
    return f"{when} {row.get('_HOSTNAME', '-')} {tag}{f'[{pid}]' if pid else ''}: {message}"
