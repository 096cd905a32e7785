"""A report for a vendor or a cloud provider: what they ask for, the evidence, and what is still missing with the command that gets it."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import msgspec

from gpuclinic.clinic.looks._look import Wanted, zone_of
from gpuclinic.clinic.looks.kernel_log import look_at_earlier_logs, look_at_kernel_log
from gpuclinic.knowledge.tickets import Piece, Vendor, load_tickets
from gpuclinic.knowledge.xids import xid_info
from gpuclinic.model import Fact, Finding
from gpuclinic.recognise.decoding import printable
from gpuclinic.recognise.timestamps import find_stamp

if TYPE_CHECKING:
    from gpuclinic.observe.asking import Asked

_MOST_LINES = 60
_XID = re.compile(
    r"NVRM:.*?\bXid\b.*?\((?:PCI:)?(?P<gpu>[0-9a-fA-F:.]+).*?\):? (?P<code>\d+)|nvidia-nvswitch\d*: SXid.*?: (?P<sxid>\d+)"
)
_EMPTY = re.compile(
    r"(?i)^(?:|0+|none|n/?a|not specified|to be filled by o\.?e\.?m\.?|default string|unknown|system serial number)$"
)


class Line(msgspec.Struct, frozen=True):
    """A line of the kernel's log with an Xid. at: Unix seconds; None where it does not say. code: of the catalogue."""

    text: str
    at: float | None
    code: int
    kind: str
    gpu: str | None


class Given(msgspec.Struct, frozen=True):
    """A piece that is there. values: (of what, value)."""

    piece: Piece
    values: list[tuple[str, str]]


class Ticket(msgspec.Struct):
    """What goes into the report. gpus: those that it is about. unread: why the kernel's log could not be read."""

    vendor: Vendor
    host: str
    at: float
    gpus: list[Fact]
    given: list[Given]
    missing: list[Piece]
    lines: list[Line]
    findings: list[Finding]
    unread: str | None = None


def build_ticket(
    vendor: str, host: Asked, name: str, facts: list[Fact], findings: list[Finding], gpu: int | None, since_s: float
) -> Ticket:
    """Asks the machine for what the vendor wants. since_s: how far back the kernel's log is told. gpu: only this one, by index."""
    table = load_tickets()
    asked = table.vendors[vendor]
    every = [f for f in facts if f.kind == "gpu"]
    chosen = [f for f in every if gpu is None or f.fields.get("index") == gpu]
    addresses = {str(f.fields.get("bus_id") or f.key) for f in chosen}
    wanted = [f for f in findings if f.severity != "info" and (gpu is None or f.gpu is None or f.gpu in addresses)]
    given: list[Given] = []
    missing: list[Piece] = []
    for identity in asked.pieces:
        piece = table.pieces[identity]
        values = _values(piece, host, chosen)
        if values:
            given.append(Given(piece, values))
        else:
            missing.append(piece)
    lines, unread = _lines(host, since_s, addresses if gpu is not None else None)
    return Ticket(asked, name, host.clock(), chosen, given, missing, lines, wanted, unread)


def _values(piece: Piece, host: Asked, gpus: list[Fact]) -> list[tuple[str, str]]:
    match piece.of:
        case "gpu":
            out = []
            for gpu in gpus:
                told = [str(gpu.fields[f]) for f in piece.fields if gpu.fields.get(f) is not None]
                if told:
                    out.append((f"GPU {gpu.fields.get('index', gpu.key)}", printable(", ".join(told))))
            return out
        case "json":
            return _of_json(piece, host)
        case "kvp":
            return _of_kvp(piece, host)
        case "report":
            found = [path for pattern in piece.paths for path in host.files(pattern, 16)]
            return [("", printable(path)) for path in found[:5]]
    for path in piece.paths:
        answer = host.file(path, 4096)
        text = printable(" ".join(answer.text.split("\n", 1)[0].split())) if answer.ok else ""
        if not _EMPTY.match(text):
            return [("", text[:300])]
    return []


