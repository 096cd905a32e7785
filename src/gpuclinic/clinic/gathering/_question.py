"""What a person asks about on a running machine: a process, a job, a span of time; and how such words are read."""

from __future__ import annotations

import datetime as dt
import re
from typing import Literal

import msgspec

from gpuclinic.model import UserError
from gpuclinic.observe.asking import LATEST

JobKind = Literal["slurm", "unit", "container", "pod", "name"]
_SPAN = re.compile(r"(\d+(?:\.\d+)?) ?(s|sec|m|min|h|d|w)(?: ?ago)?")
_UNITS = {"s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "w": 604800}
_FORMS = ("%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d", "%m-%dT%H:%M:%S", "%m-%dT%H:%M", "%H:%M:%S", "%H:%M")
_UNIT = re.compile(r"[\w@.:\\-]+\.(?:service|scope|slice|socket|timer|mount)")
_SLURM = re.compile(r"\d{1,10}(?:_\d{1,7})?(?:\+\d{1,5})?(?:\.(?:\d{1,7}|batch|extern|interactive))?")
_WORD = re.compile(r"[A-Za-z0-9][\w.@:-]{0,252}", re.ASCII)


def as_moment(value: object) -> float | None:
    """Unix seconds that a capture tells; None where it is no number, or none of a time that there is."""
    real = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= LATEST
    return float(value) if real and isinstance(value, (int, float)) else None


class Job(msgspec.Struct, frozen=True):
    """kind: what the words mean; "name" may be a container's or a unit's. name: without the namespace; namespace: of a pod."""

    kind: JobKind
    name: str
    namespace: str = ""

    @property
    def shown(self) -> str:
        """As a person names it."""
        return f"pod {self.namespace}/{self.name}" if self.kind == "pod" else self.name

    @property
    def slurm_id(self) -> str:
        """The job's number without its step."""
        return self.name.partition(".")[0]


class Question(msgspec.Struct, frozen=True):
    """pid, job: what to explain; neither: the latest death of the user. since, until: Unix seconds, None where not asked.

    recorded: to a capture, which holds the logs since recorded_since (None: of a day) and no programs' answers about one process.
    home, folder: where newest logs are looked for ("" for nowhere); uid: whose deaths count, None for everybody's.
    """

    pid: int | None = None
    job: Job | None = None
    since: float | None = None
    until: float | None = None
    uid: int | None = None
    home: str = ""
    folder: str = ""
    recorded: bool = False
    recorded_since: float | None = None


def parse_job(text: str) -> Job:
    """A Slurm id, a systemd unit, a container's id or name, or "pod NAMESPACE/NAME".

    >>> parse_job("pod ml/train-0").namespace, parse_job("771204.batch").kind, parse_job("vllm.service").kind, parse_job("train1").kind
    ('ml', 'slurm', 'unit', 'name')
    """
    words = text.strip()
    pod = re.fullmatch(r"(?:pods?[ /:])?(?:([a-z0-9][a-z0-9-]{0,62})/)?([a-z0-9][a-z0-9.-]{0,252})", words)
    if pod and (words.startswith(("pod ", "pod/", "pod:", "pods/")) or "/" in words):
        return Job("pod", pod[2], pod[1] or "default")
    if _SLURM.fullmatch(words):
        return Job("slurm", words)
    if _UNIT.fullmatch(words) and _WORD.match(words):
        return Job("unit", words)
    named = re.fullmatch(r"(slurm|job|unit|service|container|docker|podman)[ :/]+(\S+)", words)
    kinds: dict[str, JobKind] = {"slurm": "slurm", "job": "slurm", "unit": "unit", "service": "unit"}
    if named and _WORD.fullmatch(named[2]):
        return Job(kinds.get(named[1], "container"), named[2])
    if re.fullmatch(r"[0-9a-f]{12,64}", words):
        return Job("container", words)
    if _WORD.fullmatch(words):
        return Job("name", words)
    raise UserError(f"--job: neither a Slurm id, a systemd unit, a container nor a pod: {text}")


def parse_moment(text: str, now: float, zone: dt.tzinfo | None = None, *, option: str = "--since") -> float:
    """As `_moment` reads it, no earlier than 1970: what asks for more asks for everything. UserError: no time that there is."""
    try:
        moment = _moment(text, now, zone)
    except (ValueError, OverflowError, OSError):
        raise UserError(_no_time(option, text)) from None
    if not moment <= LATEST:
        raise UserError(_no_time(option, text))
    return max(0.0, moment)


def _no_time(option: str, text: str) -> str:
    return f'{option}: no such time: {text[:80]} (2h, 30m, today, yesterday, 04:00, "2026-03-02 04:00")'


def _moment(text: str, now: float, zone: dt.tzinfo | None) -> float:
    """Unix seconds of "2h", "30m", "today", "yesterday", "04:00", "2026-03-02 04:00", "@1709352669". zone: the machine's; None for the local one.

    >>> utc = dt.timezone.utc
    >>> parse_moment("2h", 10000.0), parse_moment("1970-01-01 04:00", 0.0, utc), parse_moment("today", 90000.0, utc)
    (2800.0, 14400.0, 86400.0)
    """
    words = " ".join(text.strip().lower().split())
    here = dt.datetime.fromtimestamp(now, zone)
    midnight = here.replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
    if words in ("now", "today", "yesterday"):
        found = {"now": here.replace(tzinfo=None), "today": midnight, "yesterday": midnight - dt.timedelta(days=1)}[
            words
        ]
        return _seconds(found, zone)
    span = _SPAN.fullmatch(words.removeprefix("-"))
    if span:
        return now - float(span[1]) * _UNITS[span[2]]
    if re.fullmatch(r"@?\d{9,10}(?:\.\d+)?", words):
        return float(words.removeprefix("@"))
    stamp = text.strip().upper().replace(" ", "T", 1) if ":" in words else text.strip()
    for form in _FORMS:
        try:
            found = dt.datetime.strptime(stamp, form)  # noqa: DTZ007 - the zone is put on below
        except ValueError:
            continue
        if form.startswith("%H"):
            found = found.replace(year=midnight.year, month=midnight.month, day=midnight.day)
            found -= dt.timedelta(days=_seconds(found, zone) > now)
        elif form.startswith("%m"):
            found = found.replace(year=midnight.year)
        return _seconds(found, zone)
    whole = dt.datetime.fromisoformat(stamp.replace("Z", "+00:00"))
    return whole.timestamp() if whole.tzinfo is not None else _seconds(whole, zone)


def _seconds(moment: dt.datetime, zone: dt.tzinfo | None) -> float:
    return (moment.replace(tzinfo=zone) if zone is not None else moment).timestamp()
