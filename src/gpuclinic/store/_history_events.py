"""Events and findings, by time, by card and by slot. They outlive the numbers by years."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from gpuclinic.model import Event, Finding
from gpuclinic.store._history_types import Past, StoredFinding

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection

_MOST_TEXT = 2000
_MOST_EVENTS = 1_000_000
_NOISY = ("kernel", "exit", "job", "agent")
_encode = msgspec.json.Encoder().encode
_EventRow = tuple[int, str, str, str | None, str | None, int | None, str, bytes]


def event_row(event: Event) -> _EventRow:
    """An event as the table has it. Its code is that of an Xid, or of an exit."""
    code = event.fields.get("code")
    kept = int(code) if isinstance(code, int) and abs(code) < 1 << 62 else None
    text = event.text[:_MOST_TEXT]
    data = _encode({"fields": event.fields, "evidence": event.evidence[:8]})
    return round(event.at * 1000), event.kind, event.subject, event.serial, event.slot, kept, text, data


def insert_events(connection: sqlite3.Connection, rows: list[_EventRow]) -> None:
    """Adds events; what is there already (the same moment, kind, subject and text) stays once."""
    connection.executemany(
        "INSERT OR IGNORE INTO event (at, kind, subject, serial, slot, code, text, data) VALUES (?,?,?,?,?,?,?,?)", rows
    )


def read_events(
    connection: sqlite3.Connection, since: float, until: float, kinds: Collection[str] | None,
    subject: str | None, serial: str | None, slot: str | None, most: int,
) -> list[Event]:  # fmt: skip
    """Events of that time, oldest first; the newest where there are more than `most`."""
    where, values = _where(since, until, subject, serial, slot)
    if kinds is not None:
        where += f" AND kind IN ({','.join('?' * len(kinds))})"
        values.extend(sorted(kinds))
    rows = connection.execute(
        f"SELECT at, kind, subject, serial, slot, text, data FROM event WHERE {where} ORDER BY at DESC, id DESC LIMIT ?",  # noqa: S608 - ours
        [*values, most],
    ).fetchall()
    return [_event(row) for row in reversed(rows)]


def _where(
    since: float, until: float, subject: str | None, serial: str | None, slot: str | None
) -> tuple[str, list[object]]:
    where = "at >= ? AND at <= ?"
    values: list[object] = [int(since * 1000), int(until * 1000)]
    for name, value in (("subject", subject), ("serial", serial), ("slot", slot)):
        if value is not None:
            where += f" AND {name} = ?"
            values.append(value)
    return where, values


def _event(row: tuple[int, str, str, str | None, str | None, str, bytes]) -> Event:
    at, kind, subject, serial, slot, text, data = row
    try:
        whole = msgspec.json.decode(
            _encode({**msgspec.json.decode(data), "at": at / 1000, "kind": kind, "subject": subject, "text": text}),
            type=Event,
        )
    except (msgspec.DecodeError, TypeError):
        whole = Event(at / 1000, kind, subject, text)
    return msgspec.structs.replace(whole, serial=serial, slot=slot)


def trim_events(connection: sqlite3.Connection, before: int) -> int:
    """Drops what is older than that moment, and of the noisiest kinds the oldest where there are too many; returns how many went."""
    gone = connection.execute("DELETE FROM event WHERE at < ?", (before,)).rowcount
    connection.execute("DELETE FROM finding WHERE at < ?", (before,))
    surplus = connection.execute("SELECT count(*) FROM event").fetchone()[0] - _MOST_EVENTS
    if surplus > 0:
        kinds = ",".join("?" * len(_NOISY))
        gone += connection.execute(
            f"DELETE FROM event WHERE id IN (SELECT id FROM event WHERE kind IN ({kinds}) ORDER BY at LIMIT ?)",  # noqa: S608 - ours
            (*_NOISY, surplus + _MOST_EVENTS // 100),
        ).rowcount
    return int(gone)


def insert_finding(
    connection: sqlite3.Connection, at: float, finding: Finding, serial: str | None, slot: str | None, ended: float | None
) -> None:  # fmt: skip
    """Adds a finding, or tells the end of one that is there."""
    connection.execute(
        "INSERT INTO finding (at, finding, severity, subject, serial, slot, ended, data) VALUES (?,?,?,?,?,?,?,?) "
        "ON CONFLICT (finding, subject, at) DO UPDATE SET severity = excluded.severity, ended = excluded.ended, data = excluded.data",
        (
            round(at * 1000), finding.id, finding.severity, finding.subject, serial, slot,
            None if ended is None else round(ended * 1000), _encode(finding),
        ),
    )  # fmt: skip


def read_findings(
    connection: sqlite3.Connection, since: float, until: float, subject: str | None, serial: str | None,
    slot: str | None, most: int,
) -> list[StoredFinding]:  # fmt: skip
    """Findings that began in that time, oldest first; the newest where there are more than `most`."""
    where, values = _where(since, until, subject, serial, slot)
    rows = connection.execute(
        f"SELECT at, data, serial, slot, ended FROM finding WHERE {where} ORDER BY at DESC, id DESC LIMIT ?",  # noqa: S608 - ours
        [*values, most],
    ).fetchall()
    found = []
    for at, data, with_serial, in_slot, ended in reversed(rows):
        finding = msgspec.json.decode(data, type=Finding)
        found.append(StoredFinding(at / 1000, finding, with_serial, in_slot, None if ended is None else ended / 1000))
    return found


def repeated(
    connection: sqlite3.Connection, serial: str | None, slot: str | None, code: int, days: float, now: float, kind: str
) -> Past:
    """Events of that kind and code in the days before `now`, of the card wherever it was, and of the slot whichever card was in it."""
    since = int((now - days * 86400) * 1000)
    until = round(now * 1000)
    of_card: list[tuple[int, str | None]] = []
    of_slot: list[tuple[int, str | None]] = []
    asked = "SELECT at, {} FROM event WHERE {} = ? AND code = ? AND kind = ? AND at >= ? AND at <= ? ORDER BY at, id"
    if serial is not None:
        of_card = connection.execute(asked.format("slot", "serial"), (serial, code, kind, since, until)).fetchall()
    if slot is not None:
        of_slot = connection.execute(asked.format("serial", "slot"), (slot, code, kind, since, until)).fetchall()
    return Past(
        code, days, [at / 1000 for at, _ in of_card], _without_repeats([where for _, where in of_card]),
        [at / 1000 for at, _ in of_slot], _without_repeats([who for _, who in of_slot]),
    )  # fmt: skip


def _without_repeats(names: list[str | None]) -> list[str]:
    return list(dict.fromkeys(name for name in names if name))
