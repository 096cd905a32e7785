"""Logs wrapped in JSON, one object a line (docker json-file, journalctl -o json), unwrapped to plain lines.

The unwrapped text has exactly one line for each line of the file, so that line numbers stay true.
"""

from __future__ import annotations

import datetime
from typing import Any

import msgspec


def unwrap(text: str) -> str | None:
    """The plain text of a JSON-lines log, or None where the text is no such log."""
    if not text.lstrip().startswith("{"):
        return None
    lines = text.split("\n")
    decoder = msgspec.json.Decoder()
    out: list[str] = []
    good = 0
    for line in lines:
        stripped = line.strip()
        if not stripped.startswith("{"):
            out.append(line)
            continue
        try:
            row = decoder.decode(stripped.encode())
        except (msgspec.DecodeError, UnicodeError):
            out.append(line)
            continue
        plain = _plain(row) if isinstance(row, dict) else None
        if plain is None:
            out.append(line)
        else:
            good += 1
            out.append(plain.replace("\n", " #012 "))
    return "\n".join(out) if good and good >= 0.5 * sum(1 for line in lines if line.strip()) else None


def _plain(row: dict[str, Any]) -> str | None:
    if isinstance(row.get("log"), str) and ("stream" in row or "time" in row):
        return f"{row.get('time', '')} {row['log'].rstrip()}".strip()
    if "MESSAGE" in row:
        return _journal(row)
    message = next((row[k] for k in ("message", "msg", "log", "text") if isinstance(row.get(k), str)), None)
    if message is None:
        return None
    when = next((str(row[k]) for k in ("time", "timestamp", "ts", "@timestamp", "asctime") if k in row), "")
    extra = " ".join(f"{k}={row[k]}" for k in ("level", "levelname", "rank", "host", "error", "err") if k in row)
    return f"{when} {extra} {message}".strip()


def _journal(row: dict[str, Any]) -> str:
    message = row["MESSAGE"]
    if isinstance(message, list):  # journald writes unprintable text as byte values
        message = bytes(b for b in message if isinstance(b, int) and 0 <= b < 256).decode("utf-8", "replace")
    when = ""
    stamp = row.get("__REALTIME_TIMESTAMP") or row.get("_SOURCE_REALTIME_TIMESTAMP")
    if isinstance(stamp, str) and stamp.isdigit() and len(stamp) < 18:
        when = datetime.datetime.fromtimestamp(int(stamp) / 1e6, datetime.timezone.utc).isoformat()
    tag = row.get("SYSLOG_IDENTIFIER") or row.get("_COMM") or ("kernel" if row.get("_TRANSPORT") == "kernel" else "")
    pid = row.get("_PID") or row.get("SYSLOG_PID")
    return f"{when} {row.get('_HOSTNAME', '-')} {tag}{f'[{pid}]' if pid else ''}: {message}"