def _of_json(piece: Piece, host: Asked) -> list[tuple[str, str]]:
    for path in piece.paths:
        answer = host.file(path, 1 << 20)
        try:
            data: Any = json.loads(answer.text) if answer.ok else None
        except (ValueError, RecursionError):
            continue
        out = []
        for field in piece.fields:
            value = data
            for part in field.split("."):
                value = value.get(part) if isinstance(value, dict) else None
            if isinstance(value, str) and not _EMPTY.match(value):
                out.append(("", printable(value)[:200]))
        if out:
            return out
    return []


_KEY_BYTES, _VALUE_BYTES = 512, 2048


def _of_kvp(piece: Piece, host: Asked) -> list[tuple[str, str]]:
    """Hyper-V's pools are records of 512 bytes of key and 2048 of value, both ended by a zero (Linux tools/hv/hv_kvp_daemon.c)."""
    for path in piece.paths:
        answer = host.file(path, 1 << 20)
        data = answer.data if answer.ok else b""
        pairs = {}
        for start in range(0, len(data) - _KEY_BYTES, _KEY_BYTES + _VALUE_BYTES):
            key = data[start : start + _KEY_BYTES].split(b"\0", 1)[0]
            value = data[start + _KEY_BYTES : start + _KEY_BYTES + _VALUE_BYTES].split(b"\0", 1)[0]
            pairs[key.decode("utf-8", "replace")] = value.decode("utf-8", "replace")
        for field in piece.fields:
            if pairs.get(field):
                return [("", printable(pairs[field])[:200])]
    return []


def _lines(host: Asked, since_s: float, addresses: set[str] | None) -> tuple[list[Line], str | None]:
    """Lines with Xids, oldest first, of this boot and, where the journal has them, of earlier ones."""
    seen = look_at_earlier_logs(host, Wanted())
    current = look_at_kernel_log(host, Wanted())
    now = host.clock()
    up = host.file("/proc/uptime", 64)
    booted = now - float(up.line.split()[0]) if up.ok and re.match(r"\d+(\.\d+)? ", up.line + " ") else None
    zone = zone_of(host, now)
    out: dict[str, Line] = {}
    for _, data in (*seen.texts, *current.texts):
        for raw in data.decode("utf-8", "replace").splitlines():
            line = _line(raw, booted, zone)
            if line is None or (line.at is not None and line.at < now - since_s):
                continue
            if addresses is not None and line.gpu is not None and not any(a.startswith(line.gpu) for a in addresses):
                continue
            message = line.text.partition("NVRM:")[2] or line.text
            out.setdefault(f"{message} {round((line.at or 0) / 5)}", line)
    lines = sorted(out.values(), key=lambda one: one.at or 0.0)[-_MOST_LINES:]
    why = current.gaps[0].why if current.gaps and not seen.texts else None
    return lines, why


def _line(raw: str, booted: float | None, zone: float) -> Line | None:
    found = _XID.search(raw) if "Xid" in raw else None
    if found is None:
        return None
    address = (found["gpu"] or "").lower().removesuffix(".") or None
    if address is not None and re.fullmatch(r"[0-9a-f]{4,8}:[0-9a-f]{2}(:[0-9a-f]{2})?(\.[0-7])?", address) is None:
        address = None
    code = found["sxid"] or found["code"]
    return Line(
        printable(raw.strip())[:400],
        _moment(raw, booted, zone),
        int(code[:9]),
        "sxid" if found["sxid"] else "xid",
        address,
    )


def _moment(raw: str, booted: float | None, zone: float) -> float | None:
    """Unix seconds of a line."""
    stamp = find_stamp(raw)
    if stamp is None:
        return None
    if stamp.uptime:
        return booted + stamp.seconds if booted is not None else None
    return stamp.seconds if stamp.zoned else stamp.seconds - zone


def meaning(line: Line, lang: str) -> str:
    """What the catalogue says of the line's code."""
    info = xid_info(line.kind, line.code)
    return info.text_zh if lang == "zh" else info.text_en
