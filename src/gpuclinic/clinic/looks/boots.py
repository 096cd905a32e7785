"""How this machine came to be booted: a planned reboot, or one that nobody asked for; and what a crash left behind."""

from __future__ import annotations

import datetime as dt
import re
from typing import TYPE_CHECKING, NamedTuple

from gpuclinic.clinic.looks._look import Seen, Wanted, as_number, first_line, is_absent, tells_time
from gpuclinic.clinic.looks.driver import in_container
from gpuclinic.model import Gap
from gpuclinic.recognise.login_records import Restart, restarts
from gpuclinic.recognise.timestamps import find_stamp

if TYPE_CHECKING:
    from gpuclinic.model import Scalar
    from gpuclinic.observe.asking import Asked

LOOK = "kernel.boots"
_WTMP = "/var/log/wtmp"
_MOST = 32 << 20
_TAIL = ("journalctl", "-b", "-1", "-n", "40", "-o", "short-iso", "--no-pager", "-q")
_JOURNAL = " ".join(_TAIL[:3])
_CLEAN = re.compile(
    r"Reached target .{0,40}(?:Shutdown|Reboot|Power[- ]?Off|Final Step|Halt)|systemd-shutdown\[|reboot: (?:Restarting|Power down)|"
    r"Received SIGTERM from PID 1 \(systemd-shutdow|Journal stopped|systemd-logind.{0,30}(?:rebooting|powering)"
)
_CONTROLLER = (("ipmitool", "chassis", "restart_cause"), ("ipmitool", "chassis", "status"))
_UPS_SAYS = re.compile(r"(?:apcupsd|upsmon|nut-monitor|upsd|upssched)(?:\[\d+\])?: ")
_WATCHDOGS = "/sys/class/watchdog/*/bootstatus"
_SOON = 3 * 86400.0
_TOLD = 8 * 86400.0
"""How long after a boot it is still asked why it came about."""
_RECORDS = (
    ("/sys/fs/pstore/*", "pstore"), ("/var/lib/systemd/pstore/*/dmesg.txt", "pstore"), ("/var/lib/systemd/pstore/*/*/dmesg.txt", "pstore"),
    ("/var/crash/*/vmcore-dmesg.txt", "kdump"), ("/var/crash/*/dmesg.*", "kdump"),
)  # fmt: skip
_MOST_RECORD = 1 << 18
_OLD = 30 * 86400.0
_MOST_RESTARTS = 50
_BEFORE_BOOT = 120.0
_CLOCK_SET = 120.0
"""Seconds between the kernel's start and the record of it, and by which clocks are corrected at a start without being called wrong."""


def look_at_boots(host: Asked, wanted: Wanted) -> Seen:
    """Facts restart (each boot that is on record) and crash_record; crash records of the last 30 days as texts, too.

    Of a boot that no shutdown preceded also what may tell why: facts watchdog, and texts of the board's controller and of a UPS.
    """
    seen = Seen()
    now = host.clock()
    up = as_number(first_line(host, "/proc/uptime"))
    booted = _booted(host, now, up)
    crashes = _crash_records(host, seen, now, booted)
    if in_container(host):
        return seen
    answer = host.file(_WTMP, _MOST, end=True)
    found = restarts(answer.data) if answer.ok and not answer.cut else []
    if not found and not answer.ok and not is_absent(answer):
        seen.gaps.append(Gap(LOOK, f"{_WTMP}: {answer.why}"))
    told = [(one, _WTMP) for one in found[-_MOST_RESTARTS:]]
    ended = bool(found) and booted is not None and _nobody_writes(host, booted)
    end: _End | None = None
    if found and not ended:
        last = found[-1]
        if last.how in ("unclean", "unknown") and -86400.0 < now - last.at < _TOLD:
            end = _end_before(host, last.at if booted is None else booted, found[-2].at if len(found) > 1 else 0.0)
            told[-1] = (last._replace(how=_settled(last.how, end)), _WTMP)
    elif up is not None and up < _SOON and booted is not None:
        end = _end_before(host, booted, found[-1].at if found else 0.0)
        if end is not None:
            told.append((Restart(booted, "", "planned" if end.clean else "unclean", None), _JOURNAL))
    newest = told[-1] if told and not (ended and told[-1][1] == _WTMP) else None
    for pair in told:
        latest = pair is newest
        _restart(seen, pair[0], pair[1], now, crashes, latest=latest, booted=booted, end=end if latest else None)
    if newest is not None and newest[0].how in ("unclean", "unknown") and now - newest[0].at < _TOLD:
        _what_tells_why(host, wanted, seen, end)
    return seen


def _nobody_writes(host: Asked, booted: float) -> bool:
    """The login records end before this boot: an upgrade has taken away who wrote them (Debian 13, Fedora 43), and they tell nothing of it."""
    changed = as_number(host.stat(_WTMP).json().get("mtime"))
    return changed is not None and changed < booted - _CLOCK_SET


def _booted(host: Asked, now: float, up: float | None) -> float | None:
    """When this boot began: the kernel's own time, which stays, before the difference of two clocks, which moves with every reading."""
    found = re.search(r"^btime (\d{1,12})$", host.file("/proc/stat", 1 << 20).text, re.MULTILINE)
    if found:
        return float(found[1])
    return now - up if up is not None and tells_time(host) else None


def _identity(recorded: float | None, booted: float) -> float:
    """When the latest boot was, the same at every look, since its findings are known by it.

    That is what its record says, unless the clock was wrong while it was written; else the minute, since setting the clock moves
    the kernel's own time, too.
    """
    if recorded is not None and abs(recorded - booted) <= _CLOCK_SET:
        return recorded
    return round(booted / 60.0) * 60.0


