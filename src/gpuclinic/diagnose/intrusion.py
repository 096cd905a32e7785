"""Keys and log-ins in time: an authorized_keys that changed shortly before root came in from outside."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from gpuclinic.diagnose.candidates import Pool, Support
from gpuclinic.model import LEVEL_CONFIDENCE

if TYPE_CHECKING:
    from gpuclinic.diagnose.evidence import Reading
    from gpuclinic.model import Fact

_SOON = 6 * 3600.0
_YEAR = 365 * 86400.0
_FULL = re.compile(r"(\d{4})-(\d\d)-(\d\d)[ T](\d\d):(\d\d)(?::(\d\d))?")


def add_intrusion(pool: Pool, reading: Reading) -> None:
    """Adds a reason for planted keys: a key file changed within hours before root came in by key from outside."""
    names = ("authorized_keys", "authorized_keys2")
    files = [f for f in reading.facts if f.kind == "file" and _path(f).endswith(names)]
    logins = [s for s in reading.signals if s.signature == "sec.root_key_from_outside" and s.time is not None]
    for file in files:
        changed = _seconds(file)
        for login in logins:
            if changed is None or login.time is None:
                continue
            lag = login.time.seconds - changed
            lag = lag % _YEAR if login.time.yearless else lag
            if 0 <= lag <= _SOON:
                support = Support(
                    id="sec.key_changed_before_login",
                    worth=LEVEL_CONFIDENCE["strong"],
                    places=[file.where("time"), login.where],
                    order=login.order,
                    moment=pool.timeline.clock(login),
                )
                pool.add("sec.ssh_keys", support, host=login.host, source=login.where.source, subject={})
                return


def _path(file: Fact) -> str:
    return str(file.fields.get("path") or file.fields.get("name"))


def _seconds(file: Fact) -> float | None:
    """The file's time of change as if it were UTC: log-ins of the same host are in the same local time."""
    found = _FULL.search(str(file.fields.get("time")))
    if not found:
        return None
    year, month, day, hour, minute, second = (int(p or 0) for p in found.groups())
    try:
        return datetime(year, month, day, hour, minute, second, tzinfo=timezone.utc).timestamp()
    except ValueError:
        return None