def _restart(
    seen: Seen, one: Restart, place: str, now: float, crashes: list[float], *, latest: bool, booted: float | None, end: _End | None
) -> None:  # fmt: skip
    at = one.at
    if latest and booted is not None:
        at = _identity(one.at if place == _WTMP else None, booted)
    panicked = any(
        -86400.0 * 30 < crash - at <= 900.0 and crash >= at - (one.ran_s or 0.0) - 900.0 for crash in crashes
    )
    how = "panic" if one.how != "planned" and panicked else one.how
    shown = dt.datetime.fromtimestamp(max(0.0, min(at, 4e9)), dt.timezone.utc).isoformat(timespec="seconds")
    fields: dict[str, Scalar] = {
        "at": at, "time": shown, "how": how, "kernel": one.kernel or None, "ran_s": one.ran_s, "latest": latest, "age_s": max(0.0, now - at),
        "last_line_at": end.last_line_at if end is not None else None,
    }  # fmt: skip
    said = {"planned": "after a shutdown on record", "unclean": "no shutdown on record before it"}.get(
        one.how, "no records of shutdowns"
    )
    seen.fact("restart", shown, fields, place, how=f"system boot {shown}, {said}")


class _End(NamedTuple):
    """The last lines of the boot before. clean: they show an orderly shutdown. last_line_at: Unix seconds, None where no line is dated.

    supply: the lines in which a UPS spoke, the others left empty.
    """

    clean: bool
    last_line_at: float | None
    supply: bytes
    place: str


def _end_before(host: Asked, at: float, earlier: float) -> _End | None:
    """The end of the boot before in the journal; None where there is none, or where it is of a boot before that (earlier: Unix seconds)."""
    answer = host.command(*_TAIL, deadline=1.5, most=1 << 18)
    if not answer.ok or not answer.lines():
        return None
    stamps = [stamp for line in answer.lines()[-5:] if (stamp := find_stamp(line)) is not None and stamp.zoned]
    last = stamps[-1].seconds if stamps else None
    if last is not None and not earlier <= last <= at + _CLOCK_SET:
        return None
    lines = [line if _UPS_SAYS.search(line) else "" for line in answer.text.splitlines()]
    supply = "\n".join(lines).encode() if any(lines) else b""
    return _End(bool(_CLEAN.search(answer.text)), last, supply, answer.named(" ".join(_TAIL[:3])))


def _settled(how: str, end: _End | None) -> str:
    """Login records leave out shutdowns now and then, some machines' all; the journal's end shows them."""
    if end is None:
        return how
    return "planned" if end.clean else "unclean"


def _what_tells_why(host: Asked, wanted: Wanted, seen: Seen, end: _End | None) -> None:
    """Watchdogs, the board's controller where there is one, and a UPS; what the kernel's own log says is read anyway."""
    if end is not None and end.supply:
        seen.texts.append((end.place, end.supply))
    for path, status in host.files(_WATCHDOGS, 64).items():
        if status.ok and status.line.isdecimal() and len(status.line) < 10:
            name = path.split("/")[-2]
            identity = (first_line(host, f"/sys/class/watchdog/{name}/identity") or "")[:80]
            fields: dict[str, Scalar] = {"boot_status": int(status.line), "identity": identity or None}
            shown = f"{identity or name}: bootstatus {int(status.line):#04x}"
            seen.fact("watchdog", name, fields, path, boot_status=shown)
    virtual = any(fact.fields.get("virtual") or fact.fields.get("container") for fact in wanted.of("view"))
    if host.stat("/dev/ipmi0").ok and not virtual:
        host.expect(list(_CONTROLLER))
        for argv in _CONTROLLER:
            answer = host.command(*argv, deadline=1.0, most=1 << 14)
            seen.text(answer.named(" ".join(argv)), answer, LOOK)


def _crash_records(host: Asked, seen: Seen, now: float, booted: float | None) -> list[float]:
    """When the records were made: a panic's before this boot, whatever the file's time. Old ones stay as facts only."""
    out: list[float] = []
    for pattern, kind in _RECORDS:
        for path, answer in host.files(pattern, _MOST_RECORD).items():
            if not answer.ok or not answer.data or path.endswith(".enc.z"):
                continue
            at = _made_at(host, path)
            if at is None:
                continue
            if booted is not None and (kind == "kdump" or answer.data.startswith(b"Panic")):
                at = min(at, booted - _BEFORE_BOOT)
            out.append(at)
            seen.fact(
                "crash_record",
                path,
                {"path": path, "what": kind, "at": at, "age_s": max(0.0, now - at)},
                path,
                at=_last_line(answer.text),
            )
            if now - at < _OLD:
                data = host.file(path, _MOST_RECORD, end=True).data if answer.cut else answer.data
                seen.texts.append((path, data))
    return out


def _made_at(host: Asked, path: str) -> float | None:
    """The time in the name, as pstore's own and systemd's have it, else the file's."""
    found = re.search(r"[-/]1(\d{9})(?:\d{5})?(?:/|$)", path)
    if found:
        return float("1" + found[1])
    return as_number(host.stat(path).json().get("mtime"))


def _last_line(text: str) -> str:
    told = [line.strip() for line in text.splitlines() if re.search(r"Kernel panic|BUG:|Oops|LOCKUP|lockup", line)]
    return (told[0] if told else text.strip().partition("\n")[0])[:300]
